//! Certificate revocation lists (RFC 5280, section 5).

use super::signed::Signed;
use super::{Certificate, DistinguishedName};
use der::asn1::ObjectIdentifier;
use der::{Decode, Encode};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use webpki::{CertRevocationList, OwnedCertRevocationList};
use x509_cert::crl::CertificateList;
use x509_cert::ext::pkix::crl::IssuingDistributionPoint;
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};
use x509_cert::time::Time;

/// Maximum number of cached signature checks per CRL.
const MOST_KEYS: usize = 8;

const SCOPE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.28");

/// A certificate revocation list (CRL).
pub(super) struct List {
    /// The parsed CRL, for looking up serial numbers.
    pub(super) webpki: CertRevocationList<'static>,
    /// thisUpdate, as time since 1970.
    pub(super) this_update: Duration,
    /// nextUpdate, if present.
    pub(super) next_update: Option<Duration>,
    issuer: DistinguishedName,
    scope: Option<IssuingDistributionPoint>,
    signed: Signed,
    /// Results of signature checks by key. They are needed often, and a CRL may be long.
    keys: Mutex<Vec<(Vec<u8>, bool)>>,
}

impl List {
    pub(super) fn from_der(der: &[u8]) -> Result<Self, String> {
        let text = |error: der::Error| error.to_string();
        let parsed = CertificateList::<x509_cert::certificate::Rfc5280>::from_der(der).map_err(text)?;
        let webpki = OwnedCertRevocationList::from_der(der).map_err(|error| error.to_string())?;
        let body = &parsed.tbs_cert_list;
        let issuer = body.issuer.to_der().map_err(text)?;
        let mut extensions = body.crl_extensions.iter().flatten();
        let scope = extensions
            .find(|extension| extension.extn_id == SCOPE)
            .map(|extension| IssuingDistributionPoint::from_der(extension.extn_value.as_bytes()))
            .transpose()
            .map_err(text)?;
        Ok(Self {
            webpki: webpki.into(),
            this_update: body.this_update.to_unix_duration(),
            next_update: body.next_update.map(Time::to_unix_duration),
            issuer: DistinguishedName::from_der(&issuer).map_err(|error| error.to_string())?,
            scope,
            signed: Signed::from_der(der).map_err(text)?,
            keys: Mutex::default(),
        })
    }

    /// Whether the CRL's issuer field is the subject of `issuer`. The signature is not checked.
    pub(super) fn is_of(&self, issuer: &Certificate) -> bool {
        self.issuer == *issuer.subject()
    }

    /// Whether the key of `issuer` has signed the CRL, and is allowed to.
    pub(super) fn is_by(&self, issuer: &Certificate) -> bool {
        if !self.is_of(issuer) || !issuer.may_sign_lists() {
            return false;
        }
        let key = issuer.key().info();
        let known = self.keys().iter().find(|(known, _)| known == key).map(|(_, is_by)| *is_by);
        known.unwrap_or_else(|| {
            let is_by = self.signed.is_by(issuer.key());
            let mut keys = self.keys();
            keys.truncate(MOST_KEYS - 1);
            keys.insert(0, (key.to_vec(), is_by));
            is_by
        })
    }

    fn keys(&self) -> MutexGuard<'_, Vec<(Vec<u8>, bool)>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the scope of the CRL includes a certificate of its issuer.
    pub(super) fn covers(&self, certificate: &Certificate) -> bool {
        let Some(scope) = &self.scope else { return true };
        let is_partial = scope.indirect_crl
            || scope.only_some_reasons.is_some()
            || scope.only_contains_attribute_certs
            || scope.only_contains_user_certs && certificate.is_authority()
            || scope.only_contains_ca_certs && !certificate.is_authority();
        let is_of_place = match &scope.distribution_point {
            None => true,
            Some(DistributionPointName::FullName(names)) => names.iter().any(|name| match name {
                GeneralName::UniformResourceIdentifier(url) => certificate.lists_at(url.as_str()),
                _ => false,
            }),
            Some(_) => false,
        };
        !is_partial && is_of_place
    }

    /// Whether the CRL is current at the time `now` since 1970.
    pub(super) fn is_fresh(&self, now: Duration) -> bool {
        self.this_update <= now + super::signed::CLOCK_SKEW
            && self.next_update.is_some_and(|until| now <= until)
    }

    /// Whether the CRL lists a certificate of its issuer.
    pub(super) fn has(&self, certificate: &Certificate) -> bool {
        !matches!(self.webpki.find_serial(certificate.serial()), Ok(None))
    }
}
