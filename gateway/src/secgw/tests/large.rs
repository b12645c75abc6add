//! Packets longer than the MTU: fragments, and ICMP errors.

use super::*;
use packet::checksum::Sum;
use packet::header::ethernet::IPV6;
use packet::header::ip::Ipv6Header;

/// The packet without its Ethernet header and padding.
fn ip(frame: &[u8]) -> &[u8] {
    IpPacket::parse(&frame[14..]).expect("it is IP").bytes()
}

/// What fragments of one IPv4 packet carry behind their headers, in order, and whether all but the last say that more come.
fn joined_v4(frames: &[Vec<u8>]) -> (Vec<u8>, bool) {
    let (mut payload, mut right) = (Vec::new(), true);
    for (place, frame) in frames.iter().enumerate() {
        let Ok(IpPacket::V4(header, bytes)) = IpPacket::parse(ip(frame)) else { panic!("{frame:?}") };
        let field = header.fragment.get();
        right &= usize::from(field & 0x1fff) * 8 == payload.len();
        right &= (field & 0x2000 != 0) == (place + 1 < frames.len());
        right &= Sum::of(&bytes[..20]).is_valid() && bytes.len() <= 1500;
        payload.extend_from_slice(&bytes[20..]);
    }
    (payload, right)
}

#[test]
fn what_esp_makes_too_long_is_cut_and_what_must_not_be_cut_is_answered_inside() {
    let mut scene = Scene::new(&file());
    let inner = packet(UDP, [192, 168, 2, 2], 0, &[5; 1480]);
    let [inside, outside] = scene.carry(0, &[ours(&inner)]);
    assert_eq!((inside.len(), outside.len()), (0, 2));
    let (payload, right) = joined_v4(&outside);
    assert!(right, "{outside:02x?}");
    // Put together, it is the ESP packet.
    let esp = packet(50, [172, 16, 2, 5], 0, &payload);
    let mut whole = ours(&esp);
    whole[26..30].copy_from_slice(&[172, 16, 1, 5]);
    let [inside, _] = scene.carry(1, &[whole]);
    assert_eq!(ip(&inside[0]), inner);
    assert!(scene.statistics.to_string().contains("sa out 5 aes-128-gcm: 1 packets"));
    // With "don't fragment", the sender is told how much fits; nothing leaves by the other port.
    for (destination, mtu) in [([192, 168, 2, 2], 1446), ([192, 168, 3, 2], 1500)] {
        let payload = if mtu == 1500 { vec![5; 1490] } else { vec![5; 1480] };
        let mut whole = packet(UDP, destination, 0, &payload);
        whole[6] = 0x40;
        let [inside, outside] = scene.carry(0, &[ours(&whole)]);
        assert_eq!((inside.len(), outside.len()), (1, 0));
        let error = ip(&inside[0]);
        assert_eq!((error[9], &error[16..20], &error[20..22]), (1, &[192, 168, 1, 2][..], &[3, 4][..]));
        assert_eq!(u16::from_be_bytes([error[26], error[27]]), mtu);
        assert_eq!(error[28..28 + 20], whole[..20], "it quotes the packet");
    }
    // A packet in clear that may be cut is cut, and its fragments as fragments.
    let mut clear = packet(UDP, [192, 168, 3, 2], 0, &[6; 1600]);
    clear[6..8].copy_from_slice(&[0x20, 10]);
    let [_, outside] = scene.carry(0, &[ours(&clear)]);
    let fields: Vec<[u8; 2]> = outside.iter().map(|frame| [frame[20], frame[21]]).collect();
    assert_eq!(fields, [[0x20, 10], [0x20, 195]]);
    // No error goes out of an unprotected port.
    let mut foreign = packet(UDP, [192, 168, 3, 2], 0, &[5; 1490]);
    foreign[6] = 0x40;
    assert_eq!(scene.carry(1, &[ours(&foreign)]), NOTHING);
    assert_eq!(scene.dropped(), [(DropReason::TooBig, 3)]);
}

#[test]
fn the_outer_packet_of_an_ipv6_tunnel_is_cut_but_no_other_one_of_ipv6() {
    let file = file()
        .replace("ipv4-tunnel src 172.16.1.5 dst 172.16.2.5", "ipv6-tunnel src fd10::5 dst fd20::5")
        .replace("rt ipv4 dst 172.16.2.5/32", "rt ipv6 dst fd20::/16");
    let mut scene = Scene::new(&file);
    let inner = packet(UDP, [192, 168, 2, 2], 0, &[5; 1480]);
    let [_, outside] = scene.carry(0, &[ours(&inner)]);
    let (mut esp, mut identifications) = (Vec::new(), Vec::new());
    for (place, frame) in outside.iter().enumerate() {
        let bytes = ip(frame);
        assert_eq!((bytes[6], bytes[40]), (44, 50), "a fragment header, of ESP");
        let field = u16::from_be_bytes([bytes[42], bytes[43]]);
        assert_eq!((usize::from(field & 0xfff8), field & 1), (esp.len(), u16::from(place == 0)));
        identifications.push(bytes[44..48].to_vec());
        esp.extend_from_slice(&bytes[48..]);
    }
    assert_eq!((outside.len(), &identifications[0]), (2, &identifications[1]));
    let mut whole = ip(&outside[0])[..40].to_vec();
    whole[4..6].copy_from_slice(&(esp.len() as u16).to_be_bytes());
    whole[6] = 50;
    let [inside, _] = scene.carry(1, &[frame(OURS, IPV6, &[whole, esp].concat())]);
    assert_eq!(ip(&inside[0]), inner);
    // A host that sends too much by IPv6 is told.
    let header = Ipv6Header {
        hop_limit: 7,
        ..Ipv6Header::new(UDP, [0xfd; 16], [0xfd, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9], 1500)
    };
    let large = frame(OURS, IPV6, &[header.as_bytes(), &[0; 1500]].concat());
    let [inside, outside] = scene.carry(0, &[large]);
    assert_eq!((inside.len(), outside.len()), (1, 0));
    assert_eq!((ip(&inside[0])[6], &ip(&inside[0])[40..42]), (58, &[2, 0][..]), "packet too big");
}
