//! `--reassemble`: fragments become packets again, before policies see them and before they are decrypted.

use super::*;
use packet::header::ethernet::IPV6;
use packet::header::fragment::Fragment;
use packet::header::ip::Ipv6Header;

const WORDS: &str =
    "--vdev net_tap0 --vdev net_tap1 -- -p 3 -u 2 -w 64 -f x.cfg --config (0,0,0),(1,0,0) --reassemble 8";

/// As [`FILE`], and both ports of DNS under SA 6 in both directions; IPv6 in the same SAs.
const BOTH: &str = "\
sp ipv4 in esp protect 6 pri 2 dst 192.168.2.0/24 proto 17:255 sport 0:65535 dport 53:53
sp ipv6 out esp protect 5 pri 1 dst fd02::/64 sport 0:65535 dport 0:65535
sp ipv6 out esp protect 6 pri 2 dst fd02::/64 proto 17:255 sport 0:65535 dport 53:53
sp ipv6 in esp protect 6 pri 2 dst fd02::/64 proto 17:255 sport 0:65535 dport 53:53
rt ipv6 dst fd02::/64 port 0
";

fn file() -> String {
    super::file() + BOTH
}

fn scene() -> Scene {
    Scene::with(&file(), WORDS)
}

/// An IPv4 packet of UDP to port 53, with so many bytes behind its header.
fn v4(length: usize) -> Vec<u8> {
    packet(UDP, [192, 168, 2, 2], 0, &dns(length))
}

fn dns(length: usize) -> Vec<u8> {
    let rest = (0..length - 8).map(|at| (at / 5) as u8);
    [0, 9, 0, 53, 0, 0, 0, 0].into_iter().chain(rest).collect()
}

/// The same of IPv6, behind hop-by-hop options.
fn v6(length: usize) -> Vec<u8> {
    let header = Ipv6Header {
        hop_limit: 7,
        ..Ipv6Header::new(
            0,
            "fd01::2".parse::<std::net::Ipv6Addr>().expect("an address").octets(),
            "fd02::2".parse::<std::net::Ipv6Addr>().expect("an address").octets(),
            8 + length as u16,
        )
    };
    [header.as_bytes(), &[UDP, 0, 1, 4, 0, 0, 0, 0], &dns(length)].concat()
}

fn framed(packet: &[u8]) -> Vec<u8> {
    frame(OURS, if packet[0] >> 4 == 4 { IPV4 } else { IPV6 }, packet)
}

/// The part of a packet behind its headers from `start` to `end`, as a fragment in a frame.
fn part(packet: &[u8], start: usize, end: usize) -> Vec<u8> {
    let (headers, more) = if packet[0] >> 4 == 4 { (20, 0x2000) } else { (48, 1) };
    let total = packet.len() - headers;
    let end = end.min(total);
    let more = if end < total { more } else { 0 };
    let mut bytes = packet[..headers].to_vec();
    if headers == 20 {
        bytes[2..4].copy_from_slice(&((headers + end - start) as u16).to_be_bytes());
        bytes[6..8].copy_from_slice(&((start / 8) as u16 | more).to_be_bytes());
        bytes[10..12].fill(0);
        let checksum = packet::checksum::Sum::of(&bytes).checksum();
        bytes[10..12].copy_from_slice(&checksum);
    } else {
        bytes[4..6].copy_from_slice(&((16 + end - start) as u16).to_be_bytes());
        let protocol = std::mem::replace(&mut bytes[40], 44);
        bytes.extend([protocol, 0]);
        bytes.extend((start as u16 | more).to_be_bytes());
        bytes.extend([0, 0, 0, 7]);
    }
    bytes.extend_from_slice(&packet[headers + start..headers + end]);
    framed(&bytes)
}

/// All fragments of a packet.
fn parts(packet: &[u8], step: usize) -> Vec<Vec<u8>> {
    let headers = if packet[0] >> 4 == 4 { 20 } else { 48 };
    (0..packet.len() - headers).step_by(step).map(|start| part(packet, start, start + step)).collect()
}

/// The payload of a packet whose fragments these are, in order.
fn joined(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (place, frame) in frames.iter().enumerate() {
        let ip = IpPacket::parse(&frame[14..]).expect("it is IP");
        let fragment = Fragment::parse(&ip).expect("it is right").expect("it is a fragment");
        assert_eq!((fragment.offset, fragment.is_last), (payload.len(), place + 1 == frames.len()));
        assert!(ip.bytes().len() <= 1500);
        payload.extend_from_slice(&ip.bytes()[fragment.payload]);
    }
    payload
}

