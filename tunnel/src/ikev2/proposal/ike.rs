//! Proposals for IKE SAs.

use super::algorithm::{Algorithm, Encryption};
use super::choice::{Choice, answered};
use super::{NoProposalChosen, PROPOSALS, Selected, transforms};
use crate::ikev2::message::numbers::{protocol, transform};
use crate::ikev2::message::{Proposal, ProposalSpi, Transform};
use crypto::cipher::{Cipher, Integrity, Pair};
use crypto::exchange::Group;
use crypto::prf::Prf;
use std::fmt;

/// The offered algorithms for an IKE SA, in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IkeOffer {
    /// Ciphers; those without encryption are skipped.
    pub encryption: Vec<Encryption>,
    /// MACs, for ciphers that need one.
    pub integrity: Vec<Integrity>,
    /// Pseudorandom functions.
    pub prf: Vec<Prf>,
    /// Diffie-Hellman groups.
    pub groups: Vec<Group>,
}

/// How the messages of an IKE SA are encrypted and authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageCipher {
    /// An authenticated cipher, with its tag length in bytes (RFC 5282).
    Aead(Cipher, usize),
    /// A cipher and a MAC.
    Pair(Pair),
}

/// The negotiated algorithms of an IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IkeSuite {
    /// The protection of messages.
    pub protection: MessageCipher,
    /// The prf for key derivation.
    pub prf: Prf,
    /// The group of the key exchange.
    pub group: Group,
}

const KNOWN: &[u8] = &[transform::ENCRYPTION, transform::PRF, transform::INTEGRITY, transform::GROUP];

impl IkeOffer {
    /// The proposals of several offers, numbered from 1.
    pub fn propose(offers: &[Self], spi: ProposalSpi) -> Vec<Proposal> {
        let mut proposals = Vec::new();
        for offer in offers {
            let (alone, paired): (Vec<Encryption>, Vec<Encryption>) =
                offer.ciphers().partition(|encryption| encryption.authenticates());
            // RFC 5282 section 8: AEAD and other ciphers are offered in separate proposals.
            for (ciphers, macs) in [(alone, &[][..]), (paired, &offer.integrity[..])] {
                if !ciphers.is_empty() && proposals.len() < PROPOSALS {
                    let number = proposals.len() as u8 + 1;
                    proposals.push(offer.proposal(number, spi, &ciphers, macs));
                }
            }
        }
        proposals
    }

    fn ciphers(&self) -> impl Iterator<Item = Encryption> {
        self.encryption.iter().copied().filter(|encryption| encryption.hides())
    }

    fn proposal(&self, number: u8, spi: ProposalSpi, ciphers: &[Encryption], macs: &[Integrity]) -> Proposal {
        let transforms = transforms(ciphers)
            .chain(transforms(macs))
            .chain(transforms(&self.prf))
            .chain(transforms(&self.groups))
            .collect();
        Proposal { number, protocol: protocol::IKE, spi, transforms }
    }

    /// Selects from the peer's proposals: the first local offer that matches any of them.
    pub fn select(offers: &[Self], theirs: &[Proposal]) -> Result<Selected<IkeSuite>, NoProposalChosen> {
        let mut found =
            offers.iter().flat_map(|offer| theirs.iter().filter_map(|theirs| offer.choose(theirs)));
        found.next().ok_or(NoProposalChosen)
    }

    /// Reads the answer to our proposals `ours`.
    pub fn accept(ours: &[Proposal], answer: &[Proposal]) -> Result<Selected<IkeSuite>, NoProposalChosen> {
        let [answer] = answer else { return Err(NoProposalChosen) };
        answered(ours, answer).and_then(|_| Self::of(answer).choose(answer)).ok_or(NoProposalChosen)
    }

    /// Whether the offer contains the suite.
    pub fn allows(&self, suite: &IkeSuite) -> bool {
        let protection = match suite.protection {
            MessageCipher::Aead(cipher, tag) => self.encryption.contains(&Encryption::Aead(cipher, tag)),
            MessageCipher::Pair(pair) => {
                self.encryption.contains(&Encryption::Plain(pair.encryption))
                    && self.integrity.contains(&pair.integrity)
            }
        };
        protection && self.prf.contains(&suite.prf) && self.groups.contains(&suite.group)
    }

