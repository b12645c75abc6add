//! Rekeying of the IKE SA, on both sides (RFC 7296 sections 1.3.2, 2.8, 2.18 and 2.25.2).
//!
//! ```text
//! local request           the new SA is current; the local side deletes the old one
//! request of the peer     the new SA is current; the peer deletes the old one
//! both at once            both new SAs exist until the local request is answered: the exchange with the lowest of the
//!                         four nonces loses, and its initiator deletes its SA
//! ```

use super::entry::{IkeSa, Procedure, Standing};
use super::rekeying::Rekeying;
use super::requests::Asked;
use super::rival::{Rival, lowest};
use super::{Session, Task};
use crate::ikev2::cause::Cause;
use crate::ikev2::channel::{Channel, Incoming};
use crate::ikev2::context::Context;
use crate::ikev2::event::Event;
use crate::ikev2::keys::{IkeKeys, Nonces, Role, Spis};
use crate::ikev2::limits::{NONCE, REKEY_RETRY, REPLACED_TIME, TEMPORARY_FAILURE_DELAY};
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{Exchange, KeyExchange, Payload, Payloads, Proposal, ProposalSpi};
use crate::ikev2::proposal::{IkeOffer, IkeSuite, describe_all};
use crypto::SecretBytes;
use crypto::exchange::{ExchangeError, Group};

/// The maximum number of IKE SAs of a session.
const IKE_SAS: usize = 4;

/// The inputs of the key derivation of a new IKE SA.
struct Derivation<'a> {
    /// The local SPI of the old IKE SA.
    old: u64,
    suite: &'a IkeSuite,
    role: Role,
    spis: Spis,
    nonces: Nonces<'a>,
    shared: &'a SecretBytes,
}

impl Session {
    /// Requests the rekeying of the current IKE SA.
    pub(super) fn request_rekey(&mut self, context: &mut Context<'_>) {
        let Some(&group) = self.config.ike.iter().find_map(|offer| offer.groups.first()) else { return };
        let spi = context.new_ike_spi(self.id);
        let rekeying = Rekeying {
            spi,
            proposals: IkeOffer::propose(&self.config.ike, ProposalSpi::Ike(spi)),
            nonce: context.bytes(),
            group,
            share: None,
            rival: None,
            retries: 0,
        };
        self.generate(Procedure::RekeyIke(Box::new(rekeying)), group, context);
    }

    pub(super) fn send_rekeying(&mut self, spi: u64, rekeying: Box<Rekeying>, context: &mut Context<'_>) {
        let path = self.path;
        let Some(ike) = self.ike_mut(spi) else { return };
        let exchange = Exchange::CreateChildSa;
        let datagrams = ike.channel.request(
            (context.now, context.patience),
            exchange,
            &rekeying.payloads(),
            context.random,
        );
        ike.procedure = Some(Procedure::RekeyIke(rekeying));
        context.send(path, datagrams);
    }

    /// Answers a request to rekey the IKE SA that it arrived in.
    pub(super) fn answer_rekey(
        &mut self,
        asked: Asked<'_>,
        payloads: &Payloads<'_>,
        proposals: &[Proposal],
        peer_nonce: &[u8],
        context: &mut Context<'_>,
    ) {
        // Section 2.25.2: not while a Child SA is being created or deleted in it; and there is one rival at most.
        let is_busy =
            matches!(self.procedure(asked.spi), Some(Procedure::CreateChild(_) | Procedure::DeleteChild(_)));
        let has_candidate = self.ikes.iter().any(|ike| ike.standing == Standing::Candidate);
        if is_busy || has_candidate || self.ikes.len() >= IKE_SAS {
            return self.refuse(asked, notify::TEMPORARY_FAILURE, &[], context);
        }
        let selected = IkeOffer::select(&self.config.ike, proposals).ok();
        let selected = selected.filter(|one| matches!(one.proposal.spi, ProposalSpi::Ike(1..)));
        let (Some(selected), Some(exchange)) = (selected, payloads.ke) else {
            self.refuse(asked, notify::NO_PROPOSAL_CHOSEN, &[], context);
            let ours = describe_all(&IkeOffer::propose(&self.config.ike, ProposalSpi::None));
            let cause = Cause::NoProposal { of: "IKE".to_owned(), ours, theirs: describe_all(proposals) };
            return self.report_refusal(cause, context);
        };
        let group = selected.suite.group;
        if exchange.group != group.id() {
            return self.refuse(asked, notify::INVALID_KE_PAYLOAD, &group.id().to_be_bytes(), context);
        }
        if !self.may_make(asked, None, context) {
            return;
        }
        let exchanged = match asked.exchanged {
            None => return self.exchange(asked, group, exchange.public, context),
            Some(Err(_)) => return self.refuse_for_good(asked, context),
            Some(Ok(exchanged)) if exchanged.group == group => exchanged,
            // The configuration has changed during the job.
            Some(Ok(_)) => return self.refuse(asked, notify::TEMPORARY_FAILURE, &[], context),
        };
        let ProposalSpi::Ike(initiator) = selected.proposal.spi else { return };
        let spis = Spis { initiator, responder: context.new_ike_spi(self.id) };
        let nonce: [u8; NONCE] = context.bytes();
        let answer = [
            Payload::Sa(vec![selected.answer(ProposalSpi::Ike(spis.responder))]),
            Payload::Nonce(&nonce),
            Payload::Ke(KeyExchange { group: group.id(), public: &exchanged.public }),
        ];
        self.respond(asked.spi, asked.incoming, asked.path, &answer, context);
        let nonces = Nonces { initiator: peer_nonce, responder: &nonce };
        let (old, suite, role) = (asked.spi, &selected.suite, Role::Responder);
        let shared = &exchanged.secret;
        self.make(Derivation { old, suite, role, spis, nonces, shared }, Standing::Candidate, context);
        self.follow_peer(old, Rival { spi: spis.responder, lowest: lowest(peer_nonce, &nonce) }, context);
    }

