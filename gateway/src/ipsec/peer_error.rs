//! Why a peer cannot be served, and the fix.

use crypto::pki::ChainError;

/// Why a peer cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// Its domain names cannot be resolved.
    #[error(
        "vpn ipsec site-to-site peer {peer}: {name} has no address now: {error}\n  fix: set vpn ipsec site-to-site peer {peer} remote-address ADDRESS, or mend the resolver and reload"
    )]
    Name {
        /// The peer.
        peer: String,
        /// Its domain name.
        name: String,
        /// The resolver's error.
        error: std::io::Error,
    },
    /// A certificate, list or key is wrong.
    #[error("vpn ipsec site-to-site peer {peer}: {of}: {error}\n  fix: {fix}")]
    Pki {
        /// The peer.
        peer: String,
        /// Which certificate, list or key.
        of: String,
        /// What is wrong with it.
        error: Box<dyn std::error::Error + Send + Sync>,
        /// What to do.
        fix: String,
    },
    /// Our private key is that of another certificate.
    #[error(
        "vpn ipsec site-to-site peer {peer}: pki certificate {certificate} private key: it does not belong to the certificate, which has another public key\n  fix: set pki certificate {certificate} private key BASE64, the key for which the certificate was issued, or set pki certificate {certificate} certificate BASE64, the one of this key"
    )]
    ForeignKey {
        /// The peer.
        peer: String,
        /// The name of the certificate.
        certificate: String,
    },
    /// Our certificate is not valid now.
    #[error(
        "vpn ipsec site-to-site peer {peer}: pki certificate {certificate} certificate: {error}, and every peer would refuse it\n  fix: set pki certificate {certificate} certificate BASE64, renewed by its authority; or set the clock of this machine, if it is wrong"
    )]
    OwnCertificate {
        /// The peer.
        peer: String,
        /// The name of the certificate.
        certificate: String,
        /// Why it is not valid.
        error: ChainError,
    },
    /// Our identity is not configured, and no address of ours from which the peer could be reached is known.
    #[error(
        "vpn ipsec site-to-site peer {0}: who we are is not configured, and no address of ours leads to it now\n  fix: set vpn ipsec site-to-site peer {0} authentication local-id NAME, or its local-address"
    )]
    NoIdentity(String),
}

impl PeerError {
    /// Whether the error may disappear without a change of the configuration.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Name { .. } | Self::NoIdentity(_))
    }

    /// Of what stands in the configuration at `place`.
    pub(super) fn pki(
        peer: &str,
        place: String,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        let fix = format!("set {place} BASE64, what stands between the first and last line of its PEM file");
        Self::Pki { peer: peer.to_owned(), of: place, error: Box::new(error), fix }
    }

    /// Of a file that is named at `place`.
    pub(super) fn file(
        peer: &str,
        place: &str,
        path: &str,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        let fix = format!("write the list there, in PEM or DER, or delete {place} {path}");
        Self::Pki { peer: peer.to_owned(), of: format!("{place} {path}"), error: Box::new(error), fix }
    }

    /// Of a distinguished name.
    pub(super) fn name(
        peer: &str,
        text: &str,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        let path = format!("set vpn ipsec site-to-site peer {peer} authentication");
        let fix = format!("{path} local-id or remote-id, like 'C=DE, O=Example, CN=berlin'");
        let of = format!("the name {text}");
        Self::Pki { peer: peer.to_owned(), of, error: Box::new(error), fix }
    }
}
