//! Authentication of both sides: the credentials of the configuration for IKE, and the fix when one is not accepted.

use super::identity::identity;
use super::peer_error::PeerError;
use crate::clock::Clock;
use config::settings::ipsec::{Authentication, Peer, Rsa, Second, X509};
use crypto::pki::{Certificate, Evidence, TrustStore, chain};
use crypto::signature::{SigningKey, VerifyingKey};
use std::sync::Arc;
use tunnel::ikev2 as ike;

/// Reads the credentials of both sides. `evidence`: what is known about revocation besides the configuration.
pub(super) fn authentication(
    peer: &str,
    settings: &Peer,
    evidence: Option<&Arc<Evidence>>,
) -> Result<ike::Authentication, PeerError> {
    match &settings.authentication {
        Authentication::PreSharedSecret(secret) => Ok(ike::Authentication::SharedKey(secret.clone())),
        Authentication::X509(x509) => {
            Ok(ike::Authentication::Certificate(Arc::new(credentials(peer, x509, evidence)?)))
        }
        Authentication::Rsa(rsa) => Ok(ike::Authentication::RawKeys(Arc::new(raw_keys(peer, rsa)?))),
    }
}

/// Reads the certificates, the key and the lists of the configuration.
fn credentials(
    peer: &str,
    x509: &X509,
    evidence: Option<&Arc<Evidence>>,
) -> Result<ike::Credentials, PeerError> {
    let at = format!("pki certificate {}", x509.name);
    let key = SigningKey::from_der(x509.private_key.expose())
        .map_err(|error| PeerError::pki(peer, format!("{at} private key"), error))?;
    let own = Certificate::from_der(&x509.certificate)
        .map_err(|error| PeerError::pki(peer, format!("{at} certificate"), error))?;
    if key.public().info() != own.key().info() {
        return Err(PeerError::ForeignKey { peer: peer.to_owned(), certificate: x509.name.clone() });
    }
    let (mut trust, mut authorities) = (TrustStore::default(), Vec::new());
    for authority in &x509.authorities {
        let at = format!("pki ca {}", authority.name);
        let certificate = Certificate::from_der(&authority.certificate)
            .map_err(|error| PeerError::pki(peer, format!("{at} certificate"), error))?;
        trust
            .add_authority(certificate.clone())
            .map_err(|error| PeerError::pki(peer, format!("{at} certificate"), error))?;
        authorities.push(certificate);
        for list in &authority.revocation_lists {
            trust
                .add_revocation_lists(list)
                .map_err(|error| PeerError::pki(peer, format!("{at} crl"), error))?;
        }
    }
    trust.set_revocation(x509.revocation);
    let above: Vec<Certificate> = chain(&own, &authorities).into_iter().cloned().collect();
    if let Some(evidence) = evidence {
        trust.use_evidence(Arc::clone(evidence));
        // Peers often have our issuer: its revocation status is fetched before the first one connects.
        let _ = trust.verify(&own, &above, Clock.now().wall);
    }
    let certificates = [own].into_iter().chain(above).collect();
    Ok(ike::Credentials { key, certificates, trust, accept_sha1: x509.accept_sha1 })
}

/// Reads our private key, and the public one of the peer.
fn raw_keys(peer: &str, rsa: &Rsa) -> Result<ike::RawKeys, PeerError> {
    let at = |name: &str, half: &str| format!("pki key-pair {name} {half} key");
    Ok(ike::RawKeys {
        own: SigningKey::from_der(rsa.private_key.expose())
            .map_err(|error| PeerError::pki(peer, at(&rsa.local_key, "private"), error))?,
        peer: VerifyingKey::from_info(&rsa.public_key)
            .map_err(|error| PeerError::pki(peer, at(&rsa.remote_key, "public"), error))?,
    })
}

