//! Pseudorandom functions of IKEv2: prf, and prf+, which derives keys of any length from it (RFC 7296, section 2.13).

use crate::SecretBytes;
use aws_lc_rs::cipher::{AES_128, EncryptingKey, UnboundCipherKey};
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

const BLOCK: usize = 16;

/// A pseudorandom function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prf {
    /// PRF_HMAC_SHA1 (RFC 2104). Weak: SHA-1.
    HmacSha1,
    /// PRF_HMAC_SHA2_256 (RFC 4868).
    HmacSha256,
    /// PRF_HMAC_SHA2_384 (RFC 4868).
    HmacSha384,
    /// PRF_HMAC_SHA2_512 (RFC 4868).
    HmacSha512,
    /// PRF_AES128_XCBC (RFC 4434).
    AesXcbc,
}

impl Prf {
    /// All pseudorandom functions.
    pub const ALL: &[Self] =
        &[Self::HmacSha1, Self::HmacSha256, Self::HmacSha384, Self::HmacSha512, Self::AesXcbc];

    /// The name used in proposals.
    pub fn name(self) -> &'static str {
        match self {
            Self::HmacSha1 => "prfsha1",
            Self::HmacSha256 => "prfsha256",
            Self::HmacSha384 => "prfsha384",
            Self::HmacSha512 => "prfsha512",
            Self::AesXcbc => "prfaesxcbc",
        }
    }

    /// Output length in bytes.
    pub fn output_length(self) -> usize {
        match self {
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
            Self::AesXcbc => BLOCK,
        }
    }

    /// The preferred key length in bytes (RFC 7296, section 2.13): the output length.
    pub fn key_length(self) -> usize {
        self.output_length()
    }

    /// prf(key, parts) over the concatenated parts. The key may have any length.
    pub fn compute(self, key: &[u8], parts: &[&[u8]]) -> SecretBytes {
        Keyed::new(self, key).compute(parts)
    }

    /// prf+(key, seed), truncated to `length` bytes. Panics above 255 outputs, the limit of RFC 7296.
    pub fn expand(self, key: &[u8], seed: &[&[u8]], length: usize) -> SecretBytes {
        let blocks = length.div_ceil(self.output_length());
        assert!(blocks <= 255, "prf+ ends after 255 outputs");
        let key = Keyed::new(self, key);
        // Allocate the final size: a growing buffer would leave copies of keys in freed memory.
        let mut bytes = Vec::with_capacity(blocks * self.output_length());
        let mut last = SecretBytes::new(Vec::new());
        for number in 1..=blocks as u8 {
            let number = [number];
            let parts: Vec<&[u8]> =
                [last.expose()].into_iter().chain(seed.iter().copied()).chain([&number[..]]).collect();
            last = key.compute(&parts);
            bytes.extend_from_slice(last.expose());
        }
        bytes[length..].fill(0);
        bytes.truncate(length);
        SecretBytes::new(bytes)
    }

    /// SKEYSEED = prf(Ni | Nr, shared) (RFC 7296, section 2.14).
    pub fn seed(self, initiator_nonce: &[u8], responder_nonce: &[u8], shared: &[u8]) -> SecretBytes {
        // If the PRF has a fixed key length, "only the first 64 bits of Ni and the first 64 bits of Nr" are used.
        let half = if self == Self::AesXcbc { BLOCK / 2 } else { usize::MAX };
        let part = |nonce: &[u8]| nonce[..nonce.len().min(half)].to_vec();
        let key = Zeroizing::new([part(initiator_nonce), part(responder_nonce)].concat());
        self.compute(&key, &[shared])
    }
}

/// A pseudorandom function with its key schedule.
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, for one call")]
enum Keyed {
    Hmac(hmac::Key),
    Xcbc(Xcbc),
}

impl Keyed {
    fn new(prf: Prf, key: &[u8]) -> Self {
        let hmac = |algorithm| Self::Hmac(hmac::Key::new(algorithm, key));
        match prf {
            Prf::HmacSha1 => hmac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            Prf::HmacSha256 => hmac(hmac::HMAC_SHA256),
            Prf::HmacSha384 => hmac(hmac::HMAC_SHA384),
            Prf::HmacSha512 => hmac(hmac::HMAC_SHA512),
            Prf::AesXcbc => Self::Xcbc(Xcbc::of_any_key(key)),
        }
    }

    fn compute(&self, parts: &[&[u8]]) -> SecretBytes {
        match self {
            Self::Hmac(key) => {
                let mut context = hmac::Context::with_key(key);
                for part in parts {
                    context.update(part);
                }
                SecretBytes::new(context.sign().as_ref().to_vec())
            }
            Self::Xcbc(key) => SecretBytes::new(key.mac(parts).to_vec()),
        }
    }
}

/// AES-XCBC-MAC (RFC 3566, section 4), not truncated.
struct Xcbc {
    block: EncryptingKey,
    /// K2 and K3: the masks for a complete and for a padded last block.
    last: [Zeroizing<[u8; BLOCK]>; 2],
}

impl Xcbc {
    /// RFC 4434, section 2: a short key is padded with zeros; a long one is replaced by its MAC under the zero key.
    fn of_any_key(key: &[u8]) -> Self {
        let mut whole = Zeroizing::new([0; BLOCK]);
        if key.len() <= BLOCK {
            whole[..key.len()].copy_from_slice(key);
        } else {
            *whole = *Self::new(&whole).mac(&[key]);
        }
        Self::new(&whole)
    }

