//! What holds for packets between the links of a bed with any protocol.

use super::support::{v4, v6};
use gateway::bed::Bed;
use gateway::datapath::DataPathEvent;
use packet::checksum::Sum;
use packet::header::ip::{IpPacket, ecn};
use packet::{Batch, DropReason, Endpoint};
use port::{Receive, Transmit};

pub fn push<O: Transmit, I: Transmit>(bed: &Bed<O, I>, packets: &[Vec<u8>]) {
    bed.inside.push(packets.iter().map(Vec::as_slice), None, 0);
}

/// Sends packets, and takes what goes outside.
pub fn sealed(bed: &mut Bed, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    push(bed, packets);
    while bed.outbound.burst(&mut ()).expect("memory does not fail") {}
    std::iter::from_fn(|| bed.outside.pop()).collect()
}

/// Lets datagrams arrive together from the endpoint of the peer.
pub fn arrive(bed: &mut Bed, datagrams: &[Vec<u8>]) {
    let from = bed.peer.endpoint.load();
    bed.outside.push(datagrams.iter().map(Vec::as_slice), from, 0);
    bed.carry();
}

/// The hosts to which the received packets were sent.
pub fn received_hosts(bed: &Bed) -> Vec<u8> {
    bed.received().iter().map(|packet| packet[19]).collect()
}

/// IPv4 and IPv6 packets of these sizes, and of all sizes below 200 bytes, come out unchanged.
pub fn carries_every_size(mut bed: Bed, larger: &[usize], name: &str) {
    let sizes = (20..200).chain(larger.iter().copied());
    let packets: Vec<Vec<u8>> = sizes.flat_map(|size| [v4(1, size, 0), v6(size.max(40), 0)]).collect();
    for packet in &packets {
        push(&bed, std::slice::from_ref(packet));
        bed.carry();
    }
    assert!(bed.received() == packets, "{name}");
    assert_eq!(bed.dropped(), [], "{name}");
}

pub fn keeps_the_order_of_a_train(mut bed: Bed) {
    let packets: Vec<Vec<u8>> = (0..150).map(|number| v4(number, 1400, 0)).collect();
    push(&bed, &packets);
    bed.carry();
    assert_eq!(bed.received(), packets);
}

/// A packet with this mark goes outside with `outside` as its DS field, meets congestion, and comes out with the mark of it.
pub fn signals_congestion(mut bed: Bed, mark: u8, outside: u8) {
    push(&bed, &[v4(1, 100, 0x28 | mark)]);
    while bed.outbound.burst(&mut ()).expect("memory does not fail") {}
    let mut batch = Batch::new(65_536);
    bed.outside.receive(&mut batch, &bed.drops).expect("memory does not fail");
    assert_eq!(batch.trains()[0].ds_field, outside);
    // A router on the way marks it, and changes its DSCP, which stays outside.
    bed.outside.push([batch.packet(0)], batch.trains()[0].endpoint, 0xb8 | ecn::CE);
    bed.carry();
    if mark == ecn::NOT_ECT {
        assert_eq!(bed.dropped(), [(DropReason::EcnNotCapable, 1)]);
        return;
    }
    let received = bed.received();
    assert_eq!(IpPacket::parse(&received[0]).expect("well-formed").ds_field(), 0x28 | ecn::CE);
    assert!(Sum::of(&received[0][..20]).is_valid(), "the header checksum is updated");
}

/// Without a key, packets wait and one is asked for once; later packets do not overtake those that waited.
pub fn waits_for_a_key(mut bed: Bed) {
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
    assert_eq!(received_hosts(&bed), (2..130).chain([200]).collect::<Vec<u8>>());
}

