//! Captures of an interface's packets: workers ──> [`Ring`] ──> a reader.
//!
//! ```text
//! outbound  classify … assign, encrypt: inner packets     wrap, transmit: outer packets
//! inbound   receive … accept: outer packets, as received  admit … transmit: inner packets
//! ```
//! A packet that is carried is captured between `fit` and `assign`, or between `forward` and `relay`: there it is an inner packet, and its
//! peer is known. A packet that is dropped is captured with the stage and the reason. A worker never waits for the reader: packets for which
//! the ring has no room are counted. Each captured packet costs the worker a copy.

use super::tables::Peer;
use super::{INBOUND, OUTBOUND, SaBatch, Stage, admit, encrypt};
use arc_swap::ArcSwap;
use crossbeam_channel::{Receiver, Sender, bounded};
use packet::{Batch, DropReason, Endpoint};
use serde::Deserialize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The bounds of what is kept of a packet, in bytes.
pub const SNAP_LENGTHS: std::ops::RangeInclusive<usize> = 64..=65_535;
/// Bytes of a ring.
const RING_BYTES: usize = 8 << 20;
/// The fewest and the most packets of a ring.
const RING_PACKETS: [usize; 2] = [128, 8_192];

/// Which packets are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// Those that are carried.
    #[default]
    Carried,
    /// Those that are carried, and those that stages drop.
    All,
    /// Those that stages drop.
    Dropped,
}

/// What a capture wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Only packets of the peer with this name.
    pub peer: Option<String>,
    /// Which of its packets.
    pub which: Which,
    /// Bytes that are kept of a packet, one of [`SNAP_LENGTHS`].
    pub snap_length: usize,
}

/// Whether a stage has packets as they are outside. Inbound these are the stages before `admit`, outbound those behind `encrypt`. What
/// `encrypt` itself drops is not sealed: its engine has failed.
fn is_outer(direction: Direction, stage: &Stage) -> bool {
    let position = |stages: &[&Stage], of: &Stage| stages.iter().position(|it| it.name == of.name);
    match direction {
        Direction::Inbound => position(INBOUND, stage) < position(INBOUND, &admit::STAGE),
        Direction::Outbound => position(OUTBOUND, stage) > position(OUTBOUND, &encrypt::STAGE),
    }
}

/// The direction of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the outside to the inside.
    #[default]
    Inbound,
    /// From the inside to the outside.
    Outbound,
}

/// What the bytes of a packet are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layer {
    /// An IP packet of the inside.
    #[default]
    Inner,
    /// What a datagram carries, or ESP, from or to this endpoint.
    Outer(Option<Endpoint>),
}

