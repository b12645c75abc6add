//! Ciphers with a separate MAC through the EVP interface.

#![expect(unsafe_code, reason = "calls a C library")]

use super::{BLOCK, CipherContext, Functions, Pointer, Pool, done};
use crate::cipher::{Encryption, Integrity, Pair};
use crate::engine::{EngineFailure, PairJob, PairKey};
use std::ffi::c_int;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Length of the longest digest, SHA-512, in bytes.
const DIGEST: usize = 64;

fn encryption_name(encryption: Encryption) -> &'static str {
    match encryption {
        Encryption::Null => "NULL",
        Encryption::AesCbc(16) => "AES-128-CBC",
        Encryption::AesCbc(24) => "AES-192-CBC",
        Encryption::AesCbc(_) => "AES-256-CBC",
        Encryption::AesCtr(16) => "AES-128-CTR",
        Encryption::AesCtr(24) => "AES-192-CTR",
        Encryption::AesCtr(_) => "AES-256-CTR",
        Encryption::TripleDesCbc => "DES-EDE3-CBC",
    }
}

/// The cipher and MAC contexts of one call.
struct PairContext {
    cipher: Option<CipherContext>,
    mac: MacContext,
}

enum MacContext {
    Hmac(HmacContext),
    Xcbc { cipher: CipherContext, last: [Zeroizing<[u8; BLOCK]>; 2], message: Vec<u8> },
}

struct HmacContext {
    functions: Functions,
    context: Pointer,
}

// SAFETY: a context is used only by the thread that holds it.
unsafe impl Send for HmacContext {}

impl Drop for HmacContext {
    fn drop(&mut self) {
        // SAFETY: the context was made by the same library, which erases the key.
        unsafe { (self.functions.mac_free)(self.context) }
    }
}

impl HmacContext {
    fn new(functions: Functions, digest: &str, secret: &[u8]) -> Result<Self, EngineFailure> {
        let digest = (functions.digest)(digest);
        // SAFETY: a new context takes a key of any length for any digest of its library.
        unsafe {
            let hmac = Self { functions, context: (functions.mac_new)() };
            if hmac.context.is_null() || digest.is_null() {
                return Err(EngineFailure);
            }
            let (key, length) = (secret.as_ptr(), secret.len() as c_int);
            done((functions.mac_init)(hmac.context, key, length, digest, null_mut()))?;
            Ok(hmac)
        }
    }

    fn digest(&mut self, parts: [&[u8]; 2]) -> Result<[u8; DIGEST], EngineFailure> {
        let (mut digest, mut length) = ([0; DIGEST], 0);
        // SAFETY: the parts are read, and no digest is longer than the room for it.
        unsafe {
            done((self.functions.mac_init)(self.context, null(), 0, null_mut(), null_mut()))?;
            for part in parts {
                done((self.functions.mac_update)(self.context, part.as_ptr(), part.len()))?;
            }
            done((self.functions.mac_final)(self.context, digest.as_mut_ptr(), &raw mut length))?;
        }
        Ok(digest)
    }
}

impl MacContext {
    fn new(functions: Functions, integrity: Integrity, secret: &[u8]) -> Result<Self, EngineFailure> {
        let digest = match integrity {
            Integrity::HmacSha1 => "SHA1",
            Integrity::HmacSha256 => "SHA256",
            Integrity::HmacSha384 => "SHA384",
            Integrity::HmacSha512 => "SHA512",
            Integrity::AesXcbc => return Self::xcbc(functions, secret),
        };
        Ok(Self::Hmac(HmacContext::new(functions, digest, secret)?))
    }

    /// RFC 3566, section 4: three keys, each the encryption of a constant block.
    fn xcbc(functions: Functions, secret: &[u8]) -> Result<Self, EngineFailure> {
        let with = |secret: &[u8]| {
            let mut cipher = CipherContext::new(functions, (functions.cipher)("AES-128-CBC"), true)?;
            cipher.set(Some(secret), None)?;
            cipher.without_padding()?;
            Ok(cipher)
        };
        let mut master = with(secret)?;
        let mut derive = |constant: u8| {
            let mut key = Zeroizing::new([constant; BLOCK]);
            master.set(None, Some(&[0; BLOCK]))?;
            master.update(&mut *key)?;
            Ok(key)
        };
        let (first, second, third) = (derive(1)?, derive(2)?, derive(3)?);
        Ok(Self::Xcbc { cipher: with(&*first)?, last: [second, third], message: Vec::new() })
    }

