//! The inside port: a kernel TUN interface, which is read and written in super-packets.
//!
//! ```text
//! kernel ── super-packet of up to 64 KiB ──> read ──> segment ──> packets of the batch
//! kernel <── super-packet ── write <── coalesce <── packets of the batch
//! ```

pub mod coalesce;
pub mod device;
pub mod segment;
pub mod virtio;

pub use device::{TunDevice, TunError};

use crate::moderation::Moderation;
use crate::offload::State;
use crate::{Offload, Offloads, Pace, Receive, Tally, Transmit, Wake};
use coalesce::{Coalescer, Group, MAXIMUM_PACKETS, SuperPacket};
use packet::{Batch, DropCounters, DropReason, Slab};
use rustix::io::Errno;
use segment::Segmenter;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Instant;
use virtio::VirtioHeader;
use zerocopy::IntoBytes;

/// After this number of consecutively refused super-packets, the offload is disabled: some kernels of 2024 accept
/// none (tailscale issue 13041), while others refuse a single unusual one.
const REFUSALS: u32 = 16;
/// The size of a batch: one super-packet of ordinary segments, and a burst before it.
pub const BATCH_BYTES: usize = 256 * 1024;

/// Reads packets from the interface.
pub struct TunReceive {
    device: Arc<TunDevice>,
    /// The number of the queue that it reads.
    queue: usize,
    offloads: Arc<Offloads>,
    staging: Slab,
    /// Whether packets may be ready to be read.
    ready: bool,
    /// A super-packet that did not fit into the last batch: its length, and its segmenter.
    unfinished: Option<(usize, Segmenter)>,
    /// The most packets that are collected.
    most: usize,
    moderation: Moderation,
    tally: Arc<Tally>,
}

/// Writes packets to the interface.
pub struct TunTransmit {
    device: Arc<TunDevice>,
    /// The number of its thread's queue.
    queue: usize,
    offloads: Arc<Offloads>,
    coalescer: Coalescer,
    /// The number of consecutively refused super-packets.
    refused: u32,
    tally: Arc<Tally>,
    /// Packets of the last batch that the interface refused, while a capture wants drops.
    lost: Vec<usize>,
}

/// The two halves of an interface with one queue.
pub fn halves(device: Arc<TunDevice>, offloads: Arc<Offloads>) -> (TunReceive, TunTransmit) {
    halves_of(device, 0, offloads)
}

/// The two halves of a queue, by its number.
pub fn halves_of(device: Arc<TunDevice>, queue: usize, offloads: Arc<Offloads>) -> (TunReceive, TunTransmit) {
    let receive = TunReceive {
        device: Arc::clone(&device),
        queue,
        offloads: Arc::clone(&offloads),
        // One byte more than the largest super-packet, to detect one that is too long.
        staging: Slab::new(packet::header::ip::MAXIMUM + 1),
        ready: true,
        unfinished: None,
        most: usize::MAX,
        moderation: Moderation::default(),
        tally: Arc::default(),
    };
    (receive, TunTransmit::new(device, offloads).of_queue(queue))
}

