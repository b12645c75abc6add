//! The fragments of `postern secgw --reassemble`: packets come out as they went in, and each fragment is in one, or counted.

use gateway::secgw::reassembly::table::{Limits, Scope, Table};
use packet::header::fragment::{Fragment, may_be};
use packet::header::ip::{IpPacket, Ipv4Header, Ipv6Header, UDP};
use packet::{DropCounters, DropReason};
use std::time::Duration;
use tunnel::Time;
use zerocopy::IntoBytes;

/// Bytes of an input that make a fragment.
const STEP: usize = 6;

/// What the input says about a fragment.
struct Order {
    /// The packet that it is of.
    packet: u8,
    is_v4: bool,
    /// Whether its bytes are not those of the packet.
    is_forged: bool,
    is_last: bool,
    offset: usize,
    length: usize,
    /// Seconds that pass before it.
    seconds: u64,
}

impl Order {
    fn read(bytes: [u8; STEP]) -> Self {
        let [flags, packet, high, low, length, rest] = bytes;
        Self {
            packet: packet % 8,
            is_v4: flags & 1 == 0,
            is_forged: flags & 6 == 6,
            is_last: flags & 8 != 0,
            offset: usize::from(u16::from_be_bytes([high, low]) & 0x1fff) * 8,
            length: usize::from(length) * 8 + usize::from(rest & 7) * usize::from(flags >> 4 & 1),
            seconds: u64::from(rest >> 6),
        }
    }

    /// The byte of the packet's payload at a place.
    fn byte(packet: u8, at: usize) -> u8 {
        (at / 3) as u8 ^ packet.wrapping_mul(37)
    }

    fn bytes(&self) -> Vec<u8> {
        let place = (self.offset / 8) as u16;
        let mut bytes = if self.is_v4 {
            let more = if self.is_last { 0 } else { Ipv4Header::MORE_FRAGMENTS };
            let header = Ipv4Header {
                identification: u16::from(self.packet).into(),
                fragment: (place | more).into(),
                ..Ipv4Header::new(UDP, [10, 0, 0, 1], [10, 0, 0, 2], (20 + self.length) as u16)
            };
            header.as_bytes().to_vec()
        } else {
            let header =
                Ipv6Header { hop_limit: 9, ..Ipv6Header::new(44, [1; 16], [2; 16], 8 + self.length as u16) };
            let field = place << 3 | u16::from(!self.is_last);
            [header.as_bytes(), &[UDP, 0], &field.to_be_bytes(), &[0, 0, 0, self.packet]].concat()
        };
        let forged = u8::from(self.is_forged);
        bytes.extend((self.offset..self.offset + self.length).map(|at| Self::byte(self.packet, at) ^ forged));
        bytes
    }
}

/// Fragments of few packets, in any order, with repetitions and contradictions.
pub fn fragments(data: &[u8]) {
    if let Ok(ip) = IpPacket::parse(data) {
        let parsed = Fragment::parse(&ip);
        assert!(may_be(data) || parsed == Ok(None));
    }
    let mut table = Table::new(Limits { packets: 4, lifetime: Duration::from_secs(2) });
    let (drops, room) = (DropCounters::default(), table.left());
    let (mut now, mut accepted, mut in_packets) = (Time::from_nanoseconds(1), 0, 0);
    let mut is_forged = [[false; 2]; 8];
    for &bytes in data.as_chunks::<STEP>().0 {
        let order = Order::read(bytes);
        now = now + Duration::from_secs(order.seconds);
        let packet = order.bytes();
        let ip = IpPacket::parse(&packet).expect("it is well-formed");
        is_forged[usize::from(order.packet)][usize::from(order.is_v4)] |= order.is_forged;
        let Ok(Some(fragment)) = Fragment::parse(&ip) else { continue };
        accepted += 1;
        let Some(whole) = table.accept(Scope::Clear, &fragment, &packet, now, &drops) else { continue };
        in_packets += whole.fragments();
        let mut bytes = vec![0; whole.length()];
        table.write(whole, &mut bytes);
        let ip = IpPacket::parse(&bytes).expect("it is well-formed");
        assert_eq!(ip.bytes().len(), bytes.len());
        assert_eq!(Fragment::parse(&ip), Ok(None));
        let headers = if order.is_v4 { Ipv4Header::LENGTH } else { Ipv6Header::LENGTH };
        let mut payload = bytes[headers..].iter().enumerate();
        assert!(
            is_forged[usize::from(order.packet)][usize::from(order.is_v4)]
                || payload.all(|(at, &byte)| byte == Order::byte(order.packet, at))
        );
    }
    table.expire(now + Duration::from_secs(9), &drops);
    let dropped: u64 = DropReason::ALL.iter().map(|&reason| drops.read(reason)).sum();
    assert_eq!(dropped as usize + in_packets, accepted);
    assert!(table.is_empty() && table.left() == room);
}