fn arrived(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().map(|sent| [&OURS[..], &sent[6..]].concat()).collect()
}

/// The first packet of a batch has the room before it that its tunnel needs, as none is cut again.
#[test]
fn a_small_packet_that_was_put_together_has_room_for_every_tunnel() {
    let v4 = "mode ipv4-tunnel src 172.16.1.5 dst 172.16.2.5";
    let v6 = "mode ipv6-tunnel src 2001:db8::1 dst 2001:db8::2";
    let gcm = "aead_algo aes-128-gcm aead_key OTHER";
    let cbc = "cipher_algo aes-128-cbc cipher_key CBC auth_algo sha1-hmac auth_key OTHER";
    for (algorithms, mode) in [(gcm, v4), (gcm, v6), (cbc, v4), (cbc, v6)] {
        for encapsulation in ["", " udp-encap"] {
            let sa = format!("{algorithms} {mode}{encapsulation}");
            if (algorithms, mode, encapsulation) == (cbc, v6, " udp-encap") {
                // It is refused: its headers have no room before any packet.
                continue;
            }
            let text = (FILE.to_owned() + BOTH).replace(&format!("{gcm} {v4}"), &sa);
            let file = keys(&(text + "rt ipv6 dst 2001:db8::2/128 port 1\n"));
            let (mut left, mut right) = (Scene::with(&file, WORDS), Scene::with(&file, WORDS));
            let [_, outside] = left.carry(0, &parts(&self::v4(100), 56));
            assert_eq!(outside.len(), 1, "{sa}");
            let [inside, _] = right.carry(1, &arrived(&outside));
            assert_eq!(inside.len(), 1, "{sa}");
            assert!(inside[0].ends_with(&dns(100)), "{sa}");
        }
    }
}

#[test]
fn fragments_of_a_packet_meet_its_policy_and_it_comes_out_of_the_tunnel_as_it_was() {
    for whole in [v4(5000), v6(5000), v4(40_000), v6(40_000)] {
        let (mut left, mut right) = (scene(), scene());
        let mut fragments = parts(&whole, 1440);
        let last = fragments.len() - 1;
        fragments.swap(0, last);
        fragments.insert(2, ours(&packet(ICMP, [192, 168, 2, 2], 0, &[8, 0, 0, 0])));
        let [inside, outside] = left.carry(0, &fragments);
        assert!(inside.is_empty());
        // The ICMP packet does not wait for the others.
        assert_eq!(outside[0][34..42], [0, 0, 0, 5, 0, 0, 0, 1]);
        assert_eq!(outside[1][34..42], [0, 0, 0, 6, 0, 0, 0, 1], "the policy with the port, once");
        joined(&outside[1..]);
        let [inside, outside] = right.carry(1, &arrived(&outside[1..]));
        assert!(outside.is_empty());
        assert_eq!(joined(&inside), dns(if whole.len() > 9000 { 40_000 } else { 5000 }));
        assert_eq!((left.dropped(), right.dropped()), (vec![], vec![]));
        let text = right.statistics.to_string();
        assert!(text.contains("1 packets were put together from fragments"), "{text}");
    }
}

#[test]
fn fragments_that_come_out_of_a_tunnel_are_held_against_policies_as_their_packet() {
    for whole in [v4(5000), v6(5000)] {
        // Without the word, each fragment is a packet of its own, and later ones meet the first policy that they could meet.
        let file = file().replace("esp protect 5 pri 1 dst fd02", "esp protect 6 pri 1 dst fd02").replace(
            "out esp protect 5 pri 1 dst 192.168.2.0/24",
            "out esp protect 6 pri 1 dst 192.168.2.0/24",
        );
        let mut left = Scene::with(&file, &WORDS.replace("--reassemble 8", "--reassemble 0"));
        let [_, outside] = left.carry(0, &parts(&whole, 1304));
        assert_eq!(outside.len(), 4, "{:?}", left.dropped());
        let mut right = scene();
        let [inside, _] = right.carry(1, &arrived(&outside));
        assert_eq!(joined(&inside), dns(5000));
        assert_eq!(right.dropped(), []);
        // Only the first shows its ports.
        let other = BOTH.replace("dport 53:53", "dport 54:54");
        let mut right = Scene::with(&(super::file() + &other), WORDS);
        assert_eq!(right.carry(1, &arrived(&outside)), NOTHING);
        assert_eq!(right.dropped(), [(DropReason::ForeignSource, 1)]);
    }
}

