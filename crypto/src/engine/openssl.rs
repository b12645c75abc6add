//! OpenSSL 3 (libcrypto), loaded at start if it is installed, with the providers that the user's openssl.cnf activates.

#![expect(unsafe_code, reason = "calls a C library")]

use super::evp::{AeadKey, EvpPairKey, Functions, Pointer};
use super::library::{self, Library, Unavailable, symbol};
use super::{Engine, Key, LoadError, PairKey};
use crate::cipher::{Cipher, Pair};
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::fmt::Write;
use std::ptr::{null, null_mut};
use std::sync::Arc;

const NAMES: &[&str] = &["libcrypto.so.3"];
/// The supported major version.
const MAJOR: c_uint = 3;
/// OpenSSL's own providers, which compute in this process.
const BUILT_IN: [&str; 4] = ["default", "base", "legacy", "fips"];
/// `OPENSSL_VERSION_STRING`: makes `OpenSSL_version` return a version such as 3.0.17.
const VERSION_STRING: c_int = 6;
/// `OPENSSL_INIT_NO_ATEXIT`.
const STAYS_UNTIL_THE_END: u64 = 0x0008_0000;

type Fetch =
    unsafe extern "C" fn(context: Pointer, name: *const c_char, properties: *const c_char) -> Pointer;
type NameOf = unsafe extern "C" fn(thing: Pointer) -> *const c_char;

/// The OpenSSL engine.
pub struct OpenSsl {
    version: String,
    functions: Functions,
    /// Whether a provider installed by the user serves a cipher: it may use a device.
    has_driver: bool,
}

/// Looks up an object by its OpenSSL name.
type Finder<T> = dyn Fn(&str) -> T + Send + Sync;

impl OpenSsl {
    /// Loads the library, which reads its own configuration file.
    pub fn load() -> Result<Self, Unavailable> {
        let library = library::open(NAMES)?;
        // SAFETY: the types are those of openssl/crypto.h of version 3, and of version 1.1 for functions that it has.
        let (mut version, major) = unsafe {
            let major: unsafe extern "C" fn() -> c_uint = symbol(library, "OPENSSL_version_major")?;
            let text: unsafe extern "C" fn(c_int) -> *const c_char = symbol(library, "OpenSSL_version")?;
            (CStr::from_ptr(text(VERSION_STRING)).to_string_lossy().into_owned(), major())
        };
        if major != MAJOR {
            return Err(Unavailable::Version(version));
        }
        // SAFETY: the type is that of openssl/crypto.h, and there are no settings. The library must not be cleaned up
        // at exit, because threads may still be using it.
        unsafe {
            let init: unsafe extern "C" fn(u64, Pointer) -> c_int = symbol(library, "OPENSSL_init_crypto")?;
            init(STAYS_UNTIL_THE_END, null_mut());
        }
        let (provider, mut has_driver) = (providers(library)?, false);
        for &cipher in Cipher::ALL {
            let name = provider(super::evp::aead_name(cipher));
            if let Some(name) = name.filter(|name| !BUILT_IN.contains(&name.as_str())) {
                let _ = write!(version, ", {cipher} by {name}");
                has_driver = true;
            }
        }
        Ok(Self { version, functions: functions(library)?, has_driver })
    }
}

/// The functions of this machine's library.
pub(super) fn functions_here() -> Result<Functions, Unavailable> {
    functions(library::open(NAMES)?)
}

fn functions(library: &'static Library) -> Result<Functions, Unavailable> {
    // SAFETY: the types are those of openssl/evp.h and openssl/hmac.h.
    unsafe {
        Ok(Functions {
            cipher_new: symbol(library, "EVP_CIPHER_CTX_new")?,
            cipher_free: symbol(library, "EVP_CIPHER_CTX_free")?,
            cipher_init: symbol(library, "EVP_CipherInit_ex")?,
            cipher_control: symbol(library, "EVP_CIPHER_CTX_ctrl")?,
            cipher_padding: symbol(library, "EVP_CIPHER_CTX_set_padding")?,
            cipher_update: symbol(library, "EVP_CipherUpdate")?,
            cipher_final: symbol(library, "EVP_CipherFinal_ex")?,
            mac_new: symbol(library, "HMAC_CTX_new")?,
            mac_free: symbol(library, "HMAC_CTX_free")?,
            mac_init: symbol(library, "HMAC_Init_ex")?,
            mac_update: symbol(library, "HMAC_Update")?,
            mac_final: symbol(library, "HMAC_Final")?,
            cipher: finder(symbol(library, "EVP_CIPHER_fetch")?),
            digest: finder(symbol(library, "EVP_MD_fetch")?),
        })
    }
}

/// Fetched objects are never freed: the library counts references, and there are few algorithms.
fn finder(fetch: Fetch) -> &'static Finder<Pointer> {
    Box::leak(Box::new(move |name: &str| {
        let Ok(name) = CString::new(name) else { return null_mut() };
        // SAFETY: the name is zero-terminated, and null means the default for the other arguments.
        unsafe { fetch(null_mut(), name.as_ptr(), null()) }
    }))
}

/// Looks up the provider of a cipher.
fn providers(library: &'static Library) -> Result<&'static Finder<Option<String>>, Unavailable> {
    // SAFETY: the types are those of openssl/evp.h and openssl/provider.h.
    let (fetch, provider, name): (Fetch, unsafe extern "C" fn(Pointer) -> Pointer, NameOf) = unsafe {
        (
            symbol(library, "EVP_CIPHER_fetch")?,
            symbol(library, "EVP_CIPHER_get0_provider")?,
            symbol(library, "OSSL_PROVIDER_get0_name")?,
        )
    };
    let cipher = finder(fetch);
    Ok(Box::leak(Box::new(move |wanted: &str| {
        let cipher = cipher(wanted);
        // SAFETY: a fetched cipher has a provider, whose name is zero-terminated.
        (!cipher.is_null())
            .then(|| unsafe { CStr::from_ptr(name(provider(cipher))) }.to_string_lossy().into_owned())
    })))
}

impl Engine for OpenSsl {
    fn name(&self) -> &'static str {
        "openssl"
    }

    /// Includes the provider of each cipher that OpenSSL itself does not serve, since measurements depend on it.
    fn version(&self) -> String {
        self.version.clone()
    }

    fn is_accelerator(&self) -> bool {
        self.has_driver
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        LoadError::check(cipher, cipher.key_length(), secret)?;
        AeadKey::load(self.functions, cipher, secret)
            .ok_or_else(|| LoadError::Unsupported { engine: self.name(), cipher: cipher.to_string() })
    }

    fn load_pair(
        &self,
        pair: Pair,
        encryption: &[u8],
        integrity: &[u8],
    ) -> Result<Arc<dyn PairKey>, LoadError> {
        LoadError::check_pair(pair, encryption, integrity)?;
        EvpPairKey::load(self.functions, pair, encryption, integrity)
            .ok_or_else(|| LoadError::Unsupported { engine: self.name(), cipher: pair.to_string() })
    }
}
