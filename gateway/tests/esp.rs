//! ESP on the data path between links in memory: what it carries, and every reason why it does not.

mod support;

use crypto::cipher::{Cipher, Encryption, Integrity, Pair};
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, Job};
use crypto::random;
use gateway::bed::{Bed, Ends, INDEX, child};
use gateway::datapath::DataPathEvent;
use gateway::datapath::protocol::Tunnel;
use gateway::datapath::tables::Session;
use packet::checksum::Sum;
use packet::header::esp::{NEXT_IPV4, NEXT_NONE, NON_ESP_MARKER};
use packet::header::ip::{IpPacket, Ipv4Header, TCP, UDP, ecn};
use packet::{Batch, DropReason, Endpoint};
use port::Receive;
use port::memory::InsideLink;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{Broken, announced, syn, v4, v6};
use tunnel::Protection;
use tunnel::esp::{
    Action, Limits, Mode, Options, Policies, Policy, Selectors, TrafficSelector, Transform, Transport,
};
use zerocopy::FromBytes;

const GCM: Transform = Transform::Aead(Cipher::Aes128Gcm, 16);
const CBC: Transform =
    Transform::Pair(Pair { encryption: Encryption::AesCbc(16), integrity: Integrity::HmacSha256 });

fn bed() -> Bed {
    Bed::esp(&AwsLc, child(GCM, true, Mode::Tunnel)).expect("the engine has the cipher")
}

fn bed_of(transform: Transform, options: &Options, tunnel: Tunnel, mode: Mode) -> Bed {
    let ends = Ends::esp(&AwsLc, child(transform, false, mode), options, tunnel);
    Bed::between(ends.expect("the engine has the cipher"), |link| link, InsideLink)
}

fn with_tunnel(tunnel: Tunnel) -> Bed {
    bed_of(GCM, &Options::default(), tunnel, Mode::Tunnel)
}

fn push(bed: &Bed, packets: &[Vec<u8>]) {
    bed.inside.push(packets.iter().map(Vec::as_slice), None, 0);
}

/// Sends packets, and takes what goes outside.
fn sealed(bed: &mut Bed, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    push(bed, packets);
    while bed.outbound.burst(&mut ()).expect("memory does not fail") {}
    std::iter::from_fn(|| bed.outside.pop()).collect()
}

/// Lets datagrams arrive together from where the peer is.
fn arrive(bed: &mut Bed, datagrams: &[Vec<u8>]) {
    let from = bed.peer.endpoint.load().as_deref().copied();
    bed.outside.push(datagrams.iter().map(Vec::as_slice), from, 0);
    bed.carry();
}

/// Seals a text that the data path would not send.
fn forged(bed: &Bed, payload: &[u8], next_header: u8) -> Vec<u8> {
    let sa = bed.peer.sending.load_full().expect("there is one");
    let Protection::Esp(esp) = &sa.protection else { panic!("it is ESP") };
    let sequence = sa.assign(1, tunnel::Time::from_nanoseconds(1)).expect("there are numbers").start;
    let mut batch = Batch::new(8192);
    batch.append(payload.len()).expect("it fits").copy_from_slice(payload);
    esp.encapsulate(&mut batch, 0, sa.receiver, sequence, next_header);
    esp.seal(&mut batch, 0..1, sa.receiver, sequence).expect("the engine works");
    batch.packet(0).to_vec()
}

#[test]
fn packets_of_every_size_come_out_as_they_went_in() {
    let transforms =
        [GCM, CBC, Transform::Gmac(Cipher::Aes256Gcm), Transform::Aead(Cipher::ChaCha20Poly1305, 16)];
    for (transform, extended) in
        transforms.into_iter().flat_map(|transform| [(transform, false), (transform, true)])
    {
        let mut bed = Bed::esp(&AwsLc, child(transform, extended, Mode::Tunnel)).expect("has the cipher");
        let sizes = (20..200).chain([576, 1279, 1280, 1399, 1400, 1401, 1500, 9000, 40_000]);
        let packets: Vec<Vec<u8>> = sizes.flat_map(|size| [v4(1, size, 0), v6(size.max(40), 0)]).collect();
        for packet in &packets {
            push(&bed, std::slice::from_ref(packet));
            bed.carry();
        }
        assert!(bed.received() == packets, "{}", transform.name());
        assert_eq!(bed.dropped(), []);
    }
}

#[test]
fn a_train_keeps_its_order() {
    let mut bed = bed();
    let packets: Vec<Vec<u8>> = (0..150).map(|number| v4(number, 1400, 0)).collect();
    push(&bed, &packets);
    bed.carry();
    assert_eq!(bed.received(), packets);
}

