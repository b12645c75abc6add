//! Intel's Multi-Buffer Crypto library for IPsec (libIPSec_MB), loaded at start if it is installed.
//!
//! Only the direct API is used: pure functions, called through the table of function pointers at the start of the
//! library's `IMB_MGR`. The layout of that part is the same from version 1.1 to 2.0; other versions are refused.

#![expect(unsafe_code, reason = "calls a C library")]

use super::library::{self, Library, Unavailable};
use super::{Engine, EngineFailure, Job, Key, LoadError, TAG};
use crate::cipher::Cipher;
use crate::secret::Secret;
use std::ffi::{CStr, c_char};
#[cfg(target_arch = "x86_64")]
use std::mem::offset_of;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

/// File names of the library, newest first.
const NAMES: &[&str] = &["libIPSec_MB.so.2", "libIPSec_MB.so.1"];

/// The versions (major, minor) whose `IMB_MGR` has the layout of [`Manager`].
const KNOWN: std::ops::RangeInclusive<(u32, u32)> = (1, 1)..=(2, 0);

type OneCall = unsafe extern "C" fn(
    key: *const GcmKey,
    context: *mut GcmContext,
    to: *mut u8,
    from: *const u8,
    length: u64,
    nonce: *const u8,
    aad: *const u8,
    aad_length: u64,
    tag: *mut u8,
    tag_length: u64,
);
type Expand = unsafe extern "C" fn(secret: *const u8, key: *mut GcmKey);
type Begin = unsafe extern "C" fn(
    key: *const u8,
    context: *mut ChaChaContext,
    nonce: *const u8,
    aad: *const u8,
    aad_length: u64,
);
type Update = unsafe extern "C" fn(
    key: *const u8,
    context: *mut ChaChaContext,
    to: *mut u8,
    from: *const u8,
    length: u64,
);
type Finish = unsafe extern "C" fn(context: *mut ChaChaContext, tag: *mut u8, tag_length: u64);

/// The first part of `IMB_MGR` (intel-ipsec-mb.h), up to the last member that is used here.
#[repr(C)]
struct Manager {
    flags: u64,
    features: u64,
    reserved: [u64; 5],
    architecture: u32,
    error: i32,
    jobs_and_hashes: [usize; 24],
    /// One each for AES-128, 192 and 256, as in the other arrays of three.
    gcm_encrypt: [Option<OneCall>; 3],
    gcm_decrypt: [Option<OneCall>; 3],
    gcm_in_parts: [usize; 18],
    gcm_expand: [Option<Expand>; 3],
    others: [usize; 56],
    chacha20_poly1305_begin: Option<Begin>,
    chacha20_poly1305_encrypt: Option<Update>,
    chacha20_poly1305_decrypt: Option<Update>,
    chacha20_poly1305_finish: Option<Finish>,
}

// Of the processors that the library is for.
#[cfg(target_arch = "x86_64")]
const _: () = {
    assert!(offset_of!(Manager, gcm_encrypt) == 256);
    assert!(offset_of!(Manager, gcm_expand) == 448);
    assert!(offset_of!(Manager, chacha20_poly1305_begin) == 920);
};

/// Size of `struct gcm_key_data`, rounded up to whole cache lines: the largest of the known versions has 1264 bytes.
const GCM_KEY: usize = 1280;

/// Memory for a `struct gcm_key_data`.
#[repr(C, align(64))]
struct GcmKey([u8; GCM_KEY]);

impl Drop for GcmKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Memory for the library's state of one packet, no larger than it must be: it holds keystream and is erased after each burst, which a
/// packet that comes alone pays for alone. It is made of words because they are erased one by one.
#[repr(C, align(64))]
struct Context<const WORDS: usize>([u64; WORDS]);

/// `struct gcm_context_data`: 88 bytes.
type GcmContext = Context<12>;

/// `struct chacha20_poly1305_context_data`: 192 bytes.
type ChaChaContext = Context<32>;

impl<const WORDS: usize> Drop for Context<WORDS> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// The functions of AES-GCM for one key length.
#[derive(Clone, Copy)]
struct Gcm {
    expand: Expand,
    encrypt: OneCall,
    decrypt: OneCall,
}

/// The functions of ChaCha20-Poly1305.
#[derive(Clone, Copy)]
struct ChaCha20Poly1305 {
    begin: Begin,
    encrypt: Update,
    decrypt: Update,
    finish: Finish,
}

/// The libIPSec_MB engine.
pub struct IpsecMb {
    version: String,
    /// One each for AES-128, 192 and 256.
    gcm: [Gcm; 3],
    chacha20_poly1305: ChaCha20Poly1305,
}

