//! The last stage of both directions: RT chooses the port, NEIGH the Ethernet address behind it.

use super::frame;
use super::leaving::Leaving;
use super::ports::FramePort;
use super::routes::{RouteIndex, Routes};
use super::statistics::PortCounters;
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason};
use port::Transmit;
use std::net::IpAddr;

/// Of a packet that does not leave.
const NONE: u8 = u8::MAX;

/// Which packet of a batch leaves by which port.
#[derive(Default)]
pub struct Departures {
    /// By index in the batch: the place of the port in the list of ports.
    ports: Vec<u8>,
    lengths: Vec<u32>,
}

impl Departures {
    /// Chooses ports, and puts Ethernet headers on. All packets that do not leave are dropped.
    pub fn choose(
        &mut self,
        batch: &mut Batch,
        leaving: &Leaving,
        routes: &Routes,
        mtu: usize,
        ports: &[FramePort],
        drops: &DropCounters,
    ) {
        self.ports.clear();
        self.ports.resize(batch.len(), NONE);
        let mut last: Option<(IpAddr, Option<u8>)> = None;
        for index in leaving.indices() {
            if !batch.is_live(index) {
                continue;
            }
            let Ok(packet) = IpPacket::parse(batch.packet(index)) else {
                drops.count(DropReason::Malformed, 1);
                continue;
            };
            if packet.bytes().len() > mtu {
                drops.count(DropReason::TooBig, 1);
                continue;
            }
            let destination = packet.destination();
            let place = match last {
                Some((address, place)) if address == destination => place,
                _ => find(destination, routes, ports),
            };
            last = Some((destination, place));
            let Some(place) = place else {
                drops.count(DropReason::NoRoute, 1);
                continue;
            };
            let port = &ports[usize::from(place)];
            frame::wrap(batch, index, port.address, port.neighbour);
            self.ports[index] = place;
        }
        for (index, place) in self.ports.iter().enumerate() {
            if *place == NONE {
                batch.discard(index);
            }
        }
    }

    /// Counts the frames that were sent.
    pub fn count(&self, batch: &Batch, counters: &[PortCounters]) {
        for (index, place) in self.ports.iter().enumerate() {
            if *place != NONE && batch.is_live(index) {
                counters[usize::from(*place)].sent(batch.packet(index).len());
            }
        }
    }

    /// Sends each packet by its port. What a port could not send is discarded.
    pub fn transmit(&mut self, batch: &mut Batch, ports: &mut [FramePort], drops: &DropCounters) {
        let mut used = self.ports.iter().copied().filter(|&place| place != NONE);
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

fn find(destination: IpAddr, routes: &Routes, ports: &[FramePort]) -> Option<u8> {
    let RouteIndex(number) = routes.find(destination)?;
    let place = ports.iter().position(|port| u32::from(port.number) == number)?;
    Some(place as u8)
}
