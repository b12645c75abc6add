//! Proposals for Child SAs.

use super::algorithm::{Algorithm, Encryption, Sequence};
use super::choice::{Choice, answered};
use super::{NoProposalChosen, PROPOSALS, Selected, transforms};
use crate::esp;
use crate::ikev2::message::numbers::{protocol, transform};
use crate::ikev2::message::{Proposal, ProposalSpi};
use crypto::cipher::{Integrity, Pair};
use crypto::exchange::Group;
use std::fmt;

/// The offered algorithms for a Child SA, in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EspOffer {
    /// Ciphers.
    pub encryption: Vec<Encryption>,
    /// MACs, for ciphers that need one.
    pub integrity: Vec<Integrity>,
    /// Diffie-Hellman groups for perfect forward secrecy; empty for keys without a key exchange of their own.
    pub groups: Vec<Group>,
    /// Sequence number sizes; empty stands for 32 bits.
    pub sequence: Vec<Sequence>,
}

/// The negotiated algorithms of a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EspSuite {
    /// The ESP transform.
    pub transform: esp::Transform,
    /// The group of the key exchange, if any.
    pub group: Option<Group>,
    /// Whether sequence numbers have 64 bits.
    pub extended_sequence: bool,
}

const KNOWN: &[u8] = &[transform::ENCRYPTION, transform::INTEGRITY, transform::GROUP, transform::ESN];

impl EspOffer {
    /// The proposals of several offers, numbered from 1, with the inbound SPI `spi`.
    pub fn propose(offers: &[Self], spi: u32) -> Vec<Proposal> {
        let mut proposals = Vec::new();
        for offer in offers {
            let (alone, paired): (Vec<Encryption>, Vec<Encryption>) =
                offer.encryption.iter().partition(|encryption| encryption.authenticates());
            for (ciphers, macs) in [(alone, &[][..]), (paired, &offer.integrity[..])] {
                if !ciphers.is_empty() && proposals.len() < PROPOSALS {
                    let number = proposals.len() as u8 + 1;
                    proposals.push(offer.proposal(number, spi, &ciphers, macs));
                }
            }
        }
        proposals
    }

    /// The same offers without key exchanges, as for the Child SA in IKE_AUTH (section 1.2).
    pub fn without_groups(offers: &[Self]) -> Vec<Self> {
        offers.iter().map(|offer| Self { groups: Vec::new(), ..offer.clone() }).collect()
    }

    fn sequences(&self) -> &[Sequence] {
        if self.sequence.is_empty() { &[Sequence::Short] } else { &self.sequence }
    }

    fn proposal(&self, number: u8, spi: u32, ciphers: &[Encryption], macs: &[Integrity]) -> Proposal {
        let transforms = transforms(ciphers)
            .chain(transforms(macs))
            .chain(transforms(&self.groups))
            .chain(transforms(self.sequences()))
            .collect();
        Proposal { number, protocol: protocol::ESP, spi: ProposalSpi::Child(spi), transforms }
    }

    /// Selects from the peer's proposals: the first local offer that matches any of them.
    pub fn select(offers: &[Self], theirs: &[Proposal]) -> Result<Selected<EspSuite>, NoProposalChosen> {
        let mut found =
            offers.iter().flat_map(|offer| theirs.iter().filter_map(|theirs| offer.choose(theirs)));
        found.next().ok_or(NoProposalChosen)
    }

    /// Selects for the Child SA in IKE_AUTH: groups are ignored, as it has no key exchange (section 1.2).
    pub fn select_first(
        offers: &[Self],
        theirs: &[Proposal],
    ) -> Result<Selected<EspSuite>, NoProposalChosen> {
        let mut theirs = theirs.to_vec();
        for proposal in &mut theirs {
            proposal.transforms.retain(|one| one.kind != transform::GROUP);
        }
        Self::select(&Self::without_groups(offers), &theirs)
    }