#[test]
fn packets_are_laid_out_as_rfc_4303_says() {
    let mut bed = bed_of(GCM, &Options::default(), Tunnel::default(), Mode::Tunnel);
    for (number, length) in (1u32..).zip([20, 21, 22, 60, 1400]) {
        let datagram = &sealed(&mut bed, &[v4(1, length, 0)])[0];
        assert_eq!(datagram[..4], INDEX.to_be_bytes());
        assert_eq!(datagram[4..8], number.to_be_bytes());
        assert_eq!(datagram.len(), 8 + 8 + (length + 2).next_multiple_of(4) + 16, "{length} bytes");
    }
}

#[test]
fn congestion_is_signalled_through_the_tunnel_and_the_dscp_is_shown_if_wanted() {
    for (ecn, shows_dscp) in [0, 1, 2, 3].into_iter().flat_map(|ecn| [(ecn, true), (ecn, false)]) {
        let mut bed = with_tunnel(Tunnel { shows_dscp, ..Tunnel::default() });
        push(&bed, &[v4(1, 100, 0x28 | ecn)]);
        while bed.outbound.burst(&mut ()).expect("memory does not fail") {}
        let mut batch = Batch::new(65_536);
        bed.outside.receive(&mut batch, &bed.drops).expect("memory does not fail");
        assert_eq!(batch.trains()[0].ds_field, if shows_dscp { 0x28 | ecn } else { ecn });
        bed.outside.push([batch.packet(0)], batch.trains()[0].endpoint, 0xb8 | ecn::CE);
        bed.carry();
        let received = bed.received();
        if ecn == ecn::NOT_ECT {
            assert_eq!(bed.dropped(), [(DropReason::EcnNotCapable, 1)]);
            continue;
        }
        let packet = IpPacket::parse(&received[0]).expect("well-formed");
        assert_eq!(packet.ds_field(), 0x28 | ecn::CE, "the outer DSCP stays outside");
        assert!(Sum::of(&received[0][..20]).is_valid(), "the header checksum was mended");
    }
}

#[test]
fn only_a_peer_behind_a_nat_is_followed_and_only_for_authentic_packets() {
    let elsewhere = Endpoint::new("198.51.100.7:9".parse().expect("literal"));
    for follows in [false, true] {
        let mut bed = with_tunnel(Tunnel { follows: follows.into(), ..Tunnel::default() });
        let mut datagrams = sealed(&mut bed, &[v4(1, 100, 0), v4(2, 100, 0)]);
        datagrams[0][20] ^= 1;
        let before = bed.peer.endpoint.load_full();
        bed.outside.push([datagrams[0].as_slice()], Some(elsewhere), 0);
        bed.carry();
        assert_eq!(bed.peer.endpoint.load_full(), before);
        bed.outside.push([datagrams[1].as_slice()], Some(elsewhere), 0);
        bed.carry();
        assert_eq!(bed.peer.endpoint.load().as_deref() == Some(&elsewhere), follows);
        assert_eq!(bed.received().len(), 1);
    }
}

/// Both sides are behind NATs: of a peer that is not followed it is kept where its packets come from.
#[test]
fn another_port_may_be_followed_where_another_address_is_not() {
    let known: std::net::SocketAddr = "198.51.100.7:9".parse().expect("literal");
    for (elsewhere, is_followed) in
        [("198.51.100.7:10", true), ("198.51.100.8:9", false), ("[2001:db8::1]:9", false)]
    {
        let elsewhere = Endpoint::new(elsewhere.parse().expect("literal"));
        let mut bed = with_tunnel(Tunnel { follows_port: true.into(), ..Tunnel::default() });
        let datagrams = sealed(&mut bed, &[v4(1, 100, 0)]);
        bed.peer.endpoint.store(Some(Arc::new(Endpoint::new(known))));
        bed.outside.push([datagrams[0].as_slice()], Some(elsewhere), 0);
        bed.carry();
        assert_eq!(bed.received().len(), 1);
        let endpoint = bed.peer.endpoint.load_full().expect("stored");
        assert_eq!(endpoint.remote, if is_followed { elsewhere.remote } else { known });
        let strayed = bed.peer.tunnel().expect("of IPsec").strayed.load_full();
        assert_eq!(strayed.as_deref().is_some(), !is_followed);
    }
}

#[test]
fn traffic_is_counted_and_the_first_packet_told_once() {
    let mut bed = bed();
    for _ in 0..3 {
        push(&bed, &[v4(1, 100, 0)]);
        bed.carry();
    }
    let bytes = 3 * (8 + 8 + 104 + 16);
    assert_eq!((bed.peer.sent.bytes(), bed.peer.received.bytes()), (bytes, bytes));
    assert_eq!(bed.datapath_events.try_iter().collect::<Vec<_>>(), [DataPathEvent::Confirmed(INDEX)]);
    let (sending, session) =
        (bed.peer.sending.load_full().expect("used"), bed.tables.session(INDEX).expect("used"));
    for volume in [sending.volume(), session.sa.volume()] {
        assert_eq!(volume.map(|volume| (volume.packets(), volume.bytes())), Some((3, bytes)));
    }
}

