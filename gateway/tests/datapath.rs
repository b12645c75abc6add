//! The data path between links in memory: what it carries, and every reason why it does not.

#[path = "support/claims.rs"]
mod claims;
mod support;

use claims::{arrive, push, sealed};
use crypto::Cipher;
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, Job};
use gateway::bed::{Bed, FOR_EVER, INDEX, Refusing};
use gateway::clock::Clock;
use gateway::datapath::{DataPathEvent, punt};
use packet::header::wireguard::{DATA_OVERHEAD, Initiation};
use packet::{Batch, DropCounters, DropReason, Endpoint};
use port::Transmit;
use port::memory::InsideLink;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{Broken, announced, syn, v4};
use tunnel::sa::Lifetime;
use tunnel::{OutboundSa, Time};

/// A bed whose peer has everything.
fn bed() -> Bed {
    let bed = Bed::new(&AwsLc).expect("the engine has the cipher");
    bed.allow(&["0.0.0.0/0".parse().expect("literal"), "::/0".parse().expect("literal")]);
    bed
}

#[test]
fn packets_of_every_size_come_out_as_they_went_in() {
    let larger = [576, 1279, 1280, 1407, 1408, 1409, 1419, 1420, 1500, 9000, 40_000];
    claims::carries_every_size(bed(), &larger, "WireGuard");
}

#[test]
fn a_train_keeps_its_order() {
    claims::keeps_the_order_of_a_train(bed());
}

#[test]
fn messages_are_padded_but_not_beyond_the_mtu() {
    let mut bed = bed();
    for (length, padded) in [(20, 32), (32, 32), (1410, 1420), (1420, 1420)] {
        let datagrams = sealed(&mut bed, &[v4(1, length, 0)]);
        assert_eq!(datagrams[0].len(), padded + DATA_OVERHEAD, "{length} bytes");
    }
    bed.tables.mtu.store(9000, Ordering::Relaxed);
    assert_eq!(sealed(&mut bed, &[v4(1, 1410, 0)])[0].len(), 1424 + DATA_OVERHEAD);
}

#[test]
fn tcp_announces_no_larger_segments_than_are_set() {
    let mut bed = bed();
    let mut sent = |mtu: usize, sizes: [u16; 2]| {
        bed.tables.mtu.store(mtu, Ordering::Relaxed);
        let places = bed.tables.segment_sizes.iter();
        places.zip(sizes).for_each(|(place, size)| place.store(size, Ordering::Relaxed));
        push(&bed, &[v4(9, 100, 0), syn(false), syn(true)]);
        bed.carry();
        let received = bed.received();
        assert_eq!(received[0], v4(9, 100, 0));
        [announced(&received[1]), announced(&received[2])]
    };
    assert_eq!(sent(1420, [0, 0]), [1460, 1460]);
    assert_eq!(sent(1420, [1300, 0]), [1300, 1460]);
    assert_eq!(sent(1420, [0, 1200]), [1460, 1200]);
    assert_eq!(sent(1420, [u16::MAX, u16::MAX]), [1420 - 40, 1420 - 60], "what the MTU leaves");
    assert_eq!(sent(1420, [1380, 1380]), [1380, 1360], "what does not fit is never announced");
    assert_eq!(sent(9000, [u16::MAX, 1461]), [1460, 1460], "it is only ever lowered");
}

#[test]
fn congestion_is_signalled_through_the_tunnel() {
    for mark in 0..4 {
        // ECN goes outside, the DSCP does not.
        claims::signals_congestion(bed(), mark, mark);
    }
}

#[test]
fn a_peer_that_moves_is_followed_only_by_authentic_packets() {
    let mut bed = bed();
    let elsewhere = Endpoint::new("198.51.100.7:9".parse().expect("literal"));
    let mut datagrams = sealed(&mut bed, &[v4(1, 100, 0), v4(2, 100, 0)]);
    datagrams[0][20] ^= 1;
    let before = bed.peer.endpoint.load();
    bed.outside.push([datagrams[0].as_slice()], Some(elsewhere), 0);
    bed.carry();
    assert_eq!(bed.peer.endpoint.load(), before);
    bed.outside.push([datagrams[1].as_slice()], Some(elsewhere), 0);
    bed.carry();
    assert_eq!(bed.peer.endpoint.load().as_ref(), Some(&elsewhere));
}

