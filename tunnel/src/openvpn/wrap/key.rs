//! The static key of tls-auth and tls-crypt: 256 bytes in a file of hexadecimal lines.

use crypto::Random;
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of a static key.
pub const KEY: usize = 256;
/// Bytes of a cipher or an HMAC key in a slot.
const PART: usize = 64;

const BEGIN: &str = "-----BEGIN OpenVPN Static key V1-----";
const END: &str = "-----END OpenVPN Static key V1-----";

/// Why a file with a static key cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaticKeyError {
    /// There is no BEGIN or no END line.
    #[error(
        "there is no \"{BEGIN}\" with its END line: generate a key with \"openvpn --genkey secret FILE\""
    )]
    NotFound,
    /// A line is not hexadecimal.
    #[error("a line of the key is not hexadecimal")]
    NotHexadecimal,
    /// The key has another length.
    #[error("the key has {0} bytes instead of {KEY}")]
    Length(usize),
}

/// A static key: two slots of a cipher key and an HMAC key, 64 bytes each.
#[derive(Clone)]
pub struct StaticKey(Box<Zeroizing<[u8; KEY]>>);

impl StaticKey {
    /// Copies the bytes. The caller erases its own copy.
    pub fn new(bytes: &[u8; KEY]) -> Self {
        Self(Box::new(Zeroizing::new(*bytes)))
    }

    /// A random key.
    pub fn random(random: &mut dyn Random) -> Self {
        let mut key = Self::new(&[0; KEY]);
        random.fill(&mut key.0[..]);
        key
    }

    /// Reads a key file, which may have comments around the key.
    pub fn from_file(text: &str) -> Result<Self, StaticKeyError> {
        let (_, rest) = text.split_once(BEGIN).ok_or(StaticKeyError::NotFound)?;
        let (body, _) = rest.split_once(END).ok_or(StaticKeyError::NotFound)?;
        let mut key = Self::new(&[0; KEY]);
        let mut digits = 0;
        for character in body.chars().filter(|character| !character.is_whitespace()) {
            let digit = character.to_digit(16).ok_or(StaticKeyError::NotHexadecimal)? as u8;
            if let Some(byte) = key.0.get_mut(digits / 2) {
                *byte = *byte << 4 | digit;
            }
            digits += 1;
        }
        if digits == 2 * KEY { Ok(key) } else { Err(StaticKeyError::Length(digits / 2)) }
    }

    /// The key as a file.
    pub fn to_file(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * KEY + 200));
        text.push_str(BEGIN);
        for (index, byte) in self.0.iter().enumerate() {
            if index % 16 == 0 {
                text.push('\n');
            }
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(digit.into(), 16).expect("four bits"));
            }
        }
        text.push('\n');
        text.push_str(END);
        text.push('\n');
        text
    }

    /// This key XOR `other`.
    #[must_use]
    pub fn xor(&self, other: &[u8; KEY]) -> Self {
        let mut key = self.clone();
        key.0.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
        key
    }

    /// All bytes; the caller is responsible for protecting them.
    pub fn expose(&self) -> &[u8; KEY] {
        &self.0
    }

    /// The cipher key of slot 0 or 1.
    pub(super) fn cipher(&self, slot: usize) -> &[u8; 32] {
        self.0[2 * PART * slot..].first_chunk().expect("there are two slots")
    }

    /// The HMAC key of slot 0 or 1.
    pub(super) fn hmac(&self, slot: usize) -> &[u8; PART] {
        self.0[2 * PART * slot + PART..].first_chunk().expect("there are two slots")
    }
}

impl fmt::Debug for StaticKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StaticKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_read_as_it_was_written() {
        let bytes = std::array::from_fn(|index| index as u8);
        let text = StaticKey::new(&bytes).to_file();
        let commented = format!("#\n# 2048 bit OpenVPN static key\n#\n{}", &*text);
        assert_eq!(StaticKey::from_file(&commented).expect("a key").expose(), &bytes);
        assert_eq!(text.lines().count(), 18);
    }

    #[test]
    fn damaged_key_files_are_refused() {
        let text = StaticKey::new(&[0xab; KEY]).to_file();
        let error = |text: &str| StaticKey::from_file(text).map(|_| ()).expect_err("damaged");
        assert_eq!(error(""), StaticKeyError::NotFound);
        assert_eq!(error(&text.replace("END", "")), StaticKeyError::NotFound);
        assert_eq!(error(&text.replacen("ab", "xy", 1)), StaticKeyError::NotHexadecimal);
        assert_eq!(error(&text.replacen("ab", "", 1)), StaticKeyError::Length(255));
        assert_eq!(error(&text.replacen("ab", "abababab", 1)), StaticKeyError::Length(259));
        assert_eq!(format!("{:?}", StaticKey::new(&[0xab; KEY])), "StaticKey(..)");
    }
}
