//! Fields of certificates with the names and the texts of OpenSSL, which OpenVPN hands to programs.

use super::name::Value;
use super::{AttributeType, Certificate, DistinguishedName};
use aws_lc_rs::digest;
use der::asn1::{BitStringRef, Ia5StringRef, ObjectIdentifier, OctetStringRef};
use der::{Decode, Encode};
use std::fmt::Write;
use std::net::Ipv6Addr;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAltName,
};

/// Attribute types: the short name, the long name, the object identifier.
const ATTRIBUTES: &[(&str, &str, &str)] = &[
    ("C", "countryName", "2.5.4.6"),
    ("ST", "stateOrProvinceName", "2.5.4.8"),
    ("L", "localityName", "2.5.4.7"),
    ("street", "streetAddress", "2.5.4.9"),
    ("O", "organizationName", "2.5.4.10"),
    ("OU", "organizationalUnitName", "2.5.4.11"),
    ("CN", "commonName", "2.5.4.3"),
    ("SN", "surname", "2.5.4.4"),
    ("GN", "givenName", "2.5.4.42"),
    ("serialNumber", "serialNumber", "2.5.4.5"),
    ("title", "title", "2.5.4.12"),
    ("description", "description", "2.5.4.13"),
    ("businessCategory", "businessCategory", "2.5.4.15"),
    ("postalCode", "postalCode", "2.5.4.17"),
    ("telephoneNumber", "telephoneNumber", "2.5.4.20"),
    ("name", "name", "2.5.4.41"),
    ("initials", "initials", "2.5.4.43"),
    ("generationQualifier", "generationQualifier", "2.5.4.44"),
    ("dnQualifier", "dnQualifier", "2.5.4.46"),
    ("pseudonym", "pseudonym", "2.5.4.65"),
    ("organizationIdentifier", "organizationIdentifier", "2.5.4.97"),
    ("emailAddress", "emailAddress", "1.2.840.113549.1.9.1"),
    ("unstructuredName", "unstructuredName", "1.2.840.113549.1.9.2"),
    ("unstructuredAddress", "unstructuredAddress", "1.2.840.113549.1.9.8"),
    ("UID", "userId", "0.9.2342.19200300.100.1.1"),
    ("DC", "domainComponent", "0.9.2342.19200300.100.1.25"),
    ("jurisdictionL", "jurisdictionLocalityName", "1.3.6.1.4.1.311.60.2.1.1"),
    ("jurisdictionST", "jurisdictionStateOrProvinceName", "1.3.6.1.4.1.311.60.2.1.2"),
    ("jurisdictionC", "jurisdictionCountryName", "1.3.6.1.4.1.311.60.2.1.3"),
];

/// Extensions, likewise, and how their values are written.
const EXTENSIONS: &[(&str, &str, &str, Text)] = &[
    ("subjectKeyIdentifier", "X509v3 Subject Key Identifier", "2.5.29.14", key_identifier),
    ("keyUsage", "X509v3 Key Usage", "2.5.29.15", key_usage),
    ("subjectAltName", "X509v3 Subject Alternative Name", "2.5.29.17", alternative_names),
    ("issuerAltName", "X509v3 Issuer Alternative Name", "2.5.29.18", alternative_names),
    ("basicConstraints", "X509v3 Basic Constraints", "2.5.29.19", basic_constraints),
    ("authorityKeyIdentifier", "X509v3 Authority Key Identifier", "2.5.29.35", authority),
    ("extendedKeyUsage", "X509v3 Extended Key Usage", "2.5.29.37", purposes),
    ("nsCertType", "Netscape Cert Type", "2.16.840.1.113730.1.1", netscape_type),
    ("nsComment", "Netscape Comment", "2.16.840.1.113730.1.13", comment),
];

/// Purposes of extended key usage by their long names.
const PURPOSES: &[(&str, &str)] = &[
    ("TLS Web Server Authentication", "1.3.6.1.5.5.7.3.1"),
    ("TLS Web Client Authentication", "1.3.6.1.5.5.7.3.2"),
    ("Code Signing", "1.3.6.1.5.5.7.3.3"),
    ("E-mail Protection", "1.3.6.1.5.5.7.3.4"),
    ("IPSec End System", "1.3.6.1.5.5.7.3.5"),
    ("IPSec Tunnel", "1.3.6.1.5.5.7.3.6"),
    ("IPSec User", "1.3.6.1.5.5.7.3.7"),
    ("Time Stamping", "1.3.6.1.5.5.7.3.8"),
    ("OCSP Signing", "1.3.6.1.5.5.7.3.9"),
    ("ipsec Internet Key Exchange", "1.3.6.1.5.5.7.3.17"),
    ("Microsoft Smartcard Login", "1.3.6.1.4.1.311.20.2.2"),
    ("Any Extended Key Usage", "2.5.29.37.0"),
];

