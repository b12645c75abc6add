//! Transport mode, numbers, single SAs and UDP.

use super::*;
use packet::checksum::Sum;
use packet::header::chain::find_esp;
use packet::header::ethernet::IPV6;
use packet::header::ip::{Ipv6Header, TCP};

const TRANSPORT: &str = "\
sp ipv4 out esp protect 5 pri 1 dst 192.168.2.0/24 sport 0:65535 dport 0:65535
sp ipv6 out esp protect 5 pri 1 dst fd02::/64 sport 0:65535 dport 0:65535
sp ipv4 in esp protect 5 pri 1 dst 192.168.2.0/24 proto 6:255 sport 0:65535 dport 0:65535
sp ipv6 in esp protect 5 pri 1 dst fd02::/64 sport 0:65535 dport 0:65535
sa out 5 aead_algo aes-128-gcm aead_key KEY mode transport
sa in 5 aead_algo aes-128-gcm aead_key KEY mode transport
rt ipv4 dst 192.168.2.0/24 port PORT
rt ipv6 dst fd02::/64 port PORT
";

fn transport(port: u8) -> String {
    keys(TRANSPORT).replace("PORT", &port.to_string())
}

/// An IPv6 packet behind hop-by-hop options and a routing header, with options of the destination before this payload of TCP.
fn extended(payload: &[u8]) -> Vec<u8> {
    let header = Ipv6Header {
        version_class_flow: 0x6b81_2345.into(),
        payload_length: (24 + payload.len() as u16).into(),
        next_header: 0,
        hop_limit: 7,
        source: "fd01::2".parse::<std::net::Ipv6Addr>().expect("an address").octets(),
        destination: "fd02::2".parse::<std::net::Ipv6Addr>().expect("an address").octets(),
    };
    let extensions = [43, 0, 1, 4, 0, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0, TCP, 0, 1, 4, 0, 0, 0, 0];
    [header.as_bytes(), &extensions, payload].concat()
}

fn v6(packet: &[u8]) -> Vec<u8> {
    frame(OURS, IPV6, packet)
}

/// The frames as they arrive at the other gateway.
fn arrived(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().map(|sent| [&OURS[..], &sent[6..]].concat()).collect()
}

/// An IPv4 packet with 4 bytes of options and this payload.
fn with_options(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = packet(protocol, [192, 168, 2, 2], 0xb8, &[&[1, 1, 1, 0], payload].concat());
    bytes[0] = 0x46;
    bytes[10..12].fill(0);
    let checksum = Sum::of(&bytes[..24]).checksum();
    bytes[10..12].copy_from_slice(&checksum);
    bytes
}

#[test]
fn in_transport_mode_headers_stay_and_esp_is_behind_them() {
    let (mut left, mut right) = (Scene::new(&transport(1)), Scene::new(&transport(0)));
    let (old, new) = (with_options(TCP, &[7; 41]), extended(&[9; 50]));
    let [_, outside] = left.carry(0, &[ours(&old), v6(&new)]);
    assert_eq!(outside.len(), 2);
    let Ok(ip @ IpPacket::V4(header, bytes)) = IpPacket::parse(&outside[0][14..]) else { panic!("IPv4") };
    assert_eq!(find_esp(&ip).map(|place| place.offset), Some(24), "behind the options");
    assert!(Sum::of(&bytes[..24]).is_valid());
    assert_eq!((header.ttl, header.ds_field, header.identification.get()), (9, 0xb8, 7));
    assert_eq!((header.source, header.destination), ([192, 168, 1, 2], [192, 168, 2, 2]));
    assert!(!outside[0][14..].windows(8).any(|bytes| bytes == [7; 8]), "the payload is encrypted");
    let ip = IpPacket::parse(&outside[1][14..]).expect("it is IPv6");
    assert_eq!(find_esp(&ip).map(|place| (place.offset, place.field)), Some((64, 56)));
    assert_eq!(ip.bytes()[..4], new[..4]);
    let [inside, outside] = right.carry(1, &arrived(&outside));
    assert!(outside.is_empty());
    assert_eq!(inside[0][14..14 + old.len()], old, "options and all");
    assert_eq!(inside[1][14..], new);
    assert_eq!(right.dropped(), []);
}

