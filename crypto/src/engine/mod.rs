//! Engines: a key is loaded once, then seals or opens bursts of packets.
//!
//! A key is immutable and shared by all workers. A burst is one call, so the cost of a call, such as a dynamic dispatch
//! or a round trip to an accelerator, is paid once per burst. There are two types of jobs: [`Job`] for AEAD ciphers and
//! [`PairJob`] for an encryption and an integrity algorithm.

pub mod af_alg;
pub mod aws_lc;
pub mod cbc;
pub mod cryptodev;
pub mod digest;
pub mod dpdk;
mod evp;
pub mod ipsec_mb;
pub mod library;
pub mod multi_buffer;
pub mod none;
pub mod openssl;
pub(crate) mod private_key;
pub(crate) mod rsa_sha1;
pub(crate) mod scrypt;
pub mod tls1_prf;

use crate::cipher::{Cipher, Pair};
use std::sync::Arc;

/// Length of a nonce in bytes.
pub const NONCE: usize = 12;
/// Length of the longest tag of a [`Cipher`] in bytes.
pub const TAG: usize = 16;

/// One packet to seal or to open, in place.
pub struct Job<'a> {
    /// When sealing, it must be unique for the key. CCM uses the first 11 bytes.
    pub nonce: [u8; NONCE],
    /// Additional data: authenticated, not encrypted.
    pub aad: &'a [u8],
    /// Plaintext in and ciphertext out, or the reverse.
    pub text: &'a mut [u8],
    /// Written when sealing, read when opening. The cipher must support its length.
    pub tag: &'a mut [u8],
    /// Set when opening: whether the tag is right. If it is not, `text` is undefined.
    pub authentic: bool,
}

/// One packet to encrypt and authenticate, or the reverse, in place.
pub struct PairJob<'a> {
    /// CBC: the initialization vector (3DES uses the first 8 bytes). CTR: the first counter block.
    pub iv: [u8; 16],
    /// The authenticated data: a header followed by the text.
    pub packet: &'a mut [u8],
    /// Offset of the text in `packet`. The text's length must be a multiple of the cipher's block size.
    pub text: usize,
    /// Authenticated after `packet`: the high half of an extended sequence number.
    pub suffix: &'a [u8],
    /// Written when sealing, read when opening. Its length is the integrity algorithm's tag length.
    pub tag: &'a mut [u8],
    /// Set when opening: whether the tag is right. If it is not, `packet` is unchanged.
    pub authentic: bool,
}

/// The engine failed; the packets are not at fault.
///
/// If the key [`restores`](Key::restores), the jobs are unchanged and another engine can process them. If it does not,
/// their bytes must not be used: sealing a half-encrypted text again under the same nonce can give the plaintext.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the crypto engine failed")]
pub struct EngineFailure;

/// A loaded key of a [`Cipher`].
pub trait Key: Send + Sync {
    /// Encrypts every job and writes its tag.
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure>;

    /// Decrypts every job and sets whether it is authentic.
    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure>;

    /// Whether a failed burst is left unchanged.
    fn restores(&self) -> bool {
        true
    }
}

/// Loaded keys of a [`Pair`].
pub trait PairKey: Send + Sync {
    /// Encrypts every job and writes its tag.
    fn seal(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure>;

    /// Sets for every job whether it is authentic, and decrypts it if so.
    fn open(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure>;

    /// Whether a failed burst is left unchanged.
    fn restores(&self) -> bool {
        true
    }
}

/// Why an engine did not load a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The engine does not support the cipher.
    #[error("engine {engine} does not support {cipher}")]
    Unsupported {
        /// The engine.
        engine: &'static str,
        /// The cipher.
        cipher: String,
    },
    /// The key has the wrong length.
    #[error("a key of {cipher} has {expected} bytes, not {length}")]
    KeyLength {
        /// The cipher.
        cipher: String,
        /// The cipher's key length in bytes.
        expected: usize,
        /// The length of the key in bytes.
        length: usize,
    },
    /// The engine failed to load the key.
    #[error("engine {engine} failed to load a key of {cipher}")]
    Failed {
        /// The engine.
        engine: &'static str,
        /// The cipher.
        cipher: String,
    },
}

impl LoadError {
    /// Checks that `secret` has the key length of `cipher`.
    pub fn check(cipher: impl ToString, expected: usize, secret: &[u8]) -> Result<(), Self> {
        if secret.len() == expected {
            return Ok(());
        }
        Err(Self::KeyLength { cipher: cipher.to_string(), expected, length: secret.len() })
    }

    /// Checks that both secrets have the key lengths of `pair`.
    pub fn check_pair(pair: Pair, encryption: &[u8], integrity: &[u8]) -> Result<(), Self> {
        Self::check(pair.encryption.name(), pair.encryption.key_length(), encryption)?;
        Self::check(pair.integrity.name(), pair.integrity.key_length(), integrity)
    }
}

/// An implementation of ciphers.
pub trait Engine: Send + Sync {
    /// The name used in commands and reports.
    fn name(&self) -> &'static str;

    /// The version of the library or kernel that does the work.
    fn version(&self) -> String;

    /// Whether a hardware accelerator may do the work. Such an engine is used only if the configuration allows it.
    fn is_accelerator(&self) -> bool {
        false
    }

    /// Whether each key holds scarce resources of the kernel: file descriptors, or sessions of a driver.
    fn holds_descriptors(&self) -> bool {
        false
    }

    /// Loads a key for `cipher`.
    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError>;

    /// Loads the keys for `pair`.
    fn load_pair(
        &self,
        pair: Pair,
        _encryption: &[u8],
        _integrity: &[u8],
    ) -> Result<Arc<dyn PairKey>, LoadError> {
        Err(LoadError::Unsupported { engine: self.name(), cipher: pair.name() })
    }
}
