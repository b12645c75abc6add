//! Requests of the peer for Child SAs, and installation of all Child SAs (RFC 7296 sections 1.2, 1.3.1, 1.3.3 and
//! 2.8).

use super::agreement::{Agreement, Refusal, Wish, agree};
use super::entry::{ChildEntry, ChildStanding, Procedure};
use super::requests::Asked;
use super::rival::{Rival, lowest};
use super::translate::Renamed;
use super::{Request, Session, Task};
use crate::esp::{ChildSa, Half, Mode, TrafficSelector, Transport};
use crate::ikev2::action::{Action, Install};
use crate::ikev2::cause::Cause;
use crate::ikev2::channel::Incoming;
use crate::ikev2::conflicts::{Claim, Claimant};
use crate::ikev2::context::Context;
use crate::ikev2::event::Event;
use crate::ikev2::keys::{Nonces, Role, Root};
use crate::ikev2::limits::{CHILDREN, NONCE, REPLACED_CHILDREN, REPLACED_TIME};
use crate::ikev2::message::numbers::{notify, protocol};
use crate::ikev2::message::{KeyExchange, Notify, Payload, Payloads, ProposalSpi};
use crate::ikev2::proposal::EspSuite;
use crate::ikev2::selectors::one_host;
use crypto::SecretBytes;

/// A negotiated Child SA with its keys.
pub(super) struct NewChild {
    pub(super) child: usize,
    pub(super) suite: EspSuite,
    pub(super) mode: Mode,
    pub(super) outbound: Half,
    pub(super) inbound: Half,
    pub(super) local: Vec<TrafficSelector>,
    pub(super) remote: Vec<TrafficSelector>,
    pub(super) renamed: Renamed,
}

/// The two directions of a Child SA. The side that sent the request is the initiator of section 2.17.
pub(super) fn halves(
    root: &Root,
    suite: &EspSuite,
    role: Role,
    (inbound, outbound): (u32, u32),
    nonces: Nonces<'_>,
    shared: Option<&SecretBytes>,
) -> [Half; 2] {
    let [initiator, responder] = root.child_keys(suite.transform, nonces, shared);
    let (sent, received) =
        if role == Role::Initiator { (initiator, responder) } else { (responder, initiator) };
    [Half { spi: inbound, keys: received }, Half { spi: outbound, keys: sent }]
}

/// The answer to a request for a Child SA.
struct Answer {
    inbound: u32,
    nonce: Option<[u8; NONCE]>,
    public: Option<(u16, Vec<u8>)>,
}

impl Answer {
    fn payloads<'a>(&'a self, agreement: &Agreement) -> Vec<Payload<'a>> {
        let mut list = Vec::new();
        if agreement.mode == Mode::Transport {
            list.push(Payload::Notify(Notify::new(notify::USE_TRANSPORT_MODE, &[])));
        }
        list.push(Payload::Sa(vec![agreement.selected.answer(ProposalSpi::Child(self.inbound))]));
        list.extend(self.nonce.as_ref().map(|nonce| Payload::Nonce(nonce)));
        let exchange = self.public.as_ref().map(|(group, public)| KeyExchange { group: *group, public });
        list.extend(exchange.map(Payload::Ke));
        // The local side is the responder: TSr holds the local selectors. Section 2.23.1: they use local addresses as
        // seen here, and those of the peer as the peer sees them.
        list.push(Payload::TsI(agreement.remote.clone()));
        list.push(Payload::TsR(agreement.local.clone()));
        list
    }
}

impl Session {
    /// Installs a Child SA. With `hold`, the older SA is used to send until the peer has installed this one.
    pub(super) fn install(&mut self, new: NewChild, hold: bool, context: &mut Context<'_>) {
        let NewChild { child, suite, mode, outbound, inbound, mut local, mut remote, renamed } = new;
        let config = &self.config.children[child];
        let (lifetime, rekeys) = (config.lifetime, config.rekey);
        let spi = inbound.spi;
        self.occupy(spi, child, [&local, &remote], context);
        let addresses = one_host(&local).zip(one_host(&remote)).filter(|_| mode == Mode::Transport);
        let translated = renamed.local || renamed.remote;
        let transport = addresses.map(|(local, remote)| Transport { local, remote, translated });
        // Most of thousands of sessions have one selector a side, and a vector starts with capacity for four.
        local.shrink_to_fit();
        remote.shrink_to_fit();
        self.children.reserve_exact(1);
        self.children.push(ChildEntry {
            child,
            inbound: spi,
            outbound: outbound.spi,
            suite,
            mode,
            local: local.clone(),
            remote: remote.clone(),
            since: context.now,
            standing: ChildStanding::Live,
            rekey_at: rekeys.then(|| context.rekey_time(lifetime)),
            expires: context.now + lifetime,
            deadline: None,
        });
        let (transform, extended_sequence) = (suite.transform, suite.extended_sequence);
        let sa = ChildSa { transform, extended_sequence, mode, outbound, inbound, local, remote };
        let (connection, session, path) = (self.connection, self.id, self.path);
        let (encapsulation, follows) = (self.nat.in_udp, self.nat.follows());
        let install =
            Install { connection, child, session, sa, path, encapsulation, transport, follows, hold };
        context.install(install);
        context.report(Event::ChildUp { connection, child, spi, suite });
    }

