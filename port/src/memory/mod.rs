//! Ports in memory, for tests and benchmarks: one end receives what the other transmits.
//!
//! [`Link`] is unbounded and carries trains with their endpoints; [`ring()`] is bounded and carries frames between two threads.

mod ring;

pub use ring::{LONGEST, RingReceive, RingTransmit, ring};

use crate::{Receive, Transmit, Wake};
use packet::{Batch, DropCounters, Endpoint, Train};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Packets in flight in flat buffers: no allocation for each packet.
#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// The number of bytes already taken.
    taken: usize,
    /// The lengths of a train's packets, its endpoint and its DS field.
    trains: VecDeque<(Vec<usize>, Option<Endpoint>, u8)>,
    spare: Vec<Vec<usize>>,
}

/// A link of unlimited capacity, whose ends may be in different threads.
#[derive(Clone, Default)]
pub struct Link(Arc<Mutex<Queue>>);

impl Link {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts one train of packets on the link.
    pub fn push<'a>(
        &self,
        packets: impl IntoIterator<Item = &'a [u8]>,
        endpoint: Option<Endpoint>,
        ds_field: u8,
    ) {
        let mut queue = self.queue();
        let mut lengths = queue.spare.pop().unwrap_or_default();
        lengths.clear();
        for packet in packets {
            lengths.push(packet.len());
            queue.bytes.extend_from_slice(packet);
        }
        queue.trains.push_back((lengths, endpoint, ds_field));
    }

    /// Takes the next packet off the link.
    pub fn pop(&self) -> Option<Vec<u8>> {
        let mut queue = self.queue();
        while queue.trains.front()?.0.is_empty() {
            queue.trains.pop_front();
        }
        let length = queue.trains.front_mut()?.0.remove(0);
        let packet = queue.bytes[queue.taken..queue.taken + length].to_vec();
        queue.take(length);
        Some(packet)
    }
}

impl Queue {
    /// Removes `length` bytes; when none are left, the buffer is reset.
    fn take(&mut self, length: usize) {
        self.taken += length;
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        }
    }
}

impl Receive for Link {
    fn receive(&mut self, batch: &mut Batch, _: &DropCounters) -> io::Result<usize> {
        let before = batch.len();
        let mut queue = self.queue();
        while let Some((lengths, endpoint, ds_field)) = queue.trains.pop_front() {
            let needed: usize = lengths.iter().map(|&length| Batch::footprint(length)).sum();
            if needed > batch.free() {
                queue.trains.push_front((lengths, endpoint, ds_field));
                break;
            }
            let first = batch.len();
            for &length in &lengths {
                let start = queue.taken;
                let packet = batch.append(length).expect("counted above");
                packet.copy_from_slice(&queue.bytes[start..start + length]);
                queue.take(length);
            }
            batch.close_train(first, endpoint, ds_field);
            queue.spare.push(lengths);
        }
        Ok(batch.len() - before)
    }

    /// Does not wait: the caller polls after packets were pushed.
    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        wake.wait([]).map(|[]| ())
    }
}

impl Transmit for Link {
    fn transmit(&mut self, batch: &mut Batch, _: &DropCounters) {
        for train in batch.trains() {
            let live = batch.live(train.packets.clone());
            self.push(live.map(|index| batch.packet(index)), train.endpoint, train.ds_field);
        }
    }
}

/// A link as an inside port transmits to it: every packet, independent of trains.
#[derive(Clone, Default)]
pub struct InsideLink(pub Link);

impl Transmit for InsideLink {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        batch.set_trains([Train { packets: 0..batch.len(), endpoint: None, ds_field: 0 }]);
        self.0.transmit(batch, drops);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_pass_a_link_in_their_trains() {
        let mut link = Link::default();
        let endpoint = Endpoint::new("192.0.2.1:5".parse().expect("literal"));
        link.push([&b"one"[..], b"two"], Some(endpoint), 3);
        link.push([&b"three"[..]], None, 0);
        let mut batch = Batch::new(4096);
        assert_eq!(link.receive(&mut batch, &DropCounters::default()).expect("memory does not fail"), 3);
        assert_eq!(batch.packet(1), b"two");
        assert_eq!((batch.trains()[0].packets.clone(), batch.trains()[0].ds_field), (0..2, 3));
        batch.discard(1);
        InsideLink(link.clone()).transmit(&mut batch, &DropCounters::default());
        assert_eq!(link.pop().as_deref(), Some(&b"one"[..]));
        assert_eq!(link.pop().as_deref(), Some(&b"three"[..]));
        assert_eq!(link.pop(), None);
    }

    #[test]
    fn packets_that_do_not_fit_a_batch_stay_on_the_link() {
        let mut link = Link::default();
        for _ in 0..10 {
            link.push([&[1u8; 100][..]], None, 0);
        }
        let mut batch = Batch::new(Batch::footprint(100) * 4);
        assert_eq!(link.receive(&mut batch, &DropCounters::default()).expect("memory does not fail"), 4);
        batch.clear();
        assert_eq!(link.receive(&mut batch, &DropCounters::default()).expect("memory does not fail"), 4);
    }
}