    /// Reads the answer to our proposals `ours`.
    pub fn accept(ours: &[Proposal], answer: &[Proposal]) -> Result<Selected<EspSuite>, NoProposalChosen> {
        let [answer] = answer else { return Err(NoProposalChosen) };
        let proposed = answered(ours, answer).ok_or(NoProposalChosen)?;
        let of = Self::of(answer);
        // An answer without a group would remove the forward secrecy that was asked for.
        let wants_group = proposed.transforms.iter().any(|one| one.kind == transform::GROUP);
        if wants_group == of.groups.is_empty() {
            return Err(NoProposalChosen);
        }
        of.choose(answer).ok_or(NoProposalChosen)
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
            groups: all(proposal),
            sequence: all(proposal),
        }
    }

    fn choose(&self, theirs: &Proposal) -> Option<Selected<EspSuite>> {
        let ProposalSpi::Child(1..) = theirs.spi else { return None };
        if theirs.protocol != protocol::ESP {
            return None;
        }
        let mut choice = Choice::new(theirs, KNOWN)?;
        let (cipher, mac) = choice.choose_protection(&self.encryption, &self.integrity)?;
        let group = match &self.groups[..] {
            [] => choice.choose_none(transform::GROUP).map(|()| None)?,
            groups => Some(choice.choose(groups)?),
        };
        // RFC 7296 section 3.3.3 makes the type mandatory; older peers omit it and mean 32 bits.
        let sequence = match self.sequences() {
            ours if choice.names(transform::ESN) => choice.choose(ours)?,
            ours => ours.iter().copied().find(|&one| one == Sequence::Short)?,
        };
        let transform = transform_of(cipher, mac)?;
        let suite = EspSuite { transform, group, extended_sequence: sequence == Sequence::Extended };
        Some(Selected { suite, proposal: choice.finish() })
    }
}

fn transform_of(cipher: Encryption, mac: Option<Integrity>) -> Option<esp::Transform> {
    match (cipher, mac) {
        (Encryption::Aead(cipher, tag), None) => Some(esp::Transform::Aead(cipher, tag)),
        (Encryption::Gmac(cipher), None) => Some(esp::Transform::Gmac(cipher)),
        (Encryption::Plain(encryption), Some(integrity)) => {
            Some(esp::Transform::Pair(Pair { encryption, integrity }))
        }
        _ => None,
    }
}

