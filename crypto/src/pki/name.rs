//! Distinguished names: parsing DER and text, printing, and comparison.

use der::asn1::{Any, AnyRef, BmpString, Ia5StringRef, ObjectIdentifier, PrintableStringRef, Utf8StringRef};
use der::{Decode, Encode, Tag, Tagged};
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::name::{RdnSequence, RelativeDistinguishedName};

/// Attribute types by name. The first name of a type is the one printed; all are parsed.
const TYPES: &[(&str, &str)] = &[
    ("C", "2.5.4.6"),
    ("ST", "2.5.4.8"),
    ("L", "2.5.4.7"),
    ("STREET", "2.5.4.9"),
    ("O", "2.5.4.10"),
    ("OU", "2.5.4.11"),
    ("CN", "2.5.4.3"),
    // The first is printed, as OpenSSL does: programs of OpenVPN look for X509_0_emailAddress.
    ("emailAddress", "1.2.840.113549.1.9.1"),
    ("E", "1.2.840.113549.1.9.1"),
    ("Email", "1.2.840.113549.1.9.1"),
    ("DC", "0.9.2342.19200300.100.1.25"),
    ("UID", "0.9.2342.19200300.100.1.1"),
    ("surname", "2.5.4.4"),
    ("givenName", "2.5.4.42"),
    ("serialNumber", "2.5.4.5"),
    ("title", "2.5.4.12"),
    ("name", "2.5.4.41"),
    ("dnQualifier", "2.5.4.46"),
    ("unstructuredName", "1.2.840.113549.1.9.2"),
];

const EMAIL: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.1");
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const DOMAIN: ObjectIdentifier = ObjectIdentifier::new_unwrap("0.9.2342.19200300.100.1.25");

/// Why a text or DER is not a distinguished name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not the DER of a Name.
    #[error("the distinguished name is malformed")]
    Malformed,
    /// The text is empty.
    #[error("the distinguished name is empty")]
    Empty,
    /// A part lacks its `=`.
    #[error("{0:?} is not of the form TYPE=VALUE")]
    NoValue(String),
    /// An attribute type that is neither a known name nor an object identifier.
    #[error("{0:?} is not an attribute type of a distinguished name, such as C, O, OU or CN")]
    UnknownType(String),
    /// An invalid escape, or a missing quotation mark.
    #[error("the value of {0} has an invalid backslash or quotation mark")]
    Escape(String),
    /// The value has characters that the attribute type does not allow.
    #[error("the value of {0} has characters that are not allowed there")]
    Value(String),
}

/// A distinguished name (RFC 5280, section 4.1.2.4). Names are equal if their parts are equal, in the same order.
/// Comparison ignores the case of ASCII letters, the number of spaces, and the string types.
#[derive(Clone)]
pub struct DistinguishedName(Arc<Parsed>);