#[test]
fn fragments_of_different_tunnels_or_sides_are_not_of_one_packet() {
    let whole = v4(2000);
    let mut left = Scene::with(&file(), &WORDS.replace("--reassemble 8", "--single-sa 0"));
    let [_, by_five] = left.carry(0, &parts(&whole, 1400));
    let mut left = Scene::with(&file(), &WORDS.replace("--reassemble 8", "--single-sa 1"));
    let [_, by_six] = left.carry(0, &parts(&whole, 1400));
    let mut right = scene();
    assert_eq!(right.carry(1, &arrived(&[by_five[0].clone(), by_six[1].clone()])), NOTHING);
    assert_eq!(right.carry(1, &parts(&whole, 1400)[1..]), NOTHING, "in clear");
    assert_eq!(right.carry(0, &parts(&whole, 1400)[..1]), NOTHING, "from the other side");
    assert_eq!(right.dropped(), []);
    let [inside, _] = right.carry(1, &arrived(&by_six[..1]));
    assert_eq!(joined(&inside), dns(2000));
}

#[test]
fn transport_mode_carries_what_was_fragments() {
    let file = file().replace("ipv4-tunnel src 172.16.1.5 dst 172.16.2.5", "transport");
    let left = file
        .replace("dst 192.168.2.0/24 port 0", "dst 192.168.2.0/24 port 1")
        .replace("fd02::/64 port 0", "fd02::/64 port 1");
    for whole in [v4(3000), v6(3000)] {
        let (mut left, mut right) = (Scene::with(&left, WORDS), Scene::with(&file, WORDS));
        let [_, outside] = left.carry(0, &parts(&whole, 1400));
        assert_eq!(outside.len(), 3, "{:?}", left.dropped());
        let [inside, _] = right.carry(1, &arrived(&outside));
        assert_eq!(joined(&inside), dns(3000));
    }
}

#[test]
fn fragments_of_a_packet_may_come_to_different_lcores() {
    let words = WORDS.replace("(0,0,0),(1,0,0)", "(0,0,0),(0,1,1),(1,0,0),(1,1,1)");
    let mut scenes = Scene::several(&plan(&file(), &words).unwrap_or_else(|refused| panic!("{refused:?}")));
    let fragments = parts(&v4(5000), 1440);
    for place in 0..3 {
        assert_eq!(scenes[place % 2].carry(0, &fragments[place..=place]), NOTHING);
    }
    let [_, outside] = scenes[1].carry(0, &fragments[3..]);
    assert_eq!(outside.len(), 4);
    assert_eq!(scenes[0].dropped(), []);
    assert_eq!(scenes[0].statistics.show().reassembled, 1);
}

#[test]
fn the_longest_packets_pass_in_clear_and_are_too_long_for_a_tunnel() {
    let whole = |destination| packet(UDP, destination, 0, &dns(65_515));
    for step in [1480, 1232] {
        let mut scene = scene();
        let [_, outside] = scene.carry(0, &parts(&whole([192, 168, 3, 2]), step));
        assert_eq!((outside.len(), joined(&outside) == dns(65_515)), (45, true));
        assert_eq!(scene.carry(0, &parts(&whole([192, 168, 2, 2]), step))[1].len(), 0);
        assert_eq!(scene.dropped(), [(DropReason::TooBig, 1)]);
    }
}

