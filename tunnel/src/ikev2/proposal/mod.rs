//! Proposals: what a configuration offers, and what of it both sides choose (RFC 7296 sections 2.7 and 3.3).
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
pub use ike::{IkeOffer, IkeSuite, Protection};
pub(super) use merged::{MergedOffers, ProposalIndex};

use super::message::{Proposal, Transform};

/// Proposals that we send at most; so many we read, too.
const PROPOSALS: usize = 64;

/// No proposal of the other side's is acceptable, or its answer is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no proposal chosen")]
pub struct NoProposalChosen;

/// What was selected, and the proposal that tells the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected<S> {
    /// The algorithms.
    pub suite: S,
    /// The other side's proposal; its SPI is the other side's.
    pub proposal: Proposal,
}

impl<S> Selected<S> {
    /// The answer: what was chosen of the other side's proposal, with our SPI.
    pub fn answer(&self, spi: super::message::ProposalSpi) -> Proposal {
        Proposal { spi, ..self.proposal.clone() }
    }
}

/// A proposal on one line, for people: `aes256gcm128-prfsha256-ecp256`.
pub fn describe(proposal: &Proposal) -> String {
    let names: Vec<String> = proposal.transforms.iter().copied().map(name).collect();
    names.join("-")
}

/// The proposals of a message on one line each, without repeating one.
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
