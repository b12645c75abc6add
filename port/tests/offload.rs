//! Segmentation and merging are the reverse of each other, and the results are what a network would carry.

use packet::Batch;
use packet::checksum::Sum;
use packet::header::ip::{IpPacket, Ipv4Header, Ipv6Header, TCP, UDP};
use packet::header::tcp::TcpHeader;
use port::tun::coalesce::{Coalescer, SuperPacket};
use port::tun::segment::Segmenter;
use port::tun::virtio::VirtioHeader;
use zerocopy::IntoBytes;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Version {
    V4,
    V6,
}

const PUSH_ACK: u8 = TcpHeader::ACK | TcpHeader::PSH;

fn ip(version: Version, protocol: u8, length: usize, identification: u16, dont_fragment: bool) -> Vec<u8> {
    match version {
        Version::V4 => {
            let mut header = Ipv4Header {
                ds_field: 0x0a,
                identification: identification.into(),
                fragment: if dont_fragment { 0x4000 } else { 0 }.into(),
                ttl: 63,
                ..Ipv4Header::new(protocol, [10, 0, 0, 1], [10, 0, 0, 2], (20 + length) as u16)
            };
            header.finish();
            header.as_bytes().to_vec()
        }
        Version::V6 => {
            let header = Ipv6Header {
                version_class_flow: 0x60a0_0001.into(),
                payload_length: (length as u16).into(),
                next_header: protocol,
                hop_limit: 63,
                source: [0xfd; 16],
                destination: [0xfe; 16],
            };
            header.as_bytes().to_vec()
        }
    }
}

/// The sum of the pseudo header of `packet`, and the offset of the layer 4 header.
fn pseudo(packet: &[u8], protocol: u8) -> (Sum, usize) {
    match IpPacket::parse(packet).expect("built well-formed") {
        IpPacket::V4(ip, _) => {
            (Sum::pseudo_v4(ip.source.into(), ip.destination.into(), protocol, packet.len() - 20), 20)
        }
        IpPacket::V6(ip, _) => {
            (Sum::pseudo_v6(ip.source.into(), ip.destination.into(), protocol, packet.len() - 40), 40)
        }
    }
}

/// A complete packet. With `partial`, the checksum is incomplete, as the kernel leaves it for offloading.
fn finish(mut packet: Vec<u8>, protocol: u8, partial: bool) -> Vec<u8> {
    let (pseudo, start) = pseudo(&packet, protocol);
    let field = start + if protocol == TCP { 16 } else { 6 };
    packet[field..field + 2].fill(0);
    let value =
        if partial { pseudo.fold().to_ne_bytes() } else { (pseudo + Sum::of(&packet[start..])).checksum() };
    packet[field..field + 2].copy_from_slice(&value);
    packet
}

struct Tcp {
    version: Version,
    sequence: u32,
    flags: u8,
    identification: u16,
    options: usize,
}

const TCP_V4: Tcp =
    Tcp { version: Version::V4, sequence: 1000, flags: TcpHeader::ACK, identification: 5, options: 12 };

impl Tcp {
    fn packet(&self, payload: &[u8], partial: bool) -> Vec<u8> {
        let header = TcpHeader {
            source: 40_000.into(),
            destination: 443.into(),
            sequence: self.sequence.into(),
            acknowledgment: 77.into(),
            data_offset: (((20 + self.options) / 4) << 4) as u8,
            flags: self.flags,
            window: 500.into(),
            checksum: [0; 2],
            urgent: 0.into(),
        };
        let length = 20 + self.options + payload.len();
        let ip = ip(self.version, TCP, length, self.identification, true);
        let packet = [&ip, header.as_bytes(), &vec![1; self.options], payload].concat();
        finish(packet, TCP, partial)
    }
}

fn udp(version: Version, payload: &[u8], identification: u16, dont_fragment: bool, partial: bool) -> Vec<u8> {
    let length = 8 + payload.len();
    let header = [&[0x9c, 0x40, 0, 53][..], &(length as u16).to_be_bytes(), &[0, 0]].concat();
    let ip = ip(version, UDP, length, identification, dont_fragment);
    finish([&ip, &header, payload].concat(), UDP, partial)
}

fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 % 251) as u8).collect()
}

fn batch_of(packets: &[Vec<u8>]) -> Batch {
    let mut batch = Batch::new(1 << 20);
    for packet in packets {
        batch.append(packet.len()).expect("it fits").copy_from_slice(packet);
    }
    batch
}