#[test]
fn without_a_key_packets_wait_and_one_is_asked_for_once() {
    let mut bed = bed();
    let key = bed.peer.sending.swap(None);
    for number in 0..130 {
        push(&bed, &[v4(number, 100, 0)]);
    }
    bed.carry();
    assert_eq!(bed.datapath_events.try_iter().collect::<Vec<_>>(), [DataPathEvent::NoKey(bed.peer.id)]);
    assert_eq!(bed.dropped(), [(DropReason::NoKey, 2)]);
    bed.peer.sending.store(key);
    push(&bed, &[v4(200, 100, 0)]);
    bed.carry();
    let hosts: Vec<u8> = bed.received().iter().map(|packet| packet[19]).collect();
    assert_eq!(
        hosts,
        (2..130).chain([200]).collect::<Vec<u8>>(),
        "later packets do not overtake waiting ones"
    );
}

/// Policies by remote network, of which the first that matches decides.
fn policies(bed: &Bed, entries: &[(&str, &str, Action<()>)]) {
    let policy = |&(first, last, action): &(&str, &str, Action<()>)| {
        let side = |first: &str, last: &str| TrafficSelector {
            protocol: 0,
            ports: 0..=u16::MAX,
            addresses: first.parse().expect("literal")..=last.parse().expect("literal"),
        };
        let action = match action {
            Action::Protect(()) => Action::Protect(Arc::clone(&bed.peer)),
            Action::Bypass => Action::Bypass,
            Action::Discard => Action::Discard,
        };
        Policy {
            selectors: Selectors::new(&[side("0.0.0.0", "255.255.255.255")], &[side(first, last)]),
            action,
        }
    };
    bed.tables.policies.store(Arc::new(Policies::new(entries.iter().map(policy).collect())));
}

#[test]
fn what_no_policy_protects_does_not_go_out_and_the_sender_is_told() {
    let mut bed = bed();
    policies(
        &bed,
        &[
            ("10.2.0.1", "10.2.0.1", Action::Discard),
            ("10.2.0.2", "10.2.0.2", Action::Bypass),
            ("10.2.0.0", "10.2.0.127", Action::Protect(())),
        ],
    );
    push(&bed, &[v4(1, 100, 0)]);
    push(&bed, &[v4(2, 100, 0)]);
    push(&bed, &[v4(200, 100, 0)]);
    push(&bed, &[v6(100, 0)]);
    push(&bed, &[v4(3, 100, 0)]);
    bed.carry();
    assert_eq!(bed.dropped(), [(DropReason::Denied, 3), (DropReason::Bypassed, 1)]);
    assert_eq!(bed.received(), [v4(3, 100, 0)]);
    let answer = bed.answers.pop().expect("prohibited");
    assert_eq!((answer[9], &answer[20..22], &answer[16..20]), (1, &[3u8, 13][..], &[10u8, 1, 0, 1][..]));
    // Another table is followed at once.
    policies(&bed, &[("10.2.0.0", "10.2.0.255", Action::Protect(()))]);
    push(&bed, &[v4(1, 100, 0)]);
    bed.carry();
    assert_eq!(bed.received(), [v4(1, 100, 0)]);
}

#[test]
fn where_the_peer_is_not_known_the_sender_is_told() {
    let mut bed = bed();
    bed.peer.endpoint.store(None);
    push(&bed, &[v4(1, 100, 0)]);
    bed.carry();
    assert!(bed.answers.pop().is_some());
    assert_eq!(bed.dropped(), [(DropReason::NoEndpoint, 1)]);
}

#[test]
fn the_paths_mtu_is_kept_for_those_who_ask_for_it() {
    let mut bed = with_tunnel(Tunnel { path_mtu: AtomicUsize::new(1500), ..Tunnel::default() });
    // 1500 without outer IP, UDP, ESP header, IV and tag, in words, without the trailer.
    let largest = (1500 - 20 - 8 - 8 - 8 - 16) / 4 * 4 - 2;
    assert_eq!(sealed(&mut bed, &[v4(1, largest, 0)])[0].len() + 28, 1500);
    push(&bed, &[v4(1, largest + 1, 0)]);
    bed.carry();
    let answer = bed.answers.pop().expect("fragmentation needed");
    assert_eq!((&answer[20..22], &answer[26..28]), (&[3u8, 4][..], &(largest as u16).to_be_bytes()[..]));
    assert_eq!(bed.dropped(), [(DropReason::TooBig, 1)]);
    let mut divisible = v4(1, largest + 1, 0);
    let (header, _) = Ipv4Header::mut_from_prefix(&mut divisible).expect("a header");
    header.fragment = 0.into();
    header.finish();
    push(&bed, &[divisible.clone()]);
    bed.carry();
    assert_eq!(bed.received(), [divisible], "who allows fragments gets them, outside");
    bed.peer.tunnel().expect("of IPsec").path_mtu.store(1280, Ordering::Relaxed);
    push(&bed, &[v6(1280, 0)]);
    bed.carry();
    assert_eq!(bed.received().len(), 1, "every path of IPv6 carries 1280 bytes");
    push(&bed, &[v6(1281, 0)]);
    bed.carry();
    let answer = bed.answers.pop().expect("packet too big");
    assert_eq!((answer[40], &answer[44..48]), (2, &1280u32.to_be_bytes()[..]));
}

