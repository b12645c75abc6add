//! Ciphers through the EVP interface, which AWS-LC and OpenSSL share.

#![expect(unsafe_code, reason = "calls a C library")]

mod pair;

pub(super) use pair::EvpPairKey;

use super::{EngineFailure, Job, Key, NONCE};
use crate::cipher::Cipher;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::Zeroizing;

/// An opaque pointer of the library.
pub(super) type Pointer = *mut c_void;

/// Commands of `EVP_CIPHER_CTX_ctrl` (openssl/evp.h; the same in both libraries).
const SET_NONCE_LENGTH: c_int = 0x9;
const GET_TAG: c_int = 0x10;
const SET_TAG: c_int = 0x11;
/// For `EVP_CipherInit_ex`: keep the direction.
const SAME_DIRECTION: c_int = -1;
/// Length of the CCM nonce in ESP: 3 bytes of salt and 8 of IV (RFC 4309).
const CCM_NONCE: usize = 11;
/// AES block size in bytes.
const BLOCK: usize = 16;

/// The functions of one library.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) cipher_new: unsafe extern "C" fn() -> Pointer,
    pub(super) cipher_free: unsafe extern "C" fn(Pointer),
    pub(super) cipher_init:
        unsafe extern "C" fn(Pointer, Pointer, Pointer, *const u8, *const u8, c_int) -> c_int,
    pub(super) cipher_control: unsafe extern "C" fn(Pointer, c_int, c_int, Pointer) -> c_int,
    pub(super) cipher_padding: unsafe extern "C" fn(Pointer, c_int) -> c_int,
    pub(super) cipher_update: unsafe extern "C" fn(Pointer, *mut u8, *mut c_int, *const u8, c_int) -> c_int,
    pub(super) cipher_final: unsafe extern "C" fn(Pointer, *mut u8, *mut c_int) -> c_int,
    pub(super) mac_new: unsafe extern "C" fn() -> Pointer,
    pub(super) mac_free: unsafe extern "C" fn(Pointer),
    pub(super) mac_init: unsafe extern "C" fn(Pointer, *const u8, c_int, Pointer, Pointer) -> c_int,
    pub(super) mac_update: unsafe extern "C" fn(Pointer, *const u8, usize) -> c_int,
    pub(super) mac_final: unsafe extern "C" fn(Pointer, *mut u8, *mut c_uint) -> c_int,
    /// Returns the `EVP_CIPHER` with an OpenSSL name such as `AES-128-GCM`; null if the library lacks it.
    pub(super) cipher: &'static (dyn Fn(&str) -> Pointer + Send + Sync),
    /// Returns the `EVP_MD` with an OpenSSL name such as `SHA256`; null if the library lacks it.
    pub(super) digest: &'static (dyn Fn(&str) -> Pointer + Send + Sync),
}

pub(super) fn aead_name(cipher: Cipher) -> &'static str {
    match cipher {
        Cipher::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        Cipher::Aes128Gcm => "AES-128-GCM",
        Cipher::Aes192Gcm => "AES-192-GCM",
        Cipher::Aes256Gcm => "AES-256-GCM",
        Cipher::Aes128Ccm => "AES-128-CCM",
        Cipher::Aes192Ccm => "AES-192-CCM",
        Cipher::Aes256Ccm => "AES-256-CCM",
    }
}

/// Converts the library's return code.
fn done(result: c_int) -> Result<(), EngineFailure> {
    if result > 0 { Ok(()) } else { Err(EngineFailure) }
}

/// An `EVP_CIPHER_CTX` with its key and direction.
pub(super) struct CipherContext {
    functions: Functions,
    context: Pointer,
}

// SAFETY: a context is used only by the thread that holds it.
unsafe impl Send for CipherContext {}

impl CipherContext {
    pub(super) fn new(functions: Functions, cipher: Pointer, seals: bool) -> Result<Self, EngineFailure> {
        // SAFETY: the function takes nothing.
        let mut context = Self { functions, context: unsafe { (functions.cipher_new)() } };
        if context.context.is_null() {
            return Err(EngineFailure);
        }
        context.start(cipher, seals)?;
        Ok(context)
    }

