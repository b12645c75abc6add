use super::*;
use crate::datapath::protocol::{PeerState, Tunnel};
use crate::datapath::staging::Budget;
use crate::datapath::{admit, decrypt, encrypt, transmit};
use packet::DropCounters;
use tunnel::PeerId;

fn wanted(which: Which) -> Wanted {
    Wanted { peer: None, which, snap_length: 128 }
}

fn peer(name: &str) -> Peer {
    Peer::new(PeerId::new(1), PeerState::Ipsec(Tunnel::default()), Budget::default()).with_name(name)
}

/// A batch with so many packets of 200 bytes, each of its number.
fn batch(packets: u8) -> Batch {
    let mut batch = Batch::new(64 * 1024);
    (0..packets).for_each(|number| batch.append(200).expect("it fits").fill(number));
    batch
}

/// The packets of a ring: the first byte of each, and its drop.
fn taken(ring: &Ring) -> Vec<(u8, Option<(DropReason, &'static str)>)> {
    std::iter::from_fn(|| ring.take().map(|packet| (packet.bytes[0], packet.drop))).collect()
}

#[test]
fn a_full_ring_counts_what_it_loses_and_goes_on_when_there_is_room() {
    let ring = Ring::new(wanted(Which::Carried));
    let about = About {
        at: Duration::ZERO,
        direction: Direction::Inbound,
        layer: Layer::Inner,
        drop: None,
        peer: None,
    };
    let most = RING_PACKETS[1];
    (0..most + 3).for_each(|_| ring.put(&about, &[7; 200], 200));
    assert_eq!(ring.lost(), 3);
    let first = ring.take().expect("it is full");
    assert_eq!(
        (first.bytes.len(), first.bytes.capacity(), first.length),
        (128, 128, 200),
        "no more memory is taken"
    );
    ring.put(&about, &[8; 10], 10);
    assert_eq!(ring.lost(), 4, "the reader has the room still");
    ring.give_back(first);
    ring.put(&about, &[8; 10], 10);
    assert_eq!((ring.lost(), taken(&ring).len()), (4, most));
}

#[test]
fn a_ring_has_eight_mebibytes_whatever_is_kept_of_a_packet() {
    for (snap_length, packets) in [(64, 8_192), (2_048, 4_096), (65_535, 128)] {
        let ring = Ring::new(Wanted { snap_length, ..wanted(Which::All) });
        assert_eq!(ring.free.1.len(), packets, "{snap_length}");
    }
}

#[test]
fn writers_never_wait_for_a_reader_that_reads_nothing_and_none_is_counted_twice() {
    let ring = Ring::new(wanted(Which::Carried));
    let about = About {
        at: Duration::ZERO,
        direction: Direction::Inbound,
        layer: Layer::Inner,
        drop: None,
        peer: None,
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..10_000).for_each(|_| ring.put(&about, &[1; 64], 64)));
        }
    });
    assert_eq!(ring.lost() as usize + taken(&ring).len(), 30_000);
}

#[test]
fn each_capture_gets_what_it_wants() {
    let captures = Arc::<Captures>::default();
    let of_berlin = Wanted { peer: Some("berlin".to_owned()), ..wanted(Which::All) };
    let open =
        [wanted(Which::Carried), wanted(Which::Dropped), of_berlin].map(|wanted| captures.open(wanted));
    let (mut batch, drops, mut tap) = (batch(4), DropCounters::default(), Tap::new(Direction::Inbound));
    tap.begin(&captures, &mut batch);
    assert!(tap.is_on() && tap.wants_drops());
    let (berlin, rome) = (peer("berlin"), peer("rome"));
    tap.note_owners([(0..2, &berlin), (2..3, &rome)].into_iter());
    for index in [0, 2, 3] {
        batch.drop_packet(index, DropReason::ForeignSource, &drops);
    }
    tap.report(&admit::STAGE, &mut batch);
    tap.carry(0..2, &berlin, &batch);
    let dropped = Some((DropReason::ForeignSource, "admit"));
    let seen = open.each_ref().map(|open| taken(open.ring()));
    assert_eq!(seen[0], [(1, None)]);
    assert_eq!(seen[1], [(0, dropped), (2, dropped), (3, dropped)]);
    assert_eq!(seen[2], [(0, dropped), (1, None)], "only those of the peer");
}

