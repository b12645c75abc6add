//! The ciphers that can be measured, and the packets to measure them with.

use super::copied::{AnyKey, Copied};
use super::slot::Direction;
use crate::cipher::{Cipher, Encryption, Integrity, Pair};
use crate::engine::{Engine, EngineFailure, LoadError};
use std::fmt;

/// An AEAD cipher, or an encryption and an integrity algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// An AEAD cipher.
    Cipher(Cipher),
    /// An encryption and an integrity algorithm.
    Pair(Pair),
}

impl Subject {
    /// All ciphers and pairs.
    pub fn every() -> impl Iterator<Item = Self> {
        let pair = |encryption, integrity| Self::Pair(Pair { encryption, integrity });
        let pairs = Encryption::ALL.iter().flat_map(move |&encryption| {
            Integrity::ALL.iter().map(move |&integrity| pair(encryption, integrity))
        });
        Cipher::ALL.iter().copied().map(Self::Cipher).chain(pairs)
    }
}

impl From<Cipher> for Subject {
    fn from(cipher: Cipher) -> Self {
        Self::Cipher(cipher)
    }
}

impl From<Pair> for Subject {
    fn from(pair: Pair) -> Self {
        Self::Pair(pair)
    }
}

impl Subject {
    /// The cipher or pair with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Cipher::by_name(name).map(Self::Cipher).or_else(|| Pair::by_name(name).map(Self::Pair))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cipher(cipher) => cipher.fmt(f),
            Self::Pair(pair) => pair.fmt(f),
        }
    }
}

/// A key for measurements. The bytes differ, since 3DES with equal keys is DES.
fn secret(length: usize) -> Vec<u8> {
    (1..=length as u8).collect()
}

impl Subject {
    /// Loads a key into an engine.
    pub(super) fn load(self, engine: &dyn Engine) -> Result<Load, LoadError> {
        let key = match self {
            Self::Cipher(cipher) => AnyKey::Cipher(engine.load(cipher, &secret(cipher.key_length()))?),
            Self::Pair(pair) => {
                let [encryption, integrity] =
                    [pair.encryption.key_length(), pair.integrity.key_length()].map(secret);
                AnyKey::Pair(engine.load_pair(pair, &encryption, &integrity)?)
            }
        };
        Ok(Load { key, subject: self })
    }

    /// Tag lengths in bytes, in ascending order.
    fn tag_lengths(self) -> Vec<usize> {
        match self {
            Self::Cipher(cipher) => cipher.tag_lengths().to_vec(),
            Self::Pair(pair) => vec![pair.integrity.tag_length()],
        }
    }

    /// Lengths of AAD and suffix: an ESP AAD without and with extended sequence numbers (RFC 4106, section 5), or the
    /// high half of the sequence number (RFC 4303, section 2.2.1).
    fn aad_or_suffix_lengths(self) -> &'static [usize] {
        match self {
            Self::Cipher(_) => &[0, 8, 12],
            Self::Pair(_) => &[0, 4],
        }
    }

    /// ESP packets with `size` bytes of text.
    fn shape(self, size: usize) -> Shape {
        let tag = self.tag_lengths().last().copied().unwrap_or_default();
        Shape { size, tag, beside: if matches!(self, Self::Cipher(_)) { 8 } else { 0 } }
    }
}

/// The lengths of text, tag, and AAD or suffix.
#[derive(Clone, Copy)]
struct Shape {
    size: usize,
    tag: usize,
    beside: usize,
}

/// A key to measure.
pub(super) struct Load {
    key: AnyKey,
    subject: Subject,
}

/// Selects the byte of a packet to change.
type Damage = fn(&mut Copied) -> Option<&mut u8>;

/// Changes that must be detected: in tag, text, header, and AAD or suffix.
const DAMAGES: [Damage; 4] = [
    |packet| packet.tag.last_mut(),
    |packet| packet.bytes.last_mut(),
    |packet| packet.bytes.first_mut(),
    |packet| packet.beside.last_mut(),
];

