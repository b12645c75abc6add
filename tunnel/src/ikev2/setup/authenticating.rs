//! The initiator's state after it has sent IKE_AUTH.

use super::agreeing::Agreed;
use super::held::{self, Held};
use super::initiating::{self, Answer, Answered, Initiating, Wanted, answer};
use super::shown::Shown;
use crate::Time;
use crate::ikev2::auth::init::Init;
use crate::ikev2::auth::proof::{Proof, Verified, request, request_payload};
use crate::ikev2::auth::rounds::{Authenticated, Passed, Progress};
use crate::ikev2::cause::{AuthMessage, Cause};
use crate::ikev2::channel::{Channel, Incoming, Received};
use crate::ikev2::config::Connection;
use crate::ikev2::context::Context;
use crate::ikev2::event::{Asked, CloseReason, Event};
use crate::ikev2::identity;
use crate::ikev2::ids::ConnectionId;
use crate::ikev2::inbound::Inbound;
use crate::ikev2::job::{Output, Work};
use crate::ikev2::keys::{Nonces, Role};
use crate::ikev2::limits::{DOUBTED_TRANSMISSIONS, INIT_ANSWERS, TEARDOWN_TRANSMISSIONS};
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{Authentication, Delete, Exchange, Identification, Notify, Payload, Payloads};
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::retransmission::Overdue;
use crate::ikev2::session::{Beginning, Request, Session};
use std::collections::VecDeque;
use std::sync::Arc;

/// See the module documentation.
pub(crate) struct Authenticating {
    first: Initiating,
    attempt: Attempt,
    /// Other answers to the first message: each may be the genuine one (section 2.4), and is tried after the earlier
    /// ones have failed.
    others: VecDeque<Answer>,
    /// Whether the set-up was abandoned.
    is_abandoned: bool,
    /// The rounds of authentication that the peer has passed.
    passed: Passed,
    /// The number of a running job, and what follows it.
    job: Option<(u64, Stage)>,
    /// The answer, while the revocation status of its certificate is queried.
    held: Option<Held>,
    /// The time limit of the query, once there was one.
    held_until: Option<Time>,
}

/// The output that the state waits for.
enum Stage {
    /// Whether this answer is valid; with the [`generation`](held::generation) before the job.
    Verifying(Arc<Incoming>, u64),
    /// The local proof of the next round.
    Signing,
}

/// What follows an event.
pub(crate) enum Step {
    /// The set-up goes on.
    Wait(Box<Authenticating>),
    /// The next answer to the first message is tried.
    Next(Box<Initiating>, Answer, VecDeque<Answer>),
    /// The set-up starts over, or has ended.
    Over(initiating::Step),
    /// Both sides are authenticated.
    Established(Box<Session>),
}

/// An attempt to authenticate the sender of one answer.
struct Attempt {
    path: Path,
    nat: Nat,
    channel: Channel,
    init: Arc<Init>,
    /// The Child SA requested in the same message.
    child: Option<Request>,
    /// The size of the IKE_AUTH message, how often it was sent, and when first.
    message: AuthMessage,
    sent: u32,
    since: Time,
}

impl Authenticating {
    /// Sends IKE_AUTH to the sender of one answer.
    pub(crate) fn begin(agreed: Agreed, context: &mut Context<'_>) -> Box<Self> {
        let Agreed { mut first, answered, proof, others } = agreed;
        let mut attempt = Attempt::begin(&mut first, answered, &proof, context);
        if !others.is_empty() {
            attempt.channel.hurry(DOUBTED_TRANSMISSIONS);
        }
        let (is_abandoned, passed, job, held, held_until) = (false, Passed::default(), None, None, None);
        Box::new(Self { first, attempt, others, is_abandoned, passed, job, held, held_until })
    }

    pub(crate) fn connection(&self) -> ConnectionId {
        self.first.connection()
    }

    /// Adds one more child.
    pub(crate) fn want(&mut self, child: usize) {
        self.first.want(child);
    }

    /// The messages received while a job was running.
    pub(crate) fn take_waiting(&mut self) -> Vec<(Path, Vec<u8>)> {
        self.first.take_waiting()
    }

    pub(crate) fn handle(mut self, inbound: &Inbound<'_>, context: &mut Context<'_>) -> Step {
        if self.job.is_some() {
            self.first.waiting.push(inbound);
            return self.stay();
        }
        // Requests of the peer are ignored until it is authenticated; it retransmits them.
        if !inbound.message.header.is_response {
            return self.stay();
        }
        if let Some(payloads) = answer(inbound) {
            self.note_answer(inbound, payloads);
            return self.stay();
        }
        match self.attempt.channel.receive(&inbound.message) {
            Received::Response(incoming) => self.handle_response(incoming, context),
            _ => self.stay(),
        }
    }