#[test]
fn a_packet_that_is_dropped_before_it_is_open_is_shown_as_it_was_received() {
    let captures = Arc::<Captures>::default();
    let open = captures.open(wanted(Which::Dropped));
    let (mut batch, drops, mut tap) = (batch(2), DropCounters::default(), Tap::new(Direction::Inbound));
    tap.begin(&captures, &mut batch);
    let endpoint = Endpoint::new("192.0.2.1:51820".parse().expect("literal"));
    batch.close_train(0, Some(endpoint), 0);
    tap.keep_received(&batch);
    // What an engine leaves of a forged packet.
    batch.packet_mut(1).fill(0xee);
    batch.drop_packet(1, DropReason::BadTag, &drops);
    tap.report(&decrypt::STAGE, &mut batch);
    let packet = open.ring().take().expect("it was dropped");
    assert_eq!((packet.layer, packet.length), (Layer::Outer(Some(endpoint)), 200));
    assert_eq!(
        (packet.bytes.as_slice(), packet.drop),
        (&[1; 128][..], Some((DropReason::BadTag, "decrypt")))
    );
}

#[test]
fn what_an_engine_did_not_seal_is_not_shown_as_a_packet_of_the_outside() {
    let captures = Arc::<Captures>::default();
    let open = captures.open(wanted(Which::Dropped));
    let (mut batch, mut tap) = (batch(2), Tap::new(Direction::Outbound));
    tap.begin(&captures, &mut batch);
    batch.note_drop(0, DropReason::EngineFailed);
    tap.report(&encrypt::STAGE, &mut batch);
    batch.note_drop(1, DropReason::SendFailed);
    tap.report(&transmit::OUTBOUND, &mut batch);
    let layers: Vec<_> = std::iter::from_fn(|| open.ring().take().map(|it| it.layer)).collect();
    assert_eq!(layers, [Layer::Inner, Layer::Outer(None)]);
}

#[test]
fn stages_before_decryption_and_behind_encryption_have_outer_packets() {
    let outer = |direction, stages: &[&'static Stage]| -> Vec<&str> {
        stages.iter().filter(|stage| is_outer(direction, stage)).map(|stage| stage.name).collect()
    };
    assert_eq!(
        outer(Direction::Inbound, INBOUND),
        ["receive", "classify", "punt", "check", "decrypt", "accept"]
    );
    assert_eq!(outer(Direction::Outbound, OUTBOUND), ["wrap", "transmit"]);
}

#[test]
fn peers_are_noted_only_for_captures_of_drops_and_found_in_any_order() {
    let captures = Arc::<Captures>::default();
    let open = captures.open(wanted(Which::Dropped));
    let (mut batch, mut tap) = (batch(4), Tap::new(Direction::Inbound));
    tap.begin(&captures, &mut batch);
    let (berlin, rome) = (peer("berlin"), peer("rome"));
    tap.note_owners([(2..4, &rome), (0..1, &berlin)].into_iter());
    (0..4).for_each(|index| batch.note_drop(index, DropReason::ForeignSource));
    tap.report(&admit::STAGE, &mut batch);
    let peers: Vec<_> =
        std::iter::from_fn(|| open.ring().take().map(|packet| packet.peer.map(|peer| peer.to_string())))
            .collect();
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(peers, [named("berlin"), None, named("rome"), named("rome")]);
}

#[test]
fn a_capture_that_ends_is_left_at_the_next_burst_and_its_memory_is_free_at_once() {
    let captures = Arc::<Captures>::default();
    let open = captures.open(wanted(Which::All));
    let (mut batch, drops, mut tap) = (batch(1), DropCounters::default(), Tap::new(Direction::Outbound));
    tap.begin(&captures, &mut batch);
    let ring = Arc::clone(&open.ring);
    drop(open);
    assert_eq!((ring.free.1.len(), ring.full.1.len()), (0, 0));
    tap.carry(0..1, &peer("berlin"), &batch);
    assert_eq!(ring.lost(), 1, "the burst under way finds no room");
    tap.keep_received(&batch);
    tap.begin(&captures, &mut batch);
    assert!(!tap.is_on() && !tap.wants_drops());
    assert_eq!((tap.received.0.capacity(), tap.owners.capacity()), (0, 0), "it keeps no memory");
    batch.drop_packet(0, DropReason::NoRoute, &drops);
    assert_eq!(batch.noted_drops().count(), 0);
}

#[test]
fn captures_that_begin_and_end_at_once_leave_none_unseen() {
    let captures = Arc::<Captures>::default();
    let stays = captures.open(wanted(Which::Carried));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..30).for_each(|_| drop(captures.open(wanted(Which::Dropped)))));
        }
    });
    assert!(captures.is_on.load(Ordering::Relaxed));
    drop(stays);
    assert!(!captures.is_on.load(Ordering::Relaxed));
}