#[test]
fn a_tunnel_may_have_an_mtu_of_its_own() {
    let mut bed = with_tunnel(Tunnel { mtu: 1300, clamps_mss: true, ..Tunnel::default() });
    push(&bed, &[v4(1, 1300, 0)]);
    push(&bed, &[v4(2, 1301, 0)]);
    bed.carry();
    assert_eq!(bed.received(), [v4(1, 1300, 0)]);
    assert_eq!(bed.answers.pop().expect("fragmentation needed")[26..28], 1300u16.to_be_bytes());
    assert_eq!(bed.dropped(), [(DropReason::TooBig, 1)]);
    push(&bed, &[syn(false)]);
    bed.carry();
    assert_eq!(bed.received()[0][42..44], (1300u16 - 40).to_be_bytes());
}

#[test]
fn a_packet_larger_than_a_datagram_is_answered_and_takes_no_other_with_it() {
    let mut bed = with_tunnel(Tunnel::default());
    let largest = (65_535 - 20 - 8 - 32) / 4 * 4 - 2;
    let packets = [v4(1, 100, 0), v4(2, largest + 1, 0), v4(3, largest, 0)];
    for packet in &packets {
        push(&bed, std::slice::from_ref(packet));
    }
    bed.carry();
    assert_eq!(bed.received(), [packets[0].clone(), packets[2].clone()]);
    let answer = bed.answers.pop().expect("fragmentation needed");
    assert_eq!(answer[26..28], (largest as u16).to_be_bytes());
    assert_eq!(bed.dropped(), [(DropReason::TooBig, 1)]);
}

#[test]
fn tcp_is_told_what_fits() {
    let mut bed = with_tunnel(Tunnel { path_mtu: AtomicUsize::new(1400), ..Tunnel::default() });
    push(&bed, &[syn(false)]);
    bed.carry();
    let received = bed.received().remove(0);
    let inner = (1400 - 28 - 32) / 4 * 4 - 2;
    assert_eq!(announced(&received), inner as u16 - 40);
    let mut bed = with_tunnel(Tunnel { path_mtu: AtomicUsize::new(1500), ..Tunnel::default() });
    push(&bed, &[syn(false)]);
    bed.carry();
    assert_eq!(bed.received(), [syn(false)], "not where the way carries what the inside does");
    let mut bed = with_tunnel(Tunnel { clamps_mss: true, ..Tunnel::default() });
    push(&bed, &[syn(false)]);
    bed.carry();
    assert_eq!(bed.received()[0][42..44], (1400u16 - 40).to_be_bytes(), "the inside has an MTU too");
}

#[test]
fn what_is_not_esp_does_not_come_in() {
    let mut bed = bed();
    let from = Some(Endpoint::new("198.51.100.7:9".parse().expect("literal")));
    for (datagram, reason) in [
        (vec![0, 0, 0], DropReason::TooShort),
        (vec![9, 9, 9, 9, 0, 0, 0], DropReason::TooShort),
        ([&[9u8; 8][..], &[0; 40]].concat(), DropReason::UnknownSa),
        ([&INDEX.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 25]].concat(), DropReason::TooShort),
        ([&INDEX.to_be_bytes()[..], &[0; 60]].concat(), DropReason::Replayed),
        ([&NON_ESP_MARKER[..], &[0; 27]].concat(), DropReason::TooShort),
    ] {
        let before = bed.drops.read(reason);
        bed.outside.push([datagram.as_slice()], from, 0);
        bed.carry();
        assert_eq!(bed.drops.read(reason), before + 1, "{datagram:?}");
    }
    assert!(bed.received().is_empty() && bed.datagrams.is_empty());
    let mut bed = bed_of(CBC, &Options::default(), Tunnel::default(), Mode::Tunnel);
    let ragged = [&INDEX.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16 + 17 + 16]].concat();
    arrive(&mut bed, &[ragged]);
    assert_eq!(bed.dropped(), [(DropReason::BadPadding, 1)], "no whole blocks");
}

