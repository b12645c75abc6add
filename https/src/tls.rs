//! TLS: the certificate and the versions that are accepted.

use crate::certificate::{self, Identity};
use crate::place::Place;
use base64ct::{Base64, Encoding};
use gateway::https::wire::{Certificate, Service};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use std::collections::BTreeSet;
use std::sync::Arc;
use zeroize::Zeroizing;

/// How connections are secured, and SHA-256 of the certificate, in hexadecimal.
pub(crate) fn config(service: &Service, place: &Place) -> Result<(Arc<ServerConfig>, String), String> {
    let Identity { chain, key } = match &service.certificate {
        Some(certificate) => configured(certificate)?,
        None => certificate::own(&place.state.join("https"), names(service), service.lifetime_days)
            .map_err(|error| error.to_string())?,
    };
    let fingerprint = base16ct::lower::encode_string(&crypto::hash::sha256(&[chain[0].as_ref()]));
    let mut versions: Vec<&'static SupportedProtocolVersion> = Vec::new();
    versions.extend(service.tls13.then_some(&TLS13));
    versions.extend(service.tls12.then_some(&TLS12));
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
fn names(service: &Service) -> BTreeSet<String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let fixed = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let addresses = service.listeners.iter().map(|listener| listener.address.ip());
    let addresses = addresses.filter(|address| !address.is_unspecified()).map(|address| address.to_string());
    let configured = service.names.iter().cloned();
    fixed.into_iter().chain(addresses).chain(configured).chain((!host.is_empty()).then_some(host)).collect()
}
