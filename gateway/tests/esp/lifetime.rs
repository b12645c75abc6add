//! The lifetime of an SA: limits, rekeying, and packets that arrive before their SA.

use super::{CBC, GCM, bed, bed_of};
use crate::claims::{self, arrive, push, received_hosts, sealed};
use crate::support::v4;
use crypto::engine::aws_lc::AwsLc;
use crypto::random;
use gateway::bed::{Bed, Ends, INDEX, child};
use gateway::datapath::DataPathEvent;
use gateway::datapath::protocol::Tunnel;
use gateway::datapath::tables::Session;
use packet::DropReason;
use port::memory::InsideLink;
use std::sync::Arc;
use std::time::Duration;
use tunnel::esp::{Limits, Mode, Options, Selectors};

#[test]
fn sequence_numbers_cross_into_the_next_subspace_within_a_burst() {
    let options = Options { replay_window: 1 << 20, ..Options::default() };
    let ends = Ends::esp(&AwsLc, child(GCM, true, Mode::Tunnel), &options, Tunnel::default());
    let mut bed = Bed::between(ends.expect("has the cipher"), |link| link, InsideLink);
    let sa = bed.peer.sending.load_full().expect("there is one");
    sa.assign(0xffff_ffe0, tunnel::Time::from_nanoseconds(1)).expect("there are numbers");
    let session = bed.tables.session(INDEX).expect("installed");
    session.sa.moving_window().accept(0xffff_ff00).expect("new");
    let packets: Vec<_> = (0..100).map(|number| v4(number, 200, 0)).collect();
    let mut datagrams = sealed(&mut bed, &packets);
    assert_eq!(datagrams[40][4..8], 9u32.to_be_bytes(), "the low half began again");
    // The last of the old subspace come last.
    datagrams.rotate_left(20);
    arrive(&mut bed, &datagrams);
    assert_eq!((bed.received().len(), bed.dropped()), (100, vec![]));
    arrive(&mut bed, &datagrams);
    assert_eq!(bed.dropped(), [(DropReason::Replayed, 100)]);
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
    claims::ends_after_five_packets(bed_of(GCM, &options, Tunnel::default(), Mode::Tunnel));
}

#[test]
fn an_old_sa_neither_sends_nor_receives() {
    let hard = Limits { time: Some(Duration::from_nanos(1)), ..Limits::default() };
    let bed = bed_of(GCM, &Options { hard, ..Options::default() }, Tunnel::default(), Mode::Tunnel);
    let datagram = [&INDEX.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 60]].concat();
    claims::is_too_old(bed, &datagram);
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
    assert_eq!(received_hosts(&bed), [3, 1, 4]);
    let datapath_events: Vec<DataPathEvent> = bed.datapath_events.try_iter().collect();
    assert_eq!(datapath_events, [DataPathEvent::Confirmed(INDEX + 1), DataPathEvent::Confirmed(INDEX)]);
    bed.tables.retire(INDEX);
    arrive(&mut bed, &late[1..]);
    assert_eq!(bed.dropped(), [(DropReason::UnknownSa, 1)]);
}

/// A peer can send as soon as it has answered, before the answer is read.
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
    assert_eq!(received_hosts(&bed), [1, 2, 3, 4], "those that waited come first");
}
