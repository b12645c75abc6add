//! The identity of one side of a connection (RFC 7296, section 3.5), in the spelling of strongSwan.

use std::fmt;
use std::net::IpAddr;
use zeroize::Zeroizing;

/// The identity of one side of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// An address (ID_IPV4_ADDR, ID_IPV6_ADDR).
    Address(IpAddr),
    /// A domain name (ID_FQDN); capitals do not matter.
    Domain(String),
    /// An e-mail address (ID_RFC822_ADDR).
    Email(String),
    /// The subject of a certificate (ID_DER_ASN1_DN), as text: `C=DE, O=Example, CN=berlin`.
    DistinguishedName(String),
    /// Any bytes (ID_KEY_ID).
    KeyId(Vec<u8>),
}

impl Identity {
    /// The identity that a text stands for; `None` for `%any`, which is anyone.
    pub fn new(text: &str) -> Option<Self> {
        if matches!(text, "" | "%any" | "any" | "*" | "%any4" | "%any6" | "0.0.0.0" | "::") {
            return None;
        }
        let typed = text.split_once(':').and_then(|(kind, rest)| Self::of_type(kind, rest));
        Some(typed.unwrap_or_else(|| Self::guessed(text)))
    }

    /// Of a text behind the name of its type.
    fn of_type(kind: &str, text: &str) -> Option<Self> {
        match kind {
            "fqdn" | "dns" => Some(Self::Domain(text.to_lowercase())),
            "email" | "rfc822" | "userfqdn" => Some(Self::Email(text.to_owned())),
            "dn" | "asn1dn" => Some(Self::DistinguishedName(text.to_owned())),
            "keyid" => Some(Self::KeyId(bytes(text))),
            "ipv4" | "ipv6" => text.parse().ok().map(Self::Address),
            _ => None,
        }
    }

    /// Of a text that says by its looks what it is.
    fn guessed(text: &str) -> Self {
        if let Ok(address) = text.parse() {
            return Self::Address(address);
        }
        if let Some(email) = text.strip_prefix("@@") {
            return Self::Email(email.to_owned());
        }
        match text.strip_prefix('@') {
            Some(hexadecimal) if hexadecimal.starts_with('#') => Self::KeyId(bytes(hexadecimal)),
            Some(name) => Self::Domain(name.to_lowercase()),
            None if text.contains('=') => Self::DistinguishedName(text.to_owned()),
            None if text.contains('@') => Self::Email(text.to_owned()),
            None => Self::Domain(text.to_lowercase()),
        }
    }
}

/// The bytes of a text, or those behind a # in hexadecimal.
fn bytes(text: &str) -> Vec<u8> {
    let decoded = text.strip_prefix('#').and_then(hexadecimal);
    decoded.unwrap_or_else(|| text.as_bytes().to_vec())
}

/// Bytes in hexadecimal, with or without colons. They may be a secret: no copy is left behind.
pub(super) fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let mut digits = Zeroizing::new(Vec::with_capacity(text.len()));
    for character in text.chars().filter(|character| *character != ':') {
        digits.push(u8::try_from(character.to_digit(16)?).ok()?);
    }
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let mut bytes = Vec::with_capacity(pairs.len());
    bytes.extend(pairs.iter().map(|[high, low]| high << 4 | low));
    (!bytes.is_empty()).then_some(bytes)
}

/// Written so that it is read as the same: what looks like something else has its type before it.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let typed = |f: &mut fmt::Formatter<'_>, kind: &str, text: &str| {
            let is_plain = Self::new(text).as_ref() == Some(self);
            write!(f, "{}{text}", if is_plain { "" } else { kind })
        };
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Domain(text) => typed(f, "fqdn:", text),
            Self::Email(text) => typed(f, "email:", text),
            Self::DistinguishedName(text) => typed(f, "dn:", text),
            Self::KeyId(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if !text.chars().any(char::is_control) => write!(f, "keyid:{text}"),
                _ => {
                    f.write_str("keyid:#")?;
                    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_an_identity_is_seen_from_its_text() {
        let domain = |name: &str| Some(Identity::Domain(name.to_owned()));
        for (text, expected) in [
            ("192.0.2.1", "192.0.2.1".parse().ok().map(Identity::Address)),
            ("2001:db8::1", "2001:db8::1".parse().ok().map(Identity::Address)),
            ("ipv4:192.0.2.1", "192.0.2.1".parse().ok().map(Identity::Address)),
            ("Berlin.example.org", domain("berlin.example.org")),
            ("@berlin", domain("berlin")),
            ("fqdn:berlin", domain("berlin")),
            ("a@example.org", Some(Identity::Email("a@example.org".to_owned()))),
            ("@@a@example.org", Some(Identity::Email("a@example.org".to_owned()))),
            ("CN=berlin", Some(Identity::DistinguishedName("CN=berlin".to_owned()))),
            ("@#00ff", Some(Identity::KeyId(vec![0, 255]))),
            ("keyid:berlin", Some(Identity::KeyId(b"berlin".to_vec()))),
            ("%any", None),
        ] {
            assert_eq!(Identity::new(text), expected, "{text}");
        }
    }

    #[test]
    fn an_identity_is_printed_so_that_it_is_read_as_the_same() {
        for text in [
            "192.0.2.1",
            "2001:db8::1",
            "@b",
            "a@b.org",
            "CN=b",
            "@#00ff",
            "keyid:berlin",
            "@#6162",
            "fqdn:192.0.2.1",
            "fqdn:%any",
            "email:b",
            "dn:b",
        ] {
            let identity = Identity::new(text).expect("one");
            assert_eq!(Identity::new(&identity.to_string()), Some(identity), "{text}");
        }
    }
}
