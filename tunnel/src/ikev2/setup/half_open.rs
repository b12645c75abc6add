//! IKE_SA_INIT has been answered; the initiator has yet to show who it is.

use super::proof::{Proof, certificate_payloads};
use super::responder::candidates;
use super::{Inbound, Init, Verified};
use crate::Time;
use crate::ikev2::action::{Cause, SessionId};
use crate::ikev2::channel::{Channel, Incoming, Received};
use crate::ikev2::config::{Connection, ConnectionId};
use crate::ikev2::context::Context;
use crate::ikev2::endpoint::Phase;
use crate::ikev2::identity::{self, Identity};
use crate::ikev2::keys::Nonces;
use crate::ikev2::limits::{HALF_OPEN_TIME, IKE_PORT, REFUSED_TIME, REPEATED_ANSWERS};
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{
    Authentication, Exchange, Identification, Notify, ParseError, Payload, Payloads,
};
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::session::{Beginning, Session};
use std::sync::Arc;

/// See the module.
pub(crate) struct HalfOpen {
    id: SessionId,
    path: Path,
    nat: Nat,
    channel: Channel,
    init: Init,
    /// Whether the initiator has returned a cookie.
    is_proven: bool,
    /// How often the first message was answered again.
    repeated: u32,
    /// Whether IKE_AUTH was refused: it is only there to say so again.
    is_refused: bool,
    expires: Time,
}

/// Why IKE_AUTH was refused: what the other side is told, and what our people are.
struct Refusal {
    notify: u16,
    data: Vec<u8>,
    connection: Option<ConnectionId>,
    /// Whether the other side has shown who it is all the same.
    authentic: bool,
    cause: Cause,
}

impl Refusal {
    fn new(notify: u16, connection: Option<ConnectionId>, cause: Cause) -> Self {
        Self { notify, data: Vec::new(), connection, authentic: false, cause }
    }

    fn malformed(error: ParseError) -> Self {
        let cause = Cause::Misbehaved("its IKE_AUTH is malformed");
        match error {
            ParseError::UnsupportedCritical(kind) => {
                let notify = notify::UNSUPPORTED_CRITICAL_PAYLOAD;
                Self { data: vec![kind], ..Self::new(notify, None, cause) }
            }
            _ => Self::new(notify::INVALID_SYNTAX, None, cause),
        }
    }
}

/// A connection whose other side has shown who it is.
struct Matched {
    connection: ConnectionId,
    config: Arc<Connection>,
    verified: Verified,
}

impl HalfOpen {
    pub(super) fn new(
        id: SessionId,
        path: Path,
        nat: Nat,
        channel: Channel,
        init: Init,
        is_proven: bool,
        now: Time,
    ) -> Self {
        let expires = now + HALF_OPEN_TIME;
        Self { id, path, nat, channel, init, is_proven, repeated: 0, is_refused: false, expires }
    }

