//! OpenVPN: the first word of a data packet names the SA, peers are found by prefix, and a client may move.

use super::{PacketType, Room, Wire};
use arc_swap::ArcSwapOption;
use crossbeam_utils::CachePadded;
use packet::header::ip::{Ipv4Header, Ipv6Header, MAXIMUM};
use packet::header::udp::UdpHeader;
use packet::{DropReason, Endpoint, PackedEndpoint};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tunnel::openvpn::activity::Activity;
use tunnel::openvpn::data::Header;
use tunnel::openvpn::limits::LONGEST_PACKET;
use tunnel::openvpn::packet::Lead;
use tunnel::{Protection, Time};

/// Bytes of the shortest data packet without text: version 1, packet number and tag.
const SHORTEST_DATA: usize = 1 + 4 + 16;
/// Bytes of the shortest control packet: leading byte, session ID, and the number of acknowledgments.
const SHORTEST_CONTROL: usize = 1 + 8 + 1;

/// Bytes of a TCP header, and of the length before a packet.
const STREAM_HEADER: usize = 20 + 2;

/// The wire format: opcode and key ID in the first byte, the peer ID of version 2 in the next three.
pub(super) struct Datagrams;

impl Wire for Datagrams {
    const SHORTEST: usize = SHORTEST_DATA;

    #[inline]
    fn type_of(datagram: &[u8]) -> Result<PacketType, DropReason> {
        let lead = Lead::parse(*datagram.first().ok_or(DropReason::TooShort)?).ok_or(DropReason::NotOurs)?;
        if !lead.opcode.is_data() {
            return Ok(PacketType::Handshake);
        }
        // Version 1 has no peer ID. It is looked up with 0, the only session of a client; a server admits no peer without IDs.
        Header::parse(datagram).map(|header| PacketType::Data(header.word())).ok_or(DropReason::TooShort)
    }

    #[inline]
    fn is_same(one: &[u8], other: &[u8]) -> bool {
        let first = one.first_chunk::<4>();
        // The bytes after the first one of version 1 are the packet number.
        let is_v1 = || one.first() == other.first() && matches!(Header::parse(one), Some(Header::V1 { .. }));
        first.is_some() && other.first_chunk() == first || is_v1()
    }

    fn handshake(datagram: &[u8]) -> &[u8] {
        datagram
    }
}

/// Control packets have a header, and a largest length.
pub(super) fn check_message(message: &[u8]) -> Result<(), DropReason> {
    match message.len() {
        ..SHORTEST_CONTROL => Err(DropReason::TooShort),
        SHORTEST_CONTROL..=LONGEST_PACKET => Ok(()),
        _ => Err(DropReason::NotOurs),
    }
}

/// What the data path knows of a peer.
pub struct Link {
    /// When packets were sent and received, for pings and their absence.
    pub activity: Arc<Activity>,
    /// Whether the endpoint follows authentic packets. A client follows its server only if it is told to (`float`).
    pub follows: bool,
    /// `mssfix`: the outer packets that TCP segments fit in, with their IP header.
    pub fitting: Option<usize>,
    /// Whether packets are carried by a TCP connection, which the session is bound to.
    pub(super) is_stream: bool,
    /// Where the last authentic packet has come from that did not come from the endpoint. The control thread judges it, as another
    /// client may be there.
    moved: ArcSwapOption<Endpoint>,
    /// Whether the control thread was told, and has not asked yet.
    is_told: AtomicBool,
    /// The bits of the DS field that are copied outside (`passtos`).
    ds_mask: u8,
    /// Bytes outside of packets other than pings, if they are counted (`inactive`).
    data: Option<CachePadded<AtomicU64>>,
}

impl Link {
    /// A peer that has not moved.
    pub fn new(activity: Arc<Activity>, follows: bool, fitting: Option<usize>) -> Self {
        Self {
            activity,
            follows,
            fitting,
            is_stream: false,
            moved: ArcSwapOption::empty(),
            is_told: AtomicBool::new(false),
            ds_mask: 0,
            data: None,
        }
    }

    /// The same peer on a TCP connection, which it does not leave.
    #[must_use]
    pub fn on_connection(self) -> Self {
        Self { follows: false, is_stream: true, ..self }
    }

    /// The same peer, with the DSCP outside that is inside. Congestion marks are not copied: the peer may not carry them inside.
    #[must_use]
    pub fn with_dscp(self) -> Self {
        Self { ds_mask: 0xfc, ..self }
    }

    /// The same peer, whose bytes of data are counted.
    #[must_use]
    pub fn with_count(self) -> Self {
        Self { data: Some(CachePadded::default()), ..self }
    }

