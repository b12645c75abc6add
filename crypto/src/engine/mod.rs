//! Engines: load a key once, then seal or open bursts of packets with it.
//!
//! A key is immutable and shared by all workers. A burst is one call: what an engine pays per call, such as a dynamic
//! dispatch or a trip to an accelerator, it pays once for all its jobs. There are two kinds of jobs: [`Job`] for
//! authenticated ciphers, [`PairJob`] for a cipher and a MAC.

pub mod af_alg;
pub mod aws_lc;
pub mod cbc;
pub mod cryptodev;
pub mod digest;
mod evp;
pub mod ipsec_mb;
pub mod library;
pub mod none;
pub mod openssl;
pub(crate) mod rsa_sha1;

use crate::cipher::{Cipher, Pair};
use std::sync::Arc;

/// Bytes of a nonce.
pub const NONCE: usize = 12;
/// Bytes of the longest tag of a [`Cipher`].
pub const TAG: usize = 16;

/// One packet to seal or to open, in place.
pub struct Job<'a> {
    /// Unique for the key when sealing. CCM uses the first 11 bytes.
    pub nonce: [u8; NONCE],
    /// Authenticated, not encrypted.
    pub aad: &'a [u8],
    /// Plaintext in and ciphertext out, or the reverse.
    pub text: &'a mut [u8],
    /// Written when sealing, read when opening; of a length that the cipher has.
    pub tag: &'a mut [u8],
    /// Set by opening: whether the tag was right. If not, `text` is garbage.
    pub authentic: bool,
}

/// One packet to encrypt and authenticate, or the reverse, in place.
pub struct PairJob<'a> {
    /// CBC: the initialization vector (3DES uses the first 8 bytes). CTR: the first counter block.
    pub iv: [u8; 16],
    /// What is authenticated: a header, then the text.
    pub packet: &'a mut [u8],
    /// Where in `packet` the text begins. Its length is a multiple of the cipher's block.
    pub text: usize,
    /// Authenticated after `packet`: the high half of an extended sequence number.
    pub suffix: &'a [u8],
    /// Written when sealing, read when opening; of the length of the MAC's tag.
    pub tag: &'a mut [u8],
    /// Set by opening: whether the tag was right. If not, `packet` is as it came.
    pub authentic: bool,
}

/// The engine itself failed, which is not a packet's fault. Where the key [`restores`](Key::restores), the jobs' bytes are
/// as they were, and the burst can be given to another engine. Where it does not, they must not be used: a text sealed twice
/// under one nonce may be the plaintext again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the crypto engine failed")]
pub struct EngineFailure;

/// A loaded key of a [`Cipher`].
pub trait Key: Send + Sync {
    /// Encrypts every job and writes its tag.
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure>;

    /// Decrypts every job and tells of each whether it is authentic.
    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure>;

    /// Whether the bytes of a burst that failed are as they were.
    fn restores(&self) -> bool {
        true
    }
}

/// Loaded keys of a [`Pair`].
pub trait PairKey: Send + Sync {
    /// Encrypts every job, then writes its tag.
    fn seal(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure>;

    /// Tells of every job whether it is authentic, and decrypts it if so.
    fn open(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure>;

    /// Whether the bytes of a burst that failed are as they were.
    fn restores(&self) -> bool {
        true
    }
}

/// A key was given to an engine that cannot use it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The engine lacks the cipher.
    #[error("engine {engine} does not have {cipher}")]
    Unsupported {
        /// The engine asked.
        engine: &'static str,
        /// The cipher it lacks.
        cipher: String,
    },
    /// The secret is too short or too long.
    #[error("a key of {cipher} has {expected} bytes, not {length}")]
    KeyLength {
        /// The cipher.
        cipher: String,
        /// The right length.
        expected: usize,
        /// The length given.
        length: usize,
    },
    /// The engine could not make a key.
    #[error("engine {engine} failed to load a key of {cipher}")]
    Failed {
        /// The engine asked.
        engine: &'static str,
        /// The cipher.
        cipher: String,
    },
}

impl LoadError {
    /// Says no, unless `secret` has the length of a key of `cipher`.
    pub fn check(cipher: impl ToString, expected: usize, secret: &[u8]) -> Result<(), Self> {
        if secret.len() == expected {
            return Ok(());
        }
        Err(Self::KeyLength { cipher: cipher.to_string(), expected, length: secret.len() })
    }

    /// Says no, unless both secrets have the lengths of the keys of `pair`.
    pub fn check_pair(pair: Pair, encryption: &[u8], integrity: &[u8]) -> Result<(), Self> {
        Self::check(pair.encryption.name(), pair.encryption.key_length(), encryption)?;
        Self::check(pair.integrity.name(), pair.integrity.key_length(), integrity)
    }
}

/// An implementation of ciphers.
pub trait Engine: Send + Sync {
    /// Its name in commands and reports.
    fn name(&self) -> &'static str;

    /// The version of the library behind it.
    fn version(&self) -> String;

    /// Whether it is reached over a bus, and used only where a person allows it.
    fn is_accelerator(&self) -> bool {
        false
    }

    /// Whether each key holds descriptors of the process, of which it has few.
    fn holds_descriptors(&self) -> bool {
        false
    }

    /// Expands `secret` into a key for `cipher`.
    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError>;

    /// Expands two secrets into keys for `pair`.
    fn load_pair(
        &self,
        pair: Pair,
        _encryption: &[u8],
        _integrity: &[u8],
    ) -> Result<Arc<dyn PairKey>, LoadError> {
        Err(LoadError::Unsupported { engine: self.name(), cipher: pair.name() })
    }
}
