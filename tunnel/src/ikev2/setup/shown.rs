//! The payloads by which the local side authenticates in a round.

use crate::ikev2::auth::proof::{Proof, certificate_payloads};
use crate::ikev2::config::Connection;
use crate::ikev2::identity;
use crate::ikev2::keys::Role;
use crate::ikev2::message::{Authentication, Identification, Payload};

/// The local identity, with its certificates.
pub(super) struct Shown<'a> {
    identity: Vec<u8>,
    certificates: Vec<Payload<'a>>,
    role: Role,
}

impl<'a> Shown<'a> {
    /// For a round of this connection, from 0.
    pub(super) fn of(config: &'a Connection, round: usize, role: Role) -> Self {
        let round = config.round(round);
        let identity = identity::body(round.map_or(&config.local_identity, |round| round.local));
        let certificates = round.map(|round| certificate_payloads(round.authentication)).unwrap_or_default();
        Self { identity, certificates, role }
    }

    /// Identity and certificates.
    pub(super) fn identity(&self) -> Vec<Payload<'_>> {
        let id = Identification::parse(&self.identity).expect("a body of ours has its head");
        let id = if self.role == Role::Initiator { Payload::IdI(id) } else { Payload::IdR(id) };
        [vec![id], self.certificates.clone()].concat()
    }

    /// The same with the proof.
    pub(super) fn with<'b>(&'b self, proof: &'b Proof) -> Vec<Payload<'b>> {
        let mut list = self.identity();
        list.push(Payload::Auth(Authentication { method: proof.method, data: &proof.data }));
        list
    }
}
