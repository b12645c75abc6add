//! AWS-LC: the engine that is built in.

#![expect(unsafe_code, reason = "calls a C library for what its safe interface does not offer")]

use super::evp::{AeadKey, EvpPairKey, Functions, Pointer};
use super::{Engine, EngineFailure, Job, Key, LoadError, PairKey, TAG};
use crate::cipher::{Cipher, Pair};
use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use aws_lc_sys as sys;
use std::ffi::{CStr, c_int, c_uint};
use std::ptr::null;
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// The AWS-LC engine.
pub struct AwsLc;

impl Engine for AwsLc {
    fn name(&self) -> &'static str {
        "aws-lc"
    }

    fn version(&self) -> String {
        let version = CStr::from_bytes_until_nul(sys::AWSLC_VERSION_NUMBER_STRING);
        version.unwrap_or_default().to_string_lossy().into_owned()
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        LoadError::check(cipher, cipher.key_length(), secret)?;
        let failed = || LoadError::Failed { engine: self.name(), cipher: cipher.to_string() };
        let evp = || AeadKey::load(functions(), cipher, secret).ok_or_else(failed);
        let algorithm = match cipher {
            Cipher::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            Cipher::Aes128Gcm => &AES_128_GCM,
            Cipher::Aes192Gcm => &AES_192_GCM,
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::Aes128Ccm | Cipher::Aes192Ccm | Cipher::Aes256Ccm => return evp(),
        };
        let whole_tags = LessSafeKey::new(UnboundKey::new(algorithm, secret).map_err(|_| failed())?);
        let secret = Zeroizing::new(secret.to_vec());
        Ok(Arc::new(AwsLcKey { whole_tags, cipher, secret, short_tags: OnceLock::new() }))
    }

    fn load_pair(
        &self,
        pair: Pair,
        encryption: &[u8],
        integrity: &[u8],
    ) -> Result<Arc<dyn PairKey>, LoadError> {
        LoadError::check_pair(pair, encryption, integrity)?;
        EvpPairKey::load(functions(), pair, encryption, integrity)
            .ok_or_else(|| LoadError::Failed { engine: self.name(), cipher: pair.to_string() })
    }
}

/// A key of the fast interface, which supports only 16-byte tags. Shorter tags use the EVP interface.
struct AwsLcKey {
    whole_tags: LessSafeKey,
    cipher: Cipher,
    secret: Zeroizing<Vec<u8>>,
    /// Created at first use; most keys never need it.
    short_tags: OnceLock<Option<Arc<dyn Key>>>,
}

impl AwsLcKey {
    fn short_tags(&self) -> Result<&dyn Key, EngineFailure> {
        let load = || AeadKey::load(functions(), self.cipher, &self.secret);
        self.short_tags.get_or_init(load).as_deref().ok_or(EngineFailure)
    }
}

impl Key for AwsLcKey {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        if jobs.iter().any(|job| job.tag.len() != TAG) {
            return self.short_tags()?.seal(jobs);
        }
        for job in jobs {
            let nonce = Nonce::assume_unique_for_key(job.nonce);
            let tag = self
                .whole_tags
                .seal_in_place_separate_tag(nonce, Aad::from(job.aad), job.text)
                .map_err(|_| EngineFailure)?;
            job.tag.copy_from_slice(tag.as_ref());
        }
        Ok(())
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        if jobs.iter().any(|job| job.tag.len() != TAG) {
            return self.short_tags()?.open(jobs);
        }
        for job in jobs {
            let nonce = Nonce::assume_unique_for_key(job.nonce);
            let aad = Aad::from(job.aad);
            let opened = self.whole_tags.open_in_place_separate_tag(nonce, aad, &*job.tag, job.text);
            job.authentic = opened.is_ok();
        }
        Ok(())
    }

    /// Packets are processed in place, without copies. The only failure is a text too long for its cipher.
    fn restores(&self) -> bool {
        false
    }
}

