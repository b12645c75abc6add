//! Packets of which fragments have come: bounded in number, bytes and time, in total and for each source.
//!
//! ```text
//! fragment ── same packet? ──> contradiction, repetition ──> kept ── all there? ──> whole packet
//!               no: a place, for which the oldest gives way
//! ```

use super::chunks::{Chunks, List};
use arrayvec::ArrayVec;
use packet::checksum::Sum;
use packet::header::fragment::{Fragment, Identity};
use packet::header::ip::{Ipv4Header, Ipv6Header, MAXIMUM, ecn, set_ecn};
use packet::{DropCounters, DropReason};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use tunnel::Time;

/// The most fragments of a packet: of the longest one on links that carry 1,280 bytes.
const FRAGMENTS: usize = 64;
/// Chunks for each packet, on average, and for small tables: of these, the share of one source holds any packet.
const CHUNKS_EACH: usize = 8;
const LEAST_CHUNKS: usize = 128;
/// The most chunks: 256 MiB.
const MOST_CHUNKS: usize = 128 * 1024;

/// What bounds a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Incomplete packets at once.
    pub packets: usize,
    /// How long the fragments of a packet are kept, from the first on.
    pub lifetime: Duration,
}

impl Limits {
    fn chunks(self) -> usize {
        (self.packets * CHUNKS_EACH).clamp(LEAST_CHUNKS, MOST_CHUNKS)
    }
}

/// What one source can have of a number: the rest is for others.
fn share(of: usize) -> usize {
    of - of / 4
}

/// Where fragments have come from: those of one scope never complete packets of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// In clear.
    Clear,
    /// Out of a tunnel: its peer counts as their source.
    Opened(Tunnel),
}

/// A tunnel. The SAs of a file and those of IKE are numbered apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tunnel {
    /// Whether IKE has agreed on its SAs.
    pub is_of_ike: bool,
    /// The number of its peer.
    pub peer: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    scope: Scope,
    identity: Identity,
}

/// Whose share a packet belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Owner {
    Address([u8; 16]),
    Tunnel(Tunnel),
}

impl Key {
    fn owner(&self) -> Owner {
        match self.scope {
            Scope::Clear => Owner::Address(self.identity.source),
            Scope::Opened(tunnel) => Owner::Tunnel(tunnel),
        }
    }
}

/// What an owner has.
#[derive(Clone, Copy, Default)]
struct Held {
    packets: usize,
    chunks: usize,
}

/// A fragment that is kept: its payload, in the first one behind the headers of the packet.
struct Piece {
    offset: u16,
    length: u16,
    list: List,
}

impl Piece {
    fn range(&self) -> std::ops::Range<usize> {
        usize::from(self.offset)..usize::from(self.offset) + usize::from(self.length)
    }
}

/// A packet of which fragments have come.
struct Waiting {
    /// Its place in the order in which packets began.
    number: u64,
    began: Time,
    /// In order; they do not overlap.
    pieces: ArrayVec<Piece, FRAGMENTS>,
    /// Bytes of payload so far.
    received: usize,
    /// Bytes of payload of the packet, if its last fragment has come.
    total: Option<usize>,
    first: Option<First>,
    /// A bit for each ECN field among the fragments.
    ecn: u8,
    /// Why no fragment of it is kept any more.
    refused: Option<DropReason>,
}

/// What the first fragment says.
#[derive(Clone, Copy)]
struct First {
    header: usize,
    field: usize,
    protocol: u8,
}

/// A packet of which all fragments are there.
pub struct Whole {
    pieces: ArrayVec<Piece, FRAGMENTS>,
    first: First,
    payload: usize,
    /// The ECN field, if the first fragment has another one.
    ecn: Option<u8>,
}

impl Whole {
    /// How many fragments it has come in.
    pub fn fragments(&self) -> usize {
        self.pieces.len()
    }

