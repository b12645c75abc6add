//! What ESP does not send: no policy, no endpoint, or too big for the path.

use super::{GCM, bed, with_tunnel};
use crate::claims::{arrive, push, sealed};
use crate::support::{Broken, announced, syn, v4, v6};
use gateway::bed::{Bed, INDEX, child};
use gateway::datapath::protocol::Tunnel;
use packet::DropReason;
use packet::header::ip::{Ipv4Header, UDP};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tunnel::esp::{Mode, Policies, Policy, Processing, Selectors, TrafficSelector};
use zerocopy::FromBytes;

/// Policies by remote network, of which the first that matches decides.
fn policies(bed: &Bed, entries: &[(&str, &str, Processing<()>)]) {
    let policy = |&(first, last, processing): &(&str, &str, Processing<()>)| {
        let side = |first: &str, last: &str| TrafficSelector {
            protocol: 0,
            ports: 0..=u16::MAX,
            addresses: first.parse().expect("literal")..=last.parse().expect("literal"),
        };
        let processing = match processing {
            Processing::Protect(()) => Processing::Protect(Arc::clone(&bed.peer)),
            Processing::Bypass => Processing::Bypass,
            Processing::Discard => Processing::Discard,
        };
        Policy {
            selectors: Selectors::new(&[side("0.0.0.0", "255.255.255.255")], &[side(first, last)]),
            processing,
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
            ("10.2.0.1", "10.2.0.1", Processing::Discard),
            ("10.2.0.2", "10.2.0.2", Processing::Bypass),
            ("10.2.0.0", "10.2.0.127", Processing::Protect(())),
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
    policies(&bed, &[("10.2.0.0", "10.2.0.255", Processing::Protect(()))]);
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
fn what_an_engine_failed_to_encrypt_never_leaves() {
    let mut bed = Bed::esp(&Broken, child(GCM, false, Mode::Tunnel)).expect("it takes any key");
    assert!(sealed(&mut bed, &[v4(1, 100, 0), v4(2, 100, 0)]).is_empty());
    let datagram = [&INDEX.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 60]].concat();
    arrive(&mut bed, &[datagram]);
    assert_eq!(bed.dropped(), [(DropReason::EngineFailed, 3)]);
}

#[test]
fn a_fragment_without_the_ports_that_a_policy_asks_for_has_a_reason_of_its_own() {
    let mut bed = bed();
    let any = |ports| TrafficSelector { protocol: UDP, ports, addresses: [0; 4].into()..=[255; 4].into() };
    let selectors = Selectors::new(&[any(0..=u16::MAX)], &[any(9999..=9999)]);
    let policy = Policy { selectors, processing: Processing::Protect(Arc::clone(&bed.peer)) };
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
