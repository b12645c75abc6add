//! The payload: chunks of 64 KiB, each with a tag. The nonce has the number of the chunk and whether it is the last one, so that
//! no chunk can be moved, doubled or left out.

use super::AgeError;
use crate::Secret;
use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

const CHUNK: usize = 64 << 10;
const TAG: usize = 16;

fn key_of(key: &Secret) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key.expose()).expect("ChaCha20 keys have 32 bytes"))
}

/// 11 bytes of counter, and 1 in the last byte of the last chunk.
fn nonce(number: u64, is_last: bool) -> Nonce {
    let mut bytes = [0; 12];
    bytes[3..11].copy_from_slice(&number.to_be_bytes());
    bytes[11] = u8::from(is_last);
    Nonce::assume_unique_for_key(bytes)
}

/// Appends the encrypted text. An empty text is one empty chunk.
pub(super) fn seal(key: &Secret, text: &[u8], out: &mut Vec<u8>) {
    let key = key_of(key);
    let count = text.len().div_ceil(CHUNK).max(1);
    out.reserve(text.len() + count * TAG);
    for number in 0..count {
        let chunk = &text[number * CHUNK..text.len().min((number + 1) * CHUNK)];
        let at = out.len();
        out.extend_from_slice(chunk);
        let nonce = nonce(number as u64, number + 1 == count);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut out[at..]);
        out.extend_from_slice(tag.expect("a chunk is far below the limit of ChaCha20").as_ref());
    }
}

/// Decrypts all chunks.
pub(super) fn open(key: &Secret, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, AgeError> {
    let key = key_of(key);
    let count = sealed.len().div_ceil(CHUNK + TAG).max(1);
    // One buffer of the right size: none that grows leaves copies behind.
    let mut text = Zeroizing::new(Vec::with_capacity(sealed.len()));
    for number in 0..count {
        let chunk = &sealed[number * (CHUNK + TAG)..sealed.len().min((number + 1) * (CHUNK + TAG))];
        // Only an empty file has an empty chunk.
        if chunk.len() < TAG || (chunk.len() == TAG && number > 0) {
            return Err(AgeError::Damaged);
        }
        let at = text.len();
        text.extend_from_slice(chunk);
        let nonce = nonce(number as u64, number + 1 == count);
        key.open_in_place(nonce, Aad::empty(), &mut text[at..]).map_err(|_| AgeError::Damaged)?;
        text.truncate(at + chunk.len() - TAG);
    }
    Ok(text)
}
