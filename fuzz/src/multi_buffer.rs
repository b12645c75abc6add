//! The engine that seals several packets at once, beside AWS-LC.

use crypto::Cipher;
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::multi_buffer::MultiBuffer;
use crypto::engine::{Engine, Job, Key};
use std::sync::Arc;

/// More packets than the engine takes at once.
const MOST: usize = 70;
const LONGEST: usize = 9000;

#[derive(Clone, PartialEq)]
struct Packet {
    nonce: [u8; 12],
    aad: Vec<u8>,
    text: Vec<u8>,
    tag: [u8; 16],
    /// A bit of the sealed text, its tag or its AAD that changes on the way.
    changed: Option<usize>,
}

impl Packet {
    /// Four bytes: two of the length, one of the AAD and whether a bit changes, one that all bytes are made of.
    fn new([low, high, aad, seed]: [u8; 4], place: usize) -> Self {
        let length = usize::from(u16::from_le_bytes([low, high])) % (LONGEST + 1);
        let bytes = |count: usize| (0..count).map(|at| (at as u8).wrapping_mul(151) ^ seed).collect();
        let aad_length = usize::from(aad & 63);
        let changed = (aad & 64 != 0).then_some(usize::from(seed) * 67 % (8 * (length + 16)));
        let nonce = [seed, place as u8, low, high, 0, 0, 0, 0, aad, 0xff, 0xff, 0xff];
        Self { nonce, aad: bytes(aad_length), text: bytes(length), tag: [0; 16], changed }
    }

    fn change(&mut self) {
        let Some(bit) = self.changed else { return };
        let bytes = self.text.iter_mut().chain(&mut self.tag);
        bytes.skip(bit / 8).take(1).for_each(|byte| *byte ^= 1 << (bit % 8));
    }
}

/// Bursts of any packets: every instruction set of this machine seals them as AWS-LC does, and opens all but the changed ones.
pub fn bursts(data: &[u8]) {
    let Some((secret, rest)) = data.split_first_chunk::<32>() else { return };
    let (groups, _) = rest.as_chunks::<4>();
    let packets: Vec<_> =
        groups.iter().take(MOST).enumerate().map(|(place, group)| Packet::new(*group, place)).collect();
    let load = |engine: &dyn Engine| {
        engine.load(Cipher::ChaCha20Poly1305, secret).expect("the engine has the cipher")
    };
    let expected = sealed(&load(&AwsLc), &packets);
    for engine in MultiBuffer::all() {
        let (key, name) = (load(&engine), engine.version());
        let mut received = sealed(&key, &packets);
        assert!(received == expected, "{name} seals otherwise");
        received.iter_mut().for_each(Packet::change);
        let mut jobs = jobs(&mut received);
        key.open(&mut jobs).expect("it computes in this processor");
        let authentic: Vec<_> = jobs.iter().map(|job| job.authentic).collect();
        for ((received, sent), is_authentic) in received.iter().zip(&packets).zip(authentic) {
            assert_eq!(is_authentic, sent.changed.is_none(), "{name}");
            assert!(!is_authentic || received.text == sent.text, "{name} opens otherwise");
        }
    }
}

fn sealed(key: &Arc<dyn Key>, packets: &[Packet]) -> Vec<Packet> {
    let mut packets = packets.to_vec();
    key.seal(&mut jobs(&mut packets)).expect("it computes in this processor");
    packets
}

fn jobs(packets: &mut [Packet]) -> Vec<Job<'_>> {
    packets
        .iter_mut()
        .map(|Packet { nonce, aad, text, tag, .. }| Job { nonce: *nonce, aad, text, tag, authentic: false })
        .collect()
}
