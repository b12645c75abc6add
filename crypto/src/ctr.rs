//! AES-256 in counter mode (NIST SP 800-38A) without a MAC, for protocols that combine it with one of their own.

use aws_lc_rs::cipher::{AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;

/// Encrypts or decrypts `text` in place; both are the same operation. `block`: the first counter block.
pub fn apply(key: &[u8; 32], block: [u8; 16], text: &mut [u8]) {
    let key = UnboundCipherKey::new(&AES_256, key).and_then(EncryptingKey::ctr);
    let key = key.expect("AES-256 keys have 32 bytes");
    let context = EncryptionContext::Iv128(FixedLength::from(block));
    key.less_safe_encrypt(text, context).expect("counter mode takes texts of any length");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        base16ct::lower::decode_vec(hex).expect("hex")
    }

    #[test]
    fn example_f_5_5_of_sp_800_38a() {
        let key = bytes("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
        let key: [u8; 32] = key.try_into().expect("32 bytes");
        let block = bytes("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff").try_into().expect("16 bytes");
        let mut text = bytes("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
        let plain = text.clone();
        apply(&key, block, &mut text);
        assert_eq!(text, bytes("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"));
        apply(&key, block, &mut text);
        assert_eq!(text, plain);
    }
}
