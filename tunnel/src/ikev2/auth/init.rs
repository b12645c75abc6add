//! What IKE_SA_INIT leaves for IKE_AUTH.

use super::proof::{self, Proof, Verified};
use crate::ikev2::cause::Cause;
use crate::ikev2::channel::Incoming;
use crate::ikev2::config::{Connection, Round};
use crate::ikev2::identity;
use crate::ikev2::keys::{ProofKeys, Role, Root, Signed};
use crate::ikev2::message::Payloads;
use crate::ikev2::proposal::IkeSuite;
use crypto::signature::Scheme;
use std::time::Duration;

/// The result of IKE_SA_INIT: keys, and the octets that both sides will sign.
pub(in crate::ikev2) struct Init {
    /// The local side.
    pub(in crate::ikev2) role: Role,
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
    /// Computes the local proof of a round, over the identity of that round. `theirs` is the scheme of the peer's
    /// signature if it came first, and `wall` the time since 1970.
    pub(in crate::ikev2) fn prove(
        &self,
        round: Round<'_>,
        theirs: Option<Scheme>,
        wall: Duration,
    ) -> Result<Proof, Cause> {
        let identity = &identity::body(round.local);
        let signed = Signed { message: &self.sent, nonce: &self.peer_nonce, identity };
        let (prf, key) = (self.root.prf(), &self.proof.local);
        proof::prove(round.authentication, prf, key, &signed, &self.hashes, theirs, wall)
    }

    /// Verifies the peer's proof in the IKE_AUTH of a round, from 0; `wall` is the time since 1970.
    pub(in crate::ikev2) fn verify(
        &self,
        (config, number): (&Connection, usize),
        incoming: &Incoming,
        wall: Duration,
    ) -> Result<Verified, Cause> {
        let lacking = Cause::Misbehaved("its IKE_AUTH lacks identity or proof");
        let Some(round) = config.round(number) else { return Err(Cause::ExtraRound) };
        let Ok(payloads) = Payloads::parse(incoming.first, &incoming.chain) else { return Err(lacking) };
        let id = if self.role == Role::Initiator { &payloads.id_r } else { &payloads.id_i };
        let (Some(id), Some(auth)) = (id, &payloads.auth) else { return Err(lacking) };
        let Some(identity) = identity::read(id) else {
            return Err(Cause::Misbehaved("its identity type is not supported"));
        };
        let signed = Signed { message: &self.received, nonce: &self.nonce, identity: id.body };
        let shown = proof::Shown { identity, auth, certificates: &payloads.certificates };
        let (prf, key) = (self.root.prf(), &self.proof.remote);
        let mut verified = proof::verify((round, number), prf, key, &signed, shown, wall)?;
        if self.role == Role::Responder && number == 0 && config.remote_identity.is_none() {
            verified.names = proof::identities(config, &verified.identity, &payloads.certificates);
        }
        Ok(verified)
    }
}
