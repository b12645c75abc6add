//! What programs are told about certificates: OpenVPN's variables `tls_` and `X509_`.

use super::scripts::Environment;
use crypto::hash;
use crypto::pki::{Certificate, Field};
use std::collections::BTreeMap;

/// A field of `x509-track`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Track {
    /// Its name in the configuration, and in the variable.
    name: String,
    /// Whether it is told of the authorities, too.
    of_chain: bool,
    field: Field,
}

/// The fields of certificates that programs are told about (`x509-track`); the whole subject if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracked(Vec<Track>);

impl Tracked {
    /// Reads the names of fields; `+` before a name is for the whole chain. An error is a name that is not known.
    pub fn new(names: &[String]) -> Result<Self, String> {
        let track = |text: &String| {
            let name = text.strip_prefix('+').unwrap_or(text);
            let field = Field::named(name).ok_or_else(|| name.to_owned())?;
            Ok(Track { name: name.to_owned(), of_chain: text.starts_with('+'), field })
        };
        names.iter().map(track).collect::<Result<_, _>>().map(Self)
    }

    fn tell(&self, environment: &mut Environment, depth: usize, certificate: &Certificate) {
        for Track { name, of_chain, field } in &self.0 {
            if (depth == 0 || *of_chain)
                && let Some(value) = certificate.field(field)
            {
                environment.set(&format!("X509_{depth}_{name}"), value);
            }
        }
    }
}

/// Variables about a certificate of a chain, in which that of the peer has the depth 0.
pub(super) fn tell(
    environment: &mut Environment,
    depth: usize,
    certificate: &Certificate,
    tracked: &Tracked,
) {
    let colons = |bytes: &[u8]| {
        let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        bytes.join(":")
    };
    let der = certificate.to_der();
    environment.set(&format!("tls_id_{depth}"), certificate.subject().to_openssl());
    environment.set(&format!("tls_digest_{depth}"), colons(&hash::sha1(&[der])));
    environment.set(&format!("tls_digest_sha256_{depth}"), colons(&hash::sha256(&[der])));
    environment.set(&format!("tls_serial_{depth}"), decimal(certificate.serial()));
    environment.set(&format!("tls_serial_hex_{depth}"), colons(certificate.serial()));
    if !tracked.0.is_empty() {
        return tracked.tell(environment, depth, certificate);
    }
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for (name, value) in certificate.subject().openssl_attributes() {
        // The second of a type has a number behind its name.
        let number = times.entry(name.clone()).or_insert(0);
        let name = if *number == 0 { name } else { format!("{name}_{number}") };
        *number += 1;
        environment.set(&format!("X509_{depth}_{name}"), value);
    }
}

