//! Keys that come and go: which one a packet leaves under, and what is left of one that has ended.

#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use crypto::Cipher;
use crypto::engine::Engine;
use crypto::engine::aws_lc::AwsLc;
use gateway::bed::{Bed, INDEX};
use gateway::datapath::DataPathEvent;
use gateway::datapath::tables::{Order, Session};
use packet::DropReason;
use packet::header::wireguard::DATA_OVERHEAD;
use port::Wake;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use support::v4;
use tunnel::sa::Lifetime;
use tunnel::{InboundSa, OutboundSa, Time};
use zeroize::Zeroizing;

fn bed() -> Bed {
    let bed = Bed::new(&AwsLc).expect("the engine has the cipher");
    bed.allow(&["0.0.0.0/0".parse().expect("literal")]);
    bed
}

fn push(bed: &Bed, packets: &[Vec<u8>]) {
    bed.inside.push(packets.iter().map(Vec::as_slice), None, 0);
}

fn send(bed: &mut Bed) -> Vec<Vec<u8>> {
    while bed.outbound.burst(&mut ()).expect("memory does not fail") {}
    std::iter::from_fn(|| bed.outside.pop()).collect()
}

fn arrive(bed: &mut Bed, datagrams: &[Vec<u8>]) {
    let from = bed.peer.endpoint.load();
    bed.outside.push(datagrams.iter().map(Vec::as_slice), from, 0);
    while bed.inbound.burst(&mut ()).expect("memory does not fail") {}
}

const FOR_EVER: Lifetime = Lifetime {
    renew: None,
    renew_sequence: u64::MAX,
    expires: Time::from_nanoseconds(u64::MAX),
    end_sequence: u64::MAX,
};

/// A pair of SAs with one key; the inbound one waits for its confirmation.
fn pair(secret: &[u8; 32], index: u32) -> (Arc<OutboundSa>, Arc<InboundSa>) {
    let key = AwsLc.load(Cipher::ChaCha20Poly1305, secret).expect("32 bytes");
    let inbound = InboundSa::new(Arc::clone(&key), index, FOR_EVER, true);
    (Arc::new(OutboundSa::new(key, index, FOR_EVER)), Arc::new(inbound))
}

fn install(bed: &Bed, sa: Arc<InboundSa>) {
    bed.tables.install(Session { sa, peer: Arc::clone(&bed.peer), selectors: None, transport: None });
}

/// The receiver index of each data message.
fn receivers(datagrams: &[Vec<u8>]) -> Vec<u32> {
    let receiver = |datagram: &Vec<u8>| u32::from_le_bytes(datagram[4..8].try_into().expect("four bytes"));
    datagrams.iter().map(receiver).collect()
}

/// A peer that was restarted has only the newest key, and its first packet is answered at once: by another program, before
/// the protocol's thread has had its turn.
#[test]
fn what_answers_the_first_packet_under_a_key_leaves_under_it() {
    let mut bed = bed();
    let old = bed.peer.sending.load_full();
    let (outbound, inbound) = pair(&[8; 32], INDEX + 1);
    bed.peer.use_key(Some(Arc::clone(&outbound)));
    push(&bed, &[v4(1, 100, 0), v4(2, 100, 0)]);
    let from_peer = send(&mut bed);
    bed.peer.use_key(old);
    bed.peer.use_when_confirmed(INDEX + 1, outbound);
    install(&bed, inbound);
    push(&bed, &[v4(3, 100, 0)]);
    assert_eq!(receivers(&send(&mut bed)), [INDEX], "the peer has not shown yet that it has the newer key");
    arrive(&mut bed, &from_peer[..1]);
    assert_eq!(bed.received(), [v4(1, 100, 0)]);
    push(&bed, &[v4(4, 100, 0)]);
    assert_eq!(receivers(&send(&mut bed)), [INDEX + 1]);
    assert!(
        bed.datapath_events
            .try_iter()
            .any(|datapath_event| datapath_event == DataPathEvent::Confirmed(INDEX + 1))
    );
}

#[test]
fn a_key_that_was_given_up_before_its_confirmation_is_not_used() {
    let mut bed = bed();
    let (outbound, inbound) = pair(&[8; 32], INDEX + 1);
    let old = bed.peer.sending.swap(Some(Arc::clone(&outbound)));
    push(&bed, &[v4(1, 100, 0)]);
    let from_peer = send(&mut bed);
    bed.peer.use_when_confirmed(INDEX + 1, outbound);
    install(&bed, inbound);
    // The protocol's thread has made another key meanwhile.
    bed.peer.use_key(old);
    arrive(&mut bed, &from_peer);
    push(&bed, &[v4(2, 100, 0)]);
    assert_eq!(receivers(&send(&mut bed)), [INDEX]);
}

#[test]
fn what_waited_for_a_key_is_sent_by_the_worker_and_before_what_came_later() {
    let mut bed = bed();
    let key = bed.peer.sending.swap(None);
    let packets: Vec<Vec<u8>> = (0..140).map(|number| v4(number, 100, 0)).collect();
    for packet in &packets[..100] {
        push(&bed, std::slice::from_ref(packet));
    }
    assert!(send(&mut bed).is_empty());
    bed.peer.use_key(key);
    // The handshake thread does not run. More packets come than may wait, and none is dropped.
    for packet in &packets[100..] {
        push(&bed, std::slice::from_ref(packet));
    }
    bed.carry();
    assert_eq!(bed.received(), packets);
    assert_eq!(bed.dropped(), []);
}

