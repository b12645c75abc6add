//! The responder's state after it has answered IKE_SA_INIT: the initiator is not authenticated yet.

mod find;
mod rounds;

use super::configuration::asks_address;
use super::held::{self, Held};
use super::shown::Shown;
use crate::Time;
use crate::ikev2::auth::init::Init;
use crate::ikev2::auth::proof::{Proof, Verified};
use crate::ikev2::auth::rival::Rival;
use crate::ikev2::auth::rounds::{Authenticated, Passed, Progress};
use crate::ikev2::cause::Cause;
use crate::ikev2::channel::{Channel, Incoming, Received};
use crate::ikev2::config::Connection;
use crate::ikev2::context::Context;
use crate::ikev2::event::Event;
use crate::ikev2::half_open_table::HalfOpenEntry;
use crate::ikev2::ids::ConnectionId;
use crate::ikev2::ids::SessionId;
use crate::ikev2::inbound::Inbound;
use crate::ikev2::job::{Output, Work};
use crate::ikev2::keys::{Nonces, Role};
use crate::ikev2::limits::{AUTH_TIME, HALF_OPEN_TIME, IKE_PORT, REFUSED_TIME, REPEATED_ANSWERS};
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{Exchange, Notify, ParseError, Payload, Payloads};
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::session::{Beginning, Session};
use std::sync::Arc;

/// See the module documentation.
pub(crate) struct HalfOpen {
    id: SessionId,
    path: Path,
    nat: Nat,
    channel: Channel,
    init: Arc<Init>,
    entry: HalfOpenEntry,
    /// How often the first message was answered again.
    repeated: u32,
    /// Whether IKE_AUTH was refused: the state is only kept to repeat the refusal.
    is_refused: bool,
    /// The rounds of authentication that were answered, if another one follows.
    begun: Option<Begun>,
    /// IKE_AUTH, while a job of it is running, and the number of the job.
    job: Option<(u64, Stage)>,
    /// IKE_AUTH, while the revocation status of its certificate is queried.
    held: Option<Held>,
    /// The time limit of the query, once there was one.
    held_until: Option<Time>,
    /// When a missing IKE_AUTH is reported, until one arrives.
    overdue: Option<Time>,
    expires: Time,
}

/// A refusal of IKE_AUTH: the notification for the peer, and the cause to report.
struct Refusal {
    notify: u16,
    data: Vec<u8>,
    connection: Option<ConnectionId>,
    /// Whether the peer is authenticated nevertheless.
    authentic: bool,
    cause: Cause,
}

impl Refusal {
    fn new(notify: u16, connection: Option<ConnectionId>, cause: Cause) -> Self {
        Self { notify, data: Vec::new(), connection, authentic: false, cause }
    }

    fn malformed(error: ParseError) -> Box<Self> {
        let cause = Cause::Misbehaved("its IKE_AUTH is malformed");
        Box::new(match error {
            ParseError::UnsupportedCritical(kind) => {
                let notify = notify::UNSUPPORTED_CRITICAL_PAYLOAD;
                Self { data: vec![kind], ..Self::new(notify, None, cause) }
            }
            _ => Self::new(notify::INVALID_SYNTAX, None, cause),
        })
    }
}

/// IKE_AUTH, and the connection that its identities match.
struct Request {
    incoming: Arc<Incoming>,
    connection: ConnectionId,
    config: Arc<Connection>,
}

/// The rounds of authentication that were answered, of which another one follows (RFC 4739).
struct Begun {
    /// The first of them: it has the request for a Child SA, and the connection that its identities match.
    first: Request,
    passed: Passed,
}

/// The output that IKE_AUTH waits for.
enum Stage {
    /// Whether the proof of the peer is valid; with the [`generation`](held::generation) before the job.
    Verifying(Request, u64),
    /// Whether the authenticated peer belongs to one of these connections.
    Comparing(Request, Verified, Arc<[Rival]>),
    /// The local proof for the authenticated peer.
    Signing(Request, Verified),
}

/// What follows an event.
pub(crate) enum Step {
    /// The SA stays half open.
    Wait(Box<HalfOpen>),
    /// Both sides are authenticated.
    Established(Box<Session>),
    /// The SA has ended.
    End,
}

impl Request {
    /// A refusal of the authenticated peer.
    fn refusal(&self, cause: Cause) -> Refusal {
        let refusal = Refusal::new(notify::AUTHENTICATION_FAILED, Some(self.connection), cause);
        Refusal { authentic: true, ..refusal }
    }

    /// Whether the connection is still configured as it was.
    fn is_current(&self, context: &Context<'_>) -> bool {
        context.connections.get(self.connection).is_some_and(|config| Arc::ptr_eq(config, &self.config))
    }
}

