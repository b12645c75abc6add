//! OpenVPN's data packets between links in memory.

#[path = "support/claims.rs"]
mod claims;
#[allow(dead_code)]
mod support;

use claims::{arrive, push, sealed};
use crypto::engine::aws_lc::AwsLc;
use gateway::bed::{Bed, Ends, FOR_EVER, INDEX};
use gateway::datapath::DataPathEvent;
use gateway::datapath::protocol::{Link, PeerState};
use packet::{Batch, DropReason, Endpoint};
use port::memory::InsideLink;
use std::sync::Arc;
use support::{announced, syn, v4};
use tunnel::Time;
use tunnel::openvpn::data::{PING, exit_message};
use tunnel::openvpn::limits::LONGEST_PACKET;
use tunnel::sa::Lifetime;

/// Bytes that a data packet adds: header, packet number and tag.
const OVERHEAD: usize = 4 + 4 + 16;

fn bed_with(lifetime: Lifetime, follows: bool) -> Bed {
    let ends = Ends::openvpn(&AwsLc, lifetime, follows, Some(1492)).expect("the engine has the cipher");
    let bed = Bed::between(ends, |link| link, InsideLink);
    bed.allow(&["0.0.0.0/0".parse().expect("literal"), "::/0".parse().expect("literal")]);
    bed
}

fn bed() -> Bed {
    bed_with(FOR_EVER, true)
}

#[test]
fn packets_of_every_size_come_out_as_they_went_in() {
    claims::carries_every_size(bed(), &[576, 1279, 1280, 1500, 9000, 40_000], "OpenVPN");
}

#[test]
fn a_train_keeps_its_order() {
    claims::keeps_the_order_of_a_train(bed());
}

#[test]
fn a_data_packet_has_its_opcode_its_key_and_its_peer_first() {
    let datagrams = sealed(&mut bed(), &[v4(1, 100, 0), v4(2, 100, 0)]);
    for (datagram, number) in datagrams.iter().zip(1..) {
        assert_eq!(datagram[..8], [9 << 3, 0, 0, INDEX as u8, 0, 0, 0, number]);
        assert_eq!(datagram.len(), 100 + OVERHEAD);
    }
}

#[test]
fn segments_of_tcp_fit_into_the_outer_packets_of_mssfix() {
    let bed = &mut bed();
    push(bed, &[syn(false), syn(true)]);
    bed.carry();
    let received = bed.received();
    // Outer IPv4 and UDP, the data packet's header, inner IP and TCP.
    assert_eq!(announced(&received[0]), 1492 - 28 - OVERHEAD as u16 - 40);
    assert_eq!(announced(&received[1]), 1492 - 28 - OVERHEAD as u16 - 60);
    push(bed, &[v4(1, 1500, 0)]);
    bed.carry();
    assert_eq!(bed.received().len(), 1, "others are fragmented outside");
}

/// A session on a TCP connection.
fn bed_on_connection() -> Bed {
    let link = Link::new(Arc::default(), true, Some(1492)).on_connection();
    let ends = Ends::openvpn_with(&AwsLc, FOR_EVER, link).expect("the engine has the cipher");
    let bed = Bed::between(ends, |link| link, InsideLink);
    bed.allow(&["0.0.0.0/0".parse().expect("literal"), "::/0".parse().expect("literal")]);
    let endpoint = bed.peer.endpoint.load().expect("it has one");
    bed.peer.endpoint.store(Some(Endpoint::tcp(endpoint.remote)));
    bed
}

#[test]
fn over_tcp_a_packet_counts_only_on_the_connection_of_its_session() {
    let mut bed = bed_on_connection();
    let datagrams = sealed(&mut bed, &[v4(1, 100, 0), v4(2, 100, 0)]);
    let endpoint = bed.peer.endpoint.load().expect("it has one");
    let elsewhere = Endpoint::tcp("198.51.100.7:9".parse().expect("literal"));
    // In UDP, its address and port can be those of another peer.
    for other in [elsewhere, Endpoint { is_tcp: false, ..endpoint }] {
        bed.outside.push(datagrams.iter().map(Vec::as_slice), Some(other), 0);
        bed.carry();
        assert!(bed.received().is_empty());
    }
    assert_eq!(bed.dropped(), [(DropReason::OtherConnection, 4)]);
    assert_eq!(bed.peer.endpoint.load(), Some(endpoint), "it does not follow");
    bed.outside.push(datagrams.iter().map(Vec::as_slice), Some(endpoint), 0);
    bed.carry();
    assert_eq!(bed.received().len(), 2, "they were not replays");
}