#[test]
fn what_comes_from_nowhere_does_not_come_in() {
    let mut bed = bed();
    let datagrams = sealed(&mut bed, &[v4(1, 100, 0), v4(2, 100, 0)]);
    bed.outside.push(datagrams.iter().map(Vec::as_slice), None, 0);
    bed.carry();
    assert!(bed.received().is_empty(), "not even as ciphertext");
    assert_eq!(bed.dropped(), [(DropReason::NotOurs, 2)]);
}

#[test]
fn ike_leaves_for_the_lane_without_its_marker_and_keepalives_for_nowhere() {
    let mut bed = bed();
    let from = Endpoint::new("198.51.100.7:4500".parse().expect("literal"));
    let message = vec![7; 3000];
    let esp = sealed(&mut bed, &[v4(1, 100, 0)]).remove(0);
    let datagrams = [[&NON_ESP_MARKER[..], &message].concat(), vec![0xff], esp, vec![0xff]];
    bed.outside.push(datagrams.iter().map(Vec::as_slice), Some(from), 0);
    bed.carry();
    let punted = bed.datagrams.try_recv().expect("one waits");
    assert_eq!((punted.bytes(), punted.endpoint), (&message[..], from));
    assert_eq!((bed.received().len(), bed.dropped()), (1, vec![]));
}

#[test]
fn damaged_replayed_and_foreign_packets_are_dropped_by_name() {
    let mut bed = bed();
    let mut datagrams = sealed(&mut bed, &[v4(1, 100, 0)]);
    datagrams[0][20] ^= 1;
    arrive(&mut bed, &datagrams);
    assert_eq!(bed.dropped(), [(DropReason::BadTag, 1)]);

    let mut bed = self::bed();
    let datagram = sealed(&mut bed, &[v4(1, 100, 0)]).remove(0);
    // Twice in one burst, and once again later.
    arrive(&mut bed, &[datagram.clone(), datagram.clone()]);
    arrive(&mut bed, &[datagram]);
    assert_eq!((bed.received().len(), bed.dropped()), (1, vec![(DropReason::Replayed, 2)]));

    let mut child = child(GCM, false, Mode::Tunnel);
    child.local.truncate(1);
    child.local[0].addresses = [10, 1, 0, 0].into()..=[10, 1, 0, 255].into();
    let ends = Ends::esp(&AwsLc, child, &Options::default(), Tunnel::default()).expect("has the cipher");
    let mut bed = Bed::between(ends, |link| link, InsideLink);
    let strange = {
        let mut packet = v4(1, 100, 0);
        packet[12] = 11;
        packet
    };
    let forged = [forged(&bed, &strange, NEXT_IPV4), forged(&bed, &v4(2, 100, 0), NEXT_IPV4)];
    arrive(&mut bed, &forged);
    assert_eq!((bed.received(), bed.dropped()), (vec![v4(2, 100, 0)], vec![(DropReason::ForeignSource, 1)]));
}

#[test]
fn one_bad_packet_spoils_no_other_of_its_train() {
    let mut bed = bed();
    let packets: Vec<_> = (0..10).map(|number| v4(number, 100, 0)).collect();
    let mut datagrams = sealed(&mut bed, &packets);
    datagrams[3][30] ^= 1;
    datagrams[5] = vec![9; 100];
    datagrams[7] = datagrams[6].clone();
    arrive(&mut bed, &datagrams);
    let hosts: Vec<u8> = bed.received().iter().map(|packet| packet[19]).collect();
    assert_eq!(hosts, [0, 1, 2, 4, 6, 8, 9]);
    assert_eq!(
        bed.dropped(),
        [(DropReason::UnknownSa, 1), (DropReason::Replayed, 1), (DropReason::BadTag, 1)]
    );
}

#[test]
fn sequence_numbers_cross_into_the_next_subspace_within_a_burst() {
    let options = Options { replay_window: 1 << 20, ..Options::default() };
    let ends = Ends::esp(&AwsLc, child(GCM, true, Mode::Tunnel), &options, Tunnel::default());
    let mut bed = Bed::between(ends.expect("has the cipher"), |link| link, InsideLink);
    let sa = bed.peer.sending.load_full().expect("there is one");
    sa.assign(0xffff_ffe0, tunnel::Time::from_nanoseconds(1)).expect("there are numbers");
    let session = bed.tables.session(INDEX).expect("installed");
    session.sa.window().accept(0xffff_ff00).expect("new");
    let packets: Vec<_> = (0..100).map(|number| v4(number, 200, 0)).collect();
    let mut datagrams = sealed(&mut bed, &packets);
    assert_eq!(datagrams[40][4..8], 9u32.to_be_bytes(), "the low half began anew");
    // The last of the old subspace come last.
    datagrams.rotate_left(20);
    arrive(&mut bed, &datagrams);
    assert_eq!((bed.received().len(), bed.dropped()), (100, vec![]));
    arrive(&mut bed, &datagrams);
    assert_eq!(bed.dropped(), [(DropReason::Replayed, 100)]);
}