    /// Notes that the peer has replaced the IKE SA `old`. If a local rekeying of it is pending, its answer decides
    /// which SA survives.
    fn follow_peer(&mut self, old: u64, rival: Rival<u64>, context: &mut Context<'_>) {
        let procedure = self.ike_mut(old).and_then(|ike| ike.procedure.as_mut());
        if let Some(Procedure::RekeyIke(rekeying)) = procedure {
            rekeying.rival = Some(rival);
        } else {
            self.succeed(old, rival.spi, context);
        }
    }

    /// Makes `new` the current IKE SA; the peer will delete `old`.
    pub(super) fn succeed(&mut self, old: u64, new: u64, context: &mut Context<'_>) {
        self.stand(old, Standing::Replaced, context);
        self.stand(new, Standing::Current, context);
    }

    fn stand(&mut self, spi: u64, standing: Standing, context: &mut Context<'_>) {
        let Some(ike) = self.ike_mut(spi) else { return };
        ike.standing = standing;
        if standing == Standing::Current {
            self.queue.retain(|task| *task != Task::RekeyIke);
            self.delayed.retain(|(_, task)| *task != Task::RekeyIke);
            return;
        }
        ike.rekey_at = None;
        ike.deadline = (standing == Standing::Replaced).then(|| context.now + REPLACED_TIME);
    }

    fn make(&mut self, derivation: Derivation<'_>, standing: Standing, context: &mut Context<'_>) {
        let Derivation { old, suite, role, spis, nonces, shared } = derivation;
        let Some(old) = self.ike(old) else { return };
        let keys = IkeKeys::rekeyed(&old.root, suite, role, spis, nonces, shared);
        let fragments = old.channel.fragments();
        let channel = Channel::new(role, spis, (keys.sealer, keys.opener), fragments, 0);
        let times = (old.rekey_at, old.expires);
        let mut ike = IkeSa::new(channel, (keys.root, *suite), standing, self.config.lifetime, context);
        if self.config.reauthenticate {
            // They count from the authentication, or the peer could put off the next one for ever.
            (ike.rekey_at, ike.expires) = times;
        }
        self.ikes.push(ike);
        let (connection, session) = (self.connection, self.id);
        context.report(Event::Rekeyed { connection, session, suite: *suite });
    }