    /// Each suite of the offer, in order of preference.
    pub(super) fn suites(&self) -> impl Iterator<Item = IkeSuite> {
        let protections = self.ciphers().flat_map(|cipher| {
            let alone = cipher.authenticates().then(|| MessageCipher::new(cipher, None)).flatten();
            let macs = if cipher.authenticates() { &[][..] } else { &self.integrity };
            let paired = macs.iter().filter_map(move |mac| MessageCipher::new(cipher, Some(*mac)));
            alone.into_iter().chain(paired)
        });
        protections.flat_map(move |protection| {
            let suite = move |&prf| self.groups.iter().map(move |&group| IkeSuite { protection, prf, group });
            self.prf.iter().flat_map(suite)
        })
    }

    /// The offer that contains only this suite.
    pub(super) fn exactly(suite: &IkeSuite) -> Self {
        let (encryption, integrity) = match suite.protection {
            MessageCipher::Aead(cipher, tag) => (Encryption::Aead(cipher, tag), Vec::new()),
            MessageCipher::Pair(pair) => (Encryption::Plain(pair.encryption), vec![pair.integrity]),
        };
        Self { encryption: vec![encryption], integrity, prf: vec![suite.prf], groups: vec![suite.group] }
    }

    /// Whether a transform is of a type that is valid for IKE.
    pub(super) fn is_known(one: Transform) -> bool {
        KNOWN.contains(&one.kind)
    }

    /// The offer that accepts everything in a proposal.
    fn of(proposal: &Proposal) -> Self {
        fn all<A: Algorithm>(proposal: &Proposal) -> Vec<A> {
            let of_kind = proposal.transforms.iter().filter(|one| one.kind == A::KIND);
            of_kind.filter_map(|one| A::from_wire(one.id, one.attribute)).collect()
        }
        Self {
            encryption: all(proposal),
            integrity: all(proposal),
            prf: all(proposal),
            groups: all(proposal),
        }
    }

    pub(super) fn choose(&self, theirs: &Proposal) -> Option<Selected<IkeSuite>> {
        if theirs.protocol != protocol::IKE {
            return None;
        }
        let mut choice = Choice::new(theirs, KNOWN)?;
        let ciphers: Vec<Encryption> = self.ciphers().collect();
        let (cipher, mac) = choice.choose_protection(&ciphers, &self.integrity)?;
        let suite = IkeSuite {
            protection: MessageCipher::new(cipher, mac)?,
            prf: choice.choose(&self.prf)?,
            group: choice.choose(&self.groups)?,
        };
        Some(Selected { suite, proposal: choice.finish() })
    }
}

impl IkeSuite {
    /// The transforms that a proposal must contain to match this suite.
    pub(super) fn transforms(&self) -> impl Iterator<Item = Transform> {
        let (encryption, integrity) = match self.protection {
            MessageCipher::Aead(cipher, tag) => (Encryption::Aead(cipher, tag), None),
            MessageCipher::Pair(pair) => {
                (Encryption::Plain(pair.encryption), Some(pair.integrity.transform()))
            }
        };
        let rest = [encryption.transform(), self.prf.transform(), self.group.transform()];
        rest.into_iter().chain(integrity)
    }
}

impl MessageCipher {
    fn new(cipher: Encryption, mac: Option<Integrity>) -> Option<Self> {
        match (cipher, mac) {
            (Encryption::Aead(cipher, tag), None) => Some(Self::Aead(cipher, tag)),
            (Encryption::Plain(encryption), Some(integrity)) => {
                Some(Self::Pair(Pair { encryption, integrity }))
            }
            _ => None,
        }
    }
}

impl fmt::Display for IkeSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protection {
            MessageCipher::Aead(cipher, tag) => f.write_str(&Encryption::Aead(cipher, tag).name())?,
            MessageCipher::Pair(Pair { encryption, integrity }) => {
                write!(f, "{}-{}", Encryption::Plain(encryption).name(), Algorithm::name(integrity))?;
            }
        }
        write!(f, "-{}-{}", self.prf.name(), self.group.name())
    }
}

