//! Local requests for Child SAs (RFC 7296 sections 1.2, 1.3.1, 1.3.3, 2.8 and 2.25).
//!
//! When both sides rekey the same SA, or request the same new one, both requests are answered. The new SA of the
//! exchange with the lowest of the four nonces is deleted (section 2.8.1).

use super::child::{NewChild, halves};
use super::entry::{ChildStanding, Procedure};
use super::rival::lowest;
use super::translate::{Translated, translate};
use super::{Request, Session, Task};
use crate::esp::Mode;
use crate::ikev2::cause::Cause;
use crate::ikev2::channel::Incoming;
use crate::ikev2::context::Context;
use crate::ikev2::keys::{Nonces, Role, Root};
use crate::ikev2::limits::{CHILDREN, REKEY_RETRY, REPLACED_TIME, TEMPORARY_FAILURE_DELAY};
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{Exchange, Payloads, ProposalSpi};
use crate::ikev2::nat::Nat;
use crate::ikev2::proposal::{EspOffer, describe_all};
use crate::ikev2::selectors::is_within;
use crypto::SecretBytes;
use crypto::exchange::ExchangeError;
use std::sync::Arc;

impl Session {
    /// Requests a configured Child SA, unless it exists.
    pub(super) fn request_child(&mut self, child: usize, context: &mut Context<'_>) {
        let is_there =
            |entry: &super::ChildEntry| entry.child == child && entry.standing == ChildStanding::Live;
        if !self.children.iter().any(is_there) && self.children.len() < CHILDREN {
            self.request_new(child, None, context);
        }
    }

    /// Requests the rekeying of a Child SA, if it is still in use.
    pub(super) fn request_rekey_child(&mut self, spi: u32, context: &mut Context<'_>) {
        if let Some(entry) = self.child(spi).filter(|entry| entry.standing == ChildStanding::Live) {
            self.request_new(entry.child, Some(spi), context);
        }
    }

    fn request_new(&mut self, child: usize, replaces: Option<u32>, context: &mut Context<'_>) {
        let config = Arc::clone(&self.config);
        let owner = (self.id, self.connection);
        if let Some(request) = Request::later(owner, &config, child, self.authenticated, replaces, context) {
            self.start_create(Box::new(request), context);
        }
    }

    /// Sends a request, once its share is generated.
    fn start_create(&mut self, request: Box<Request>, context: &mut Context<'_>) {
        if let Some(group) = request.group {
            return self.generate(Procedure::CreateChild(request), group, context);
        }
        if let Some(spi) = self.current().map(super::IkeSa::spi) {
            self.send_create(spi, request, context);
        }
    }

    pub(super) fn send_create(&mut self, spi: u64, request: Box<Request>, context: &mut Context<'_>) {
        let path = self.path;
        let Some(ike) = self.ike_mut(spi) else { return };
        let exchange = Exchange::CreateChildSa;
        let datagrams = ike.channel.request(
            (context.now, context.patience),
            exchange,
            &request.payloads(),
            context.random,
        );
        ike.procedure = Some(Procedure::CreateChild(request));
        context.send(path, datagrams);
    }

    /// Handles the result of the Child SA in IKE_AUTH, and requests the other children.
    pub(crate) fn finish_first(
        &mut self,
        request: Option<Request>,
        payloads: &Payloads<'_>,
        wanted: &[usize],
        nonces: Nonces<'_>,
        context: &mut Context<'_>,
    ) {
        self.note_auth_lifetime(payloads, context);
        let first = request.as_ref().map(|request| request.child);
        let others = wanted.iter().copied().filter(|&child| Some(child) != first);
        self.queue.extend(others.map(Task::Child));
        if let Some(request) = request {
            if let Some(kind) = payloads.error() {
                self.child_refused(request, kind, context);
            } else {
                let root = self.ikes[0].root.clone();
                self.take_answer(&root, request, payloads, nonces, None, context);
            }
        }
        self.pump(context);
    }