/// A warning if the peer's expected key or identity is our own: then only a peer with our private key is accepted.
pub(super) fn our_own(name: &str, peer: &Peer, authentication: &ike::Authentication) -> Option<String> {
    let set = format!("vpn ipsec site-to-site peer {name} authentication");
    match (authentication, &peer.authentication) {
        (ike::Authentication::RawKeys(keys), Authentication::Rsa(rsa)) => {
            let is_own = keys.own.public().info() == keys.peer.info();
            is_own.then(|| {
                format!(
                    "{set} rsa remote-key {}: it is our own public key, that of local-key {}, and the peer has another one\n  fix: \
                     set {set} rsa remote-key NAME, of a pki key-pair with the public key of the peer",
                    rsa.remote_key, rsa.local_key
                )
            })
        }
        (ike::Authentication::Certificate(credentials), _) => {
            let own = credentials.certificates.first().map(|own| ike::Identity::Name(own.subject().clone()));
            let remote = peer.remote_id.as_ref().and_then(|id| identity(name, id).ok());
            let is_own = remote.is_some() && (remote == own || peer.remote_id == peer.local_id);
            is_own.then(|| {
                format!(
                    "{set} remote-id: it is our own name, and the peer has another one\n  fix: set {set} remote-id NAME, \
                     which the certificate of the peer has"
                )
            })
        }
        _ => None,
    }
}

/// The authentication method, for the commands of a fix.
#[derive(Clone, Debug, Default)]
pub enum Proof {
    /// A pre-shared secret; with the words before it in the configuration.
    Secret(String),
    /// Certificates.
    #[default]
    Certificate,
    /// Keys without certificates.
    Key,
}

/// Lines of configuration; `set` is the start of the line, up to the name of the peer.
impl Proof {
    /// The method of a configured peer.
    pub(super) fn of(name: &str, peer: &Peer) -> Self {
        match (&peer.authentication, &peer.psk) {
            (Authentication::PreSharedSecret(_), Some(psk)) => {
                Self::Secret(format!("set vpn ipsec authentication psk {psk} secret"))
            }
            (Authentication::PreSharedSecret(_), None) => Self::Secret(format!(
                "set vpn ipsec site-to-site peer {name} authentication pre-shared-secret"
            )),
            (Authentication::X509(_), _) => Self::Certificate,
            (Authentication::Rsa(_), _) => Self::Key,
        }
    }

    /// The method of a second round.
    pub(super) fn of_second(second: &Second) -> Self {
        Self::Secret(format!("set vpn ipsec authentication psk {} secret", second.psk))
    }

    /// The fix if we do not accept the peer's credentials.
    pub(super) fn to_believe(&self, set: &str) -> String {
        match self {
            Self::Secret(words) => same_secret(words),
            Self::Certificate => {
                format!("{set} authentication x509 ca-certificate NAME, of who signed the peer's certificate")
            }
            Self::Key => format!("{set} authentication rsa remote-key NAME, with the peer's public key"),
        }
    }

    /// The fix if the peer does not accept ours.
    pub(super) fn to_be_believed(&self, set: &str) -> String {
        match self {
            Self::Secret(words) => same_secret(words),
            Self::Certificate => format!(
                "{set} authentication x509 certificate NAME, signed by an authority that the peer trusts"
            ),
            Self::Key => format!("{set} authentication rsa local-key NAME, whose public key the peer has"),
        }
    }

    /// The fix if the peer supports no signature of our key.
    pub(super) fn to_sign(&self, set: &str) -> String {
        let key = if matches!(self, Self::Key) { "rsa local-key NAME" } else { "x509 certificate NAME" };
        format!("{set} authentication {key}, with a key of a kind that the peer takes")
    }

    /// The fixes if an RSA key, the peer's or ours, signs with SHA-1; the best first.
    pub(super) fn without_sha1(&self, set: &str, whose: &str) -> Vec<String> {
        let better = "have the peer sign by RFC 7427, with SHA-2".to_owned();
        match self {
            Self::Key => vec![better, format!("{set} authentication mode x509, or pre-shared-secret")],
            _ => vec![
                better,
                format!("or give {whose} a certificate with a key on a curve, which needs no RFC 7427"),
                format!("{set} authentication x509 accept-sha1, as a last resort: SHA-1 is weak"),
            ],
        }
    }
}

/// The line for a secret; `words` are those before it.
fn same_secret(words: &str) -> String {
    format!("{words} SECRET, the same on both sides")
}
