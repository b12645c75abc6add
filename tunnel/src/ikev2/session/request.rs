//! A local request for a Child SA.

use super::agreement::selectors_of;
use super::rival::Rival;
use crate::esp::{Mode, TrafficSelector};
use crate::ikev2::config::Connection;
use crate::ikev2::context::Context;
use crate::ikev2::ids::{ConnectionId, SessionId};
use crate::ikev2::limits::NONCE;
use crate::ikev2::message::numbers::{notify, protocol};
use crate::ikev2::message::{KeyExchange, Notify, Payload, Proposal};
use crate::ikev2::nat::Path;
use crate::ikev2::proposal::EspOffer;
use crypto::exchange::{Group, PrivateShare};
use std::sync::Arc;

/// The parameters of a pending request.
pub(crate) struct Request {
    /// The index of the child in the connection.
    pub(super) child: usize,
    /// The inbound SPI.
    pub(super) spi: u32,
    pub(super) proposals: Vec<Proposal>,
    pub(super) nonce: [u8; NONCE],
    /// The group of its own key exchange, if it has one.
    pub(super) group: Option<Group>,
    /// `None` while it is being generated.
    pub(super) share: Option<Arc<PrivateShare>>,
    pub(super) local: Vec<TrafficSelector>,
    pub(super) remote: Vec<TrafficSelector>,
    pub(super) mode: Mode,
    /// The path to whose addresses its selectors are bound.
    pub(super) path: Path,
    /// The inbound SPI of the SA that it replaces.
    pub(super) replaces: Option<u32>,
    /// The SA that the peer has created to replace the same one, or for the same packets.
    pub(super) rival: Option<Rival<u32>>,
    /// SPIs that the peer has deleted meanwhile: one may be that of the SA created for this request.
    pub(super) gone: Vec<u32>,
    /// How often the peer asked for another group.
    pub(super) retries: u32,
}

/// The maximum number of deleted SPIs that are remembered.
const GONE: usize = 16;

impl Request {
    /// The Child SA in IKE_AUTH: its keys are derived from the exchange and the nonces of IKE_SA_INIT.
    pub(crate) fn first(
        owner: (SessionId, ConnectionId),
        config: &Connection,
        child: usize,
        path: Path,
        context: &mut Context<'_>,
    ) -> Option<Self> {
        let offers = EspOffer::without_groups(&config.children.get(child)?.esp);
        Self::of(owner, config, child, path, &offers, context)
    }

    /// A later one, with a key exchange of its own if configured; `replaces` is the inbound SPI of the SA that it
    /// replaces.
    pub(super) fn later(
        owner: (SessionId, ConnectionId),
        config: &Connection,
        child: usize,
        path: Path,
        replaces: Option<u32>,
        context: &mut Context<'_>,
    ) -> Option<Self> {
        let offers = &config.children.get(child)?.esp;
        let mut this = Self::of(owner, config, child, path, offers, context)?;
        this.replaces = replaces;
        this.nonce = context.bytes();
        this.group = offers.iter().find_map(|offer| offer.groups.first()).copied();
        Some(this)
    }

    fn of(
        (owner, peer): (SessionId, ConnectionId),
        config: &Connection,
        index: usize,
        path: Path,
        offers: &[EspOffer],
        context: &mut Context<'_>,
    ) -> Option<Self> {
        let child = config.children.get(index)?;
        let spi = context.expect_child_spi(owner, peer);
        let [local, remote] = selectors_of(child, path);
        Some(Self {
            child: index,
            spi,
            proposals: EspOffer::propose(offers, spi),
            nonce: [0; NONCE],
            group: None,
            share: None,
            local,
            remote,
            mode: child.mode,
            path,
            replaces: None,
            rival: None,
            gone: Vec::new(),
            retries: 0,
        })
    }

    /// Notes that the peer deletes an unknown SA.
    pub(super) fn note_gone(&mut self, spi: u32) {
        if self.gone.len() < GONE {
            self.gone.push(spi);
        }
    }

    /// The inbound SPI.
    pub(crate) fn spi(&self) -> u32 {
        self.spi
    }

    /// Switches to another group, if it was offered and not just tried.
    pub(super) fn change_group(&mut self, config: &Connection, wanted: &[u8]) -> bool {
        let group = wanted.try_into().ok().and_then(|id| Group::from_id(u16::from_be_bytes(id)));
        let offers = config.children.get(self.child).map_or(&[][..], |child| &child.esp);
        let offered = |group: &Group| offers.iter().any(|offer| offer.groups.contains(group));
        let current = self.group;
        let Some(group) = group.filter(offered).filter(|&group| Some(group) != current) else { return false };
        (self.group, self.share) = (Some(group), None);
        self.retries += 1;
        self.retries <= 2
    }

    /// The payloads for IKE_AUTH.
    pub(crate) fn payloads_of_first(&self) -> Vec<Payload<'_>> {
        let mut payloads = self.mode_payload();
        payloads.push(Payload::Sa(self.proposals.clone()));
        payloads.push(Payload::TsI(self.local.clone()));
        payloads.push(Payload::TsR(self.remote.clone()));
        payloads
    }

    /// A CREATE_CHILD_SA request (sections 1.3.1 and 1.3.3).
    pub(super) fn payloads(&self) -> Vec<Payload<'_>> {
        let rekey = |spi| Notify { kind: notify::REKEY_SA, spi: Some((protocol::ESP, spi)), data: &[] };
        let mut payloads: Vec<Payload<'_>> =
            self.replaces.into_iter().map(|spi| Payload::Notify(rekey(spi))).collect();
        payloads.extend(self.mode_payload());
        payloads.push(Payload::Sa(self.proposals.clone()));
        payloads.push(Payload::Nonce(&self.nonce));
        if let Some(share) = &self.share {
            payloads.push(Payload::Ke(KeyExchange { group: share.group().id(), public: share.public() }));
        }
        payloads.push(Payload::TsI(self.local.clone()));
        payloads.push(Payload::TsR(self.remote.clone()));
        payloads
    }

    fn mode_payload(&self) -> Vec<Payload<'_>> {
        let transport = Payload::Notify(Notify::new(notify::USE_TRANSPORT_MODE, &[]));
        if self.mode == Mode::Transport { vec![transport] } else { Vec::new() }
    }
}
