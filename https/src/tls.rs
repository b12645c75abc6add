//! TLS: the certificate and the versions that are accepted.

use crate::certificate::{self, Identity};
use base64ct::{Base64, Encoding};
use gateway::https::wire::{Certificate, Listener, Service};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

/// What is wanted of TLS.
pub(crate) struct Wanted<'a> {
    /// The certificate; without one, the server signs its own.
    pub(crate) certificate: Option<&'a Certificate>,
    /// Days for which such a certificate is valid.
    pub(crate) lifetime_days: u32,
    /// Names of this machine in such a certificate, beside those of its addresses.
    pub(crate) names: &'a [String],
    pub(crate) listeners: &'a [Listener],
    pub(crate) tls12: bool,
    pub(crate) tls13: bool,
}

impl<'a> Wanted<'a> {
    pub(crate) fn of(service: &'a Service) -> Self {
        Self {
            certificate: service.certificate.as_ref(),
            lifetime_days: service.lifetime_days,
            names: &service.names,
            listeners: &service.listeners,
            tls12: service.tls12,
            tls13: service.tls13,
        }
    }
}

/// How connections are secured, and SHA-256 of the certificate, in hexadecimal. The folder keeps one that the server signs itself.
pub(crate) fn config(wanted: &Wanted<'_>, folder: &Path) -> Result<(Arc<ServerConfig>, String), String> {
    let Identity { chain, key } = match wanted.certificate {
        Some(certificate) => configured(certificate)?,
        None => certificate::own(folder, names(wanted), wanted.lifetime_days)
            .map_err(|error| error.to_string())?,
    };
    let fingerprint = base16ct::lower::encode_string(&crypto::hash::sha256(&[chain[0].as_ref()]));
    let mut versions: Vec<&'static SupportedProtocolVersion> = Vec::new();
    versions.extend(wanted.tls13.then_some(&TLS13));
    versions.extend(wanted.tls12.then_some(&TLS12));
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&versions)
        .map_err(|error| error.to_string())?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).map_err(|error| {
        format!("the certificate cannot be used: {error}\n  fix: set pki certificate NAME certificate BASE64, with its private key")
    })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((Arc::new(config), fingerprint))
}

fn configured(certificate: &Certificate) -> Result<Identity, String> {
    let wrong = "the certificate or its key is no base64".to_owned();
    let chain = certificate.chain.iter().map(|one| Base64::decode_vec(one).map(CertificateDer::from));
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|_| wrong.clone())?;
    let key =
        Zeroizing::new(Base64::decode_vec(certificate.private_key.as_str()).map_err(|_| wrong.clone())?);
    let key = PrivateKeyDer::try_from(key.as_slice()).map_err(|_| {
        "the private key is neither PKCS #8 nor PKCS #1 nor SEC 1\n  fix: openssl pkey -in KEY -outform DER | base64 -w0".to_owned()
    })?;
    if chain.is_empty() {
        return Err(wrong);
    }
    Ok(Identity { chain, key: key.clone_key() })
}

/// The names of this machine: configured ones, its own, and the addresses that are listened on.
fn names(wanted: &Wanted<'_>) -> BTreeSet<String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let fixed = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let addresses = wanted.listeners.iter().map(|listener| listener.address.ip());
    let addresses = addresses.filter(|address| !address.is_unspecified()).map(|address| address.to_string());
    let configured = wanted.names.iter().cloned();
    fixed.into_iter().chain(addresses).chain(configured).chain((!host.is_empty()).then_some(host)).collect()
}