#[test]
fn over_tcp_segments_leave_room_for_the_header_of_tcp_and_the_length() {
    let bed = &mut bed_on_connection();
    push(bed, &[syn(false)]);
    bed.carry();
    assert_eq!(announced(&bed.received()[0]), 1492 - 20 - 20 - 2 - OVERHEAD as u16 - 40);
}

#[test]
fn congestion_is_not_copied_outside() {
    for mark in 0..4 {
        claims::signals_congestion(bed(), mark, 0);
    }
}

#[test]
fn the_protocol_is_told_that_a_client_moves_and_the_endpoint_stays_until_it_says_so() {
    let mut bed = bed();
    let datagrams = sealed(&mut bed, &(0..4).map(|number| v4(number, 100, 0)).collect::<Vec<_>>());
    let elsewhere =
        [7, 8, 9].map(|port| Endpoint::new(format!("198.51.100.7:{port}").parse().expect("literal")));
    let mut damaged = datagrams[0].clone();
    damaged[20] ^= 1;
    bed.datapath_events.try_iter().for_each(drop);
    let before = bed.peer.endpoint.load();
    bed.outside.push([damaged.as_slice()], Some(elsewhere[0]), 0);
    bed.carry();
    assert_eq!(bed.peer.endpoint.load(), before, "not authentic");
    let told = |bed: &mut Bed, datagram: &[u8], from| {
        bed.outside.push([datagram], Some(from), 0);
        bed.carry();
        assert_eq!(bed.peer.endpoint.load(), before, "another client may be there");
        let moved = |event: &DataPathEvent| matches!(event, DataPathEvent::Moved(_));
        bed.datapath_events.try_iter().filter(moved).count()
    };
    assert_eq!(told(&mut bed, &datagrams[0], elsewhere[0]), 1);
    assert_eq!(told(&mut bed, &datagrams[1], elsewhere[1]), 0, "the first event is not read yet");
    let PeerState::OpenVpn(link) = &bed.peer.state else { panic!("the bed has one") };
    assert_eq!(link.moved(), Some(elsewhere[1]));
    assert_eq!(told(&mut bed, &datagrams[2], elsewhere[2]), 1);
    bed.outside.push([datagrams[0].as_slice()], Some(elsewhere[0]), 0);
    bed.carry();
    let PeerState::OpenVpn(link) = &bed.peer.state else { panic!("the bed has one") };
    assert_eq!(link.moved(), Some(elsewhere[2]), "a replayed packet moves no peer");
}

#[test]
fn a_session_in_udp_does_not_go_over_to_tcp() {
    let mut bed = bed();
    let datagrams = sealed(&mut bed, &[v4(1, 100, 0)]);
    let endpoint = bed.peer.endpoint.load().expect("it has one");
    bed.outside.push(datagrams.iter().map(Vec::as_slice), Some(Endpoint::tcp(endpoint.remote)), 0);
    bed.carry();
    assert!(bed.received().is_empty());
    assert_eq!(bed.dropped(), [(DropReason::OtherConnection, 1)]);
    assert_eq!(bed.peer.endpoint.load(), Some(endpoint));
    bed.outside.push(datagrams.iter().map(Vec::as_slice), Some(endpoint), 0);
    bed.carry();
    assert_eq!(bed.received().len(), 1, "it was no replay");
}

#[test]
fn a_server_that_answers_from_elsewhere_is_heard_but_not_followed() {
    let mut bed = bed_with(FOR_EVER, false);
    let datagrams = sealed(&mut bed, &[v4(1, 100, 0)]);
    let before = bed.peer.endpoint.load();
    let elsewhere = Endpoint::new("198.51.100.7:9".parse().expect("literal"));
    bed.outside.push([datagrams[0].as_slice()], Some(elsewhere), 0);
    bed.carry();
    assert_eq!((bed.received().len(), bed.peer.endpoint.load()), (1, before));
    assert!(!bed.datapath_events.try_iter().any(|event| matches!(event, DataPathEvent::Moved(_))));
}