    fn stay(self) -> Step {
        Step::Wait(Box::new(self))
    }

    /// Adds a further answer to the first message. Answers are tried one after another: the genuine peer may have
    /// answered twice, and would otherwise have two sessions.
    fn note_answer(&mut self, inbound: &Inbound<'_>, payloads: &Payloads<'_>) {
        let is_known = self.attempt.init.received == inbound.bytes
            || self.others.iter().any(|other| other.received == inbound.bytes);
        if self.others.len() < INIT_ANSWERS
            && !is_known
            && let Ok(answer) = self.first.read(inbound, payloads)
        {
            self.others.push_back(answer);
            self.attempt.channel.hurry(DOUBTED_TRANSMISSIONS);
        }
    }

    /// Ends the attempt with one answer: the next one is tried.
    fn go_on(mut self, was_refused: bool, context: &mut Context<'_>) -> Step {
        let (path, message) = (self.attempt.path, self.attempt.message);
        self.first.child = self.attempt.child;
        if let Some(answer) = self.others.pop_front().filter(|_| !self.is_abandoned) {
            return Step::Next(Box::new(self.first), answer, self.others);
        }
        if was_refused && !self.is_abandoned && self.first.may_have_crossed() {
            return Step::Over(self.first.start_over(context));
        }
        Step::Over(self.first.give_up_as(path, Cause::NoAuthAnswer(message), context))
    }

    /// Reports missing answers, unless an earlier error will be reported at the end.
    fn report_unanswered(&self, context: &mut Context<'_>) {
        if self.is_abandoned || self.first.is_doubted() || !self.others.is_empty() {
            return;
        }
        let Attempt { path, message, sent, since, .. } = self.attempt;
        let (connection, asked, since) = (self.connection(), Asked::Auth(message), context.now - since);
        context.report(Event::Unanswered { connection, path, asked, sent, since });
    }

    fn handle_response(self, incoming: Incoming, context: &mut Context<'_>) -> Step {
        let Ok(payloads) = Payloads::parse(incoming.first, &incoming.chain) else {
            return self.fail(Cause::Misbehaved("its answer to IKE_AUTH is malformed"), true, context);
        };
        if payloads.id_r.is_none() || payloads.auth.is_none() {
            let cause = match payloads.error() {
                Some(notify::AUTHENTICATION_FAILED) => Cause::Refused,
                Some(kind) => Cause::Notified(notify::name(kind)),
                None => Cause::Misbehaved("its answer to IKE_AUTH lacks identity or proof"),
            };
            let is_error = payloads.error().is_some();
            return self.fail(cause, !is_error, context);
        }
        self.verify(Arc::new(incoming), context)
    }

    /// Verifies the answer.
    fn verify(mut self, incoming: Arc<Incoming>, context: &mut Context<'_>) -> Step {
        let config = Arc::clone(&self.first.wanted.config);
        let (round, seen, wall) = (self.passed.next(), held::generation(&config), context.wall);
        let is_long = config.round(round).is_some_and(|round| round.authentication.takes_long());
        let init = Arc::clone(&self.attempt.init);
        let work = Work::Verify { init, config, round, incoming: Arc::clone(&incoming), wall };
        if is_long {
            let job = context.start(self.first.id, true, work);
            self.job = Some((job, Stage::Verifying(incoming, seen)));
            return self.stay();
        }
        self.decide(incoming, seen, work.run(), context)
    }

    /// Handles the output of a job.
    pub(crate) fn handle_finished(mut self, number: u64, output: Output, context: &mut Context<'_>) -> Step {
        match (self.job.take_if(|(job, _)| *job == number), output) {
            (Some((_, Stage::Verifying(incoming, seen))), output) => {
                self.decide(incoming, seen, output, context)
            }
            (Some((_, Stage::Signing)), Output::Signed(proof)) => self.send_round(proof, context),
            _ => self.stay(),
        }
    }

    fn decide(self, incoming: Arc<Incoming>, seen: u64, output: Output, context: &mut Context<'_>) -> Step {
        match output {
            Output::Verified(Err(cause)) if held::is_awaited(&cause) => {
                self.hold(incoming, seen, cause, context)
            }
            Output::Verified(verified) => self.believe(&incoming, verified, context),
            _ => self.stay(),
        }
    }

