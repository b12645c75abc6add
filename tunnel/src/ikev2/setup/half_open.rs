//! IKE_SA_INIT has been answered; the initiator has yet to show who it is.

use super::proof::{self, Proof, certificate_payloads};
use super::responder::candidates;
use super::{Inbound, Init, Verified};
use crate::Time;
use crate::ikev2::action::{Cause, SessionId};
use crate::ikev2::channel::{Channel, Incoming, Received};
use crate::ikev2::config::{Connection, ConnectionId};
use crate::ikev2::context::Context;
use crate::ikev2::endpoint::{Guest, Phase};
use crate::ikev2::identity::{self, Identity};
use crate::ikev2::job::Whose;
use crate::ikev2::keys::Nonces;
use crate::ikev2::limits::{HALF_OPEN_TIME, IKE_PORT, REFUSED_TIME, REPEATED_ANSWERS};
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{
    Authentication, Exchange, Identification, Notify, ParseError, Payload, Payloads, ProposalSpi,
};
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::proposal::{IkeOffer, describe_all};
use crate::ikev2::session::{Beginning, Session};
use std::sync::Arc;
use std::time::Duration;

/// See the module.
pub(crate) struct HalfOpen {
    id: SessionId,
    path: Path,
    nat: Nat,
    channel: Channel,
    init: Init,
    guest: Guest,
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

/// IKE_AUTH, and the connection that the identities in it belong to.
struct Request {
    incoming: Incoming,
    connection: ConnectionId,
    config: Arc<Connection>,
}

/// The other side's proof was right, and this is ours.
type Authenticated = Result<(Verified, Proof), Box<Refusal>>;

impl Request {
    /// Whether it is still configured so.
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
        guest: Guest,
        now: Time,
    ) -> Self {
        let expires = now + HALF_OPEN_TIME;
        Self { id, path, nat, channel, init, guest, repeated: 0, is_refused: false, expires }
    }

    /// Who waits for it.
    pub(crate) fn guest(&self) -> Guest {
        self.guest.holding(self.channel.held())
    }

    pub(crate) fn spi(&self) -> u64 {
        self.channel.local_spi()
    }

    /// Forgets the fragments that are held.
    pub(crate) fn forget_fragments(&mut self) {
        self.channel.forget_fragments();
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
        // The answer to the first message has shown that the initiator is at that address. A copy of IKE_AUTH can come from
        // any other, and what tells of a NAT is no excuse: a side that only wants ESP in UDP says the same. A NAT gives
        // both ports of a host the same address (RFC 4787 section 4.1).
        if inbound.path.remote.ip() != self.path.remote.ip() {
            let cause = Cause::Moved { from: self.path.remote, to: inbound.path.remote };
            context.suspect(None, self.path, || cause);
            return Some(Phase::HalfOpen(Box::new(self)));
        }
        match self.channel.receive(&inbound.message) {
            Received::Request(incoming) if !self.is_refused => {
                return self.handle_auth(inbound, incoming, context);
            }
            // Our refusal may have been lost.
            Received::Again(datagrams) => context.send(self.path, datagrams),
            _ => {}
        }
        Some(Phase::HalfOpen(Box::new(self)))
    }

    fn handle_auth(
        mut self,
        inbound: &Inbound<'_>,
        incoming: Incoming,
        context: &mut Context<'_>,
    ) -> Option<Phase> {
        // A NAT moves the initiator to port 4500: who stays does not believe in one.
        self.path = inbound.path;
        self.nat.in_udp &= inbound.path.local.port() != IKE_PORT;
        self.look_at(incoming, context)
    }

