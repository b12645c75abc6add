//! The initiator's state after it has sent IKE_SA_INIT.

use super::announced::Announced;
use super::waiting::Waiting;
use crate::Time;
use crate::ikev2::auth::init::Init;
use crate::ikev2::auth::proof::hashes;
use crate::ikev2::cause::Cause;
use crate::ikev2::channel::Channel;
use crate::ikev2::config::Connection;
use crate::ikev2::context::Context;
use crate::ikev2::event::{Asked, Event};
use crate::ikev2::ids::ConnectionId;
use crate::ikev2::ids::SessionId;
use crate::ikev2::inbound::Inbound;
use crate::ikev2::job::{Output, Work};
use crate::ikev2::keys::{IkeKeys, Nonces, Role, Spis};
use crate::ikev2::limits::{DOUBTED_TRANSMISSIONS, INIT_RETRIES, NONCE};
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{
    Body, Exchange, Header, KeyExchange, Notify, Payload, Payloads, Proposal, ProposalSpi, emit_clear,
};
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::proposal::{IkeOffer, IkeSuite, describe_all};
use crate::ikev2::retransmission::{Overdue, Retransmission};
use crate::ikev2::session::Request;
use crypto::SecretBytes;
use crypto::exchange::{Group, PrivateShare};
use std::sync::Arc;

/// The payloads of a message, if it answers a first message.
pub(super) fn answer<'a>(inbound: &'a Inbound<'a>) -> Option<&'a Payloads<'a>> {
    let header = inbound.message.header;
    let is_answer = header.exchange == Exchange::IkeSaInit
        && header.is_response
        && !header.from_initiator
        && header.message_id == 0;
    match &inbound.message.body {
        Body::Clear(payloads) if is_answer => Some(payloads),
        _ => None,
    }
}

/// The parameters of the set-up.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) connection: ConnectionId,
    pub(crate) config: Arc<Connection>,
    /// The children to create, by index; the first is created in IKE_AUTH.
    pub(crate) children: Vec<usize>,
    /// Whether there is no other session with the same peer.
    pub(crate) initial_contact: bool,
}

/// See the module documentation.
pub(crate) struct Initiating {
    pub(super) id: SessionId,
    pub(super) wanted: Wanted,
    path: Path,
    spi: u64,
    nonce: [u8; NONCE],
    /// `None` while it is being generated.
    share: Option<Arc<PrivateShare>>,
    /// The number of the job that generates a share.
    job: Option<u64>,
    /// Messages received while a job is running.
    pub(super) waiting: Waiting,
    proposals: Vec<Proposal>,
    cookie: Option<Vec<u8>>,
    message: Vec<u8>,
    retries: u32,
    retransmission: Retransmission,
    /// How often the message was sent, and when first.
    sent: u32,
    since: Time,
    /// The Child SA that the sender of an earlier answer was asked for. The next answer may be from the same responder,
    /// which has its SPI already.
    pub(super) child: Option<Request>,
    /// The error sent by an unauthenticated source.
    doubt: Option<Cause>,
    /// Whether this is the second attempt, after [`start_over`](Self::start_over).
    is_second: bool,
}

/// A plausible answer to the first message, from a sender that is not authenticated yet.
pub(crate) struct Answer {
    spi: u64,
    suite: IkeSuite,
    public: Vec<u8>,
    nonce: Vec<u8>,
    nat: Nat,
    hashes: Vec<u16>,
    fragments: bool,
    childless: bool,
    /// The message.
    pub(super) received: Vec<u8>,
}

/// The state derived from one answer.
pub(super) struct Answered {
    pub(super) path: Path,
    pub(super) nat: Nat,
    pub(super) channel: Channel,
    pub(super) init: Arc<Init>,
    /// Whether the peer supports an IKE SA without a Child SA (RFC 6023).
    pub(super) childless: bool,
}

/// What follows an event.
pub(crate) enum Step {
    /// The set-up goes on.
    Wait(Box<Initiating>),
    /// There is an answer, by which keys are to be made.
    Answered(Box<Initiating>, Answer),
    /// The set-up has ended.
    End,
}

impl Initiating {
    /// Prepares the first message; `None` if the configuration has no usable proposal.
    pub(crate) fn begin(
        id: SessionId,
        wanted: Wanted,
        path: Path,
        context: &mut Context<'_>,
    ) -> Option<Box<Self>> {
        let group = *wanted.config.ike.iter().find_map(|offer| offer.groups.first())?;
        let mut this = Self::new(id, wanted, path, context)?;
        this.generate(group, context);
        Some(Box::new(this))
    }