    /// Resets the context to `cipher`, without a key.
    fn start(&mut self, cipher: Pointer, seals: bool) -> Result<(), EngineFailure> {
        let direction = c_int::from(seals);
        // SAFETY: a context takes any cipher of its library.
        done(unsafe {
            (self.functions.cipher_init)(self.context, cipher, null_mut(), null(), null(), direction)
        })
    }

    /// Sets key and nonce if given. Their lengths must be those of the cipher.
    pub(super) fn set(&mut self, key: Option<&[u8]>, nonce: Option<&[u8]>) -> Result<(), EngineFailure> {
        let pointer = |bytes: Option<&[u8]>| bytes.map_or(null(), <[u8]>::as_ptr);
        let (key, nonce) = (pointer(key), pointer(nonce));
        // SAFETY: the caller passes slices of the lengths that the cipher reads.
        done(unsafe {
            (self.functions.cipher_init)(self.context, null_mut(), null_mut(), key, nonce, SAME_DIRECTION)
        })
    }

    /// Disables padding, so that only whole blocks are accepted.
    pub(super) fn without_padding(&mut self) -> Result<(), EngineFailure> {
        // SAFETY: the context is live.
        done(unsafe { (self.functions.cipher_padding)(self.context, 0) })
    }

    fn control(&mut self, command: c_int, length: usize, bytes: Pointer) -> Result<(), EngineFailure> {
        // SAFETY: `bytes` is null or has `length` bytes, which the commands used here read or write.
        done(unsafe { (self.functions.cipher_control)(self.context, command, length as c_int, bytes) })
    }

    /// Adds `bytes` as additional authenticated data.
    fn authenticate(&mut self, bytes: &[u8]) -> Result<(), EngineFailure> {
        let mut length = 0;
        // SAFETY: without an output the bytes are only read.
        done(unsafe {
            let input = bytes.as_ptr();
            (self.functions.cipher_update)(
                self.context,
                null_mut(),
                &raw mut length,
                input,
                bytes.len() as c_int,
            )
        })
    }

    /// Encrypts or decrypts `text` in place.
    pub(super) fn update(&mut self, text: &mut [u8]) -> Result<(), EngineFailure> {
        let mut length = 0;
        let bytes = text.as_mut_ptr();
        // SAFETY: padding is off, so none of these ciphers writes more bytes than it reads.
        done(unsafe {
            (self.functions.cipher_update)(self.context, bytes, &raw mut length, bytes, text.len() as c_int)
        })
    }

    /// Finishes a packet. When opening, an error means that the tag is wrong.
    fn finish(&mut self) -> Result<(), EngineFailure> {
        let (mut nothing, mut length) = ([0; BLOCK], 0);
        // SAFETY: at most one block could be written, and these ciphers write nothing.
        done(unsafe { (self.functions.cipher_final)(self.context, nothing.as_mut_ptr(), &raw mut length) })
    }
}

impl Drop for CipherContext {
    fn drop(&mut self) {
        // SAFETY: the context was made by the same library, which erases the key.
        unsafe { (self.functions.cipher_free)(self.context) }
    }
}

/// Idle contexts with a key: at most as many as calls ran at the same time.
struct Pool<T>(Mutex<Vec<T>>);

