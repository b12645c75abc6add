//! scrypt (RFC 7914) of AWS-LC, which its safe interface does not offer.

#![expect(unsafe_code, reason = "calls a C library for what its safe interface does not offer")]

use crate::Secret;
use aws_lc_sys as sys;

/// The block size r. One block takes 128 r bytes.
const BLOCK: u64 = 8;

/// Bytes that scrypt needs for this work factor, which is log2(N).
pub(crate) fn memory(work_factor: u8) -> u64 {
    // The blocks, and a little for what goes through them.
    128 * BLOCK * ((1 << work_factor) + 4)
}

/// A key of 32 bytes from a passphrase, with r = 8 and p = 1. `None` if there is not enough memory.
pub(crate) fn scrypt(passphrase: &[u8], salt: &[u8], work_factor: u8) -> Option<Secret> {
    let mut key = zeroize::Zeroizing::new([0; 32]);
    let limit = usize::try_from(memory(work_factor)).ok()?;
    // SAFETY: passphrase and salt are only read, and the key has as many bytes as are written.
    let done = unsafe {
        sys::EVP_PBE_scrypt(
            passphrase.as_ptr().cast(),
            passphrase.len(),
            salt.as_ptr(),
            salt.len(),
            1 << work_factor,
            BLOCK,
            1,
            limit,
            key.as_mut_ptr(),
            key.len(),
        )
    };
    (done == 1).then(|| Secret::new(*key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7914, section 12, has r = 8 and p = 1 in its third vector; of its 64 bytes these are the first 32.
    #[test]
    fn the_vector_of_the_rfc_comes_out() {
        let key = scrypt(b"pleaseletmein", b"SodiumChloride", 14).expect("16 MiB are there");
        let expected = "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2";
        assert_eq!(base16ct::lower::encode_string(key.expose()), expected);
    }
}
