//! The merged offers of many connections: the cost of a first message does not depend on the number of connections.
//!
//! ```text
//! configuration   IkeOffer ──add──> MergedOffers: each suite once, with the number of connections that offer it
//! first message   proposals ──new──> ProposalIndex: which proposals name a transform ──select──> suite
//! ```
//! The number of suites is bounded by the number of algorithms; the index is built in one pass over the message.

use super::Selected;
use super::ike::{IkeOffer, IkeSuite, MessageCipher};
use crate::ikev2::message::numbers::{integrity, protocol, transform};
use crate::ikev2::message::{Proposal, Transform};
use std::collections::HashMap;

/// The suites that several connections offer, each once, in the order in which they were first offered.
#[derive(Default)]
pub(in crate::ikev2) struct MergedOffers(Vec<Counted>);

struct Counted {
    suite: IkeSuite,
    /// The number of added offers that contain it.
    offers: u32,
}

impl MergedOffers {
    pub(in crate::ikev2) fn add(&mut self, offers: &[IkeOffer]) {
        for suite in offers.iter().flat_map(IkeOffer::suites) {
            match self.0.iter_mut().find(|counted| counted.suite == suite) {
                Some(counted) => counted.offers += 1,
                None => self.0.push(Counted { suite, offers: 1 }),
            }
        }
    }

    /// Removes what `add` added for the same offers.
    pub(in crate::ikev2) fn remove(&mut self, offers: &[IkeOffer]) {
        for suite in offers.iter().flat_map(IkeOffer::suites) {
            if let Some(counted) = self.0.iter_mut().find(|counted| counted.suite == suite) {
                counted.offers -= 1;
            }
        }
        self.0.retain(|counted| counted.offers > 0);
    }

    /// The first suite that matches a proposal; `compared` counts the suites that were compared.
    pub(in crate::ikev2) fn select(
        &self,
        index: &ProposalIndex<'_>,
        compared: &mut u64,
    ) -> Option<Selected<IkeSuite>> {
        self.0.iter().find_map(|counted| {
            *compared += 1;
            index.choose(&counted.suite)
        })
    }
}

/// One bit for each proposal of a message.
type Proposals = u64;

/// The proposals of a message, indexed by transform.
pub(in crate::ikev2) struct ProposalIndex<'a> {
    proposals: &'a [Proposal],
    /// The proposals for IKE without transforms of unknown types (RFC 7296 section 3.3.6).
    usable: Proposals,
    by_transform: HashMap<Transform, Proposals>,
    /// The proposals with a MAC, including NONE.
    with_integrity: Proposals,
}

impl<'a> ProposalIndex<'a> {
    /// Reads each transform once. Proposals beyond the limit are ignored.
    pub(in crate::ikev2) fn new(proposals: &'a [Proposal]) -> Self {
        let mut index = Self { proposals, usable: 0, by_transform: HashMap::new(), with_integrity: 0 };
        for (number, proposal) in proposals.iter().enumerate().take(Proposals::BITS as usize) {
            index.add(1 << number, proposal);
        }
        index
    }

    fn add(&mut self, bit: Proposals, proposal: &Proposal) {
        if proposal.protocol != protocol::IKE || !proposal.transforms.iter().copied().all(IkeOffer::is_known)
        {
            return;
        }
        self.usable |= bit;
        for one in &proposal.transforms {
            *self.by_transform.entry(*one).or_default() |= bit;
            if one.kind == transform::INTEGRITY {
                self.with_integrity |= bit;
            }
        }
    }

    fn with(&self, one: Transform) -> Proposals {
        self.by_transform.get(&one).copied().unwrap_or(0)
    }