    /// Its length.
    pub fn length(&self) -> usize {
        self.first.header + self.payload
    }
}

/// The incomplete packets.
pub struct Table {
    limits: Limits,
    packets: HashMap<Key, Waiting>,
    /// In the order in which they began, for the table and for each owner.
    order: BTreeMap<u64, Key>,
    order_of_owner: BTreeSet<(Owner, u64)>,
    next_number: u64,
    held: HashMap<Owner, Held>,
    chunks: Chunks,
}

impl Table {
    /// An empty table.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            packets: HashMap::with_capacity(limits.packets),
            order: BTreeMap::new(),
            order_of_owner: BTreeSet::new(),
            next_number: 0,
            held: HashMap::with_capacity(limits.packets),
            chunks: Chunks::new(limits.chunks()),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Chunks of memory that are free.
    pub fn left(&self) -> usize {
        self.chunks.left()
    }

    /// Takes a fragment, the payload of which is in `packet`. The packet, if it was the last one missing.
    pub fn accept(
        &mut self,
        scope: Scope,
        fragment: &Fragment,
        packet: &[u8],
        now: Time,
        drops: &DropCounters,
    ) -> Option<Whole> {
        self.expire(now, drops);
        let key = Key { scope, identity: fragment.identity };
        if !self.packets.contains_key(&key) && !self.begin(key, now, drops) {
            drops.count(DropReason::ReassemblyFull, 1);
            return None;
        }
        if let Err(reason) = self.keep(&key, fragment, packet, drops) {
            drops.count(reason, 1);
            if reason != DropReason::DuplicateFragment {
                self.refuse(&key, reason, drops);
            }
            return None;
        }
        self.complete(&key).unwrap_or_else(|reason| {
            self.refuse(&key, reason, drops);
            None
        })
    }

    /// Writes a packet.
    pub fn write(&mut self, whole: Whole, to: &mut [u8]) {
        let Whole { pieces, first, payload, ecn } = whole;
        for piece in pieces {
            let range = piece.range();
            let start = if range.start == 0 { 0 } else { first.header + range.start };
            self.chunks.read(&piece.list, &mut to[start..first.header + range.end]);
            self.chunks.free(piece.list);
        }
        finish(to, first, payload);
        if let Some(field) = ecn {
            set_ecn(to, field).expect("it begins with a header");
        }
    }

    /// Drops packets whose time is over.
    pub fn expire(&mut self, now: Time, drops: &DropCounters) {
        while let Some((_, &key)) = self.order.first_key_value()
            && self.packets.get(&key).is_some_and(|waiting| waiting.began + self.limits.lifetime < now)
        {
            self.drop_packet(&key, DropReason::ReassemblyTimeout, drops);
        }
    }