#[test]
fn every_fragment_that_does_not_become_a_packet_has_its_reason() {
    let whole = v4(3000);
    let [first, second, third] = [(0, 1400), (1400, 2800), (2800, 3000)].map(|(a, b)| part(&whole, a, b));
    let changed = |frame: &Vec<u8>, at: usize, value: u8| {
        let mut frame = frame.clone();
        frame[at] = value;
        frame
    };
    // RFC 3168 section 5.3: marked, and not ECN-capable.
    let [marked, plain] = [(0b11, &first), (0, &second)].map(|(field, frame)| changed(frame, 15, field));
    let tiny = part(&whole, 0, 40);
    let beyond = changed(&changed(&second, 20, 0x3f), 21, 0xff);
    let all = [first.clone(), second.clone(), third.clone()];
    let overlap = part(&whole, 1392, 2800);
    let longer = part(&v4(3008), 3000, 3008);
    for (frames, expected) in [
        (vec![beyond], vec![(DropReason::BadFragment, 1)]),
        (vec![tiny], vec![(DropReason::TinyFragment, 1)]),
        // RFC 5722: none of them counts, nor do those that come later.
        (
            vec![first.clone(), overlap.clone(), second.clone(), third.clone()],
            vec![(DropReason::OverlappingFragments, 4)],
        ),
        (vec![overlap, first.clone(), second.clone()], vec![(DropReason::OverlappingFragments, 3)]),
        (
            vec![first.clone(), changed(&first, 60, 1), third.clone()],
            vec![(DropReason::OverlappingFragments, 3)],
        ),
        (vec![third.clone(), longer.clone()], vec![(DropReason::OverlappingFragments, 2)]),
        (vec![longer, third.clone()], vec![(DropReason::OverlappingFragments, 2)]),
        (vec![marked.clone(), plain, third.clone()], vec![(DropReason::EcnNotCapable, 3)]),
    ] {
        let mut scene = scene();
        assert_eq!(scene.carry(0, &frames), NOTHING, "{expected:?}");
        assert_eq!(scene.dropped(), expected);
    }
    // The same again is no contradiction.
    let mut repeated = scene();
    let [_, outside] = repeated.carry(0, &[&all[..2], &all].concat());
    assert_eq!((outside.len(), repeated.dropped()), (3, vec![(DropReason::DuplicateFragment, 2)]));
    let ect = |frame| changed(frame, 15, 0b10);
    let mut congested = scene();
    let [_, outside] = congested.carry(0, &[marked, ect(&second), ect(&third)]);
    assert_eq!(outside[0][15], 0b11, "{:?}", congested.dropped());
}

#[test]
fn incomplete_packets_end_with_their_time_and_the_oldest_give_way() {
    let numbered = |number: u8| {
        let mut whole = v4(2000);
        whole[5] = number;
        whole
    };
    let mut scene = Scene::with(&file(), &WORDS.replace("--reassemble 8", "--reassemble 8 --frag-ttl 0"));
    assert_eq!(scene.carry(0, &parts(&numbered(1), 1400)[..1]), NOTHING);
    assert_eq!(scene.carry(0, &parts(&numbered(1), 1400)[1..]), NOTHING, "its time is the burst");
    assert_eq!(scene.dropped(), [(DropReason::ReassemblyTimeout, 1)]);
    assert_eq!(scene.carry(0, &parts(&numbered(2), 1400))[1].len(), 2);
    assert_eq!(scene.dropped(), [(DropReason::ReassemblyTimeout, 2)]);

    // Of 8 packets, one source has at most 6.
    let mut scene = self::scene();
    let firsts: Vec<Vec<u8>> = (1..=7).map(|number| parts(&numbered(number), 1400).remove(0)).collect();
    assert_eq!(scene.carry(0, &firsts), NOTHING);
    assert_eq!(scene.dropped(), [(DropReason::ReassemblyFull, 1)]);
    let last = |number| parts(&numbered(number), 1400).remove(1);
    assert_eq!(scene.carry(0, &[last(7)])[1].len(), 2, "the last is kept");
    assert_eq!(scene.carry(0, &[last(1)]), NOTHING, "the first has given way");
    // Another source keeps its place, however old.
    let mut scene = self::scene();
    let mut other = numbered(1);
    other[15] = 99;
    assert_eq!(scene.carry(0, &parts(&other, 1400)[..1]), NOTHING);
    assert_eq!(scene.carry(0, &firsts), NOTHING);
    assert_eq!(scene.dropped(), [(DropReason::ReassemblyFull, 1)]);
    assert_eq!(scene.carry(0, &parts(&other, 1400)[1..])[1].len(), 2);
    // More fragments than the longest packet has on any link.
    let mut scene = self::scene();
    assert_eq!(scene.carry(0, &parts(&v4(4000), 48)[..60]), NOTHING);
    assert_eq!(scene.carry(0, &parts(&v4(4000), 48)[60..]), NOTHING);
    assert_eq!(scene.dropped(), [(DropReason::ReassemblyFull, 84)]);
}