    fn look_at(self, incoming: Incoming, context: &mut Context<'_>) -> Option<Phase> {
        let (connection, config) = match self.find(&incoming, context) {
            Ok(found) => found,
            Err(refusal) => return Some(self.refuse(&incoming, *refusal, context)),
        };
        let (id, whose, wall) = (self.id, Whose::Guest(self.guest()), context.wall);
        let is_long = config.authentication.takes_long();
        let authenticate = move || {
            let outcome = self.authenticate(connection, &config, &incoming, wall);
            (self, Request { incoming, connection, config }, outcome)
        };
        let answer = |(state, request, outcome): (Self, Request, _), _, context: &mut Context<'_>| {
            state.answer(request, outcome, context)
        };
        context.compute_if(is_long, id, whose, authenticate, answer)
    }

    fn answer(self, request: Request, outcome: Authenticated, context: &mut Context<'_>) -> Option<Phase> {
        // What is configured may be something else by now.
        if !request.is_current(context) {
            return self.look_at(request.incoming, context);
        }
        let (verified, proof) = match outcome {
            Ok(authenticated) => authenticated,
            Err(refusal) => return Some(self.refuse(&request.incoming, *refusal, context)),
        };
        let payloads = match Payloads::parse(request.incoming.first, &request.incoming.chain) {
            Ok(payloads) => payloads,
            Err(error) => return Some(self.refuse(&request.incoming, *Refusal::malformed(error), context)),
        };
        if let Some(refusal) = self.only_by_another(&request, verified.identity(), &payloads, context) {
            return Some(self.refuse(&request.incoming, refusal, context));
        }
        Some(self.establish(&request, verified, &proof, &payloads, context))
    }

    /// A connection that takes anyone does not serve a peer that another one names, by this identity or by another that the
    /// same credentials prove: the peer chooses what it calls itself, what it offers and, where this connection is for any
    /// address, where it calls from.
    fn only_by_another(
        &self,
        request: &Request,
        claimed: &Identity,
        payloads: &Payloads<'_>,
        context: &Context<'_>,
    ) -> Option<Refusal> {
        let (served, certificates) = (&request.config, &payloads.certificates);
        if served.remote_identity.is_some() {
            return None;
        }
        let is_elsewhere = |other: &Connection| {
            served.remote.is_some() && !other.is_between(self.path.local.ip(), self.path.remote.ip())
        };
        proof::identities(served, claimed, certificates).into_iter().find_map(|name| {
            let others = context.connections.naming(&name).filter(|(_, other)| !is_elsewhere(other));
            let proves = |other| proof::proves((&name, other), served, claimed, certificates, context.wall);
            let (id, _) = { others }.find(|(_, other)| proves(other))?;
            let cause = Cause::Named { identity: claimed.to_string(), named: name.to_string() };
            let refusal = Refusal::new(notify::AUTHENTICATION_FAILED, Some(id), cause);
            Some(Refusal { authentic: true, ..refusal })
        })
    }

    /// Finds the connection that both identities and the chosen algorithms belong to.
    fn find(
        &self,
        incoming: &Incoming,
        context: &Context<'_>,
    ) -> Result<(ConnectionId, Arc<Connection>), Box<Refusal>> {
        let payloads = Payloads::parse(incoming.first, &incoming.chain).map_err(Refusal::malformed)?;
        let refuse = |cause| Box::new(Refusal::new(notify::AUTHENTICATION_FAILED, None, cause));
        let Some(id) = &payloads.id_i else {
            return Err(refuse(Cause::Misbehaved("its IKE_AUTH lacks an identity")));
        };
        // A Child SA is asked for with all of these, or with none (RFC 6023).
        let parts = [payloads.sa.is_some(), payloads.ts_i.is_some(), payloads.ts_r.is_some()];
        if parts.contains(&true) && parts.contains(&false) {
            let cause = Cause::Misbehaved("its IKE_AUTH lacks algorithms or selectors");
            return Err(Box::new(Refusal::new(notify::INVALID_SYNTAX, None, cause)));
        }
        let Some(identity) = identity::read(id) else {
            return Err(refuse(Cause::Misbehaved("its identity is of a type that we do not know")));
        };
        // Section 2.16: who leaves the proof out asks for EAP.
        if payloads.auth.is_none() {
            return Err(self.refuse_eap(&identity, context));
        }
        let asked = payloads.id_r.as_ref().map(identity::read);
        // Who is named by one is not let in by another that takes anyone.
        let candidates = candidates(self.path, context);
        let found = candidates.of(&identity).find(|(_, config)| self.fits(config, &identity, asked.as_ref()));
        let found = found.map(|(id, config)| (id, Arc::clone(config)));
        found.ok_or_else(|| self.unfit(&identity, asked.flatten(), context))
    }

    /// Why no connection fits an identity: that of another name of ours, other algorithms, or that it is unknown.
    fn unfit(&self, identity: &Identity, asked: Option<Identity>, context: &Context<'_>) -> Box<Refusal> {
        let candidates = candidates(self.path, context);
        let (connection, cause) = match (candidates.of(identity).next(), asked) {
            (Some((id, config)), Some(asked)) if asked != config.local_identity => {
                let (asked, ours) = (asked.to_string(), config.local_identity.to_string());
                (Some(id), Cause::OtherName { asked, ours })
            }
            (Some((id, config)), _) if !config.ike.iter().any(|offer| offer.allows(&self.init.suite)) => {
                let ours = describe_all(&IkeOffer::propose(&config.ike, ProposalSpi::None));
                let theirs = vec![self.init.suite.to_string()];
                (Some(id), Cause::NoProposal { of: "IKE".to_owned(), ours, theirs })
            }
            _ => (None, Cause::NoSuchPeer { identity: identity.to_string() }),
        };
        Box::new(Refusal::new(notify::AUTHENTICATION_FAILED, connection, cause))
    }

    fn refuse_eap(&self, identity: &Identity, context: &Context<'_>) -> Box<Refusal> {
        let candidates = candidates(self.path, context);
        let first = candidates.of(identity).next();
        let meant = first.filter(|(_, config)| config.remote_identity.is_some() || candidates.count() == 1);
        let cause = Cause::AsksEap { identity: identity.to_string() };
        Box::new(Refusal::new(notify::AUTHENTICATION_FAILED, meant.map(|(id, _)| id), cause))
    }

    /// Checks the other side's proof, and makes ours.
    fn authenticate(
        &self,
        connection: ConnectionId,
        config: &Connection,
        incoming: &Incoming,
        wall: Duration,
    ) -> Authenticated {
        let payloads = Payloads::parse(incoming.first, &incoming.chain).map_err(Refusal::malformed)?;
        let kind = notify::AUTHENTICATION_FAILED;
        let failed = |cause| Box::new(Refusal::new(kind, Some(connection), cause));
        let (Some(id), Some(auth)) = (&payloads.id_i, &payloads.auth) else {
            return Err(failed(Cause::Misbehaved("its IKE_AUTH lacks identity or proof")));
        };
        let verified = self.init.verify(config, (id, auth), &payloads.certificates, wall).map_err(failed)?;
        let proof = self.init.prove(config, &identity::body(&config.local_identity), Some(&verified), wall);
        let proof = proof.map_err(|cause| Box::new(Refusal { authentic: true, ..*failed(cause) }))?;
        Ok((verified, proof))
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
        request: &Request,
        verified: Verified,
        proof: &Proof,
        payloads: &Payloads<'_>,
        context: &mut Context<'_>,
    ) -> Phase {
        let (config, path) = (Arc::clone(&request.config), self.path);
        let local = identity::body(&config.local_identity);
        let id = Identification::parse(&local).expect("a body of ours has its head");
        let mut list = vec![Payload::IdR(id)];
        list.extend(certificate_payloads(&config));
        list.push(Payload::Auth(Authentication { method: proof.method, data: &proof.data }));
        let beginning = Beginning {
            id: self.id,
            connection: request.connection,
            config: Arc::clone(&config),
            path: self.path,
            nat: self.nat,
            channel: self.channel,
            root: self.init.root,
            suite: self.init.suite,
        };
        let mut session = Session::new(beginning, verified, context);
        if payloads.notify(notify::INITIAL_CONTACT).is_some() {
            session.set_initial_contact();
        }
        let nonces = Nonces { initiator: &self.init.peer_nonce, responder: &self.init.nonce };
        session.answer_first(&request.incoming, payloads, list, nonces, context);
        if payloads.configuration.is_some_and(asks_address) {
            // It may go on with its own; if it does not, this is why.
            context.fail_sometimes(request.connection, path, Cause::AsksAddress);
        }
        Phase::Established(Box::new(session))
    }

    /// Section 2.21.2: the answer is protected, but says nothing that is not meant for strangers.
    fn refuse(mut self, incoming: &Incoming, refusal: Refusal, context: &mut Context<'_>) -> Phase {
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
        Phase::HalfOpen(Box::new(self))
    }
}

