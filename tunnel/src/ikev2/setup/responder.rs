//! The first message of an initiator, and the answer to it (RFC 7296 sections 1.2, 2.6 and 2.7).
//!
//! ```text
//! check the form → cookie, if many are half open → connection and proposal → group → job: keys → answer
//! ```
//! No state is kept for a message that fails before the job.

use super::announced::Announced;
use super::half_open::HalfOpen;
use crate::ikev2::auth::init::Init;
use crate::ikev2::auth::proof::{MOST_FIRST_REQUEST, hashes, request_payload};
use crate::ikev2::cause::Cause;
use crate::ikev2::channel::Channel;
use crate::ikev2::connections::Between;
use crate::ikev2::context::Context;
use crate::ikev2::cookie::Initiator;
use crate::ikev2::half_open_table::{Admission, HalfOpenEntry};
use crate::ikev2::ids::SessionId;
use crate::ikev2::inbound::Inbound;
use crate::ikev2::job::{Exchanged, Output, Work};
use crate::ikev2::keys::{IkeKeys, Nonces, Role, Spis};
use crate::ikev2::limits::NONCE;
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{
    Body, Header, KeyExchange, Notify, Payload, Payloads, Proposal, ProposalSpi, emit_clear,
};
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::proposal::{IkeOffer, IkeSuite, Selected, describe_all};

/// The outcome of a first message.
pub(crate) enum Answer {
    /// It was ignored, or answered without state.
    Done,
    /// It was parsed and led to no SA; whether its source has returned a cookie.
    Wasted(bool),
    /// It is being answered.
    Begun(Box<Answering>),
}

/// Answers a first message.
pub(crate) fn answer_init(
    id: SessionId,
    inbound: &Inbound<'_>,
    admission: Admission<'_>,
    context: &mut Context<'_>,
) -> Answer {
    let Body::Clear(payloads) = &inbound.message.body else { return Answer::Wasted(false) };
    let (Some(proposals), Some(exchange), Some(nonce)) = (&payloads.sa, payloads.ke, payloads.nonce) else {
        return Answer::Wasted(false);
    };
    let Some(is_proven) = admission.admit(inbound, payloads, nonce, context) else { return Answer::Done };
    let candidates = context.connections.on(inbound.path);
    let Some(selected) = candidates.select(proposals, context.compared) else {
        answer_clear(inbound, &[Payload::Notify(Notify::new(notify::NO_PROPOSAL_CHOSEN, &[]))], context);
        refuse(inbound, proposals, &candidates, context);
        return Answer::Wasted(is_proven);
    };
    let group = selected.suite.group;
    // Cheap checks come before the key exchange.
    if exchange.group == group.id() && exchange.public.len() != group.public_length() {
        answer_clear(inbound, &[Payload::Notify(Notify::new(notify::INVALID_SYNTAX, &[]))], context);
        return Answer::Wasted(is_proven);
    }
    if exchange.group != group.id() {
        let wanted = group.id().to_be_bytes();
        answer_clear(inbound, &[Payload::Notify(Notify::new(notify::INVALID_KE_PAYLOAD, &wanted))], context);
        return Answer::Wasted(is_proven);
    }
    let who = (id, is_proven);
    let wanted = Wants::of(&candidates);
    let answering = Answering::begin(who, inbound, payloads, (exchange, nonce), selected, wanted, context);
    Answer::Begun(Box::new(answering))
}

impl Admission<'_> {
    /// Whether the message may proceed, and if so, whether its source has returned a cookie. Asks for a missing
    /// cookie.
    fn admit(
        self,
        inbound: &Inbound<'_>,
        payloads: &Payloads<'_>,
        nonce: &[u8],
        context: &mut Context<'_>,
    ) -> Option<bool> {
        let spi = inbound.message.header.initiator_spi;
        let initiator = Initiator { spi, nonce, source: inbound.path.remote };
        let returned = payloads.notify(notify::COOKIE);
        let is_proven =
            returned.is_some_and(|returned| self.cookies.is_valid(context.now, &initiator, returned.data));
        if is_proven || !self.wants_cookie {
            return self.is_open.then_some(is_proven);
        }
        let cookie = self.cookies.give(context.now, &initiator, context.random);
        answer_clear(inbound, &[Payload::Notify(Notify::new(notify::COOKIE, &cookie))], context);
        None
    }
}

/// Answers without encryption and without a local SPI.
pub(crate) fn answer_clear(inbound: &Inbound<'_>, payloads: &[Payload<'_>], context: &mut Context<'_>) {
    let header = inbound.message.header.response();
    context.send(inbound.path, vec![emit_clear(&header, payloads)]);
}

/// Reports that no candidate has an acceptable proposal.
fn refuse(
    inbound: &Inbound<'_>,
    proposals: &[Proposal],
    candidates: &Between<'_>,
    context: &mut Context<'_>,
) {
    let Some((first, config)) = candidates.first() else {
        return context.suspect(None, inbound.path, || Cause::NoConnection);
    };
    // With several candidates the intended connection is unknown.
    let connection = (candidates.count() == 1).then_some(first);
    context.suspect(connection, inbound.path, || {
        let ours = describe_all(&IkeOffer::propose(&config.ike, ProposalSpi::None));
        Cause::NoProposal { of: "IKE".to_owned(), ours, theirs: describe_all(proposals) }
    });
}