/// A serial number, which has more digits than any integer here.
pub(super) fn decimal(bytes: &[u8]) -> String {
    let mut digits = vec![0u8];
    for byte in bytes {
        let mut carry = u32::from(*byte);
        for digit in &mut digits {
            carry += u32::from(*digit) << 8;
            *digit = (carry % 10) as u8;
            carry /= 10;
        }
        while carry > 0 {
            digits.push((carry % 10) as u8);
            carry /= 10;
        }
    }
    digits.iter().rev().map(|digit| char::from(b'0' + digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with OpenSSL 3.0, by an authority without a file here.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIICkjCCAjmgAwIBAgIULH1RCOtqlmRgf7A8/gHP3ei1XjowCgYIKoZIzj0EAwIw
KjELMAkGA1UEBhMCREUxDjAMBgNVBAoMBUNBb3JnMQswCQYDVQQDDAJDQTAgFw0y
NjExMjMyMzQ0NTdaGA8yMTI2MTAzMDIzNDQ1N1owZzELMAkGA1UEBhMCREUxGTAI
BgNVBAsMAXgwDQYDVQQKDAZhLCBiXGMxDjAMBgNVBAQMBU1laWVyMQ0wCwYDVQQq
DARBbm5hMQ8wDQYDVQQKDAZzZWNvbmQxDTALBgNVBAMMBGFubmEwWTATBgcqhkjO
PQIBBggqhkjOPQMBBwNCAARpGLFp4eD4bhQ6cr8wV6CdfiyqPhCpngUPqmozqwCr
rCDVeMVZhuoy+ts8Vmi4TNuMr4KiPeB5Vn1eaDGJZmnpo4H9MIH6MAkGA1UdEwQC
MAAwCwYDVR0PBAQDAgXgMCIGA1UdJQQbMBkGCCsGAQUFBwMCBggrBgEFBQcDAQYD
KgMEME0GA1UdEQRGMESCCWEuZXhhbXBsZYEQYW5uYUBleGFtcGxlLm9yZ4cEwAAC
AYcQIAENuAAAAAAAAAAAAAAAAYYJaHR0cDovL3gviAIqAzAdBgNVHQ4EFgQU62vX
8U4/l8CJurqdGx767744pNEwHwYDVR0jBBgwFoAUH7I9NEgis41ygPIs321giMU3
bCowEQYJYIZIAYb4QgEBBAQDAgbAMBoGCWCGSAGG+EIBDQQNFgtoZWxsbyB0aGVy
ZTAKBggqhkjOPQQDAgNHADBEAiBcHm5KH9DMR84WUw9McqyWT73hEui5YmKm9rWQ
rHTl/QIgHWhnycmQEfgGdSgWk6psI30I/+lHxZ/e/24vtHQZeuM=
-----END CERTIFICATE-----
";

    fn told(tracked: &[&str], depth: usize) -> Vec<(String, String)> {
        let names: Vec<String> = tracked.iter().map(|name| (*name).to_owned()).collect();
        let tracked = Tracked::new(&names).expect("they are known");
        let certificates = Certificate::from_file(CERTIFICATE.as_bytes()).expect("it is valid");
        let mut environment = Environment::default();
        tell(&mut environment, depth, &certificates[0], &tracked);
        let all =
            environment.iter().filter(|(name, _)| name.starts_with("X509") || name.starts_with("tls_id"));
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    const SUBJECT: &str = "C=DE, OU=x + O=a, b\\\\c, SN=Meier, GN=Anna, O=second, CN=anna";

    /// The variables are those of OpenVPN 2.6.14 for the same certificate.
    #[test]
    fn a_subject_is_told_with_the_names_of_openssl() {
        let expected = [
            ("X509_0_C", "DE"),
            ("X509_0_CN", "anna"),
            ("X509_0_GN", "Anna"),
            ("X509_0_O", "a, b\\c"),
            ("X509_0_OU", "x"),
            ("X509_0_O_1", "second"),
            ("X509_0_SN", "Meier"),
            ("tls_id_0", SUBJECT),
        ];
        assert_eq!(told(&[], 0), pairs(&expected));
    }

    /// The variables are those of OpenVPN 2.6.14 with the same lines.
    #[test]
    fn only_fields_that_are_tracked_are_told() {
        let lines = [
            "SHA1",
            "+SHA256",
            "basicConstraints",
            "keyUsage",
            "subjectAltName",
            "extendedKeyUsage",
            "O",
            "surname",
            "2.5.4.42",
            "nsComment",
            "subjectKeyIdentifier",
            "authorityKeyIdentifier",
            "nsCertType",
            "telephoneNumber",
        ];
        let expected = [
            ("X509_0_25442", "Anna"),
            ("X509_0_O", "a, b\\c"),
            ("X509_0_SHA1", "9C:0B:AF:E3:75:E9:36:B9:28:A1:3D:45:9E:42:1D:D0:8F:6A:37:D3"),
            (
                "X509_0_SHA256",
                "A3:DD:85:F4:1E:B3:81:40:C0:68:92:29:45:19:B4:6E:49:0B:92:54:7C:E8:87:68:50:46:BB:C3:A6:7E:28:E8",
            ),
            ("X509_0_authorityKeyIdentifier", "1F:B2:3D:34:48:22:B3:8D:72:80:F2:2C:DF:6D:60:88:C5:37:6C:2A"),
            ("X509_0_basicConstraints", "CA:FALSE"),
            (
                "X509_0_extendedKeyUsage",
                "TLS Web Client Authentication, TLS Web Server Authentication, 1.2.3.4",
            ),
            ("X509_0_keyUsage", "Digital Signature, Non Repudiation, Key Encipherment"),
            ("X509_0_nsCertType", "SSL Client, SSL Server"),
            ("X509_0_nsComment", "hello there"),
            (
                "X509_0_subjectAltName",
                "DNS:a.example, email:anna@example.org, IP Address:192.0.2.1, IP Address:2001:DB8:0:0:0:0:0:1, URI:http://x/, Registered ID:1.2.3",
            ),
            ("X509_0_subjectKeyIdentifier", "EB:6B:D7:F1:4E:3F:97:C0:89:BA:BA:9D:1B:1E:FA:EF:BE:38:A4:D1"),
            ("X509_0_surname", "Meier"),
            ("tls_id_0", SUBJECT),
        ];
        assert_eq!(told(&lines, 0), pairs(&expected));
        let of_chain: Vec<String> = told(&lines, 1).into_iter().map(|(name, _)| name).collect();
        assert_eq!(of_chain, ["X509_1_SHA256", "tls_id_1"]);
        assert_eq!(Tracked::new(&["+nosuch".to_owned()]), Err("nosuch".to_owned()));
    }

    #[test]
    fn a_serial_number_is_written_in_decimal_digits() {
        assert_eq!(decimal(&[]), "0");
        assert_eq!(decimal(&[0, 0x37, 0xab, 0x36, 0xf0]), "933967600");
        assert_eq!(decimal(&[0xff; 20]), "1461501637330902918203684832716283019655932542975");
    }
}
