//! Identities of IKEv2 peers (RFC 7296, section 3.5).

use super::DistinguishedName;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The identity that a peer claims. Comparison ignores case in domain names and in the domain of an e-mail address.
#[derive(Clone, Debug)]
pub enum Identity {
    /// ID_IPV4_ADDR.
    Ipv4(Ipv4Addr),
    /// ID_IPV6_ADDR.
    Ipv6(Ipv6Addr),
    /// ID_FQDN: a domain name, not resolved.
    Fqdn(String),
    /// ID_RFC822_ADDR: an e-mail address.
    Email(String),
    /// ID_DER_ASN1_DN: a distinguished name.
    Name(DistinguishedName),
    /// ID_KEY_ID: opaque bytes with a meaning only to the two peers.
    KeyId(Vec<u8>),
}

/// Why an ID payload or a text is not accepted as an identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The ID type is not supported.
    #[error("identities of type {0} are not supported")]
    Type(u8),
    /// The data does not fit the ID type.
    #[error("an identity of type {0} is malformed")]
    Malformed(u8),
    /// The identity is too long to be compared; its length.
    #[error("an identity may have at most {LONGEST} bytes, this one has {0}")]
    TooLong(usize),
    /// The text has none of the supported forms.
    #[error(
        "{0:?} is not an identity: write an address, a domain name, an e-mail address, a distinguished name, or @#HEX"
    )]
    Text(String),
    /// The text is a malformed distinguished name.
    #[error(transparent)]
    Name(#[from] super::NameError),
}

/// Maximum length of an identity in bytes.
const LONGEST: usize = 1024;

impl Identity {
    /// Parses the type and data of an ID payload.
    pub fn from_payload(kind: u8, data: &[u8]) -> Result<Self, IdentityError> {
        let malformed = || IdentityError::Malformed(kind);
        if data.len() > LONGEST {
            return Err(IdentityError::TooLong(data.len()));
        }
        match kind {
            1 => Ok(Self::Ipv4(<[u8; 4]>::try_from(data).map_err(|_| malformed())?.into())),
            5 => Ok(Self::Ipv6(<[u8; 16]>::try_from(data).map_err(|_| malformed())?.into())),
            2 => Ok(Self::Fqdn(printable(data).ok_or_else(malformed)?)),
            3 => Ok(Self::Email(printable(data).ok_or_else(malformed)?)),
            9 => Ok(Self::Name(DistinguishedName::from_der(data).map_err(|_| malformed())?)),
            11 if !data.is_empty() => Ok(Self::KeyId(data.to_vec())),
            11 => Err(malformed()),
            other => Err(IdentityError::Type(other)),
        }
    }

    /// The type for an ID payload.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Ipv4(_) => 1,
            Self::Fqdn(_) => 2,
            Self::Email(_) => 3,
            Self::Ipv6(_) => 5,
            Self::Name(_) => 9,
            Self::KeyId(_) => 11,
        }
    }

    /// The data for an ID payload.
    pub fn data(&self) -> Vec<u8> {
        match self {
            Self::Ipv4(address) => address.octets().to_vec(),
            Self::Ipv6(address) => address.octets().to_vec(),
            Self::Fqdn(text) | Self::Email(text) => text.as_bytes().to_vec(),
            Self::Name(name) => name.to_der().to_vec(),
            Self::KeyId(bytes) => bytes.clone(),
        }
    }
}

/// Names must be printable ASCII, so that an operator sees exactly what is compared.
fn printable(data: &[u8]) -> Option<String> {
    let fine = !data.is_empty() && data.iter().all(u8::is_ascii_graphic);
    fine.then(|| data.iter().map(|&byte| char::from(byte)).collect())
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ipv4(one), Self::Ipv4(other)) => one == other,
            (Self::Ipv6(one), Self::Ipv6(other)) => one == other,
            (Self::Fqdn(one), Self::Fqdn(other)) => is_same_domain(one, other),
            (Self::Email(one), Self::Email(other)) => is_same_email(one, other),
            (Self::Name(one), Self::Name(other)) => one == other,
            (Self::KeyId(one), Self::KeyId(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind().hash(state);
        match self {
            Self::Fqdn(text) | Self::Email(text) => text.to_ascii_lowercase().hash(state),
            Self::Name(name) => name.hash(state),
            Self::Ipv4(_) | Self::Ipv6(_) | Self::KeyId(_) => self.data().hash(state),
        }
    }
}

pub(super) fn is_same_domain(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// RFC 5280, section 7.5: the local part, before the @, is case-sensitive.
pub(super) fn is_same_email(one: &str, other: &str) -> bool {
    match (one.rsplit_once('@'), other.rsplit_once('@')) {
        (Some((one, one_domain)), Some((other, other_domain))) => {
            one == other && is_same_domain(one_domain, other_domain)
        }
        _ => one == other,
    }
}

/// The wildcards of a configuration, for any peer.
const ANYONE: &[&str] = &["%any", "any", "*", "%any4", "%any6"];

/// Prints a form that parses to the same identity. The type is a prefix if the text alone would be read as another
/// type.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv4(address) => address.fmt(f),
            Self::Ipv6(address) => address.fmt(f),
            Self::Fqdn(text) | Self::Email(text) => {
                let is_plain = !ANYONE.contains(&text.as_str())
                    && Self::from_text(text).is_ok_and(|read| read.kind() == self.kind() && read == *self);
                let kind = if matches!(self, Self::Fqdn(_)) { "fqdn:" } else { "email:" };
                write!(f, "{}{text}", if is_plain { "" } else { kind })
            }
            Self::Name(name) => name.fmt(f),
            Self::KeyId(bytes) => {
                f.write_str("@#")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// Parses the forms of VyOS and strongSwan: `192.0.2.1`, `2001:db8::1`, `moon.example`, `@moon`, `carol@example`,
/// `@@carol@example`, `C=CH, CN=moon`, `@#0a1b`, and each with its type as a prefix, as in `fqdn:moon` or `keyid:moon`.
impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let identity = Self::from_text(text.trim())?;
        let length = identity.data().len();
        if length > LONGEST { Err(IdentityError::TooLong(length)) } else { Ok(identity) }
    }
}