impl HalfOpen {
    pub(super) fn new(
        id: SessionId,
        path: Path,
        nat: Nat,
        channel: Channel,
        init: Init,
        entry: HalfOpenEntry,
        now: Time,
    ) -> Self {
        let (overdue, expires) = (Some(now + AUTH_TIME), now + HALF_OPEN_TIME);
        let (is_refused, job, held, held_until) = (false, None, None, None);
        let (init, repeated) = (Arc::new(init), 0);
        Self {
            id,
            path,
            nat,
            channel,
            init,
            entry,
            repeated,
            is_refused,
            begun: None,
            job,
            held,
            held_until,
            overdue,
            expires,
        }
    }

    /// The half-open entry of the initiator.
    pub(crate) fn entry(&self) -> HalfOpenEntry {
        let kept = self.begun.as_ref().map_or(0, |begun| begun.first.incoming.chain.len());
        let is_waiting = self.held_until.is_some() && !self.is_refused;
        let entry = self.entry.holding(self.channel.held(), kept, is_waiting);
        if self.job.is_some() { entry.worked_on() } else { entry }
    }

    pub(crate) fn spi(&self) -> u64 {
        self.channel.local_spi()
    }

    /// Drops the fragments.
    pub(crate) fn forget_fragments(&mut self) {
        self.channel.forget_fragments();
    }