    /// Removes a Child SA.
    pub(super) fn remove_child(&mut self, spi: u32, context: &mut Context<'_>) {
        context.release_child_spi(spi);
        let Some(place) = self.children.iter().position(|child| child.inbound == spi) else { return };
        let entry = self.children.remove(place);
        context.registry.conflicts.leave(spi);
        context.out.push(Action::Retire { spi });
        context.report(Event::ChildDown { connection: self.connection, child: entry.child, spi });
    }

    /// The traffic selector claim of the Child SA that is received under `spi`.
    fn claim(
        &self,
        spi: u32,
        child: usize,
        selectors: [&[TrafficSelector]; 2],
        context: &Context<'_>,
    ) -> Claim {
        let (session, connection) = (self.id, self.connection);
        let (profile, identity) = (context.registry.instances.profile(connection), &self.identity);
        let claimant = Claimant { session, connection, profile, config: &self.config, identity };
        Claim::new(&claimant, (spi, child), selectors)
    }

    /// Claims the traffic selectors of a Child SA.
    pub(super) fn occupy(
        &self,
        spi: u32,
        child: usize,
        selectors: [&[TrafficSelector]; 2],
        context: &mut Context<'_>,
    ) {
        let claim = self.claim(spi, child, selectors, context);
        context.registry.conflicts.enter(claim);
    }

    /// The cause of a conflict: another peer holds the traffic selectors.
    pub(super) fn contest(
        &self,
        child: usize,
        selectors: [&[TrafficSelector]; 2],
        context: &mut Context<'_>,
    ) -> Option<Cause> {
        let owner = context.registry.conflicts.owner(&self.claim(0, child, selectors, context))?;
        let (session, owner) = (owner.session, owner.identity.to_string());
        context.registry.doubtful.insert(session);
        Some(Cause::Contested { packets: selectors[1].to_vec(), owner })
    }

    /// The agreement between a request and the configuration.
    fn agree(&self, wish: &Wish<'_>, only: Option<usize>) -> Result<Agreement, Refusal> {
        agree(&self.config, (self.authenticated, self.nat), wish, only)
    }

    /// The agreement, unless another peer holds its traffic selectors.
    fn uncontested(&self, agreement: Agreement, context: &mut Context<'_>) -> Result<Agreement, Refusal> {
        let Agreement { child, local, remote, .. } = &agreement;
        let contest = self.contest(*child, [local, remote], context);
        let refused = |cause| Refusal { notify: notify::TS_UNACCEPTABLE, cause };
        contest.map_or(Ok(agreement), |cause| Err(refused(cause)))
    }

    pub(super) fn report_failure(&self, cause: Cause, context: &mut Context<'_>) {
        context.fail(self.connection, self.path, cause);
    }

    /// Reports why a request was refused, rate-limited, as the peer can repeat the request at any rate.
    pub(super) fn report_refusal(&self, cause: Cause, context: &mut Context<'_>) {
        context.fail_sometimes(self.connection, self.path, cause);
    }