#[test]
fn authentic_packets_are_not_trusted_either() {
    let inner = |payload: &[u8], next_header| {
        let mut bed = bed();
        let datagram = forged(&bed, payload, next_header);
        arrive(&mut bed, &[datagram]);
        assert!(bed.received().is_empty());
        bed.dropped()
    };
    assert_eq!(inner(&[0x11; 48], NEXT_IPV4), [(DropReason::BadNextHeader, 1)]);
    assert_eq!(inner(&v4(1, 100, 0), UDP), [(DropReason::BadNextHeader, 1)]);
    assert_eq!(inner(&v4(1, 100, 0)[..96], NEXT_IPV4), [(DropReason::Malformed, 1)]);
    assert_eq!(inner(&[], NEXT_IPV4), [(DropReason::Malformed, 1)]);
    assert_eq!(inner(&[7; 500], NEXT_NONE), [(DropReason::Dummy, 1)]);
    let text = |text: &[u8]| {
        let mut bed = bed();
        arrive(&mut bed, &[by_hand(text)]);
        assert!(bed.received().is_empty());
        bed.dropped()
    };
    assert_eq!(text(&[&v4(1, 97, 0)[..], &[1, 2, 9, 3, NEXT_IPV4]].concat()), [(DropReason::BadPadding, 1)]);
    assert_eq!(text(&[9, 9, 200, NEXT_IPV4]), [(DropReason::BadPadding, 1)]);
    let mut bed = bed();
    arrive(&mut bed, &[by_hand(&[&v4(1, 97, 0)[..], &[1, 2, 3, 3, NEXT_IPV4]].concat())]);
    assert_eq!(bed.received(), [v4(1, 97, 0)]);
}

/// The first packet of the bed with this text, sealed as RFC 4106 says.
fn by_hand(text: &[u8]) -> Vec<u8> {
    let material: Vec<u8> = (0..20).collect();
    let key = AwsLc.load(Cipher::Aes128Gcm, &material[..16]).expect("16 bytes");
    let (iv, mut text, mut tag) = (7u64.to_be_bytes(), text.to_vec(), [0; 16]);
    let nonce = [&material[16..], &iv].concat().try_into().expect("12 bytes");
    let number = 1u32.to_be_bytes();
    // With an extended sequence number, its high half stands between.
    let aad = [INDEX.to_be_bytes(), [0; 4], number].concat();
    key.seal(&mut [Job { nonce, aad: &aad, text: &mut text, tag: &mut tag, authentic: false }])
        .expect("works");
    [&INDEX.to_be_bytes()[..], &number, &iv, &text, &tag].concat()
}

#[test]
fn padding_that_hides_the_length_is_cut_off() {
    let mut bed = bed();
    let padded = [v4(1, 100, 0), vec![0xee; 900]].concat();
    let datagram = forged(&bed, &padded, NEXT_IPV4);
    assert!(datagram.len() > 1000);
    arrive(&mut bed, &[datagram]);
    assert_eq!(bed.received(), [v4(1, 100, 0)]);
}

fn limits(bytes: Option<u64>, packets: Option<u64>) -> Limits {
    Limits { time: None, bytes, packets }
}

#[test]
fn an_sa_ends_with_its_bytes_and_a_new_one_is_asked_for_before() {
    let options =
        Options { soft: limits(Some(300), None), hard: limits(Some(600), None), ..Options::default() };
    let mut bed = bed_of(GCM, &options, Tunnel::default(), Mode::Tunnel);
    let mut datapath_events = Vec::new();
    for number in 0..7 {
        push(&bed, &[v4(number, 100, 0)]);
        bed.carry();
        datapath_events.push(bed.datapath_events.try_iter().collect::<Vec<_>>());
    }
    let (id, renewal) = (bed.peer.id, DataPathEvent::Renewal(bed.peer.id));
    assert_eq!(datapath_events[..2], [vec![DataPathEvent::Confirmed(INDEX)], vec![]]);
    assert!(datapath_events[2..4].concat().contains(&renewal), "{datapath_events:?}");
    assert_eq!(
        datapath_events
            .concat()
            .iter()
            .filter(|&&datapath_event| datapath_event == DataPathEvent::NoKey(id))
            .count(),
        1
    );
    assert!((4..=6).contains(&bed.received().len()), "600 bytes of ESP packets");
    assert!(bed.peer.staging.is_occupied(), "the rest waits for a new SA");
}