    /// Handles the answer to the request to rekey the IKE SA `old`.
    pub(super) fn finish_rekey(
        &mut self,
        old: u64,
        rekeying: Box<Rekeying>,
        payloads: &Payloads<'_>,
        (incoming, secret): (&Incoming, Option<Result<SecretBytes, ExchangeError>>),
        context: &mut Context<'_>,
    ) {
        if let Some(kind) = payloads.error() {
            return self.rekey_refused(old, *rekeying, kind, payloads, context);
        }
        let invalid = || Cause::Misbehaved("its public value is not one of the group");
        let checked = check(&rekeying, payloads).and_then(|checked| match &secret {
            Some(Err(_)) => Err(invalid()),
            _ => Ok(checked),
        });
        let (suite, spis, public) = match checked {
            Ok(checked) => checked,
            Err(cause) => {
                self.report_failure(cause, context);
                return self.abandon_rekey(old, *rekeying, REKEY_RETRY, context);
            }
        };
        let Some(Ok(shared)) = &secret else {
            let Some(share) = rekeying.share.clone() else { return };
            let procedure = Procedure::RekeyIke(rekeying);
            return self.agree_with(old, procedure, share, (incoming, public), context);
        };
        let nonces = Nonces { initiator: &rekeying.nonce, responder: payloads.nonce.unwrap_or_default() };
        let (suite, role) = (&suite, Role::Initiator);
        self.make(Derivation { old, suite, role, spis, nonces, shared }, Standing::Candidate, context);
        let peer_nonce = payloads.nonce.unwrap_or_default();
        let ours = lowest(&rekeying.nonce, peer_nonce);
        match rekeying.rival {
            Some(rival) if ours < rival.lowest => {
                self.succeed(old, rival.spi, context);
                self.stand(rekeying.spi, Standing::Closing, context);
                self.request_delete_ike(rekeying.spi, context);
            }
            rival => {
                if let Some(rival) = rival {
                    self.stand(rival.spi, Standing::Replaced, context);
                }
                self.stand(rekeying.spi, Standing::Current, context);
                self.stand(old, Standing::Closing, context);
                self.request_delete_ike(old, context);
            }
        }
    }

    fn rekey_refused(
        &mut self,
        old: u64,
        mut rekeying: Rekeying,
        kind: u16,
        payloads: &Payloads<'_>,
        context: &mut Context<'_>,
    ) {
        let wanted = payloads.notify(notify::INVALID_KE_PAYLOAD).map(|notify| notify.data);
        if let Some(group) = wanted.and_then(|wanted| self.other_group(&rekeying, wanted)) {
            (rekeying.group, rekeying.share) = (group, None);
            rekeying.retries += 1;
            return self.generate(Procedure::RekeyIke(Box::new(rekeying)), group, context);
        }
        if kind == notify::NO_ADDITIONAL_SAS && rekeying.rival.is_none() {
            context.release_ike_spi(rekeying.spi);
            return self.note_final(context);
        }
        let wait = match kind {
            notify::TEMPORARY_FAILURE => TEMPORARY_FAILURE_DELAY,
            _ => REKEY_RETRY,
        };
        if kind != notify::TEMPORARY_FAILURE && rekeying.rival.is_none() {
            self.report_failure(Cause::Notified(notify::name(kind)), context);
        }
        self.abandon_rekey(old, rekeying, wait, context);
    }

    /// The group that the peer asks for, if it was offered and not just tried.
    fn other_group(&self, rekeying: &Rekeying, wanted: &[u8]) -> Option<Group> {
        let group = Group::from_id(u16::from_be_bytes(wanted.try_into().ok()?))?;
        let is_offered = self.config.ike.iter().any(|offer| offer.groups.contains(&group));
        let is_new = group != rekeying.group && rekeying.retries < 2;
        (is_offered && is_new && rekeying.rival.is_none()).then_some(group)
    }

    /// Ends a rekeying that failed: if the peer has created an IKE SA meanwhile, that one becomes current.
    fn abandon_rekey(
        &mut self,
        old: u64,
        rekeying: Rekeying,
        wait: std::time::Duration,
        context: &mut Context<'_>,
    ) {
        context.release_ike_spi(rekeying.spi);
        if let Some(rival) = rekeying.rival {
            return self.succeed(old, rival.spi, context);
        }
        let at = context.after_about(wait);
        self.delay(at, Task::RekeyIke);
    }
}

/// Checks that an answer matches the request; returns the suite, the SPIs and the public value of the peer.
fn check<'a>(rekeying: &Rekeying, payloads: &'a Payloads<'_>) -> Result<(IkeSuite, Spis, &'a [u8]), Cause> {
    let (Some(answer), Some(exchange), Some(_)) = (&payloads.sa, payloads.ke, payloads.nonce) else {
        return Err(Cause::Misbehaved("its answer lacks algorithms, key exchange or nonce"));
    };
    let selected = IkeOffer::accept(&rekeying.proposals, answer).map_err(|_| Cause::NoProposal {
        of: "IKE".to_owned(),
        ours: describe_all(&rekeying.proposals),
        theirs: describe_all(answer),
    })?;
    if exchange.group != rekeying.group.id() || selected.suite.group != rekeying.group {
        return Err(Cause::Misbehaved("its key exchange is of another group"));
    }
    let ProposalSpi::Ike(responder @ 1..) = selected.proposal.spi else {
        return Err(Cause::Misbehaved("its answer lacks an SPI"));
    };
    Ok((selected.suite, Spis { initiator: rekeying.spi, responder }, exchange.public))
}