impl IpsecMb {
    /// Loads the library and lets it choose the functions for this processor.
    pub fn load() -> Result<Self, Unavailable> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Unavailable::Processor("x86-64"));
        }
        library::first(NAMES, Self::of)
    }

    fn of(library: &'static Library) -> Result<Self, Unavailable> {
        let symbols = Symbols::find(library)?;
        // SAFETY: the function has no arguments and returns a static, zero-terminated string.
        let version = unsafe { CStr::from_ptr((symbols.version)()) }.to_string_lossy().into_owned();
        if !known(&version) {
            return Err(Unavailable::Version(version));
        }
        // SAFETY: the library allocates its manager, and the version check ensures the layout of `Manager`. It is never
        // freed, so the reference is valid for the life of the process.
        let manager: &'static Manager = unsafe {
            let manager = (symbols.allocate)(0);
            if manager.is_null() {
                return Err(Unavailable::Refused(String::from("it could not allocate its manager")));
            }
            (symbols.choose)(manager, std::ptr::null_mut());
            &*manager
        };
        if manager.error != 0 {
            return Err(Unavailable::Refused(format!("it reports error {}", manager.error)));
        }
        Self::with(version, manager).ok_or_else(|| Unavailable::Refused(String::from("it lacks a function")))
    }

    fn with(version: String, manager: &'static Manager) -> Option<Self> {
        let gcm = |i: usize| {
            let (expand, encrypt, decrypt) =
                (manager.gcm_expand[i]?, manager.gcm_encrypt[i]?, manager.gcm_decrypt[i]?);
            Some(Gcm { expand, encrypt, decrypt })
        };
        let chacha20_poly1305 = ChaCha20Poly1305 {
            begin: manager.chacha20_poly1305_begin?,
            encrypt: manager.chacha20_poly1305_encrypt?,
            decrypt: manager.chacha20_poly1305_decrypt?,
            finish: manager.chacha20_poly1305_finish?,
        };
        Some(Self { version, gcm: [gcm(0)?, gcm(1)?, gcm(2)?], chacha20_poly1305 })
    }
}

/// Whether [`Manager`] has the layout of a version such as `v1.3.0`.
fn known(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split(['.', '-']).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => KNOWN.contains(&(major, minor)),
        _ => false,
    }
}

/// The exported functions that create a manager.
struct Symbols {
    version: unsafe extern "C" fn() -> *const c_char,
    allocate: unsafe extern "C" fn(flags: u64) -> *mut Manager,
    choose: unsafe extern "C" fn(manager: *mut Manager, architecture: *mut i32),
}

impl Symbols {
    fn find(library: &'static Library) -> Result<Self, Unavailable> {
        // SAFETY: the types are those of intel-ipsec-mb.h.
        unsafe {
            Ok(Self {
                version: library::symbol(library, "imb_get_version_str")?,
                allocate: library::symbol(library, "alloc_mb_mgr")?,
                choose: library::symbol(library, "init_mb_mgr_auto")?,
            })
        }
    }
}

impl Engine for IpsecMb {
    fn name(&self) -> &'static str {
        "ipsec-mb"
    }

    fn version(&self) -> String {
        self.version.clone()
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        LoadError::check(cipher, cipher.key_length(), secret)?;
        match cipher {
            Cipher::ChaCha20Poly1305 => {
                let mut key = [0; 32];
                key.copy_from_slice(secret);
                let loaded = ChaChaKey { key: Secret::new(key), functions: self.chacha20_poly1305 };
                key.zeroize();
                Ok(Arc::new(loaded))
            }
            Cipher::Aes128Gcm => Ok(LoadedGcm::new(self.gcm[0], secret)),
            Cipher::Aes192Gcm => Ok(LoadedGcm::new(self.gcm[1], secret)),
            Cipher::Aes256Gcm => Ok(LoadedGcm::new(self.gcm[2], secret)),
            Cipher::Aes128Ccm | Cipher::Aes192Ccm | Cipher::Aes256Ccm => {
                Err(LoadError::Unsupported { engine: self.name(), cipher: cipher.to_string() })
            }
        }
    }
}