fn packets_of(batch: &Batch) -> Vec<Vec<u8>> {
    batch.live(0..batch.len()).map(|index| batch.packet(index).to_vec()).collect()
}

fn header(gso_type: u8, gso_size: usize, start: usize, field: usize) -> VirtioHeader {
    VirtioHeader {
        flags: VirtioHeader::NEEDS_CHECKSUM,
        gso_type,
        // The kernel's hint may be wrong, and must not be used.
        header_length: 9999,
        gso_size: gso_size as u16,
        checksum_start: start as u16,
        checksum_offset: field as u16,
    }
}

fn cut(header: &VirtioHeader, packet: &[u8]) -> Vec<Vec<u8>> {
    let mut packet = packet.to_vec();
    let mut segmenter = Segmenter::new(header, &mut packet).expect("well-formed");
    let mut batch = Batch::new(1 << 20);
    assert!(segmenter.write(&packet, &mut batch), "it fits");
    packets_of(&batch)
}

/// The writes to TUN for the packets of `batch`: one header and one packet each.
fn merge(batch: &Batch) -> Vec<(VirtioHeader, Vec<u8>)> {
    let mut coalescer = Coalescer::default();
    coalescer.group(batch, true, true);
    let groups = coalescer.groups().to_vec();
    let merged = groups.iter().map(|group| {
        let packets: Vec<usize> = coalescer.packets(group).collect();
        if packets.len() == 1 {
            return (VirtioHeader::default(), batch.packet(packets[0]).to_vec());
        }
        let whole =
            SuperPacket::new(group, batch.packet(packets[0]), batch.packet(*packets.last().expect("two")));
        let mut bytes = whole.headers().to_vec();
        for &index in &packets {
            bytes.extend(&batch.packet(index)[whole.headers().len()..]);
        }
        (whole.virtio, bytes)
    });
    merged.collect()
}

fn is_whole(packet: &[u8], protocol: u8) -> bool {
    let (pseudo, start) = pseudo(packet, protocol);
    (pseudo + Sum::of(&packet[start..])).is_valid() && (start == 40 || Sum::of(&packet[..20]).is_valid())
}

#[test]
fn a_tcp_super_packet_is_split_into_valid_segments() {
    for version in [Version::V4, Version::V6] {
        let (kind, start) = if version == Version::V4 { (1, 20) } else { (4, 40) };
        for length in [1, 1368, 1369, 5000, 64_000] {
            let flags = PUSH_ACK | TcpHeader::FIN | TcpHeader::CWR;
            let whole = Tcp { version, flags, ..TCP_V4 }.packet(&payload(length), true);
            let segments = cut(&header(kind, 1368, start, 16), &whole);
            assert_eq!(segments.len(), length.div_ceil(1368));
            let last = segments.len() - 1;
            for (number, segment) in segments.iter().enumerate() {
                assert!(is_whole(segment, TCP), "{version:?}, {length} bytes, segment {number}");
                let (tcp, _) = TcpHeader::parse(&segment[start..]).expect("well-formed");
                assert_eq!(tcp.sequence.get(), 1000 + number as u32 * 1368);
                assert_eq!(tcp.flags & (TcpHeader::FIN | TcpHeader::PSH) != 0, number == last);
                assert_eq!(tcp.flags & TcpHeader::CWR != 0, number == 0);
            }
            let joined: Vec<u8> =
                segments.iter().flat_map(|segment| segment[start + 32..].to_vec()).collect();
            assert_eq!(joined, payload(length));
        }
    }
}

#[test]
fn a_udp_super_packet_is_split_into_valid_datagrams() {
    for version in [Version::V4, Version::V6] {
        let start = if version == Version::V4 { 20 } else { 40 };
        let whole = udp(version, &payload(3000), 9, false, true);
        let segments = cut(&header(VirtioHeader::GSO_UDP, 1000, start, 6), &whole);
        assert_eq!(segments.iter().map(Vec::len).collect::<Vec<_>>(), [start + 8 + 1000; 3]);
        assert!(segments.iter().all(|segment| is_whole(segment, UDP)));
        if version == Version::V4 {
            let identifications: Vec<u8> = segments.iter().map(|segment| segment[5]).collect();
            assert_eq!(identifications, [9, 10, 11]);
        }
    }
}

