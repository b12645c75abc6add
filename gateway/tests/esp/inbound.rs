//! What ESP does not accept: every reason to drop a received packet.

use super::{CBC, GCM, bed, bed_of};
use crate::claims::{self, arrive, sealed};
use crate::support::v4;
use crypto::cipher::Cipher;
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, Job};
use gateway::bed::{Bed, Ends, INDEX, child};
use gateway::datapath::protocol::Tunnel;
use packet::header::esp::{NEXT_IPV4, NEXT_NONE, NON_ESP_MARKER};
use packet::header::ip::UDP;
use packet::{Batch, DropReason, Endpoint};
use port::memory::InsideLink;
use tunnel::Protection;
use tunnel::esp::{Mode, Options};

/// Seals a text that the data path would not send.
fn forged(bed: &Bed, payload: &[u8], next_header: u8) -> Vec<u8> {
    let sa = bed.peer.sending.load_full().expect("there is one");
    let Protection::Esp(esp) = &sa.protection else { panic!("it is ESP") };
    let sequence = sa.assign(1, tunnel::Time::from_nanoseconds(1)).expect("there are numbers").start;
    let mut batch = Batch::new(8192);
    batch.append(payload.len()).expect("it fits").copy_from_slice(payload);
    esp.encapsulate(&mut batch, 0, sa.receiver, sequence, next_header);
    esp.seal(&mut batch, 0..1, sa.receiver, sequence).expect("the engine works");
    batch.packet(0).to_vec()
}

#[test]
fn what_is_not_esp_does_not_come_in() {
    let cases = [
        (vec![0, 0, 0], DropReason::TooShort),
        (vec![9, 9, 9, 9, 0, 0, 0], DropReason::TooShort),
        ([&[9u8; 8][..], &[0; 40]].concat(), DropReason::UnknownSa),
        ([&INDEX.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 25]].concat(), DropReason::TooShort),
        ([&INDEX.to_be_bytes()[..], &[0; 60]].concat(), DropReason::Replayed),
        ([&NON_ESP_MARKER[..], &[0; 27]].concat(), DropReason::TooShort),
    ];
    claims::drops_each(&mut bed(), &cases);
    let mut bed = bed_of(CBC, &Options::default(), Tunnel::default(), Mode::Tunnel);
    let ragged = [&INDEX.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16 + 17 + 16]].concat();
    arrive(&mut bed, &[ragged]);
    assert_eq!(bed.dropped(), [(DropReason::BadPadding, 1)], "no whole blocks");
}

#[test]
fn what_comes_from_nowhere_does_not_come_in() {
    claims::needs_an_endpoint(bed());
}

#[test]
fn ike_messages_are_punted_without_their_marker_and_keepalives_dropped() {
    let mut bed = bed();
    let from = Endpoint::new("198.51.100.7:4500".parse().expect("literal"));
    let message = vec![7; 3000];
    let esp = sealed(&mut bed, &[v4(1, 100, 0)]).remove(0);
    let datagrams = [[&NON_ESP_MARKER[..], &message].concat(), vec![0xff], esp, vec![0xff]];
    bed.outside.push(datagrams.iter().map(Vec::as_slice), Some(from), 0);
    bed.carry();
    let punted = bed.datagrams.try_recv().expect("one waits");
    assert_eq!((punted.bytes(), punted.endpoint), (&message[..], from));
    assert_eq!((bed.received().len(), bed.dropped()), (1, vec![]));
}

#[test]
fn damaged_replayed_and_foreign_packets_are_dropped_by_name() {
    claims::drops_a_damaged_packet(bed());
    claims::drops_replayed_packets(bed());
    let mut child = child(GCM, false, Mode::Tunnel);
    child.local.truncate(1);
    child.local[0].addresses = [10, 1, 0, 0].into()..=[10, 1, 0, 255].into();
    let ends = Ends::esp(&AwsLc, child, &Options::default(), Tunnel::default()).expect("has the cipher");
    let mut bed = Bed::between(ends, |link| link, InsideLink);
    let strange = {
        let mut packet = v4(1, 100, 0);
        packet[12] = 11;
        packet
    };
    let forged = [forged(&bed, &strange, NEXT_IPV4), forged(&bed, &v4(2, 100, 0), NEXT_IPV4)];
    arrive(&mut bed, &forged);
    assert_eq!((bed.received(), bed.dropped()), (vec![v4(2, 100, 0)], vec![(DropReason::ForeignSource, 1)]));
}

#[test]
fn one_bad_packet_spoils_no_other_of_its_train() {
    claims::drops_single_packets_of_a_train(bed(), DropReason::UnknownSa);
}

#[test]
fn authentic_packets_are_not_trusted_either() {
    let inner = |payload: &[u8], next_header| {
        let mut bed = bed();
        let datagram = forged(&bed, payload, next_header);
        arrive(&mut bed, &[datagram]);
        assert!(bed.received().is_empty());
        bed.dropped()
    };
    assert_eq!(inner(&[0x11; 48], NEXT_IPV4), [(DropReason::BadNextHeader, 1)]);
    assert_eq!(inner(&v4(1, 100, 0), UDP), [(DropReason::BadNextHeader, 1)]);
    assert_eq!(inner(&v4(1, 100, 0)[..96], NEXT_IPV4), [(DropReason::Malformed, 1)]);
    assert_eq!(inner(&[], NEXT_IPV4), [(DropReason::Malformed, 1)]);
    assert_eq!(inner(&[7; 500], NEXT_NONE), [(DropReason::Dummy, 1)]);
    let text = |text: &[u8]| {
        let mut bed = bed();
        arrive(&mut bed, &[by_hand(text)]);
        assert!(bed.received().is_empty());
        bed.dropped()
    };
    assert_eq!(text(&[&v4(1, 97, 0)[..], &[1, 2, 9, 3, NEXT_IPV4]].concat()), [(DropReason::BadPadding, 1)]);
    assert_eq!(text(&[9, 9, 200, NEXT_IPV4]), [(DropReason::BadPadding, 1)]);
    let mut bed = bed();
    arrive(&mut bed, &[by_hand(&[&v4(1, 97, 0)[..], &[1, 2, 3, 3, NEXT_IPV4]].concat())]);
    assert_eq!(bed.received(), [v4(1, 97, 0)]);
}

/// The first packet of the bed with this text, sealed as RFC 4106 says.
fn by_hand(text: &[u8]) -> Vec<u8> {
    let material: Vec<u8> = (0..20).collect();
    let key = AwsLc.load(Cipher::Aes128Gcm, &material[..16]).expect("16 bytes");
    let (iv, mut text, mut tag) = (7u64.to_be_bytes(), text.to_vec(), [0; 16]);
    let nonce = [&material[16..], &iv].concat().try_into().expect("12 bytes");
    let number = 1u32.to_be_bytes();
    // With an extended sequence number, its high half stands between.
    let aad = [INDEX.to_be_bytes(), [0; 4], number].concat();
    key.seal(&mut [Job { nonce, aad: &aad, text: &mut text, tag: &mut tag, authentic: false }])
        .expect("works");
    [&INDEX.to_be_bytes()[..], &number, &iv, &text, &tag].concat()
}

#[test]
fn padding_that_hides_the_length_is_cut_off() {
    let mut bed = bed();
    let padded = [v4(1, 100, 0), vec![0xee; 900]].concat();
    let datagram = forged(&bed, &padded, NEXT_IPV4);
    assert!(datagram.len() > 1000);
    arrive(&mut bed, &[datagram]);
    assert_eq!(bed.received(), [v4(1, 100, 0)]);
}