    /// Whether the initiator has returned a cookie: it is where it says that it is.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven
    }

    pub(crate) fn spi(&self) -> u64 {
        self.channel.local_spi()
    }

    /// Bytes of fragments that are held.
    pub(crate) fn held(&self) -> usize {
        self.channel.held()
    }

    /// Forgets them.
    pub(crate) fn forget_fragments(&mut self) {
        self.channel.forget_fragments();
    }

    /// Where the initiator was.
    pub(crate) fn path(&self) -> Path {
        self.path
    }

    /// The SPI of the initiator.
    pub(crate) fn initiator_spi(&self) -> u64 {
        self.channel.spis().initiator
    }

    /// The first message came again: it gets the same answer.
    pub(crate) fn answer_again(&mut self, inbound: &Inbound<'_>, context: &mut Context<'_>) {
        if inbound.bytes == self.init.received && self.repeated < REPEATED_ANSWERS {
            self.repeated += 1;
            context.send(self.path, vec![self.init.sent.clone()]);
        }
    }

    pub(crate) fn expires(&self) -> Time {
        self.expires
    }

    pub(crate) fn handle(mut self, inbound: &Inbound<'_>, context: &mut Context<'_>) -> Option<Phase> {
        // CVE-2026-78135 and its like: before authentication there is one exchange and no other.
        if inbound.message.header.exchange != Exchange::IkeAuth {
            return Some(Phase::HalfOpen(Box::new(self)));
        }
        // Where nothing translates addresses, another one is that of somebody who sends on what was not meant for him.
        if !self.nat.remote && inbound.path.remote.ip() != self.path.remote.ip() {
            return Some(Phase::HalfOpen(Box::new(self)));
        }
        match self.channel.receive(&inbound.message) {
            Received::Request(incoming) if !self.is_refused => {
                return self.handle_auth(inbound, &incoming, context);
            }
            // Our refusal may have been lost.
            Received::Again(datagrams) => context.send(inbound.path, datagrams),
            _ => {}
        }
        Some(Phase::HalfOpen(Box::new(self)))
    }

    fn handle_auth(
        mut self,
        inbound: &Inbound<'_>,
        incoming: &Incoming,
        context: &mut Context<'_>,
    ) -> Option<Phase> {
        let payloads = match Payloads::parse(incoming.first, &incoming.chain) {
            Ok(payloads) => payloads,
            Err(error) => return self.refuse(inbound, incoming, Refusal::malformed(error), context),
        };
        // A NAT moves the initiator to port 4500: who stays does not believe in one.
        self.path = inbound.path;
        self.nat.in_udp &= inbound.path.local.port() != IKE_PORT;
        match self.authenticate(inbound, &payloads, context) {
            Ok((matched, proof)) => Some(self.establish(matched, &proof, incoming, &payloads, context)),
            Err(refusal) => self.refuse(inbound, incoming, *refusal, context),
        }
    }

    /// Finds the connection that both identities and the chosen algorithms belong to, checks the proof, and makes ours.
    fn authenticate(
        &self,
        inbound: &Inbound<'_>,
        payloads: &Payloads<'_>,
        context: &Context<'_>,
    ) -> Result<(Matched, Proof), Box<Refusal>> {
        let kind = notify::AUTHENTICATION_FAILED;
        let refuse = |connection, cause| Box::new(Refusal::new(kind, connection, cause));
        let (Some(id), Some(auth)) = (&payloads.id_i, &payloads.auth) else {
            return Err(refuse(None, Cause::Misbehaved("its IKE_AUTH lacks identity or proof")));
        };
        // A Child SA is asked for with all of these, or with none (RFC 6023).
        let parts = [payloads.sa.is_some(), payloads.ts_i.is_some(), payloads.ts_r.is_some()];
        if parts.contains(&true) && parts.contains(&false) {
            let cause = Cause::Misbehaved("its IKE_AUTH lacks algorithms or selectors");
            return Err(Box::new(Refusal::new(notify::INVALID_SYNTAX, None, cause)));
        }
        let Some(identity) = identity::read(id) else {
            return Err(refuse(None, Cause::Misbehaved("its identity is of a type that we do not know")));
        };
        let asked = payloads.id_r.as_ref().map(identity::read);
        let mut candidates = candidates(inbound, context);
        // Who is named by one is not let in by another that takes anyone.
        candidates.sort_by_key(|(_, config)| config.remote_identity.is_none());
        let found = candidates.into_iter().find(|(_, config)| self.fits(config, &identity, asked.as_ref()));
        let Some((connection, config)) = found else {
            return Err(refuse(None, Cause::NoSuchPeer { identity: identity.to_string() }));
        };
        let failed = |cause| refuse(Some(connection), cause);
        let shown = (id, auth);
        let verified =
            self.init.verify(&config, shown, &payloads.certificates, context.wall).map_err(failed)?;
        let proof = self.init.prove(&config, &identity::body(&config.local_identity), Some(&verified));
        let proof = proof.map_err(|cause| Box::new(Refusal { authentic: true, ..*failed(cause) }))?;
        Ok((Matched { connection, config, verified }, proof))
    }

    /// Whether a connection is for these identities, and its algorithms are the ones chosen: those of another one may
    /// have been, when the identities were not known.
    fn fits(&self, config: &Connection, identity: &Identity, asked: Option<&Option<Identity>>) -> bool {
        let is_theirs = config.remote_identity.as_ref().is_none_or(|expected| expected == identity);
        let is_ours = match asked {
            None => true,
            Some(None) => false,
            Some(Some(asked)) => *asked == config.local_identity,
        };
        is_theirs && is_ours && config.ike.iter().any(|offer| offer.allows(&self.init.suite))
    }

    fn establish(
        self,
        matched: Matched,
        proof: &Proof,
        incoming: &Incoming,
        payloads: &Payloads<'_>,
        context: &mut Context<'_>,
    ) -> Phase {
        let config = Arc::clone(&matched.config);
        let local = identity::body(&config.local_identity);
        let id = Identification::parse(&local).expect("a body of ours has its head");
        let mut list = vec![Payload::IdR(id)];
        list.extend(certificate_payloads(&config));
        list.push(Payload::Auth(Authentication { method: proof.method, data: &proof.data }));
        let beginning = Beginning {
            id: self.id,
            connection: matched.connection,
            config: matched.config,
            path: self.path,
            nat: self.nat,
            channel: self.channel,
            root: self.init.root,
            suite: self.init.suite,
        };
        let mut session = Session::new(beginning, matched.verified, context);
        if payloads.notify(notify::INITIAL_CONTACT).is_some() {
            session.set_initial_contact();
        }
        let nonces = Nonces { initiator: &self.init.peer_nonce, responder: &self.init.nonce };
        session.answer_first(incoming, payloads, list, nonces, context);
        Phase::Established(Box::new(session))
    }

    /// Section 2.21.2: the answer is protected, but says nothing that is not meant for strangers.
    fn refuse(
        mut self,
        inbound: &Inbound<'_>,
        incoming: &Incoming,
        refusal: Refusal,
        context: &mut Context<'_>,
    ) -> Option<Phase> {
        let notify = [Payload::Notify(Notify::new(refusal.notify, &refusal.data))];
        let datagrams = self.channel.respond(incoming, &notify, context.random);
        context.send(inbound.path, datagrams);
        match refusal.connection {
            Some(connection) if refusal.authentic => context.fail(connection, inbound.path, refusal.cause),
            connection => context.suspect(connection, inbound.path, || refusal.cause),
        }
        self.is_refused = true;
        self.expires = self.expires.min(context.now + REFUSED_TIME);
        Some(Phase::HalfOpen(Box::new(self)))
    }
}