    /// Keeps the answer until the revocation status of its certificate is known.
    fn hold(mut self, incoming: Arc<Incoming>, seen: u64, cause: Cause, context: &mut Context<'_>) -> Step {
        let config = Arc::clone(&self.first.wanted.config);
        match Held::new(incoming, config, seen, self.held_until, context.now) {
            Ok(held) => {
                self.held_until = Some(held.until());
                self.held = Some(held);
                self.stay()
            }
            Err(_) => self.fail(cause, true, context),
        }
    }

    fn believe(
        mut self,
        incoming: &Incoming,
        verified: Result<Verified, Cause>,
        context: &mut Context<'_>,
    ) -> Step {
        let (verified, payloads) = match (verified, Payloads::parse(incoming.first, &incoming.chain)) {
            (Ok(verified), Ok(payloads)) => (verified, payloads),
            (Err(cause), _) => return self.fail(cause, true, context),
            (_, Err(_)) => {
                let cause = Cause::Misbehaved("its answer to IKE_AUTH is malformed");
                return self.fail(cause, true, context);
            }
        };
        let follows = payloads.notify(notify::ANOTHER_AUTH_FOLLOWS).is_some();
        match std::mem::take(&mut self.passed).add(verified, &self.first.wanted.config) {
            Some(Progress::Another(passed)) if follows => self.go_on_with(passed, context),
            Some(Progress::Another(_)) => self.fail(Cause::MissingRound, true, context),
            Some(Progress::Complete(peer)) if !follows => self.establish(peer, &payloads, context),
            Some(Progress::Complete(_)) | None => self.fail(Cause::ExtraRound, true, context),
        }
    }

    /// Computes the local proof of the next round.
    fn go_on_with(mut self, passed: Passed, context: &mut Context<'_>) -> Step {
        // The answer to the first message is the genuine one.
        self.others.clear();
        let round = passed.next();
        (self.passed, self.held_until) = (passed, None);
        let (init, config) = (Arc::clone(&self.attempt.init), Arc::clone(&self.first.wanted.config));
        let is_long = config.round(round).is_some_and(|round| round.authentication.takes_long());
        let work = Work::Sign { init, config, round, theirs: None, wall: context.wall };
        if is_long {
            self.job = Some((context.start(self.first.id, true, work), Stage::Signing));
            return self.stay();
        }
        match work.run() {
            Output::Signed(proof) => self.send_round(proof, context),
            _ => self.stay(),
        }
    }

    /// Sends IKE_AUTH of a further round.
    fn send_round(mut self, proof: Result<Proof, Cause>, context: &mut Context<'_>) -> Step {
        match proof {
            Ok(_) if self.is_abandoned => {
                self.attempt.disbelieve(context);
                self.go_on(false, context)
            }
            Ok(proof) => {
                self.attempt.send_round(&self.first.wanted.config, self.passed.next(), &proof, context);
                self.stay()
            }
            Err(cause) => self.fail(cause, true, context),
        }
    }

    fn establish(self, peer: Authenticated, payloads: &Payloads<'_>, context: &mut Context<'_>) -> Step {
        let Wanted { connection, config, children, .. } = self.first.wanted;
        let Attempt { path, nat, channel, init, child, .. } = self.attempt;
        let (id, root, suite) = (self.first.id, init.root.clone(), init.suite);
        let beginning = Beginning { id, connection, config, path, nat, channel, root, suite };
        let mut session = Session::new(beginning, peer, context);
        let nonces = Nonces { initiator: &init.nonce, responder: &init.peer_nonce };
        if self.is_abandoned {
            if let Some(child) = child {
                context.release_child_spi(child.spi());
            }
            session.close(CloseReason::Asked, context);
        } else {
            session.finish_first(child, payloads, &children, nonces, context);
        }
        Step::Established(Box::new(session))
    }

    /// Fails with an unauthenticated answer. Its sender may have created the SA: with `tell`, it is told that
    /// authentication has failed (section 2.21.2).
    fn fail(mut self, cause: Cause, tell: bool, context: &mut Context<'_>) -> Step {
        if tell {
            self.attempt.disbelieve(context);
        }
        let was_refused = matches!(cause, Cause::Refused);
        self.first.note_doubt(cause);
        self.go_on(was_refused, context)
    }

    /// Abandons the set-up as soon as the peer has answered: it may have created a session by then.
    pub(crate) fn abandon(&mut self) {
        self.is_abandoned = true;
        self.attempt.channel.hurry(TEARDOWN_TRANSMISSIONS);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        if self.job.is_some() {
            return None;
        }
        // No request is pending while an answer is held.
        self.held.as_ref().map(Held::next).or_else(|| self.attempt.channel.next_timeout())
    }