/// A key with five sequence numbers sends three packets, none of six behind them, and has ended then: what follows waits for another one.
pub fn ends_after_five_packets(mut bed: Bed) {
    push(&bed, &vec![v4(1, 100, 0); 3]);
    bed.carry();
    assert_eq!((bed.received().len(), bed.dropped()), (3, vec![]));
    push(&bed, &vec![v4(1, 100, 0); 3]);
    push(&bed, &vec![v4(1, 100, 0); 3]);
    // Two trains to the same peer are one SA batch: refused together, since no number may be given twice.
    bed.carry();
    push(&bed, &[v4(1, 100, 0)]);
    bed.carry();
    assert_eq!((bed.received().len(), bed.dropped()), (0, vec![(DropReason::CounterExhausted, 6)]));
    let events: Vec<DataPathEvent> = bed.datapath_events.try_iter().collect();
    for event in [DataPathEvent::Renewal(bed.peer.id), DataPathEvent::NoKey(bed.peer.id)] {
        assert!(events.contains(&event), "{events:?}");
    }
}

/// A key whose time is over neither seals nor opens: `datagram` has the number of its SA.
pub fn is_too_old(mut bed: Bed, datagram: &[u8]) {
    push(&bed, &[v4(1, 100, 0)]);
    bed.carry();
    assert_eq!(bed.datapath_events.try_iter().collect::<Vec<_>>(), [DataPathEvent::NoKey(bed.peer.id)]);
    arrive(&mut bed, &[datagram.to_vec(), datagram.to_vec()]);
    assert_eq!(bed.dropped(), [(DropReason::KeyExpired, 2)]);
}

/// Each of these datagrams is dropped for its reason, and none reaches the inside or the slow path.
pub fn drops_each(bed: &mut Bed, cases: &[(Vec<u8>, DropReason)]) {
    let from = Some(Endpoint::new("198.51.100.7:9".parse().expect("literal")));
    for (datagram, reason) in cases {
        let before = bed.drops.read(*reason);
        bed.outside.push([datagram.as_slice()], from, 0);
        bed.carry();
        assert_eq!(bed.drops.read(*reason), before + 1, "{datagram:?}");
    }
    assert!(bed.received().is_empty() && bed.datagrams.is_empty());
}

pub fn needs_an_endpoint(mut bed: Bed) {
    let datagrams = sealed(&mut bed, &[v4(1, 100, 0), v4(2, 100, 0)]);
    bed.outside.push(datagrams.iter().map(Vec::as_slice), None, 0);
    bed.carry();
    assert!(bed.received().is_empty(), "not even as ciphertext");
    assert_eq!(bed.dropped(), [(DropReason::NotOurs, 2)]);
}

pub fn drops_a_damaged_packet(mut bed: Bed) {
    let mut datagrams = sealed(&mut bed, &[v4(1, 100, 0)]);
    datagrams[0][20] ^= 1;
    arrive(&mut bed, &datagrams);
    assert_eq!(bed.dropped(), [(DropReason::BadTag, 1)]);
}

/// A packet that comes twice in one burst, and once again later, is received once.
pub fn drops_replayed_packets(mut bed: Bed) {
    let datagram = sealed(&mut bed, &[v4(1, 100, 0)]).remove(0);
    arrive(&mut bed, &[datagram.clone(), datagram.clone()]);
    arrive(&mut bed, &[datagram]);
    assert_eq!((bed.received().len(), bed.dropped()), (1, vec![(DropReason::Replayed, 2)]));
}

/// Of ten packets in a train, one is damaged, one of no SA (dropped as `unknown`), and one a copy: the others come out.
pub fn drops_single_packets_of_a_train(mut bed: Bed, unknown: DropReason) {
    let packets: Vec<_> = (0..10).map(|number| v4(number, 100, 0)).collect();
    let mut datagrams = sealed(&mut bed, &packets);
    datagrams[3][30] ^= 1;
    datagrams[5] = vec![9; 100];
    let copy = datagrams[6].clone();
    datagrams[7] = copy;
    arrive(&mut bed, &datagrams);
    assert_eq!(received_hosts(&bed), [0, 1, 2, 4, 6, 8, 9]);
    assert_eq!(bed.dropped(), [(unknown, 1), (DropReason::Replayed, 1), (DropReason::BadTag, 1)]);
}
