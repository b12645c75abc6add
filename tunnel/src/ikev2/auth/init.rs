//! What IKE_SA_INIT leaves for IKE_AUTH.

use super::proof::{self, Proof, Verified};
use crate::ikev2::cause::Cause;
use crate::ikev2::config::Connection;
use crate::ikev2::identity;
use crate::ikev2::keys::{ProofKeys, Root, Signed};
use crate::ikev2::message::{Authentication, Certificate, Identification};
use crate::ikev2::proposal::IkeSuite;
use std::time::Duration;

/// The result of IKE_SA_INIT: keys, and the octets that both sides will sign.
pub(in crate::ikev2) struct Init {
    /// The local message.
    pub(in crate::ikev2) sent: Vec<u8>,
    /// The message of the peer.
    pub(in crate::ikev2) received: Vec<u8>,
    pub(in crate::ikev2) nonce: Vec<u8>,
    pub(in crate::ikev2) peer_nonce: Vec<u8>,
    pub(in crate::ikev2) suite: IkeSuite,
    pub(in crate::ikev2) root: Root,
    pub(in crate::ikev2) proof: ProofKeys,
    /// The hashes of signatures that the peer supports.
    pub(in crate::ikev2) hashes: Vec<u16>,
}

impl Init {
    /// Computes the local proof for the identity in `identity`, the body of the identification payload. `peer` is
    /// given if the peer is authenticated already.
    pub(in crate::ikev2) fn prove(
        &self,
        config: &Connection,
        identity: &[u8],
        peer: Option<&Verified>,
        wall: Duration,
    ) -> Result<Proof, Cause> {
        let theirs = peer.and_then(Verified::scheme);
        let signed = Signed { message: &self.sent, nonce: &self.peer_nonce, identity };
        proof::prove(config, self.root.prf(), &self.proof.local, &signed, &self.hashes, theirs, wall)
    }

    /// Verifies the peer's proof; `wall` is the time since 1970.
    pub(in crate::ikev2) fn verify(
        &self,
        config: &Connection,
        (id, auth): (&Identification<'_>, &Authentication<'_>),
        certificates: &[Certificate<'_>],
        wall: Duration,
    ) -> Result<Verified, Cause> {
        let Some(identity) = identity::read(id) else {
            return Err(Cause::Misbehaved("its identity type is not supported"));
        };
        let signed = Signed { message: &self.received, nonce: &self.nonce, identity: id.body };
        let shown = proof::Shown { identity, auth, certificates };
        proof::verify(config, self.root.prf(), &self.proof.remote, &signed, shown, wall)
    }
}
