//! Transport mode.

use super::{CBC, GCM, bed_of};
use crate::claims::{arrive, push, sealed};
use crate::support::{syn, v4, v6};
use crypto::cipher::Cipher;
use gateway::bed::{Bed, INDEX};
use gateway::datapath::protocol::Tunnel;
use gateway::datapath::tables::Session;
use packet::DropReason;
use packet::checksum::Sum;
use packet::header::ip::{Ipv4Header, TCP};
use std::sync::Arc;
use tunnel::esp::{Mode, Options, Transform, Transport};
use zerocopy::FromBytes;

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
    // Without a NAT the checksum was computed over the same addresses.
    let mut bed = transport(GCM, "192.0.2.77", "10.2.0.1", false);
    push(&bed, &[syn(false)]);
    bed.carry();
    assert_eq!(bed.received()[0][20..], syn(false)[20..]);
}
