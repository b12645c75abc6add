//! The neighbours of the tester's ports, by ARP (RFC 826) and neighbour discovery (RFC 4861): a device finds the port that has an address, and
//! the tester finds the router.

use packet::header::arp;
use packet::header::ethernet::{self, EthernetHeader};
use packet::header::neighbour::{ALL_NODES, Kind, NeighbourMessage, multicast_link, solicited_node};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

const BROADCAST: [u8; 6] = [0xff; 6];

/// The addresses of one port, and what it has learned.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// The port's hardware address.
    mac: [u8; 6],
    /// The addresses in whose name the port asks: the first of each family.
    first: Vec<IpAddr>,
    /// All addresses that the port answers for.
    own: HashSet<IpAddr>,
    /// The router's address, if there is a router.
    asked: Option<IpAddr>,
    /// The router's hardware address, once it has answered.
    pub router: Option<[u8; 6]>,
}

impl Neighbour {
    /// A port with these addresses, next to a router or not.
    pub fn new(mac: [u8; 6], own: &[IpAddr], asked: Option<IpAddr>) -> Self {
        let of = |is_v4: bool| own.iter().copied().find(move |address| address.is_ipv4() == is_v4);
        let first = [true, false].into_iter().filter_map(of).collect();
        Self { mac, first, own: own.iter().copied().collect(), asked, router: None }
    }

    /// The frame that asks the router for its hardware address. None without a router, or without an address of its family.
    pub fn request(&self) -> Option<Vec<u8>> {
        let router = self.asked?;
        let own = *self.first.iter().find(|own| own.is_ipv4() == router.is_ipv4())?;
        Some(match (own, router) {
            (IpAddr::V4(own), IpAddr::V4(router)) => self.arp(true, own, (BROADCAST, [0; 6], router)),
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                let destination = solicited_node(target);
                let link = Some(self.mac);
                let kind = Kind::Solicitation;
                self.discovery(NeighbourMessage { kind, source, destination, target, link })
            }
            _ => return None,
        })
    }

    /// The frames that show the port's hardware address to bridges and routers.
    pub fn announcements(&self) -> Vec<Vec<u8>> {
        let frame = |own: &IpAddr| match *own {
            IpAddr::V4(own) => self.arp(true, own, (BROADCAST, [0; 6], own)),
            IpAddr::V6(own) => {
                let kind = Kind::Advertisement { is_solicited: false, overrides: true };
                let link = Some(self.mac);
                let message =
                    NeighbourMessage { kind, source: own, destination: ALL_NODES, target: own, link };
                self.discovery(message)
            }
        };
        self.first.iter().map(frame).collect()
    }

    /// The answer to a frame that asks for an address of ours; an answer of the router is noted.
    #[inline]
    pub fn answer(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (ether_type, offset) = EthernetHeader::payload(frame).ok()?;
        match ether_type {
            ethernet::ARP => self.answer_arp(&frame[offset..]),
            // Most frames are test frames: only few headers are followed by neighbour discovery.
            ethernet::IPV6 if frame.get(offset + 7) == Some(&0xff) => {
                self.answer_discovery(&frame[offset..], frame[6..12].try_into().ok()?)
            }
            _ => None,
        }
    }

    fn answer_arp(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let message = arp::Message::parse(payload)?;
        if !self.own.contains(&message.target.1.into()) {
            return None;
        }
        if self.asked == Some(message.sender.1.into()) {
            self.router = Some(message.sender.0);
        }
        message.answer(self.mac)
    }

    /// `from`: the hardware address that the frame came from.
    fn answer_discovery(&mut self, packet: &[u8], from: [u8; 6]) -> Option<Vec<u8>> {
        let message = NeighbourMessage::parse(packet).ok()?;
        if let Kind::Advertisement { .. } = message.kind {
            if self.asked == Some(message.target.into()) {
                self.router = Some(message.link.unwrap_or(from));
            }
            return None;
        }
        self.own.contains(&message.target.into()).then(|| message.answer(from, self.mac))?
    }

    fn arp(&self, is_request: bool, own: Ipv4Addr, to: ([u8; 6], [u8; 6], Ipv4Addr)) -> Vec<u8> {
        arp::Message { is_request, sender: (self.mac, own), target: (to.1, to.2) }.frame(to.0)
    }

    /// The frame of a message to the hardware address of its group.
    fn discovery(&self, message: NeighbourMessage) -> Vec<u8> {
        message.frame(self.mac, multicast_link(message.destination))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIRS: [(&str, &str); 2] = [("198.18.0.2", "198.18.0.1"), ("2001:2::2", "2001:2::1")];

    fn address(text: &str) -> IpAddr {
        text.parse().expect("literal")
    }

    #[test]
    fn a_port_answers_for_its_addresses_and_learns_that_of_its_router_in_both_families() {
        for (own, router) in PAIRS {
            let both = PAIRS.map(|pair| address(pair.0));
            let mut port = Neighbour::new([2; 6], &both, Some(address(router)));
            let mut device = Neighbour::new([8; 6], &[address(router)], None);
            let request = port.request().expect("there is a router");
            assert!(request[0] & 1 == 1 && request.len() >= 60, "to a group: {request:?}");
            let answer = device.answer(&request).expect("it is asked");
            assert_eq!((&answer[..6], &answer[6..12]), (&[2; 6][..], &[8; 6][..]));
            assert_eq!((port.answer(&answer), port.router), (None, Some([8; 6])));
            // The other way round, and for a second address of the port.
            for asked in [own, if own.contains(':') { "2001:2:0:7::2" } else { "198.18.7.2" }] {
                let mut port = Neighbour::new([2; 6], &[address(own), address(asked)], None);
                let mut device = Neighbour::new([8; 6], &[address(router)], Some(address(asked)));
                let request = device.request().expect("it asks");
                let answer = port.answer(&request).expect("it is asked");
                assert_eq!((device.answer(&answer), device.router), (None, Some([2; 6])), "{asked}");
                for length in 0..request.len().min(42) {
                    assert_eq!(port.answer(&request[..length]), None, "{length} bytes");
                }
                let other = Neighbour::new([8; 6], &[address(router)], Some(address(router)));
                assert_eq!(port.answer(&other.request().expect("it asks")), None, "another's address");
            }
        }
    }

    #[test]
    fn a_router_is_asked_only_by_an_address_of_its_family() {
        let port = Neighbour::new([2; 6], &[address("198.18.0.2")], Some(address("2001:2::1")));
        assert_eq!(port.request(), None);
        let both = PAIRS.map(|pair| address(pair.0));
        let told = Neighbour::new([2; 6], &both, None).announcements();
        assert_eq!(told.iter().map(|frame| frame[0]).collect::<Vec<_>>(), [0xff, 0x33]);
        let mut other = Neighbour::new([3; 6], &both[1..], Some(both[1]));
        assert_eq!(
            (other.answer(&told[1]), other.router),
            (None, Some([2; 6])),
            "an announcement is learned"
        );
    }
}