    /// Makes a place for a packet; false if there is none.
    fn begin(&mut self, key: Key, now: Time, drops: &DropCounters) -> bool {
        let owner = key.owner();
        let has_share = self.held.get(&owner).is_some_and(|held| held.packets >= share(self.limits.packets));
        let is_full = self.packets.len() >= self.limits.packets;
        if (has_share || is_full) && !self.give_way(&key, has_share, drops) {
            return false;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.order.insert(number, key);
        self.order_of_owner.insert((owner, number));
        self.held.entry(owner).or_default().packets += 1;
        self.packets.insert(key, Waiting::new(number, now));
        true
    }

    /// Drops the oldest packet but this one, of its owner or of any; false if there is none.
    fn give_way(&mut self, key: &Key, of_owner: bool, drops: &DropCounters) -> bool {
        let is_other = |other: &&Key| *other != key;
        let oldest = if of_owner {
            let of_owner = self.order_of_owner.range((key.owner(), 0)..=(key.owner(), u64::MAX));
            of_owner.filter_map(|(_, number)| self.order.get(number)).find(is_other)
        } else {
            self.order.values().find(is_other)
        };
        let Some(&oldest) = oldest else { return false };
        self.drop_packet(&oldest, DropReason::ReassemblyFull, drops);
        true
    }

    /// Keeps the payload of a fragment, with the headers of a first one.
    fn keep(
        &mut self,
        key: &Key,
        fragment: &Fragment,
        packet: &[u8],
        drops: &DropCounters,
    ) -> Result<(), DropReason> {
        let waiting = self.packets.get(key).expect("it has begun");
        let payload = &packet[fragment.payload.clone()];
        let place = waiting.place(fragment, |piece| {
            let skip = if piece.offset == 0 { waiting.first.map_or(0, |first| first.header) } else { 0 };
            self.chunks.holds(&piece.list, skip, payload)
        })?;
        // Between the headers and the payload of IPv6 there is a fragment header.
        let headers = if fragment.offset == 0 { &packet[..fragment.header] } else { &[] };
        self.room(key, headers.len() + payload.len(), drops)?;
        let list = self.chunks.keep([headers, payload]).ok_or(DropReason::ReassemblyFull)?;
        let waiting = self.packets.get_mut(key).expect("it does not give way to itself");
        let (offset, length) = (fragment.offset as u16, payload.len() as u16);
        waiting.pieces.insert(place, Piece { offset, length, list });
        waiting.note(fragment, packet);
        Ok(())
    }

    /// Sees to room for so many bytes, and counts it to the owner.
    fn room(&mut self, key: &Key, length: usize, drops: &DropCounters) -> Result<(), DropReason> {
        let needed = Chunks::needed(length);
        let most = share(self.limits.chunks());
        loop {
            let held = self.held.get(&key.owner()).map_or(0, |held| held.chunks);
            let has_share = held + needed > most;
            if !has_share && needed <= self.chunks.left() {
                break;
            }
            if !self.give_way(key, has_share, drops) {
                return Err(DropReason::ReassemblyFull);
            }
        }
        self.held.entry(key.owner()).or_default().chunks += needed;
        Ok(())
    }

    /// The packet, if all of it is there.
    fn complete(&mut self, key: &Key) -> Result<Option<Whole>, DropReason> {
        let waiting = self.packets.get(key).expect("it has begun");
        let (Some(payload), Some(first)) = (waiting.total, waiting.first) else { return Ok(None) };
        if waiting.received < payload {
            return Ok(None);
        }
        let is_v4 = first.field == Ipv4Header::PROTOCOL;
        let longest = MAXIMUM + if is_v4 { 0 } else { Ipv6Header::LENGTH };
        if first.header + payload > longest {
            return Err(DropReason::BadFragment);
        }
        let ecn = waiting.ecn()?;
        let waiting = self.remove(key).expect("it is there");
        Ok(Some(Whole { pieces: waiting.pieces, first, payload, ecn }))
    }

    /// Takes a packet out of the table. Its chunks stay in use.
    fn remove(&mut self, key: &Key) -> Option<Waiting> {
        let waiting = self.packets.remove(key)?;
        let owner = key.owner();
        self.order.remove(&waiting.number);
        self.order_of_owner.remove(&(owner, waiting.number));
        if let Some(held) = self.held.get_mut(&owner) {
            held.packets -= 1;
            held.chunks -= waiting.chunks();
            if held.packets == 0 {
                self.held.remove(&owner);
            }
        }
        Some(waiting)
    }

    fn drop_packet(&mut self, key: &Key, reason: DropReason, drops: &DropCounters) {
        if let Some(waiting) = self.remove(key) {
            drops.count(reason, waiting.pieces.len());
            waiting.pieces.into_iter().for_each(|piece| self.chunks.free(piece.list));
        }
    }

    /// Drops all fragments of a packet, later ones too (RFC 5722).
    fn refuse(&mut self, key: &Key, reason: DropReason, drops: &DropCounters) {
        let Some(waiting) = self.packets.get_mut(key) else { return };
        waiting.refused = Some(reason);
        let chunks = waiting.chunks();
        drops.count(reason, waiting.pieces.len());
        for piece in waiting.pieces.drain(..) {
            self.chunks.free(piece.list);
        }
        waiting.first = None;
        if let Some(held) = self.held.get_mut(&key.owner()) {
            held.chunks -= chunks;
        }
    }
}

impl Waiting {
    fn new(number: u64, began: Time) -> Self {
        let (pieces, first, total, refused) = (ArrayVec::new(), None, None, None);
        Self { number, began, pieces, received: 0, total, first, ecn: 0, refused }
    }