impl fmt::Display for EspSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transform {
            esp::Transform::Aead(cipher, tag) => f.write_str(&Encryption::Aead(cipher, tag).name())?,
            esp::Transform::Gmac(cipher) => f.write_str(&Encryption::Gmac(cipher).name())?,
            esp::Transform::Null => f.write_str("null")?,
            esp::Transform::Pair(Pair { encryption, integrity }) => {
                write!(f, "{}-{}", Encryption::Plain(encryption).name(), Algorithm::name(integrity))?;
            }
        }
        if let Some(group) = self.group {
            write!(f, "-{}", group.name())?;
        }
        f.write_str(if self.extended_sequence { "-esn" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ikev2::message::Transform;
    use crypto::cipher::{self, Cipher};
    use std::slice::from_ref;

    const GCM: Encryption = Encryption::Aead(Cipher::Aes128Gcm, 16);
    const NULL: Encryption = Encryption::Plain(cipher::Encryption::Null);
    const GMAC: Encryption = Encryption::Gmac(Cipher::Aes128Gcm);

    fn offer(encryption: &[Encryption]) -> EspOffer {
        EspOffer {
            encryption: encryption.to_vec(),
            integrity: vec![Integrity::HmacSha256],
            ..EspOffer::default()
        }
    }

    fn chosen(ours: &[EspOffer], theirs: &[EspOffer]) -> Result<String, NoProposalChosen> {
        let proposals = EspOffer::propose(theirs, 7);
        let selected = EspOffer::select(ours, &proposals)?;
        assert_eq!(selected.proposal.spi, ProposalSpi::Child(7));
        let answer = selected.answer(ProposalSpi::Child(8));
        let accepted = EspOffer::accept(&proposals, &[answer]).expect("what was proposed is accepted");
        assert_eq!(accepted.suite, selected.suite);
        assert_eq!(accepted.proposal.spi, ProposalSpi::Child(8));
        Ok(selected.suite.to_string())
    }

    #[test]
    fn every_kind_of_protection_can_be_chosen() {
        let cbc = Encryption::Plain(cipher::Encryption::AesCbc(32));
        for (encryption, name) in
            [(GCM, "aes128gcm128"), (NULL, "null-sha256"), (GMAC, "aes128gmac"), (cbc, "aes256-sha256")]
        {
            let offer = [offer(&[encryption])];
            assert_eq!(chosen(&offer, &offer).as_deref(), Ok(name));
        }
    }

    /// An SA without keys must not be possible, as in CVE-2024-3652.
    #[test]
    fn null_is_not_chosen_without_a_mac() {
        let bare = Proposal {
            transforms: vec![NULL.transform(), Sequence::Short.transform()],
            ..EspOffer::propose(&[offer(&[NULL])], 7)[0].clone()
        };
        let without = EspOffer { integrity: vec![], ..offer(&[NULL]) };
        for ours in [offer(&[NULL]), without] {
            assert_eq!(EspOffer::select(&[ours], from_ref(&bare)), Err(NoProposalChosen));
        }
        assert_eq!(EspOffer::accept(from_ref(&bare), from_ref(&bare)), Err(NoProposalChosen));
    }

    #[test]
    fn forward_secrecy_is_agreed_on_by_both_or_refused() {
        let plain = [offer(&[GCM])];
        let secret = [EspOffer { groups: vec![Group::X25519, Group::Ecp256], ..offer(&[GCM]) }];
        assert_eq!(chosen(&secret, &secret).as_deref(), Ok("aes128gcm128-x25519"));
        assert_eq!(chosen(&secret, &plain), Err(NoProposalChosen));
        assert_eq!(chosen(&plain, &secret), Err(NoProposalChosen));
        // Offered as optional.
        let mut either = EspOffer::propose(&secret, 7);
        either[0].transforms.push(Transform::new(transform::GROUP, 0));
        assert_eq!(EspOffer::select(&plain, &either).map(|selected| selected.suite.group), Ok(None));
        // An answer without the key exchange.
        let proposals = EspOffer::propose(&secret, 7);
        let answer = EspOffer::select_first(&plain, &proposals).expect("groups do not count").proposal;
        assert_eq!(EspOffer::accept(&proposals, &[answer]), Err(NoProposalChosen));
    }

    #[test]
    fn the_first_child_has_no_exchange_of_its_own() {
        let secret = [EspOffer { groups: vec![Group::X25519], ..offer(&[GCM]) }];
        let theirs = EspOffer::propose(&EspOffer::without_groups(&secret), 7);
        let selected = EspOffer::select_first(&secret, &theirs).expect("the same");
        assert_eq!(selected.suite.group, None);
    }

    #[test]
    fn sequence_numbers_are_as_long_as_both_can() {
        let with = |sequence: &[Sequence]| [EspOffer { sequence: sequence.to_vec(), ..offer(&[GCM]) }];
        let (both, short) = (with(&[Sequence::Extended, Sequence::Short]), with(&[]));
        let extended = with(&[Sequence::Extended]);
        assert_eq!(chosen(&both, &both).as_deref(), Ok("aes128gcm128-esn"));
        assert_eq!(chosen(&both, &short).as_deref(), Ok("aes128gcm128"));
        assert_eq!(chosen(&short, &both).as_deref(), Ok("aes128gcm128"));
        assert_eq!(chosen(&short, &extended), Err(NoProposalChosen));
        let mut silent = EspOffer::propose(&short, 7);
        silent[0].transforms.retain(|one| one.kind != transform::ESN);
        assert_eq!(
            EspOffer::select(&both, &silent).map(|selected| selected.suite.extended_sequence),
            Ok(false)
        );
        assert_eq!(EspOffer::select(&extended, &silent), Err(NoProposalChosen));
    }

    #[test]
    fn an_spi_of_zero_or_of_another_protocol_is_not_chosen() {
        let ours = [offer(&[GCM])];
        let good = EspOffer::propose(&ours, 7)[0].clone();
        for spi in [ProposalSpi::Child(0), ProposalSpi::None, ProposalSpi::Ike(7)] {
            assert_eq!(EspOffer::select(&ours, &[Proposal { spi, ..good.clone() }]), Err(NoProposalChosen));
        }
        let ah = Proposal { protocol: protocol::AH, ..good };
        assert_eq!(EspOffer::select(&ours, &[ah]), Err(NoProposalChosen));
    }
}
