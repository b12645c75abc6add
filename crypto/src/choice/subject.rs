//! What can be measured: a cipher of either kind, with packets to try it on.

use super::table::Direction;
use crate::cipher::{Cipher, Pair};
use crate::engine::{Engine, Job, Key, PairJob, PairKey};
use std::fmt;
use std::sync::Arc;

/// A cipher of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// An authenticated cipher.
    Cipher(Cipher),
    /// A cipher and a MAC.
    Pair(Pair),
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
    /// The cipher of either kind that has this name.
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

/// Secrets of measurements; different bytes, since 3DES with equal keys is DES.
fn secret(length: usize) -> Vec<u8> {
    (1..=length as u8).collect()
}

impl Subject {
    /// Keys in an engine; `None` if it lacks the cipher.
    pub(super) fn load(self, engine: &dyn Engine) -> Option<Load> {
        match self {
            Self::Cipher(cipher) => engine.load(cipher, &secret(cipher.key_length())).ok().map(Load::Cipher),
            Self::Pair(pair) => {
                let [encryption, integrity] =
                    [pair.encryption.key_length(), pair.integrity.key_length()].map(secret);
                let key = engine.load_pair(pair, &encryption, &integrity).ok()?;
                Some(Load::Pair(key, pair))
            }
        }
    }
}

/// A key to measure.
pub(super) enum Load {
    Cipher(Arc<dyn Key>),
    Pair(Arc<dyn PairKey>, Pair),
}

impl Load {
    /// Whether this key and `reference` make the same of packets of various lengths, and refuse a damaged one.
    pub(super) fn agrees_with(&self, reference: &Self) -> bool {
        [0, 16, 64, 496, 1392].into_iter().all(|size| {
            let [mut ours, mut theirs] = [self, reference].map(|load| Laid::new(load, size, 2));
            let sealed = ours.run(self, Direction::Seal, 2) && theirs.run(reference, Direction::Seal, 2);
            if !sealed || ours != theirs {
                return false;
            }
            let mut damaged = ours.clone();
            damaged.tags[0][0] ^= 1;
            !damaged.run(self, Direction::Open, 2)
                && ours.run(self, Direction::Open, 2)
                && ours.texts == Laid::new(self, size, 2).texts
        })
    }
}

/// Packets laid out for a key.
#[derive(Clone, PartialEq)]
pub(super) struct Laid {
    texts: Vec<Vec<u8>>,
    tags: Vec<Vec<u8>>,
}

impl Laid {
    /// Packets of `size` bytes of text, or a little more where a cipher has blocks.
    pub(super) fn new(load: &Load, size: usize, packets: usize) -> Self {
        let (size, tag) = match load {
            Load::Cipher(_) => (size, 16),
            Load::Pair(_, pair) => {
                (size.next_multiple_of(pair.encryption.block()), pair.integrity.tag_length())
            }
        };
        let texts = (0..packets).map(|number| (0..size).map(|byte| (byte + number) as u8).collect());
        Self { texts: texts.collect(), tags: vec![vec![0; tag]; packets] }
    }

    /// Seals or opens all packets, `burst` in a call; tells whether all went well.
    pub(super) fn run(&mut self, load: &Load, direction: Direction, burst: usize) -> bool {
        let packets = self.texts.iter_mut().zip(&mut self.tags);
        match load {
            Load::Cipher(key) => {
                let mut jobs: Vec<Job<'_>> = packets
                    .map(|(text, tag)| Job { nonce: [0; 12], aad: &[], text, tag, authentic: true })
                    .collect();
                jobs.chunks_mut(burst).all(|jobs| {
                    let done = match direction {
                        Direction::Seal => key.seal(jobs),
                        Direction::Open => key.open(jobs),
                    };
                    done.is_ok() && jobs.iter().all(|job| job.authentic)
                })
            }
            Load::Pair(key, _) => {
                let mut jobs: Vec<PairJob<'_>> = packets
                    .map(|(packet, tag)| PairJob {
                        iv: [0; 16],
                        packet,
                        text: 0,
                        suffix: &[],
                        tag,
                        authentic: true,
                    })
                    .collect();
                jobs.chunks_mut(burst).all(|jobs| {
                    let done = match direction {
                        Direction::Seal => key.seal(jobs),
                        Direction::Open => key.open(jobs),
                    };
                    done.is_ok() && jobs.iter().all(|job| job.authentic)
                })
            }
        }
    }
}
