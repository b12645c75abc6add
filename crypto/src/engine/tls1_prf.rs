//! The PRF of TLS 1.0 (RFC 2246, section 5), with MD5 and SHA-1. OpenVPN before 2.6 derives data keys with it. The safe
//! interface of AWS-LC has no MD5.

#![expect(unsafe_code, reason = "calls a C library for what its safe interface does not offer")]

use crate::SecretBytes;
use aws_lc_sys as sys;

/// PRF(secret, label, seed), `length` bytes of it; the seed is the concatenation of `seeds`.
pub fn compute(secret: &[u8], label: &[u8], seeds: &[&[u8]], length: usize) -> SecretBytes {
    let seed = seeds.concat();
    let mut bytes = vec![0; length];
    // SAFETY: each pointer is to live memory of the length passed after it; only `bytes` is written.
    let done = unsafe {
        sys::CRYPTO_tls1_prf(
            sys::EVP_md5_sha1(),
            bytes.as_mut_ptr(),
            bytes.len(),
            secret.as_ptr(),
            secret.len(),
            label.as_ptr().cast(),
            label.len(),
            seed.as_ptr(),
            seed.len(),
            std::ptr::null(),
            0,
        )
    };
    assert_eq!(done, 1, "the PRF takes secrets and seeds of any length");
    SecretBytes::new(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector that implementers of TLS 1.0 agreed on (ietf-tls, "test vector for the TLS PRF").
    #[test]
    fn agrees_with_the_known_vector() {
        let bytes = compute(&[0xab; 48], b"PRF Testvector", &[&[0xcd; 30], &[0xcd; 34]], 104);
        let expected = base16ct::lower::decode_vec(concat!(
            "d3d4d1e349b5d515044666d51de32bab258cb521b6b053463e354832fd976754443bcf9a296519bc289abcbc1187e4eb",
            "d31e602353776c408aafb74cbc85eff69255f9788faa184cbb957a9819d84a5d7eb006eb459d3ae8de9810454b8b2d8f",
            "1afbc655a8c9a013"
        ));
        assert_eq!(bytes.expose(), expected.expect("hex"));
    }
}
