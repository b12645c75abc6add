//! One TCP connection: the begin of a packet whose end has not arrived, and packets that wait to be sent.

use super::framing::LENGTH;
use arrayvec::ArrayVec;
use packet::{Batch, DropCounters, DropReason};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sendmsg, shutdown};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Packets of one call: more than a super-packet of TUN has.
const CALL: usize = 128;

/// A connection. The receiving worker reads; any thread sends.
pub(super) struct Connection {
    pub(super) number: u64,
    pub(super) remote: SocketAddr,
    pub(super) socket: OwnedFd,
    /// The begin of a packet.
    pub(super) begun: Mutex<Vec<u8>>,
    /// Whether its session has authenticated.
    pub(super) is_trusted: AtomicBool,
    /// Whether a whole packet has come.
    pub(super) has_spoken: AtomicBool,
    /// Whether it was opened here, and the peer has not accepted it.
    pub(super) is_connecting: AtomicBool,
    queue: Mutex<Queue>,
}

/// What waits to be sent.
#[derive(Default)]
struct Queue {
    bytes: VecDeque<u8>,
    /// The bytes of each packet, or of the rest of the first.
    lengths: VecDeque<usize>,
    /// Whether the connection ends when nothing waits.
    is_last: bool,
}

/// The outcome of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Nothing waits.
    All,
    /// Packets wait until the socket is writable.
    Waits,
    /// The connection is broken.
    Broken,
}

impl Connection {
    pub(super) fn new(number: u64, remote: SocketAddr, socket: OwnedFd, is_connecting: bool) -> Self {
        Self {
            number,
            remote,
            socket,
            begun: Mutex::default(),
            is_trusted: AtomicBool::new(is_connecting),
            has_spoken: AtomicBool::new(is_connecting),
            is_connecting: AtomicBool::new(is_connecting),
            queue: Mutex::default(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends packets of a batch, and discards those that neither leave nor fit into the queue of `limit` packets.
    ///
    /// `watch` is called before the queue is unlocked, if packets begin to wait for a writable socket.
    pub(super) fn send(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        limit: usize,
        drops: &DropCounters,
        watch: impl FnOnce(),
    ) -> Sent {
        for index in packets.clone() {
            frame(batch, index);
        }
        let mut queue = self.queue();
        let has_waited = !queue.bytes.is_empty();
        if queue.is_last {
            // A late packet does not cut off what the peer is told last.
            discard(batch, packets, DropReason::SendFailed, drops);
            return Sent::All;
        }
        let written = if has_waited { Ok((packets.start, 0)) } else { self.write(batch, packets.clone()) };
        let Ok((next, sent)) = written else {
            discard(batch, packets, DropReason::SendFailed, drops);
            return Sent::Broken;
        };
        queue.push_all(batch, next..packets.end, sent, limit, drops);
        if !has_waited && !queue.bytes.is_empty() {
            watch();
        }
        packets.for_each(|index| unframe(batch, index));
        if queue.bytes.is_empty() { Sent::All } else { Sent::Waits }
    }

    /// Writes packets until the socket takes no more; returns the first one that is not sent, and the bytes of it that are.
    fn write(&self, batch: &Batch, packets: Range<usize>) -> Result<(usize, usize), Errno> {
        let mut next = packets.start;
        loop {
            let slices: ArrayVec<IoSlice<'_>, CALL> = batch
                .live(next..packets.end)
                .take(CALL)
                .map(|index| IoSlice::new(batch.packet(index)))
                .collect();
            if slices.is_empty() {
                return Ok((packets.end, 0));
            }
            let Some(mut sent) = self.write_slices(&slices)? else { return Ok((next, 0)) };
            for index in batch.live(next..packets.end).take(slices.len()) {
                let length = batch.packet(index).len();
                if sent < length {
                    return Ok((index, sent));
                }
                sent -= length;
                next = index + 1;
            }
        }
    }

    /// Makes one call; `None` if the socket takes nothing.
    fn write_slices(&self, slices: &[IoSlice<'_>]) -> Result<Option<usize>, Errno> {
        loop {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.socket, slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => return Ok(Some(sent)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends what waits, as the socket is writable. `unwatch` is called before the queue is unlocked, if nothing waits then.
    pub(super) fn flush(&self, unwatch: impl FnOnce()) -> Sent {
        let mut queue = self.queue();
        while !queue.bytes.is_empty() {
            let (first, second) = queue.bytes.as_slices();
            match self.write_slices(&[IoSlice::new(first), IoSlice::new(second)]) {
                Ok(Some(sent)) => queue.remove(sent),
                Ok(None) => return Sent::Waits,
                Err(_) => return Sent::Broken,
            }
        }
        unwatch();
        if queue.is_last {
            self.shut(Shutdown::Write);
        }
        Sent::All
    }

    /// Tells the peer that nothing more comes, after what waits.
    pub(super) fn finish(&self) {
        let mut queue = self.queue();
        queue.is_last = true;
        if queue.bytes.is_empty() {
            self.shut(Shutdown::Write);
        }
    }

    /// Ends the connection; the receiving worker reads its end.
    pub(super) fn end(&self) {
        self.shut(Shutdown::Both);
    }

    fn shut(&self, how: Shutdown) {
        // The only error is that the peer has ended it already.
        let _ = shutdown(&self.socket, how);
    }
}

impl Queue {
    /// Adds packets, and of the first one only what follows `sent` bytes: the peer has its begin.
    fn push_all(
        &mut self,
        batch: &mut Batch,
        packets: Range<usize>,
        mut sent: usize,
        limit: usize,
        drops: &DropCounters,
    ) {
        let mut refused = 0;
        for index in packets {
            if !batch.is_live(index) {
                continue;
            }
            if sent == 0 && self.lengths.len() >= limit {
                batch.note_drop(index, DropReason::TcpQueueFull);
                batch.discard(index);
                refused += 1;
                continue;
            }
            let rest = &batch.packet(index)[std::mem::take(&mut sent)..];
            self.bytes.extend(rest);
            self.lengths.push_back(rest.len());
        }
        drops.count(DropReason::TcpQueueFull, refused);
    }

    /// Removes sent bytes.
    fn remove(&mut self, mut sent: usize) {
        self.bytes.drain(..sent);
        while let Some(length) = self.lengths.front_mut() {
            if sent < *length {
                *length -= sent;
                return;
            }
            sent -= *length;
            self.lengths.pop_front();
        }
    }
}

/// Puts the length before a packet, in its headroom.
fn frame(batch: &mut Batch, index: usize) {
    if batch.is_live(index) {
        let length = batch.packet(index).len() as u16;
        batch.grow(index, LENGTH, 0);
        batch.packet_mut(index)[..LENGTH].copy_from_slice(&length.to_be_bytes());
    }
}

/// Removes the length again: the caller counts packets without it.
fn unframe(batch: &mut Batch, index: usize) {
    if batch.is_live(index) {
        let length = batch.packet(index).len() - LENGTH;
        batch.shrink(index, LENGTH, length);
    }
}

/// Counts packets, and discards them.
pub(super) fn discard(batch: &mut Batch, packets: Range<usize>, reason: DropReason, drops: &DropCounters) {
    drops.count(reason, batch.live(packets.clone()).count());
    batch.note_drops_of(packets.clone(), reason);
    packets.for_each(|index| batch.discard(index));
}
