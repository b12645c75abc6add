//! IKE_SA_INIT has been sent.

use super::proof::hashes;
use super::{Announced, Authenticating, Inbound, Init};
use crate::Time;
use crate::ikev2::action::{Cause, SessionId};
use crate::ikev2::channel::{Channel, Overdue, Retransmission};
use crate::ikev2::config::{Connection, ConnectionId};
use crate::ikev2::context::Context;
use crate::ikev2::endpoint::Phase;
use crate::ikev2::keys::{IkeKeys, Nonces, Role, Spis};
use crate::ikev2::limits::{INIT_RETRIES, NONCE};
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{
    Body, Exchange, Header, KeyExchange, Notify, Payload, Payloads, Proposal, ProposalSpi, emit_clear,
};
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::proposal::{IkeOffer, IkeSuite, describe_all};
use crypto::exchange::{Group, PrivateShare};
use std::sync::Arc;

/// What is to be set up.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) connection: ConnectionId,
    pub(crate) config: Arc<Connection>,
    /// Which of the connection's children; the first is made together with the IKE SA.
    pub(crate) children: Vec<usize>,
    /// Whether we know of no other session with the same gateway.
    pub(crate) initial_contact: bool,
}

/// See the module.
pub(crate) struct Initiating {
    id: SessionId,
    wanted: Wanted,
    path: Path,
    spi: u64,
    nonce: [u8; NONCE],
    share: PrivateShare,
    proposals: Vec<Proposal>,
    cookie: Option<Vec<u8>>,
    message: Vec<u8>,
    retries: u32,
    retransmission: Retransmission,
}

impl Initiating {
    /// Sends the first message; `None` if nothing is configured that could be proposed.
    pub(crate) fn begin(
        id: SessionId,
        wanted: Wanted,
        path: Path,
        context: &mut Context<'_>,
    ) -> Option<Self> {
        let proposals = IkeOffer::propose(&wanted.config.ike, ProposalSpi::None);
        let group = wanted.config.ike.iter().find_map(|offer| offer.groups.first())?;
        if proposals.is_empty() {
            return None;
        }
        let spi = context.new_ike_spi(id);
        let nonce = context.bytes();
        let share = group.generate(context.random);
        let retransmission = Retransmission::new(context.now, context.patience, Vec::new());
        let (cookie, message, retries) = (None, Vec::new(), 0);
        let mut this =
            Self { id, wanted, path, spi, nonce, share, proposals, cookie, message, retries, retransmission };
        this.send(context);
        Some(this)
    }

    pub(crate) fn connection(&self) -> ConnectionId {
        self.wanted.connection
    }

    pub(crate) fn spi(&self) -> u64 {
        self.spi
    }

    /// Wants one more child.
    pub(crate) fn want(&mut self, child: usize) {
        if !self.wanted.children.contains(&child) {
            self.wanted.children.push(child);
        }
    }

    fn send(&mut self, context: &mut Context<'_>) {
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
        // Section 2.6: a cookie comes first, and nothing else changes.
        let cookie = self.cookie.iter().map(|cookie| Payload::Notify(Notify::new(notify::COOKIE, cookie)));
        let exchange = KeyExchange { group: self.share.group().id(), public: self.share.public() };
        let payloads: Vec<Payload<'_>> = cookie
            .chain([Payload::Sa(self.proposals.clone()), Payload::Ke(exchange), Payload::Nonce(&self.nonce)])
            .chain(announced.payloads())
            .collect();
        self.message = emit_clear(&header, &payloads);
        self.retransmission = Retransmission::new(context.now, context.patience, vec![self.message.clone()]);
        context.send(self.path, vec![self.message.clone()]);
    }

    /// Handles the answer. It is not authentic yet: what makes no sense is passed over, as the true one may follow.
    pub(crate) fn handle(self, inbound: &Inbound<'_>, context: &mut Context<'_>) -> Option<Phase> {
        let header = inbound.message.header;
        let is_answer = header.exchange == Exchange::IkeSaInit
            && header.is_response
            && !header.from_initiator
            && header.message_id == 0;
        let Body::Clear(payloads) = &inbound.message.body else { return self.stay() };
        if !is_answer {
            return self.stay();
        }
        if let Some(cookie) = payloads.notify(notify::COOKIE) {
            return self.retry_with_cookie(cookie.data, context);
        }
        if let Some(wanted) = payloads.notify(notify::INVALID_KE_PAYLOAD) {
            return self.retry_with_group(wanted.data, context);
        }
        if let Some(kind) = payloads.error() {
            return self.refused(kind, context);
        }
        self.handle_success(inbound, payloads, context)
    }

    #[expect(clippy::unnecessary_wraps, reason = "it stands where a next state is returned")]
    fn stay(self) -> Option<Phase> {
        Some(Phase::Initiating(Box::new(self)))
    }

    fn retry_with_cookie(mut self, cookie: &[u8], context: &mut Context<'_>) -> Option<Phase> {
        if !(1..=64).contains(&cookie.len()) {
            return self.stay();
        }
        self.cookie = Some(cookie.to_vec());
        self.retry(context)
    }

