//! A capture sees every packet that the data path drops, once, as the drop counters do.

#[path = "support/claims.rs"]
#[allow(dead_code, reason = "some claims are for other tests")]
mod claims;
#[allow(dead_code, reason = "some packets are for other tests")]
mod support;

use claims::{arrive, push, sealed};
use crypto::engine::aws_lc::AwsLc;
use gateway::bed::{Bed, FOR_EVER, INDEX, Refusing};
use gateway::datapath::capture::{Captured, Direction, Layer, OpenCapture, Wanted, Which};
use packet::{DropReason, Endpoint};
use port::Transmit;
use port::memory::InsideLink;
use support::{Broken, v4};

fn capture<O: Transmit, I: Transmit>(bed: &Bed<O, I>, which: Which) -> OpenCapture {
    bed.peer.set_name("berlin");
    bed.allow(&["10.0.0.0/8".parse().expect("literal")]);
    bed.tables.captures.open(Wanted { peer: None, which, snap_length: 256 })
}

fn taken(open: &OpenCapture) -> Vec<Captured> {
    std::iter::from_fn(|| open.ring().take()).map(|packet| *packet).collect()
}

fn bed() -> Bed {
    Bed::new(&AwsLc).expect("the engine has the cipher")
}

/// Reason, stage and peer of each.
fn drops(open: &OpenCapture) -> Vec<(DropReason, &'static str, Option<String>)> {
    let of = |packet: Captured| {
        let (reason, stage) = packet.drop.expect("only dropped ones are wanted");
        (reason, stage, packet.peer.as_ref().map(ToString::to_string))
    };
    taken(open).into_iter().map(of).collect()
}

#[test]
fn what_is_carried_is_seen_once_each_way_as_the_inner_packet() {
    let mut bed = bed();
    let open = capture(&bed, Which::Carried);
    push(&bed, &[v4(1, 100, 0), v4(2, 200, 0)]);
    bed.carry();
    let seen = taken(&open);
    let ways: Vec<_> = seen.iter().map(|packet| (packet.direction, packet.length)).collect();
    let [out, back] = [Direction::Outbound, Direction::Inbound];
    assert_eq!(ways, [(out, 100), (out, 200), (back, 100), (back, 200)]);
    assert_eq!((&seen[0].bytes, &seen[3].bytes), (&v4(1, 100, 0), &v4(2, 200, 0)));
    assert!(
        seen.iter()
            .all(|it| it.layer == Layer::Inner && it.peer.as_ref().is_some_and(|name| **name == "berlin"))
    );
    drop(open);
    push(&bed, &[v4(1, 100, 0)]);
    bed.carry();
    assert_eq!(bed.received().len(), 3, "it carries the same without");
}

#[test]
fn inbound_drops_are_seen_with_their_stage_and_their_peer() {
    let mut bed = bed();
    let open = capture(&bed, Which::Dropped);
    let datagrams = sealed(&mut bed, &[v4(1, 100, 0), v4(2, 100, 0), v4(3, 100, 0)]);
    let mut damaged = datagrams[1].clone();
    damaged[20] ^= 1;
    let mut unknown = datagrams[2].clone();
    unknown[4..8].copy_from_slice(&(INDEX + 9).to_le_bytes());
    let together =
        [datagrams[0].clone(), damaged.clone(), datagrams[0].clone(), vec![4, 0, 0, 0, 9], unknown];
    arrive(&mut bed, &together);
    arrive(&mut bed, &datagrams[..1]);
    bed.allow(&["10.2.0.0/24".parse().expect("literal")]);
    arrive(&mut bed, &datagrams[2..]);
    let berlin = || Some("berlin".to_owned());
    let mut seen = drops(&open);
    seen.sort_by_key(|(reason, stage, _)| (reason.name(), *stage));
    assert_eq!(
        seen,
        [
            (DropReason::BadTag, "decrypt", berlin()),
            (DropReason::ForeignSource, "admit", berlin()),
            (DropReason::Replayed, "accept", berlin()),
            (DropReason::Replayed, "check", berlin()),
            (DropReason::TooShort, "classify", None),
            (DropReason::UnknownSa, "classify", None),
        ]
    );
    let counted: u64 = bed.dropped().iter().map(|(_, count)| count).sum();
    assert_eq!((counted, open.ring().lost()), (6, 0), "all that is counted was seen");
}

