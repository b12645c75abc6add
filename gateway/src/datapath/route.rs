//! Outbound: finds the peer and its SA.

use super::capture::Refused;
use super::icmp_errors::IcmpErrors;
use super::protocol::Lookup;
use super::tables::{Peer, Tables};
use super::{Classified, DataPathEvent, Routed, Stage};
use arc_swap::ArcSwap;
use crossbeam_channel::Sender;
use packet::header::flow::{Flow, Upper};
use packet::header::icmp::IcmpError;
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use tunnel::esp::{Policies, Processing};
use tunnel::wireguard::AllowedIps;
use tunnel::{OutboundSa, Time};

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "route",
    does: "finds the peer by longest prefix or policy; without a key the packets wait and one is asked for",
    drops: &[
        DropReason::NoRoute,
        DropReason::Denied,
        DropReason::Fragmented,
        DropReason::Bypassed,
        DropReason::NoEndpoint,
        DropReason::NoKey,
    ],
};

/// The number of cached lookups.
const REMEMBERED: usize = 256;

/// A cache of lookups in a table, as it was at the last burst: most packets have the destination of earlier ones.
struct Remembered<Table, Question, Answer> {
    table: Arc<Table>,
    found: Vec<Option<(Question, Answer)>>,
}

impl<Table: Default, Question: Clone, Answer: Clone> Default for Remembered<Table, Question, Answer> {
    fn default() -> Self {
        Self { table: Arc::default(), found: vec![None; REMEMBERED] }
    }
}

impl<Table, Question: Clone + PartialEq, Answer: Clone> Remembered<Table, Question, Answer> {
    /// Clears the cache if the table was replaced.
    fn refresh(&mut self, current: &ArcSwap<Table>) {
        let now = current.load();
        if !Arc::ptr_eq(&now, &self.table) {
            self.table = Arc::clone(&now);
            self.found.fill(None);
        }
    }

    #[inline]
    fn lookup(
        &mut self,
        question: Question,
        slot: usize,
        search: impl FnOnce(&Table) -> Option<Answer>,
    ) -> Option<&Answer> {
        let found = &mut self.found[slot % REMEMBERED];
        if found.as_ref().is_none_or(|(asked, _)| *asked != question) {
            *found = Some((question, search(&self.table)?));
        }
        found.as_ref().map(|(_, answer)| answer)
    }
}

type Routes = Remembered<AllowedIps<Arc<Peer>>, IpAddr, Arc<Peer>>;
type Rules = Remembered<Policies<Arc<Peer>>, Flow, Processing<Arc<Peer>>>;

/// The lookup caches of a worker.
#[derive(Default)]
pub struct Recent {
    routes: Routes,
    policies: Rules,
}

/// The cache slot of an address; consecutive addresses have different slots.
#[inline]
fn slot(address: IpAddr) -> usize {
    let bits = match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (bits ^ bits >> 32 ^ bits >> 64 ^ bits >> 96) as u32
        }
    };
    (bits ^ bits >> 8 ^ bits >> 16 ^ bits >> 24) as usize
}

/// As [`slot`], for all selector fields.
#[inline]
fn flow_slot(flow: &Flow) -> usize {
    let (source, destination) = flow.ports.unwrap_or_default();
    let bits = flow.destination ^ flow.source.rotate_left(5);
    let bits = (bits ^ bits >> 64) as u64 ^ u64::from(source ^ destination) ^ u64::from(flow.protocol);
    (bits ^ bits >> 8 ^ bits >> 16 ^ bits >> 24 ^ bits >> 32) as usize
}

/// The context of this stage.
pub struct Router<'a> {
    /// The tables for lookups.
    pub tables: &'a Tables,
    /// The packets.
    pub batch: &'a Batch,
    /// The time of the burst.
    pub now: Time,
    /// The handshake thread, which is told that a key is needed.
    pub datapath_events: &'a Sender<DataPathEvent>,
    /// The drop counters.
    pub drops: &'a DropCounters,
    /// ICMP errors for the inside.
    pub errors: &'a mut IcmpErrors,
    /// What is refused, if a capture wants to know of it.
    pub refused: Option<&'a mut Vec<Refused>>,
    /// Sends the staged packets of a peer.
    pub flush: &'a mut dyn FnMut(&Arc<Peer>),
}