struct Parsed {
    der: Vec<u8>,
    parts: Vec<Vec<Attribute>>,
    /// `parts` in the form for comparison.
    folded: Vec<Vec<Attribute>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Attribute {
    kind: ObjectIdentifier,
    value: Value,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Value {
    /// A string.
    Text(String),
    /// A value that is not a string, as DER.
    Other(Vec<u8>),
}

/// The type of an attribute, by its name or as an object identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeType(ObjectIdentifier);

impl FromStr for AttributeType {
    type Err = NameError;

    fn from_str(name: &str) -> Result<Self, NameError> {
        type_of(name).map(Self)
    }
}

impl DistinguishedName {
    /// Parses a Name in DER, as in an ID payload of type ID_DER_ASN1_DN.
    pub fn from_der(bytes: &[u8]) -> Result<Self, NameError> {
        let sequence = RdnSequence::from_der(bytes).map_err(|_| NameError::Malformed)?;
        let attribute = |it: &AttributeTypeAndValue| Attribute { kind: it.oid, value: Value::new(&it.value) };
        let parts: Vec<Vec<_>> = sequence.iter().map(|part| part.iter().map(attribute).collect()).collect();
        let folded = parts.iter().map(|part| folded(part)).collect();
        Ok(Self(Arc::new(Parsed { der: bytes.to_vec(), parts, folded })))
    }

    /// The DER.
    pub fn to_der(&self) -> &[u8] {
        &self.0.der
    }

    /// Whether the name has no parts.
    pub fn is_empty(&self) -> bool {
        self.0.parts.is_empty()
    }

    /// The common name: the last one, if there are several.
    pub fn common_name(&self) -> Option<&str> {
        self.0.parts.iter().rev().flatten().find_map(|attribute| match &attribute.value {
            Value::Text(text) if attribute.kind == COMMON_NAME => Some(text.as_str()),
            _ => None,
        })
    }

    /// The last text of this type.
    pub fn last(&self, kind: &AttributeType) -> Option<&str> {
        let mut all = self.0.parts.iter().flatten().filter(|attribute| attribute.kind == kind.0);
        all.next_back().and_then(|attribute| match &attribute.value {
            Value::Text(text) => Some(text.as_str()),
            Value::Other(_) => None,
        })
    }

    /// The first text of this type.
    pub(super) fn first(&self, kind: &AttributeType) -> Option<&str> {
        let mut all = self.0.parts.iter().flatten().filter(|attribute| attribute.kind == kind.0);
        all.next().and_then(|attribute| match &attribute.value {
            Value::Text(text) => Some(text.as_str()),
            Value::Other(_) => None,
        })
    }

    /// All attributes in order: whether it is the first of its part, type, value.
    pub(super) fn each(&self) -> impl Iterator<Item = (bool, ObjectIdentifier, &Value)> {
        self.0.parts.iter().flat_map(|part| {
            part.iter().enumerate().map(|(index, attribute)| (index == 0, attribute.kind, &attribute.value))
        })
    }

    fn from_attributes(parts: Vec<Vec<(ObjectIdentifier, String)>>) -> Result<Self, NameError> {
        let mut sequence = RdnSequence::default();
        for attributes in parts {
            let mut part = RelativeDistinguishedName::default();
            for (kind, text) in attributes {
                let wrong = || NameError::Value(type_name(kind));
                let value = encode(kind, &text).map_err(|_| wrong())?;
                part.insert(AttributeTypeAndValue { oid: kind, value }).map_err(|_| wrong())?;
            }
            sequence.push(part);
        }
        Self::from_der(&sequence.to_der().map_err(|_| NameError::Malformed)?)
    }
}

/// A part in the form for comparison.
fn folded(part: &[Attribute]) -> Vec<Attribute> {
    let fold = |it: &Attribute| Attribute { kind: it.kind, value: it.value.folded() };
    let mut part: Vec<Attribute> = part.iter().map(fold).collect();
    // DER orders a SET by the encoding, which the folding of case can change.
    part.sort();
    part
}

impl PartialEq for DistinguishedName {
    fn eq(&self, other: &Self) -> bool {
        self.0.folded == other.0.folded
    }
}

impl Eq for DistinguishedName {}

impl Hash for DistinguishedName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.folded.hash(state);
    }
}

impl fmt::Debug for DistinguishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DistinguishedName({self})")
    }
}

impl Value {
    fn new(value: &Any) -> Self {
        match text(value.to_ref()) {
            Some(text) => Self::Text(text),
            None => Self::Other(value.to_der().unwrap_or_default()),
        }
    }

    /// Without differences that do not count: case, and repeated spaces.
    fn folded(&self) -> Self {
        match self {
            Self::Text(text) => {
                let words: Vec<&str> = text.split_whitespace().collect();
                Self::Text(words.join(" ").to_ascii_lowercase())
            }
            Self::Other(der) => Self::Other(der.clone()),
        }
    }
}

fn text(value: AnyRef<'_>) -> Option<String> {
    match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok().map(|it| it.to_string()),
        Tag::PrintableString => value.decode_as::<PrintableStringRef<'_>>().ok().map(|it| it.to_string()),
        Tag::Ia5String => value.decode_as::<Ia5StringRef<'_>>().ok().map(|it| it.to_string()),
        Tag::BmpString => value.decode_as::<BmpString>().ok().map(|it| it.to_string()),
        // Defined as T.61, but in practice written and read as Latin-1.
        Tag::TeletexString => Some(value.value().iter().map(|&byte| char::from(byte)).collect()),
        _ => None,
    }
}

/// RFC 5280, section 4.1.2.4: PrintableString or UTF8String, except that appendix A.1 requires IA5String for some
/// types.
fn encode(kind: ObjectIdentifier, text: &str) -> der::Result<Any> {
    if kind == EMAIL || kind == DOMAIN {
        return Any::encode_from(&Ia5StringRef::new(text)?);
    }
    match PrintableStringRef::new(text) {
        Ok(printable) => Any::encode_from(&printable),
        Err(_) => Any::encode_from(&Utf8StringRef::new(text)?),
    }
}

