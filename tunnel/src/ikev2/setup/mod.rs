//! Setting an IKE SA up: until both sides have shown who they are (RFC 7296 sections 1.2 and 2.15).
//!
//! ```text
//! initiator   Initiating ──IKE_SA_INIT──> Authenticating ──IKE_AUTH──> Session
//! responder   answer_init ───────────────> HalfOpen ───────IKE_AUTH──> Session
//! ```
//! Both keep IKE_AUTH while it is asked whether the certificate in it is revoked: [`held`].
//! Each state consumes itself and returns the next; what takes a key exchange or a signature first moves into a
//! [`Job`](super::job::Job). None has a way to install a Child SA: that is a
//! [`Session`](super::session::Session)'s, which takes a [`Verified`] to be made.

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

/// A datagram that is a message, and the way that it came.
pub(super) struct Inbound<'a> {
    pub(super) path: Path,
    pub(super) bytes: &'a [u8],
    pub(super) message: Message<'a>,
}

/// What IKE_SA_INIT leaves behind: keys, and what both sides are going to sign.
struct Init {
    /// Our message.
    sent: Vec<u8>,
    /// The other side's message.
    received: Vec<u8>,
    nonce: Vec<u8>,
    peer_nonce: Vec<u8>,
    suite: IkeSuite,
    root: Root,
    proof: ProofKeys,
    /// The hashes of signatures that the other side understands.
    hashes: Vec<u16>,
}

impl Init {
    /// Our proof that we are who the body of our identification payload says, to who has shown who it is or has not yet.
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

    /// Checks the other side's proof; `wall` is the time since 1970.
    fn verify(
        &self,
        config: &Connection,
        (id, auth): (&Identification<'_>, &Authentication<'_>),
        certificates: &[Certificate<'_>],
        wall: Duration,
    ) -> Result<Verified, Cause> {
        let Some(identity) = identity::read(id) else {
            return Err(Cause::Misbehaved("its identity is of a type that we do not know"));
        };
        let signed = Signed { message: &self.received, nonce: &self.nonce, identity: id.body };
        let shown = proof::Shown { identity, auth, certificates };
        proof::verify(config, self.root.prf(), &self.proof.remote, &signed, shown, wall)
    }
}

/// What both IKE_SA_INIT messages announce.
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
