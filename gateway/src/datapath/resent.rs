//! TCP segments that came again, or out of order: packets of the flow are lost or overtaken between both ends, wherever that is.
//!
//! One burst a millisecond is looked at, so that a fast tunnel pays for a thousand bursts a second at most, and a slow one is seen whole. A segment that ends at
//! or below the highest sequence number of its flow was sent before (RFC 9293 section 3.8.1), as Postern keeps the order of a flow.

use packet::Batch;
use packet::header::flow::{Upper, number};
use packet::header::ip::{IpPacket, TCP};
use packet::header::tcp::TcpHeader;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use tunnel::Time;
use zerocopy::FromBytes;

/// Nanoseconds between bursts that are looked at.
const PAUSE: u64 = 1_000_000;
/// Flows that are remembered; a new one replaces what is in its place.
const FLOWS: usize = 256;
/// Keepalive probes carry one byte at most (RFC 9293 section 3.8.4), and repeat it on purpose.
const LEAST: u32 = 2;

/// Segments of the bursts that were looked at.
#[derive(Default)]
pub struct Segments {
    /// Those with data, of flows that were known.
    all: AtomicU64,
    /// Those among them that were sent before.
    resent: AtomicU64,
}

impl Segments {
    /// Segments with data, and those among them that were sent before.
    pub fn read(&self) -> [u64; 2] {
        [&self.all, &self.resent].map(|count| count.load(Ordering::Relaxed))
    }
}

/// What a worker remembers of flows.
#[derive(Default)]
pub struct Look {
    /// When the next burst is looked at.
    next: u64,
    /// By the hash of a flow; empty until there is one.
    flows: Vec<Known>,
}

/// A flow.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The upper half of the flow's hash, which detects that another has its place; 0 is an empty place.
    tag: u32,
    /// One past the highest sequence number so far.
    end: u32,
}

impl Look {
    /// Counts the segments of a burst of inner packets, if it is time to.
    #[inline]
    pub fn at(&mut self, batch: &Batch, now: Time, segments: &Segments) {
        if now.nanoseconds() >= self.next {
            self.next = now.nanoseconds() + PAUSE;
            self.count(batch, segments);
        }
    }

    #[cold]
    fn count(&mut self, batch: &Batch, segments: &Segments) {
        self.flows.resize(FLOWS, Known::default());
        let (mut all, mut resent) = (0, 0);
        for index in batch.live(0..batch.len()) {
            let Some((hash, start, end)) = segment(batch.packet(index)) else { continue };
            let flow = &mut self.flows[hash as usize % FLOWS];
            let tag = (hash >> 32) as u32 | 1;
            if flow.tag != tag {
                // Nothing is known of it yet: it is in neither count, or many flows would hide what is sent again.
                *flow = Known { tag, end };
                continue;
            }
            all += 1;
            // Sequence numbers wrap (RFC 9293 section 3.4).
            let is_new = end.wrapping_sub(flow.end).cast_signed() > 0;
            // A connection that begins at another number with the same ports.
            let is_far = start.wrapping_sub(flow.end).cast_signed().unsigned_abs() > 1 << 30;
            if is_new || is_far {
                *flow = Known { tag, end };
            } else {
                resent += 1;
            }
        }
        segments.all.fetch_add(all, Ordering::Relaxed);
        segments.resent.fetch_add(resent, Ordering::Relaxed);
    }
}

/// The hash of its flow, and its first and last sequence number; none unless it is a TCP segment with data.
fn segment(packet: &[u8]) -> Option<(u64, u32, u32)> {
    let ip = IpPacket::parse(packet).ok()?;
    let upper = Upper::of(&ip);
    if upper.protocol != TCP || upper.is_fragment {
        return None;
    }
    let (header, _) = TcpHeader::ref_from_prefix(upper.bytes).ok()?;
    let length = upper.bytes.len().checked_sub(4 * usize::from(header.data_offset >> 4))? as u32;
    if length < LEAST {
        return None;
    }
    let start = header.sequence.get();
    let ports = u64::from(header.source.get()) << 16 | u64::from(header.destination.get());
    Some((hash([ip.source(), ip.destination()], ports), start, start.wrapping_add(length)))
}