    fn chunks(&self) -> usize {
        let header =
            |piece: &Piece| if piece.offset == 0 { self.first.map_or(0, |first| first.header) } else { 0 };
        self.pieces.iter().map(|piece| Chunks::needed(header(piece) + usize::from(piece.length))).sum()
    }

    /// Where a fragment belongs among the pieces.
    fn place(&self, fragment: &Fragment, is_same: impl Fn(&Piece) -> bool) -> Result<usize, DropReason> {
        if let Some(reason) = self.refused {
            return Err(reason);
        }
        let range = fragment.offset..fragment.offset + fragment.payload.len();
        let is_beyond =
            self.total.is_some_and(|total| range.end > total || fragment.is_last && range.end != total);
        let is_before =
            fragment.is_last && self.pieces.last().is_some_and(|last| last.range().end > range.end);
        if is_beyond || is_before {
            return Err(DropReason::OverlappingFragments);
        }
        let place = self.pieces.partition_point(|piece| usize::from(piece.offset) < range.start);
        let behind = self.pieces.get(place);
        if let Some(same) = behind.filter(|piece| piece.range() == range)
            && is_same(same)
        {
            return Err(DropReason::DuplicateFragment);
        }
        let before = place.checked_sub(1).map(|place| &self.pieces[place]);
        if before.is_some_and(|piece| piece.range().end > range.start)
            || behind.is_some_and(|piece| piece.range().start < range.end)
        {
            return Err(DropReason::OverlappingFragments);
        }
        if self.pieces.is_full() { Err(DropReason::ReassemblyFull) } else { Ok(place) }
    }

    /// Notes what a fragment says that is kept.
    fn note(&mut self, fragment: &Fragment, packet: &[u8]) {
        let &Fragment { header, field, protocol, .. } = fragment;
        self.received += fragment.payload.len();
        if fragment.is_last {
            self.total = Some(fragment.offset + fragment.payload.len());
        }
        if fragment.offset == 0 {
            self.first = Some(First { header, field, protocol });
        }
        let field = if packet[0] >> 4 == 4 { packet[1] } else { packet[0] << 4 | packet[1] >> 4 };
        self.ecn |= 1 << (field & ecn::MASK);
    }

    /// The ECN field of the whole, if a fragment was marked (RFC 3168 section 5.3).
    fn ecn(&self) -> Result<Option<u8>, DropReason> {
        let has = |field: u8| self.ecn >> field & 1 == 1;
        match (has(ecn::CE), has(ecn::NOT_ECT)) {
            (true, true) => Err(DropReason::EcnNotCapable),
            (true, false) => Ok(Some(ecn::CE)),
            (false, _) => Ok(None),
        }
    }
}

/// Makes the headers of the first fragment those of the whole packet. It may be cut again, as its sender did: without "don't fragment".
fn finish(packet: &mut [u8], first: First, payload: usize) {
    packet[first.field] = first.protocol;
    if packet[0] >> 4 == 4 {
        let total = (first.header + payload) as u16;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[6..8].fill(0);
        packet[10..12].fill(0);
        let checksum = Sum::of(&packet[..first.header]).checksum();
        packet[10..12].copy_from_slice(&checksum);
    } else {
        let length = (first.header - Ipv6Header::LENGTH + payload) as u16;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
    }
}