    /// The first proposal that matches a suite, reduced to it.
    fn choose(&self, suite: &IkeSuite) -> Option<Selected<IkeSuite>> {
        let named = suite.transforms().fold(self.usable, |found, one| found & self.with(one));
        let found = match suite.protection {
            MessageCipher::Pair(_) => named,
            // An AEAD cipher takes no MAC: the proposal contains none, or NONE.
            MessageCipher::Aead(..) => {
                let none = Transform::new(transform::INTEGRITY, integrity::NONE);
                named & (!self.with_integrity | self.with(none))
            }
        };
        if found == 0 {
            return None;
        }
        let first = self.proposals.get(found.trailing_zeros() as usize)?;
        IkeOffer::exactly(suite).choose(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ikev2::message::{Attribute, ProposalSpi};
    use crate::ikev2::proposal::{Algorithm, Encryption};
    use crypto::cipher::{self, Cipher, Integrity};
    use crypto::exchange::Group;
    use crypto::prf::Prf;

    const GCM: Encryption = Encryption::Aead(Cipher::Aes256Gcm, 16);
    const CBC: Encryption = Encryption::Plain(cipher::Encryption::AesCbc(16));

    fn offer(encryption: Encryption, group: Group) -> IkeOffer {
        let integrity = vec![Integrity::HmacSha256, Integrity::HmacSha1];
        let prf = vec![Prf::HmacSha256, Prf::HmacSha1];
        IkeOffer { encryption: vec![encryption], integrity, prf, groups: vec![group] }
    }

    fn merged(offers: &[IkeOffer]) -> MergedOffers {
        let mut merged = MergedOffers::default();
        merged.add(offers);
        merged
    }

    fn selected(merged: &MergedOffers, proposals: &[Proposal]) -> Option<Selected<IkeSuite>> {
        merged.select(&ProposalIndex::new(proposals), &mut 0)
    }

    fn proposed(offers: &[IkeOffer]) -> Vec<Proposal> {
        IkeOffer::propose(offers, ProposalSpi::None)
    }

    #[test]
    fn equal_offers_of_many_connections_are_kept_and_compared_once() {
        let offers = [offer(GCM, Group::X25519), offer(CBC, Group::Ecp256)];
        let (one, mut many) = (merged(&offers), merged(&offers));
        for _ in 0..1000 {
            many.add(&offers);
        }
        let foreign = proposed(&[offer(GCM, Group::Ecp384)]);
        let compared = |merged: &MergedOffers| {
            let mut compared = 0;
            assert!(merged.select(&ProposalIndex::new(&foreign), &mut compared).is_none());
            compared
        };
        assert_eq!(compared(&one), compared(&many));
    }

    #[test]
    fn what_the_last_connection_offered_goes_with_it() {
        let (first, second) = ([offer(GCM, Group::X25519)], [offer(CBC, Group::Ecp256)]);
        let mut merged = merged(&first);
        merged.add(&second);
        merged.add(&second);
        merged.remove(&second);
        assert!(selected(&merged, &proposed(&second)).is_some());
        merged.remove(&second);
        assert!(selected(&merged, &proposed(&second)).is_none());
        assert!(selected(&merged, &proposed(&first)).is_some());
    }

    /// The merged list selects the same as the single offers.
    #[test]
    fn a_merged_offer_selects_as_a_single_one() {
        let all = [offer(GCM, Group::X25519), offer(CBC, Group::Ecp256), offer(CBC, Group::X25519)];
        let mut strange = proposed(&all);
        strange[0].transforms.push(Integrity::HmacSha256.transform());
        strange[1].transforms.push(Transform::new(6, 35));
        let mut none = proposed(&all);
        none[0].transforms.push(Transform::new(transform::INTEGRITY, integrity::NONE));
        let mut odd = proposed(&all);
        odd[2].transforms[0].attribute = Attribute::Unknown;
        odd[1].protocol = protocol::ESP;
        for theirs in [proposed(&all), proposed(&all[1..]), strange, none, odd, vec![]] {
            for ours in [&all[..1], &all[1..2], &all[2..], &all[..], &[]] {
                let expected = IkeOffer::select(ours, &theirs).ok();
                assert_eq!(selected(&merged(ours), &theirs), expected, "{ours:?} {theirs:?}");
            }
        }
    }

    #[test]
    fn only_the_first_64_proposals_count() {
        let wanted = [offer(GCM, Group::X25519)];
        let mut proposals = vec![proposed(&[offer(GCM, Group::Ecp384)])[0].clone(); 63];
        proposals.extend(proposed(&wanted));
        assert!(selected(&merged(&wanted), &proposals).is_some());
        proposals.insert(0, proposals[0].clone());
        assert!(selected(&merged(&wanted), &proposals).is_none());
    }
}
