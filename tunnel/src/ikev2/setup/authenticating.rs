//! IKE_AUTH has been sent.

use super::proof::{certificate_payloads, request, request_payload};
use super::{Inbound, Init, Wanted};
use crate::Time;
use crate::ikev2::action::{Cause, CloseReason, SessionId};
use crate::ikev2::channel::{Channel, Incoming, Overdue, Received};
use crate::ikev2::config::ConnectionId;
use crate::ikev2::context::Context;
use crate::ikev2::endpoint::Phase;
use crate::ikev2::identity;
use crate::ikev2::keys::Nonces;
use crate::ikev2::limits::FAREWELL_TRANSMISSIONS;
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{Authentication, Exchange, Identification, Notify, Payload, Payloads};
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::session::{Beginning, Request, Session};

/// See the module.
pub(crate) struct Authenticating {
    id: SessionId,
    wanted: Wanted,
    path: Path,
    nat: Nat,
    channel: Channel,
    init: Init,
    /// The Child SA that was asked for in the same message.
    child: Option<Request>,
    /// Whether nobody wants it any more.
    is_abandoned: bool,
}

impl Authenticating {
    pub(super) fn begin(
        id: SessionId,
        wanted: Wanted,
        (path, nat): (Path, Nat),
        channel: Channel,
        init: Init,
        childless: bool,
        context: &mut Context<'_>,
    ) -> Option<Phase> {
        // Without RFC 6023 the other side expects a Child SA.
        let first = match wanted.children.first() {
            None if !childless && !wanted.config.children.is_empty() => Some(0),
            first => first.copied(),
        };
        let child = first.and_then(|child| Request::first(id, &wanted.config, child, path, context));
        let mut this = Self { id, wanted, path, nat, channel, init, child, is_abandoned: false };
        match this.send(context) {
            Ok(()) => this.stay(),
            Err(cause) => this.give_up(cause, context),
        }
    }

    pub(crate) fn connection(&self) -> ConnectionId {
        self.wanted.connection
    }

    /// Wants one more child.
    pub(crate) fn want(&mut self, child: usize) {
        if !self.wanted.children.contains(&child) {
            self.wanted.children.push(child);
        }
    }

    fn send(&mut self, context: &mut Context<'_>) -> Result<(), Cause> {
        let config = &self.wanted.config;
        let local = identity::body(&config.local_identity);
        let remote = config.remote_identity.as_ref().map(identity::body);
        let proof = self.init.prove(config, &local)?;
        let request = request(config);
        let id = |body| Identification::parse(body).expect("a body of ours has its head");
        let mut payloads = vec![Payload::IdI(id(&local))];
        payloads.extend(certificate_payloads(config));
        payloads.extend(request.as_deref().map(request_payload));
        payloads.extend(remote.as_deref().map(|body| Payload::IdR(id(body))));
        payloads.push(Payload::Auth(Authentication { method: proof.method, data: &proof.data }));
        if self.wanted.initial_contact {
            payloads.push(Payload::Notify(Notify::new(notify::INITIAL_CONTACT, &[])));
        }
        if let Some(child) = &self.child {
            payloads.extend(child.payloads_of_first());
        }
        let datagrams = self.channel.request(
            (context.now, context.patience),
            Exchange::IkeAuth,
            &payloads,
            context.random,
        );
        context.send(self.path, datagrams);
        Ok(())
    }

    pub(crate) fn handle(mut self, inbound: &Inbound<'_>, context: &mut Context<'_>) -> Option<Phase> {
        // Requests of the other side wait until it has shown who it is.
        if !inbound.message.header.is_response {
            return self.stay();
        }
        match self.channel.receive(&inbound.message) {
            Received::Response(incoming) => self.handle_response(&incoming, context),
            _ => self.stay(),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "it stands where a next state is returned")]
    fn stay(self) -> Option<Phase> {
        Some(Phase::Authenticating(Box::new(self)))
    }

    fn handle_response(self, incoming: &Incoming, context: &mut Context<'_>) -> Option<Phase> {
        let Ok(payloads) = Payloads::parse(incoming.first, &incoming.chain) else {
            return self.fail(Cause::Misbehaved("its answer to IKE_AUTH is malformed"), true, context);
        };
        let (Some(id), Some(auth)) = (&payloads.id_r, &payloads.auth) else {
            let cause = match payloads.error() {
                Some(notify::AUTHENTICATION_FAILED) => Cause::Refused,
                Some(kind) => Cause::Notified(notify::name(kind)),
                None => Cause::Misbehaved("its answer to IKE_AUTH lacks identity or proof"),
            };
            let is_error = payloads.error().is_some();
            return self.fail(cause, !is_error, context);
        };
        match self.init.verify(&self.wanted.config, (id, auth), &payloads.certificates, context.wall) {
            Err(cause) => self.fail(cause, true, context),
            Ok(verified) => {
                let beginning = Beginning {
                    id: self.id,
                    connection: self.wanted.connection,
                    config: self.wanted.config,
                    path: self.path,
                    nat: self.nat,
                    channel: self.channel,
                    root: self.init.root,
                    suite: self.init.suite,
                };
                let mut session = Session::new(beginning, verified, context);
                let nonces = Nonces { initiator: &self.init.nonce, responder: &self.init.peer_nonce };
                session.finish_first(self.child, &payloads, &self.wanted.children, nonces, context);
                if self.is_abandoned {
                    session.close(CloseReason::Asked, context);
                }
                Some(Phase::Established(Box::new(session)))
            }
        }
    }

    /// Whoever answers has not shown who it is. It may believe that the SA is there: it is told that it is not
    /// (section 2.21.2).
    fn fail(mut self, cause: Cause, tell: bool, context: &mut Context<'_>) -> Option<Phase> {
        if tell {
            let farewell = [
                Payload::Notify(Notify::new(notify::AUTHENTICATION_FAILED, &[])),
                Payload::Delete(crate::ikev2::message::Delete::Ike),
            ];
            let datagrams = self.channel.request(
                (context.now, context.patience),
                Exchange::Informational,
                &farewell,
                context.random,
            );
            context.send(self.path, datagrams);
        }
        context.suspect(Some(self.wanted.connection), self.path, || cause);
        self.release(context);
        None
    }

    fn give_up(self, cause: Cause, context: &mut Context<'_>) -> Option<Phase> {
        context.fail(self.wanted.connection, self.path, cause);
        self.release(context);
        None
    }

    /// Ends it as soon as the other side has answered: it may have a session by then.
    pub(crate) fn abandon(&mut self) {
        self.is_abandoned = true;
        self.channel.hurry(FAREWELL_TRANSMISSIONS);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }

    /// Gives back the SPIs.
    fn release(self, context: &mut Context<'_>) {
        context.release_ike_spi(self.channel.local_spi());
        if let Some(child) = self.child {
            context.release_child_spi(child.spi());
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.channel.next_timeout()
    }

    pub(crate) fn handle_timeout(mut self, context: &mut Context<'_>) -> Option<Phase> {
        match self.channel.handle_timeout(context.now) {
            None => self.stay(),
            Some(Overdue::Again(datagrams)) => {
                context.send(self.path, datagrams);
                self.stay()
            }
            Some(Overdue::Dead) => self.give_up(Cause::NoAnswer, context),
        }
    }
}
