//! ESP on the data path between links in memory: what it carries, and every reason why it does not.

mod inbound;
mod lifetime;
mod outbound;
#[path = "../support/mod.rs"]
mod support;
mod transport;

use crypto::cipher::{Cipher, Encryption, Integrity, Pair};
use crypto::engine::aws_lc::AwsLc;
use gateway::bed::{Bed, Ends, INDEX, child};
use gateway::datapath::DataPathEvent;
use gateway::datapath::protocol::Tunnel;
use packet::checksum::Sum;
use packet::header::ip::{IpPacket, ecn};
use packet::{Batch, DropReason, Endpoint};
use port::Receive;
use port::memory::InsideLink;
use std::sync::Arc;
use support::{v4, v6};
use tunnel::esp::{Mode, Options, Transform};

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