    fn new(id: SessionId, wanted: Wanted, path: Path, context: &mut Context<'_>) -> Option<Self> {
        let proposals = IkeOffer::propose(&wanted.config.ike, ProposalSpi::None);
        if proposals.is_empty() {
            return None;
        }
        Some(Self {
            id,
            wanted,
            path,
            spi: context.new_ike_spi(id),
            nonce: context.bytes(),
            child: None,
            share: None,
            job: None,
            waiting: Waiting::default(),
            proposals,
            cookie: None,
            message: Vec::new(),
            retries: 0,
            retransmission: Retransmission::new(context.now, context.patience, Vec::new()),
            sent: 0,
            since: context.now,
            doubt: None,
            is_second: false,
        })
    }

    /// Starts the job that generates a share; the first message follows.
    fn generate(&mut self, group: Group, context: &mut Context<'_>) {
        let random = context.random.fork();
        self.job = Some(context.start(self.id, true, Work::Generate { group, random }));
    }

    /// Handles the output of a job.
    pub(crate) fn handle_finished(mut self, number: u64, output: Output, context: &mut Context<'_>) -> Step {
        if let (true, Output::Generated(share)) = (self.job == Some(number), output) {
            self.job = None;
            self.share = Some(Arc::new(share));
            self.send(context);
        }
        self.stay()
    }

    /// The messages received while a job was running.
    pub(crate) fn take_waiting(&mut self) -> Vec<(Path, Vec<u8>)> {
        self.waiting.take()
    }

    pub(crate) fn connection(&self) -> ConnectionId {
        self.wanted.connection
    }

    /// Adds one more child.
    pub(crate) fn want(&mut self, child: usize) {
        if !self.wanted.children.contains(&child) {
            self.wanted.children.push(child);
        }
    }

    fn send(&mut self, context: &mut Context<'_>) {
        let Some(share) = self.share.clone() else { return };
        let header = Header {
            initiator_spi: self.spi,
            responder_spi: 0,
            exchange: Exchange::IkeSaInit,
            from_initiator: true,
            is_response: false,
            message_id: 0,
        };
        let spis = Spis { initiator: self.spi, responder: 0 };
        let announced = Announced::new(self.path, spis, self.wanted.config.force_encapsulation);
        // Section 2.6: the cookie is added as the first payload, and nothing else changes.
        let cookie = self.cookie.iter().map(|cookie| Payload::Notify(Notify::new(notify::COOKIE, cookie)));
        let exchange = KeyExchange { group: share.group().id(), public: share.public() };
        let payloads: Vec<Payload<'_>> = cookie
            .chain([Payload::Sa(self.proposals.clone()), Payload::Ke(exchange), Payload::Nonce(&self.nonce)])
            .chain(announced.payloads())
            .collect();
        self.message = emit_clear(&header, &payloads);
        self.retransmission = Retransmission::new(context.now, context.patience, vec![self.message.clone()]);
        (self.sent, self.since) = (1, context.now);
        context.send(self.path, vec![self.message.clone()]);
    }

    /// Handles an answer. It is not authentic: an invalid one is ignored, as the genuine one may follow.
    pub(crate) fn handle(mut self, inbound: &Inbound<'_>, context: &mut Context<'_>) -> Step {
        if self.job.is_some() {
            self.waiting.push(inbound);
            return self.stay();
        }
        let Some(payloads) = answer(inbound) else { return self.stay() };
        if let Some(cookie) = payloads.notify(notify::COOKIE) {
            return self.retry_with_cookie(cookie.data, context);
        }
        if let Some(wanted) = payloads.notify(notify::INVALID_KE_PAYLOAD) {
            return self.retry_with_group(wanted.data, context);
        }
        if let Some(kind) = payloads.error() {
            // An error shows nothing about its sender but the address.
            if inbound.path.remote.ip() != self.path.remote.ip() {
                return self.stay();
            }
            return self.refused(kind, context);
        }
        match self.read(inbound, payloads) {
            Ok(answer) => Step::Answered(Box::new(self), answer),
            Err(Some(cause)) => self.doubt(cause, context),
            Err(None) => self.stay(),
        }
    }

