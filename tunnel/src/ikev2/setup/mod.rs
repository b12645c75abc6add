//! Set-up of an IKE SA, up to the authentication of both sides (RFC 7296 sections 1.2 and 2.15).
//!
//! ```text
//! initiator   Initiating ──IKE_SA_INIT──> Authenticating ──IKE_AUTH──> Session
//! responder   answer_init ───────────────> HalfOpen ───────IKE_AUTH──> Session
//! ```
//! Both sides hold IKE_AUTH while the revocation status of its certificate is queried: [`held`]. Each state consumes
//! itself and returns the next; key exchanges and signatures first move the state into a [`Job`](super::job::Job). No
//! state here can install a Child SA. Only a [`Session`](super::session::Session) can, and its constructor requires a
//! [`Verified`].

mod authenticating;
mod half_open;
mod held;
mod initiating;
mod proof;
mod responder;
mod rival;

pub(super) use authenticating::Authenticating;
pub(super) use half_open::HalfOpen;
pub(super) use initiating::{Initiating, Wanted};
pub(super) use proof::{Verified, request};
pub(super) use responder::{Admission, Answer, answer_init};

use super::action::Cause;
use super::config::Connection;
use super::identity;
use super::keys::{ProofKeys, Root, Signed, Spis};
use super::message::numbers::notify;
use super::message::{Authentication, Certificate, Identification, Message, Notify, Payload};
use super::nat::{Path, detection_hashes};
use super::proposal::IkeSuite;
use std::time::Duration;

/// A datagram with a parsed message, and its path.
pub(super) struct Inbound<'a> {
    pub(super) path: Path,
    pub(super) bytes: &'a [u8],
    pub(super) message: Message<'a>,
}

/// The result of IKE_SA_INIT: keys, and the octets that both sides will sign.
struct Init {
    /// The local message.
    sent: Vec<u8>,
    /// The message of the peer.
    received: Vec<u8>,
    nonce: Vec<u8>,
    peer_nonce: Vec<u8>,
    suite: IkeSuite,
    root: Root,
    proof: ProofKeys,
    /// The hashes of signatures that the peer supports.
    hashes: Vec<u16>,
}

impl Init {
    /// Computes the local proof for the identity in `identity`, the body of the identification payload. `peer` is
    /// given if the peer is authenticated already.
    fn prove(
        &self,
        config: &Connection,
        identity: &[u8],
        peer: Option<&Verified>,
        wall: Duration,
    ) -> Result<proof::Proof, Cause> {
        let theirs = peer.and_then(Verified::scheme);
        let signed = Signed { message: &self.sent, nonce: &self.peer_nonce, identity };
        proof::prove(config, self.root.prf(), &self.proof.local, &signed, &self.hashes, theirs, wall)
    }

    /// Verifies the peer's proof; `wall` is the time since 1970.
    fn verify(
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

/// The features that both IKE_SA_INIT messages announce.
struct Announced {
    hashes: [[u8; 20]; 2],
}

impl Announced {
    fn new(path: Path, spis: Spis, force_encapsulation: bool) -> Self {
        Self { hashes: detection_hashes(path, spis, force_encapsulation) }
    }

    fn payloads(&self) -> [Payload<'_>; 4] {
        let [source, destination] = &self.hashes;
        [
            Payload::Notify(Notify::new(notify::NAT_DETECTION_SOURCE_IP, source)),
            Payload::Notify(Notify::new(notify::NAT_DETECTION_DESTINATION_IP, destination)),
            Payload::Notify(Notify::new(notify::IKEV2_FRAGMENTATION_SUPPORTED, &[])),
            Payload::Notify(Notify::new(notify::SIGNATURE_HASH_ALGORITHMS, proof::HASHES)),
        ]
    }
}