impl Receive for TunReceive {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        let before = batch.len();
        // A super-packet is sent before the next one is read, while single packets are collected into one send.
        let burst = Pace::now().burst.min(self.most);
        if self.unfinished.is_some() {
            self.cut(batch);
        }
        while self.ready && self.unfinished.is_none() && batch.len() - before < burst {
            match self.read(drops) {
                Ok(()) => self.cut(batch),
                Err(Errno::AGAIN) => {
                    self.tally.empty();
                    self.ready = false;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.tally.burst(batch.len() - before);
        Ok(batch.len() - before)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        if self.unfinished.is_none() && !self.ready {
            let pause =
                Pace::now().pause().filter(|pause| self.moderation.is_worthwhile(Instant::now(), *pause));
            if let Some(pause) = pause {
                let [] = wake.wait_at_most([], Some(pause))?;
                self.ready = true;
            } else {
                [self.ready] = wake.wait([Some(self.device.reads(self.queue))])?;
            }
            self.tally.wake_up();
        }
        Ok(())
    }
}

impl TunReceive {
    /// Collects no packets: each is sent before the next is read.
    pub fn take_singly(&mut self) {
        self.most = 1;
    }

    /// Counts its calls in `tally`.
    #[must_use]
    pub fn counted(self, tally: Arc<Tally>) -> Self {
        Self { tally, ..self }
    }

    /// Reads one packet or super-packet into the staging area.
    fn read(&mut self, drops: &DropCounters) -> Result<(), Errno> {
        let mut header = VirtioHeader::default();
        let staging = self.staging.bytes_mut();
        let mut pieces = [IoSliceMut::new(header.as_mut_bytes()), IoSliceMut::new(staging)];
        let length = rustix::io::readv(self.device.reads(self.queue), &mut pieces)?
            .saturating_sub(VirtioHeader::LENGTH);
        self.tally.receive(length);
        match Segmenter::new(&header, &mut staging[..length]) {
            Ok(segmenter) => self.unfinished = Some((length, segmenter)),
            // The kernel delivered an invalid super-packet.
            Err(_) => drops.count(DropReason::BadOffload, 1),
        }
        Ok(())
    }

    /// Segments the super-packet in the staging area into the batch, as far as it has room; the segments are one
    /// train.
    fn cut(&mut self, batch: &mut Batch) {
        let Some((length, mut segmenter)) = self.unfinished else { return };
        let first = batch.len();
        let done = segmenter.write(&self.staging.bytes()[..length], batch);
        batch.close_train(first, None, 0);
        self.unfinished = (!done).then_some((length, segmenter));
        let segments = batch.len() - first;
        self.moderation.note(1, segments);
        if segments > 1 {
            let offload = if segmenter.is_udp() { &self.offloads.tun_uso } else { &self.offloads.tun_tso };
            offload.count(segments);
        }
    }
}

impl TunTransmit {
    /// Creates a further sending half, for packets from other threads than the worker.
    pub fn new(device: Arc<TunDevice>, offloads: Arc<Offloads>) -> Self {
        let (coalescer, tally) = (Coalescer::default(), Arc::default());
        Self { device, queue: 0, offloads, coalescer, refused: 0, tally, lost: Vec::new() }
    }

    /// The same for the thread of this queue.
    #[must_use]
    pub fn of_queue(self, queue: usize) -> Self {
        Self { queue, ..self }
    }

    /// Counts its calls in `tally`.
    #[must_use]
    pub fn counted(self, tally: Arc<Tally>) -> Self {
        Self { tally, ..self }
    }

    /// Writes the groups of the last batch by calls of `write`.
    fn write_groups(
        &mut self,
        batch: &Batch,
        drops: &DropCounters,
        write: impl Fn(&[IoSlice<'_>]) -> Result<(), Errno>,
    ) {
        for group in self.coalescer.groups() {
            if group.count > 1 {
                let outcome = self.write_super_packet(batch, group, &write);
                self.refused = note(&self.offloads.tun_gro, self.refused, group.count, outcome);
                match outcome {
                    Ok(()) => continue,
                    // The interface is down or deleted: writing single packets would fail as well.
                    Err(Errno::IO | Errno::BADFD) => {
                        drops.count(DropReason::InsideRefused, group.count);
                        if batch.notes_drops() {
                            self.lost.extend(self.coalescer.packets(group));
                        }
                        continue;
                    }
                    Err(_) => {}
                }
            }
            for index in self.coalescer.packets(group) {
                let pieces =
                    [IoSlice::new(const { &[0; VirtioHeader::LENGTH] }), IoSlice::new(batch.packet(index))];
                if write(&pieces).is_err() {
                    drops.count(DropReason::InsideRefused, 1);
                    if batch.notes_drops() {
                        self.lost.push(index);
                    }
                }
            }
        }
    }

    fn write_super_packet(
        &self,
        batch: &Batch,
        group: &Group,
        write: impl Fn(&[IoSlice<'_>]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let last = self.coalescer.packets(group).last().unwrap_or(group.first);
        let whole = SuperPacket::new(group, batch.packet(group.first), batch.packet(last));
        let headers = whole.headers().len();
        let mut pieces = arrayvec::ArrayVec::<IoSlice<'_>, { MAXIMUM_PACKETS + 2 }>::new();
        pieces.push(IoSlice::new(whole.virtio.as_bytes()));
        pieces.push(IoSlice::new(whole.headers()));
        pieces
            .extend(self.coalescer.packets(group).map(|index| IoSlice::new(&batch.packet(index)[headers..])));
        write(&pieces)
    }
}

/// Records the outcome of writing a super-packet of `count` packets; returns the number of consecutive refusals.
fn note(tun_gro: &Offload, refused: u32, count: usize, outcome: Result<(), Errno>) -> u32 {
    match outcome {
        Ok(()) => {
            tun_gro.count(count);
            return 0;
        }
        Err(Errno::IO | Errno::BADFD) => return refused,
        Err(_) => tun_gro.count_fallback(),
    }
    let refused = refused + u32::from(outcome == Err(Errno::INVAL));
    if refused < REFUSALS {
        return refused;
    }
    tun_gro.set(State::Failed);
    0
}

impl Transmit for TunTransmit {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        self.coalescer.group(batch, self.offloads.tun_gro.is_on(), self.offloads.tun_uso.is_on());
        let (device, queue, tally) = (Arc::clone(&self.device), self.queue, Arc::clone(&self.tally));
        self.write_groups(batch, drops, |pieces| {
            let outcome = write(&device, queue, pieces);
            let sent = if outcome.is_ok() { pieces.iter().map(|piece| piece.len()).sum() } else { 0 };
            tally.send(sent);
            outcome
        });
        for index in self.lost.drain(..) {
            batch.note_drop(index, DropReason::InsideRefused);
        }
    }
}

fn write(device: &TunDevice, queue: usize, pieces: &[IoSlice<'_>]) -> Result<(), Errno> {
    if device.is_null() {
        return Ok(());
    }
    loop {
        match rustix::io::writev(device.writes(queue), pieces) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::checksum::Sum;
    use packet::header::ip::UDP;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
    use std::cell::Cell;
    use std::os::fd::OwnedFd;

    /// The receiving half of an interface, and the descriptor that stands for the kernel.
    fn interface() -> (TunReceive, OwnedFd) {
        let (ours, kernel) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None)
                .expect("there are descriptors left");
        (halves(Arc::new(ours.into()), Arc::default()).0, kernel)
    }

    /// Four datagrams of one flow; the third is longer and starts a new group.
    fn datagrams() -> Batch {
        let mut batch = Batch::new(BATCH_BYTES);
        for payload in [100, 100, 200, 200] {
            let packet = batch.append(28 + payload).expect("it fits");
            packet.fill(0);
            packet[..4].copy_from_slice(&[0x45, 0, 0, 28 + payload as u8]);
            packet[6..20].copy_from_slice(&[0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            packet[20..26].copy_from_slice(&[0, 7, 0, 7, 0, 8 + payload as u8]);
            let header = Sum::of(&packet[..20]).checksum();
            packet[10..12].copy_from_slice(&header);
            let pseudo = Sum::pseudo_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), UDP, 8 + payload);
            let checksum = (pseudo + Sum::of(&packet[20..])).checksum();
            packet[26..28].copy_from_slice(&checksum);
        }
        batch
    }

    /// An interface that answers super-packets with `merged`, and accepts all other packets.
    struct Sink {
        transmit: TunTransmit,
        batch: Batch,
        drops: DropCounters,
        single: Cell<usize>,
    }

    impl Sink {
        fn new() -> Self {
            let transmit = TunTransmit::new(Arc::new(interface().1.into()), Arc::default());
            transmit.offloads.tun_gro.set(State::On);
            Self { transmit, batch: datagrams(), drops: DropCounters::default(), single: Cell::new(0) }
        }

        fn write(&mut self, merged: Result<(), Errno>) {
            self.transmit.coalescer.group(&self.batch, true, true);
            self.transmit.write_groups(&self.batch, &self.drops, |pieces| {
                let is_single = pieces.len() == 2;
                self.single.set(self.single.get() + usize::from(is_single));
                if is_single { Ok(()) } else { merged }
            });
        }

        /// The state, the number of repeated calls, of packets written singly, and of lost packets.
        fn outcome(&self) -> (State, u64, usize, u64) {
            let tun_gro = &self.transmit.offloads.tun_gro;
            let lost = self.drops.read(DropReason::InsideRefused);
            (tun_gro.state(), tun_gro.counters().2, self.single.get(), lost)
        }
    }

    #[test]
    fn a_refused_super_packet_is_written_packet_by_packet() {
        for error in [Errno::INVAL, Errno::NOMEM, Errno::NOBUFS, Errno::AGAIN, Errno::MSGSIZE] {
            let mut sink = Sink::new();
            sink.write(Err(error));
            assert_eq!(sink.outcome(), (State::On, 2, 4, 0), "{error}");
        }
        for error in [Errno::IO, Errno::BADFD] {
            let mut sink = Sink::new();
            sink.write(Err(error));
            assert_eq!(sink.outcome(), (State::On, 0, 0, 4), "{error}");
        }
    }

    #[test]
    fn merging_is_disabled_only_after_consecutive_refusals() {
        let mut sink = Sink::new();
        for _ in 0..REFUSALS {
            sink.write(Err(Errno::INVAL));
            sink.write(Ok(()));
        }
        assert_eq!(sink.outcome().0, State::On);
        for _ in 0..REFUSALS {
            assert_eq!(sink.outcome().0, State::On);
            sink.write(Err(Errno::NOMEM));
        }
        for _ in 0..REFUSALS / 2 {
            assert_eq!(sink.outcome().0, State::On);
            sink.write(Err(Errno::INVAL));
        }
        assert_eq!((sink.outcome().0, sink.outcome().3), (State::Failed, 0));
    }

    fn bring(kernel: &OwnedFd, header: VirtioHeader, packet: &[u8]) {
        send(kernel, &[header.as_bytes(), packet].concat(), SendFlags::empty()).expect("there is room");
    }

    #[test]
    fn an_empty_interface_is_not_read_again_before_the_next_wait() {
        let (mut receive, kernel) = interface();
        let (mut batch, drops) = (Batch::new(BATCH_BYTES), DropCounters::default());
        bring(&kernel, VirtioHeader::default(), b"one");
        assert_eq!(receive.receive(&mut batch, &drops).expect("readable"), 1);
        bring(&kernel, VirtioHeader::default(), b"two");
        assert_eq!(receive.receive(&mut batch, &drops).expect("no call at all"), 0);
        receive.wait(&Wake::new().expect("there are descriptors left")).expect("poll works");
        assert_eq!(receive.receive(&mut batch, &drops).expect("readable"), 1);
        assert_eq!(batch.packet(1), b"two");
    }

    #[test]
    fn a_header_that_contradicts_its_packet_is_counted() {
        let (mut receive, kernel) = interface();
        let (mut batch, drops) = (Batch::new(BATCH_BYTES), DropCounters::default());
        bring(&kernel, VirtioHeader { gso_type: VirtioHeader::GSO_UDP, ..VirtioHeader::default() }, b"one");
        bring(&kernel, VirtioHeader::default(), b"two");
        assert_eq!(receive.receive(&mut batch, &drops).expect("readable"), 1);
        assert_eq!((batch.packet(0), drops.read(DropReason::BadOffload)), (&b"two"[..], 1));
    }
}
