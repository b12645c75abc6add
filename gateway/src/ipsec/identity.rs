//! Identities of the configuration as IKE has them (RFC 7296 section 3.5).

use super::peer_error::PeerError;
use config::settings::ipsec::Identity;
use tunnel::ikev2 as ike;

/// The identity that IKE shows or expects. The error is that of a distinguished name that cannot be read.
pub(super) fn identity(peer: &str, id: &Identity) -> Result<ike::Identity, PeerError> {
    Ok(match id {
        Identity::Address(address) => (*address).into(),
        Identity::Domain(name) => ike::Identity::Fqdn(name.clone()),
        Identity::Email(name) => ike::Identity::Email(name.clone()),
        Identity::KeyId(bytes) => ike::Identity::KeyId(bytes.clone()),
        Identity::DistinguishedName(text) => {
            ike::Identity::Name(text.parse().map_err(|error| PeerError::name(peer, text, error))?)
        }
    })
}
