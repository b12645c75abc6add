//! OpenSSL's hash functions, for benchmarks only.

#![expect(unsafe_code, reason = "calls a C library")]

use super::library::{self, Unavailable, symbol};
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

type Fetch = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
type Digest = unsafe extern "C" fn(
    bytes: *const c_void,
    length: usize,
    digest: *mut u8,
    digest_length: *mut c_uint,
    hash: *const c_void,
    engine: *mut c_void,
) -> c_int;

/// A hash function of OpenSSL.
#[derive(Clone, Copy)]
pub struct OpenSslHash {
    digest: Digest,
    /// An `EVP_MD`, never freed.
    hash: *const c_void,
}

// SAFETY: an `EVP_MD` does not change after it was fetched.
unsafe impl Send for OpenSslHash {}

impl OpenSslHash {
    /// Loads the hash with an OpenSSL name such as `SHA256`.
    pub fn load(name: &'static str) -> Result<Self, Unavailable> {
        let library = library::open(&["libcrypto.so.3"])?;
        // SAFETY: the types are those of openssl/evp.h of version 3.
        let (fetch, digest): (Fetch, Digest) =
            unsafe { (symbol(library, "EVP_MD_fetch")?, symbol(library, "EVP_Digest")?) };
        let name_of_c = CString::new(name).map_err(|_| Unavailable::Missing(name))?;
        // SAFETY: the name is zero-terminated, and null means the default for the other arguments.
        let hash = unsafe { fetch(null_mut(), name_of_c.as_ptr(), null()) };
        if hash.is_null() { Err(Unavailable::Missing(name)) } else { Ok(Self { digest, hash }) }
    }

    /// The digest of `bytes`, padded with zeros to 64 bytes. `None` if the library failed.
    pub fn digest(&self, bytes: &[u8]) -> Option<[u8; 64]> {
        let mut digest = [0; 64];
        let mut length = 0;
        // SAFETY: the buffer has room for the longest digest, and the other pointers are to live memory.
        let done = unsafe {
            (self.digest)(
                bytes.as_ptr().cast(),
                bytes.len(),
                digest.as_mut_ptr(),
                &raw mut length,
                self.hash,
                null_mut(),
            )
        };
        (done == 1).then_some(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of FIPS 180-4.
    #[test]
    fn sha256_of_abc() {
        let Ok(hash) = OpenSslHash::load("SHA256") else { return eprintln!("skipped: no OpenSSL 3 here") };
        let digest = hash.digest(b"abc").expect("works");
        assert_eq!(digest[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert_eq!(digest[32..], [0; 32]);
    }
}
