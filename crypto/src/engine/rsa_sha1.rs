//! RSA signatures with SHA-1. Peers without RFC 7427 expect them for authentication method 1 of IKEv2. The safe
//! interface of AWS-LC verifies such signatures but does not make them.

#![expect(unsafe_code, reason = "calls a C library for what its safe interface does not offer")]

use aws_lc_sys as sys;

/// Signs a SHA-1 digest with RSASSA-PKCS1-v1_5 and the key of an RSAPrivateKey. `None` if the key is malformed.
pub(crate) fn sign(private_key: &[u8], digest: &[u8]) -> Option<Vec<u8>> {
    // SAFETY: the bytes are only read, and the caller owns the returned key.
    let key = Key(unsafe { sys::RSA_private_key_from_bytes(private_key.as_ptr(), private_key.len()) });
    if key.0.is_null() {
        return None;
    }
    // SAFETY: the key is live.
    let mut signature = vec![0; unsafe { sys::RSA_size(key.0) } as usize];
    let mut length = 0;
    // SAFETY: the digest is only read, and the signature has at most as many bytes as the key's size.
    let done = unsafe {
        sys::RSA_sign(
            sys::NID_sha1,
            digest.as_ptr(),
            digest.len(),
            signature.as_mut_ptr(),
            &raw mut length,
            key.0,
        )
    };
    signature.truncate(length as usize);
    (done == 1).then_some(signature)
}

struct Key(*mut sys::RSA);

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: the key was made by the library, or is null, which has no effect. The library erases the key.
        unsafe { sys::RSA_free(self.0) }
    }
}