    fn stay(self) -> Step {
        Step::Wait(Box::new(self))
    }

    fn retry_with_cookie(mut self, cookie: &[u8], context: &mut Context<'_>) -> Step {
        // The same cookie came a second time.
        if !(1..=64).contains(&cookie.len()) || self.cookie.as_deref() == Some(cookie) {
            return self.stay();
        }
        self.cookie = Some(cookie.to_vec());
        if !self.may_retry() {
            return self.ask_no_more(context);
        }
        self.send(context);
        self.stay()
    }

    /// Section 1.2: the responder asks for another group, which must be one of the offered groups.
    fn retry_with_group(mut self, wanted: &[u8], context: &mut Context<'_>) -> Step {
        let group = wanted.try_into().ok().and_then(|id| Group::from_id(u16::from_be_bytes(id)));
        let offered = |group: &Group| self.wanted.config.ike.iter().any(|offer| offer.groups.contains(group));
        let Some(group) = group.filter(offered).filter(|&group| Some(group) != self.group()) else {
            return self.stay();
        };
        if !self.may_retry() {
            return self.ask_no_more(context);
        }
        self.generate(group, context);
        self.stay()
    }

    /// The group of the share.
    fn group(&self) -> Option<Group> {
        self.share.as_deref().map(PrivateShare::group)
    }

    fn may_retry(&mut self) -> bool {
        self.retries += 1;
        self.retries <= INIT_RETRIES
    }

    fn ask_no_more(self, context: &mut Context<'_>) -> Step {
        self.doubt(Cause::Misbehaved("it keeps asking for new cookies or groups"), context)
    }

    fn refused(self, kind: u16, context: &mut Context<'_>) -> Step {
        let cause = match kind {
            notify::NO_PROPOSAL_CHOSEN => {
                let ours = describe_all(&self.proposals);
                Cause::NoProposal { of: "IKE".to_owned(), ours, theirs: Vec::new() }
            }
            kind => Cause::Notified(notify::name(kind)),
        };
        self.doubt(cause, context)
    }

    /// Notes an error from an unauthenticated source: the genuine answer may follow (section 2.21.1).
    pub(super) fn doubted(mut self, cause: Cause) -> Self {
        self.note_doubt(cause);
        self.retransmission.hurry(DOUBTED_TRANSMISSIONS);
        self
    }

    fn doubt(self, cause: Cause, context: &mut Context<'_>) -> Step {
        if !self.is_doubted() {
            let (connection, path, cause) = (self.wanted.connection, self.path, cause.clone());
            context.report(Event::Doubted { connection, path, cause });
        }
        self.doubted(cause).stay()
    }