#[test]
fn a_late_packet_under_an_older_key_moves_no_peer() {
    // Keys last 180 s: one of 80 s ago is in use by the peer.
    let made = |ago: u64| {
        let left = Duration::from_secs(180 - ago);
        Lifetime { expires: Clock.monotonic() + left, ..FOR_EVER }
    };
    for (ago, is_late) in [(2, true), (14, true), (16, false), (60, false)] {
        let mut bed = Bed::with(&AwsLc, made(80), |link| link, InsideLink).expect("it has the cipher");
        bed.allow(&["0.0.0.0/0".parse().expect("literal")]);
        let elsewhere = Endpoint::new("198.51.100.7:9".parse().expect("literal"));
        let datagrams = sealed(&mut bed, &[v4(1, 100, 0)]);
        let key = AwsLc.load(Cipher::ChaCha20Poly1305, &[7; 32]).expect("it has the cipher");
        bed.peer.use_key(Some(Arc::new(OutboundSa::new(key, INDEX, made(ago)))));
        bed.outside.push([datagrams[0].as_slice()], Some(elsewhere), 0);
        bed.carry();
        assert_eq!(bed.peer.received.packets(), 1, "it is received all the same");
        let followed = bed.peer.endpoint.load().as_ref() == Some(&elsewhere);
        assert_eq!(followed, !is_late, "a handshake of {ago} s ago");
    }
}

#[test]
fn traffic_is_counted_and_told_to_the_protocol_once() {
    let mut bed = bed();
    for _ in 0..3 {
        push(&bed, &[v4(1, 100, 0)]);
        bed.carry();
    }
    let bytes = 3 * (112 + DATA_OVERHEAD as u64);
    assert_eq!((bed.peer.sent.bytes(), bed.peer.received.bytes()), (bytes, bytes));
    assert_eq!(bed.datapath_events.try_iter().collect::<Vec<_>>(), [DataPathEvent::Activity(bed.peer.id)]);
}

#[test]
fn without_a_key_packets_wait_and_one_is_asked_for_once() {
    claims::waits_for_a_key(bed());
}

#[test]
fn the_sender_is_told_that_no_peer_has_its_destination() {
    let mut bed = bed();
    bed.allow(&["10.2.0.0/25".parse().expect("literal")]);
    push(&bed, &[v4(200, 100, 0)]);
    bed.carry();
    let answer = bed.answers.pop().expect("host unreachable");
    assert_eq!((answer[9], &answer[20..22], &answer[16..20]), (1, &[3u8, 1][..], &[10u8, 1, 0, 1][..]));
    assert_eq!(bed.dropped(), [(DropReason::NoRoute, 1)]);
    bed.peer.endpoint.store(None);
    push(&bed, &[v4(1, 100, 0)]);
    bed.carry();
    assert!(bed.answers.pop().is_some());
    assert_eq!(bed.dropped(), [(DropReason::NoRoute, 1), (DropReason::NoEndpoint, 1)]);
}

#[test]
fn a_scan_is_not_answered_packet_by_packet() {
    let mut bed = bed();
    bed.allow(&[]);
    let start = std::time::Instant::now();
    for _ in 0..2000 {
        push(&bed, &[v4(200, 100, 0)]);
    }
    bed.carry();
    let most = 50 + start.elapsed().as_millis() as usize;
    let answers = std::iter::from_fn(|| bed.answers.pop()).count();
    assert!((50..=most.min(1999)).contains(&answers), "{answers} of at most {most}");
    assert_eq!(bed.dropped(), [(DropReason::NoRoute, 2000)]);
}

#[test]
fn a_packet_larger_than_a_datagram_is_answered_with_what_fits() {
    let mut bed = bed();
    push(&bed, &[v4(1, 65_476, 0)]);
    bed.carry();
    let answer = bed.answers.pop().expect("fragmentation needed");
    assert_eq!((&answer[20..22], &answer[26..28]), (&[3u8, 4][..], &65_475u16.to_be_bytes()[..]));
    assert_eq!(bed.dropped(), [(DropReason::TooBig, 1)]);
    push(&bed, &[v4(1, 65_475, 0)]);
    bed.carry();
    assert_eq!(bed.received().len(), 1);
}

#[test]
fn one_packet_too_large_takes_no_other_with_it() {
    let mut bed = bed();
    // Trains of one burst to one peer are one SA batch.
    let packets: Vec<Vec<u8>> =
        [100, 65_480, 200, 300, 65_490].iter().map(|&length| v4(length as u8, length, 0)).collect();
    for packet in &packets {
        push(&bed, std::slice::from_ref(packet));
    }
    bed.carry();
    assert_eq!(bed.received(), [0, 2, 3].map(|index| packets[index].clone()));
    assert_eq!(bed.dropped(), [(DropReason::TooBig, 2)]);
    let quoted = std::iter::from_fn(|| bed.answers.pop()).map(|answer| answer[28..48].to_vec());
    assert_eq!(quoted.collect::<Vec<_>>(), [1, 4].map(|index| packets[index][..20].to_vec()));
}