/// The requirements of the candidate connections, as the peer's identity is not known yet.
struct Wants {
    /// Whether to force ESP in UDP without a NAT.
    force_encapsulation: bool,
    /// The authorities of the required certificates, if any.
    authorities: Option<Vec<u8>>,
}

impl Wants {
    fn of(candidates: &Between<'_>) -> Self {
        Self {
            force_encapsulation: candidates.first().is_some_and(|(_, config)| config.force_encapsulation),
            authorities: candidates.authorities(MOST_FIRST_REQUEST),
        }
    }
}

/// The responder's state while the key exchange of its answer is computed: the other parts of the answer.
pub(crate) struct Answering {
    id: SessionId,
    path: Path,
    header: Header,
    is_proven: bool,
    /// The message to answer.
    received: Vec<u8>,
    peer_nonce: Vec<u8>,
    nonce: [u8; NONCE],
    spis: Spis,
    selected: Selected<IkeSuite>,
    nat: Nat,
    hashes: Vec<u16>,
    fragments: bool,
    announced: Announced,
    /// The authorities of the required certificates, if any.
    authorities: Option<Vec<u8>>,
}

impl Answering {
    fn begin(
        (id, is_proven): (SessionId, bool),
        inbound: &Inbound<'_>,
        payloads: &Payloads<'_>,
        (exchange, peer_nonce): (KeyExchange<'_>, &[u8]),
        selected: Selected<IkeSuite>,
        wants: Wants,
        context: &mut Context<'_>,
    ) -> Self {
        let header = inbound.message.header;
        let spis = Spis { initiator: header.initiator_spi, responder: context.new_ike_spi(id) };
        // Section 2.23: the initiator computed its hashes before the local SPI was known.
        let force = wants.force_encapsulation;
        let (group, random) = (selected.suite.group, context.random.fork());
        let work = Work::Exchange { group, random, public: exchange.public.to_vec() };
        // The state waits for this job only, so that its number is of no use.
        context.start(id, is_proven, work);
        let nat = Nat::detect(inbound.path, Spis { responder: 0, ..spis }, payloads, force);
        Self {
            id,
            path: inbound.path,
            header: Header { responder_spi: spis.responder, ..header.response() },
            is_proven,
            received: inbound.bytes.to_vec(),
            peer_nonce: peer_nonce.to_vec(),
            nonce: context.bytes(),
            spis,
            selected,
            nat,
            hashes: hashes(payloads),
            fragments: payloads.notify(notify::IKEV2_FRAGMENTATION_SUPPORTED).is_some(),
            announced: Announced::new(inbound.path, spis, force),
            authorities: wants.authorities,
        }
    }

    /// The half-open entry of the initiator.
    pub(crate) fn entry(&self) -> HalfOpenEntry {
        HalfOpenEntry::new(self.spis.initiator, self.path, self.is_proven).worked_on()
    }

    /// Answers with the output of the job; `None` if the public value of the initiator is not valid.
    pub(crate) fn handle_finished(self, output: Output, context: &mut Context<'_>) -> Option<Box<HalfOpen>> {
        let Output::Exchanged(Ok(Exchanged { public, secret, .. })) = output else {
            let header = Header { responder_spi: 0, ..self.header };
            let refusal = [Payload::Notify(Notify::new(notify::INVALID_SYNTAX, &[]))];
            context.send(self.path, vec![emit_clear(&header, &refusal)]);
            context.release_ike_spi(self.spis.responder);
            return None;
        };
        let nonces = Nonces { initiator: &self.peer_nonce, responder: &self.nonce };
        let keys = IkeKeys::first(&self.selected.suite, Role::Responder, self.spis, nonces, &secret);
        let suite = self.selected.suite;
        let entry = HalfOpenEntry::new(self.spis.initiator, self.path, self.is_proven);
        let mut list = vec![
            Payload::Sa(vec![self.selected.answer(ProposalSpi::None)]),
            Payload::Ke(KeyExchange { group: suite.group.id(), public: &public }),
            Payload::Nonce(&self.nonce),
        ];
        let announced = self.announced.payloads().into_iter();
        list.extend(announced.filter(|payload| self.fragments || !announces_fragments(payload)));
        list.extend(self.authorities.as_deref().map(request_payload));
        for supported in [notify::CHILDLESS_IKEV2_SUPPORTED, notify::MULTIPLE_AUTH_SUPPORTED] {
            list.push(Payload::Notify(Notify::new(supported, &[])));
        }
        let sent = emit_clear(&self.header, &list);
        context.send(self.path, vec![sent.clone()]);
        let ends = (keys.sealer, keys.opener);
        let channel = Channel::new(Role::Responder, self.spis, ends, self.fragments, 1);
        let init = Init {
            role: Role::Responder,
            sent,
            received: self.received,
            nonce: self.nonce.to_vec(),
            peer_nonce: self.peer_nonce,
            suite,
            root: keys.root,
            proof: keys.proof,
            hashes: self.hashes,
        };
        let state = HalfOpen::new(self.id, self.path, self.nat, channel, init, entry, context.now);
        Some(Box::new(state))
    }
}

/// RFC 7383 section 2.3: a responder announces fragmentation only to an initiator that did.
fn announces_fragments(payload: &Payload<'_>) -> bool {
    matches!(payload, Payload::Notify(notify) if notify.kind == notify::IKEV2_FRAGMENTATION_SUPPORTED)
}
