//! Proposals: configured offers, and the suite selected by both sides (RFC 7296 sections 2.7 and 3.3).
//!
//! ```text
//! initiator   Offer ──propose──> SA payload        SA payload ──accept──> Suite
//! responder                      SA payload ──select──> Suite, and the proposal to answer with
//! ```
//! [`IkeOffer`] and [`EspOffer`] are lists of algorithms in the order of preference. The responder's order decides.

mod algorithm;
mod choice;
mod esp;
mod ike;
mod merged;

pub use algorithm::{Algorithm, Encryption, Sequence, name};
pub use esp::{EspOffer, EspSuite};
pub use ike::{IkeOffer, IkeSuite, MessageCipher};
pub(super) use merged::{MergedOffers, ProposalIndex};

use super::message::{Proposal, Transform};

/// The maximum number of proposals that we send and read.
const PROPOSALS: usize = 64;

/// No proposal of the peer is acceptable, or its answer matches no local proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no proposal chosen")]
pub struct NoProposalChosen;

/// The selected suite, and the proposal to answer with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected<S> {
    /// The algorithms.
    pub suite: S,
    /// The selected proposal of the peer, with the peer's SPI.
    pub proposal: Proposal,
}

impl<S> Selected<S> {
    /// The answer: the selected proposal, with the local SPI.
    pub fn answer(&self, spi: super::message::ProposalSpi) -> Proposal {
        Proposal { spi, ..self.proposal.clone() }
    }
}

/// A proposal on one line, for reports: `aes256gcm128-prfsha256-ecp256`.
pub fn describe(proposal: &Proposal) -> String {
    let names: Vec<String> = proposal.transforms.iter().copied().map(name).collect();
    names.join("-")
}

/// The proposals of a message, one line each, without duplicates.
pub fn describe_all(proposals: &[Proposal]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in proposals.iter().map(describe) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn transforms<A: Algorithm>(algorithms: &[A]) -> impl Iterator<Item = Transform> {
    algorithms.iter().map(|algorithm| algorithm.transform())
}