#[test]
fn only_a_partial_checksum_of_a_single_packet_is_completed() {
    let partial = udp(Version::V4, &payload(100), 1, true, true);
    let finished = cut(&header(VirtioHeader::GSO_NONE, 0, 20, 6), &partial);
    assert_eq!(finished, [udp(Version::V4, &payload(100), 1, true, false)]);
    let damaged = [vec![0x45], payload(99)].concat();
    assert_eq!(cut(&VirtioHeader::default(), &damaged), [damaged]);
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    // The last two bytes are chosen so that all words add up to ones.
    let mut data = payload(100);
    data[98..].fill(0);
    let rest = udp(Version::V4, &data, 1, true, false);
    data[98..].copy_from_slice(&rest[26..28]);
    let partial = udp(Version::V4, &data, 1, true, true);
    assert_eq!(cut(&header(VirtioHeader::GSO_NONE, 0, 20, 6), &partial)[0][26..28], [0xff; 2]);
    let super_packet = udp(Version::V4, &[&data[..], &[7]].concat(), 1, true, true);
    assert_eq!(cut(&header(VirtioHeader::GSO_UDP, 100, 20, 6), &super_packet)[0][26..28], [0xff; 2]);
}

#[test]
fn a_super_packet_that_does_not_fit_is_continued_in_the_next_batch() {
    let whole = TCP_V4.packet(&payload(60_000), true);
    let header = header(VirtioHeader::GSO_TCP_V4, 500, 20, 16);
    let expected = cut(&header, &whole);
    let mut packet = whole;
    let mut segmenter = Segmenter::new(&header, &mut packet).expect("well-formed");
    let mut batch = Batch::new(Batch::footprint(552) * 7);
    let mut found = Vec::new();
    while !segmenter.write(&packet, &mut batch) {
        found.extend(packets_of(&batch));
        batch.clear();
    }
    found.extend(packets_of(&batch));
    assert_eq!(found, expected);
}

#[test]
fn headers_that_contradict_the_packet_are_refused() {
    let whole = TCP_V4.packet(&payload(5000), true);
    for wrong in [
        header(VirtioHeader::GSO_TCP_V4, 0, 20, 16),
        header(VirtioHeader::GSO_TCP_V4, 1000, 10, 16),
        header(VirtioHeader::GSO_TCP_V4, 1000, 6000, 16),
        header(VirtioHeader::GSO_NONE, 0, 5051, 16),
        header(VirtioHeader::GSO_NONE, 0, 20, 6000),
        header(3, 1000, 20, 16),
    ] {
        assert!(Segmenter::new(&wrong, &mut whole.clone()).is_err(), "{wrong:?}");
    }
    for length in 0..52 {
        let header = header(VirtioHeader::GSO_TCP_V4, 1000, 20, 16);
        assert!(Segmenter::new(&header, &mut whole[..length].to_vec()).is_err(), "{length} bytes");
    }
}

#[test]
fn merging_segments_restores_the_super_packet() {
    for version in [Version::V4, Version::V6] {
        let (kind, start) = if version == Version::V4 { (1, 20) } else { (4, 40) };
        for length in [2737, 30_000, 60_000] {
            let whole = Tcp { version, flags: PUSH_ACK, ..TCP_V4 }.packet(&payload(length), true);
            let said = header(kind, 1368, start, 16);
            let merged = merge(&batch_of(&cut(&said, &whole)));
            let expected = VirtioHeader { header_length: start as u16 + 32, ..said };
            assert_eq!(merged, [(expected, whole)], "{version:?}, {length} bytes");
        }
        let whole = udp(version, &payload(4500), 9, false, true);
        let said = header(VirtioHeader::GSO_UDP, 1000, start, 6);
        let merged = merge(&batch_of(&cut(&said, &whole)));
        assert_eq!(
            merged,
            [(VirtioHeader { header_length: start as u16 + 8, ..said }, whole)],
            "{version:?}"
        );
    }
}

/// The number of packets of each write after merging.
fn groups(packets: &[Vec<u8>]) -> Vec<usize> {
    let batch = batch_of(packets);
    let mut coalescer = Coalescer::default();
    coalescer.group(&batch, true, true);
    coalescer.groups().iter().map(|group| group.count).collect()
}

fn tcp_at(sequence: u32, identification: u16, length: usize) -> Vec<u8> {
    Tcp { sequence, identification, ..TCP_V4 }.packet(&payload(length), false)
}

