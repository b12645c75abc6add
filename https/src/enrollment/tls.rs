//! TLS between branches and head office: version 1.3, and a key that the token pins.

use crate::certificate::{self, Identity};
use crypto::hash::sha256;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, ServerConfig,
    SignatureScheme,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// The name in the certificate, which nobody checks: the key counts.
const NAME: &str = "enrollment.postern.invalid";
/// Tokens pin the key, so it stays.
const LIFETIME_DAYS: u32 = 36_500;

/// SHA-256 of the public key of a certificate.
fn pin_of(certificate: &CertificateDer<'_>) -> Result<[u8; 32], Error> {
    Ok(sha256(&[ParsedCertificate::try_from(certificate)?.subject_public_key_info().as_ref()]))
}

/// How connections of branches are secured, and the pin in hexadecimal. The folder keeps the certificate.
pub(crate) fn config(folder: &Path) -> Result<(Arc<ServerConfig>, String), String> {
    let names = BTreeSet::from([NAME.to_owned()]);
    let Identity { chain, key } =
        certificate::lasting(folder, names, LIFETIME_DAYS).map_err(|error| error.to_string())?;
    let pin = pin_of(&chain[0]).map_err(|error| error.to_string())?;
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| error.to_string())?;
    let mut config =
        builder.with_no_client_auth().with_single_cert(chain, key).map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((Arc::new(config), base16ct::lower::encode_string(&pin)))
}

/// How a branch connects: only the server with the key that its token pins is head office.
pub(super) fn client(pin: [u8; 32]) -> Result<(Arc<ClientConfig>, ServerName<'static>), Error> {
    let provider = Arc::new(default_provider());
    let pinned = Pinned { pin, algorithms: provider.signature_verification_algorithms };
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
    let verified = builder.dangerous().with_custom_certificate_verifier(Arc::new(pinned));
    let name = ServerName::try_from(NAME).map_err(|error| Error::General(error.to_string()))?;
    Ok((Arc::new(verified.with_no_client_auth()), name))
}

#[derive(Debug)]
struct Pinned {
    pin: [u8; 32],
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The clock of a new machine may be wrong: only the key counts.
        if pin_of(certificate)? == self.pin {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOfferedOrEnabled.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