impl<T> Pool<T> {
    fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Calls a function with an unused context, which is created if there is none.
    fn with<R>(
        &self,
        make: impl FnOnce() -> Result<T, EngineFailure>,
        work: impl FnOnce(&mut T) -> Result<R, EngineFailure>,
    ) -> Result<R, EngineFailure> {
        let idle = self.lock().pop();
        let mut context = idle.map_or_else(make, Ok)?;
        let outcome = work(&mut context)?;
        let mut idle = self.lock();
        // Grow by one: most of thousands of keys need one context, and a vector would start with room for four.
        idle.reserve_exact(1);
        idle.push(context);
        drop(idle);
        Ok(outcome)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key of an AEAD cipher.
pub(super) struct AeadKey {
    functions: Functions,
    cipher: Pointer,
    is_ccm: bool,
    secret: Zeroizing<Vec<u8>>,
    /// Contexts for sealing, and for opening.
    pools: [Pool<CipherContext>; 2],
}

// SAFETY: `cipher` is a constant of the library.
unsafe impl Send for AeadKey {}
// SAFETY: as above; everything else is behind a mutex or never changes.
unsafe impl Sync for AeadKey {}

impl AeadKey {
    /// Loads a key for `cipher`; the caller has checked its length. `None` if the library lacks the cipher.
    pub(super) fn load(functions: Functions, cipher: Cipher, secret: &[u8]) -> Option<Arc<dyn Key>> {
        let key = Self {
            functions,
            cipher: (functions.cipher)(aead_name(cipher)),
            is_ccm: cipher.is_ccm(),
            secret: Zeroizing::new(secret.to_vec()),
            pools: [Pool::new(), Pool::new()],
        };
        (!key.cipher.is_null() && key.context(true).is_ok()).then(|| Arc::new(key) as Arc<dyn Key>)
    }

    fn context(&self, seals: bool) -> Result<CipherContext, EngineFailure> {
        let mut context = CipherContext::new(self.functions, self.cipher, seals)?;
        if !self.is_ccm {
            context.control(SET_NONCE_LENGTH, NONCE, null_mut())?;
            context.set(Some(&self.secret), None)?;
        }
        Ok(context)
    }

    /// Starts a packet: nonce, tag and AAD.
    fn begin(
        &self,
        context: &mut CipherContext,
        job: &mut Job<'_>,
        seals: bool,
    ) -> Result<(), EngineFailure> {
        let tag = if seals { null_mut() } else { job.tag.as_mut_ptr().cast() };
        if self.is_ccm {
            // The first block of CCM encodes the lengths of nonce, tag and text. A wrong tag makes the context
            // unusable, so reset it.
            context.start(self.cipher, seals)?;
            context.control(SET_NONCE_LENGTH, CCM_NONCE, null_mut())?;
            context.control(SET_TAG, job.tag.len(), tag)?;
            context.set(Some(&self.secret), Some(&job.nonce[..CCM_NONCE]))?;
            let mut length = 0;
            // SAFETY: without input and output the call only sets the length.
            done(unsafe {
                let text = job.text.len() as c_int;
                (self.functions.cipher_update)(context.context, null_mut(), &raw mut length, null(), text)
            })?;
        } else {
            context.set(None, Some(&job.nonce))?;
            if !seals {
                context.control(SET_TAG, job.tag.len(), tag)?;
            }
        }
        if job.aad.is_empty() { Ok(()) } else { context.authenticate(job.aad) }
    }
}

impl Key for AeadKey {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        let make = || self.context(true);
        self.pools[0].with(make, |context| {
            for job in jobs {
                self.begin(context, job, true)?;
                context.update(job.text)?;
                context.finish()?;
                context.control(GET_TAG, job.tag.len(), job.tag.as_mut_ptr().cast())?;
            }
            Ok(())
        })
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        let make = || self.context(false);
        self.pools[1].with(make, |context| {
            for job in jobs {
                self.begin(context, job, false)?;
                let decrypted = context.update(job.text);
                // CCM verifies the tag in `update`. The other ciphers verify it in `finish`, so an error in `update` is
                // no forgery.
                job.authentic = match decrypted {
                    Err(failure) if !self.is_ccm => return Err(failure),
                    decrypted => decrypted.is_ok() && (self.is_ccm || context.finish().is_ok()),
                };
            }
            Ok(())
        })
    }

    /// Packets are processed in place, without copies: a library in this process has no reason to fail halfway.
    fn restores(&self) -> bool {
        false
    }
}