/// A key that processes one packet at a time, with a state of so many words.
trait OneByOne<const WORDS: usize>: Send + Sync {
    /// Encrypts the text of `job` and returns the tag.
    fn seal_one(&self, context: &mut Context<WORDS>, job: &mut Job<'_>) -> [u8; TAG];

    /// Decrypts the text of `job` and returns the expected tag.
    fn open_one(&self, context: &mut Context<WORDS>, job: &mut Job<'_>) -> [u8; TAG];

    /// Encrypts a burst.
    #[inline]
    fn seal_each(&self, jobs: &mut [Job<'_>]) {
        let mut context = Context([0; WORDS]);
        for job in jobs {
            let tag = self.seal_one(&mut context, job);
            job.tag.copy_from_slice(&tag[..job.tag.len()]);
        }
    }

    /// Decrypts a burst.
    #[inline]
    fn open_each(&self, jobs: &mut [Job<'_>]) {
        let mut context = Context([0; WORDS]);
        for job in jobs {
            let tag = self.open_one(&mut context, job);
            job.authentic = is_same(&tag, job.tag);
        }
    }
}

/// Compares a tag, which may be shorter, with the expected one in constant time. As one number it takes a single step, not one a byte.
#[inline]
fn is_same(expected: &[u8; TAG], tag: &[u8]) -> bool {
    if let Ok(tag) = <&[u8; TAG]>::try_from(tag) {
        let different = u128::from_ne_bytes(*expected) ^ u128::from_ne_bytes(*tag);
        // As 64 bits: a comparison of 128 goes through memory.
        return ((different >> 64) as u64 | different as u64).ct_eq(&0).into();
    }
    let number = |bytes: &[u8]| {
        let mut all = [0; TAG];
        all[..bytes.len()].copy_from_slice(bytes);
        u128::from_ne_bytes(all)
    };
    number(&expected[..tag.len()]).ct_eq(&number(tag)).into()
}

struct ChaChaKey {
    key: Secret,
    functions: ChaCha20Poly1305,
}

impl ChaChaKey {
    #[inline]
    fn run(&self, update: Update, context: &mut ChaChaContext, job: &mut Job<'_>) -> [u8; TAG] {
        let mut tag = [0; TAG];
        let (key, text) = (self.key.expose().as_ptr(), job.text.as_mut_ptr());
        // SAFETY: all pointers are to live memory of the lengths given with them; the text may be worked on in
        // place; the context has room for what the library keeps there.
        unsafe {
            (self.functions.begin)(key, context, job.nonce.as_ptr(), job.aad.as_ptr(), job.aad.len() as u64);
            update(key, context, text, text, job.text.len() as u64);
            (self.functions.finish)(context, tag.as_mut_ptr(), TAG as u64);
        }
        tag
    }
}

impl Key for ChaChaKey {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.seal_each(jobs);
        Ok(())
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.open_each(jobs);
        Ok(())
    }
}

impl OneByOne<32> for ChaChaKey {
    fn seal_one(&self, context: &mut ChaChaContext, job: &mut Job<'_>) -> [u8; TAG] {
        self.run(self.functions.encrypt, context, job)
    }

    fn open_one(&self, context: &mut ChaChaContext, job: &mut Job<'_>) -> [u8; TAG] {
        self.run(self.functions.decrypt, context, job)
    }
}

struct LoadedGcm {
    key: GcmKey,
    functions: Gcm,
}

impl LoadedGcm {
    fn new(functions: Gcm, secret: &[u8]) -> Arc<Self> {
        let mut loaded = Arc::new(Self { key: GcmKey([0; GCM_KEY]), functions });
        let key = &mut Arc::get_mut(&mut loaded).expect("it is not shared yet").key;
        // SAFETY: the secret has the cipher's key length, and `GcmKey` is as large as the library's structure.
        unsafe { (functions.expand)(secret.as_ptr(), key) };
        loaded
    }

    #[inline]
    fn run(&self, work: OneCall, context: &mut GcmContext, job: &mut Job<'_>) -> [u8; TAG] {
        let mut tag = [0; TAG];
        let text = job.text.as_mut_ptr();
        // SAFETY: all pointers are to live memory of the lengths given with them; the text may be worked on in
        // place; the context has room for what the library keeps there.
        unsafe {
            work(
                &raw const self.key,
                context,
                text,
                text,
                job.text.len() as u64,
                job.nonce.as_ptr(),
                job.aad.as_ptr(),
                job.aad.len() as u64,
                tag.as_mut_ptr(),
                TAG as u64,
            );
        }
        tag
    }
}

impl Key for LoadedGcm {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.seal_each(jobs);
        Ok(())
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.open_each(jobs);
        Ok(())
    }
}

impl OneByOne<12> for LoadedGcm {
    fn seal_one(&self, context: &mut GcmContext, job: &mut Job<'_>) -> [u8; TAG] {
        self.run(self.functions.encrypt, context, job)
    }

    fn open_one(&self, context: &mut GcmContext, job: &mut Job<'_>) -> [u8; TAG] {
        self.run(self.functions.decrypt, context, job)
    }
}

#[cfg(test)]
mod tests {
    use super::{is_same, known};

    #[test]
    fn every_bit_of_a_tag_counts() {
        let expected: [u8; 16] = std::array::from_fn(|at| at as u8);
        for length in [8, 12, 16] {
            let mut tag = expected[..length].to_vec();
            assert!(is_same(&expected, &tag));
            for bit in 0..8 * length {
                tag[bit / 8] ^= 1 << (bit % 8);
                assert!(!is_same(&expected, &tag), "bit {bit} of {length} bytes");
                tag[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn only_versions_with_a_known_layout_are_used() {
        for version in ["v1.1.0", "v1.3.0", "1.5.0", "v2.0.1", "v1.3.0-dev"] {
            assert!(known(version), "{version}");
        }
        for version in ["v1.0.0", "v0.55.0", "v2.1.0", "v3.0.0", "", "vx"] {
            assert!(!known(version), "{version}");
        }
    }
}
