//! Selection of one transform of each type from a proposal.

use super::algorithm::{Algorithm, Encryption};
use crate::ikev2::message::numbers::{integrity, transform};
use crate::ikev2::message::{Proposal, Transform};
use crypto::cipher::Integrity;

/// A selection in progress among the transforms of one proposal.
pub(super) struct Choice<'a> {
    proposal: &'a Proposal,
    chosen: Vec<Transform>,
}

impl<'a> Choice<'a> {
    /// Starts a selection; `None` if the proposal has transforms of types that are not `known`, as such a proposal
    /// must not be selected (RFC 7296 section 3.3.6).
    pub(super) fn new(proposal: &'a Proposal, known: &[u8]) -> Option<Self> {
        let understood = proposal.transforms.iter().all(|one| known.contains(&one.kind));
        understood.then_some(Self { proposal, chosen: Vec::new() })
    }

    fn has(&self, one: Transform) -> bool {
        self.proposal.transforms.contains(&one)
    }

    /// Whether the proposal contains transforms of a type.
    pub(super) fn names(&self, kind: u8) -> bool {
        self.proposal.transforms.iter().any(|one| one.kind == kind)
    }

    /// Selects the first of `ours` that the proposal contains.
    pub(super) fn choose<A: Algorithm>(&mut self, ours: &[A]) -> Option<A> {
        let found = ours.iter().copied().find(|algorithm| self.has(algorithm.transform()))?;
        self.chosen.push(found.transform());
        Some(found)
    }

    /// Selects no transform of a type: the proposal contains none, or also offers NONE (ID 0).
    pub(super) fn choose_none(&mut self, kind: u8) -> Option<()> {
        let none = Transform::new(kind, 0);
        if !self.names(kind) {
            return Some(());
        }
        self.has(none).then(|| self.chosen.push(none))
    }

    /// Selects a cipher, and a MAC if the cipher needs one.
    pub(super) fn choose_protection(
        &mut self,
        ciphers: &[Encryption],
        macs: &[Integrity],
    ) -> Option<(Encryption, Option<Integrity>)> {
        // RFC 5282 section 8 forbids to mix AEAD and other ciphers in one proposal, but some peers do. So a cipher
        // without an acceptable MAC does not end the search.
        for &cipher in ciphers {
            if !self.has(cipher.transform()) {
                continue;
            }
            let mac = if cipher.authenticates() {
                self.choose_none(transform::INTEGRITY).map(|()| None)
            } else {
                self.choose(macs).map(Some)
            };
            if let Some(mac) = mac {
                self.chosen.push(cipher.transform());
                return Some((cipher, mac));
            }
        }
        None
    }

    /// The proposal reduced to the selected transforms, in the order of the types.
    pub(super) fn finish(mut self) -> Proposal {
        self.chosen.sort_by_key(|one| one.kind);
        Proposal { transforms: self.chosen, ..self.proposal.clone() }
    }
}

/// The proposal of `ours` that `answer` was selected from: it has the same number, protocol and transforms, and the
/// answer has at most one transform of each type.
pub(super) fn answered<'a>(ours: &'a [Proposal], answer: &Proposal) -> Option<&'a Proposal> {
    let is_single =
        |one: &Transform| answer.transforms.iter().filter(|other| other.kind == one.kind).count() == 1;
    let ours = ours.iter().find(|ours| ours.number == answer.number && ours.protocol == answer.protocol)?;
    // A peer may answer with integrity NONE beside an AEAD cipher, although it was not offered.
    let none = Transform::new(transform::INTEGRITY, integrity::NONE);
    let is_ours = |one: &Transform| ours.transforms.contains(one) || *one == none;
    answer.transforms.iter().all(|one| is_single(one) && is_ours(one)).then_some(ours)
}