fn type_name(kind: ObjectIdentifier) -> String {
    let dotted = kind.to_string();
    let known = TYPES.iter().find(|(_, oid)| *oid == dotted);
    known.map_or(dotted, |(name, _)| (*name).to_owned())
}

fn type_of(name: &str) -> Result<ObjectIdentifier, NameError> {
    let known = TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    let dotted = known.map_or(name, |(_, oid)| oid);
    ObjectIdentifier::new(dotted).map_err(|_| NameError::UnknownType(name.to_owned()))
}

/// `C=CH, O=strongSwan, CN=moon`, in the order of the DER.
impl fmt::Display for DistinguishedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.parts.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            for (index, attribute) in part.iter().enumerate() {
                f.write_str(if index == 0 { "" } else { "+" })?;
                write!(f, "{}=", type_name(attribute.kind))?;
                match &attribute.value {
                    Value::Text(text) => write_text(f, text)?,
                    Value::Other(der) => write_hex(f, der)?,
                }
            }
        }
        Ok(())
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let last = text.chars().count().saturating_sub(1);
    for (index, character) in text.chars().enumerate() {
        let at_edge = index == 0 || index == last;
        match character {
            ',' | ';' | '+' | '"' | '\\' | '=' | '/' | '<' | '>' => write!(f, "\\{character}")?,
            '#' if index == 0 => f.write_str("\\#")?,
            character if character.is_control() || (at_edge && character.is_whitespace()) => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    write!(f, "\\{byte:02x}")?;
                }
            }
            character => f.write_char(character)?,
        }
    }
    Ok(())
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    f.write_char('#')?;
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Parses `C=CH, O=strongSwan, CN=moon`, `/C=CH/O=strongSwan/CN=moon` and `O=a+OU=b; CN="c, d"`. The parts are in the
/// order of the DER, as in OpenSSL and strongSwan; RFC 4514 uses the reverse order.
impl FromStr for DistinguishedName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let text = text.trim();
        let (text, slashes) = text.strip_prefix('/').map_or((text, false), |rest| (rest, true));
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        let mut parts = vec![Vec::new()];
        let mut rest = text;
        loop {
            let (name, after) =
                rest.split_once('=').ok_or_else(|| NameError::NoValue(rest.trim().to_owned()))?;
            let kind = type_of(name.trim())?;
            let (value, end, after) =
                value(after, slashes).ok_or_else(|| NameError::Escape(type_name(kind)))?;
            parts.last_mut().expect("there is always one").push((kind, value));
            match end {
                None => return Self::from_attributes(parts),
                Some('+') => {}
                Some(_) => parts.push(Vec::new()),
            }
            rest = after;
        }
    }
}

/// Parses the value at the start of `text`. Also returns the separator and the rest. `None` if an escape is invalid.
fn value(text: &str, slashes: bool) -> Option<(String, Option<char>, &str)> {
    let mut bytes = Vec::new();
    // Trailing spaces count only if escaped or quoted.
    let mut kept = 0;
    let mut quoted = false;
    let mut rest = text.trim_start();
    loop {
        let mut characters = rest.chars();
        let next = characters.next();
        rest = characters.as_str();
        match next {
            None if quoted => return None,
            Some('"') => {
                quoted = !quoted;
                kept = bytes.len();
            }
            Some('\\') => {
                let (escaped, after) = unescape(rest)?;
                bytes.extend(escaped);
                kept = bytes.len();
                rest = after;
            }
            Some(character) if quoted || !ends(character, slashes) => {
                bytes.extend(character.encode_utf8(&mut [0; 4]).bytes());
                if quoted || !character.is_whitespace() {
                    kept = bytes.len();
                }
            }
            end => {
                bytes.truncate(kept);
                return Some((String::from_utf8(bytes).ok()?, end, rest));
            }
        }
    }
}

fn ends(character: char, slashes: bool) -> bool {
    if slashes { matches!(character, '/' | '+') } else { matches!(character, ',' | ';' | '+') }
}