impl Load {
    /// Whether this key and `reference` give the same results for packets of all shapes, and whether this key rejects
    /// damaged packets.
    pub(super) fn agrees_with(&self, reference: &Self) -> Result<(), Flaw> {
        let subject = self.subject;
        for tag in subject.tag_lengths() {
            for &beside in subject.aad_or_suffix_lengths() {
                for size in [0, 16, 64, 496, 1392] {
                    self.agrees_at(reference, Shape { size, tag, beside }, 2)?;
                }
            }
        }
        [1392, 9000].into_iter().try_for_each(|size| self.agrees_at(reference, subject.shape(size), 32))
    }

    fn agrees_at(&self, reference: &Self, shape: Shape, packets: usize) -> Result<(), Flaw> {
        let plain = TestPackets::of(self, shape, packets);
        let (mut ours, mut theirs) = (plain.clone(), plain.clone());
        ours.run(self, Direction::Seal, packets)?;
        theirs.run(reference, Direction::Seal, packets)?;
        right(ours == theirs)?;
        for damage in DAMAGES {
            ours.is_refused_with(self, damage, &plain)?;
        }
        ours.run(self, Direction::Open, packets)?;
        right(ours.0.iter().zip(&plain.0).all(|(ours, plain)| ours.bytes == plain.bytes))
    }
}

/// Why an engine cannot be used for a cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// The engine failed.
    Failed,
    /// The engine computed a wrong result.
    Wrong,
}

impl From<EngineFailure> for Flaw {
    fn from(_: EngineFailure) -> Self {
        Self::Failed
    }
}

fn right(is_right: bool) -> Result<(), Flaw> {
    is_right.then_some(()).ok_or(Flaw::Wrong)
}

/// Test packets for a key.
#[derive(Clone, PartialEq)]
pub(super) struct TestPackets(Vec<Copied>);

impl TestPackets {
    /// Packets with `size` bytes of text, rounded up to the block size.
    pub(super) fn new(load: &Load, size: usize, packets: usize) -> Self {
        Self::of(load, load.subject.shape(size), packets)
    }

    fn of(load: &Load, shape: Shape, packets: usize) -> Self {
        let (text, size) = match load.subject {
            Subject::Cipher(_) => (0, shape.size),
            // RFC 4303, section 2: SPI, sequence number, then the IV.
            Subject::Pair(Pair { encryption, .. }) => {
                (8 + encryption.block(), shape.size.next_multiple_of(encryption.block()))
            }
        };
        let packet = |number: usize| {
            let bytes: Vec<u8> = (0..text + size).map(|byte| (byte + number) as u8).collect();
            let mut packet = Copied::default();
            let (beside, tag) = (vec![0x80; shape.beside], vec![0; shape.tag]);
            packet.set([number as u8; 16], text, [&beside, &bytes, &tag]);
            packet
        };
        Self((0..packets).map(packet).collect())
    }

    /// Seals or opens all packets, `burst` per call. When opening, all must be authentic.
    pub(super) fn run(&mut self, load: &Load, direction: Direction, burst: usize) -> Result<(), Flaw> {
        load.key.run(direction, &mut self.0, burst)?;
        right(direction == Direction::Seal || self.0.iter().all(|packet| packet.authentic))
    }

    /// Whether the key rejects the first of these sealed packets when it is damaged, and only that one.
    fn is_refused_with(&self, load: &Load, damage: Damage, plain: &Self) -> Result<(), Flaw> {
        let mut damaged = self.clone();
        let Some(byte) = damaged.0.first_mut().and_then(damage) else { return Ok(()) };
        *byte ^= 1;
        let packets = damaged.0.len();
        load.key.run(Direction::Open, &mut damaged.0, packets)?;
        let mut all = damaged.0.iter().zip(&plain.0).enumerate();
        right(all.all(|(index, (packet, plain))| match index {
            0 => !packet.authentic,
            _ => packet.authentic && packet.bytes == plain.bytes,
        }))
    }
}
