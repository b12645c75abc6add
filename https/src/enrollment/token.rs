//! The token: one line that is typed, pasted, or read as a QR code.
//!
//! ```text
//! PE1 base32( pin 32 | secret 16 | port 2 | count 1, each: 4 or 6, address | name | checksum 4 )
//! ```
//! The alphabet is that of RFC 4648 in upper case, without padding: QR codes have a short form for it.

use crypto::hash::sha256;
use crypto::{Random, SecretBytes};
use std::net::{IpAddr, SocketAddr};
use zeroize::Zeroizing;

/// What a token begins with: its version.
const PREFIX: &str = "PE1";
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const PIN: usize = 32;
const SECRET: usize = 16;
const CHECKSUM: usize = 4;
/// Addresses of head office in a token.
pub const MOST_ADDRESSES: usize = 4;
/// Bytes of a name.
const LONGEST_NAME: usize = 64;
/// Characters of a token, and of spaces and line ends in it.
const LONGEST: usize = 1024;

/// What lets a branch join, once.
#[derive(Debug, PartialEq, Eq)]
pub struct Token {
    /// The name of the branch.
    pub branch: String,
    /// Where head office is asked, one after the other.
    pub addresses: Vec<IpAddr>,
    /// The TCP port of all of them.
    pub port: u16,
    /// SHA-256 of the public key of head office's certificate.
    pub pin: [u8; PIN],
    /// What only the branch and head office know.
    pub secret: SecretBytes,
}

/// Why a text is no token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// It begins with something else.
    #[error("this is no token of postern enroll: tokens begin with {PREFIX}")]
    Foreign,
    /// A character, or a part, is missing or wrong.
    #[error("the token is not whole: a part of it is missing, or a character is wrong")]
    Damaged,
}

impl Token {
    /// A secret for a token.
    pub fn secret(random: &mut dyn Random) -> SecretBytes {
        SecretBytes::random(SECRET, random)
    }

    /// Where head office is asked.
    pub fn servers(&self) -> impl Iterator<Item = SocketAddr> {
        self.addresses.iter().map(|address| SocketAddr::new(*address, self.port))
    }

    /// The line. None if there is no address or too many, or if the name is too long.
    pub fn encode(&self) -> Option<Zeroizing<String>> {
        let is_right = (1..=MOST_ADDRESSES).contains(&self.addresses.len())
            && (1..=LONGEST_NAME).contains(&self.branch.len())
            && self.secret.len() == SECRET;
        if !is_right {
            return None;
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(256));
        bytes.extend_from_slice(&self.pin);
        bytes.extend_from_slice(self.secret.expose());
        bytes.extend_from_slice(&self.port.to_be_bytes());
        bytes.push(self.addresses.len() as u8);
        for address in &self.addresses {
            match address {
                IpAddr::V4(address) => {
                    bytes.push(4);
                    bytes.extend_from_slice(&address.octets());
                }
                IpAddr::V6(address) => {
                    bytes.push(6);
                    bytes.extend_from_slice(&address.octets());
                }
            }
        }
        bytes.extend_from_slice(self.branch.as_bytes());
        let checksum = sha256(&[bytes.as_slice()]);
        bytes.extend_from_slice(&checksum[..CHECKSUM]);
        let mut text = Zeroizing::new(String::with_capacity(512));
        text.push_str(PREFIX);
        to_base32(&bytes, &mut text);
        Some(text)
    }