    /// Section 1.2: the responder names the group it wants, which must be one that we offered.
    fn retry_with_group(mut self, wanted: &[u8], context: &mut Context<'_>) -> Option<Phase> {
        let group = wanted.try_into().ok().and_then(|id| Group::from_id(u16::from_be_bytes(id)));
        let offered = |group: &Group| self.wanted.config.ike.iter().any(|offer| offer.groups.contains(group));
        let Some(group) = group.filter(offered).filter(|&group| group != self.share.group()) else {
            return self.stay();
        };
        self.share = group.generate(context.random);
        self.retry(context)
    }

    fn retry(mut self, context: &mut Context<'_>) -> Option<Phase> {
        self.retries += 1;
        if self.retries > INIT_RETRIES {
            return self.fail(Cause::Misbehaved("it asks for ever new cookies or groups"), context);
        }
        self.send(context);
        self.stay()
    }

    fn refused(self, kind: u16, context: &mut Context<'_>) -> Option<Phase> {
        let cause = match kind {
            notify::NO_PROPOSAL_CHOSEN => {
                let ours = describe_all(&self.proposals);
                Cause::NoProposal { of: "IKE".to_owned(), ours, theirs: Vec::new() }
            }
            kind => Cause::Notified(notify::name(kind)),
        };
        self.fail(cause, context)
    }

    /// Whoever answers has not shown who it is.
    fn fail(self, cause: Cause, context: &mut Context<'_>) -> Option<Phase> {
        context.suspect(Some(self.wanted.connection), self.path, || cause);
        context.release_ike_spi(self.spi);
        None
    }

    fn handle_success(
        self,
        inbound: &Inbound<'_>,
        payloads: &Payloads<'_>,
        context: &mut Context<'_>,
    ) -> Option<Phase> {
        let spi = inbound.message.header.responder_spi;
        let (Some(answer), Some(exchange), Some(nonce)) = (&payloads.sa, payloads.ke, payloads.nonce) else {
            return self.stay();
        };
        if spi == 0 {
            return self.stay();
        }
        let Ok(selected) = IkeOffer::accept(&self.proposals, answer) else {
            let (ours, theirs) = (describe_all(&self.proposals), describe_all(answer));
            return self.fail(Cause::NoProposal { of: "IKE".to_owned(), ours, theirs }, context);
        };
        let group = self.share.group();
        if exchange.group != group.id() || selected.suite.group != group {
            return self.fail(Cause::Misbehaved("its key exchange is of another group"), context);
        }
        let Ok(shared) = self.share.agree(exchange.public) else {
            return self.fail(Cause::Misbehaved("its public value is not one of the group"), context);
        };
        let spis = Spis { initiator: self.spi, responder: spi };
        let nonces = Nonces { initiator: &self.nonce, responder: nonce };
        let keys = IkeKeys::first(&selected.suite, Role::Initiator, spis, nonces, &shared);
        let response = (inbound.bytes.to_vec(), nonce.to_vec());
        let nat = Nat::detect(self.path, spis, payloads);
        self.authenticate(spis, (selected.suite, keys), response, nat, payloads, context)
    }

    fn authenticate(
        self,
        spis: Spis,
        (suite, keys): (IkeSuite, IkeKeys),
        (response, peer_nonce): (Vec<u8>, Vec<u8>),
        nat: Nat,
        payloads: &Payloads<'_>,
        context: &mut Context<'_>,
    ) -> Option<Phase> {
        // Section 2.23: who finds a NAT goes on on port 4500.
        let encapsulates = nat.is_present() || self.wanted.config.force_encapsulation;
        let path = if encapsulates { self.path.floated() } else { self.path };
        let fragments = payloads.notify(notify::IKEV2_FRAGMENTATION_SUPPORTED).is_some();
        let channel = Channel::new(Role::Initiator, spis, (keys.sealer, keys.opener), fragments, 1);
        let init = Init {
            sent: self.message,
            received: response,
            nonce: self.nonce.to_vec(),
            peer_nonce,
            suite,
            root: keys.root,
            proof: keys.proof,
            hashes: hashes(payloads),
        };
        let childless = payloads.notify(notify::CHILDLESS_IKEV2_SUPPORTED).is_some();
        Authenticating::begin(self.id, self.wanted, (path, nat), channel, init, childless, context)
    }

    pub(crate) fn next_timeout(&self) -> Time {
        self.retransmission.next
    }

    pub(crate) fn handle_timeout(mut self, context: &mut Context<'_>) -> Option<Phase> {
        match self.retransmission.handle_timeout(context.now) {
            None => self.stay(),
            Some(Overdue::Again(datagrams)) => {
                context.send(self.path, datagrams);
                self.stay()
            }
            Some(Overdue::Dead) => {
                context.fail(self.wanted.connection, self.path, Cause::NoAnswer);
                context.release_ike_spi(self.spi);
                None
            }
        }
    }
}
