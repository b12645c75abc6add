//! The Encrypted payload: sealing and opening (RFC 7296 section 3.14, RFC 5282, RFC 7383).
//!
//! ```text
//! header | generic header | iv | payloads, padding, its length | tag
//! ├─ associated data ─────┤    ├─ encrypted ───────────────────┤        authenticated cipher
//! ├─ authenticated ───────────────────────────────────────────┤        cipher and MAC
//! ```

use crate::ikev2::message::{Envelope, Header, Sealed, emit_associated};
use crate::ikev2::proposal::MessageCipher;
use crypto::cipher::{Cipher, Encryption};
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, Job, Key, NONCE, PairJob, PairKey};
use crypto::{Random, SecretBytes};
use std::sync::Arc;
use zeroize::Zeroize;

/// The message does not authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message does not authenticate")]
pub struct NotAuthentic;

/// Bytes of the initialization vector of authenticated ciphers and of counter mode: a number that counts up.
const COUNTER: usize = 8;

/// Bytes of key material that begin each nonce of an authenticated cipher.
pub(super) fn salt_length(cipher: Cipher) -> usize {
    if cipher.is_ccm() { 3 } else { 4 }
}

/// The keys of one direction, as bytes. The expanded form of an engine is ten times as large and takes less than a
/// microsecond to compute. A gateway has thousands of IKE SAs, each used rarely.
struct Keys {
    protection: MessageCipher,
    /// Without the salt.
    cipher: SecretBytes,
    salt: SecretBytes,
    mac: SecretBytes,
}

/// Expanded keys. The portable engine is used, as IKE's own messages are few.
enum Loaded {
    Aead(Arc<dyn Key>),
    Pair(Arc<dyn PairKey>, Encryption),
}

impl Keys {
    fn new(protection: MessageCipher, cipher_key: &[u8], mac_key: &[u8]) -> Self {
        let length = match protection {
            MessageCipher::Aead(cipher, _) => cipher.key_length(),
            MessageCipher::Pair(pair) => pair.encryption.key_length(),
        };
        let (cipher, salt) = cipher_key.split_at(length);
        let [cipher, salt, mac] = [cipher, salt, mac_key].map(|bytes| SecretBytes::new(bytes.to_vec()));
        Self { protection, cipher, salt, mac }
    }

    fn load(&self) -> Loaded {
        let cipher = self.cipher.expose();
        match self.protection {
            MessageCipher::Aead(kind, _) => {
                Loaded::Aead(AwsLc.load(kind, cipher).expect("AWS-LC has every cipher"))
            }
            MessageCipher::Pair(pair) => {
                let key = AwsLc.load_pair(pair, cipher, self.mac.expose());
                Loaded::Pair(key.expect("AWS-LC has every cipher and MAC"), pair.encryption)
            }
        }
    }

    fn block(&self) -> usize {
        match self.protection {
            MessageCipher::Aead(..) => 1,
            MessageCipher::Pair(pair) => pair.encryption.block(),
        }
    }

    fn iv_length(&self) -> usize {
        match self.block() {
            1 => COUNTER,
            block => block,
        }
    }

    fn tag_length(&self) -> usize {
        match self.protection {
            MessageCipher::Aead(_, tag) => tag,
            MessageCipher::Pair(pair) => pair.integrity.tag_length(),
        }
    }
}

/// The nonce of an authenticated cipher: salt, then initialization vector.
fn nonce(salt: &[u8], iv: &[u8]) -> [u8; NONCE] {
    let mut nonce = [0; NONCE];
    for (place, byte) in nonce.iter_mut().zip(salt.iter().chain(iv)) {
        *place = *byte;
    }
    nonce
}

/// The argument of a [`PairJob`]: the first counter block (RFC 3686 section 4), or the initialization vector itself.
fn first_block(encryption: Encryption, nonce: &[u8], iv: &[u8]) -> [u8; 16] {
    let mut block = [0; 16];
    for (place, byte) in block.iter_mut().zip(nonce.iter().chain(iv)) {
        *place = *byte;
    }
    if matches!(encryption, Encryption::AesCtr(_)) {
        block[15] = 1;
    }
    block
}

/// Encrypts what we send.
pub struct Sealer {
    keys: Keys,
    counter: u64,
}

impl Sealer {
    pub(super) fn new(protection: MessageCipher, cipher_key: &[u8], mac_key: &[u8]) -> Self {
        Self { keys: Keys::new(protection, cipher_key, mac_key), counter: 0 }
    }

    /// Builds a datagram from a chain of payloads, or from a fragment of one; `first` is the type of the chain's
    /// first payload.
    pub fn seal(
        &mut self,
        header: &Header,
        first: u8,
        envelope: Envelope,
        payloads: &[u8],
        random: &mut dyn Random,
    ) -> Vec<u8> {
        let text_length = self.text_length(payloads.len());
        let sealed = self.keys.iv_length() + text_length + self.keys.tag_length();
        let mut datagram = emit_associated(header, first, envelope, sealed);
        let associated = datagram.len();
        datagram.extend(self.next_iv(random));
        let text = datagram.len();
        datagram.extend(payloads);
        let padding = text_length - payloads.len() - 1;
        datagram.resize(datagram.len() + padding, 0);
        datagram.push(padding as u8);
        let mut tag = vec![0; self.keys.tag_length()];
        self.seal_in_place(&mut datagram, associated, text, &mut tag);
        datagram.extend(tag);
        datagram
    }