    /// The MAC of the concatenated `parts`, not truncated.
    fn digest(&mut self, parts: [&[u8]; 2]) -> Result<[u8; DIGEST], EngineFailure> {
        match self {
            Self::Hmac(hmac) => hmac.digest(parts),
            Self::Xcbc { cipher, last, message } => {
                message.clear();
                message.extend(parts.concat());
                let whole = !message.is_empty() && message.len().is_multiple_of(BLOCK);
                if !whole {
                    message.push(0x80);
                    message.resize(message.len().next_multiple_of(BLOCK), 0);
                }
                let end = message.len() - BLOCK;
                let mask = &last[usize::from(!whole)];
                message[end..].iter_mut().zip(mask.iter()).for_each(|(byte, mask)| *byte ^= mask);
                cipher.set(None, Some(&[0; BLOCK]))?;
                cipher.update(message)?;
                let mut digest = [0; DIGEST];
                digest[..BLOCK].copy_from_slice(&message[end..]);
                Ok(digest)
            }
        }
    }
}

/// The keys of a [`Pair`].
pub(in crate::engine) struct EvpPairKey {
    functions: Functions,
    pair: Pair,
    cipher: Pointer,
    secrets: [Zeroizing<Vec<u8>>; 2],
    /// Contexts for sealing, and for opening.
    pools: [Pool<PairContext>; 2],
}

// SAFETY: `cipher` is a constant of the library.
unsafe impl Send for EvpPairKey {}
// SAFETY: as above; everything else is behind a mutex or never changes.
unsafe impl Sync for EvpPairKey {}

impl EvpPairKey {
    /// Loads the keys for `pair`; the caller has checked their lengths. `None` if the library lacks an algorithm.
    pub(in crate::engine) fn load(
        functions: Functions,
        pair: Pair,
        encryption: &[u8],
        integrity: &[u8],
    ) -> Option<Arc<dyn PairKey>> {
        let cipher = match pair.encryption {
            Encryption::Null => null_mut(),
            other => Some((functions.cipher)(encryption_name(other))).filter(|cipher| !cipher.is_null())?,
        };
        let secrets = [encryption, integrity].map(|secret| Zeroizing::new(secret.to_vec()));
        let key = Self { functions, pair, cipher, secrets, pools: [Pool::new(), Pool::new()] };
        key.context(true).is_ok().then(|| Arc::new(key) as Arc<dyn PairKey>)
    }

    fn context(&self, seals: bool) -> Result<PairContext, EngineFailure> {
        let cipher = if self.cipher.is_null() {
            None
        } else {
            let mut cipher = CipherContext::new(self.functions, self.cipher, seals)?;
            cipher.set(Some(&self.secrets[0]), None)?;
            cipher.without_padding()?;
            Some(cipher)
        };
        Ok(PairContext {
            cipher,
            mac: MacContext::new(self.functions, self.pair.integrity, &self.secrets[1])?,
        })
    }

    fn crypt(&self, context: &mut PairContext, job: &mut PairJob<'_>) -> Result<(), EngineFailure> {
        let Some(cipher) = &mut context.cipher else { return Ok(()) };
        let text = &mut job.packet[job.text..];
        if !text.len().is_multiple_of(self.pair.encryption.block()) {
            return Err(EngineFailure);
        }
        cipher.set(None, Some(&job.iv))?;
        cipher.update(text)
    }
}

impl PairKey for EvpPairKey {
    fn seal(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        let make = || self.context(true);
        self.pools[0].with(make, |context| {
            for job in jobs {
                self.crypt(context, job)?;
                let digest = context.mac.digest([&*job.packet, job.suffix])?;
                job.tag.copy_from_slice(&digest[..job.tag.len()]);
            }
            Ok(())
        })
    }

    fn open(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        let make = || self.context(false);
        self.pools[1].with(make, |context| {
            for job in jobs {
                let digest = context.mac.digest([&*job.packet, job.suffix])?;
                job.authentic = digest[..job.tag.len()].ct_eq(job.tag).into();
                if job.authentic {
                    self.crypt(context, job)?;
                }
            }
            Ok(())
        })
    }

    /// Packets are processed in place, without copies: a library in this process has no reason to fail halfway.
    fn restores(&self) -> bool {
        false
    }
}
