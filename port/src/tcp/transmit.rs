//! Sends packets where their endpoint says: on a TCP connection, or in UDP.

use super::connection::discard;
use super::connections::TcpConnections;
use crate::Transmit;
use crate::udp::UdpTransmit;
use packet::{Batch, DropCounters, DropReason, Train};
use rustix::io::Errno;
use std::sync::Arc;

/// Sends the packets of a train in few calls, on the connection with its endpoint. No send waits.
pub struct TcpTransmit {
    connections: Arc<TcpConnections>,
    /// For packets whose endpoint is not a connection.
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
    /// Sends the trains of connections, and returns the indices of the others. A connection may have ended meanwhile.
    fn send(&mut self, batch: &mut Batch, drops: &DropCounters) -> Vec<usize> {
        let mut others = Vec::new();
        for index in 0..batch.trains().len() {
            let Train { packets, endpoint: Some(endpoint), .. } = &batch.trains()[index] else { continue };
            let (packets, endpoint) = (packets.clone(), *endpoint);
            if !endpoint.is_tcp {
                others.push(index);
            } else if !self.connections.send(&endpoint.remote, batch, packets.clone(), self.spare, drops) {
                discard(batch, packets, DropReason::SendFailed, drops);
            }
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
