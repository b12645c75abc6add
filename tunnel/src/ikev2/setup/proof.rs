//! Showing who we are, and checking who the other side is (RFC 7296 section 2.15).

use crate::ikev2::action::Cause;
use crate::ikev2::config::{Authentication, Connection};
use crate::ikev2::identity::Identity;
use crate::ikev2::keys::{Signed, shared_key_mac};
use crate::ikev2::message;
use crate::ikev2::message::numbers::method;
use crypto::SecretBytes;
use crypto::prf::Prf;

/// The other side has shown who it is. Only [`verify`] makes one.
pub(crate) struct Verified {
    identity: Identity,
}

impl Verified {
    /// Who it is.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// The proof of one side, ready to be sent.
pub(super) struct Proof {
    pub(super) method: u8,
    pub(super) data: Vec<u8>,
}

/// Makes our proof; `key` is our SK_p.
pub(super) fn prove(config: &Connection, prf: Prf, key: &SecretBytes, signed: &Signed<'_>) -> Proof {
    let octets = signed.octets(prf, key);
    match &config.authentication {
        Authentication::SharedKey(shared) => {
            let data = shared_key_mac(prf, shared, &octets).expose().to_vec();
            Proof { method: method::SHARED_KEY, data }
        }
    }
}

/// Checks the other side's proof that it is `identity`; `key` is its SK_p.
pub(super) fn verify(
    config: &Connection,
    prf: Prf,
    key: &SecretBytes,
    signed: &Signed<'_>,
    identity: Identity,
    proof: &message::Authentication<'_>,
) -> Result<Verified, Cause> {
    let refuse = |why| Err(Cause::NotAuthentic { identity: identity.to_string(), why });
    if config.remote_identity.as_ref().is_some_and(|expected| !expected.matches(&identity)) {
        return refuse("another identity is configured");
    }
    match &config.authentication {
        Authentication::SharedKey(_) if proof.method != method::SHARED_KEY => {
            refuse("it does not use a pre-shared key")
        }
        // RFC 7296 section 2.15: nothing is proved by a key that anyone has.
        Authentication::SharedKey(shared) if shared.is_empty() => refuse("no pre-shared key is configured"),
        Authentication::SharedKey(shared) => {
            let expected = shared_key_mac(prf, shared, &signed.octets(prf, key));
            if expected == SecretBytes::new(proof.data.to_vec()) {
                return Ok(Verified { identity });
            }
            refuse("the pre-shared keys differ")
        }
    }
}
