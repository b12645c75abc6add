//! Frames of every protocol, family and size, and every inverted bit of them.

use super::super::streams::{Stream, stream_of};
use super::*;
use std::net::IpAddr;

/// Both families, by the addresses of two ports.
pub const PORTS: [[&str; 2]; 2] = [["198.18.0.2", "198.19.0.2"], ["2001:2::2", "2001:2:0:8000::2"]];

/// A path between two ports with so many streams.
pub fn path_of(protocol: Protocol, ports: [&str; 2], count: usize) -> Path {
    let [source, destination] = ports.map(|text| text.parse::<IpAddr>().expect("literal"));
    Path {
        source_mac: [2, 0x25, 0x44, 0, 0, 1],
        destination_mac: [2, 0x25, 0x44, 0, 0, 2],
        streams: Arc::new(Streams::new(protocol, &Stream::spread(source, destination, count))),
    }
}

/// A path of one stream of UDP over IPv4.
pub fn path() -> Path {
    path_of(Protocol::Udp, PORTS[0], 1)
}

/// The way back.
pub fn back() -> Path {
    path_of(Protocol::Udp, [PORTS[0][1], PORTS[0][0]], 1)
}

#[test]
fn a_tag_is_read_as_it_was_written_in_every_size_protocol_and_family() {
    for (protocol, ports) in Protocol::ALL.into_iter().flat_map(|it| PORTS.map(|ports| (it, ports))) {
        for count in [1, 256] {
            let path = path_of(protocol, ports, count);
            let reader = Reader::new(&path);
            for length in [60, 61, 84, 124, 508, 1276, 1514] {
                let template = Template::new(&path, length);
                assert_eq!(template.length(), length.max(shortest(path.streams.family)));
                let mut frame = vec![0; template.length()];
                for sequence in [0, 1, 65_535, 0xffff_ffff_ffff] {
                    let tag = Tag { trial: 0xabcd, sequence, time: u64::MAX - sequence };
                    template.write(&mut frame, tag);
                    assert_eq!(reader.read(&frame), Seen::Ours(tag), "{protocol:?} {ports:?} {length}");
                }
            }
        }
    }
    assert_eq!((shortest(Family::V4), shortest(Family::V6)), (60, 80));
}

#[test]
fn every_inverted_bit_behind_the_hardware_addresses_is_corruption() {
    for (protocol, ports) in Protocol::ALL.into_iter().flat_map(|it| PORTS.map(|ports| (it, ports))) {
        let path = path_of(protocol, ports, 3);
        let (reader, template) = (Reader::new(&path), Template::new(&path, 60));
        let mut frame = vec![0; template.length()];
        template.write(&mut frame, Tag { trial: 1, sequence: 2, time: 3 });
        for bit in 12 * 8..frame.len() * 8 {
            frame[bit / 8] ^= 0x80 >> (bit % 8);
            // Traffic class, flow label and hop limit.
            let is_free =
                path.streams.family == Family::V6 && ((14 * 8 + 4..18 * 8).contains(&bit) || bit / 8 == 21);
            let seen = reader.read(&frame);
            assert_eq!(matches!(seen, Seen::Ours(_)), is_free, "{protocol:?} {ports:?}, bit {bit}: {seen:?}");
            assert!(
                is_free || matches!(seen, Seen::Corrupt(_)),
                "{protocol:?} {ports:?}, bit {bit}: {seen:?}"
            );
            frame[bit / 8] ^= 0x80 >> (bit % 8);
        }
    }
}

#[test]
fn a_corrupt_frame_is_of_the_stream_whose_addresses_it_has() {
    let path = path_of(Protocol::Udp, PORTS[0], 256);
    let (reader, template) = (Reader::new(&path), Template::new(&path, 60));
    let mut frame = vec![0; 60];
    template.write(&mut frame, Tag { trial: 1, sequence: 77, time: 3 });
    let number = stream_of(77, 256) as u32;
    frame[59] ^= 1;
    assert_eq!(reader.read(&frame), Seen::Corrupt(Some(number)));
    // The address of another stream, with all checksums right.
    let other = path_of(Protocol::Udp, ["198.18.0.2", "198.19.1.2"], 1);
    Template::new(&other, 60).write(&mut frame, Tag { trial: 1, sequence: 77, time: 3 });
    assert_eq!(reader.read(&frame), Seen::Corrupt(None));
}

#[test]
fn frames_of_others_are_foreign_and_padding_is_ignored() {
    for ports in PORTS {
        let [udp, tcp] = [Protocol::Udp, Protocol::Tcp].map(|it| Reader::new(&path_of(it, ports, 1)));
        let template = Template::new(&path_of(Protocol::Tcp, [ports[1], ports[0]], 1), 60);
        let mut frame = vec![0; template.length()];
        let tag = Tag { trial: 1, sequence: 2, time: 3 };
        template.write(&mut frame, tag);
        assert_eq!(udp.read(&frame), Seen::Foreign);
        assert_eq!(udp.read(&[]), Seen::Foreign);
        Template::new(&path_of(Protocol::Tcp, ports, 1), 60).write(&mut frame, tag);
        assert_eq!(udp.read(&frame), Seen::Foreign, "of an earlier measurement with another protocol");
        frame.extend([0; 4]);
        assert_eq!(tcp.read(&frame), Seen::Ours(tag));
    }
}
