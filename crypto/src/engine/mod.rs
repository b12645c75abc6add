//! Engines: load a key once, then seal or open bursts of packets with it.
//!
//! A [`Key`] is immutable and shared by all workers. A burst is one call: what an engine pays per call, such as a
//! dynamic dispatch or a trip to an accelerator, it pays once for all its [`Job`]s.

pub mod aws_lc;
pub mod none;

use std::sync::Arc;

/// Bytes of a nonce.
pub const NONCE: usize = 12;
/// Bytes of a tag.
pub const TAG: usize = 16;

/// An authenticated cipher for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// ChaCha20-Poly1305 (RFC 8439), key of 32 bytes.
    ChaCha20Poly1305,
    /// AES-128-GCM (NIST SP 800-38D), key of 16 bytes.
    Aes128Gcm,
    /// AES-256-GCM, key of 32 bytes.
    Aes256Gcm,
}

impl Cipher {
    /// Every cipher.
    pub const ALL: &[Self] = &[Self::ChaCha20Poly1305, Self::Aes128Gcm, Self::Aes256Gcm];

    /// The name used in commands and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
        }
    }

    /// Bytes of a key.
    pub fn key_length(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::ChaCha20Poly1305 | Self::Aes256Gcm => 32,
        }
    }
}

/// One packet to seal or to open, in place.
pub struct Job<'a> {
    /// Unique for the key when sealing.
    pub nonce: [u8; NONCE],
    /// Authenticated, not encrypted.
    pub aad: &'a [u8],
    /// Plaintext in and ciphertext out, or the reverse.
    pub text: &'a mut [u8],
    /// Written when sealing, read when opening.
    pub tag: &'a mut [u8; TAG],
    /// Set by opening: whether the tag was right. If not, `text` is garbage.
    pub authentic: bool,
}

/// The engine itself failed: not the packet's fault. The jobs' bytes must be taken for garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the crypto engine failed")]
pub struct EngineFailure;

/// A loaded key.
pub trait Key: Send + Sync {
    /// Encrypts every job and writes its tag.
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure>;

    /// Decrypts every job and tells of each whether it is authentic.
    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure>;
}

/// A key was given to an engine that cannot use it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The engine lacks the cipher.
    #[error("engine {engine} does not have {}", cipher.name())]
    Unsupported {
        /// The engine asked.
        engine: &'static str,
        /// The cipher it lacks.
        cipher: Cipher,
    },
    /// The secret is too short or too long.
    #[error("a key of {} has {} bytes, not {length}", cipher.name(), cipher.key_length())]
    KeyLength {
        /// The cipher.
        cipher: Cipher,
        /// The length given.
        length: usize,
    },
}

/// An implementation of ciphers.
pub trait Engine: Send + Sync {
    /// Its name in commands and reports.
    fn name(&self) -> &'static str;

    /// Expands `secret` into a key for `cipher`.
    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError>;
}