    /// Repeats the answer to a repeated first message.
    pub(crate) fn answer_again(&mut self, inbound: &Inbound<'_>, context: &mut Context<'_>) {
        let is_same = inbound.bytes == self.init.received && self.job.is_none();
        if is_same && self.repeated < REPEATED_ANSWERS {
            self.repeated += 1;
            context.send(self.path, vec![self.init.sent.clone()]);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let next = self.held.as_ref().map_or(self.expires, Held::next);
        Some(self.overdue.map_or(next, |overdue| overdue.min(next))).filter(|_| self.job.is_none())
    }

    fn stay(self) -> Step {
        Step::Wait(Box::new(self))
    }

    pub(crate) fn handle_timeout(mut self, context: &mut Context<'_>) -> Step {
        if self.job.is_some() {
            return self.stay();
        }
        if self.overdue.take_if(|at| *at <= context.now).is_some() {
            context.report(Event::Unfinished { path: self.path });
        }
        match self.held.take() {
            Some(mut held) => {
                if held.is_due(context.now) {
                    return self.verify(held.release(), context);
                }
                self.held = Some(held);
            }
            None if self.expires <= context.now => {
                self.report_missing_round(context);
                context.release_ike_spi(self.spi());
                return Step::End;
            }
            None => {}
        }
        self.stay()
    }

    pub(crate) fn handle(mut self, inbound: &Inbound<'_>, context: &mut Context<'_>) -> Step {
        // An unauthenticated initiator retransmits: messages that arrive during a job are dropped.
        if self.job.is_some() {
            return self.stay();
        }
        // As CVE-2026-78135 shows: before authentication, no exchange but IKE_AUTH is accepted.
        if inbound.message.header.exchange != Exchange::IkeAuth {
            return self.stay();
        }
        // The answer to the first message has shown that the initiator is at this address. A copy of IKE_AUTH can come
        // from any other address. A detected NAT is no exception, as a peer that only wants ESP in UDP pretends one. A
        // NAT maps both ports of a host to the same address (RFC 4787 section 4.1).
        if inbound.path.remote.ip() != self.path.remote.ip() {
            let cause = Cause::Moved { from: self.path.remote, to: inbound.path.remote };
            context.suspect(None, self.path, || cause);
            return self.stay();
        }
        match self.channel.receive(&inbound.message) {
            // A message that is held already is not held again.
            Received::Request(incoming) if !self.is_refused && self.held.is_none() => {
                return self.handle_auth(inbound, incoming, context);
            }
            // The refusal may have been lost.
            Received::Again(datagrams) => context.send(self.path, datagrams),
            _ => {}
        }
        self.stay()
    }

    fn handle_auth(mut self, inbound: &Inbound<'_>, incoming: Incoming, context: &mut Context<'_>) -> Step {
        // An initiator that detects a NAT moves to port 4500; one that stays on port 500 has detected none.
        self.overdue = None;
        self.path = inbound.path;
        self.nat.in_udp &= inbound.path.local.port() != IKE_PORT;
        self.verify(Arc::new(incoming), context)
    }

    /// Starts a job; short work is done at once.
    fn start(mut self, is_long: bool, work: Work, stage: Stage, context: &mut Context<'_>) -> Step {
        if !is_long {
            return self.go_on(stage, work.run(), context);
        }
        self.job = Some((context.start(self.id, self.entry.is_proven(), work), stage));
        self.stay()
    }

    /// Handles the output of a job.
    pub(crate) fn handle_finished(mut self, number: u64, output: Output, context: &mut Context<'_>) -> Step {
        match self.job.take_if(|(job, _)| *job == number) {
            Some((_, stage)) => self.go_on(stage, output, context),
            None => self.stay(),
        }
    }

    fn go_on(self, stage: Stage, output: Output, context: &mut Context<'_>) -> Step {
        let (Stage::Verifying(request, _) | Stage::Comparing(request, ..) | Stage::Signing(request, _)) =
            &stage;
        // The configuration may have changed meanwhile.
        if !request.is_current(context) {
            let incoming = Arc::clone(&request.incoming);
            return self.verify(incoming, context);
        }
        match (stage, output) {
            (Stage::Verifying(request, _), Output::Verified(Ok(verified))) => {
                match self.check_rounds(&request) {
                    Ok(()) => self.compare(request, verified, context),
                    Err(refusal) => self.refuse(&request.incoming, *refusal, context),
                }
            }
            (Stage::Verifying(request, seen), Output::Verified(Err(cause))) => {
                let refusal = Refusal::new(notify::AUTHENTICATION_FAILED, Some(request.connection), cause);
                self.doubt(request, seen, refusal, context)
            }
            (Stage::Comparing(request, verified, rivals), Output::Compared(found)) => {
                self.decide(request, verified, &rivals, found, context)
            }
            (Stage::Signing(request, verified), Output::Signed(Ok(proof))) => {
                self.accept(request, verified, &proof, context)
            }
            (Stage::Signing(request, _), Output::Signed(Err(cause))) => {
                let refusal = Refusal::new(notify::AUTHENTICATION_FAILED, Some(request.connection), cause);
                self.refuse(&request.incoming, Refusal { authentic: true, ..refusal }, context)
            }
            _ => self.stay(),
        }
    }

    /// Verifies IKE_AUTH under the connection that its identities match, or that of the rounds before.
    fn verify(self, incoming: Arc<Incoming>, context: &mut Context<'_>) -> Step {
        let found = match &self.begun {
            None => self.find(&incoming, context),
            Some(begun) => Self::find_further(begun, &incoming, context),
        };
        let (connection, config) = match found {
            Ok(found) => found,
            Err(refusal) => return self.refuse(&incoming, *refusal, context),
        };
        let (round, seen) = (self.round(), held::generation(&config));
        let is_long = config.round(round).is_some_and(|round| round.authentication.takes_long());
        let (init, wall) = (Arc::clone(&self.init), context.wall);
        let (of_job, shown) = (Arc::clone(&config), Arc::clone(&incoming));
        let work = Work::Verify { init, config: of_job, round, incoming: shown, wall };
        let stage = Stage::Verifying(Request { incoming, connection, config }, seen);
        self.start(is_long, work, stage, context)
    }

    /// Handles an invalid proof, or one whose revocation status is not known yet.
    fn doubt(self, request: Request, seen: u64, refusal: Refusal, context: &mut Context<'_>) -> Step {
        if held::is_awaited(&refusal.cause) {
            return self.hold(request, seen, refusal, context);
        }
        self.refuse(&request.incoming, refusal, context)
    }

    /// Delays the answer until the revocation status of the certificate is known.
    fn hold(mut self, request: Request, seen: u64, refusal: Refusal, context: &mut Context<'_>) -> Step {
        let is_new = self.held_until.is_none();
        if is_new && !context.may_hold {
            // The initiator sends its message again, and there may be a place then.
            return self.stay();
        }
        match Held::new(request.incoming, request.config, seen, self.held_until, context.now) {
            Ok(held) => {
                self.held_until = Some(held.until());
                self.held = Some(held);
                self.stay()
            }
            Err(incoming) => self.refuse(&incoming, refusal, context),
        }
    }

    /// Checks whether the peer belongs to another connection.
    fn compare(self, request: Request, verified: Verified, context: &mut Context<'_>) -> Step {
        let rivals = Rival::of(&request.config, self.path, verified.names(), context.connections);
        let is_long = rivals.iter().any(Rival::takes_long);
        let rivals: Arc<[Rival]> = rivals.into();
        let (config, incoming) = (Arc::clone(&request.config), Arc::clone(&request.incoming));
        let claimed = verified.identity().clone();
        let work =
            Work::Compare { rivals: Arc::clone(&rivals), config, claimed, incoming, wall: context.wall };
        self.start(is_long, work, Stage::Comparing(request, verified, rivals), context)
    }

    /// Signs for the peer, unless it belongs to another connection.
    fn decide(
        self,
        request: Request,
        verified: Verified,
        rivals: &[Rival],
        found: Option<usize>,
        context: &mut Context<'_>,
    ) -> Step {
        // The other connections may have changed meanwhile.
        if Rival::of(&request.config, self.path, verified.names(), context.connections) != rivals {
            return self.compare(request, verified, context);
        }
        if let Some(rival) = found.and_then(|found| rivals.get(found)) {
            let (connection, cause) = rival.refusal(verified.identity());
            let refusal = Refusal::new(notify::AUTHENTICATION_FAILED, Some(connection), cause);
            return self.refuse(&request.incoming, Refusal { authentic: true, ..refusal }, context);
        }
        let (init, config, theirs) = (Arc::clone(&self.init), Arc::clone(&request.config), verified.scheme());
        let round = self.round();
        let is_long = config.round(round).is_some_and(|round| round.authentication.takes_long());
        let work = Work::Sign { init, config, round, theirs, wall: context.wall };
        self.start(is_long, work, Stage::Signing(request, verified), context)
    }

    /// Answers a round: with a session after the last one.
    fn accept(
        mut self,
        request: Request,
        verified: Verified,
        proof: &Proof,
        context: &mut Context<'_>,
    ) -> Step {
        let (first, passed) = match self.begun.take() {
            Some(Begun { first, passed }) => (Some(first), passed),
            None => (None, Passed::default()),
        };
        let round = passed.next();
        match passed.add(verified, &request.config) {
            Some(Progress::Another(passed)) => {
                let current = Arc::clone(&request.incoming);
                let begun = Begun { first: first.unwrap_or(request), passed };
                self.answer_round(&current, begun, (round, proof), context)
            }
            Some(Progress::Complete(peer)) => {
                let opening = Arc::clone(&first.as_ref().unwrap_or(&request).incoming);
                match Payloads::parse(opening.first, &opening.chain) {
                    Ok(payloads) => self.establish(&request, peer, (round, proof), &payloads, context),
                    Err(error) => self.refuse(&request.incoming, *Refusal::malformed(error), context),
                }
            }
            None => self.refuse(&request.incoming, request.refusal(Cause::ExtraRound), context),
        }
    }

    /// Answers the last round; `payloads` are those of the first, which has the request for a Child SA.
    fn establish(
        self,
        request: &Request,
        peer: Authenticated,
        (round, proof): (usize, &Proof),
        payloads: &Payloads<'_>,
        context: &mut Context<'_>,
    ) -> Step {
        let (config, path) = (Arc::clone(&request.config), self.path);
        let connection = match self.serve(request, &peer, context) {
            Ok(connection) => connection,
            Err(refusal) => return self.refuse(&request.incoming, *refusal, context),
        };
        let shown = Shown::of(&config, round, Role::Responder);
        let list = shown.with(proof);
        let beginning = Beginning {
            id: self.id,
            connection,
            config: Arc::clone(&config),
            path: self.path,
            nat: self.nat,
            channel: self.channel,
            root: self.init.root.clone(),
            suite: self.init.suite,
        };
        let mut session = Session::new(beginning, peer, context);
        if payloads.notify(notify::INITIAL_CONTACT).is_some() {
            session.set_initial_contact();
        }
        let lifetime = session.auth_lifetime();
        let lifetime = lifetime.as_ref().map(|it| Payload::Notify(Notify::new(notify::AUTH_LIFETIME, it)));
        let list: Vec<Payload<'_>> = list.into_iter().chain(lifetime).collect();
        let nonces = Nonces { initiator: &self.init.peer_nonce, responder: &self.init.nonce };
        session.answer_first(&request.incoming, payloads, list, nonces, context);
        if payloads.configuration.is_some_and(asks_address) {
            // The peer may go on with its own address; if it does not, this is the reason.
            context.fail_sometimes(connection, path, Cause::AsksAddress);
        }
        Step::Established(Box::new(session))
    }

    /// Refuses IKE_AUTH (section 2.21.2): the answer is encrypted, but contains nothing that an unauthenticated
    /// source must not learn.
    fn refuse(mut self, incoming: &Incoming, refusal: Refusal, context: &mut Context<'_>) -> Step {
        let notify = [Payload::Notify(Notify::new(refusal.notify, &refusal.data))];
        let datagrams = self.channel.respond(incoming, &notify, context.random);
        context.send(self.path, datagrams);
        match refusal.connection {
            Some(connection) if refusal.authentic => {
                context.fail_sometimes(connection, self.path, refusal.cause);
            }
            connection => context.suspect(connection, self.path, || refusal.cause),
        }
        self.is_refused = true;
        self.expires = self.expires.min(context.now + REFUSED_TIME);
        self.stay()
    }
}
