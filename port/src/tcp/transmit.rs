//! Sends packets on TCP connections, and others in UDP.

use super::connections::TcpConnections;
use crate::Transmit;
use crate::udp::UdpTransmit;
use packet::{Batch, DropCounters, Train};
use rustix::io::Errno;
use std::sync::Arc;

/// Sends the packets of a train in few calls, on the connection with its endpoint. No send waits.
pub struct TcpTransmit {
    connections: Arc<TcpConnections>,
    /// For packets whose endpoint has no connection.
    in_udp: UdpTransmit,
    /// Packets that may wait beyond the limit of a connection.
    spare: usize,
}

impl TcpTransmit {
    /// Sends on `connections`. So many `spare` packets may wait beyond the limit of a connection: control packets are few, and
    /// must not be lost behind data.
    pub fn new(connections: Arc<TcpConnections>, in_udp: UdpTransmit, spare: usize) -> Self {
        Self { connections, in_udp, spare }
    }
}

impl TcpTransmit {
    /// Sends the trains with a connection, and leaves the others without packets to UDP.
    fn send(&mut self, batch: &mut Batch, drops: &DropCounters) -> Vec<usize> {
        let mut others = Vec::new();
        for index in 0..batch.trains().len() {
            let Train { packets, endpoint: Some(endpoint), .. } = &batch.trains()[index] else { continue };
            let (packets, remote) = (packets.clone(), endpoint.remote);
            if self.connections.send(&remote, batch, packets, self.spare, drops) {
                continue;
            }
            others.push(index);
        }
        others
    }
}

impl Transmit for TcpTransmit {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        let others = self.send(batch, drops);
        if others.is_empty() {
            return;
        }
        // The trains keep their positions: the caller relies on them.
        let mut trains = batch.trains().to_vec();
        let without = |(index, train): (usize, &Train)| {
            let packets = if others.contains(&index) { train.packets.clone() } else { 0..0 };
            Train { packets, ..train.clone() }
        };
        batch.set_trains(trains.iter().enumerate().map(without).collect::<Vec<_>>());
        self.in_udp.transmit(batch, drops);
        for index in others {
            trains[index].endpoint = batch.trains()[index].endpoint;
        }
        batch.set_trains(trains);
    }

    fn take_refusal(&mut self) -> Option<Errno> {
        self.in_udp.take_refusal()
    }
}