    /// Answers IKE_AUTH: `list` has the local identity and its proof; the result of the Child SA is appended.
    pub(crate) fn answer_first(
        &mut self,
        incoming: &Incoming,
        payloads: &Payloads<'_>,
        list: Vec<Payload<'_>>,
        nonces: Nonces<'_>,
        context: &mut Context<'_>,
    ) {
        let (spi, path) = (self.ikes[0].spi(), self.path);
        let Some(wish) = wish(payloads, true) else {
            // RFC 6023: an SA without a Child SA.
            return self.respond(spi, incoming, path, &list, context);
        };
        let agreement = self.agree(&wish, None);
        let agreement = match agreement.and_then(|agreement| self.uncontested(agreement, context)) {
            Ok(agreement) => agreement,
            Err(refusal) => {
                let refused = [list, vec![Payload::Notify(Notify::new(refusal.notify, &[]))]].concat();
                self.respond(spi, incoming, path, &refused, context);
                return self.report_refusal(refusal.cause, context);
            }
        };
        let answer =
            Answer { inbound: context.new_child_spi(self.id, self.connection), nonce: None, public: None };
        let list = [list, answer.payloads(&agreement)].concat();
        let root = self.ikes[0].root.clone();
        let new = as_responder(&root, agreement, answer.inbound, nonces, None);
        // Installed before the answer is sent: packets of the peer may follow the answer at once.
        self.install(new, false, context);
        self.respond(spi, incoming, path, &list, context);
    }

    /// Answers a request for an additional Child SA.
    pub(super) fn answer_child(
        &mut self,
        asked: Asked<'_>,
        payloads: &Payloads<'_>,
        context: &mut Context<'_>,
    ) {
        if self.children.len() >= CHILDREN {
            return self.refuse(asked, notify::NO_ADDITIONAL_SAS, &[], context);
        }
        self.answer_new(asked, payloads, None, context);
    }

    /// Answers a request to rekey the Child SA with the outbound SPI `outbound`.
    pub(super) fn answer_rekey_child(
        &mut self,
        asked: Asked<'_>,
        payloads: &Payloads<'_>,
        outbound: u32,
        context: &mut Context<'_>,
    ) {
        let Some(old) = self.children.iter().find(|child| child.outbound == outbound) else {
            // It may be the SA that the peer has just created for a local request, whose answer has not arrived yet.
            if matches!(self.procedure(asked.spi), Some(Procedure::CreateChild(_))) {
                return self.refuse(asked, notify::TEMPORARY_FAILURE, &[], context);
            }
            let missing =
                Notify { kind: notify::CHILD_SA_NOT_FOUND, spi: Some((protocol::ESP, outbound)), data: &[] };
            return self.respond(asked.spi, asked.incoming, asked.path, &[Payload::Notify(missing)], context);
        };
        // Section 2.25.1: an SA that is being deleted, or that the peer has replaced before, is not rekeyed.
        if old.standing != ChildStanding::Live || self.is_deleting(old.inbound, asked.spi) {
            return self.refuse(asked, notify::TEMPORARY_FAILURE, &[], context);
        }
        // The peer must first delete the SAs that it has replaced.
        if self.children.len() >= CHILDREN + REPLACED_CHILDREN {
            return self.refuse(asked, notify::TEMPORARY_FAILURE, &[], context);
        }
        let (child, spi) = (old.child, old.inbound);
        self.answer_new(asked, payloads, Some((child, spi)), context);
    }

    /// The inbound and outbound SPI of a Child SA.
    fn spis_of(&self, inbound: u32) -> Option<[u32; 2]> {
        self.child(inbound).map(|child| [child.inbound, child.outbound])
    }

    fn is_deleting(&self, child: u32, ike: u64) -> bool {
        matches!(self.procedure(ike), Some(Procedure::DeleteChild(spi)) if *spi == child)
    }