#[test]
fn only_consecutive_packets_of_a_flow_are_merged() {
    assert_eq!(groups(&[tcp_at(0, 1, 100), tcp_at(100, 2, 100), tcp_at(200, 3, 50)]), [3]);
    assert_eq!(groups(&[tcp_at(0, 1, 100), tcp_at(101, 2, 100)]), [1, 1], "a gap");
    assert_eq!(
        groups(&[tcp_at(0, 1, 100), tcp_at(100, 2, 50), tcp_at(150, 3, 50)]),
        [2, 1],
        "behind a shorter one"
    );
    assert_eq!(groups(&[tcp_at(0, 1, 50), tcp_at(50, 2, 100)]), [1, 1], "a longer one");
    let push = Tcp { flags: PUSH_ACK, ..TCP_V4 }.packet(&payload(100), false);
    assert_eq!(groups(&[push, tcp_at(1100, 6, 100)]), [1, 1], "after PSH");
    let ack = Tcp { sequence: 1100, identification: 6, ..TCP_V4 }.packet(&[], false);
    assert_eq!(groups(&[tcp_at(1000, 5, 100), ack]), [1, 1], "an acknowledgment without data");
    let fin =
        Tcp { sequence: 1100, flags: TcpHeader::ACK | TcpHeader::FIN, ..TCP_V4 }.packet(&payload(9), false);
    assert_eq!(groups(&[tcp_at(1000, 5, 100), fin]), [1, 1], "FIN");
    let options = Tcp { sequence: 1100, options: 8, ..TCP_V4 }.packet(&payload(100), false);
    assert_eq!(groups(&[tcp_at(1000, 5, 100), options]), [1, 1], "other options");
}

#[test]
fn alternating_flows_are_merged_separately() {
    let mut packets = Vec::new();
    for number in 0..10u32 {
        packets.push(tcp_at(number * 100, number as u16, 100));
        packets.push(
            Tcp { version: Version::V6, sequence: number * 100, ..TCP_V4 }.packet(&payload(100), false),
        );
        packets.push(udp(Version::V4, &payload(64), number as u16, true, false));
    }
    assert_eq!(groups(&packets), [10, 10, 10]);
}

#[test]
fn a_damaged_packet_is_not_merged() {
    for damaged in 0..3 {
        let mut packets = vec![tcp_at(0, 1, 100), tcp_at(100, 2, 100), tcp_at(200, 3, 100)];
        packets[damaged][60] ^= 1;
        let merged = merge(&batch_of(&packets));
        assert!(merged.iter().any(|(header, packet)| header.gso_type == 0 && *packet == packets[damaged]));
        for (header, packet) in merged.iter().filter(|(header, _)| header.gso_type != 0) {
            assert!(
                cut(header, packet).iter().all(|packet| packets.contains(packet) && is_whole(packet, TCP))
            );
        }
    }
}

#[test]
fn a_datagram_without_a_checksum_is_not_merged() {
    let mut packets =
        vec![udp(Version::V4, &payload(64), 1, true, false), udp(Version::V4, &payload(64), 2, true, false)];
    packets[0][26..28].fill(0);
    packets[1][26..28].fill(0);
    assert_eq!(groups(&packets), [1, 1]);
}

#[test]
fn without_df_identifications_must_be_consecutive() {
    let of = |identifications: [u16; 2], dont_fragment| {
        identifications.map(|number| udp(Version::V4, &payload(64), number, dont_fragment, false))
    };
    assert_eq!(groups(&of([7, 8], false)), [2]);
    assert_eq!(groups(&of([7, 9], false)), [1, 1]);
    assert_eq!(groups(&of([0, 0], true)), [2]);
}

#[test]
fn a_super_packet_is_no_larger_than_an_ip_packet() {
    let packets: Vec<_> = (0..100).map(|number| tcp_at(number * 1368, number as u16, 1368)).collect();
    let merged = merge(&batch_of(&packets));
    assert!(merged.iter().all(|(_, packet)| packet.len() <= 65_535));
    assert_eq!(merged.len(), 3);
}

/// The position of each packet of the batch in the order of writing.
fn positions(packets: &[Vec<u8>]) -> Vec<usize> {
    let batch = batch_of(packets);
    let mut coalescer = Coalescer::default();
    coalescer.group(&batch, true, true);
    let mut positions = vec![usize::MAX; packets.len()];
    let written = coalescer.groups().iter().flat_map(|group| coalescer.packets(group));
    written.enumerate().for_each(|(position, index)| positions[index] = position);
    positions
}

