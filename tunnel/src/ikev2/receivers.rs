//! The receiving threads of the data path, and the peers that each has: an inbound SPI leads to one of them.
//!
//! All Child SAs of a peer lead to one thread, also after rekeying and reauthentication. So the packets of a flow keep their order
//! when one SA replaces another.

use super::ids::ConnectionId;
use packet::header::esp::STEERING_BYTE;
use std::collections::HashMap;

/// The receiving thread that an SPI leads to.
pub fn receiver_of(spi: u32, threads: usize) -> usize {
    usize::from(spi.to_be_bytes()[STEERING_BYTE]) % threads.max(1)
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct Receivers {
    /// The number of peers of each thread; empty for a single thread, to which any SPI leads.
    peers: Vec<usize>,
    of: HashMap<ConnectionId, u8>,
}

impl Receivers {
    /// So many threads, without peers.
    pub(super) fn new(threads: u8) -> Self {
        let peers = if threads > 1 { vec![0; threads.into()] } else { Vec::new() };
        Self { peers, of: HashMap::new() }
    }

    /// Gives a peer its thread, if it has none.
    pub(super) fn enter(&mut self, peer: ConnectionId) {
        if !self.peers.is_empty() {
            self.thread(peer);
        }
    }

    /// The thread of a peer: of a new one, the one that has the fewest.
    fn thread(&mut self, peer: ConnectionId) -> u8 {
        *self.of.entry(peer).or_insert_with(|| {
            let fewest = (0..).zip(&mut self.peers).min_by_key(|(_, peers)| **peers);
            fewest.map_or(0, |(thread, peers)| {
                *peers += 1;
                thread
            })
        })
    }

    /// Changes a byte of a random SPI so that it leads to the thread of this peer. There may be no such byte.
    pub(super) fn steer(&mut self, spi: u32, peer: ConnectionId) -> Option<u32> {
        let threads = self.peers.len() as u8;
        if threads == 0 {
            return Some(spi);
        }
        let mut bytes = spi.to_be_bytes();
        let steers = &mut bytes[STEERING_BYTE];
        *steers = (*steers - *steers % threads).checked_add(self.thread(peer))?;
        Some(u32::from_be_bytes(bytes))
    }

    /// Forgets a peer that was removed.
    pub(super) fn forget(&mut self, peer: ConnectionId) {
        if let Some(thread) = self.of.remove(&peer)
            && let Some(peers) = self.peers.get_mut(usize::from(thread))
        {
            *peers -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_spread_evenly_also_after_some_have_gone() {
        let mut receivers = Receivers::new(4);
        let threads: Vec<u8> = (0..8).map(|peer| receivers.thread(ConnectionId(peer))).collect();
        assert_eq!(threads, [0, 1, 2, 3, 0, 1, 2, 3]);
        // Connections and sessions are numbered together: the numbers of peers may all be even.
        for peer in [2, 6] {
            receivers.forget(ConnectionId(peer));
            receivers.forget(ConnectionId(peer));
        }
        let threads: Vec<u8> = [10, 12, 14].map(|peer| receivers.thread(ConnectionId(peer))).into();
        assert_eq!(threads, [2, 2, 0]);
    }

    #[test]
    fn an_spi_leads_to_the_thread_of_its_peer_and_is_random_otherwise() {
        for threads in 1..=16 {
            let mut receivers = Receivers::new(threads);
            for peer in (0..40).map(ConnectionId) {
                receivers.enter(peer);
                let thread = receivers.thread(peer);
                for spi in [0, 0x1234_5678, 0xff00_0001, u32::MAX, 0x8000_00ff] {
                    let Some(steered) = receivers.steer(spi, peer) else { continue };
                    assert_eq!(steered.to_be_bytes()[1..], spi.to_be_bytes()[1..]);
                    assert_eq!(steered.to_be_bytes()[0] % threads, thread);
                    assert_eq!(receiver_of(steered, threads.into()), usize::from(thread));
                }
            }
        }
    }
}