#[test]
fn what_is_not_ip_does_not_go_out() {
    let mut bed = bed();
    push(&bed, &[b"not ip".to_vec()]);
    bed.carry();
    assert_eq!(bed.dropped(), [(DropReason::Malformed, 1)]);
}

#[test]
fn what_is_not_wireguard_does_not_come_in() {
    let cases = [
        (vec![9u8; 100], DropReason::NotOurs),
        (vec![4, 0, 0, 0, 1, 0, 0, 0], DropReason::TooShort),
        (vec![4, 0], DropReason::TooShort),
        ([&[4u8, 0, 0, 0, 99, 0, 0, 0][..], &[0; 40]].concat(), DropReason::UnknownSa),
        (vec![1, 0, 0, 0, 1, 1, 1, 1, 1], DropReason::NotOurs),
    ];
    claims::drops_each(&mut bed(), &cases);
}

#[test]
fn what_comes_from_nowhere_does_not_come_in() {
    claims::needs_an_endpoint(bed());
}

#[test]
fn handshakes_wait_in_a_queue_that_cannot_grow() {
    let mut bed = bed();
    let from = Endpoint::new("198.51.100.7:9".parse().expect("literal"));
    let mut initiation = [0u8; size_of::<Initiation>()];
    initiation[0] = 1;
    for _ in 0..punt::QUEUE + 5 {
        bed.outside.push([&initiation[..]], Some(from), 0);
    }
    bed.carry();
    assert_eq!(bed.datagrams.len(), punt::QUEUE);
    assert_eq!(bed.dropped(), [(DropReason::ControlQueueFull, 5)]);
    let first = bed.datagrams.try_recv().expect("one waits");
    assert_eq!((first.bytes(), first.endpoint), (&initiation[..], from));
}

#[test]
fn damaged_replayed_and_foreign_packets_are_dropped_by_name() {
    claims::drops_a_damaged_packet(bed());
    claims::drops_replayed_packets(bed());
    let mut bed = bed();
    bed.allow(&["10.2.0.0/24".parse().expect("literal")]);
    push(&bed, &[v4(1, 100, 0), v4(2, 100, 0)]);
    bed.carry();
    assert_eq!((bed.received().len(), bed.dropped()), (0, vec![(DropReason::ForeignSource, 2)]));
}

#[test]
fn one_bad_packet_spoils_no_other_of_its_train() {
    claims::drops_single_packets_of_a_train(bed(), DropReason::NotOurs);
}

/// A bed that seals with what is not IP, or not whole.
fn inner(bytes: &[u8]) -> Vec<(DropReason, u64)> {
    let mut bed = bed();
    let key = AwsLc.load(Cipher::ChaCha20Poly1305, &[7; 32]).expect("32 bytes");
    let mut text = bytes.to_vec();
    let mut tag = [0; 16];
    key.seal(&mut [Job { nonce: [0; 12], aad: &[], text: &mut text, tag: &mut tag, authentic: false }])
        .expect("works");
    let header = [&[4u8, 0, 0, 0][..], &INDEX.to_le_bytes(), &[0; 8]].concat();
    arrive(&mut bed, &[[&header[..], &text, &tag].concat()]);
    assert!(bed.received().is_empty());
    bed.dropped()
}

#[test]
fn authentic_packets_are_not_trusted_either() {
    assert_eq!(inner(&[0x11; 48]), [(DropReason::Malformed, 1)]);
    assert_eq!(inner(&v4(1, 100, 0)[..96]), [(DropReason::BadPadding, 1)]);
    assert_eq!(inner(&[0x45]), [(DropReason::BadPadding, 1)]);
    assert_eq!(inner(&[]), [], "a keepalive is no loss");
}

fn lifetime(expires: u64, end_sequence: u64) -> Lifetime {
    let expires = Time::from_nanoseconds(expires);
    Lifetime { renew: Some(Time::from_nanoseconds(1)), renew_sequence: u64::MAX, expires, end_sequence }
}

fn lasting(expires: u64, end_sequence: u64) -> Bed {
    let bed = Bed::with(&AwsLc, lifetime(expires, end_sequence), |link| link, InsideLink);
    let bed = bed.expect("has the cipher");
    bed.allow(&["0.0.0.0/0".parse().expect("literal")]);
    bed
}