    /// Reads a line, in which case and spaces do not matter.
    pub fn decode(text: &str) -> Result<Self, BadToken> {
        if text.len() > LONGEST {
            return Err(BadToken::Foreign);
        }
        let mut plain = Zeroizing::new(Vec::with_capacity(LONGEST));
        plain.extend(
            text.bytes().filter(|byte| !byte.is_ascii_whitespace()).map(|it| it.to_ascii_uppercase()),
        );
        let coded = plain.strip_prefix(PREFIX.as_bytes()).ok_or(BadToken::Foreign)?;
        let bytes = from_base32(coded).ok_or(BadToken::Damaged)?;
        let (body, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(BadToken::Damaged)?;
        if sha256(&[body])[..CHECKSUM] != *checksum {
            return Err(BadToken::Damaged);
        }
        Self::read(body).ok_or(BadToken::Damaged)
    }

    fn read(body: &[u8]) -> Option<Self> {
        let (pin, rest) = body.split_first_chunk::<PIN>()?;
        let (secret, rest) = rest.split_first_chunk::<SECRET>()?;
        let (port, rest) = rest.split_first_chunk::<2>()?;
        let (count, mut rest) = rest.split_first()?;
        if !(1..=MOST_ADDRESSES).contains(&usize::from(*count)) {
            return None;
        }
        let mut addresses = Vec::new();
        for _ in 0..*count {
            let (address, left) = read_address(rest)?;
            addresses.push(address);
            rest = left;
        }
        let branch = std::str::from_utf8(rest).ok()?;
        if !(1..=LONGEST_NAME).contains(&branch.len()) || branch.contains(char::is_control) {
            return None;
        }
        Some(Self {
            branch: branch.to_owned(),
            addresses,
            port: u16::from_be_bytes(*port),
            pin: *pin,
            secret: SecretBytes::new(secret.to_vec()),
        })
    }
}

fn read_address(bytes: &[u8]) -> Option<(IpAddr, &[u8])> {
    match bytes.split_first()? {
        (4, rest) => rest.split_first_chunk::<4>().map(|(address, rest)| (IpAddr::from(*address), rest)),
        (6, rest) => rest.split_first_chunk::<16>().map(|(address, rest)| (IpAddr::from(*address), rest)),
        _ => None,
    }
}

/// What head office keeps of the secret of a token.
pub fn hash(secret: &[u8]) -> [u8; 32] {
    sha256(&[b"postern enrollment", secret])
}

fn to_base32(bytes: &[u8], text: &mut String) {
    let (mut held, mut bits) = (0_u32, 0);
    for byte in bytes {
        held = (held << 8 | u32::from(*byte)) & 0xfff;
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[(held >> bits & 31) as usize]));
        }
    }
    if bits > 0 {
        text.push(char::from(ALPHABET[(held << (5 - bits) & 31) as usize]));
    }
}

/// The bytes; none if a character is no digit, or if there are more characters, or bits that are set, than the bytes have.
fn from_base32(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST));
    let (mut held, mut bits) = (0_u32, 0);
    for character in text {
        let digit = match character {
            b'A'..=b'Z' => character - b'A',
            b'2'..=b'7' => character - b'2' + 26,
            _ => return None,
        };
        held = (held << 5 | u32::from(digit)) & 0xfff;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits & 0xff) as u8);
        }
    }
    (bits < 5 && held & ((1 << bits) - 1) == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token {
            branch: "berlin".to_owned(),
            addresses: ["198.51.100.1", "2001:db8::1"].map(|text| text.parse().expect("right")).into(),
            port: 9588,
            pin: [7; 32],
            secret: SecretBytes::new((1..=16).collect()),
        }
    }

    #[test]
    fn a_token_is_read_as_it_was_written_in_any_case_and_with_spaces() {
        let text = token().encode().expect("right");
        assert!(text.starts_with("PE1") && text.len() < 140, "{}", text.len());
        assert_eq!(Token::decode(&text), Ok(token()));
        let (one, two) = text.split_at(50);
        assert_eq!(Token::decode(&format!(" {}\n {two}\n", one.to_lowercase())), Ok(token()));
    }

    #[test]
    fn a_wrong_or_missing_character_is_noticed() {
        let text = token().encode().expect("right");
        for at in 3..text.len() {
            let mut wrong = text.as_bytes().to_vec();
            wrong[at] = if wrong[at] == b'A' { b'B' } else { b'A' };
            let wrong = String::from_utf8(wrong).expect("ASCII");
            assert_eq!(Token::decode(&wrong), Err(BadToken::Damaged), "{at}");
        }
        for length in 3..text.len() {
            assert_eq!(Token::decode(&text[..length]), Err(BadToken::Damaged), "{length}");
        }
        for foreign in ["", "PE", "PE2AAAA", "hello", &"PE1".repeat(1000)] {
            assert_eq!(Token::decode(foreign), Err(BadToken::Foreign), "{foreign}");
        }
        assert_eq!(Token::decode("PE1\u{e9}"), Err(BadToken::Damaged));
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        let many = Token { addresses: vec![IpAddr::from([192, 0, 2, 1]); 5], ..token() };
        let none = Token { addresses: Vec::new(), ..token() };
        let long = Token { branch: "a".repeat(65), ..token() };
        assert!([many, none, long].iter().all(|token| token.encode().is_none()));
    }

    #[test]
    fn base32_is_that_of_rfc_4648() {
        // RFC 4648, section 10, without padding.
        for (bytes, coded) in [
            ("", ""),
            ("f", "MY"),
            ("fo", "MZXQ"),
            ("foo", "MZXW6"),
            ("foob", "MZXW6YQ"),
            ("fooba", "MZXW6YTB"),
        ] {
            let mut text = String::new();
            to_base32(bytes.as_bytes(), &mut text);
            assert_eq!(text, coded);
            assert_eq!(from_base32(coded.as_bytes()).expect("right").as_slice(), bytes.as_bytes());
        }
        for wrong in ["M", "MZ1Q", "MZ", "mz"] {
            assert!(from_base32(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