#[test]
fn what_waited_for_a_key_is_sent_when_nothing_follows_it() {
    let mut bed = bed();
    let wake = Wake::new().expect("there are descriptors left");
    let key = bed.peer.sending.swap(None);
    assert!(!bed.tables.orders.give(&bed.peer, Order::Send, &wake), "nothing waits");
    push(&bed, &[v4(1, 100, 0), v4(2, 100, 0)]);
    assert!(send(&mut bed).is_empty());
    bed.peer.use_key(key);
    assert!(bed.tables.orders.give(&bed.peer, Order::Send, &wake));
    wake.wait([]).expect("it was rung");
    bed.carry();
    assert_eq!(bed.received().len(), 2);
    assert!(!bed.peer.staging.is_occupied());
}

#[test]
fn what_waits_in_vain_is_dropped_and_the_next_packet_asks_again() {
    let mut bed = bed();
    let wake = Wake::new().expect("there are descriptors left");
    bed.peer.use_key(None);
    push(&bed, &[v4(1, 100, 0), v4(2, 100, 0)]);
    assert!(send(&mut bed).is_empty());
    // The key went away again before the worker had its turn.
    assert!(bed.tables.orders.give(&bed.peer, Order::Send, &wake));
    assert!(send(&mut bed).is_empty());
    assert_eq!(bed.datapath_events.try_iter().collect::<Vec<_>>(), [DataPathEvent::NoKey(bed.peer.id); 2]);
    assert!(bed.tables.orders.give(&bed.peer, Order::Drop, &wake));
    assert!(send(&mut bed).is_empty());
    assert_eq!(bed.dropped(), [(DropReason::NoKey, 2)]);
    push(&bed, &[v4(3, 100, 0)]);
    assert!(send(&mut bed).is_empty());
    assert_eq!(bed.datapath_events.try_iter().collect::<Vec<_>>(), [DataPathEvent::NoKey(bed.peer.id)]);
}

/// Bytes that are nowhere in memory as they are.
struct Masked([u8; 32]);

impl Masked {
    const MASK: u8 = 0x5a;

    fn new(secret: &[u8; 32]) -> Self {
        Self(secret.map(|byte| byte ^ Self::MASK))
    }

    /// Where they are in the memory of this process, but for the buffer that it is read with.
    fn places(&self) -> Vec<u64> {
        let memory = File::open("/proc/self/mem").expect("procfs");
        let mut buffer = vec![0; 1 << 20];
        let start = buffer.as_ptr() as u64;
        let ours = start..start + buffer.len() as u64;
        let mut places = Vec::new();
        for range in writable() {
            let mut at = range.start;
            while at < range.end {
                let length = (range.end - at).min(buffer.len() as u64) as usize;
                // What cannot be read, such as a guard page, holds nothing.
                let read = memory.read_at(&mut buffer[..length], at).unwrap_or(0);
                let found = buffer[..read].windows(32).enumerate().filter(|(_, window)| self.is(window));
                places.extend(
                    found.map(|(offset, _)| at + offset as u64).filter(|place| !ours.contains(place)),
                );
                // The next piece begins with the end of this one.
                at += if length == buffer.len() { length as u64 - 31 } else { length as u64 };
            }
        }
        buffer.fill(0);
        places
    }

    fn is(&self, window: &[u8]) -> bool {
        window.iter().zip(&self.0).all(|(byte, masked)| byte ^ Self::MASK == *masked)
    }
}

/// The memory that this process can write to.
fn writable() -> Vec<Range<u64>> {
    let maps = BufReader::new(File::open("/proc/self/maps").expect("procfs"));
    let parse = |line: String| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        rest.starts_with("rw").then_some(number(start)?..number(end)?)
    };
    maps.lines().map_while(Result::ok).filter_map(parse).collect()
}

/// A secret that is nowhere else.
fn secret() -> Zeroizing<[u8; 32]> {
    let mut secret = Zeroizing::new([0; 32]);
    crypto::Random::fill(&mut crypto::random::System::default(), &mut secret[..]);
    secret
}

/// Keys are loaded by another thread, as in the program: on its stack are no copies that belong to this test.
fn replace_key(bed: &Bed) -> Masked {
    std::thread::scope(|scope| {
        let replace = || {
            let secret = secret();
            let (outbound, inbound) = pair(&secret, INDEX);
            bed.tables.retire(INDEX);
            install(bed, inbound);
            bed.peer.use_key(Some(outbound));
            Masked::new(&secret)
        };
        // A stack of this size is not kept for the next thread: copies that moves leave there go with it.
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, replace);
        thread.expect("a thread").join().expect("no panic")
    })
}

#[test]
fn nothing_of_a_key_is_left_when_it_is_retired_although_the_interface_is_idle() {
    let mut bed = bed();
    let key = replace_key(&bed);
    assert!(!key.places().is_empty(), "a key in use is found");
    push(&bed, &[v4(1, 100, 0), v4(2, 100, 0)]);
    bed.carry();
    assert_eq!(bed.received().len(), 2);
    assert_eq!(bed.peer.received.bytes(), 2 * (112 + DATA_OVERHEAD as u64));
    // The workers have nothing more to do, as on an idle interface.
    bed.tables.retire(INDEX);
    assert!(!key.places().is_empty(), "it is sent with");
    bed.peer.use_key(None);
    assert_eq!(key.places(), [0u64; 0], "addresses at which the key still is");
}