impl Identity {
    fn from_text(text: &str) -> Result<Self, IdentityError> {
        let wrong = || IdentityError::Text(text.to_owned());
        let name = |text: &str| printable(text.as_bytes()).ok_or_else(wrong);
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(address.into());
        }
        if let Some((kind, rest)) = text.split_once(':') {
            match kind.to_ascii_lowercase().as_str() {
                "fqdn" | "dns" => return Ok(Self::Fqdn(name(rest)?)),
                "email" | "rfc822" | "userfqdn" => return Ok(Self::Email(name(rest)?)),
                "ipv4" | "ipv6" => return Ok(rest.parse::<IpAddr>().map_err(|_| wrong())?.into()),
                "dn" | "asn1dn" => return Ok(Self::Name(rest.parse()?)),
                "keyid" if !rest.is_empty() => return Ok(Self::KeyId(rest.as_bytes().to_vec())),
                _ => {}
            }
        }
        if let Some(digits) = text.strip_prefix("@#") {
            return Ok(Self::KeyId(hex(digits).ok_or_else(wrong)?));
        }
        if let Some(address) = text.strip_prefix("@@") {
            return Ok(Self::Email(name(address)?));
        }
        if let Some(domain) = text.strip_prefix('@') {
            return Ok(Self::Fqdn(name(domain)?));
        }
        if text.contains('=') {
            return Ok(Self::Name(text.parse()?));
        }
        if text.contains('@') { Ok(Self::Email(name(text)?)) } else { Ok(Self::Fqdn(name(text)?)) }
    }
}

impl From<IpAddr> for Identity {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::Ipv4(address),
            IpAddr::V6(address) => Self::Ipv6(address),
        }
    }
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    digits.chunks(2).map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(text: &str) -> Identity {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_type_follows_from_the_form_of_the_text() {
        for (text, kind) in [
            ("192.0.2.1", 1),
            ("2001:db8::1", 5),
            ("moon.example", 2),
            ("@moon", 2),
            ("fqdn:10.0.0.1", 2),
            ("carol@example.org", 3),
            ("@@carol@example.org", 3),
            ("C=CH, O=strongSwan, CN=moon", 9),
            ("CN=carol@example.org", 9),
            ("/C=CH/CN=moon", 9),
            ("asn1dn:CN=moon", 9),
            ("@#0a1bFF", 11),
            ("keyid:moon", 11),
        ] {
            let identity = identity(text);
            assert_eq!(identity.kind(), kind, "{text}");
            assert_eq!(Identity::from_payload(kind, &identity.data()), Ok(identity));
        }
    }

    #[test]
    fn a_printed_identity_parses_to_the_same_identity() {
        for (kind, data, text) in [
            (2, "moon.example", "moon.example"),
            (2, "192.0.2.1", "fqdn:192.0.2.1"),
            (2, "CN=moon", "fqdn:CN=moon"),
            (2, "@moon", "fqdn:@moon"),
            (2, "keyid:moon", "fqdn:keyid:moon"),
            (2, "%any", "fqdn:%any"),
            (3, "carol@example.org", "carol@example.org"),
            (3, "carol", "email:carol"),
            (3, "CN=carol@example.org", "email:CN=carol@example.org"),
        ] {
            let shown = Identity::from_payload(kind, data.as_bytes()).expect("printable");
            assert_eq!(shown.to_string(), text);
            assert_eq!(identity(text), shown);
        }
    }

    #[test]
    fn only_the_local_part_of_an_address_is_case_sensitive() {
        assert_eq!(identity("Moon.Example"), identity("moon.example"));
        assert_eq!(identity("carol@EXAMPLE.org"), identity("carol@example.org"));
        assert_ne!(identity("Carol@example.org"), identity("carol@example.org"));
        assert_ne!(identity("fqdn:192.0.2.1"), identity("192.0.2.1"));
    }

    #[test]
    fn malformed_payloads_are_refused() {
        for (kind, data) in
            [(1, &b"123"[..]), (5, b"1234"), (2, b""), (2, b"a\0b"), (3, b"a b"), (9, b"CN=x"), (11, b"")]
        {
            assert_eq!(Identity::from_payload(kind, data), Err(IdentityError::Malformed(kind)));
        }
        assert_eq!(Identity::from_payload(10, b"x"), Err(IdentityError::Type(10)));
    }

    #[test]
    fn an_identity_read_from_text_is_short_enough_to_send() {
        for length in [LONGEST, LONGEST + 1] {
            let name = "a".repeat(length);
            let expected = if length > LONGEST { Err(IdentityError::TooLong(length)) } else { Ok(()) };
            assert_eq!(name.parse::<Identity>().map(|_| ()), expected);
            assert_eq!(Identity::from_payload(2, name.as_bytes()).map(|_| ()), expected);
        }
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in ["", "@", "@@", "@#", "@#0", "@#0g", "a b", "ipv4:moon"] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
    }
}