/// A captured packet.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// When its burst was received, since 1970.
    pub at: Duration,
    /// Its direction.
    pub direction: Direction,
    /// What its bytes are.
    pub layer: Layer,
    /// The reason and the stage, if it was dropped.
    pub drop: Option<(DropReason, &'static str)>,
    /// The peer, if it is known.
    pub peer: Option<Arc<String>>,
    /// Its length.
    pub length: usize,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

/// The bounded ring between workers and a reader. All its memory is taken when it is made.
pub struct Ring {
    wanted: Wanted,
    free: (Sender<Box<Captured>>, Receiver<Box<Captured>>),
    full: (Sender<Box<Captured>>, Receiver<Box<Captured>>),
    lost: AtomicU64,
}

impl Ring {
    /// An empty ring.
    pub fn new(wanted: Wanted) -> Self {
        let snap_length = wanted.snap_length.clamp(*SNAP_LENGTHS.start(), *SNAP_LENGTHS.end());
        let count = (RING_BYTES / snap_length).clamp(RING_PACKETS[0], RING_PACKETS[1]);
        let (free, full) = (bounded(count), bounded(count));
        for _ in 0..count {
            let packet = Captured { bytes: Vec::with_capacity(snap_length), ..Captured::default() };
            free.0.try_send(Box::new(packet)).expect("it has this room");
        }
        Self { wanted: Wanted { snap_length, ..wanted }, free, full, lost: AtomicU64::new(0) }
    }

    /// What it is for.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Packets for which it had no room.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The next packet, for the reader, which gives it back.
    pub fn take(&self) -> Option<Box<Captured>> {
        self.full.1.try_recv().ok()
    }

    /// Makes the room of a packet free.
    pub fn give_back(&self, packet: Box<Captured>) {
        // It has room for all of its packets.
        let _ = self.free.0.try_send(packet);
    }

    /// Frees the memory of its packets. A worker may still have the ring, and must not spend the time.
    fn close(&self) {
        self.free.1.try_iter().chain(self.full.1.try_iter()).for_each(drop);
    }

    fn wants(&self, peer: Option<&Arc<String>>, is_dropped: bool) -> bool {
        let is_kind = match self.wanted.which {
            Which::Carried => !is_dropped,
            Which::All => true,
            Which::Dropped => is_dropped,
        };
        is_kind && self.wanted.peer.as_ref().is_none_or(|wanted| peer.is_some_and(|peer| **peer == *wanted))
    }

    /// Adds a packet, or counts it as lost.
    fn put(&self, about: &About<'_>, bytes: &[u8], length: usize) {
        let Ok(mut packet) = self.free.1.try_recv() else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let About { at, direction, layer, drop, peer } = *about;
        let kept = &bytes[..bytes.len().min(self.wanted.snap_length)];
        packet.bytes.clear();
        packet.bytes.extend_from_slice(kept);
        let (peer, bytes) = (peer.cloned(), std::mem::take(&mut packet.bytes));
        *packet = Captured { at, direction, layer, drop, peer, length, bytes };
        // It has room for all of its packets.
        let _ = self.full.0.try_send(packet);
    }
}

/// A captured packet without its bytes.
#[derive(Clone, Copy)]
struct About<'a> {
    at: Duration,
    direction: Direction,
    layer: Layer,
    drop: Option<(DropReason, &'static str)>,
    peer: Option<&'a Arc<String>>,
}

/// The captures of an interface.
#[derive(Default)]
pub struct Captures {
    is_on: AtomicBool,
    rings: ArcSwap<Vec<Arc<Ring>>>,
    /// Held while `rings` changes: `is_on` must agree with it.
    changing: Mutex<()>,
}

impl Captures {
    /// Begins a capture. The caller bounds how many there are.
    pub fn open(self: &Arc<Self>, wanted: Wanted) -> OpenCapture {
        let ring = Arc::new(Ring::new(wanted));
        self.change(|rings| rings.push(Arc::clone(&ring)));
        OpenCapture { captures: Arc::clone(self), ring }
    }

    fn change(&self, change: impl Fn(&mut Vec<Arc<Ring>>)) {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rings = Vec::clone(&self.rings.load());
        change(&mut rings);
        let is_on = !rings.is_empty();
        self.rings.store(Arc::new(rings));
        self.is_on.store(is_on, Ordering::Relaxed);
    }
}

/// A capture, until it is dropped.
pub struct OpenCapture {
    captures: Arc<Captures>,
    ring: Arc<Ring>,
}

impl OpenCapture {
    /// Where its packets are.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Whether the interface is gone: this is the last reference to its captures.
    pub fn is_over(&self) -> bool {
        Arc::strong_count(&self.captures) == 1
    }
}

impl Drop for OpenCapture {
    fn drop(&mut self) {
        self.captures.change(|rings| rings.retain(|ring| !Arc::ptr_eq(ring, &self.ring)));
        self.ring.close();
    }
}

/// A packet that `route` refused: it is still in the batch.
pub struct Refused {
    /// Which packets.
    pub packets: Range<usize>,
    /// Why.
    pub reason: DropReason,
    /// Their peer, if there is one.
    pub peer: Option<Arc<Peer>>,
}

/// A worker's view of the captures of its interface, during one burst.
#[derive(Default)]
pub struct Tap {
    direction: Direction,
    /// The captures when the burst began; `None` without a capture.
    rings: Option<Arc<Vec<Arc<Ring>>>>,
    wants_drops: bool,
    at: Duration,
    /// The peers of the packets, as far as they are known, in the order of the packets; for drops only.
    owners: Vec<(Range<usize>, Option<Arc<String>>)>,
    /// The packets as they were received, as decryption is in place: their first bytes, then the end and the whole length of each.
    received: (Vec<u8>, Vec<(usize, usize)>),
}

impl Tap {
    /// For bursts that go this way.
    pub fn new(direction: Direction) -> Self {
        Self { direction, ..Self::default() }
    }

    /// A burst begins. Without captures, this is all that the worker does.
    #[inline]
    pub fn begin(&mut self, captures: &Captures, batch: &mut Batch) {
        if captures.is_on.load(Ordering::Relaxed) || self.rings.is_some() {
            self.join(captures, batch);
        }
    }

    #[cold]
    fn join(&mut self, captures: &Captures, batch: &mut Batch) {
        let rings = captures.rings.load_full();
        self.wants_drops = rings.iter().any(|ring| ring.wanted.which != Which::Carried);
        batch.set_notes_drops(self.wants_drops);
        if rings.is_empty() {
            // The last capture has ended: its buffers are freed, too.
            *self = Self::new(self.direction);
            return;
        }
        self.rings = Some(rings);
        self.at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.owners.clear();
        self.received.0.clear();
        self.received.1.clear();
    }

    /// Whether there are captures.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.rings.is_some()
    }

    /// Whether there are captures of dropped packets.
    #[inline]
    pub fn wants_drops(&self) -> bool {
        self.wants_drops
    }

    /// Copies the packets as they were received, for those that are dropped after decryption in place.
    #[cold]
    pub fn keep_received(&mut self, batch: &Batch) {
        let snap_length =
            self.rings.iter().flat_map(|rings| rings.iter()).map(|ring| ring.wanted.snap_length).max();
        let (bytes, ends) = &mut self.received;
        for index in 0..batch.len() {
            let packet = batch.packet(index);
            bytes.extend_from_slice(&packet[..packet.len().min(snap_length.unwrap_or_default())]);
            ends.push((bytes.len(), packet.len()));
        }
    }

    /// Notes the peers of packets, for the drops that follow.
    #[cold]
    pub fn note_owners<'p>(&mut self, owners: impl Iterator<Item = (Range<usize>, &'p Peer)>) {
        self.owners.clear();
        self.owners.extend(owners.map(|(packets, peer)| (packets, peer.name())));
        self.owners.sort_by_key(|(packets, _)| packets.start);
    }

    /// The same of SA batches.
    pub fn note_senders(&mut self, sa_batches: &[SaBatch<'_>]) {
        self.note_owners(sa_batches.iter().map(|it| (it.packets.clone(), &*it.session().peer)));
    }

    /// Captures packets of a peer that the tunnel carries.
    #[cold]
    pub fn carry(&mut self, packets: Range<usize>, peer: &Peer, batch: &Batch) {
        let (name, rings) = (peer.name(), self.rings.as_deref().map_or(&[][..], Vec::as_slice));
        let about = About {
            at: self.at,
            direction: self.direction,
            layer: Layer::Inner,
            drop: None,
            peer: name.as_ref(),
        };
        for ring in rings.iter().filter(|ring| ring.wants(name.as_ref(), false)) {
            for index in batch.live(packets.clone()) {
                let bytes = batch.packet(index);
                ring.put(&about, bytes, bytes.len());
            }
        }
    }

    /// Captures the packets that a stage has dropped.
    #[cold]
    pub fn report(&mut self, stage: &'static Stage, batch: &mut Batch) {
        let is_outer = is_outer(self.direction, stage);
        for (index, reason, bytes) in batch.noted_drops() {
            let owner = containing(&self.owners, index, |(packets, _)| packets);
            let peer = owner.and_then(|(_, name)| name.as_ref());
            if is_outer {
                let train = containing(batch.trains(), index, |train| &train.packets);
                let layer = Layer::Outer(train.and_then(|train| train.endpoint));
                let kept = self.as_received(index).unwrap_or((bytes, bytes.len()));
                self.dropped(layer, (reason, stage.name), peer, kept);
            } else {
                self.dropped(Layer::Inner, (reason, stage.name), peer, (bytes, bytes.len()));
            }
        }
        batch.forget_noted_drops();
    }

    /// Captures the packets that `route` has refused.
    #[cold]
    pub fn report_refused(&mut self, stage: &'static Stage, refused: &mut Vec<Refused>, batch: &Batch) {
        for Refused { packets, reason, peer } in refused.drain(..) {
            let name = peer.and_then(|peer| peer.name());
            for index in batch.live(packets) {
                let bytes = batch.packet(index);
                self.dropped(Layer::Inner, (reason, stage.name), name.as_ref(), (bytes, bytes.len()));
            }
        }
    }

    /// Captures packets whose wait for a key has ended without one.
    #[cold]
    pub fn report_waiting<'b>(
        &mut self,
        stage: &'static Stage,
        reason: DropReason,
        peer: &Peer,
        packets: impl Iterator<Item = &'b [u8]>,
    ) {
        let name = peer.name();
        let drop = (reason, stage.name);
        packets.for_each(|bytes| self.dropped(Layer::Inner, drop, name.as_ref(), (bytes, bytes.len())));
    }

    fn dropped(
        &self,
        layer: Layer,
        drop: (DropReason, &'static str),
        peer: Option<&Arc<String>>,
        (bytes, length): (&[u8], usize),
    ) {
        let about = About { at: self.at, direction: self.direction, layer, drop: Some(drop), peer };
        for ring in self.rings.iter().flat_map(|rings| rings.iter()).filter(|ring| ring.wants(peer, true)) {
            ring.put(&about, bytes, length);
        }
    }

    /// The first bytes of a packet as it was received, and its length.
    fn as_received(&self, index: usize) -> Option<(&[u8], usize)> {
        let (bytes, ends) = &self.received;
        let start = if index == 0 { 0 } else { ends.get(index - 1)?.0 };
        let (end, length) = *ends.get(index)?;
        bytes.get(start..end).filter(|bytes| !bytes.is_empty()).map(|bytes| (bytes, length))
    }
}

/// The item whose packets have this index, of items in the order of their packets.
fn containing<T>(items: &[T], index: usize, packets: impl Fn(&T) -> &Range<usize>) -> Option<&T> {
    let next = items.partition_point(|item| packets(item).start <= index);
    items.get(next.checked_sub(1)?).filter(|item| packets(item).contains(&index))
}

#[cfg(test)]
#[path = "capture/tests.rs"]
mod tests;