    /// Bytes of payloads that fit as a fragment into a datagram of `datagram` bytes; at least one.
    pub fn fragment_room(&self, datagram: usize) -> usize {
        let outside = Header::LENGTH + 8 + self.keys.iv_length() + self.keys.tag_length();
        let text = datagram.saturating_sub(outside);
        (text - text % self.keys.block()).saturating_sub(1).max(1)
    }

    /// The size of the datagram for a chain of `payloads` bytes.
    pub fn datagram_length(&self, payloads: usize) -> usize {
        let sealed = self.keys.iv_length() + self.text_length(payloads) + self.keys.tag_length();
        Header::LENGTH + 4 + sealed
    }

    fn text_length(&self, payloads: usize) -> usize {
        (payloads + 1).next_multiple_of(self.keys.block())
    }

    /// Counter mode and the modes built on it need an initialization vector that is never reused; CBC needs an
    /// unpredictable one.
    fn next_iv(&mut self, random: &mut dyn Random) -> Vec<u8> {
        if self.keys.block() == 1 {
            let iv = self.counter.to_be_bytes();
            self.counter = self.counter.checked_add(1).expect("an IKE SA sends fewer than 2^64 messages");
            return iv.to_vec();
        }
        let mut iv = vec![0; self.keys.iv_length()];
        random.fill(&mut iv);
        iv
    }

    fn seal_in_place(&self, datagram: &mut [u8], associated: usize, text: usize, tag: &mut [u8]) {
        let salt = self.keys.salt.expose();
        let outcome = match self.keys.load() {
            Loaded::Aead(key) => {
                let (before, text) = datagram.split_at_mut(text);
                let (aad, iv) = before.split_at(associated);
                let nonce = nonce(salt, iv);
                key.seal(&mut [Job { nonce, aad, text, tag, authentic: false }])
            }
            Loaded::Pair(key, encryption) => {
                let iv = first_block(encryption, salt, &datagram[associated..text]);
                key.seal(&mut [PairJob { iv, packet: datagram, text, suffix: &[], tag, authentic: false }])
            }
        };
        outcome.expect("AWS-LC seals what fits into a datagram");
    }
}

/// Decrypts what we receive.
pub struct Opener {
    keys: Keys,
}

impl Opener {
    pub(super) fn new(protection: MessageCipher, cipher_key: &[u8], mac_key: &[u8]) -> Self {
        Self { keys: Keys::new(protection, cipher_key, mac_key) }
    }

    /// Decrypts an encrypted payload into the chain of payloads, or a fragment of one.
    pub fn open(&self, sealed: &Sealed<'_>) -> Result<Vec<u8>, NotAuthentic> {
        let (iv, rest) = sealed.text.split_at_checked(self.keys.iv_length()).ok_or(NotAuthentic)?;
        let text = rest.len().checked_sub(self.keys.tag_length()).ok_or(NotAuthentic)?;
        if text == 0 || !text.is_multiple_of(self.keys.block()) {
            return Err(NotAuthentic);
        }
        let (text, tag) = rest.split_at(text);
        let salt = self.keys.salt.expose();
        let mut plain = match self.keys.load() {
            Loaded::Aead(key) => open_aead(&*key, nonce(salt, iv), sealed.associated, text, tag),
            Loaded::Pair(key, encryption) => {
                let block = first_block(encryption, salt, iv);
                open_pair(&*key, block, &[sealed.associated, iv], text, tag)
            }
        }?;
        // Section 3.14: padding is 0 to 255 bytes of any content.
        let padding = usize::from(plain.pop().ok_or(NotAuthentic)?);
        let length = plain.len().checked_sub(padding).ok_or(NotAuthentic)?;
        plain.truncate(length);
        Ok(plain)
    }
}

fn open_aead(
    key: &dyn Key,
    nonce: [u8; NONCE],
    aad: &[u8],
    text: &[u8],
    tag: &[u8],
) -> Result<Vec<u8>, NotAuthentic> {
    let (mut text, mut tag) = (text.to_vec(), tag.to_vec());
    let mut jobs = [Job { nonce, aad, text: &mut text, tag: &mut tag, authentic: false }];
    let is_authentic = key.open(&mut jobs).is_ok() && jobs[0].authentic;
    if is_authentic {
        return Ok(text);
    }
    text.zeroize();
    Err(NotAuthentic)
}

fn open_pair(
    key: &dyn PairKey,
    iv: [u8; 16],
    before: &[&[u8]],
    text: &[u8],
    tag: &[u8],
) -> Result<Vec<u8>, NotAuthentic> {
    let before = before.concat();
    let (mut packet, mut tag) = ([&before[..], text].concat(), tag.to_vec());
    let text = before.len();
    let mut jobs = [PairJob { iv, packet: &mut packet, text, suffix: &[], tag: &mut tag, authentic: false }];
    let is_authentic = key.open(&mut jobs).is_ok() && jobs[0].authentic;
    if is_authentic { Ok(packet.split_off(text)) } else { Err(NotAuthentic) }
}