    /// Whether an unauthenticated source has sent an error.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubt.is_some()
    }

    /// Notes why the set-up may have failed.
    pub(super) fn note_doubt(&mut self, cause: Cause) {
        self.doubt.get_or_insert(cause);
    }

    /// Reads an answer that is not an error. An unusable one gives a cause, unless it is malformed.
    pub(super) fn read(
        &self,
        inbound: &Inbound<'_>,
        payloads: &Payloads<'_>,
    ) -> Result<Answer, Option<Cause>> {
        let spi = inbound.message.header.responder_spi;
        let (Some(answer), Some(exchange), Some(nonce)) = (&payloads.sa, payloads.ke, payloads.nonce) else {
            return Err(None);
        };
        if spi == 0 {
            return Err(None);
        }
        let selected = IkeOffer::accept(&self.proposals, answer).map_err(|_| {
            let (ours, theirs) = (describe_all(&self.proposals), describe_all(answer));
            Cause::NoProposal { of: "IKE".to_owned(), ours, theirs }
        })?;
        let has_rounds = payloads.notify(notify::MULTIPLE_AUTH_SUPPORTED).is_some();
        if !has_rounds && !self.wanted.config.further.is_empty() {
            return Err(Some(Cause::MissingRound));
        }
        let Some(group) = self.group() else { return Err(None) };
        if exchange.group != group.id() || selected.suite.group != group {
            return Err(Some(Cause::Misbehaved("its key exchange is of another group")));
        }
        let spis = Spis { initiator: self.spi, responder: spi };
        Ok(Answer {
            spi,
            suite: selected.suite,
            public: exchange.public.to_vec(),
            nonce: nonce.to_vec(),
            nat: Nat::detect(self.path, spis, payloads, self.wanted.config.force_encapsulation),
            hashes: hashes(payloads),
            fragments: payloads.notify(notify::IKEV2_FRAGMENTATION_SUPPORTED).is_some(),
            childless: payloads.notify(notify::CHILDLESS_IKEV2_SUPPORTED).is_some(),
            received: inbound.bytes.to_vec(),
        })
    }

    /// The work of agreeing on a secret with the sender of an answer.
    pub(super) fn agree(&self, answer: &Answer) -> Option<Work> {
        let share = Arc::clone(self.share.as_ref()?);
        Some(Work::Agree { share, public: answer.public.clone() })
    }

    /// Derives keys with the sender of an answer from the secret that both share.
    pub(super) fn derive(&self, answer: Answer, secret: &SecretBytes) -> Answered {
        let Answer { spi, suite, nat, fragments, childless, .. } = answer;
        let spis = Spis { initiator: self.spi, responder: spi };
        let nonces = Nonces { initiator: &self.nonce, responder: &answer.nonce };
        let keys = IkeKeys::first(&suite, Role::Initiator, spis, nonces, secret);
        let ends = (keys.sealer, keys.opener);
        let channel = Channel::new(Role::Initiator, spis, ends, fragments, 1);
        let init = Arc::new(Init {
            role: Role::Initiator,
            sent: self.message.clone(),
            received: answer.received,
            nonce: self.nonce.to_vec(),
            peer_nonce: answer.nonce,
            suite,
            root: keys.root,
            proof: keys.proof,
            hashes: answer.hashes,
        });
        // Section 2.23: a side that detects a NAT moves to port 4500.
        let path = if nat.in_udp { self.path.floated() } else { self.path };
        Answered { path, nat, channel, init, childless }
    }

    /// The path of the first message.
    pub(super) fn path(&self) -> Path {
        self.path
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        Some(self.retransmission.next).filter(|_| self.job.is_none())
    }

    pub(crate) fn handle_timeout(mut self, context: &mut Context<'_>) -> Step {
        if self.job.is_some() {
            return self.stay();
        }
        match self.retransmission.handle_timeout(context.now) {
            None => self.stay(),
            Some(Overdue::Again(datagrams)) => {
                // An unusable answer is reported when the attempt ends.
                if self.doubt.is_none() {
                    self.report_unanswered(context);
                }
                self.sent += datagrams.len() as u32;
                context.send(self.path, datagrams);
                self.stay()
            }
            Some(Overdue::Dead) => self.give_up(context),
        }
    }

    fn report_unanswered(&self, context: &mut Context<'_>) {
        let (connection, path) = (self.wanted.connection, self.path);
        let since = context.now - self.since;
        context.report(Event::Unanswered { connection, path, asked: Asked::Init, sent: self.sent, since });
    }

    /// Whether the local proof may cover another message than the responder received. A responder that starts to
    /// require cookies while its first answer is in flight answers the retransmission with a cookie request.
    pub(super) fn may_have_crossed(&self) -> bool {
        self.cookie.is_some() && !self.is_second
    }

    /// Starts over with a new SPI.
    pub(super) fn start_over(mut self, context: &mut Context<'_>) -> Step {
        self.release(context);
        let group = self.wanted.config.ike.iter().find_map(|offer| offer.groups.first()).copied();
        match (Self::new(self.id, self.wanted, self.path, context), group) {
            (Some(this), Some(group)) => {
                let mut this = Self { is_second: true, ..this };
                this.generate(group, context);
                this.stay()
            }
            _ => Step::End,
        }
    }

    /// Ends the set-up: no valid answer arrived.
    pub(super) fn give_up(self, context: &mut Context<'_>) -> Step {
        let path = self.path;
        self.give_up_as(path, Cause::NoAnswer, context)
    }

    /// The same; `silence` is the cause to report if no error was received.
    pub(super) fn give_up_as(mut self, path: Path, silence: Cause, context: &mut Context<'_>) -> Step {
        self.release(context);
        match self.doubt {
            Some(cause) => context.give_up(self.wanted.connection, self.path, cause),
            None => context.fail(self.wanted.connection, path, silence),
        }
        Step::End
    }

    /// Releases the SPIs of a set-up that ends.
    pub(crate) fn release(&mut self, context: &mut Context<'_>) {
        context.release_ike_spi(self.spi);
        if let Some(child) = self.child.take() {
            context.release_child_spi(child.spi());
        }
    }
}
