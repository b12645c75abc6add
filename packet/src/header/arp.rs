//! ARP (RFC 826): the two messages by which a station finds the hardware address of an IPv4 address.

use super::ethernet::{self, EthernetHeader};
use std::net::Ipv4Addr;
use zerocopy::IntoBytes;

/// Ethernet and IPv4, with addresses of 6 and 4 bytes.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// A request or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Whether it asks.
    pub is_request: bool,
    /// Who sends it.
    pub sender: ([u8; 6], Ipv4Addr),
    /// Whose hardware address is asked for, or who has asked.
    pub target: ([u8; 6], Ipv4Addr),
}

impl Message {
    /// Reads the payload of a frame.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let message: &[u8; 28] = payload.get(..28)?.try_into().ok()?;
        let mac = |at: usize| message[at..at + 6].try_into().ok();
        let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(&message[at..at + 4]).ok()?));
        let operation = u16::from_be_bytes([message[6], message[7]]);
        let is_known = message[..6] == KIND && matches!(operation, REQUEST | REPLY);
        is_known.then_some(())?;
        let (sender, target) = ((mac(8)?, address(14)?), (mac(18)?, address(24)?));
        Some(Self { is_request: operation == REQUEST, sender, target })
    }

    /// The frame that answers a request for an address of `station`. A reply gets no answer, and neither does a request that claims to come from
    /// a group: the answer would flood it.
    pub fn answer(&self, station: [u8; 6]) -> Option<Vec<u8>> {
        let asker = self.sender.0;
        let answer = Self { is_request: false, sender: (station, self.target.1), target: self.sender };
        (self.is_request && asker[0] & 1 == 0).then(|| answer.frame(asker))
    }

    /// The frame to a hardware address.
    pub fn frame(&self, destination: [u8; 6]) -> Vec<u8> {
        let ether = EthernetHeader { destination, source: self.sender.0, ether_type: ethernet::ARP.into() };
        let operation = if self.is_request { REQUEST } else { REPLY };
        let parts = [
            ether.as_bytes(),
            &KIND,
            &operation.to_be_bytes(),
            &self.sender.0,
            &self.sender.1.octets(),
            &self.target.0,
            &self.target.1.octets(),
            &[0; ethernet::SHORTEST - 42],
        ];
        parts.concat()
    }
}