/// Writes the value of an extension; `None` if it is malformed.
type Text = fn(&[u8]) -> Option<String>;

/// A field of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// The first attribute of this type in the subject.
    Attribute(AttributeType),
    /// The extension with this object identifier.
    Extension(ObjectIdentifier),
    /// The SHA-1 fingerprint.
    Sha1,
    /// The SHA-256 fingerprint.
    Sha256,
}

impl Field {
    /// The field with this name: short, long, or an object identifier. As in OpenSSL, the case of letters counts.
    pub fn named(name: &str) -> Option<Self> {
        let is = |short: &str, long: &str, oid: &str| [short, long, oid].contains(&name);
        if let Some(kind) = AttributeType::openssl(name) {
            return Some(Self::Attribute(kind));
        }
        if let Some((_, _, oid, _)) = EXTENSIONS.iter().find(|(short, long, oid, _)| is(short, long, oid)) {
            return ObjectIdentifier::new(oid).ok().map(Self::Extension);
        }
        match name {
            "SHA1" | "sha1" => Some(Self::Sha1),
            "SHA256" | "sha256" => Some(Self::Sha256),
            _ => None,
        }
    }
}

impl AttributeType {
    /// The type with this name of OpenSSL: short, long, or an object identifier. The case of letters counts.
    pub fn openssl(name: &str) -> Option<Self> {
        let is_it = |(short, long, oid): &&(&str, &str, &str)| [*short, *long, *oid].contains(&name);
        ATTRIBUTES.iter().find(is_it).and_then(|(_, _, oid)| oid.parse().ok())
    }
}

impl Certificate {
    /// The text of a field, as OpenSSL writes it. Numbers are hexadecimal with colons.
    pub fn field(&self, field: &Field) -> Option<String> {
        match field {
            Field::Attribute(kind) => self.subject().first(kind).map(str::to_owned),
            Field::Extension(oid) => self.extension(*oid),
            Field::Sha1 => {
                Some(colons(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, self.to_der()).as_ref()))
            }
            Field::Sha256 => Some(colons(digest::digest(&digest::SHA256, self.to_der()).as_ref())),
        }
    }

    fn extension(&self, oid: ObjectIdentifier) -> Option<String> {
        let dotted = oid.to_string();
        let (_, _, _, text) = EXTENSIONS.iter().find(|(_, _, known, _)| *known == dotted)?;
        let parsed = x509_cert::Certificate::from_der(self.to_der()).ok()?;
        let extension = parsed.tbs_certificate().extensions()?.iter().find(|it| it.extn_id == oid)?;
        text(extension.extn_value.as_bytes())
    }
}

impl DistinguishedName {
    /// `C=DE, O=Example, CN=vpn`, as OpenVPN writes it: names of OpenSSL, and ` + ` in a part of several attributes. A backslash is
    /// doubled, and a control character is a backslash with two digits.
    pub fn to_openssl(&self) -> String {
        let mut text = String::new();
        for (is_new, kind, value) in self.each() {
            text.push_str(match (text.is_empty(), is_new) {
                (true, _) => "",
                (false, true) => ", ",
                (false, false) => " + ",
            });
            text.push_str(&short_name(kind));
            text.push('=');
            match value {
                Value::Text(value) => value.chars().for_each(|letter| match letter {
                    '\\' => text.push_str("\\\\"),
                    letter if letter.is_ascii_control() => {
                        let _ = write!(text, "\\{:02X}", u32::from(letter));
                    }
                    letter => text.push(letter),
                }),
                Value::Other(der) => {
                    text.push('#');
                    text.extend(der.iter().map(|byte| format!("{byte:02X}")));
                }
            }
        }
        text
    }

    /// The attributes with text, in order: OpenSSL's name of the type, value.
    pub fn openssl_attributes(&self) -> impl Iterator<Item = (String, &str)> {
        self.each().filter_map(|(_, kind, value)| match value {
            Value::Text(text) => Some((short_name(kind), text.as_str())),
            Value::Other(_) => None,
        })
    }
}

fn short_name(kind: ObjectIdentifier) -> String {
    let dotted = kind.to_string();
    let known = ATTRIBUTES.iter().find(|(_, _, oid)| *oid == dotted);
    known.map_or(dotted, |(short, _, _)| (*short).to_owned())
}

