//! A crypto engine falls ill under a running transfer, and not one packet is lost or wrong.

#[path = "../../crypto/tests/support/ill.rs"]
mod ill;

use crypto::Cipher;
use crypto::choice::{Choice, Guarded, Health, Rules};
use crypto::engine::aws_lc::AwsLc;
use gateway::bed::Bed;
use ill::{ERRS, Ill, LIES, STALLS, WELL};
use packet::header::ip::{Ipv4Header, UDP};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

/// Bursts sent in each state of the engine, and packets in each.
const BURSTS: usize = 30;
const PACKETS: usize = 40;

/// A packet that says which it is.
fn packet(number: usize) -> Vec<u8> {
    let length = 60 + number % 1300;
    let mut header = Ipv4Header {
        version_ihl: 0x45,
        ds_field: 0,
        total_length: (length as u16).into(),
        identification: 1.into(),
        fragment: Ipv4Header::DONT_FRAGMENT.into(),
        ttl: 64,
        protocol: UDP,
        checksum: [0; 2],
        source: [10, 1, 0, 1],
        destination: [10, 2, 0, 1],
    };
    header.finish();
    let mut packet = header.as_bytes().to_vec();
    packet.extend_from_slice(&(number as u64).to_be_bytes());
    packet.resize(length, number as u8);
    packet
}

#[test]
fn nothing_is_lost_and_nothing_wrong_while_an_engine_falls_ill_and_recovers() {
    let ill = Ill::default();
    let choice = Choice::among(vec![Arc::new(AwsLc), Arc::new(Guarded::new(Arc::new(ill.clone())))]);
    let pinned = [(Cipher::ChaCha20Poly1305.to_string(), "ill".to_owned())].into();
    choice.set_rules(Rules { pinned, accelerators: true });
    let mut bed = Bed::new(&choice).expect("the engines have the cipher");
    bed.allow(&["0.0.0.0/0".parse().expect("literal")]);
    let mut number = 0;
    for how in [WELL, ERRS, WELL, STALLS, WELL, LIES, WELL] {
        ill.how.store(how, Ordering::Relaxed);
        // What a daemon does every second; here no time need pass.
        while how == WELL && choice.health(1).0 != Health::Works {
            std::thread::sleep(std::time::Duration::from_millis(100));
            choice.tend();
        }
        let calls = ill.calls.load(Ordering::Relaxed);
        for _ in 0..BURSTS {
            let sent: Vec<Vec<u8>> = (number..number + PACKETS).map(packet).collect();
            number += PACKETS;
            bed.inside.push(sent.iter().map(Vec::as_slice), None, 0);
            bed.carry();
            assert!(bed.received() == sent, "state {how}, up to packet {number}");
        }
        assert!(ill.calls.load(Ordering::Relaxed) > calls, "state {how}: the engine was called");
        assert_eq!(choice.health(1).0 == Health::Works, how == WELL, "state {how}");
    }
    assert_eq!(bed.dropped(), [], "{number} packets");
}
