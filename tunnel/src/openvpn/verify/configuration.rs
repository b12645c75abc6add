//! The configuration of TLS of both ends: who we are, and how the peer is verified.

use super::PeerCheck;
use crate::openvpn::offer::Offer;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, Error, ServerConfig};
use std::sync::Arc;

/// The configuration of TLS of a client.
pub type ClientTls = ClientConfig;

/// The configuration of TLS of a server.
pub type ServerTls = ServerConfig;

/// Our certificate with its chain, and its private key.
pub struct Identity {
    /// Our certificate first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key.
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    /// One whose private key is locked still: it proves nothing.
    pub fn locked() -> Self {
        Self { chain: Vec::new(), key: PrivateKeyDer::Pkcs8(Vec::new().into()) }
    }
}

/// Has no certificate, as the private key is locked.
#[derive(Debug)]
struct Nobody;

impl ResolvesServerCert for Nobody {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// The configuration of TLS for a client. A client without an identity authenticates by user name and password.
pub fn client_config(identity: Option<Identity>, check: PeerCheck) -> Result<ClientConfig, Error> {
    client_config_of(&Offer::default(), identity, check)
}

/// The same, with what it may negotiate.
pub fn client_config_of(
    offer: &Offer,
    identity: Option<Identity>,
    check: PeerCheck,
) -> Result<ClientConfig, Error> {
    let builder =
        ClientConfig::builder_with_provider(offer.provider()).with_protocol_versions(&offer.versions())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(check));
    match identity.filter(|identity| !identity.chain.is_empty()) {
        Some(Identity { chain, key }) => builder.with_client_auth_cert(chain, key),
        None => Ok(builder.with_no_client_auth()),
    }
}

/// The configuration of TLS for a server.
pub fn server_config(identity: Identity, check: Arc<PeerCheck>) -> Result<ServerConfig, Error> {
    server_config_of(&Offer::default(), identity, check)
}

/// The same, with what it may negotiate.
pub fn server_config_of(
    offer: &Offer,
    identity: Identity,
    check: Arc<PeerCheck>,
) -> Result<ServerConfig, Error> {
    let builder =
        ServerConfig::builder_with_provider(offer.provider()).with_protocol_versions(&offer.versions())?;
    let builder = builder.with_client_cert_verifier(check);
    if identity.chain.is_empty() {
        return Ok(builder.with_cert_resolver(Arc::new(Nobody)));
    }
    builder.with_single_cert(identity.chain, identity.key)
}

/// The configuration of TLS for a server that asks clients for no certificate (`verify-client-cert none`).
pub fn server_config_without_certificates(offer: &Offer, identity: Identity) -> Result<ServerConfig, Error> {
    let builder =
        ServerConfig::builder_with_provider(offer.provider()).with_protocol_versions(&offer.versions())?;
    let builder = builder.with_no_client_auth();
    if identity.chain.is_empty() {
        return Ok(builder.with_cert_resolver(Arc::new(Nobody)));
    }
    builder.with_single_cert(identity.chain, identity.key)
}