#[cfg(test)]
mod tests {
    use super::super::describe;
    use super::*;
    use crate::ikev2::message::Attribute;
    use crypto::cipher;
    use std::slice::from_ref;

    const GCM: Encryption = Encryption::Aead(Cipher::Aes256Gcm, 16);
    const CBC: Encryption = Encryption::Plain(cipher::Encryption::AesCbc(16));

    fn offer(encryption: &[Encryption], group: Group) -> IkeOffer {
        let integrity = vec![Integrity::HmacSha256, Integrity::HmacSha1];
        let prf = vec![Prf::HmacSha256, Prf::HmacSha1];
        IkeOffer { encryption: encryption.to_vec(), integrity, prf, groups: vec![group] }
    }

    fn proposals(offers: &[IkeOffer]) -> Vec<Proposal> {
        IkeOffer::propose(offers, ProposalSpi::None)
    }

    #[test]
    fn ciphers_with_and_without_their_own_mac_are_proposed_apart() {
        let proposals = proposals(&[offer(&[CBC, GCM], Group::Ecp256), offer(&[GCM], Group::X25519)]);
        let lines: Vec<String> = proposals.iter().map(describe).collect();
        assert_eq!(
            lines,
            [
                "aes256gcm128-prfsha256-prfsha1-ecp256",
                "aes128-sha256-sha1-prfsha256-prfsha1-ecp256",
                "aes256gcm128-prfsha256-prfsha1-x25519"
            ]
        );
        assert_eq!(proposals.iter().map(|proposal| proposal.number).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn no_more_is_proposed_than_can_be_read() {
        let many = vec![offer(&[GCM, CBC], Group::Ecp256); 300];
        assert_eq!(proposals(&many).len(), PROPOSALS);
    }

    #[test]
    fn the_responders_order_decides_and_the_answer_is_accepted() {
        let ours = proposals(&[offer(&[GCM], Group::X25519), offer(&[CBC], Group::Ecp256)]);
        let theirs = [offer(&[CBC], Group::Ecp256), offer(&[GCM], Group::X25519)];
        let selected = IkeOffer::select(&theirs, &ours).expect("both have it");
        assert_eq!(selected.suite.to_string(), "aes128-sha256-prfsha256-ecp256");
        let answer = selected.answer(ProposalSpi::None);
        assert_eq!((answer.number, answer.transforms.len()), (2, 4));
        assert_eq!(IkeOffer::accept(&ours, &[answer]).expect("it is ours").suite, selected.suite);
    }

    #[test]
    fn nothing_in_common_is_nothing_chosen() {
        let ours = proposals(&[offer(&[GCM], Group::X25519)]);
        for theirs in [offer(&[CBC], Group::X25519), offer(&[GCM], Group::Ecp256), IkeOffer::default()] {
            assert_eq!(IkeOffer::select(&[theirs], &ours), Err(NoProposalChosen));
        }
        assert_eq!(IkeOffer::select(&[offer(&[GCM], Group::X25519)], &[]), Err(NoProposalChosen));
    }

    #[test]
    fn nothing_that_does_not_encrypt_protects_ike() {
        let null = Encryption::Plain(cipher::Encryption::Null);
        let gmac = Encryption::Gmac(Cipher::Aes128Gcm);
        let offers = [offer(&[null, gmac], Group::Ecp256)];
        assert_eq!(proposals(&offers), []);
        let forced = Proposal {
            transforms: vec![
                null.transform(),
                Integrity::HmacSha1.transform(),
                Prf::HmacSha1.transform(),
                Group::Ecp256.transform(),
            ],
            ..proposals(&[offer(&[CBC], Group::Ecp256)])[0].clone()
        };
        assert_eq!(IkeOffer::select(&offers, from_ref(&forced)), Err(NoProposalChosen));
        assert_eq!(IkeOffer::accept(from_ref(&forced), from_ref(&forced)), Err(NoProposalChosen));
    }

    /// CVE-2016-5391 was caused by a proposal without a group. Every type of transform is required.
    #[test]
    fn a_proposal_lacks_nothing() {
        let offers = [offer(&[CBC], Group::Ecp256)];
        let whole = &proposals(&offers)[0];
        for kind in KNOWN {
            let mut cut = whole.clone();
            cut.transforms.retain(|one| one.kind != *kind);
            assert_eq!(IkeOffer::select(&offers, &[cut.clone()]), Err(NoProposalChosen), "{kind}");
            assert_eq!(IkeOffer::accept(from_ref(whole), &[cut]), Err(NoProposalChosen), "{kind}");
        }
    }

    #[test]
    fn proposals_with_unknown_types_or_attributes_are_not_chosen() {
        let offers = [offer(&[CBC], Group::Ecp256)];
        let whole = &proposals(&offers)[0];
        let mut later = whole.clone();
        later.transforms.push(Transform::new(6, 35));
        assert_eq!(IkeOffer::select(&offers, &[later]), Err(NoProposalChosen));
        let mut strange = whole.clone();
        strange.transforms[0].attribute = Attribute::Unknown;
        assert_eq!(IkeOffer::select(&offers, &[strange]), Err(NoProposalChosen));
        let other = Proposal { protocol: protocol::ESP, ..whole.clone() };
        assert_eq!(IkeOffer::select(&offers, &[other]), Err(NoProposalChosen));
    }

    #[test]
    fn an_authenticated_cipher_takes_no_mac_beside_it() {
        let offers = [offer(&[GCM, CBC], Group::Ecp256)];
        let mut proposal = proposals(&[offer(&[GCM], Group::Ecp256)])[0].clone();
        proposal.transforms.push(Integrity::HmacSha256.transform());
        assert_eq!(IkeOffer::select(&offers, &[proposal.clone()]), Err(NoProposalChosen));
        // With the other kind of cipher beside it, that cipher is selected.
        proposal.transforms.push(CBC.transform());
        let selected = IkeOffer::select(&offers, &[proposal.clone()]).expect("there is one");
        assert_eq!(selected.suite.to_string(), "aes128-sha256-prfsha256-ecp256");
        // If the MAC is optional, the answer contains NONE.
        proposal.transforms.push(Transform::new(transform::INTEGRITY, 0));
        let selected = IkeOffer::select(&offers, &[proposal]).expect("there is one");
        assert_eq!(selected.suite.to_string(), "aes256gcm128-prfsha256-ecp256");
        assert!(selected.proposal.transforms.contains(&Transform::new(transform::INTEGRITY, 0)));
    }

    #[test]
    fn an_answer_that_was_not_proposed_is_refused() {
        let ours = proposals(&[offer(&[GCM, CBC], Group::Ecp256)]);
        let select = |offers| IkeOffer::select(offers, &ours).expect("common").proposal;
        let good = select(&[offer(&[GCM], Group::Ecp256)]);
        let refused =
            |answer: &[Proposal]| assert_eq!(IkeOffer::accept(&ours, answer), Err(NoProposalChosen));
        refused(&[]);
        refused(&[good.clone(), good.clone()]);
        refused(&[Proposal { number: 2, ..good.clone() }]);
        refused(&[Proposal { number: 9, ..good.clone() }]);
        let with = |change: &dyn Fn(&mut Vec<Transform>)| {
            let mut answer = good.clone();
            change(&mut answer.transforms);
            answer
        };
        refused(&[with(&|transforms| transforms.push(Prf::HmacSha1.transform()))]);
        refused(&[with(&|transforms| transforms.push(Integrity::HmacSha1.transform()))]);
        refused(&[with(&|transforms| transforms.retain(|one| one.kind != transform::GROUP))]);
        refused(&[with(&|transforms| transforms[0] = Encryption::Aead(Cipher::Aes128Gcm, 16).transform())]);
        let none = Transform::new(transform::INTEGRITY, 0);
        IkeOffer::accept(&ours, &[with(&|transforms| transforms.push(none))]).expect("it says nothing new");
    }
}
