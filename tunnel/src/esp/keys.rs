//! The keys and other parameters that all packets of an ESP SA share.

use super::layout::Layout;
use super::parameters::{Mode, Transform};
use crate::opening::JOBS;
use arrayvec::ArrayVec;
use crypto::cipher::{Encryption, Pair};
use crypto::engine::{Engine, LoadError, PairKey};
use crypto::{Cipher, EngineFailure, Job, Key, Random, SecretBytes};
use std::sync::Arc;

/// The loaded keys.
pub(super) enum Keys {
    /// An authenticated cipher, and the salt before its IVs (RFC 4106 section 4; 3 bytes for CCM, RFC 4309 section 4).
    Aead(Arc<dyn Key>, Salt),
    /// The same, used for its tag only (RFC 4543).
    Gmac(Arc<dyn Key>, Salt),
    /// A cipher and a MAC.
    Pair(Arc<dyn PairKey>, Ivs),
    /// None: packets are as they are.
    Null,
}

/// The part of a nonce before the explicit IV.
#[derive(Clone, Copy)]
pub(super) struct Salt {
    /// The bytes as a little-endian number.
    bits: u32,
    /// The place of the IV behind it, in bits.
    shift: u32,
}

impl Salt {
    /// The nonce of a packet.
    #[inline]
    pub(super) fn nonce(self, iv: [u8; 8]) -> [u8; 12] {
        let bits = u128::from(self.bits) | u128::from(u64::from_le_bytes(iv)) << self.shift;
        first_twelve(bits.to_le_bytes())
    }
}

/// The source of the IVs of a [`Pair`].
pub(super) enum Ivs {
    /// No IV.
    Null,
    /// AES-CTR: the sequence number, after the SA's nonce (RFC 3686 section 4).
    Counter([u8; 4]),
    /// CBC: unpredictable IVs of this length in bytes.
    Unpredictable(IvSource, usize),
}

/// Unpredictable IVs (NIST SP 800-38A appendix C), taken from the keystream of a secret random key. One engine call
/// makes the IVs of a whole SA batch, without a system call for each.
pub(crate) struct IvSource(Arc<dyn Key>);

impl IvSource {
    /// A source with a random key.
    pub(crate) fn new(engine: &dyn Engine, random: &mut dyn Random) -> Result<Self, LoadError> {
        engine.load(Cipher::Aes128Gcm, SecretBytes::random(16, random).expose()).map(Self)
    }

    /// Writes the IVs of the packets from `first_sequence` on. Two calls must not share a sequence number.
    pub(crate) fn fill(&self, first_sequence: u64, ivs: &mut [[u8; 16]]) -> Result<(), EngineFailure> {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&first_sequence.to_be_bytes());
        ivs.fill([0; 16]);
        let (text, mut tag) = (ivs.as_flattened_mut(), [0; 16]);
        self.0.seal(&mut [Job { nonce, aad: &[], text, tag: &mut tag, authentic: false }])
    }
}

/// The layout and the keys of one ESP SA.
pub struct SaKeys {
    pub(super) keys: Keys,
    pub(super) layout: Layout,
    pub(super) extended: bool,
    pub(super) mode: Mode,
}

impl SaKeys {
    /// Loads the `keys` of one direction, in the order of [`Half::keys`](super::Half::keys).
    ///
    /// `random` seeds the IVs of a CBC cipher.
    pub fn new(
        transform: Transform,
        extended: bool,
        mode: Mode,
        keys: &SecretBytes,
        engine: &dyn Engine,
        random: &mut dyn Random,
    ) -> Result<Self, LoadError> {
        let keys = keys.expose();
        let expected = transform.key_material_length();
        let keys = match transform {
            Transform::Aead(cipher, _) | Transform::Gmac(cipher) => {
                LoadError::check(cipher, expected, keys)?;
                let (key, rest) = keys.split_at(cipher.key_length());
                let (key, salt) = (engine.load(cipher, key)?, salt(rest));
                if matches!(transform, Transform::Gmac(_)) {
                    Keys::Gmac(key, salt)
                } else {
                    Keys::Aead(key, salt)
                }
            }
            Transform::Pair(pair) => load_pair(pair, expected, keys, engine, random)?,
            Transform::Null => Keys::Null,
        };
        Ok(Self { keys, layout: Layout::of(transform), extended, mode })
    }

    /// The lengths of a packet's parts.
    #[inline]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The mode of the SA.
    #[inline]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether sequence numbers have 64 bits.
    #[inline]
    pub fn is_extended(&self) -> bool {
        self.extended
    }

    /// The authenticated SPI and sequence number (RFC 4106 section 5): with ESN, the high half stands between SPI and
    /// low half.
    #[inline]
    pub(super) fn aad(&self, spi: u32, sequence: u64) -> [u8; 12] {
        let sequence = if self.extended { sequence } else { sequence << 32 };
        first_twelve((u128::from(spi) << 96 | u128::from(sequence) << 32).to_be_bytes())
    }

    /// The used length of [`aad`](Self::aad).
    #[inline]
    pub(super) fn aad_length(&self) -> usize {
        if self.extended { 12 } else { 8 }
    }

    /// The used length of a suffix.
    pub(super) fn suffix_length(&self) -> usize {
        if self.extended { 4 } else { 0 }
    }
}

/// The data that a MAC covers beyond the packet: the high halves of extended sequence numbers (RFC 4303 section 2.8).
pub(super) fn suffixes(sequences: impl Iterator<Item = u64>) -> ArrayVec<[u8; 4], JOBS> {
    sequences.take(JOBS).map(|sequence| ((sequence >> 32) as u32).to_be_bytes()).collect()
}

fn salt(rest: &[u8]) -> Salt {
    let mut bytes = [0; 4];
    bytes[..rest.len()].copy_from_slice(rest);
    Salt { bits: u32::from_le_bytes(bytes), shift: 8 * rest.len() as u32 }
}

/// From a number in registers: an array that is put together in memory from a salt and an IV waits for both when it is copied, and that
/// is a tenth of sealing a small packet.
#[inline]
fn first_twelve(bytes: [u8; 16]) -> [u8; 12] {
    *bytes.first_chunk().expect("16 bytes have 12")
}

fn load_pair(
    pair: Pair,
    expected: usize,
    keys: &[u8],
    engine: &dyn Engine,
    random: &mut dyn Random,
) -> Result<Keys, LoadError> {
    LoadError::check(pair.name(), expected, keys)?;
    let (encryption, rest) = keys.split_at(pair.encryption.key_length());
    let (nonce, integrity) = rest.split_at(rest.len() - pair.integrity.key_length());
    let key = engine.load_pair(pair, encryption, integrity)?;
    let ivs = match pair.encryption {
        Encryption::Null => Ivs::Null,
        Encryption::AesCtr(_) => Ivs::Counter(salt(nonce).bits.to_le_bytes()),
        Encryption::AesCbc(_) | Encryption::TripleDesCbc => {
            Ivs::Unpredictable(IvSource::new(engine, random)?, pair.encryption.block())
        }
    };
    Ok(Keys::Pair(key, ivs))
}

/// The first counter block of AES-CTR (RFC 3686 section 4).
#[inline]
pub(super) fn counter_block(nonce: [u8; 4], iv: [u8; 8]) -> [u8; 16] {
    let mut block = [0; 16];
    block[..4].copy_from_slice(&nonce);
    block[4..12].copy_from_slice(&iv);
    block[15] = 1;
    block
}