#[test]
fn an_exit_in_a_data_packet_is_told_once_and_not_forwarded() {
    let mut bed = bed();
    let sa = bed.peer.sending.load_full().expect("the bed has one");
    let mut batch = Batch::new(4096);
    let exit = exit_message();
    batch.append(exit.len()).expect("it fits").copy_from_slice(&exit);
    sa.protection.lay_out(&mut batch, 0..1, sa.receiver, 50, 1500);
    sa.protection.seal(&mut batch, 0..1, sa.receiver, 50).expect("works");
    let packet = batch.packet(0).to_vec();
    for expected in [1, 0] {
        arrive(&mut bed, std::slice::from_ref(&packet));
        let exited = |event: &DataPathEvent| *event == DataPathEvent::Exited(bed.peer.id);
        assert_eq!(bed.datapath_events.try_iter().filter(exited).count(), expected);
    }
    assert!(bed.received().is_empty());
}

#[test]
fn a_ping_is_noted_and_not_forwarded() {
    let mut bed = bed();
    let sa = bed.peer.sending.load_full().expect("the bed has one");
    let mut batch = Batch::new(4096);
    batch.append(PING.len()).expect("it fits").copy_from_slice(&PING);
    sa.protection.lay_out(&mut batch, 0..1, sa.receiver, 50, 1500);
    sa.protection.seal(&mut batch, 0..1, sa.receiver, 50).expect("works");
    let ping = batch.packet(0).to_vec();
    arrive(&mut bed, &[ping]);
    assert_eq!((bed.received().len(), bed.dropped(), bed.peer.received.packets()), (0, vec![], 1));
    let PeerState::OpenVpn(link) = &bed.peer.state else { panic!("the bed has one") };
    assert!(link.activity.gone(Some(std::time::Duration::ZERO)).is_some());
}

#[test]
fn a_client_cannot_send_from_an_address_of_others() {
    let mut bed = bed();
    let datagrams = sealed(&mut bed, &[v4(1, 100, 0)]);
    bed.allow(&["10.2.0.0/16".parse().expect("literal")]);
    arrive(&mut bed, &datagrams);
    assert_eq!((bed.received().len(), bed.dropped()), (0, vec![(DropReason::ForeignSource, 1)]));
}

#[test]
fn without_a_key_packets_wait_and_one_is_asked_for_once() {
    claims::waits_for_a_key(bed());
}

#[test]
fn a_key_ends_with_its_packet_numbers_and_its_time() {
    let five = Lifetime { renew_sequence: 3, end_sequence: 6, ..FOR_EVER };
    claims::ends_after_five_packets(bed_with(five, true));
    let old = Lifetime { expires: Time::from_nanoseconds(1), ..FOR_EVER };
    let datagram = sealed(&mut bed(), &[v4(1, 100, 0)]).remove(0);
    claims::is_too_old(bed_with(old, true), &datagram);
}

#[test]
fn what_is_not_openvpn_or_of_no_session_does_not_come_in() {
    let cases = [
        (vec![1 << 3; 100], DropReason::NotOurs),
        (vec![9 << 3, 0, 0], DropReason::TooShort),
        ([&[9 << 3, 0, 0, 2][..], &[0; 40]].concat(), DropReason::UnknownSa),
        ([&[9 << 3 | 1, 0, 0, 1][..], &[0; 40]].concat(), DropReason::UnknownSa),
        ([&[6 << 3, 0, 0, 1][..], &[0; 40]].concat(), DropReason::UnknownSa),
        (vec![9 << 3, 0, 0, 1, 0, 0, 0, 9], DropReason::TooShort),
        (vec![7 << 3; 9], DropReason::TooShort),
        (vec![7 << 3; LONGEST_PACKET + 1], DropReason::NotOurs),
    ];
    claims::drops_each(&mut bed(), &cases);
}

#[test]
fn control_packets_are_for_the_control_thread() {
    let mut bed = bed();
    let packets = [vec![7 << 3; 14], vec![4 << 3; 1200]];
    arrive(&mut bed, &packets);
    let waiting: Vec<Vec<u8>> = bed.datagrams.try_iter().map(|datagram| datagram.bytes().to_vec()).collect();
    assert_eq!((waiting, bed.dropped()), (packets.to_vec(), vec![]));
}

#[test]
fn single_packets_of_a_train_are_dropped_alone() {
    claims::needs_an_endpoint(bed());
    claims::drops_a_damaged_packet(bed());
    claims::drops_replayed_packets(bed());
    claims::drops_single_packets_of_a_train(bed(), DropReason::NotOurs);
}
