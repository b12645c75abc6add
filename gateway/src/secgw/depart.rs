//! The last stage of both directions: RT chooses the port, NEIGH the Ethernet address behind it.

use super::frame;
use super::large::Cutter;
use super::leaving::Leaving;
use super::ports::FramePort;
use super::routes::RouteIndex;
use super::statistics::PortCounters;
use super::tables::SecgwTables;
use crate::datapath::Assigned;
use crate::datapath::icmp_errors::IcmpErrors;
use packet::header::icmp::IcmpError;
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason};
use port::Transmit;
use std::net::IpAddr;

/// The place of no port: of a packet that does not leave.
pub(super) const NOWHERE: u8 = u8::MAX;

/// Which packet of a batch leaves by which port.
#[derive(Default)]
pub struct Departures {
    /// By index in the batch: the place of the port in the list of ports.
    ports: Vec<u8>,
    lengths: Vec<u32>,
    /// Packets longer than the MTU, with their ports.
    large: Vec<(usize, u8)>,
}

/// What decides how packets leave.
pub struct Ways<'a> {
    /// Routes, neighbours, and the longest packet.
    pub tables: &'a SecgwTables,
    /// All ports.
    pub ports: &'a [FramePort],
}

impl Departures {
    /// Chooses ports, and puts Ethernet headers on. Packets longer than the MTU are left to [`cut`](Self::cut).
    pub fn choose(&mut self, batch: &mut Batch, leaving: &Leaving, ways: &Ways<'_>, drops: &DropCounters) {
        self.ports.clear();
        self.ports.resize(batch.len(), NOWHERE);
        self.large.clear();
        let mut last: Option<(IpAddr, u8)> = None;
        for index in leaving.indices() {
            if !batch.is_live(index) {
                continue;
            }
            let Ok(packet) = IpPacket::parse(batch.packet(index)) else {
                drops.count(DropReason::Malformed, 1);
                continue;
            };
            let destination = packet.destination();
            let is_large = packet.bytes().len() > ways.tables.mtu;
            let place = match last {
                Some((address, place)) if address == destination => place,
                _ => ways.tables.routes.find(destination).map_or(NOWHERE, |RouteIndex(place)| place as u8),
            };
            last = Some((destination, place));
            if place == NOWHERE {
                drops.count(DropReason::NoRoute, 1);
            } else if is_large {
                self.large.push((index, place));
            } else {
                self.send(batch, index, place, ways);
            }
        }
    }

    /// Cuts packets that are longer than the MTU. Errors are for the senders of packets that were not encrypted.
    pub fn cut(
        &mut self,
        batch: &mut Batch,
        cutter: &mut Cutter,
        assigned: &[Assigned<'_>],
        errors: &mut IcmpErrors,
        ways: &Ways<'_>,
        drops: &DropCounters,
    ) {
        for at in 0..self.large.len() {
            let (index, place) = self.large[at];
            let sa_batch = assigned.iter().find(|sa_batch| sa_batch.fitted.packets.contains(&index));
            let length = batch.packet(index).len();
            match cutter.cut(batch, index, ways.tables.mtu, sa_batch.is_some()) {
                Ok(fragments) => {
                    fragments.for_each(|fragment| self.send(batch, fragment, place, ways));
                    if let Some(sa_batch) = sa_batch {
                        sa_batch.fitted.peer.sent.count(1, length as u64);
                    }
                }
                Err(reason) => {
                    drops.count(reason, 1);
                    if reason == DropReason::TooBig
                        && sa_batch.is_none()
                        && let Ok(ip) = IpPacket::parse(batch.packet(index))
                    {
                        errors.add(&ip, IcmpError::TooBig { mtu: ways.tables.mtu as u32 });
                    }
                }
            }
        }
    }

    /// Sends ICMP errors by this port, which their packets came from.
    pub fn answer(
        &mut self,
        batch: &mut Batch,
        errors: &mut IcmpErrors,
        place: u8,
        ways: &Ways<'_>,
        drops: &DropCounters,
    ) {
        for error in errors.take() {
            let Some(room) = batch.append(error.len()) else {
                drops.count(DropReason::BurstFull, 1);
                continue;
            };
            room.copy_from_slice(&error);
            self.send(batch, batch.len() - 1, place, ways);
        }
    }

    /// Lets a packet leave by a port.
    #[inline]
    fn send(&mut self, batch: &mut Batch, index: usize, place: u8, ways: &Ways<'_>) {
        let (own, neighbour) =
            (&ways.ports[usize::from(place)].address, &ways.tables.neighbours[usize::from(place)]);
        frame::wrap(batch, index, *own, *neighbour);
        if self.ports.len() <= index {
            self.ports.resize(index + 1, NOWHERE);
        }
        self.ports[index] = place;
    }

    /// Discards all packets that do not leave.
    pub fn discard_others(&mut self, batch: &mut Batch) {
        self.ports.resize(batch.len(), NOWHERE);
        for (index, place) in self.ports.iter().enumerate() {
            if *place == NOWHERE {
                batch.discard(index);
            }
        }
    }

    /// Counts the frames that were sent, in one step for all in turn that left by one port.
    pub fn count(&self, batch: &Batch, counters: &[PortCounters]) {
        let (mut last, mut frames, mut bytes) = (NOWHERE, 0, 0);
        let count = |place: u8, frames, bytes| {
            if place != NOWHERE {
                counters[usize::from(place)].sent(frames, bytes);
            }
        };
        for (index, place) in self.ports.iter().enumerate() {
            if *place == NOWHERE || !batch.is_live(index) {
                continue;
            }
            if *place != last {
                count(last, frames, bytes);
                (last, frames, bytes) = (*place, 0, 0);
            }
            frames += 1;
            bytes += batch.packet(index).len();
        }
        count(last, frames, bytes);
    }

    /// Sends each packet by its port. What a port could not send is discarded.
    pub fn transmit(&mut self, batch: &mut Batch, ports: &mut [FramePort], drops: &DropCounters) {
        let mut used = self.ports.iter().copied().filter(|&place| place != NOWHERE);
        let Some(first) = used.next() else { return };
        if used.all(|place| place == first) {
            return ports[usize::from(first)].transmit.transmit(batch, drops);
        }
        self.lengths.clear();
        self.lengths.extend((0..batch.len()).map(|index| batch.hide(index)));
        for (place, port) in (0u8..).zip(ports) {
            let mine = || self.ports.iter().enumerate().filter(move |(_, other)| **other == place);
            if mine().next().is_none() {
                continue;
            }
            mine().for_each(|(index, _)| batch.reveal(index, self.lengths[index]));
            port.transmit.transmit(batch, drops);
            mine().for_each(|(index, _)| self.lengths[index] = batch.hide(index));
        }
        for (index, length) in self.lengths.iter().enumerate() {
            batch.reveal(index, *length);
        }
    }
}