    fn new(key: &[u8; BLOCK]) -> Self {
        let master = aes(key);
        let derive = |constant: u8| {
            let mut key = Zeroizing::new([constant; BLOCK]);
            encrypt(&master, &mut key);
            key
        };
        Self { block: aes(&derive(1)), last: [derive(2), derive(3)] }
    }

    fn mac(&self, parts: &[&[u8]]) -> Zeroizing<[u8; BLOCK]> {
        let mut state = Zeroizing::new([0; BLOCK]);
        let mut filled = 0;
        for &byte in parts.iter().copied().flatten() {
            // Encrypt only when another byte follows: the last block is masked first.
            if filled == BLOCK {
                encrypt(&self.block, &mut state);
                filled = 0;
            }
            state[filled] ^= byte;
            filled += 1;
        }
        let padded = filled < BLOCK;
        if padded {
            state[filled] ^= 0x80;
        }
        state.iter_mut().zip(*self.last[usize::from(padded)]).for_each(|(byte, mask)| *byte ^= mask);
        encrypt(&self.block, &mut state);
        state
    }
}

fn aes(key: &[u8; BLOCK]) -> EncryptingKey {
    UnboundCipherKey::new(&AES_128, key).and_then(EncryptingKey::ecb).expect("AES-128 keys have 16 bytes")
}

fn encrypt(key: &EncryptingKey, block: &mut [u8; BLOCK]) {
    key.encrypt(block).expect("one block is what AES encrypts");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        base16ct::lower::decode_vec(hex).expect("hex")
    }

    fn assert_computes(prf: Prf, key: &[u8], text: &[u8], expected: &str) {
        assert_eq!(prf.compute(key, &[text]), SecretBytes::new(bytes(expected)), "{}", prf.name());
        let (start, end) = text.split_at(text.len() / 3);
        assert_eq!(prf.compute(key, &[start, b"", end]), SecretBytes::new(bytes(expected)), "{}", prf.name());
    }

    #[test]
    fn test_cases_1_2_and_6_of_rfc_2202() {
        assert_computes(Prf::HmacSha1, &[0x0b; 20], b"Hi There", "b617318655057264e28bc0b6fb378c8ef146be00");
        let text = b"what do ya want for nothing?";
        assert_computes(Prf::HmacSha1, b"Jefe", text, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        assert_computes(Prf::HmacSha1, &[0xaa; 80], text, "aa4ae5e15272d00e95705637ce8a3b55ed402112");
    }

    #[test]
    fn test_case_2_of_rfc_4231() {
        let text = b"what do ya want for nothing?";
        for (prf, expected) in [
            (Prf::HmacSha256, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (
                Prf::HmacSha384,
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
            ),
            (
                Prf::HmacSha512,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fd\
                 caeab1a34d4a6b4b636e070a38bce737",
            ),
        ] {
            assert_computes(prf, b"Jefe", text, expected);
        }
    }

    #[test]
    fn test_case_6_of_rfc_4231_with_a_long_key() {
        let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
        let expected = "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54";
        assert_computes(Prf::HmacSha256, &[0xaa; 131], text, expected);
    }

    #[test]
    fn vectors_of_rfc_4434_with_keys_of_16_10_and_18_bytes() {
        let text: Vec<u8> = (0..20).collect();
        let key: Vec<u8> = (0..16).collect();
        assert_computes(Prf::AesXcbc, &key, &text, "47f51b4564966215b8985c63055ed308");
        assert_computes(Prf::AesXcbc, &key[..10], &text, "0fa087af7d866e7653434e602fdde835");
        let key = bytes("000102030405060708090a0b0c0d0e0fedcb");
        assert_computes(Prf::AesXcbc, &key, &text, "8cd3c93ae598a9803006ffb67c40e9e4");
    }

    #[test]
    fn vectors_of_rfc_3566_with_no_text_and_with_whole_blocks() {
        let key: Vec<u8> = (0..16).collect();
        let text: Vec<u8> = (0..32).collect();
        assert_computes(Prf::AesXcbc, &key, b"", "75f0251d528ac01c4573dfd584d79f29");
        assert_computes(Prf::AesXcbc, &key, &text[..16], "d2a246fa349b68a79998a4394ff7a263");
        assert_computes(Prf::AesXcbc, &key, &text, "f54f0ec8d2b9f3d36807734bd5283fd4");
    }

    #[test]
    fn stretching_chains_outputs_and_cuts_the_last() {
        for &prf in Prf::ALL {
            let first = prf.compute(b"key", &[b"seed", &[1]]);
            let second = prf.compute(b"key", &[first.expose(), b"seed", &[2]]);
            let both = [first.expose(), second.expose()].concat();
            for length in [0, 1, prf.output_length(), prf.output_length() + 1, both.len()] {
                let stretched = prf.expand(b"key", &[b"se", b"ed"], length);
                assert_eq!(stretched.expose(), &both[..length], "{}", prf.name());
            }
            assert_eq!(prf.expand(b"key", &[], 255 * prf.output_length()).len(), 255 * prf.output_length());
        }
    }

    #[test]
    fn only_a_key_of_fixed_length_takes_halves_of_nonces() {
        let (initiator, responder) = ([1; 32], [2; 24]);
        let halves = [[1; 8], [2; 8]].concat();
        assert_eq!(
            Prf::AesXcbc.seed(&initiator, &responder, b"shared"),
            Prf::AesXcbc.compute(&halves, &[b"shared"])
        );
        let whole = [&initiator[..], &responder].concat();
        let seed = Prf::HmacSha256.seed(&initiator, &responder, b"shared");
        assert_eq!(seed, Prf::HmacSha256.compute(&whole, &[b"shared"]));
    }
}