    pub(crate) fn handle_timeout(mut self, context: &mut Context<'_>) -> Step {
        if self.job.is_some() {
            return self.stay();
        }
        if let Some(mut held) = self.held.take() {
            if held.is_due(context.now) {
                return self.verify(held.release(), context);
            }
            self.held = Some(held);
            return self.stay();
        }
        match self.attempt.channel.handle_timeout(context.now) {
            None => self.stay(),
            Some(Overdue::Again(datagrams)) => {
                self.report_unanswered(context);
                self.attempt.sent += 1;
                context.send(self.attempt.path, datagrams);
                self.stay()
            }
            Some(Overdue::Dead) => self.go_on(false, context),
        }
    }
}

impl Attempt {
    fn begin(first: &mut Initiating, answered: Answered, proof: &Proof, context: &mut Context<'_>) -> Self {
        let Answered { path, nat, channel, init, childless } = answered;
        let wanted = &first.wanted;
        // A peer without RFC 6023 expects a Child SA.
        let child = match wanted.children.first() {
            None if !childless && !wanted.config.children.is_empty() => Some(0),
            first => first.copied(),
        };
        let (id, known) = (first.id, first.child.take());
        let owner = (id, wanted.connection);
        let new = |child: usize| Request::first(owner, &wanted.config, child, path, context);
        let child = known.or_else(|| child.and_then(new));
        let (message, since) = (AuthMessage::default(), context.now);
        let mut this = Self { path, nat, channel, init, child, message, sent: 1, since };
        this.send(wanted, proof, context);
        this
    }

    fn send(&mut self, wanted: &Wanted, proof: &Proof, context: &mut Context<'_>) {
        let config = &wanted.config;
        let remote = config.remote_identity.as_ref().map(identity::body);
        let request = request(config);
        let id = |body| Identification::parse(body).expect("a body of ours has its head");
        let shown = Shown::of(config, 0, Role::Initiator);
        let mut payloads = shown.identity();
        payloads.extend(request.as_deref().map(request_payload));
        payloads.extend(remote.as_deref().map(|body| Payload::IdR(id(body))));
        payloads.push(Payload::Auth(Authentication { method: proof.method, data: &proof.data }));
        if wanted.initial_contact {
            payloads.push(Payload::Notify(Notify::new(notify::INITIAL_CONTACT, &[])));
        }
        let child = self.child.take();
        payloads.extend(child.iter().flat_map(Request::payloads_of_first));
        if !config.further.is_empty() {
            payloads.push(Payload::Notify(Notify::new(notify::MULTIPLE_AUTH_SUPPORTED, &[])));
            payloads.push(Payload::Notify(Notify::new(notify::ANOTHER_AUTH_FOLLOWS, &[])));
        }
        self.request(&payloads, context);
        drop(payloads);
        self.child = child;
    }

    /// Sends IKE_AUTH of a further round (RFC 4739).
    fn send_round(&mut self, config: &Connection, round: usize, proof: &Proof, context: &mut Context<'_>) {
        let shown = Shown::of(config, round, Role::Initiator);
        let mut payloads = shown.with(proof);
        if config.round(round + 1).is_some() {
            payloads.push(Payload::Notify(Notify::new(notify::ANOTHER_AUTH_FOLLOWS, &[])));
        }
        (self.sent, self.since) = (1, context.now);
        self.request(&payloads, context);
    }

    fn request(&mut self, payloads: &[Payload<'_>], context: &mut Context<'_>) {
        let datagrams = self.channel.request(
            (context.now, context.patience),
            Exchange::IkeAuth,
            payloads,
            context.random,
        );
        let largest = datagrams.iter().map(Vec::len).max().unwrap_or(0);
        self.message = AuthMessage { datagrams: datagrams.len(), largest };
        context.send(self.path, datagrams);
    }

    /// Tells the peer, which may have created the SA, that authentication has failed (section 2.21.2).
    fn disbelieve(&mut self, context: &mut Context<'_>) {
        let teardown =
            [Payload::Notify(Notify::new(notify::AUTHENTICATION_FAILED, &[])), Payload::Delete(Delete::Ike)];
        let datagrams = self.channel.request(
            (context.now, context.patience),
            Exchange::Informational,
            &teardown,
            context.random,
        );
        context.send(self.path, datagrams);
    }
}
