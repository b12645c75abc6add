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
use crate::ikev2::limits::{DOUBTED_TRANSMISSIONS, INIT_RETRIES, NONCE};
use crate::ikev2::message::numbers::notify;
use crate::ikev2::message::{
    Body, Exchange, Header, KeyExchange, Notify, Payload, Payloads, Proposal, ProposalSpi, emit_clear,
};
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::proposal::{IkeOffer, IkeSuite, describe_all};
use crypto::exchange::{Group, PrivateShare};
use std::sync::Arc;

/// The payloads of a message that answers a first one.
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
    pub(super) id: SessionId,
    pub(super) wanted: Wanted,
    path: Path,
    spi: u64,
    nonce: [u8; NONCE],
    share: PrivateShare,
    proposals: Vec<Proposal>,
    cookie: Option<Vec<u8>>,
    message: Vec<u8>,
    retries: u32,
    retransmission: Retransmission,
    /// What somebody said who has not shown who it is.
    doubt: Option<Cause>,
    /// Whether this is the second beginning, after what [`begin_anew`](Self::begin_anew) is for.
    is_second: bool,
}

/// An answer to the first message that may be the true one: whoever sent it is still to show who it is.
pub(super) struct Answered {
    pub(super) path: Path,
    pub(super) nat: Nat,
    pub(super) channel: Channel,
    pub(super) init: Init,
    /// Whether an IKE SA without a Child SA is understood (RFC 6023).
    pub(super) childless: bool,
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
        let mut this = Self {
            id,
            wanted,
            path,
            spi,
            nonce,
            share,
            proposals,
            cookie: None,
            message: Vec::new(),
            retries: 0,
            retransmission,
            doubt: None,
            is_second: false,
        };
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
        let Some(payloads) = answer(inbound) else { return self.stay() };
        if let Some(cookie) = payloads.notify(notify::COOKIE) {
            return self.retry_with_cookie(cookie.data, context);
        }
        if let Some(wanted) = payloads.notify(notify::INVALID_KE_PAYLOAD) {
            return self.retry_with_group(wanted.data, context);
        }
        if let Some(kind) = payloads.error() {
            return self.refused(kind);
        }
        match self.accept(inbound, payloads) {
            Ok(answered) => Authenticating::begin(self, answered, context),
            Err(Some(cause)) => self.doubt(cause),
            Err(None) => self.stay(),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "it stands where a next state is returned")]
    fn stay(self) -> Option<Phase> {
        Some(Phase::Initiating(Box::new(self)))
    }

    fn retry_with_cookie(mut self, cookie: &[u8], context: &mut Context<'_>) -> Option<Phase> {
        // One that is held already came twice.
        if !(1..=64).contains(&cookie.len()) || self.cookie.as_deref() == Some(cookie) {
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
        if self.retries >= INIT_RETRIES {
            return self.doubt(Cause::Misbehaved("it asks for ever new cookies or groups"));
        }
        self.retries += 1;
        self.send(context);
        self.stay()
    }

    fn refused(self, kind: u16) -> Option<Phase> {
        let cause = match kind {
            notify::NO_PROPOSAL_CHOSEN => {
                let ours = describe_all(&self.proposals);
                Cause::NoProposal { of: "IKE".to_owned(), ours, theirs: Vec::new() }
            }
            kind => Cause::Notified(notify::name(kind)),
        };
        self.doubt(cause)
    }

    /// Section 2.21.1: whoever says so has not shown who it is, and the true answer may follow.
    fn doubt(mut self, cause: Cause) -> Option<Phase> {
        self.note_doubt(cause);
        self.retransmission.hurry(DOUBTED_TRANSMISSIONS);
        self.stay()
    }

    /// Remembers why it may have come to nothing.
    pub(super) fn note_doubt(&mut self, cause: Cause) {
        self.doubt.get_or_insert(cause);
    }

    /// Reads an answer that is not an error. One that cannot be the true one gives a cause, unless it makes no sense.
    pub(super) fn accept(
        &self,
        inbound: &Inbound<'_>,
        payloads: &Payloads<'_>,
    ) -> Result<Answered, Option<Cause>> {
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
        let group = self.share.group();
        if exchange.group != group.id() || selected.suite.group != group {
            return Err(Some(Cause::Misbehaved("its key exchange is of another group")));
        }
        let shared = self.share.agree(exchange.public);
        let shared = shared.map_err(|_| Cause::Misbehaved("its public value is not one of the group"))?;
        let spis = Spis { initiator: self.spi, responder: spi };
        let nonces = Nonces { initiator: &self.nonce, responder: nonce };
        let keys = IkeKeys::first(&selected.suite, Role::Initiator, spis, nonces, &shared);
        Ok(self.answered(inbound, payloads, nonce, (selected.suite, keys, spis)))
    }

    fn answered(
        &self,
        inbound: &Inbound<'_>,
        payloads: &Payloads<'_>,
        peer_nonce: &[u8],
        (suite, keys, spis): (IkeSuite, IkeKeys, Spis),
    ) -> Answered {
        let nat = Nat::detect(self.path, spis, payloads, self.wanted.config.force_encapsulation);
        // Section 2.23: who finds a NAT goes on on port 4500.
        let path = if nat.in_udp { self.path.floated() } else { self.path };
        let fragments = payloads.notify(notify::IKEV2_FRAGMENTATION_SUPPORTED).is_some();
        let channel = Channel::new(Role::Initiator, spis, (keys.sealer, keys.opener), fragments, 1);
        let init = Init {
            sent: self.message.clone(),
            received: inbound.bytes.to_vec(),
            nonce: self.nonce.to_vec(),
            peer_nonce: peer_nonce.to_vec(),
            suite,
            root: keys.root,
            proof: keys.proof,
            hashes: hashes(payloads),
        };
        let childless = payloads.notify(notify::CHILDLESS_IKEV2_SUPPORTED).is_some();
        Answered { path, nat, channel, init, childless }
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
            Some(Overdue::Dead) => self.give_up(context),
        }
    }

    /// Whether our proof may have been of another message than the one that was answered: a responder that begins to ask for
    /// cookies while the answer to our first message is on its way sees that again, and asks for one.
    pub(super) fn may_have_crossed(&self) -> bool {
        self.cookie.is_some() && !self.is_second
    }

    pub(super) fn begin_anew(self, context: &mut Context<'_>) -> Option<Phase> {
        context.release_ike_spi(self.spi);
        let second = Self::begin(self.id, self.wanted, self.path, context)?;
        Self { is_second: true, ..second }.stay()
    }

    /// Nobody has answered whom we believe.
    pub(super) fn give_up(self, context: &mut Context<'_>) -> Option<Phase> {
        match self.doubt {
            Some(cause) => context.give_up(self.wanted.connection, self.path, cause),
            None => context.fail(self.wanted.connection, self.path, Cause::NoAnswer),
        }
        context.release_ike_spi(self.spi);
        None
    }
}