    /// Bytes outside of packets other than pings so far; 0 if they are not counted.
    pub fn data_bytes(&self) -> u64 {
        self.data.as_ref().map_or(0, |data| data.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn count_data(&self, bytes: usize) {
        if let Some(data) = &self.data {
            data.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Notes that an authentic packet has come from there, and not from the endpoint; returns whether the control thread must be told.
    pub fn note_moved(&self, from: Endpoint) -> bool {
        if self.moved.load().as_deref() == Some(&from) {
            return false;
        }
        self.moved.store(Some(Arc::new(from)));
        !self.is_told.swap(true, Ordering::AcqRel)
    }

    /// Where that was; the control thread is told about the next place, and of this one no more.
    pub fn moved(&self) -> Option<Endpoint> {
        self.is_told.store(false, Ordering::Release);
        self.moved.load().as_deref().copied()
    }

    /// What was refused may be accepted now: the control thread is told again.
    pub fn judge_again(&self) {
        self.moved.store(None);
    }

    /// The length fields of the outer headers are the only limit for packets: larger ones are fragmented outside. TCP is told
    /// to send segments that need no fragments.
    #[inline]
    pub(super) fn room(&self, protection: &Protection, endpoint: &PackedEndpoint) -> Room {
        let is_v4 = endpoint.is_v4();
        let ip = if is_v4 { Ipv4Header::LENGTH } else { Ipv6Header::LENGTH };
        let (most, transport) = match (self.is_stream, is_v4) {
            (true, _) => (MAXIMUM, STREAM_HEADER),
            (false, true) => (MAXIMUM - Ipv4Header::LENGTH - UdpHeader::LENGTH, UdpHeader::LENGTH),
            (false, false) => (MAXIMUM - UdpHeader::LENGTH, UdpHeader::LENGTH),
        };
        let largest = protection.largest(most);
        let fitting =
            self.fitting.map_or(largest, |outer| protection.largest(outer.saturating_sub(ip + transport)));
        // RFC 6040 section 4.1, compatibility mode: an OpenVPN peer may not carry congestion marks inside.
        Room { largest, usual: largest, fitting, ds_mask: self.ds_mask, clamps_mss: false, whole: false }
    }

    pub(super) fn note_sent(&self, now: Time) {
        self.activity.sent(now);
    }

    pub(super) fn note_received(&self, now: Time) {
        self.activity.received(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(word: u32) -> Option<u32> {
        let datagram = [&word.to_be_bytes()[..], &[0; 40]].concat();
        match Datagrams::type_of(&datagram) {
            Ok(PacketType::Data(index)) => Some(index),
            _ => None,
        }
    }

    #[test]
    fn data_packets_name_their_sa_and_others_are_control_packets_or_not_ours() {
        assert_eq!(data(0x4a01_0203), Some(0x4a01_0203), "version 2: key ID and peer ID");
        assert_eq!(data(0x3501_0203), Some(0x3500_0000), "version 1: key ID");
        for opcode in [3u8, 4, 5, 7, 8, 10, 11] {
            assert!(matches!(Datagrams::type_of(&[opcode << 3]), Ok(PacketType::Handshake)), "{opcode}");
        }
        for opcode in [0u8, 1, 2, 12, 31] {
            assert!(matches!(Datagrams::type_of(&[opcode << 3]), Err(DropReason::NotOurs)), "{opcode}");
        }
        assert!(matches!(Datagrams::type_of(&[9 << 3, 1, 2]), Err(DropReason::TooShort)));
    }

    #[test]
    fn packets_of_one_key_and_one_peer_are_one_batch() {
        let v2 = |peer: u8, number: u8| [0x48, 0, 0, peer, 0, 0, 0, number];
        assert!(Datagrams::is_same(&v2(1, 1), &v2(1, 2)) && !Datagrams::is_same(&v2(1, 1), &v2(2, 1)));
        let v1 = |key: u8, number: u8| [0x30 | key, 0, 0, number, number, 0, 0, 0];
        assert!(Datagrams::is_same(&v1(1, 1), &v1(1, 2)) && !Datagrams::is_same(&v1(1, 1), &v1(2, 1)));
    }

    #[test]
    fn a_move_is_told_once_until_it_is_read() {
        let link = Link::new(Arc::default(), true, None);
        let [one, other] =
            ["192.0.2.1:1", "192.0.2.1:2"].map(|it| Endpoint::new(it.parse().expect("literal")));
        assert!(link.note_moved(one) && !link.note_moved(one) && !link.note_moved(other));
        assert_eq!(link.moved(), Some(other));
        assert!(!link.note_moved(other), "it was judged");
        assert!(link.note_moved(one));
        assert_eq!(link.moved(), Some(one));
        link.judge_again();
        assert!(link.note_moved(one));
    }

    #[test]
    fn control_packets_have_a_plausible_length() {
        for (length, expected) in [
            (9, Err(DropReason::TooShort)),
            (10, Ok(())),
            (LONGEST_PACKET, Ok(())),
            (LONGEST_PACKET + 1, Err(DropReason::NotOurs)),
        ] {
            assert_eq!(check_message(&vec![0; length]), expected, "{length}");
        }
    }
}
