//! The header of a file: a version, one stanza with the wrapped file key, and a MAC.

use super::{AgeError, FILE_KEY, derive};
use crate::{Secret, SecretBytes, aead};
use aws_lc_rs::hmac;
use base64ct::{Base64Unpadded, Encoding};

pub(super) const VERSION: &[u8] = b"age-encryption.org/";
pub(super) const ARMOR: &[u8] = b"-----BEGIN AGE ENCRYPTED FILE-----";
const FIRST_LINE: &[u8] = b"age-encryption.org/v1";
const LAST_LINE: &[u8] = b"---";
/// A file for many keys may have a longer header, but none that is read here has.
const LONGEST: usize = 1024;
pub(super) const SALT: usize = 16;
const WRAPPED: usize = FILE_KEY + aead::TAG;
const MAC: usize = 32;

/// A header with the one stanza for a passphrase.
pub(super) struct Header {
    pub(super) salt: [u8; SALT],
    /// log2(N).
    pub(super) work_factor: u8,
    /// The file key, sealed with the wrap key.
    pub(super) body: [u8; WRAPPED],
}

/// What the MAC covers, and the MAC.
pub(super) struct Mac<'a> {
    covered: &'a [u8],
    mac: [u8; MAC],
}

/// The file key, sealed with the wrap key.
pub(super) fn wrap(wrap_key: &Secret, file_key: &SecretBytes) -> [u8; WRAPPED] {
    let mut body = [0; WRAPPED];
    body[..FILE_KEY].copy_from_slice(file_key.expose());
    aead::seal(wrap_key, &[], &mut body);
    body
}

/// Reverses [`wrap`].
pub(super) fn unwrap(wrap_key: &Secret, mut body: [u8; WRAPPED]) -> Result<SecretBytes, AgeError> {
    let key = aead::open(wrap_key, &[], &mut body).map_err(|_| AgeError::Passphrase)?;
    let key = SecretBytes::new(key.to_vec());
    zeroize::Zeroize::zeroize(&mut body);
    Ok(key)
}

/// Checks that the header is the one that was written with this file key.
pub(super) fn verify(file_key: &SecretBytes, mac: Mac<'_>) -> Result<(), AgeError> {
    hmac::verify(&mac_key(file_key), mac.covered, &mac.mac).map_err(|_| AgeError::Damaged)
}

fn mac_key(file_key: &SecretBytes) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, derive(file_key, &[], b"header").expose())
}

impl Header {
    /// The header with its MAC.
    pub(super) fn print(&self, file_key: &SecretBytes) -> Vec<u8> {
        let (salt, body) =
            (Base64Unpadded::encode_string(&self.salt), Base64Unpadded::encode_string(&self.body));
        let text = format!("age-encryption.org/v1\n-> scrypt {salt} {}\n{body}\n---", self.work_factor);
        let mac = hmac::sign(&mac_key(file_key), text.as_bytes());
        format!("{text} {}\n", Base64Unpadded::encode_string(mac.as_ref())).into_bytes()
    }

    /// Reads a header: with its MAC, which is not verified, and what follows it.
    pub(super) fn parse(file: &[u8]) -> Result<(Self, Mac<'_>, &[u8]), AgeError> {
        if file.starts_with(ARMOR) {
            return Err(AgeError::Armored);
        }
        if !file.starts_with(VERSION) {
            return Err(AgeError::NotAge);
        }
        let mut lines = Lines { file, at: 0 };
        if lines.next()? != FIRST_LINE {
            return Err(AgeError::Header);
        }
        let stanza = std::str::from_utf8(lines.next()?).map_err(|_| AgeError::Header)?;
        let words: Vec<&str> = stanza.split(' ').collect();
        let (salt, work_factor) = match words[..] {
            ["->", "scrypt", salt, work_factor] => (decode(salt.as_bytes())?, number(work_factor)?),
            ["->", "scrypt", ..] => return Err(AgeError::Header),
            ["->", ..] => return Err(AgeError::NoPassphrase),
            _ => return Err(AgeError::Header),
        };
        let body = decode(lines.next()?)?;
        let covered = &file[..lines.at + LAST_LINE.len().min(file.len() - lines.at)];
        let last = lines.next()?;
        // A passphrase is the only recipient of its file.
        let mac =
            last.strip_prefix(LAST_LINE).and_then(|rest| rest.strip_prefix(b" ")).ok_or(AgeError::Header)?;
        let mac = Mac { covered, mac: decode(mac)? };
        Ok((Self { salt, work_factor, body }, mac, &file[lines.at..]))
    }
}

fn decode<const N: usize>(text: &[u8]) -> Result<[u8; N], AgeError> {
    let mut bytes = [0; N];
    match Base64Unpadded::decode(text, &mut bytes) {
        Ok(decoded) if decoded.len() == N => Ok(bytes),
        _ => Err(AgeError::Header),
    }
}

/// A number without leading zeros.
fn number(text: &str) -> Result<u8, AgeError> {
    let number = text.parse::<u8>().ok().filter(|number| number.to_string() == text);
    number.filter(|number| (1..64).contains(number)).ok_or(AgeError::Header)
}

/// The lines of a header.
struct Lines<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Result<&'a [u8], AgeError> {
        let rest = &self.file[self.at..self.file.len().min(LONGEST).max(self.at)];
        let length = rest.iter().position(|&byte| byte == b'\n').ok_or(AgeError::Header)?;
        self.at += length + 1;
        Ok(&rest[..length])
    }
}
