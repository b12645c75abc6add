//! AEAD for handshake messages, one message per key. Packets go through [`engine`](crate::engine).

use crate::Secret;
use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

/// Tag length in bytes.
pub const TAG: usize = 16;

/// Authentication failed: the key, the additional data, the message or its tag is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message does not authenticate")]
pub struct NotAuthentic;

fn chacha(key: &Secret) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key.expose()).expect("ChaCha20 keys have 32 bytes"))
}

/// Noise's AEAD(key, 0, text, aad): ChaCha20-Poly1305 (RFC 8439) with nonce 0. The tag replaces the last 16 bytes of
/// `text`.
pub fn seal(key: &Secret, aad: &[u8], text: &mut [u8]) {
    let (text, tag_out) = text.split_at_mut(text.len() - TAG);
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    let tag = chacha(key)
        .seal_in_place_separate_tag(nonce, Aad::from(aad), text)
        .expect("handshake messages are far below the limit of ChaCha20");
    tag_out.copy_from_slice(tag.as_ref());
}

/// Reverses [`seal`]: `text` ends with its tag; returns the plaintext.
pub fn open<'a>(key: &Secret, aad: &[u8], text: &'a mut [u8]) -> Result<&'a mut [u8], NotAuthentic> {
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    chacha(key).open_in_place(nonce, Aad::from(aad), text).map_err(|_| NotAuthentic)
}

/// WireGuard's XAEAD(key, nonce, text, aad): XChaCha20-Poly1305. The tag replaces the last 16 bytes of `text`.
pub fn seal_extended(key: &[u8; 32], nonce: &[u8; 24], aad: &[u8], text: &mut [u8]) {
    let (text, tag_out) = text.split_at_mut(text.len() - TAG);
    let tag = XChaCha20Poly1305::new(key.into())
        .encrypt_inout_detached(&XNonce::from(*nonce), aad, text.into())
        .expect("a cookie is far below the limit of ChaCha20");
    tag_out.copy_from_slice(&tag);
}

/// Reverses [`seal_extended`]: `text` ends with its tag; returns the plaintext.
pub fn open_extended<'a>(
    key: &[u8; 32],
    nonce: &[u8; 24],
    aad: &[u8],
    text: &'a mut [u8],
) -> Result<&'a mut [u8], NotAuthentic> {
    let body = text.len().checked_sub(TAG).ok_or(NotAuthentic)?;
    let (text, tag) = text.split_at_mut(body);
    let tag: [u8; TAG] = (&*tag).try_into().expect("split at the tag");
    XChaCha20Poly1305::new(key.into())
        .decrypt_inout_detached(&XNonce::from(*nonce), aad, (&mut *text).into(), &tag.into())
        .map_err(|_| NotAuthentic)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_text_opens_and_damaged_text_does_not() {
        let key = Secret::new([3; 32]);
        let mut text = *b"timestamp...                ";
        let (plain, tag) = text.split_at(12);
        assert_eq!((plain, tag.len()), (&b"timestamp..."[..], TAG));
        seal(&key, b"hash", &mut text);
        let mut damaged = text;
        damaged[4] ^= 1;
        assert_eq!(open(&key, b"hash", &mut damaged), Err(NotAuthentic));
        assert_eq!(open(&key, b"other", &mut text.clone()), Err(NotAuthentic));
        assert_eq!(open(&key, b"hash", &mut text).expect("authentic"), b"timestamp...");
        assert_eq!(open(&key, b"", &mut [0; 3]), Err(NotAuthentic));
    }

    #[test]
    fn changing_the_first_byte_of_an_extended_nonce_breaks_authentication() {
        let key = [5; 32];
        let mut nonce = [9; 24];
        let mut text = [0u8; 32];
        seal_extended(&key, &nonce, b"mac1", &mut text);
        assert_eq!(open_extended(&key, &nonce, b"mac1", &mut text.clone()).expect("authentic"), &[0; 16]);
        nonce[0] ^= 1;
        assert_eq!(open_extended(&key, &nonce, b"mac1", &mut text), Err(NotAuthentic));
        assert_eq!(open_extended(&key, &nonce, b"mac1", &mut [0; 15]), Err(NotAuthentic));
    }
}