#[test]
fn an_sa_ends_with_its_packets() {
    let options = Options { soft: limits(None, Some(3)), hard: limits(None, Some(5)), ..Options::default() };
    let mut bed = bed_of(GCM, &options, Tunnel::default(), Mode::Tunnel);
    push(&bed, &vec![v4(1, 100, 0); 6]);
    bed.carry();
    assert_eq!((bed.received().len(), bed.dropped()), (0, vec![(DropReason::CounterExhausted, 6)]));
    push(&bed, &vec![v4(1, 100, 0); 5]);
    bed.carry();
    assert_eq!(bed.received().len(), 5);
    assert!(
        bed.datapath_events
            .try_iter()
            .any(|datapath_event| datapath_event == DataPathEvent::Renewal(bed.peer.id))
    );
}

#[test]
fn an_old_sa_neither_sends_nor_receives() {
    let hard = Limits { time: Some(Duration::from_nanos(1)), ..Limits::default() };
    let mut bed = bed_of(GCM, &Options { hard, ..Options::default() }, Tunnel::default(), Mode::Tunnel);
    push(&bed, &[v4(1, 100, 0)]);
    bed.carry();
    assert_eq!(bed.datapath_events.try_iter().collect::<Vec<_>>(), [DataPathEvent::NoKey(bed.peer.id)]);
    let datagram = [&INDEX.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 60]].concat();
    arrive(&mut bed, &[datagram.clone(), datagram]);
    assert_eq!(bed.dropped(), [(DropReason::KeyExpired, 2)]);
}

#[test]
fn a_new_sa_takes_over_while_packets_of_the_old_are_on_their_way() {
    let mut bed = bed();
    let late = sealed(&mut bed, &[v4(1, 100, 0), v4(2, 100, 0)]);
    let mut next = child(CBC, true, Mode::Tunnel);
    (next.inbound.spi, next.outbound.spi) = (INDEX + 1, INDEX + 1);
    let now = tunnel::Time::from_nanoseconds(1);
    let (outbound, inbound) =
        next.load(&Options::default(), &AwsLc, &mut random::System::default(), now).expect("keys fit");
    let selectors = Some(Selectors::new(&next.local, &next.remote));
    bed.tables.install(Session {
        sa: Arc::new(inbound),
        peer: Arc::clone(&bed.peer),
        selectors,
        transport: None,
    });
    assert!(bed.tables.has_session(INDEX) && bed.tables.has_session(INDEX + 1));
    bed.peer.sending.store(Some(Arc::new(outbound)));
    let new = sealed(&mut bed, &[v4(3, 100, 0), v4(4, 100, 0)]);
    assert_eq!(new[0][..4], (INDEX + 1).to_be_bytes());
    // In one burst, mixed: each is an SA batch of its own.
    arrive(&mut bed, &[new[0].clone(), late[0].clone(), new[1].clone()]);
    let hosts: Vec<u8> = bed.received().iter().map(|packet| packet[19]).collect();
    assert_eq!(hosts, [3, 1, 4]);
    let datapath_events: Vec<DataPathEvent> = bed.datapath_events.try_iter().collect();
    assert_eq!(datapath_events, [DataPathEvent::Confirmed(INDEX + 1), DataPathEvent::Confirmed(INDEX)]);
    bed.tables.retire(INDEX);
    arrive(&mut bed, &late[1..]);
    assert_eq!(bed.dropped(), [(DropReason::UnknownSa, 1)]);
}

/// Whoever answers may send before we have read the answer.
#[test]
fn packets_wait_for_an_sa_that_was_asked_for() {
    let mut bed = bed();
    let datagrams = sealed(&mut bed, &[v4(1, 100, 0), v4(2, 100, 0), v4(3, 100, 0)]);
    let session = bed.tables.session(INDEX).expect("installed");
    bed.tables.retire(INDEX);
    bed.tables.pre_sa.expect(INDEX);
    arrive(&mut bed, &datagrams);
    assert_eq!((bed.received().len(), bed.dropped()), (0, vec![]));
    let (sa, peer) = (Arc::clone(&session.sa), Arc::clone(&session.peer));
    let again = Session { sa, peer, selectors: session.selectors.clone(), transport: session.transport };
    bed.tables.install(again);
    assert!(bed.tables.pre_sa.release(INDEX));
    let last = sealed(&mut bed, &[v4(4, 100, 0)]);
    arrive(&mut bed, &last);
    let hosts: Vec<u8> = bed.received().iter().map(|packet| packet[19]).collect();
    assert_eq!(hosts, [1, 2, 3, 4], "those that waited come first");
}

#[test]
fn what_an_engine_failed_to_encrypt_never_leaves() {
    let mut bed = Bed::esp(&Broken, child(GCM, false, Mode::Tunnel)).expect("it takes any key");
    assert!(sealed(&mut bed, &[v4(1, 100, 0), v4(2, 100, 0)]).is_empty());
    let datagram = [&INDEX.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 60]].concat();
    arrive(&mut bed, &[datagram]);
    assert_eq!(bed.dropped(), [(DropReason::EngineFailed, 3)]);
}