/// Wraps a function of the library so that it takes opaque pointers.
macro_rules! opaque {
    ($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?) => {{
        #[allow(clippy::ptr_as_ptr, reason = "one cast for pointers and lengths")]
        unsafe extern "C" fn shim($($argument: $type),*) $(-> $result)? {
            // SAFETY: the arguments are passed on unchanged except for their pointer types.
            unsafe { sys::$name($($argument as _),*) as _ }
        }
        shim
    }};
}

pub(super) fn functions() -> Functions {
    Functions {
        cipher_new: opaque!(EVP_CIPHER_CTX_new() -> Pointer),
        cipher_free: opaque!(EVP_CIPHER_CTX_free(context: Pointer)),
        cipher_init: opaque!(EVP_CipherInit_ex(
            context: Pointer, cipher: Pointer, engine: Pointer, key: *const u8, nonce: *const u8, seals: c_int
        ) -> c_int),
        cipher_control: opaque!(EVP_CIPHER_CTX_ctrl(
            context: Pointer, command: c_int, length: c_int, bytes: Pointer
        ) -> c_int),
        cipher_padding: opaque!(EVP_CIPHER_CTX_set_padding(context: Pointer, on: c_int) -> c_int),
        cipher_update: opaque!(EVP_CipherUpdate(
            context: Pointer, to: *mut u8, written: *mut c_int, from: *const u8, length: c_int
        ) -> c_int),
        cipher_final: opaque!(EVP_CipherFinal_ex(context: Pointer, to: *mut u8, written: *mut c_int) -> c_int),
        mac_new: opaque!(HMAC_CTX_new() -> Pointer),
        mac_free: opaque!(HMAC_CTX_free(context: Pointer)),
        mac_init: opaque!(HMAC_Init_ex(
            context: Pointer, key: *const u8, length: c_int, digest: Pointer, engine: Pointer
        ) -> c_int),
        mac_update: opaque!(HMAC_Update(context: Pointer, bytes: *const u8, length: usize) -> c_int),
        mac_final: opaque!(HMAC_Final(context: Pointer, digest: *mut u8, length: *mut c_uint) -> c_int),
        cipher: &cipher,
        digest: &digest,
    }
}

fn cipher(name: &str) -> Pointer {
    // SAFETY: these functions return constants.
    unsafe {
        match name {
            "ChaCha20-Poly1305" => sys::EVP_chacha20_poly1305(),
            "AES-128-GCM" => sys::EVP_aes_128_gcm(),
            "AES-192-GCM" => sys::EVP_aes_192_gcm(),
            "AES-256-GCM" => sys::EVP_aes_256_gcm(),
            "AES-128-CCM" => sys::EVP_aes_128_ccm(),
            "AES-192-CCM" => sys::EVP_aes_192_ccm(),
            "AES-256-CCM" => sys::EVP_aes_256_ccm(),
            "AES-128-CBC" => sys::EVP_aes_128_cbc(),
            "AES-192-CBC" => sys::EVP_aes_192_cbc(),
            "AES-256-CBC" => sys::EVP_aes_256_cbc(),
            "AES-128-CTR" => sys::EVP_aes_128_ctr(),
            "AES-192-CTR" => sys::EVP_aes_192_ctr(),
            "AES-256-CTR" => sys::EVP_aes_256_ctr(),
            "DES-CBC" => sys::EVP_des_cbc(),
            "DES-EDE3-CBC" => sys::EVP_des_ede3_cbc(),
            _ => null(),
        }
    }
    .cast_mut()
    .cast()
}

fn digest(name: &str) -> Pointer {
    // SAFETY: these functions return constants.
    unsafe {
        match name {
            "SHA1" => sys::EVP_sha1(),
            "SHA256" => sys::EVP_sha256(),
            "SHA384" => sys::EVP_sha384(),
            "SHA512" => sys::EVP_sha512(),
            _ => null(),
        }
    }
    .cast_mut()
    .cast()
}