#[test]
fn an_old_key_neither_sends_nor_receives() {
    let datagram = [&[4u8, 0, 0, 0][..], &INDEX.to_le_bytes(), &[0; 40]].concat();
    claims::is_too_old(lasting(1, u64::MAX), &datagram);
}

#[test]
fn a_key_that_is_used_up_sends_nothing_more() {
    claims::ends_after_five_packets(lasting(u64::MAX, 5));
}

#[test]
fn ports_that_refuse_are_counted() {
    let refuse = |_| Refusing(DropReason::SendFailed);
    let mut bed =
        Bed::with(&AwsLc, lifetime(u64::MAX, u64::MAX), refuse, InsideLink).expect("has the cipher");
    bed.allow(&["0.0.0.0/0".parse().expect("literal")]);
    push(&bed, &[v4(1, 100, 0)]);
    while bed.outbound.burst(&mut ()).expect("memory does not fail") {}
    assert_eq!(bed.dropped(), [(DropReason::SendFailed, 1)]);
    let (sent, unsent) = (bed.peer.sent.packets(), bed.peer.unsent.load(Ordering::Relaxed));
    assert_eq!((sent, bed.peer.sent.bytes(), unsent), (0, 0, 1), "what was refused was not sent");
    let refuse = |_| Refusing(DropReason::InsideRefused);
    let mut bed =
        Bed::with(&AwsLc, lifetime(u64::MAX, u64::MAX), |link| link, refuse).expect("has the cipher");
    bed.allow(&["0.0.0.0/0".parse().expect("literal")]);
    push(&bed, &[v4(1, 100, 0)]);
    bed.carry();
    assert_eq!(bed.dropped(), [(DropReason::InsideRefused, 1)]);
}

/// A port whose link to each peer is congested.
struct Congested;

impl Transmit for Congested {
    fn transmit(&mut self, batch: &mut Batch, _: &DropCounters) {
        assert!(batch.trains().is_empty());
    }

    fn is_full(&self, _: &Endpoint) -> bool {
        true
    }
}

#[test]
fn what_a_congested_link_would_lose_is_not_sealed() {
    let mut bed =
        Bed::with(&AwsLc, lifetime(u64::MAX, u64::MAX), |_| Congested, InsideLink).expect("has the cipher");
    bed.allow(&["0.0.0.0/0".parse().expect("literal")]);
    let number = |bed: &Bed<Congested>| bed.peer.sending.load().as_ref().expect("a key").next();
    let before = number(&bed);
    push(&bed, &[v4(1, 100, 0), v4(1, 100, 0)]);
    while bed.outbound.burst(&mut ()).expect("memory does not fail") {}
    assert_eq!(bed.dropped(), [(DropReason::PeerCongested, 2)]);
    assert_eq!((bed.peer.unsent.load(Ordering::Relaxed), number(&bed)), (2, before));
}

#[test]
fn what_an_engine_failed_to_encrypt_never_leaves() {
    let mut bed = Bed::new(&Broken).expect("it takes any key");
    bed.allow(&["0.0.0.0/0".parse().expect("literal")]);
    assert!(sealed(&mut bed, &[v4(1, 100, 0), v4(2, 100, 0)]).is_empty());
    let datagram = [&[4u8, 0, 0, 0][..], &INDEX.to_le_bytes(), &[0; 40]].concat();
    arrive(&mut bed, &[datagram]);
    assert_eq!(bed.dropped(), [(DropReason::EngineFailed, 3)]);
}

#[test]
fn the_stages_run_in_the_order_that_is_shown() {
    struct Recorder(Vec<&'static str>);
    impl gateway::datapath::Observer for Recorder {
        fn finished(&mut self, stage: &'static gateway::datapath::Stage) {
            self.0.push(stage.name);
        }
    }
    let mut bed = bed();
    push(&bed, &[v4(1, 100, 0)]);
    let (mut out, mut back) = (Recorder(Vec::new()), Recorder(Vec::new()));
    bed.outbound.burst(&mut out).expect("memory does not fail");
    bed.inbound.burst(&mut back).expect("memory does not fail");
    let names =
        |stages: &[&gateway::datapath::Stage]| stages.iter().map(|stage| stage.name).collect::<Vec<_>>();
    assert_eq!(out.0, names(gateway::datapath::OUTBOUND));
    assert_eq!(back.0, names(gateway::datapath::INBOUND));
}
