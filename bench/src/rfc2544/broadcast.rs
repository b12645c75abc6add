//! Broadcast frames (RFC 2544 section 11.1): one in a hundred is for all stations of the link, beside the frames that are counted.

use super::outer::{OuterAddresses, ROOM, finish_udp, prepend_ether, prepend_udp};
use packet::Batch;
use packet::header::ip::UDP;
use packet::header::neighbour::{ALL_NODES, multicast_link};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

/// Test frames for each broadcast frame.
const TEST_FRAMES: u64 = 99;
/// The UDP port of the discard service.
const DISCARD: u16 = 9;
/// Bytes of the payload, which make a frame of 64 bytes over IPv4.
const PAYLOAD: usize = 18;
/// The share of test frames among all.
pub const SHARE: f64 = TEST_FRAMES as f64 / (TEST_FRAMES + 1) as f64;

/// A datagram from this port to all stations, which no router forwards.
pub fn frame(mac: [u8; 6], source: IpAddr) -> Vec<u8> {
    let (destination, all): (IpAddr, _) = match source {
        IpAddr::V4(_) => (Ipv4Addr::BROADCAST.into(), [0xff; 6]),
        IpAddr::V6(_) => (ALL_NODES.into(), multicast_link(ALL_NODES)),
    };
    let mut macs = [0; 12];
    macs[..6].copy_from_slice(&all);
    macs[6..].copy_from_slice(&mac);
    let mut batch = Batch::new(Batch::footprint(ROOM + PAYLOAD));
    batch.append(ROOM + PAYLOAD).expect("it fits").fill(0);
    batch.shrink(0, ROOM, PAYLOAD);
    prepend_udp(&mut batch, 0, DISCARD, DISCARD);
    OuterAddresses { source, destination }.prepend(&mut batch, 0, UDP, 0);
    finish_udp(batch.packet_mut(0));
    prepend_ether(&mut batch, 0, macs);
    batch.packet(0).to_vec()
}

/// How many broadcast frames leave with the test frames of these sequence numbers: evenly one in a hundred.
#[inline]
pub fn due(sequences: Range<u64>) -> u64 {
    sequences.end / TEST_FRAMES - sequences.start / TEST_FRAMES
}

#[cfg(test)]
mod tests {
    use super::super::frame::Reader;
    use super::super::frame::tests::{PORTS, path_of};
    use super::super::frame::{Protocol, Seen};
    use super::*;

    #[test]
    fn one_frame_in_a_hundred_is_for_all_stations_and_is_not_a_test_frame() {
        for ports in PORTS {
            let frame = frame([2; 6], ports[0].parse().expect("literal"));
            assert!(frame[0] & 1 == 1 && frame.len() >= 60, "{frame:x?}");
            for protocol in Protocol::ALL {
                let reader = Reader::new(&path_of(protocol, ports, 3));
                assert_eq!(reader.read(&frame), Seen::Foreign, "{protocol:?} {ports:?}");
            }
        }
        let sent: u64 = (0..990).step_by(32).map(|first| due(first..(first + 32).min(990))).sum();
        assert_eq!((sent, due(0..98), due(98..99), due(5..5)), (10, 0, 1, 0));
    }
}
