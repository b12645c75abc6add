//! The name of a peer in its certificate: its common name, or the fields of `x509-username-field`.

use crypto::pki::{AlternativeName, AttributeType, Certificate, NameError};
use std::fmt;

/// The longest name of more than the common name, as in OpenVPN.
const LONGEST: usize = 64;

/// A field of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// The last attribute of this type in the subject.
    Attribute(AttributeType),
    /// The number of the certificate.
    Serial,
    /// The last e-mail address among the alternative names of the subject.
    Email,
}

/// A field, with its name in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field(String, Kind);

/// Fields that make a name, with `_` between them; the common name if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameFields(Vec<Field>);

/// A name of the configuration that is no field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField(pub String);

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the field {}", self.0)
    }
}

impl NameFields {
    /// Reads the fields. As in OpenVPN, a name of small letters alone stands for that of capitals.
    pub fn new(names: &[String]) -> Result<Self, UnknownField> {
        let field = |name: &String| {
            let is_small = name.bytes().all(|letter| letter.is_ascii_lowercase());
            let kind = match name.as_str() {
                "serialNumber" => Ok(Kind::Serial),
                "ext:subjectAltName" => Ok(Kind::Email),
                small if is_small => attribute(&small.to_ascii_uppercase()),
                other => attribute(other),
            };
            kind.map(|kind| Field(name.clone(), kind)).map_err(|_| UnknownField(name.clone()))
        };
        names.iter().map(field).collect::<Result<_, _>>().map(Self)
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of a certificate. An error is the field that it does not have, or whose name is too long.
    pub fn name(&self, certificate: &Certificate) -> Result<String, String> {
        if self.is_empty() {
            return Ok(certificate.subject().common_name().unwrap_or_default().to_owned());
        }
        let parts = self.0.iter().map(|Field(name, kind)| {
            let found = match kind {
                Kind::Attribute(kind) => certificate.subject().last(kind).map(str::to_owned),
                Kind::Serial => Some(serial(certificate.serial())),
                Kind::Email => certificate.names().iter().rev().find_map(|name| match name {
                    AlternativeName::Email(address) => Some(address.clone()),
                    _ => None,
                }),
            };
            found.filter(|found| !found.is_empty() && found.len() <= LONGEST).ok_or_else(|| name.clone())
        });
        Ok(parts.collect::<Result<Vec<String>, String>>()?.join("_"))
    }
}

/// OpenSSL's names count before those of other programs: `SN` is the surname.
fn attribute(name: &str) -> Result<Kind, NameError> {
    AttributeType::openssl(name).map_or_else(|| name.parse(), Ok).map(Kind::Attribute)
}

fn serial(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    format!("0x{}", digits.concat())
}