impl Router<'_> {
    /// Finds the peer of each train; consecutive trains for the same peer are merged. The caches in `recent` are
    /// searched first.
    pub fn route(self, recent: &mut Recent, classified: &mut Vec<Classified>, routed: &mut Vec<Routed<'_>>) {
        routed.clear();
        match self.tables.protocol.lookup() {
            Lookup::Prefix => self.by_prefix(&mut recent.routes, classified, routed),
            Lookup::Policy => self.by_policy(&mut recent.policies, classified, routed),
        }
        classified.clear();
    }

    /// Cryptokey routing.
    fn by_prefix(mut self, recent: &mut Routes, classified: &[Classified], routed: &mut Vec<Routed<'_>>) {
        recent.refresh(&self.tables.routes);
        // By reference: a copy of an address on the stack is read before it is written completely, and the read waits.
        for train in classified {
            let found = recent.lookup(train.destination, slot(train.destination), |table| {
                table.lookup(train.destination).cloned()
            });
            match found {
                Some(peer) => self.lead(train, peer, routed),
                None => self.refuse(train.packets.clone(), DropReason::NoRoute, None),
            }
        }
    }

    /// RFC 4301 section 5.1: a packet that no policy protects is not sent.
    fn by_policy(mut self, recent: &mut Rules, classified: &[Classified], routed: &mut Vec<Routed<'_>>) {
        recent.refresh(&self.tables.policies);
        for train in classified {
            let first = self.batch.packet(train.packets.start);
            let Ok(flow) = Flow::parse(first) else {
                self.drops.count(DropReason::Malformed, train.packets.len());
                self.note(train.packets.clone(), DropReason::Malformed, None);
                continue;
            };
            let found = recent.lookup(flow, flow_slot(&flow), |table| table.outbound(&flow).cloned());
            match found {
                Some(Processing::Protect(peer)) => self.lead(train, peer, routed),
                Some(Processing::Bypass) => self.refuse(train.packets.clone(), DropReason::Bypassed, None),
                Some(Processing::Discard) => self.refuse(train.packets.clone(), DropReason::Denied, None),
                None => self.refuse(train.packets.clone(), unmatched(first), None),
            }
        }
    }

    /// Finds the key of a peer.
    // Inlined in two places: as a call it would cost as much as the rest of this stage.
    #[inline(always)]
    fn lead(&mut self, train: &Classified, peer: &Arc<Peer>, routed: &mut Vec<Routed<'_>>) {
        let (packets, ds_field) = (train.packets.clone(), train.ds_field);
        if let Some(last) = routed.last_mut()
            && last.peer.is(peer)
            && last.ds_field == ds_field
            && last.packets.end == packets.start
        {
            last.packets.end = packets.end;
        } else if peer.endpoint.load().is_none() {
            self.refuse(packets, DropReason::NoEndpoint, Some(peer));
        } else if let Some(sa) = peer.key(self.now).or_else(|| self.key_after_flush(peer)) {
            let (peer, sa) = (Arc::clone(peer).into(), sa.into());
            routed.push(Routed { packets, peer, sa, ds_field, is_data: true });
        } else {
            self.stage(packets, peer);
        }
    }

    /// If a key has arrived for staged packets, they are sent now: no later packet may overtake them.
    #[cold]
    fn key_after_flush(&mut self, peer: &Arc<Peer>) -> Option<Arc<OutboundSa>> {
        if peer.sending.load().as_ref().is_some_and(|sa| sa.is_usable(self.now)) {
            (self.flush)(peer);
        }
        peer.key(self.now)
    }

    /// Without a key the packets are staged, and the first one requests a key.
    #[cold]
    fn stage(&self, packets: Range<usize>, peer: &Peer) {
        let (first, dropped) = peer.staging.stage(packets.map(|index| self.batch.packet(index)));
        self.drops.count(DropReason::NoKey, dropped);
        if first {
            // The handshake thread outlives the workers; without it, no keys could be negotiated.
            let _ = self.datapath_events.send(DataPathEvent::NoKey(peer.id));
        }
    }

    /// Notes for a capture what is dropped.
    fn note(&mut self, packets: Range<usize>, reason: DropReason, peer: Option<&Arc<Peer>>) {
        if let Some(refused) = &mut self.refused {
            refused.push(Refused { packets, reason, peer: peer.cloned() });
        }
    }

    /// Drops a train and sends one error to its sender.
    #[cold]
    fn refuse(&mut self, packets: Range<usize>, reason: DropReason, peer: Option<&Arc<Peer>>) {
        self.drops.count(reason, packets.len());
        self.note(packets.clone(), reason, peer);
        if let Ok(ip) = IpPacket::parse(self.batch.packet(packets.start)) {
            let error = match reason {
                DropReason::Denied => IcmpError::Prohibited,
                _ => IcmpError::HostUnreachable,
            };
            self.errors.add(&ip, error);
        }
    }
}

/// The reason why no policy matches: only the first fragment has ports, and policies may require them.
#[cold]
fn unmatched(packet: &[u8]) -> DropReason {
    let is_late = IpPacket::parse(packet).is_ok_and(|ip| Upper::of(&ip).is_later_fragment);
    if is_late { DropReason::Fragmented } else { DropReason::Denied }
}