    /// Negotiates a Child SA, installs it and answers; `old` is the SA that it replaces.
    fn answer_new(
        &mut self,
        asked: Asked<'_>,
        payloads: &Payloads<'_>,
        old: Option<(usize, u32)>,
        context: &mut Context<'_>,
    ) {
        let (Some(wish), Some(peer_nonce)) = (wish(payloads, false), payloads.nonce) else {
            return self.refuse_for_good(asked, context);
        };
        let agreement = match self.agree(&wish, old.map(|(child, _)| child)) {
            Ok(agreement) => agreement,
            Err(refusal) => return self.refuse_child(asked, refusal, context),
        };
        let group = agreement.selected.suite.group;
        if let Some(group) = group
            && payloads.ke.is_none_or(|exchange| exchange.group != group.id())
        {
            return self.refuse(asked, notify::INVALID_KE_PAYLOAD, &group.id().to_be_bytes(), context);
        }
        // The rate limit is checked before the selectors are compared with those of all Child SAs.
        if !self.may_make(asked, old.and_then(|(_, spi)| self.spis_of(spi)), context) {
            return;
        }
        let agreement = match self.uncontested(agreement, context) {
            Ok(agreement) => agreement,
            Err(refusal) => return self.refuse_child(asked, refusal, context),
        };
        let exchanged = match (group.zip(payloads.ke), asked.exchanged) {
            (None, _) => None,
            (Some((group, exchange)), None) => {
                return self.exchange(asked, group, exchange.public, context);
            }
            (Some(_), Some(Err(_))) => return self.refuse_for_good(asked, context),
            (Some((group, _)), Some(Ok(exchanged))) if exchanged.group == group => Some(exchanged),
            // The configuration has changed during the job.
            (Some(_), Some(Ok(_))) => return self.refuse(asked, notify::TEMPORARY_FAILURE, &[], context),
        };
        let public = exchanged.map(|it| (it.group.id(), it.public.clone()));
        let shared = exchanged.map(|it| &it.secret);
        let nonce: [u8; NONCE] = context.bytes();
        let answer =
            Answer { inbound: context.new_child_spi(self.id, self.connection), nonce: Some(nonce), public };
        let list = answer.payloads(&agreement);
        let child = agreement.child;
        let Some(root) = self.ike(asked.spi).map(|ike| ike.root.clone()) else { return };
        let nonces = Nonces { initiator: peer_nonce, responder: &nonce };
        let new = as_responder(&root, agreement, answer.inbound, nonces, shared);
        // Installed before the answer is sent: packets of the peer may follow the answer at once. The peer can
        // receive under the new SA only once it has the answer.
        self.install(new, old.is_some(), context);
        self.respond(asked.spi, asked.incoming, asked.path, &list, context);
        let rival = Rival { spi: answer.inbound, lowest: lowest(peer_nonce, &nonce) };
        match old {
            Some((_, old)) => self.mark_replaced(old, rival, context),
            None => self.note_rival(rival, |request| request.replaces.is_none() && request.child == child),
        }
    }

    fn refuse_child(&mut self, asked: Asked<'_>, refusal: Refusal, context: &mut Context<'_>) {
        self.refuse(asked, refusal.notify, &[], context);
        self.report_refusal(refusal.cause, context);
    }

    /// Marks a Child SA as replaced by the peer. If a local rekeying of it is pending, the nonces decide which SA
    /// survives.
    fn mark_replaced(&mut self, old: u32, rival: Rival<u32>, context: &mut Context<'_>) {
        if let Some(entry) = self.child_mut(old) {
            entry.standing = ChildStanding::Replaced(rival.spi);
            entry.rekey_at = None;
            entry.deadline = Some(context.now + REPLACED_TIME);
        }
        self.queue.retain(|task| *task != Task::RekeyChild(old));
        self.note_rival(rival, |request| request.replaces == Some(old));
    }

    /// Notes that the peer has created what a local request asks for.
    fn note_rival(&mut self, rival: Rival<u32>, is_same: impl Fn(&Request) -> bool) {
        for ike in &mut self.ikes {
            if let Some(Procedure::CreateChild(request)) = &mut ike.procedure
                && is_same(request)
            {
                request.rival = Some(rival.clone());
            }
        }
    }
}

/// Reads the request of the peer; `None` if a payload is missing.
fn wish<'a>(payloads: &'a Payloads<'_>, is_first: bool) -> Option<Wish<'a>> {
    Some(Wish {
        proposals: payloads.sa.as_deref()?,
        remote: payloads.ts_i.as_deref()?,
        local: payloads.ts_r.as_deref()?,
        transport: payloads.notify(notify::USE_TRANSPORT_MODE).is_some(),
        is_first,
    })
}

fn as_responder(
    root: &Root,
    agreement: Agreement,
    inbound: u32,
    nonces: Nonces<'_>,
    shared: Option<&SecretBytes>,
) -> NewChild {
    let Agreement { child, selected, local, remote, mode, renamed } = agreement;
    let outbound = match selected.proposal.spi {
        ProposalSpi::Child(spi) => spi,
        // `EspOffer` selects no proposal without an SPI.
        ProposalSpi::None | ProposalSpi::Ike(_) => 0,
    };
    let suite = selected.suite;
    let [inbound, outbound] = halves(root, &suite, Role::Responder, (inbound, outbound), nonces, shared);
    NewChild { child, suite, mode, outbound, inbound, local, remote, renamed }
}

impl Request {
    /// Whether the peer has created the same SA meanwhile.
    pub(super) fn has_rival(&self) -> bool {
        self.rival.is_some()
    }
}
