//! Packets that came before their SA.
//!
//! Whoever answers a request for an SA may send under it at once, and a worker sees that before the lane, which runs when
//! workers leave time, has read the answer. The SPI is of our choosing and known since the request: packets under it wait.

use packet::{Batch, DropCounters, Endpoint};
use port::{Receive, Wake};
use std::collections::VecDeque;
use std::io;
use std::mem::take;
use std::sync::{Arc, Mutex};

/// Packets that wait for an SA.
const PACKETS: usize = 256;
/// Their bytes.
const BYTES: usize = 512 * 1024;

/// A packet as it came.
pub struct Packet {
    /// From where, and to which of our addresses.
    pub endpoint: Endpoint,
    /// The DS field of its outer header.
    pub ds_field: u8,
    /// All that the outside port gave.
    pub bytes: Box<[u8]>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It waits.
    Waiting,
    /// Its SA has just come.
    Installed,
    /// Nobody waits for its SPI, or too many packets do.
    No,
}

#[derive(Default)]
struct Waiting {
    is_over: bool,
    bytes: usize,
    packets: Vec<Packet>,
}

/// The SPIs of SAs that we have asked for.
#[derive(Default)]
pub struct Early(papaya::HashMap<u32, Arc<Mutex<Waiting>>>);

impl Early {
    /// Lets packets under an SPI wait.
    pub fn expect(&self, spi: u32) {
        self.0.pin().insert(spi, Arc::default());
    }

    /// The packets that waited under an SPI, whose SA is there now, or will never be.
    pub fn end(&self, spi: u32) -> Vec<Packet> {
        let waiting = self.0.pin().remove(&spi).cloned();
        let Some(mut waiting) = waiting.as_ref().and_then(|waiting| waiting.lock().ok()) else {
            return Vec::new();
        };
        waiting.is_over = true;
        take(&mut waiting.packets)
    }

    /// Keeps a packet, if its SPI is one of these. A worker does not wait for the lane.
    pub fn keep(&self, spi: u32, packet: impl FnOnce() -> Packet) -> Kept {
        let waiting = self.0.pin().get(&spi).cloned();
        let Some(mut waiting) = waiting.as_ref().and_then(|waiting| waiting.try_lock().ok()) else {
            return Kept::No;
        };
        if waiting.is_over {
            return Kept::Installed;
        }
        let packet = packet();
        if waiting.packets.len() == PACKETS || waiting.bytes + packet.bytes.len() > BYTES {
            return Kept::No;
        }
        waiting.bytes += packet.bytes.len();
        waiting.packets.push(packet);
        Kept::Waiting
    }
}

/// A port that such packets come from when their SA is there.
#[derive(Default)]
pub struct EarlyReceive(pub VecDeque<Packet>);

impl Receive for EarlyReceive {
    fn receive(&mut self, batch: &mut Batch, _: &DropCounters) -> io::Result<usize> {
        let before = batch.len();
        while let Some(packet) = self.0.front() {
            let first = batch.len();
            let Some(place) = batch.append(packet.bytes.len()) else { break };
            place.copy_from_slice(&packet.bytes);
            batch.close_train(first, Some(packet.endpoint), packet.ds_field);
            self.0.pop_front();
        }
        Ok(batch.len() - before)
    }

    fn wait(&mut self, _: &Wake) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(length: usize) -> Packet {
        let endpoint = Endpoint::new("192.0.2.1:4500".parse().expect("literal"));
        Packet { endpoint, ds_field: 0, bytes: vec![7; length].into() }
    }

    #[test]
    fn only_what_is_expected_waits_and_not_without_bounds() {
        let early = Early::default();
        assert_eq!(early.keep(1, || packet(10)), Kept::No);
        early.expect(1);
        for _ in 0..PACKETS {
            assert_eq!(early.keep(1, || packet(10)), Kept::Waiting);
        }
        assert_eq!(early.keep(1, || packet(10)), Kept::No);
        assert_eq!(early.keep(2, || packet(10)), Kept::No);
        assert_eq!(early.end(1).len(), PACKETS);
        assert!(early.end(1).is_empty());
        assert_eq!(early.keep(1, || packet(10)), Kept::No, "it is over");
        early.expect(3);
        while early.keep(3, || packet(65_000)) == Kept::Waiting {}
        assert_eq!(early.end(3).len(), BYTES / 65_000);
    }
}
