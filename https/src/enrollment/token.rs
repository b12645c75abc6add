//! The token: one line that is typed, pasted, or read as a QR code.
//!
//! ```text
//! PE1 base32( pin 32 | secret 16 | port 2 |                    count 1, each: 4 or 6, address | branch | checksum 4 )
//! PE2 base32( pin 32 | secret 16 | port 2 | length 1 | host name | count 1, each: 4 or 6, address | branch | checksum 4 )
//! ```
//! Head office without a host name makes the first form, which programs know that know no names.
//! The alphabet is that of RFC 4648 in upper case, without padding: QR codes have a short form for it.

use base32ct::{Base32UpperUnpadded, Encoding};
use config::schema::is_domain;
use crypto::hash::sha256;
use crypto::{Random, SecretBytes};
use std::net::{IpAddr, SocketAddr};
use zeroize::Zeroizing;

/// What a token begins with: its version, without and with a host name.
const PREFIX: &str = "PE1";
const NAMED: &str = "PE2";
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
    /// The domain name at which head office is asked first.
    pub host_name: Option<String>,
    /// Where head office is asked, one after the other; they may be none if it has a name.
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
    #[error("this is no token of postern enroll: tokens begin with {PREFIX} or {NAMED}")]
    Foreign,
    /// It is of a later version.
    #[error("this token was made by a newer version of Postern: it begins with neither {PREFIX} nor {NAMED}")]
    Newer,
    /// A character, or a part, is missing or wrong.
    #[error("the token is not whole: a part of it is missing, or a character is wrong")]
    Damaged,
}

impl Token {
    /// A secret for a token.
    pub fn secret(random: &mut dyn Random) -> SecretBytes {
        SecretBytes::random(SECRET, random)
    }

    /// Where head office is asked beside its name.
    pub fn servers(&self) -> impl Iterator<Item = SocketAddr> {
        self.addresses.iter().map(|address| SocketAddr::new(*address, self.port))
    }

    /// The line. None if there is neither a host name nor an address, or too many of them, or if a name is too long.
    pub fn encode(&self) -> Option<Zeroizing<String>> {
        let least = usize::from(self.host_name.is_none());
        let is_right = (least..=MOST_ADDRESSES).contains(&self.addresses.len())
            && self.host_name.as_deref().is_none_or(is_domain)
            && (1..=LONGEST_NAME).contains(&self.branch.len())
            && self.secret.len() == SECRET;
        if !is_right {
            return None;
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(512));
        bytes.extend_from_slice(&self.pin);
        bytes.extend_from_slice(self.secret.expose());
        bytes.extend_from_slice(&self.port.to_be_bytes());
        if let Some(name) = &self.host_name {
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
        }
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
        let prefix = if self.host_name.is_some() { NAMED } else { PREFIX };
        Some(Zeroizing::new([prefix, &coded].concat()))
    }

    /// Reads a line, in which case and spaces do not matter.
    pub fn decode(text: &str) -> Result<Self, BadToken> {
        if text.len() > LONGEST {
            return Err(BadToken::Foreign);
        }
        let mut plain = Zeroizing::new(String::with_capacity(LONGEST));
        let characters = text.chars().filter(|character| !character.is_ascii_whitespace());
        plain.extend(characters.map(|character| character.to_ascii_uppercase()));
        let (version, coded) = plain.split_at_checked(PREFIX.len()).ok_or(BadToken::Foreign)?;
        if ![PREFIX, NAMED].contains(&version) {
            let is_ours = version.strip_prefix("PE").is_some_and(|number| number.parse::<u8>().is_ok());
            return Err(if is_ours { BadToken::Newer } else { BadToken::Foreign });
        }
        let bytes = Base32UpperUnpadded::decode_vec(coded).map(Zeroizing::new);
        let bytes = bytes.map_err(|_| BadToken::Damaged)?;
        let (body, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(BadToken::Damaged)?;
        if sha256(&[body])[..CHECKSUM] != *checksum {
            return Err(BadToken::Damaged);
        }
        Self::read(body, version == NAMED).ok_or(BadToken::Damaged)
    }

    fn read(body: &[u8], is_named: bool) -> Option<Self> {
        let (pin, rest) = body.split_first_chunk::<PIN>()?;
        let (secret, rest) = rest.split_first_chunk::<SECRET>()?;
        let (port, rest) = rest.split_first_chunk::<2>()?;
        let (host_name, rest) =
            if is_named { read_name(rest).map(|(name, rest)| (Some(name), rest))? } else { (None, rest) };
        let (count, mut rest) = rest.split_first()?;
        if !(usize::from(!is_named)..=MOST_ADDRESSES).contains(&usize::from(*count)) {
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
            host_name,
            addresses,
            port: u16::from_be_bytes(*port),
            pin: *pin,
            secret: SecretBytes::new(secret.to_vec()),
        })
    }
}

fn read_name(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let name = std::str::from_utf8(name).ok().filter(|name| is_domain(name))?;
    Some((name.to_owned(), rest))
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
            host_name: None,
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
    fn a_token_may_have_a_host_name_beside_addresses_or_alone() {
        for addresses in [token().addresses, Vec::new()] {
            let named = Token { host_name: Some("head.example.org".to_owned()), addresses, ..token() };
            let text = named.encode().expect("right");
            assert!(text.starts_with("PE2"), "{}", *text);
            assert_eq!(Token::decode(&text), Ok(named));
        }
        // The checksum covers no version: what is read as the other one has other fields.
        let named = Token { host_name: Some("head.example.org".to_owned()), ..token() };
        let without = named.encode().expect("right").replacen("PE2", "PE1", 1);
        assert_eq!(Token::decode(&without), Err(BadToken::Damaged));
        let longest = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(61)].join(".");
        let wide = Token {
            branch: "x".repeat(64),
            host_name: Some(longest),
            addresses: vec![IpAddr::from([1u8; 16]); 4],
            ..token()
        };
        assert_eq!(Token::decode(&wide.encode().expect("it fits")), Ok(wide));
        for name in ["", "a b", "x\ny.org", "198.51.100.1", &"a".repeat(64)] {
            let wrong = Token { host_name: Some(name.to_owned()), ..token() };
            assert!(wrong.encode().is_none(), "{name}");
        }
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
        for foreign in ["", "PE", "PEXAAAA", "hello", &"PE1".repeat(1000)] {
            assert_eq!(Token::decode(foreign), Err(BadToken::Foreign), "{foreign}");
        }
        assert_eq!(Token::decode("PE1\u{e9}"), Err(BadToken::Damaged));
        assert_eq!(Token::decode("PE3AAAA"), Err(BadToken::Newer));
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        let many = Token { addresses: vec![IpAddr::from([192, 0, 2, 1]); 5], ..token() };
        let none = Token { addresses: Vec::new(), ..token() };
        let long = Token { branch: "a".repeat(65), ..token() };
        assert!([many, none, long].iter().all(|token| token.encode().is_none()));
    }
}