    /// Handles the answer to CREATE_CHILD_SA.
    pub(super) fn finish_child(
        &mut self,
        ike: u64,
        mut request: Box<Request>,
        payloads: &Payloads<'_>,
        (incoming, secret): (&Incoming, Option<Result<SecretBytes, ExchangeError>>),
        context: &mut Context<'_>,
    ) {
        if let Some(wanted) = payloads.notify(notify::INVALID_KE_PAYLOAD) {
            let config = Arc::clone(&self.config);
            let is_live = request.replaces.is_none_or(|old| self.is_live(old));
            if is_live && request.change_group(&config, wanted.data) {
                return self.start_create(request, context);
            }
        }
        if let Some(kind) = payloads.error() {
            if kind == notify::NO_ADDITIONAL_SAS && self.live_children().is_empty() {
                // A session without a Child SA is useless.
                self.succession.missing = Some(request.child);
            }
            return self.child_refused(*request, kind, context);
        }
        let Some(root) = self.ike(ike).map(|ike| ike.root.clone()) else { return };
        let Some(peer_nonce) = payloads.nonce else {
            return self.reject(*request, Cause::Misbehaved("its answer lacks a nonce"), context);
        };
        let shared = match (request.share.clone(), secret) {
            (None, _) => None,
            (Some(_), Some(Ok(secret))) => Some(secret),
            (Some(_), Some(Err(_))) => {
                let why = "its public value is not one of the group";
                return self.reject(*request, Cause::Misbehaved(why), context);
            }
            (Some(share), None) => {
                let Some(exchange) = payloads.ke.filter(|exchange| exchange.group == share.group().id())
                else {
                    let why = "its answer lacks a key exchange of our group";
                    return self.reject(*request, Cause::Misbehaved(why), context);
                };
                let (procedure, public) = (Procedure::CreateChild(request), exchange.public);
                return self.agree_with(ike, procedure, share, (incoming, public), context);
            }
        };
        let nonce = request.nonce;
        let nonces = Nonces { initiator: &nonce, responder: peer_nonce };
        self.take_answer(&root, *request, payloads, nonces, shared.as_ref(), context);
    }

    pub(super) fn is_live(&self, spi: u32) -> bool {
        self.child(spi).is_some_and(|child| child.standing == ChildStanding::Live)
    }

    fn take_answer(
        &mut self,
        root: &Root,
        request: Request,
        payloads: &Payloads<'_>,
        nonces: Nonces<'_>,
        shared: Option<&SecretBytes>,
        context: &mut Context<'_>,
    ) {
        match accept(
            root,
            (&request, self.nat),
            &self.config.children[request.child].name,
            payloads,
            nonces,
            shared,
        ) {
            Err(cause) => self.reject(request, cause, context),
            Ok(new) if request.gone.contains(&new.outbound.spi) => {
                context.release_child_spi(request.spi);
                self.restart_child(request.child, context.now, context);
            }
            Ok(new) => match self.contest(new.child, [&new.local, &new.remote], context) {
                Some(cause) => self.reject(request, cause, context),
                None => self.settle(request, new, &lowest(nonces.initiator, nonces.responder), context),
            },
        }
    }

    /// Installs the new Child SA and deletes the one that it replaces.
    fn settle(&mut self, request: Request, new: NewChild, ours: &[u8], context: &mut Context<'_>) {
        match request.rival {
            Some(rival) if ours < &rival.lowest[..] => {
                // The local request lost: its SA is deleted. The peer deletes the SA that both have replaced.
                self.queue.push_front(Task::Disown(request.spi));
            }
            rival => {
                self.install(new, false, context);
                if let Some(rival) = rival.and_then(|rival| self.child_mut(rival.spi)) {
                    rival.standing = ChildStanding::Replaced(request.spi);
                    rival.rekey_at = None;
                    rival.deadline = Some(context.now + REPLACED_TIME);
                }
                if let Some(old) = request.replaces.filter(|old| self.child(*old).is_some()) {
                    self.queue.push_front(Task::DeleteChild(old));
                }
            }
        }
    }

