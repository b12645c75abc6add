//! RSA signatures with SHA-1, which the safe interface of AWS-LC verifies but does not make: what peers without
//! RFC 7427 expect under IKEv2's authentication method 1.

#![expect(unsafe_code, reason = "calls a C library for what its safe interface does not offer")]

use aws_lc_sys as sys;

/// The RSASSA-PKCS1-v1_5 signature of a SHA-1 digest, by the key of an RSAPrivateKey; `None` if it is none.
pub(crate) fn sign(private_key: &[u8], digest: &[u8]) -> Option<Vec<u8>> {
    // SAFETY: the bytes are read; what is returned is ours to free.
    let key = Key(unsafe { sys::RSA_private_key_from_bytes(private_key.as_ptr(), private_key.len()) });
    if key.0.is_null() {
        return None;
    }
    // SAFETY: the key is live.
    let mut signature = vec![0; unsafe { sys::RSA_size(key.0) } as usize];
    let mut length = 0;
    // SAFETY: the digest is read, and a signature has no more bytes than the key's size.
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
        // SAFETY: the library made it, or it is null, which is freed without effect; the key is erased.
        unsafe { sys::RSA_free(self.0) }
    }
}