/// Parses the rest of an escape after its backslash: a byte in two hexadecimal digits, or a literal character.
fn unescape(text: &str) -> Option<(Vec<u8>, &str)> {
    if let Some(digits) = text.get(..2)
        && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    {
        return Some((vec![u8::from_str_radix(digits, 16).ok()?], &text[2..]));
    }
    let character = text.chars().next()?;
    let length = character.len_utf8();
    Some((text.as_bytes()[..length].to_vec(), &text[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DistinguishedName {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// A name whose strings are UTF8String, as OpenSSL writes them.
    fn utf8(parts: &[(&str, &str)]) -> DistinguishedName {
        let mut sequence = RdnSequence::default();
        for (kind, text) in parts {
            let value = Any::encode_from(&Utf8StringRef::new(text).expect("text")).expect("short");
            let part = vec![AttributeTypeAndValue { oid: type_of(kind).expect("known"), value }];
            sequence.push(part.try_into().expect("one is sorted"));
        }
        DistinguishedName::from_der(&sequence.to_der().expect("short")).expect("ours")
    }

    #[test]
    fn a_printed_name_parses_to_the_same_name() {
        for text in [
            "C=CH, O=strongSwan, CN=moon",
            "C=CH, O=Müller \\& Söhne, CN=a\\, b",
            "DC=org, DC=example, UID=7, emailAddress=a@b.example",
            "OU=a+OU=b, CN=c",
            "1.2.3.4=x",
            "CN=\\#1, CN=a\\\\b, CN=\\20x\\20",
        ] {
            let parsed = name(text);
            assert_eq!(name(&parsed.to_string()), parsed, "{text}");
        }
        assert_eq!(name("C=CH, O=strongSwan, CN=moon").to_string(), "C=CH, O=strongSwan, CN=moon");
    }

    #[test]
    fn the_der_is_that_of_strongswan() {
        let expected = "3033310b300906035504061302434831133011060355040a130a7374726f6e675377616e310f300d060355\
                        040313066d6f6f6e2e78";
        let expected = base16ct::lower::decode_vec(expected).expect("hex");
        assert_eq!(name("C=CH, O=strongSwan, CN=moon.x").to_der(), expected);
    }

    #[test]
    fn all_notations_of_a_name_are_parsed() {
        let expected = name("C=CH, O=a\\, b, CN=moon");
        for text in [
            "/C=CH/O=a, b/CN=moon",
            "c=ch;o=\"A,  B\";cn=Moon",
            "  C = CH ,O=a\\2c b,   CN=moon  ",
            "2.5.4.6=CH, 2.5.4.10=a\\, b, 2.5.4.3=moon",
        ] {
            assert_eq!(name(text), expected, "{text}");
        }
    }

    #[test]
    fn string_types_do_not_matter() {
        assert_eq!(utf8(&[("C", "CH"), ("CN", "moon")]), name("C=CH, CN=MOON"));
        assert_eq!(utf8(&[("CN", " a   b ")]), name("CN=a b"));
    }

    #[test]
    fn order_number_and_values_of_parts_matter() {
        let expected = name("C=CH, O=a, CN=moon");
        for other in [
            "C=CH, CN=moon, O=a",
            "C=CH, O=a",
            "C=CH, O=a, CN=moon, CN=moon",
            "C=CH, O=a, CN=sun",
            "C=CH, O=a, OU=moon",
        ] {
            assert_ne!(name(other), expected, "{other}");
        }
        assert_eq!(name("OU=a+CN=b"), name("CN=b+OU=a"));
        assert_ne!(name("OU=a+CN=b"), name("OU=a, CN=b"));
    }

    /// The Kelvin sign must not equal k, or a name could be made that looks like another's.
    #[test]
    fn only_ascii_case_is_ignored() {
        assert_ne!(name("CN=\u{212a}"), name("CN=k"));
        assert_ne!(name("CN=moon\\00"), name("CN=moon"));
    }

    #[test]
    fn errors_name_the_wrong_part() {
        let error = |text: &str| text.parse::<DistinguishedName>().expect_err("it is wrong");
        assert_eq!(error("  "), NameError::Empty);
        assert_eq!(error("moon"), NameError::NoValue("moon".into()));
        assert_eq!(error("CN=a, moon"), NameError::NoValue("moon".into()));
        assert_eq!(error("XY=a"), NameError::UnknownType("XY".into()));
        assert_eq!(error("CN=a\\"), NameError::Escape("CN".into()));
        assert_eq!(error("CN=\"a"), NameError::Escape("CN".into()));
        assert_eq!(error("CN=\\ff"), NameError::Escape("CN".into()));
        assert_eq!(error("E=ü@x"), NameError::Value("emailAddress".into()));
        assert!(DistinguishedName::from_der(&[0x30, 1]).is_err());
    }
}