/// Whether a configuration payload asks for an address (section 3.15.1).
fn asks_address(payload: &[u8]) -> bool {
    const REQUEST: u8 = 1;
    const ADDRESSES: [u16; 2] = [1, 8];
    let Some((&[REQUEST, ..], mut attributes)) = payload.split_first_chunk::<4>() else { return false };
    while let Some((&[high, low, one, two], rest)) = attributes.split_first_chunk() {
        // The highest bit is reserved.
        if ADDRESSES.contains(&(u16::from_be_bytes([high, low]) & 0x7fff)) {
            return true;
        }
        attributes = rest.get(usize::from(u16::from_be_bytes([one, two]))..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_an_address_is_told_from_others() {
        assert!(asks_address(&[1, 0, 0, 0, 0, 1, 0, 0]), "for any of IPv4");
        assert!(asks_address(&[1, 0, 0, 0, 0, 3, 0, 4, 1, 2, 3, 4, 0, 8, 0, 0]), "IPv6, after a name server");
        for other in [
            &[][..],
            &[1, 0, 0],
            &[1, 0, 0, 0],
            &[2, 0, 0, 0, 0, 1, 0, 0],
            &[1, 0, 0, 0, 0, 3, 0, 0],
            &[1, 0, 0, 0, 0, 3, 0, 9, 0, 1, 0, 0],
            &[1, 0, 0, 0, 0],
        ] {
            assert!(!asks_address(other), "{other:?}");
        }
    }
}