#[test]
fn a_forged_packet_is_shown_as_it_came_although_it_was_opened_in_place() {
    let mut bed = bed();
    let open = capture(&bed, Which::Dropped);
    let mut datagram = sealed(&mut bed, &[v4(1, 100, 0)]).remove(0);
    datagram[30] ^= 1;
    arrive(&mut bed, &[datagram.clone()]);
    let seen = taken(&open).remove(0);
    assert_eq!((&seen.bytes, seen.layer), (&datagram, Layer::Outer(bed.peer.endpoint.load())));
}

#[test]
fn outbound_drops_are_seen_with_their_stage_and_their_peer() {
    let mut bed = bed();
    let open = capture(&bed, Which::Dropped);
    push(&bed, &[v4(1, 100, 0)]);
    bed.peer.endpoint.store(None);
    bed.carry();
    bed.peer.endpoint.store(Some(Endpoint::new("192.0.2.2:51820".parse().expect("literal"))));
    bed.allow(&[]);
    push(&bed, &[v4(1, 100, 0)]);
    push(&bed, &[vec![0x45; 9]]);
    bed.carry();
    let berlin = || Some("berlin".to_owned());
    let mut seen = drops(&open);
    seen.sort_by_key(|(reason, ..)| reason.name());
    let expected = [
        (DropReason::Malformed, "classify", None),
        (DropReason::NoEndpoint, "route", berlin()),
        (DropReason::NoRoute, "route", None),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn what_a_port_or_an_engine_refuses_is_seen() {
    let refuse = |_| Refusing(DropReason::SendFailed);
    let mut bed = Bed::with(&AwsLc, FOR_EVER, refuse, InsideLink).expect("has the cipher");
    let open = capture(&bed, Which::Dropped);
    push(&bed, &[v4(1, 100, 0)]);
    assert!(bed.outbound.burst(&mut ()).expect("memory does not fail"));
    let seen = taken(&open).remove(0);
    assert_eq!(seen.drop, Some((DropReason::SendFailed, "transmit")));
    assert_eq!((seen.layer, seen.bytes[0]), (Layer::Outer(bed.peer.endpoint.load()), 4), "as it was sealed");

    let refuse = |_| Refusing(DropReason::InsideRefused);
    let mut bed = Bed::with(&AwsLc, FOR_EVER, |link| link, refuse).expect("has the cipher");
    let open = capture(&bed, Which::Dropped);
    push(&bed, &[v4(1, 100, 0)]);
    bed.carry();
    let seen = taken(&open).remove(0);
    assert_eq!((seen.drop, seen.layer), (Some((DropReason::InsideRefused, "transmit")), Layer::Inner));
    assert_eq!(seen.bytes, v4(1, 100, 0));

    let mut bed = Bed::new(&Broken).expect("it has each cipher");
    let open = capture(&bed, Which::Dropped);
    push(&bed, &[v4(1, 100, 0)]);
    bed.carry();
    let seen = taken(&open).remove(0);
    assert_eq!((seen.drop, seen.layer), (Some((DropReason::EngineFailed, "encrypt")), Layer::Inner));
    assert_eq!(seen.peer.as_ref().map(|name| name.as_str()), Some("berlin"));
}

#[test]
fn packets_that_waited_for_a_key_in_vain_are_seen() {
    let mut bed = bed();
    let open = capture(&bed, Which::Dropped);
    bed.peer.use_key(None);
    push(&bed, &[v4(1, 100, 0), v4(2, 100, 0)]);
    bed.carry();
    assert_eq!(drops(&open), []);
    let wake = port::Wake::new().expect("there are descriptors");
    assert!(bed.tables.orders.give(&bed.peer, gateway::datapath::tables::Order::Drop, &wake));
    bed.carry();
    assert_eq!(drops(&open), vec![(DropReason::NoKey, "route", Some("berlin".to_owned())); 2]);
}