#[test]
fn transport_mode_drops_fragments_bad_chains_and_what_its_policy_is_not_for() {
    let (mut left, mut right) = (Scene::new(&transport(1)), Scene::new(&transport(0)));
    let mut fragment = packet(UDP, [192, 168, 2, 2], 0, &[1; 24]);
    fragment[6] = 0x20;
    let mut chain = extended(&[9; 50]);
    chain[41] = 200;
    for (frame, reason) in [(ours(&fragment), DropReason::Fragmented), (v6(&chain), DropReason::Denied)] {
        assert_eq!(left.carry(0, &[frame]), NOTHING);
        assert_eq!(left.statistics.dropped(reason), 1, "{reason:?}");
    }
    // The other gateway lets only TCP out of this SA.
    let [_, outside] = left.carry(0, &[ours(&packet(UDP, [192, 168, 2, 2], 0, &[1; 24]))]);
    assert_eq!(right.carry(1, &arrived(&outside)), NOTHING);
    // A destination that was changed on the way is not protected, and has no policy.
    let [_, outside] = left.carry(0, &[ours(&packet(TCP, [192, 168, 2, 2], 0, &[1; 24]))]);
    let mut changed = arrived(&outside);
    changed[0][14 + 18] = 9;
    assert_eq!(right.carry(1, &changed), NOTHING);
    assert_eq!(right.dropped(), [(DropReason::ForeignSource, 2)]);
    // The ESP of the fragment is not looked at before the packet is whole.
    let mut cut = arrived(&outside);
    cut[0][20] = 0x20;
    assert_eq!(right.carry(1, &cut), NOTHING);
    assert_eq!(right.dropped()[1], (DropReason::Fragmented, 1));
}

/// The file with other words for each SA with SPI 5.
fn with_words(words: &str) -> String {
    let lines = file();
    let lines = lines.lines().map(|line| {
        let is_5 = line.starts_with("sa in 5") || line.starts_with("sa out 5");
        if is_5 { format!("{line} {words}\n") } else { format!("{line}\n") }
    });
    lines.collect()
}

fn to_site() -> Vec<u8> {
    ours(&packet(ICMP, [192, 168, 2, 2], 0, &[8, 0, 1, 2, 3, 4, 5, 6]))
}

#[test]
fn extended_numbers_start_where_the_line_says_and_pass_the_end_of_32_bits() {
    let mut scene = Scene::new(&with_words("esn 4294967294"));
    let [_, outside] = scene.carry(0, &vec![to_site(); 4]);
    let low: Vec<&[u8]> = outside.iter().map(|frame| &frame[38..42]).collect();
    assert_eq!(low, [[255, 255, 255, 254], [255; 4], [0; 4], [0, 0, 0, 1]]);
    let [inside, _] = scene.carry(1, &arrived(&outside));
    assert_eq!((inside.len(), scene.dropped()), (4, vec![]));
    assert_eq!(scene.carry(1, &arrived(&outside)), NOTHING);
    assert_eq!(scene.dropped(), [(DropReason::Replayed, 4)]);
    // What another gateway sent before that number is no new packet here.
    let [_, early] = Scene::with(&file(), &WORDS.replace("-w", "-e -w")).carry(0, &[to_site()]);
    let mut scene = Scene::new(&with_words("esn 4294967294"));
    assert_eq!(scene.carry(1, &arrived(&early)), NOTHING);
    // The half that is not sent is under the tag: a gateway without -e does not take the packet.
    assert_eq!(Scene::new(&file()).carry(1, &arrived(&early)), NOTHING);
    let [inside, _] = Scene::with(&file(), &WORDS.replace("-w", "-e -w")).carry(1, &arrived(&early));
    assert_eq!(inside.len(), 1);
}

#[test]
fn a_single_sa_takes_all_packets_and_admits_nothing_in_clear() {
    let words = WORDS.replace("-w 64", "-w 64 --single-sa 1");
    let mut scene = Scene::with(&file(), &words);
    let frames = [to_site(), ours(&packet(UDP, [10, 9, 8, 7], 0, &[0; 8]))];
    let [inside, outside] = scene.carry(0, &frames);
    assert_eq!((inside.len(), outside.len()), (0, 2));
    assert!(outside.iter().all(|frame| frame[34..38] == [0, 0, 0, 6]), "the second SPI in order");
    assert_eq!(scene.carry(0, &[ours(&packet(50, [192, 168, 2, 2], 0, &[7; 40]))]), NOTHING);
    // Without policies the SA of SPI 6 may bring what routes know.
    let [inside, _] = scene.carry(1, &arrived(&outside));
    assert_eq!(inside.len(), 1);
    assert_eq!(scene.carry(1, &[ours(&packet(UDP, [192, 168, 3, 2], 0, &[0; 8]))]), NOTHING);
    assert_eq!(scene.dropped(), [(DropReason::Denied, 2), (DropReason::NoRoute, 1)]);
    let plan = plan(&file(), &words).unwrap_or_else(|refused| panic!("{refused:?}"));
    assert!(plan.remarks[0].contains("SPI 6"), "{:?}", plan.remarks);
}

