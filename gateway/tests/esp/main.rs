//! ESP on the data path between links in memory: what it carries, and every reason why it does not.

#[path = "../support/claims.rs"]
mod claims;
mod inbound;
mod lifetime;
mod outbound;
#[path = "../support/mod.rs"]
mod support;
mod transport;

use claims::{push, sealed};
use crypto::cipher::{Cipher, Encryption, Integrity, Pair};
use crypto::engine::aws_lc::AwsLc;
use gateway::bed::{Bed, Ends, INDEX, child};
use gateway::datapath::DataPathEvent;
use gateway::datapath::protocol::Tunnel;
use packet::Endpoint;
use port::memory::InsideLink;
use support::v4;
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

#[test]
fn packets_of_every_size_come_out_as_they_went_in() {
    let transforms =
        [GCM, CBC, Transform::Gmac(Cipher::Aes256Gcm), Transform::Aead(Cipher::ChaCha20Poly1305, 16)];
    let larger = [576, 1279, 1280, 1399, 1400, 1401, 1500, 9000, 40_000];
    for (transform, extended) in
        transforms.into_iter().flat_map(|transform| [(transform, false), (transform, true)])
    {
        let bed = Bed::esp(&AwsLc, child(transform, extended, Mode::Tunnel)).expect("has the cipher");
        claims::carries_every_size(bed, &larger, &transform.name());
    }
}

#[test]
fn a_train_keeps_its_order() {
    claims::keeps_the_order_of_a_train(bed());
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
    for mark in 0..4 {
        for (shows_dscp, outside) in [(false, mark), (true, 0x28 | mark)] {
            let bed = with_tunnel(Tunnel { shows_dscp, ..Tunnel::default() });
            claims::signals_congestion(bed, mark, outside);
        }
    }
}

#[test]
fn only_a_peer_behind_a_nat_is_followed_and_only_for_authentic_packets() {
    let elsewhere = Endpoint::new("198.51.100.7:9".parse().expect("literal"));
    for follows in [false, true] {
        let mut bed = with_tunnel(Tunnel { follows: follows.into(), ..Tunnel::default() });
        let mut datagrams = sealed(&mut bed, &[v4(1, 100, 0), v4(2, 100, 0)]);
        datagrams[0][20] ^= 1;
        let before = bed.peer.endpoint.load();
        bed.outside.push([datagrams[0].as_slice()], Some(elsewhere), 0);
        bed.carry();
        assert_eq!(bed.peer.endpoint.load(), before);
        bed.outside.push([datagrams[1].as_slice()], Some(elsewhere), 0);
        bed.carry();
        assert_eq!(bed.peer.endpoint.load().as_ref() == Some(&elsewhere), follows);
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
        bed.peer.endpoint.store(Some(Endpoint::new(known)));
        bed.outside.push([datagrams[0].as_slice()], Some(elsewhere), 0);
        bed.carry();
        assert_eq!(bed.received().len(), 1);
        let endpoint = bed.peer.endpoint.load().expect("stored");
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
    claims::waits_for_a_key(bed());
}
