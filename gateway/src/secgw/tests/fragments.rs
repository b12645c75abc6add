//! Packets that do not show the ports or the protocol that policies are about.

use super::*;
use packet::header::ethernet::IPV6;
use packet::header::ip::{Ipv6Header, TCP};

const DESTINATION_OPTIONS: u8 = 60;

/// A later fragment.
fn fragment(protocol: u8, destination: [u8; 4]) -> Vec<u8> {
    let mut bytes = packet(protocol, destination, 0, &[0, 9, 0, 9, 0, 0, 0, 0]);
    bytes[7] = 5;
    bytes
}

/// The policies of the scene replaced by these.
fn scene(policies: &str) -> Scene {
    let rest = FILE.lines().filter(|line| !line.starts_with("sp "));
    let lines: Vec<&str> =
        policies.lines().chain(rest).chain(["rt ipv4 dst 192.168.4.0/24 port 1"]).collect();
    Scene::new(&keys(&(lines.join("\n") + "\n")))
}

/// The protocol that each packet has outside.
fn outside(scene: &mut Scene, packets: &[Vec<u8>]) -> Vec<u8> {
    let frames: Vec<Vec<u8>> = packets.iter().map(|packet| ours(packet)).collect();
    let [inside, outside] = scene.carry(0, &frames);
    assert!(inside.is_empty());
    let mut protocols: Vec<u8> = outside.iter().map(|frame| frame[23]).collect();
    protocols.sort_unstable();
    protocols
}

#[test]
fn a_later_fragment_passes_in_clear_only_if_its_packet_would_with_any_ports() {
    let mut by_port = scene(
        "sp ipv4 out esp protect 5 pri 2 dst 192.168.3.0/24 proto 17:255 sport 0:65535 dport 53:53
sp ipv4 out esp bypass pri 1 dst 192.168.0.0/16 sport 0:65535 dport 0:65535
sp ipv4 in esp protect 5 pri 2 src 192.168.3.0/24 proto 17:255 sport 53:53 dport 0:65535
sp ipv4 in esp bypass pri 1 dst 192.168.0.0/16 sport 0:65535 dport 0:65535",
    );
    assert_eq!(outside(&mut by_port, &[fragment(UDP, [192, 168, 3, 2])]), [50]);
    let clear = [fragment(TCP, [192, 168, 3, 2]), fragment(UDP, [192, 168, 4, 2])];
    assert_eq!(outside(&mut by_port, &clear), [TCP, UDP]);
    let dns = packet(UDP, [192, 168, 3, 2], 0, &[0, 9, 0, 53, 0, 8, 0, 0]);
    let other = packet(UDP, [192, 168, 3, 2], 0, &[0, 9, 0, 54, 0, 8, 0, 0]);
    assert_eq!(outside(&mut by_port, &[dns, other]), [UDP, 50]);
    // A packet that ends before its ports.
    assert_eq!(outside(&mut by_port, &[packet(UDP, [192, 168, 3, 2], 0, &[0, 9])]), [50]);
    // A fragment of what should have come under an SA.
    let mut bytes = fragment(UDP, [192, 168, 2, 2]);
    bytes[12..16].copy_from_slice(&[192, 168, 3, 2]);
    assert_eq!(by_port.carry(1, &[ours(&bytes)]), NOTHING);
    assert_eq!(by_port.dropped(), [(DropReason::Denied, 1)]);

    let mut but_port = scene(
        "sp ipv4 out esp bypass pri 2 dst 192.168.3.0/24 proto 17:255 sport 0:65535 dport 0:100
sp ipv4 out esp protect 5 pri 1 dst 192.168.3.0/24 sport 0:65535 dport 0:65535
sp ipv4 out esp discard pri 2 dst 192.168.4.0/24 sport 0:65535 dport 80:80",
    );
    assert_eq!(outside(&mut but_port, &[fragment(UDP, [192, 168, 3, 2])]), [50]);
    assert!(outside(&mut but_port, &[fragment(TCP, [192, 168, 4, 2])]).is_empty());
    assert_eq!(but_port.dropped(), [(DropReason::Denied, 1)]);
}

#[test]
fn a_chain_of_extension_headers_that_hides_the_protocol_matches_no_policy() {
    let mut scene = scene(
        "sp ipv6 out esp protect 5 pri 2 dst fd20::/16 proto 17:255 sport 0:65535 dport 0:65535
sp ipv6 out esp bypass pri 1 dst fd20::/16 sport 0:65535 dport 0:65535
rt ipv6 dst fd20::/16 port 1",
    );
    let chain = |headers: usize, last: u8| {
        let mut destination = [0; 16];
        destination[..2].copy_from_slice(&[0xfd, 0x20]);
        let header = Ipv6Header {
            hop_limit: 7,
            ..Ipv6Header::new(DESTINATION_OPTIONS, [0xfd; 16], destination, 8 * headers as u16 + 8)
        };
        let mut bytes = header.as_bytes().to_vec();
        for left in (0..headers).rev() {
            let next = if left == 0 { last } else { DESTINATION_OPTIONS };
            bytes.extend([next, 0, 1, 4, 0, 0, 0, 0]);
        }
        bytes.extend([0, 9, 0, 9, 0, 8, 0, 0]);
        frame(OURS, IPV6, &bytes)
    };
    let [_, outside] = scene.carry(0, &[chain(8, UDP)]);
    assert_eq!(outside[0][23], 50);
    let [_, outside] = scene.carry(0, &[chain(8, TCP)]);
    assert_eq!(outside[0][20], DESTINATION_OPTIONS, "in clear");
    assert_eq!(scene.carry(0, &[chain(9, UDP)]), NOTHING);
    assert_eq!(scene.dropped(), [(DropReason::Denied, 1)]);
}

#[test]
fn a_fragment_that_would_end_behind_the_longest_packet_is_not_cut() {
    let mut scene = Scene::new(&file());
    let mut bytes = packet(UDP, [192, 168, 3, 2], 0, &[6; 1600]);
    bytes[6..8].copy_from_slice(&[0x1f, 0xff]);
    assert_eq!(scene.carry(0, &[ours(&bytes)]), NOTHING);
    assert_eq!(scene.dropped(), [(DropReason::Malformed, 1)]);
}
