//! ARP (RFC 826) on the tester's ports: a router finds the receiving port, and the tester finds the router.

use packet::header::ethernet::{self, EthernetHeader};
use std::net::Ipv4Addr;
use zerocopy::IntoBytes;

/// Ethernet and IPv4, with addresses of 6 and 4 bytes.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// The addresses of one port, and what it has learned.
#[derive(Clone, Copy, Debug)]
pub struct Arp {
    /// The port's hardware address.
    pub mac: [u8; 6],
    /// The port's IP address.
    pub address: Ipv4Addr,
    /// The router's IP address, if there is a router.
    pub asked: Option<Ipv4Addr>,
    /// The router's hardware address, once it has answered.
    pub router: Option<[u8; 6]>,
}

impl Arp {
    /// A port with these addresses, next to a router or not.
    pub fn new(mac: [u8; 6], address: Ipv4Addr, asked: Option<Ipv4Addr>) -> Self {
        Self { mac, address, asked, router: None }
    }

    /// The request for the router's hardware address.
    pub fn request(&self, router: Ipv4Addr) -> Vec<u8> {
        message(REQUEST, (self.mac, self.address), ([0xff; 6], [0; 6], router))
    }

    /// The answer to a request for our address; an answer to ours is noted.
    #[inline]
    pub fn answer(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (ether_type, offset) = EthernetHeader::payload(frame).ok()?;
        if ether_type != ethernet::ARP {
            return None;
        }
        let message: &[u8; 28] = frame.get(offset..offset + 28)?.try_into().ok()?;
        let [operation, sender_mac, sender, target] =
            [6..8, 8..14, 14..18, 24..28].map(|range| &message[range]);
        let sender_mac: [u8; 6] = sender_mac.try_into().ok()?;
        let address = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).map(Ipv4Addr::from);
        let (sender, target) = (address(sender).ok()?, address(target).ok()?);
        if message[..6] != KIND || target != self.address {
            return None;
        }
        if self.asked == Some(sender) {
            self.router = Some(sender_mac);
        }
        let is_request = operation == REQUEST.to_be_bytes();
        is_request.then(|| self::message(REPLY, (self.mac, self.address), (sender_mac, sender_mac, sender)))
    }
}

fn message(operation: u16, from: ([u8; 6], Ipv4Addr), to: ([u8; 6], [u8; 6], Ipv4Addr)) -> Vec<u8> {
    let ether = EthernetHeader { destination: to.0, source: from.0, ether_type: ethernet::ARP.into() };
    let parts = [
        ether.as_bytes(),
        &KIND,
        &operation.to_be_bytes(),
        &from.0,
        &from.1.octets(),
        &to.1,
        &to.2.octets(),
        &[0; ethernet::SHORTEST - 42],
    ];
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_answers_for_its_address_and_learns_that_of_its_router() {
        let addresses = [Ipv4Addr::new(198, 18, 0, 2), Ipv4Addr::new(198, 18, 0, 1)];
        let mut port = Arp::new([2; 6], addresses[0], Some(addresses[1]));
        let mut router = Arp::new([9; 6], addresses[1], None);
        let request = port.request(addresses[1]);
        assert_eq!((request.len(), &request[..6]), (60, &[0xff; 6][..]));
        let answer = router.answer(&request).expect("it is asked");
        assert_eq!((&answer[..6], &answer[6..12]), (&[2; 6][..], &[9; 6][..]));
        assert_eq!((port.answer(&answer), port.router), (None, Some([9; 6])));
        assert_eq!(router.answer(&port.request(Ipv4Addr::new(198, 18, 0, 3))), None, "another's address");
        for length in 0..42 {
            assert_eq!(port.answer(&request[..length]), None, "{length} bytes");
        }
    }
}
