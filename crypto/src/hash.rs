//! BLAKE2s (RFC 7693) as WireGuard uses it: hash, keyed MAC, HMAC, and the key derivation over HMAC. Also SHA-1, for
//! the NAT detection hashes of IKEv2, and SHA-256, for files.

use aws_lc_rs::digest;
use blake2::digest::{FixedOutput, KeyInit, Mac, Update};
use blake2::{Blake2s256, Blake2sMac, digest::consts::U16};
use hmac::SimpleHmac;
use zeroize::Zeroize;

/// HASH(parts): BLAKE2s with 32 bytes of output over the concatenated parts.
pub fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut state = Blake2s256::default();
    for part in parts {
        state.update(part);
    }
    state.finalize_fixed().into()
}

/// MAC(key, parts): keyed BLAKE2s with 16 bytes of output.
pub fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 16] {
    let mut state = Blake2sMac::<U16>::new_from_slice(key).expect("a key has at most 32 bytes");
    for part in parts {
        Update::update(&mut state, part);
    }
    state.finalize_fixed().into()
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut state = SimpleHmac::<Blake2s256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        Mac::update(&mut state, part);
    }
    state.finalize_fixed().into()
}

/// KDF-n(key, input): HKDF (RFC 5869) over HMAC-BLAKE2s, `N` outputs of 32 bytes, at most 255.
pub fn kdf<const N: usize>(key: &[u8], input: &[u8]) -> [[u8; 32]; N] {
    let mut prk = hmac(key, &[input]);
    let mut outputs = [[0; 32]; N];
    for index in 0..N {
        let counter = [index as u8 + 1];
        outputs[index] = match index {
            0 => hmac(&prk, &[&counter]),
            _ => hmac(&prk, &[&outputs[index - 1], &counter]),
        };
    }
    prk.zeroize();
    outputs
}

/// SHA-1 over the concatenated parts. Only for uses that do not depend on collision resistance.
pub fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    for part in parts {
        context.update(part);
    }
    context.finish().as_ref().try_into().expect("SHA-1 has 20 bytes")
}

/// SHA-256 over the concatenated parts.
pub fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha256_of_the_example_of_fips_180_2() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&[b"a", b"bc"]).to_vec(), bytes(expected));
    }

    #[test]
    fn sha1_of_the_example_of_rfc_3174() {
        assert_eq!(sha1(&[b"a", b"bc"]).to_vec(), bytes("a9993e364706816aba3e25717850c26c9cd0d89d"));
    }

    fn bytes(hex: &str) -> Vec<u8> {
        base16ct::lower::decode_vec(hex).expect("hex")
    }

    #[test]
    fn example_of_rfc_7693_appendix_b() {
        let expected = bytes("508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982");
        assert_eq!(hash(&[b"a", b"bc"]).to_vec(), expected);
    }

    #[test]
    fn keyed_mac_differs_by_key_and_joins_parts() {
        assert_eq!(mac(&[1; 32], &[b"ab", b"c"]), mac(&[1; 32], &[b"abc"]));
        assert_ne!(mac(&[1; 32], &[b"abc"]), mac(&[2; 32], &[b"abc"]));
        assert_ne!(mac(&[1; 16], &[b"abc"]), mac(&[1; 32], &[b"abc"]));
    }

    /// Test vectors of wireguard-go's key derivation.
    #[test]
    fn kdf_agrees_with_other_implementations() {
        let key = bytes("746573742d6b6579");
        let input = bytes("746573742d696e707574");
        let [t0, t1, t2] = kdf::<3>(&key, &input);
        assert_eq!(t0.to_vec(), bytes("6f0e5ad38daba1bea8a0d213688736f19763239305e0f58aba697f9ffc41c633"));
        assert_eq!(t1.to_vec(), bytes("df1194df20802a4fe594cde27e92991c8cae66c366e8106aaa937a55fa371e8a"));
        assert_eq!(t2.to_vec(), bytes("fac6e2745a325f5dc5d11a5b165aad08b0ada28e7b4e666b7c077934a4d76c24"));
    }
}
