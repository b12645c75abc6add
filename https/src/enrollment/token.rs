//! The token: one line that is typed, pasted, or read as a QR code.
//!
//! ```text
//! PE1 base32( pin 32 | secret 16 | port 2 | count 1, each: 4 or 6, address | name | checksum 4 )
//! ```
//! The alphabet is that of RFC 4648 in upper case, without padding: QR codes have a short form for it.

use base32ct::{Base32UpperUnpadded, Encoding};
use crypto::hash::sha256;
use crypto::{Random, SecretBytes};
use std::net::{IpAddr, SocketAddr};
use zeroize::Zeroizing;

/// What a token begins with: its version.
const PREFIX: &str = "PE1";
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
        let coded = Zeroizing::new(Base32UpperUnpadded::encode_string(&bytes));
        Some(Zeroizing::new([PREFIX, &coded].concat()))
    }

    /// Reads a line, in which case and spaces do not matter.
    pub fn decode(text: &str) -> Result<Self, BadToken> {
        if text.len() > LONGEST {
            return Err(BadToken::Foreign);
        }
        let mut plain = Zeroizing::new(String::with_capacity(LONGEST));
        let characters = text.chars().filter(|character| !character.is_ascii_whitespace());
        plain.extend(characters.map(|character| character.to_ascii_uppercase()));
        let coded = plain.strip_prefix(PREFIX).ok_or(BadToken::Foreign)?;
        let bytes = Base32UpperUnpadded::decode_vec(coded).map(Zeroizing::new);
        let bytes = bytes.map_err(|_| BadToken::Damaged)?;
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
}