fn colons(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}

/// The names of the bits that are set.
fn set(names: &[&str], is_set: impl Fn(usize) -> bool) -> String {
    let names: Vec<&str> = (0..names.len()).filter(|bit| is_set(*bit)).map(|bit| names[bit]).collect();
    names.join(", ")
}

fn key_identifier(der: &[u8]) -> Option<String> {
    Some(colons(<&OctetStringRef>::from_der(der).ok()?.as_bytes()))
}

fn key_usage(der: &[u8]) -> Option<String> {
    let usage = KeyUsage::from_der(der).ok()?;
    let bits = [
        usage.digital_signature(),
        usage.non_repudiation(),
        usage.key_encipherment(),
        usage.data_encipherment(),
        usage.key_agreement(),
        usage.key_cert_sign(),
        usage.crl_sign(),
        usage.encipher_only(),
        usage.decipher_only(),
    ];
    let names = [
        "Digital Signature",
        "Non Repudiation",
        "Key Encipherment",
        "Data Encipherment",
        "Key Agreement",
        "Certificate Sign",
        "CRL Sign",
        "Encipher Only",
        "Decipher Only",
    ];
    Some(set(&names, |bit| bits[bit]))
}

fn basic_constraints(der: &[u8]) -> Option<String> {
    let BasicConstraints { ca, path_len_constraint } = BasicConstraints::from_der(der).ok()?;
    let length = path_len_constraint.map(|length| format!(", pathlen:{length}")).unwrap_or_default();
    Some(format!("CA:{}{length}", if ca { "TRUE" } else { "FALSE" }))
}

/// The key alone: OpenSSL writes an issuer with its serial number in several lines.
fn authority(der: &[u8]) -> Option<String> {
    let found = AuthorityKeyIdentifier::from_der(der).ok()?;
    let is_key = found.authority_cert_issuer.is_none() && found.authority_cert_serial_number.is_none();
    found.key_identifier.filter(|_| is_key).map(|key| colons(key.as_bytes()))
}

fn purposes(der: &[u8]) -> Option<String> {
    let name = |oid: &ObjectIdentifier| {
        let dotted = oid.to_string();
        let known = PURPOSES.iter().find(|(_, oid)| *oid == dotted);
        known.map_or(dotted, |(name, _)| (*name).to_owned())
    };
    let names: Vec<String> = ExtendedKeyUsage::from_der(der).ok()?.0.iter().map(name).collect();
    Some(names.join(", "))
}

fn alternative_names(der: &[u8]) -> Option<String> {
    let names: Vec<String> = SubjectAltName::from_der(der).ok()?.0.iter().filter_map(general_name).collect();
    Some(names.join(", "))
}

fn general_name(name: &GeneralName) -> Option<String> {
    Some(match name {
        GeneralName::DnsName(name) => format!("DNS:{name}"),
        GeneralName::Rfc822Name(name) => format!("email:{name}"),
        GeneralName::UniformResourceIdentifier(name) => format!("URI:{name}"),
        GeneralName::RegisteredId(oid) => format!("Registered ID:{oid}"),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
                (Ok([a, b, c, d]), _) => format!("IP Address:{a}.{b}.{c}.{d}"),
                (_, Ok(v6)) => {
                    let groups = Ipv6Addr::from(v6).segments().map(|group| format!("{group:X}"));
                    format!("IP Address:{}", groups.join(":"))
                }
                _ => "IP Address:<invalid>".to_owned(),
            }
        }
        GeneralName::DirectoryName(name) => {
            let name = DistinguishedName::from_der(&name.to_der().ok()?).ok()?;
            format!("DirName:{}", name.to_openssl())
        }
        GeneralName::OtherName(_) => "othername:<unsupported>".to_owned(),
        GeneralName::EdiPartyName(_) => return None,
    })
}

fn netscape_type(der: &[u8]) -> Option<String> {
    let bits = BitStringRef::from_der(der).ok()?;
    let byte = bits.raw_bytes().first().copied().unwrap_or(0);
    let names = [
        "SSL Client",
        "SSL Server",
        "S/MIME",
        "Object Signing",
        "Unused",
        "SSL CA",
        "S/MIME CA",
        "Object Signing CA",
    ];
    Some(set(&names, |bit| byte & 0x80 >> bit != 0))
}

fn comment(der: &[u8]) -> Option<String> {
    Ia5StringRef::from_der(der).ok().map(|text| text.to_string())
}