    /// Rejects the answer: the peer has created a Child SA that does not match the request, and it is deleted.
    fn reject(&mut self, request: Request, cause: Cause, context: &mut Context<'_>) {
        self.report_failure(cause, context);
        self.refused.insert(request.child, context.now);
        self.queue.push_front(Task::Disown(request.spi));
        if let Some(old) = request.replaces.filter(|_| !request.has_rival()) {
            let at = context.after_about(REKEY_RETRY);
            self.delay(at, Task::RekeyChild(old));
        }
    }

    fn child_refused(&mut self, request: Request, kind: u16, context: &mut Context<'_>) {
        context.release_child_spi(request.spi);
        // The peer has replaced the SA meanwhile, so no local rekeying is needed.
        if request.has_rival() {
            return;
        }
        let again = request.replaces.map_or(Task::Child(request.child), Task::RekeyChild);
        match kind {
            notify::TEMPORARY_FAILURE => {
                let at = context.after_about(TEMPORARY_FAILURE_DELAY);
                self.delay(at, again);
            }
            // Section 2.25.1: the peer has lost the SA; a new one is requested.
            notify::CHILD_SA_NOT_FOUND => {
                if let Some(old) = request.replaces.filter(|&old| self.is_live(old)) {
                    self.remove_child(old, context);
                    self.enqueue(Task::Child(request.child));
                }
            }
            notify::NO_ADDITIONAL_SAS if request.replaces.is_some() || self.succession.missing.is_some() => {
                self.refused.insert(request.child, context.now);
                self.note_final(context);
            }
            kind => {
                self.refused.insert(request.child, context.now);
                let cause = self.why_refused(&request, kind);
                self.report_failure(cause, context);
                if request.replaces.is_some() {
                    let at = context.after_about(REKEY_RETRY);
                    self.delay(at, again);
                }
            }
        }
    }

    fn why_refused(&self, request: &Request, kind: u16) -> Cause {
        match kind {
            notify::NO_PROPOSAL_CHOSEN => Cause::NoProposal {
                of: self.config.children[request.child].name.clone(),
                ours: describe_all(&request.proposals),
                theirs: Vec::new(),
            },
            notify::TS_UNACCEPTABLE => Cause::NoSelectors {
                ours: [request.local.clone(), request.remote.clone()],
                theirs: [Vec::new(), Vec::new()],
            },
            kind => Cause::Notified(notify::name(kind)),
        }
    }
}

/// Checks that an answer matches the request, and derives the keys.
fn accept(
    root: &Root,
    (request, nat): (&Request, Nat),
    name: &str,
    payloads: &Payloads<'_>,
    nonces: Nonces<'_>,
    shared: Option<&SecretBytes>,
) -> Result<NewChild, Cause> {
    let (Some(answer), Some(ts_i), Some(ts_r)) = (&payloads.sa, &payloads.ts_i, &payloads.ts_r) else {
        return Err(Cause::Misbehaved("its answer lacks algorithms or selectors"));
    };
    let selected = EspOffer::accept(&request.proposals, answer).map_err(|_| Cause::NoProposal {
        of: name.to_owned(),
        ours: describe_all(&request.proposals),
        theirs: describe_all(answer),
    })?;
    if selected.suite.group != request.group {
        return Err(Cause::Misbehaved("its key exchange is of another group"));
    }
    let is_transport = payloads.notify(notify::USE_TRANSPORT_MODE).is_some();
    if is_transport != (request.mode == Mode::Transport) {
        return Err(Cause::Mode);
    }
    let nat = if is_transport { nat } else { Nat::default() };
    let Translated { local, remote, renamed } = translate(nat, request.path, ts_i, ts_r);
    if !is_within(&local, &request.local) || !is_within(&remote, &request.remote) {
        return Err(Cause::NoSelectors {
            ours: [request.local.clone(), request.remote.clone()],
            theirs: [local, remote],
        });
    }
    let ProposalSpi::Child(outbound) = selected.proposal.spi else {
        return Err(Cause::Misbehaved("its answer lacks an SPI"));
    };
    let suite = selected.suite;
    let spis = (request.spi, outbound);
    let [inbound, outbound] = halves(root, &suite, Role::Initiator, spis, nonces, shared);
    let (child, mode) = (request.child, request.mode);
    Ok(NewChild { child, suite, mode, outbound, inbound, local, remote, renamed })
}