/// Spreads flows. Those that collide only distort the count, so it needs no secret.
fn hash(addresses: [IpAddr; 2], ports: u64) -> u64 {
    let mix = |hash: u64, part: u64| (hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let folded = addresses.map(number).map(|address| (address >> 64) as u64 ^ address as u64);
    mix(mix(mix(1, folded[0]), folded[1]), ports)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::header::ip::Ipv4Header;
    use zerocopy::IntoBytes;

    fn segment(source: u16, sequence: u32, length: usize) -> Vec<u8> {
        let mut header = [0; TcpHeader::LENGTH];
        header[..2].copy_from_slice(&source.to_be_bytes());
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        header[12] = 5 << 4;
        let total = (Ipv4Header::LENGTH + TcpHeader::LENGTH + length) as u16;
        let mut ip = Ipv4Header::new(TCP, [10, 0, 0, 1], [10, 0, 0, 2], total);
        ip.finish();
        [ip.as_bytes(), &header, &vec![0; length]].concat()
    }

    /// What is counted of these bursts, one every two milliseconds.
    fn counted(bursts: &[&[Vec<u8>]]) -> [u64; 2] {
        let (mut look, segments) = (Look::default(), Segments::default());
        for (place, burst) in (1..).zip(bursts) {
            let mut batch = Batch::new(8 << 20);
            for packet in *burst {
                batch.append(packet.len()).expect("it fits").copy_from_slice(packet);
            }
            look.at(&batch, Time::from_nanoseconds(place * 2 * PAUSE), &segments);
        }
        segments.read()
    }

    #[test]
    fn a_segment_is_sent_again_if_its_flow_was_further() {
        let new: Vec<Vec<u8>> = (0..5).map(|at| segment(1000, at * 100, 100)).collect();
        assert_eq!(counted(&[&new]), [4, 0], "of the first nothing is known");
        assert_eq!(counted(&[&new, &[segment(1000, 200, 100), segment(1000, 500, 100)]]), [6, 1]);
        assert_eq!(counted(&[&new, &[segment(1001, 200, 100)]]), [4, 0], "another flow");
        assert_eq!(counted(&[&new, &[segment(1000, 3_000_000_000, 100)]]), [5, 0], "another connection");
        let around = [segment(9, u32::MAX - 50, 100), segment(9, 49, 100), segment(9, u32::MAX - 50, 100)];
        assert_eq!(counted(&[&around]), [2, 1], "numbers wrap");
        let many: Vec<Vec<u8>> = (0..20_000).map(|port| segment(port, 0, 100)).collect();
        let [all, resent] = counted(&[&many, &new, &[segment(1000, 200, 100)]]);
        assert!(all < 300 && resent == 1, "flows that are seen once hide nothing: {all} {resent}");
    }

    #[test]
    fn what_has_no_data_is_not_counted() {
        let mut udp = segment(9, 0, 100);
        udp[9] = 17;
        let mut fragment = segment(9, 0, 100);
        fragment[6] = 0x20;
        let mut offset = segment(9, 0, 100);
        offset[32] = 0xf0;
        offset.truncate(20 + 30);
        offset[3] = 50;
        let probe = segment(9, 99, 1);
        let all = [segment(9, 0, 0), udp, fragment, offset, probe, vec![0x45], Vec::new()];
        assert_eq!(counted(&[&all, &all]), [0, 0]);
    }

    #[test]
    fn one_burst_a_millisecond_is_looked_at() {
        let (mut look, segments) = (Look::default(), Segments::default());
        let mut batch = Batch::new(10_000);
        let packet = segment(9, 0, 100);
        batch.append(packet.len()).expect("it fits").copy_from_slice(&packet);
        for at in 0..15 {
            look.at(&batch, Time::from_nanoseconds(PAUSE + at * PAUSE / 5), &segments);
        }
        assert_eq!(segments.read(), [2, 2], "three, and of the first nothing is known");
    }
}