#[test]
fn esp_in_udp_passes_from_any_port_and_only_in_udp() {
    let mut scene = Scene::new(&with_words("udp-encap"));
    let [_, mut outside] = scene.carry(0, &vec![to_site(); 3]);
    let Ok(IpPacket::V4(header, bytes)) = IpPacket::parse(&outside[0][14..]) else { panic!("IPv4") };
    assert_eq!((header.protocol, &bytes[20..24]), (UDP, &[0x11, 0x94, 0x11, 0x94][..]));
    assert_eq!((&bytes[26..28], &bytes[28..32]), (&[0, 0][..], &[0, 0, 0, 5][..]), "checksum, SPI");
    // A NAT has changed the source port.
    outside[1][34..36].copy_from_slice(&[0xc0, 1]);
    let [inside, _] = scene.carry(1, &arrived(&outside[..2]));
    assert_eq!(inside.len(), 2);
    // IKE, keepalives and what belongs to no SA are packets like others, here without a policy.
    for payload in [&[0; 40][..], &[255], &[0, 0, 0, 6, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9]] {
        let length = 8 + payload.len() as u8;
        let datagram = [&[0x11, 0x94, 0x11, 0x94, 0, length, 0, 0], payload].concat();
        assert_eq!(scene.carry(1, &[ours(&packet(UDP, [172, 16, 2, 5], 0, &datagram))]), NOTHING);
    }
    assert_eq!(scene.dropped(), [(DropReason::Denied, 3)]);
    // Without udp-encap, no datagram is ESP, whatever it holds.
    let mut without = Scene::new(&file());
    assert_eq!(without.carry(1, &arrived(&outside[2..])), NOTHING);
    assert_eq!(without.dropped(), [(DropReason::Denied, 1)]);
    // The same ESP without UDP is not what the SA is for.
    let esp = packet(50, [172, 16, 2, 5], 0, &outside[2][42..]);
    let mut bare = ours(&esp);
    bare[26..30].copy_from_slice(&[172, 16, 1, 5]);
    assert_eq!(scene.carry(1, &[bare]), NOTHING);
    assert_eq!(scene.statistics.dropped(DropReason::UnknownSa), 1);
}

#[test]
fn esp_in_udp_over_ipv6_has_a_checksum() {
    let file = file()
        .replace("ipv4-tunnel src 172.16.1.5 dst 172.16.2.5", "ipv6-tunnel src fd10::5 dst fd20::5 udp-encap")
        .replace("rt ipv4 dst 172.16.2.5/32", "rt ipv6 dst fd20::/16");
    let mut scene = Scene::new(&file);
    let [_, outside] = scene.carry(0, &[to_site()]);
    let Ok(IpPacket::V6(header, bytes)) = IpPacket::parse(&outside[0][14..]) else { panic!("IPv6") };
    let pseudo = Sum::pseudo_v6(header.source.into(), header.destination.into(), UDP, bytes.len() - 40);
    assert!((pseudo + Sum::of(&bytes[40..])).is_valid() && bytes[46..48] != [0, 0]);
    assert_eq!(scene.carry(1, &arrived(&outside))[0].len(), 1);
}

#[test]
fn the_mss_of_an_sa_lowers_that_of_syn_segments_in_its_direction() {
    let syn = |mss: u16| {
        let [high, low] = mss.to_be_bytes();
        let mut tcp = vec![0, 80, 9, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 9, 9, 0, 0, 0, 0, 2, 4, high, low];
        let pseudo = Sum::pseudo_v4([192, 168, 1, 2].into(), [192, 168, 2, 2].into(), TCP, tcp.len());
        let checksum = (pseudo + Sum::of(&tcp)).checksum();
        tcp[16..18].copy_from_slice(&checksum);
        ours(&packet(TCP, [192, 168, 2, 2], 0, &tcp))
    };
    for words in ["sa out 5", "sa in 5"] {
        let file = file().replace(words, &format!("{words} mss 1200"));
        let mut scene = Scene::new(&file);
        let [_, outside] = scene.carry(0, &[syn(1460), syn(1000)]);
        let [inside, _] = scene.carry(1, &arrived(&outside));
        let found: Vec<u16> = inside.iter().map(|frame| u16::from_be_bytes([frame[56], frame[57]])).collect();
        assert_eq!(found, [1200, 1000], "{words}");
        let pseudo = Sum::pseudo_v4([192, 168, 1, 2].into(), [192, 168, 2, 2].into(), TCP, 24);
        assert!((pseudo + Sum::of(&inside[0][34..58])).is_valid());
    }
}

#[test]
fn weak_algorithms_of_the_format_pass_too() {
    for words in [
        "cipher_algo null auth_algo null",
        "cipher_algo null auth_algo sha1-hmac auth_key KEY",
        "cipher_algo null auth_algo aes-gmac auth_key KEY",
        "cipher_algo 3des-cbc cipher_key CBC:1:2:3:4:5:6:7:8 auth_algo sha1-hmac auth_key KEY",
        "cipher_algo aes-128-ctr cipher_key KEY auth_algo aes-xcbc-mac-96 auth_key CBC",
    ] {
        let mut scene = Scene::new(&keys(&FILE.replace("aead_algo aes-128-gcm aead_key KEY", words)));
        let [_, outside] = scene.carry(0, &[to_site()]);
        assert_eq!(scene.carry(1, &arrived(&outside))[0].len(), 1, "{words}");
    }
}
