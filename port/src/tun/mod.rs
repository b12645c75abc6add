//! The inside port: a TUN interface of the kernel, from which super-packets come and to which they go.
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

use crate::offload::State;
use crate::{Offloads, Receive, Transmit, Wake};
use coalesce::{Coalescer, Group, MAXIMUM_PACKETS, SuperPacket};
use packet::{Batch, DropCounters, DropReason, Slab};
use rustix::io::Errno;
use segment::Segmenter;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::sync::Arc;
use virtio::VirtioHeader;
use zerocopy::IntoBytes;

/// No more is read once a batch has this many packets: a super-packet goes out before the next one is fetched, while
/// single packets are gathered into one send.
const BURST: usize = 32;
/// A batch holds a super-packet of ordinary segments and a burst before it.
pub const BATCH_BYTES: usize = 256 * 1024;

/// Reads packets from the interface.
pub struct TunReceive {
    device: Arc<TunDevice>,
    offloads: Arc<Offloads>,
    staging: Slab,
    /// A super-packet of which the last batch could not hold all: its length, and how far it is cut.
    unfinished: Option<(usize, Segmenter)>,
}

/// Writes packets to the interface.
pub struct TunTransmit {
    device: Arc<TunDevice>,
    offloads: Arc<Offloads>,
    coalescer: Coalescer,
}

/// The two halves of an interface.
pub fn halves(device: Arc<TunDevice>, offloads: Arc<Offloads>) -> (TunReceive, TunTransmit) {
    let receive = TunReceive {
        device: Arc::clone(&device),
        offloads: Arc::clone(&offloads),
        // A super-packet, and a byte more to notice one that is too long.
        staging: Slab::new(packet::header::ip::MAXIMUM + 1),
        unfinished: None,
    };
    (receive, TunTransmit::new(device, offloads))
}

impl Receive for TunReceive {
    fn receive(&mut self, batch: &mut Batch) -> io::Result<usize> {
        let before = batch.len();
        if self.unfinished.is_some() {
            self.cut(batch);
        }
        while self.unfinished.is_none() && batch.len() - before < BURST {
            match self.read() {
                Ok(()) => self.cut(batch),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(batch.len() - before)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        if self.unfinished.is_none() {
            wake.wait([Some(self.device.as_fd())])?;
        }
        Ok(())
    }
}

impl TunReceive {
    /// Reads one packet or super-packet into the staging area.
    fn read(&mut self) -> Result<(), Errno> {
        let mut header = VirtioHeader::default();
        let staging = self.staging.bytes_mut();
        let mut pieces = [IoSliceMut::new(header.as_mut_bytes()), IoSliceMut::new(staging)];
        let length = rustix::io::readv(&self.device, &mut pieces)?.saturating_sub(VirtioHeader::LENGTH);
        // A header that contradicts its packet would be a fault of the kernel; the packet is passed over.
        if let Ok(segmenter) = Segmenter::new(&header, &mut staging[..length]) {
            self.unfinished = Some((length, segmenter));
        }
        Ok(())
    }

    /// Cuts what is in the staging area into the batch, as far as it has room; the pieces are one train.
    fn cut(&mut self, batch: &mut Batch) {
        let Some((length, mut segmenter)) = self.unfinished else { return };
        let first = batch.len();
        let done = segmenter.write(&self.staging.bytes()[..length], batch);
        batch.close_train(first, None, 0);
        self.unfinished = (!done).then_some((length, segmenter));
        let segments = batch.len() - first;
        if segments > 1 {
            let offload = if segmenter.is_udp() { &self.offloads.tun_uso } else { &self.offloads.tun_tso };
            offload.count(segments);
        }
    }
}

impl TunTransmit {
    /// A further sending half, for whoever has packets for the inside besides the worker that brings them.
    pub fn new(device: Arc<TunDevice>, offloads: Arc<Offloads>) -> Self {
        Self { device, offloads, coalescer: Coalescer::default() }
    }

    /// Writes one group; a refused super-packet is written again packet by packet.
    fn write_group(&self, batch: &Batch, group: &Group, drops: &DropCounters) {
        if group.count > 1 {
            let last = self.coalescer.packets(group).last().unwrap_or(group.first);
            match self.write_super_packet(batch, group, last) {
                Ok(()) => return self.offloads.tun_gro.count(group.count),
                // Some kernels of 2024 take no super-packet at all (tailscale issue 13041).
                Err(Errno::INVAL) => {
                    self.offloads.tun_gro.count_fallback();
                    self.offloads.tun_gro.set(State::Failed);
                }
                Err(_) => return drops.count(DropReason::InsideRefused, group.count),
            }
        }
        for index in self.coalescer.packets(group) {
            let pieces =
                [IoSlice::new(const { &[0; VirtioHeader::LENGTH] }), IoSlice::new(batch.packet(index))];
            if write(&self.device, &pieces).is_err() {
                drops.count(DropReason::InsideRefused, 1);
            }
        }
    }

    fn write_super_packet(&self, batch: &Batch, group: &Group, last: usize) -> Result<(), Errno> {
        let whole = SuperPacket::new(group, batch.packet(group.first), batch.packet(last));
        let headers = whole.headers().len();
        let mut pieces = arrayvec::ArrayVec::<IoSlice<'_>, { MAXIMUM_PACKETS + 2 }>::new();
        pieces.push(IoSlice::new(whole.virtio.as_bytes()));
        pieces.push(IoSlice::new(whole.headers()));
        pieces
            .extend(self.coalescer.packets(group).map(|index| IoSlice::new(&batch.packet(index)[headers..])));
        write(&self.device, &pieces)
    }
}

impl Transmit for TunTransmit {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        self.coalescer.group(batch, self.offloads.tun_gro.is_on(), self.offloads.tun_uso.is_on());
        for group in self.coalescer.groups() {
            self.write_group(batch, group, drops);
        }
    }
}

fn write(device: &TunDevice, pieces: &[IoSlice<'_>]) -> Result<(), Errno> {
    loop {
        match rustix::io::writev(device, pieces) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}
