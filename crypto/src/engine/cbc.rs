//! Block ciphers in CBC mode without a MAC, for benchmarks only: the same operation as in `openssl speed`.

use super::evp::{CipherContext, Functions};
use super::{aws_lc, openssl};

/// A block cipher in CBC mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cbc {
    /// DES.
    Des,
    /// Triple DES.
    TripleDes,
    /// AES with a key of 128 bits.
    Aes128,
    /// AES with a key of 192 bits.
    Aes192,
    /// AES with a key of 256 bits.
    Aes256,
}

impl Cbc {
    /// All block ciphers.
    pub const ALL: [Self; 5] = [Self::Des, Self::TripleDes, Self::Aes128, Self::Aes192, Self::Aes256];

    /// OpenSSL's name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Des => "des-cbc",
            Self::TripleDes => "des-ede3-cbc",
            Self::Aes128 => "aes-128-cbc",
            Self::Aes192 => "aes-192-cbc",
            Self::Aes256 => "aes-256-cbc",
        }
    }

    fn key_length(self) -> usize {
        match self {
            Self::Des => 8,
            Self::Aes128 => 16,
            Self::TripleDes | Self::Aes192 => 24,
            Self::Aes256 => 32,
        }
    }

    /// Block size in bytes.
    pub fn block(self) -> usize {
        if matches!(self, Self::Des | Self::TripleDes) { 8 } else { 16 }
    }

    /// Loads a fixed key of ascending bytes, with a zero IV. `None` if the engine is unknown or lacks the cipher.
    pub fn load(self, engine: &str) -> Option<CbcKey> {
        let functions = match engine {
            "aws-lc" => aws_lc::functions(),
            "openssl" => openssl::functions_here().ok()?,
            _ => return None,
        };
        self.load_by(functions)
    }

    fn load_by(self, functions: Functions) -> Option<CbcKey> {
        let cipher = (functions.cipher)(&self.name().to_ascii_uppercase());
        if cipher.is_null() {
            return None;
        }
        let secret: Vec<u8> = (1..=self.key_length() as u8).collect();
        let mut context = CipherContext::new(functions, cipher, true).ok()?;
        context.without_padding().ok()?;
        context.set(Some(&secret), Some(&[0; 16][..self.block()])).ok()?;
        Some(CbcKey { context, block: self.block() })
    }
}

/// A key for use by one thread.
pub struct CbcKey {
    context: CipherContext,
    block: usize,
}

impl CbcKey {
    /// Encrypts whole blocks in place, chained to the previous call. `None` for a partial block, or if the library
    /// failed.
    pub fn encrypt(&mut self, text: &mut [u8]) -> Option<()> {
        if !text.len().is_multiple_of(self.block) {
            return None;
        }
        self.context.update(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_libraries_encrypt_alike() {
        for cipher in Cbc::ALL {
            let encrypted = |engine| {
                let mut text = [0x5a; 64];
                let mut key = cipher.load(engine)?;
                assert_eq!(key.encrypt(&mut text[..3]), None, "no whole block");
                text.chunks_mut(32).try_for_each(|half| key.encrypt(half))?;
                Some(text)
            };
            let ours = encrypted("aws-lc").expect("it is built in");
            assert_ne!(ours[..32], ours[32..], "the second call is chained to the first");
            // OpenSSL has DES in the legacy provider, which is not loaded by default.
            if let Some(theirs) = encrypted("openssl") {
                assert_eq!(ours, theirs, "{}", cipher.name());
            }
            assert_eq!(encrypted("abacus"), None);
        }
    }
}