/// A bed in transport mode between the addresses of [`v4`] or [`v6`].
fn transport(transform: Transform, source: &str, destination: &str, translated: bool) -> Bed {
    // What comes back is what went out: the other side of the peer is on our side.
    let (remote, local) = (source.parse().expect("literal"), destination.parse().expect("literal"));
    let transport = Some(Transport { local, remote, translated });
    let bed = bed_of(transform, &Options::default(), Tunnel::default(), Mode::Transport);
    let before = bed.tables.session(INDEX).expect("the bed has one");
    let Session { sa, peer, selectors, .. } = &*before;
    let (sa, peer, selectors) = (Arc::clone(sa), Arc::clone(peer), selectors.clone());
    bed.tables.install(Session { sa, peer, selectors, transport });
    bed
}

#[test]
fn transport_mode_carries_what_follows_the_ip_header() {
    for transform in [GCM, CBC, Transform::Aead(Cipher::Aes256Ccm, 8)] {
        let mut bed = transport(transform, "10.1.0.1", "10.2.0.1", false);
        let mut packet = v4(1, 137, 0);
        let (header, _) = Ipv4Header::mut_from_prefix(&mut packet).expect("a header");
        header.identification = 0.into();
        header.finish();
        let datagrams = sealed(&mut bed, &vec![packet.clone(); 70]);
        assert!(datagrams[0].len() < 137 + 32, "without the IP header");
        arrive(&mut bed, &datagrams);
        assert_eq!(bed.received(), vec![packet; 70], "{}", transform.name());
        let mut bed = transport(transform, "fd00::1", "fd00::2", false);
        let datagrams = sealed(&mut bed, &vec![v6(137, 0); 70]);
        arrive(&mut bed, &datagrams);
        assert_eq!(bed.received(), vec![v6(137, 0); 70], "{}", transform.name());
        assert_eq!(bed.dropped(), []);
    }
}

#[test]
fn a_fragment_without_the_ports_that_a_policy_asks_for_has_a_reason_of_its_own() {
    let mut bed = bed();
    let any = |ports| TrafficSelector { protocol: UDP, ports, addresses: [0; 4].into()..=[255; 4].into() };
    let selectors = Selectors::new(&[any(0..=u16::MAX)], &[any(9999..=9999)]);
    let policy = Policy { selectors, action: Action::Protect(Arc::clone(&bed.peer)) };
    bed.tables.policies.store(Arc::new(Policies::new(vec![policy])));
    let mut later = v4(1, 100, 0);
    let (header, _) = Ipv4Header::mut_from_prefix(&mut later).expect("a header");
    header.fragment = 5.into();
    header.finish();
    push(&bed, &[later]);
    bed.carry();
    push(&bed, &[v4(1, 100, 0)]);
    bed.carry();
    let mut dropped = bed.dropped();
    dropped.sort_by_key(|(reason, _)| reason.name());
    assert_eq!(dropped, [(DropReason::Denied, 1), (DropReason::Fragmented, 1)]);
}

#[test]
fn transport_mode_carries_no_fragments() {
    let mut bed = transport(GCM, "10.1.0.1", "10.2.0.1", false);
    let mut fragment = v4(1, 100, 0);
    let (header, _) = Ipv4Header::mut_from_prefix(&mut fragment).expect("a header");
    header.fragment = 0x2000.into();
    header.finish();
    push(&bed, &[fragment]);
    push(&bed, &[v4(1, 100, 0)]);
    bed.carry();
    assert_eq!((bed.received().len(), bed.dropped()), (1, vec![(DropReason::Fragmented, 1)]));
    push(&bed, &[v4(1, 100, 0), b"not ip".to_vec()]);
    bed.carry();
    assert_eq!(bed.drops.read(DropReason::Malformed), 1);
}

#[test]
fn checksums_are_mended_where_a_nat_changed_addresses() {
    // The peer has made its checksum with 10.1.0.1; we see it as 192.0.2.77.
    let mut bed = transport(GCM, "192.0.2.77", "10.2.0.1", true);
    push(&bed, &[syn(false)]);
    bed.carry();
    let received = bed.received().remove(0);
    let pseudo = Sum::pseudo_v4([192, 0, 2, 77].into(), [10, 2, 0, 1].into(), TCP, 24);
    assert!((pseudo + Sum::of(&received[20..])).is_valid());
    assert_eq!(received[12..16], [192, 0, 2, 77]);
    // Whoever sees the same addresses has made its checksum with them.
    let mut bed = transport(GCM, "192.0.2.77", "10.2.0.1", false);
    push(&bed, &[syn(false)]);
    bed.carry();
    assert_eq!(bed.received()[0][20..], syn(false)[20..]);
}