/// Changes the source port of a TCP or UDP packet.
fn with_port(mut packet: Vec<u8>, port: u8) -> Vec<u8> {
    let (start, protocol) = if packet[0] >> 4 == 4 { (20, packet[9]) } else { (40, packet[6]) };
    packet[start + 1] = port;
    finish(packet, protocol, false)
}

/// The IP version of a packet, and its port if it has one.
type Key = (Version, Option<(bool, u64)>);

/// A packet of one of six flows, with or without data, sometimes in a fragment or of another protocol.
fn any_packet(number: u16, sequences: &mut [u32; 3], random: &mut impl FnMut(u64) -> u64) -> (Key, Vec<u8>) {
    let (port, is_udp) = (random(3), random(3) == 0);
    let (version, start) = if port == 2 { (Version::V6, 40) } else { (Version::V4, 20) };
    let length = [100, 100, 100, 100, 40, 0][random(6) as usize];
    let flags = TcpHeader::ACK | if random(3) == 0 { TcpHeader::FIN } else { 0 };
    let sequence = sequences[port as usize];
    let tcp = Tcp { version, sequence, flags, identification: number, options: 12 };
    let packet = if is_udp {
        udp(version, &payload(length), number, true, false)
    } else {
        sequences[port as usize] += length as u32;
        tcp.packet(&payload(length), false)
    };
    let mut packet = with_port(packet, port as u8);
    let kind = random(12);
    match kind {
        0 if is_udp => packet[start + 6..start + 8].fill(0),
        1 => packet[if start == 20 { 9 } else { 6 }] = 47,
        2 if start == 20 => packet[6] = 0x20,
        _ => {}
    }
    let shown = kind != 1 && !(kind == 2 && start == 20);
    ((version, shown.then_some((is_udp, port))), packet)
}

#[test]
fn packets_of_a_flow_stay_in_order() {
    let ack = Tcp { sequence: 1100, ..TCP_V4 }.packet(&[], false);
    assert_eq!(positions(&[tcp_at(1000, 5, 100), ack, tcp_at(1100, 6, 100)]), [0, 1, 2]);
    let mut random = numbers(7);
    for _ in 0..500 {
        let mut sequences = [0; 3];
        let mixed = (0..50).map(|number| any_packet(number, &mut sequences, &mut random));
        let (flows, packets): (Vec<Key>, Vec<Vec<u8>>) = mixed.unzip();
        let positions = positions(&packets);
        for (second, (version, port)) in flows.iter().enumerate() {
            for (first, (other, before)) in flows[..second].iter().enumerate() {
                let may_be_one = version == other && (port == before || port.is_none() || before.is_none());
                assert!(!may_be_one || positions[first] < positions[second], "{first} and {second}");
            }
        }
    }
}

/// Pseudorandom numbers below a given limit.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    }
}

#[test]
fn random_packets_are_merged_without_loss() {
    let mut random = numbers(99);
    for _ in 0..300 {
        let mut packets = Vec::new();
        let mut sequences = [0u32; 3];
        for number in 0..60u16 {
            let flow = random(3) as usize;
            let length = [100, 100, 100, 37, 0][random(5) as usize];
            let version = if flow == 2 { Version::V6 } else { Version::V4 };
            let flags = if random(10) == 0 { PUSH_ACK } else { TcpHeader::ACK };
            let options = [12, 12, 12, 8][random(4) as usize];
            let tcp = Tcp { version, sequence: sequences[flow], flags, identification: number, options };
            let mut packet = tcp.packet(&payload(length), false);
            if flow == 1 {
                packet[9] = UDP;
            }
            if random(20) == 0 {
                let at = random(packet.len() as u64) as usize;
                packet[at] ^= 1 << random(8);
            }
            sequences[flow] += length as u32;
            packets.push(packet);
        }
        let mut out: Vec<Vec<u8>> = merge(&batch_of(&packets))
            .iter()
            .flat_map(
                |(header, packet)| {
                    if header.gso_type == 0 { vec![packet.clone()] } else { cut(header, packet) }
                },
            )
            .collect();
        // With DF set, merging may change the identification, and with it the checksum.
        for packet in
            out.iter_mut().chain(&mut packets).filter(|packet| packet.len() > 20 && packet[0] == 0x45)
        {
            packet[4..6].fill(0);
            packet[10..12].fill(0);
        }
        out.sort();
        packets.sort();
        assert_eq!(out, packets);
    }
}
