//! Who a gateway says it is (RFC 7296 section 3.5).

use super::message::Identification;
use super::message::numbers::identity as kinds;
use std::fmt;
use std::net::IpAddr;

/// Bytes of an identity that we are ready to compare.
const LONGEST: usize = 1024;

/// An identity.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Identity {
    /// An address.
    Address(IpAddr),
    /// A domain name.
    Fqdn(String),
    /// An e-mail address.
    Email(String),
    /// The subject of a certificate, in DER.
    Dn(Vec<u8>),
    /// Opaque bytes.
    KeyId(Vec<u8>),
}

impl Identity {
    /// Reads an identification payload; `None` if it is of another type, or not what its type says.
    pub fn of(payload: &Identification<'_>) -> Option<Self> {
        let text = || std::str::from_utf8(payload.data).ok().map(str::to_owned);
        if payload.data.len() > LONGEST {
            return None;
        }
        match payload.kind {
            kinds::IPV4 => <[u8; 4]>::try_from(payload.data).ok().map(|octets| Self::Address(octets.into())),
            kinds::IPV6 => <[u8; 16]>::try_from(payload.data).ok().map(|octets| Self::Address(octets.into())),
            kinds::FQDN => text().map(Self::Fqdn),
            kinds::RFC822 => text().map(Self::Email),
            kinds::DER_ASN1_DN => Some(Self::Dn(payload.data.to_vec())),
            kinds::KEY_ID => Some(Self::KeyId(payload.data.to_vec())),
            _ => None,
        }
    }

    /// The body of the identification payload.
    pub fn body(&self) -> Vec<u8> {
        let address;
        let (kind, data) = match self {
            Self::Address(IpAddr::V4(octets)) => {
                address = octets.octets().to_vec();
                (kinds::IPV4, &address[..])
            }
            Self::Address(IpAddr::V6(octets)) => {
                address = octets.octets().to_vec();
                (kinds::IPV6, &address[..])
            }
            Self::Fqdn(name) => (kinds::FQDN, name.as_bytes()),
            Self::Email(name) => (kinds::RFC822, name.as_bytes()),
            Self::Dn(der) => (kinds::DER_ASN1_DN, &der[..]),
            Self::KeyId(bytes) => (kinds::KEY_ID, &bytes[..]),
        };
        [&[kind, 0, 0, 0], data].concat()
    }

    /// Whether both are the same; letters of names have no case.
    pub fn matches(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fqdn(one), Self::Fqdn(other)) | (Self::Email(one), Self::Email(other)) => {
                one.eq_ignore_ascii_case(other)
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            // What a stranger sends must not move the cursor of who reads it.
            Self::Fqdn(name) | Self::Email(name) => write!(f, "{}", name.escape_debug()),
            Self::Dn(bytes) => write!(f, "dn:{}", Hex(bytes)),
            Self::KeyId(bytes) => write!(f, "keyid:{}", Hex(bytes)),
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_identity_returns_from_its_payload() {
        for identity in [
            Identity::Address("192.0.2.1".parse().expect("literal")),
            Identity::Address("2001:db8::1".parse().expect("literal")),
            Identity::Fqdn("vpn.example".to_owned()),
            Identity::Email("a@b.example".to_owned()),
            Identity::Dn(vec![0x30, 0]),
            Identity::KeyId(vec![1, 2, 3]),
        ] {
            let body = identity.body();
            let payload = Identification::parse(&body).expect("ours");
            assert_eq!(Identity::of(&payload), Some(identity));
        }
    }

    #[test]
    fn what_is_not_of_its_type_is_none() {
        for body in
            [&[1, 0, 0, 0, 1, 2, 3][..], &[5, 0, 0, 0, 1], &[2, 0, 0, 0, 0xff], &[99, 0, 0, 0], &[0; 4]]
        {
            let payload = Identification::parse(body).expect("long enough");
            assert_eq!(Identity::of(&payload), None, "{body:?}");
        }
        let long = [&[11, 0, 0, 0][..], &[0; 1025]].concat();
        assert_eq!(Identity::of(&Identification::parse(&long).expect("long enough")), None);
    }

    #[test]
    fn names_have_no_case_but_types_differ() {
        let name = |name: &str| Identity::Fqdn(name.to_owned());
        assert!(name("VPN.example").matches(&name("vpn.Example")));
        assert!(!name("vpn.example").matches(&name("vpn.example.org")));
        assert!(!name("a@b").matches(&Identity::Email("a@b".to_owned())));
    }

    #[test]
    fn a_strangers_name_is_printed_harmlessly() {
        assert_eq!(Identity::Fqdn("a\u{1b}[2J".to_owned()).to_string(), "a\\u{1b}[2J");
    }
}
