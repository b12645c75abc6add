//! Packets of many epochs, between a sender and a receiver.

use super::super::layout::{PING, exit_message};
use super::*;
use crypto::engine::aws_lc::AwsLc;

const V2: Header = Header::V2 { key_id: 2, peer_id: 0x01_0203 };

struct Pair {
    sender: EpochData,
    receiver: EpochData,
    drops: DropCounters,
}

fn pair() -> Pair {
    let engine = || Arc::new(AwsLc);
    let sender = EpochData::sending(engine(), Cipher::Aes256Gcm, &[7; 64], V2).expect("keys");
    let receiver = EpochData::receiving(engine(), Cipher::Aes256Gcm, &[7; 64], V2).expect("keys");
    Pair { sender, receiver, drops: DropCounters::default() }
}

/// An IPv4 packet of 20 bytes.
fn inner() -> [u8; 20] {
    let mut packet = [0; 20];
    (packet[0], packet[3]) = (0x45, 20);
    packet
}

/// The number of the SA for a packet of an epoch.
fn sequence(epoch: u64, counter: u64) -> u64 {
    (epoch - 1) * EPOCH_PACKETS + counter
}

impl Pair {
    fn sealed(&self, inner: &[u8], first: u64, count: usize) -> Vec<Vec<u8>> {
        let mut batch = Batch::new(65_536);
        for _ in 0..count {
            batch.append(inner.len()).expect("it fits").copy_from_slice(inner);
        }
        let bytes = self.sender.sealed(&batch, 0..count);
        self.sender.lay_out(&mut batch, 0..count, first);
        self.sender.seal(&mut batch, 0..count).expect("works");
        let packets: Vec<Vec<u8>> = (0..count).map(|index| batch.packet(index).to_vec()).collect();
        assert_eq!(packets.iter().map(Vec::len).sum::<usize>(), bytes);
        packets
    }

    /// The inner packets that the receiver accepts.
    fn received(&self, packets: &[Vec<u8>]) -> usize {
        let mut batch = Batch::new(65_536);
        for packet in packets {
            batch.append(packet.len()).expect("it fits").copy_from_slice(packet);
        }
        let all = 0..packets.len();
        self.receiver.check(&mut batch, all.clone(), &self.drops);
        self.receiver.open(&mut batch, all.clone(), &self.drops);
        self.receiver.accept(&mut batch, all.clone(), &self.drops);
        self.receiver.strip(&mut batch, all.clone(), None, &self.drops);
        all.filter(|index| batch.packet(*index) == inner()).count()
    }
}

#[test]
fn a_packet_has_epoch_and_counter_in_front_and_the_tag_at_the_end() {
    let packets = pair().sealed(&inner(), 1, 2);
    assert_eq!(packets[1][..12], [0x4a, 1, 2, 3, 0, 1, 0, 0, 0, 0, 0, 2]);
    assert_eq!(packets[1].len(), 12 + 20 + 16);
    assert_eq!(number_of(sequence(3, 9)), 3 << 48 | 9);
    assert_eq!(number_of(EPOCH_PACKETS + 1), 2 << 48 | 1, "no counter is 0");
}

#[test]
fn packets_over_the_end_of_an_epoch_arrive_once_and_in_any_order() {
    let pair = pair();
    let mut packets = pair.sealed(&inner(), EPOCH_PACKETS - 40, 100);
    let epochs: Vec<u16> = packets.iter().map(|packet| epoch_of(packet)).collect();
    assert_eq!((epochs[0], epochs[99]), (1, 2));
    packets.reverse();
    assert_eq!(pair.received(&packets), 100);
    assert_eq!(pair.received(&packets), 0);
    assert_eq!(pair.drops.read(DropReason::Replayed), 100);
}

#[test]
fn four_epochs_ahead_are_opened_and_not_five() {
    for (ahead, expected) in [(4, 1), (5, 0)] {
        let pair = pair();
        assert_eq!(pair.received(&pair.sealed(&inner(), sequence(1 + ahead, 1), 1)), expected, "{ahead}");
        assert_eq!(pair.drops.read(DropReason::KeyExpired), 1 - expected as u64);
    }
}

#[test]
fn the_epoch_before_is_retiring_and_earlier_ones_are_gone() {
    let pair = pair();
    let old: Vec<_> = (1..=3).map(|epoch| pair.sealed(&inner(), sequence(epoch, 1), 1)).collect();
    assert_eq!(pair.received(&pair.sealed(&inner(), sequence(2, 2), 1)), 1);
    assert_eq!(pair.received(&pair.sealed(&inner(), sequence(3, 2), 1)), 1);
    let received: Vec<usize> = old.iter().map(|packets| pair.received(packets)).collect();
    assert_eq!(received, [0, 1, 1]);
    assert_eq!(pair.drops.read(DropReason::KeyExpired), 1);
}

/// A forged packet of a later epoch must not make the present one retire.
#[test]
fn a_forged_packet_changes_no_epoch() {
    let pair = pair();
    let mut forged = pair.sealed(&inner(), 1, 1);
    forged[0][5] = 5;
    assert_eq!(pair.received(&forged), 0);
    assert_eq!(pair.drops.read(DropReason::BadTag), 1);
    assert_eq!(pair.received(&pair.sealed(&inner(), 1, 1)), 1);
    let Side::Receiving(receiving) = &pair.receiver.side else { panic!("a receiver") };
    assert!(lock(receiving).retiring.is_none());
}

#[test]
fn a_sender_goes_through_many_epochs_and_the_receiver_follows() {
    let pair = pair();
    for epoch in 1..200 {
        assert_eq!(pair.received(&pair.sealed(&inner(), sequence(epoch, 7), 3)), 3, "{epoch}");
    }
    let Side::Receiving(receiving) = &pair.receiver.side else { panic!("a receiver") };
    assert_eq!(lock(receiving).keys.len(), 1 + FUTURE_EPOCHS);
}

#[test]
fn keys_end_with_the_last_epoch() {
    let mut source = Source::new(Arc::new(AwsLc), Cipher::Aes128Gcm, &[1; 64]);
    source.next.0 = u16::MAX - 1;
    assert!(source.derive().is_ok_and(|key| key.is_some()));
    assert!(source.derive().is_ok_and(|key| key.is_none()));
}

#[test]
fn changed_bytes_and_short_packets_are_dropped() {
    let pair = pair();
    let packet = pair.sealed(&inner(), 1, 1).remove(0);
    // The first bytes name the SA.
    for index in 4..packet.len() {
        let mut changed = packet.clone();
        changed[index] ^= 1;
        assert_eq!(pair.received(&[changed]), 0, "{index}");
    }
    for length in 0..=28 {
        let before = pair.drops.read(DropReason::TooShort);
        assert_eq!(pair.received(&[packet[..length].to_vec()]), 0);
        assert_eq!(pair.drops.read(DropReason::TooShort), before + 1, "{length}");
    }
    assert_eq!(pair.received(&[packet]), 1);
}

#[test]
fn messages_are_not_forwarded_and_an_exit_is_noted() {
    let pair = pair();
    for (sequence, message) in [(1, &PING[..]), (2, &exit_message())] {
        assert_eq!(pair.received(&pair.sealed(message, sequence, 1)), 0);
        assert_eq!(pair.receiver.exit.take(), sequence == 2);
    }
}
