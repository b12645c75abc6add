//! An authority of the configuration, which signs certificates and lists.

use crate::Failure;
use base64ct::{Base64, Encoding};
use config::Tree;
use der::asn1::{Ia5StringRef, PrintableStringRef, Utf8StringRef};
use der::{Decode, Encode, Tag, Tagged};
use rcgen::string::{Ia5String, PrintableString};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::PrivateKeyDer;
use std::collections::BTreeSet;
use x509_cert::Certificate;
use x509_cert::certificate::Rfc5280;
use x509_cert::crl::CertificateList;
use x509_cert::ext::pkix::SubjectKeyIdentifier;
use x509_cert::name::Name;
use zeroize::Zeroizing;

/// An authority with its private key.
pub(super) struct Authority {
    name: String,
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    /// The authority of this name.
    pub(super) fn of(tree: &Tree, name: &str) -> Result<Self, Failure> {
        let place = format!("pki ca {name}");
        let missing = |what: &str| {
            format!(
                "{place} has no {what}\n  fix: set it, or make one: postern generate pki ca install {name}"
            )
        };
        let branch = tree.at(&["pki", "ca", name]).ok_or_else(|| {
            format!(
                "there is no {place}\n  fix: postern generate pki ca install {name}, and commit the lines"
            )
        })?;
        let certificate = der(branch, "certificate").ok_or_else(|| missing("certificate"))?;
        let private = branch.at(&["private"]);
        if private.is_some_and(|private| private.has("password-protected")) {
            return Err(format!("the private key of {place} has a passphrase, which is not supported").into());
        }
        let key = private.and_then(|private| der(private, "key")).ok_or_else(|| missing("private key"))?;
        Self::new(&place, &certificate, &key)
    }

    /// An authority by its certificate and its key.
    pub(super) fn new(place: &str, certificate: &[u8], key: &[u8]) -> Result<Self, Failure> {
        let certificate = read(place, certificate)?;
        let key =
            PrivateKeyDer::try_from(key).map_err(|error| format!("the private key of {place}: {error}"))?;
        let key = KeyPair::try_from(&key).map_err(|error| format!("the private key of {place}: {error}"))?;
        let info = certificate.tbs_certificate().subject_public_key_info();
        if info.subject_public_key.as_bytes() != Some(key.public_key_raw()) {
            return Err(format!("the private key of {place} belongs to another certificate").into());
        }
        Ok(Self { name: place.to_owned(), certificate, key })
    }

    /// Signs with its key.
    pub(super) fn issuer(&self) -> Result<Issuer<'_, &KeyPair>, Failure> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = distinguished_name(&self.name, self.subject())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        if let Ok(Some((_, id))) = self.certificate.tbs_certificate().get_extension::<SubjectKeyIdentifier>()
        {
            parameters.key_identifier_method = KeyIdMethod::PreSpecified(id.0.as_bytes().to_vec());
        }
        Ok(Issuer::new(parameters, &self.key))
    }

    pub(super) fn key_identifier(&self) -> KeyIdMethod {
        let id = self.certificate.tbs_certificate().get_extension::<SubjectKeyIdentifier>();
        match id {
            Ok(Some((_, id))) => KeyIdMethod::PreSpecified(id.0.as_bytes().to_vec()),
            _ => KeyIdMethod::Sha256,
        }
    }

    fn subject(&self) -> &Name {
        self.certificate.tbs_certificate().subject()
    }

    /// The serial numbers of its certificates that the configuration revokes, and those of its earlier lists.
    pub(super) fn revoked(&self, tree: &Tree) -> Result<BTreeSet<Vec<u8>>, Failure> {
        let mut serials = BTreeSet::new();
        for (name, branch) in tree.at(&["pki", "certificate"]).into_iter().flat_map(Tree::children) {
            if let Some(bytes) = der(branch, "certificate").filter(|_| branch.has("revoke")) {
                let certificate = read(&format!("pki certificate {name}"), &bytes)?;
                serials.extend(self.serial(&certificate));
            }
        }
        for (_, branch) in tree.at(&["pki", "ca"]).into_iter().flat_map(Tree::children) {
            for list in branch.values("crl") {
                let bytes = Base64::decode_vec(list).unwrap_or_default();
                let list = CertificateList::<Rfc5280>::from_der(&bytes)
                    .map_err(|error| format!("a crl of {} is malformed: {error}", self.name))?;
                if list.tbs_cert_list.issuer == *self.subject() {
                    let entries = list.tbs_cert_list.revoked_certificates.into_iter().flatten();
                    serials.extend(entries.map(|entry| entry.serial_number.as_bytes().to_vec()));
                }
            }
        }
        Ok(serials)
    }

    /// The serial numbers of the certificates in a file, all of which must be its own.
    pub(super) fn serials_of(&self, file: &[u8], name: &str) -> Result<Vec<Vec<u8>>, Failure> {
        let sections = crypto::pem::read(file).map_err(|error| format!("{name}: {error}"))?;
        let mut serials = Vec::new();
        for section in sections.iter().filter(|section| section.label == "CERTIFICATE") {
            let certificate = read(name, section.der.expose())?;
            let foreign =
                || format!("{name}: {} has not signed it\n  fix: name the authority that has", self.name);
            serials.push(self.serial(&certificate).ok_or_else(foreign)?);
        }
        Ok(serials)
    }

    /// The serial number of a certificate of its own.
    fn serial(&self, certificate: &Certificate) -> Option<Vec<u8>> {
        let certificate = certificate.tbs_certificate();
        (certificate.issuer() == self.subject()).then(|| certificate.serial_number().as_bytes().to_vec())
    }
}

/// The bytes of a value in base64, which may be a key.
pub(super) fn der(branch: &Tree, word: &str) -> Option<Zeroizing<Vec<u8>>> {
    Base64::decode_vec(branch.value(word)?).ok().map(Zeroizing::new)
}

fn read(place: &str, bytes: &[u8]) -> Result<Certificate, Failure> {
    Certificate::from_der(bytes)
        .map_err(|error| format!("the certificate of {place} is malformed: {error}").into())
}

/// The name as it is encoded: a verifier compares bytes.
fn distinguished_name(place: &str, name: &Name) -> Result<DistinguishedName, Failure> {
    let unusual = || -> Failure {
        format!("the name of {place} has parts that cannot be signed for here\n  fix: sign with openssl x509")
            .into()
    };
    let mut copy = DistinguishedName::new();
    for part in name.iter_rdn() {
        let attributes: Vec<_> = part.iter().collect();
        let [attribute] = attributes[..] else { return Err(unusual()) };
        let kind: Vec<u64> = attribute.oid.arcs().map(u64::from).collect();
        let kind = DnType::from_oid(&kind);
        let value = attribute.value.to_der()?;
        let value = match attribute.value.tag() {
            Tag::Utf8String => DnValue::Utf8String(Utf8StringRef::from_der(&value)?.as_str().to_owned()),
            Tag::PrintableString => {
                let text = PrintableStringRef::from_der(&value)?;
                DnValue::PrintableString(PrintableString::try_from(text.as_str()).map_err(|_| unusual())?)
            }
            Tag::Ia5String => {
                let text = Ia5StringRef::from_der(&value)?;
                DnValue::Ia5String(Ia5String::try_from(text.as_str()).map_err(|_| unusual())?)
            }
            _ => return Err(unusual()),
        };
        if copy.get(&kind).is_some() {
            return Err(unusual());
        }
        copy.push(kind, value);
    }
    Ok(copy)
}
