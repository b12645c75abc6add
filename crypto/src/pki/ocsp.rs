//! Asking about one certificate: OCSP (RFC 6960), in the profile of RFC 5019: SHA-1 names the issuer, and no nonce, so that
//! answers may be made beforehand and kept.

use super::Certificate;
use super::signed::CLOCK_SKEW;
use super::signed::Signed;
use aws_lc_rs::digest;
use der::asn1::{AnyRef, GeneralizedTime, Int, Null, ObjectIdentifier, OctetString};
use der::{Decode, Encode, Enumerated, Sequence, Tagged};
use std::time::Duration;

const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
const BASIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");

/// How long an answer counts that does not say until when: newer knowledge may be there at any time.
const WITHOUT_END: Duration = Duration::from_secs(3600);

#[derive(Clone, PartialEq, Eq, Sequence)]
struct HashAlgorithm {
    oid: ObjectIdentifier,
    #[asn1(optional = "true")]
    parameters: Option<Null>,
}

/// A certificate, as both sides name it.
#[derive(Clone, Sequence)]
pub(super) struct CertId {
    algorithm: HashAlgorithm,
    issuer_name: OctetString,
    issuer_key: OctetString,
    serial: Int,
}

impl PartialEq for CertId {
    /// The parameters of a hash are NULL or missing, and mean nothing.
    fn eq(&self, other: &Self) -> bool {
        self.algorithm.oid == other.algorithm.oid
            && (&self.issuer_name, &self.issuer_key, &self.serial)
                == (&other.issuer_name, &other.issuer_key, &other.serial)
    }
}

impl CertId {
    /// The name of a certificate of this issuer.
    pub(super) fn of(certificate: &Certificate, issuer: &Certificate) -> der::Result<Self> {
        let sha1 = |bytes: &[u8]| {
            OctetString::new(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec())
        };
        Ok(Self {
            algorithm: HashAlgorithm { oid: SHA1, parameters: Some(Null) },
            issuer_name: sha1(issuer.subject().to_der())?,
            issuer_key: sha1(issuer.key_bits())?,
            serial: Int::new(certificate.serial())?,
        })
    }

    /// The request for this certificate alone.
    pub(super) fn request(&self) -> der::Result<Vec<u8>> {
        #[derive(Sequence)]
        struct One {
            certificate: CertId,
        }
        #[derive(Sequence)]
        struct Body {
            list: Vec<One>,
        }
        #[derive(Sequence)]
        struct Request {
            body: Body,
        }
        Request { body: Body { list: vec![One { certificate: self.clone() }] } }.to_der()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumerated)]
#[asn1(type = "ENUMERATED")]
#[repr(u32)]
enum ResponseStatus {
    Successful = 0,
    MalformedRequest = 1,
    InternalError = 2,
    TryLater = 3,
    SigRequired = 5,
    Unauthorized = 6,
}

#[derive(Sequence)]
struct ResponseBytes {
    kind: ObjectIdentifier,
    response: OctetString,
}

#[derive(Sequence)]
struct Response {
    status: ResponseStatus,
    #[asn1(context_specific = "0", optional = "true", tag_mode = "EXPLICIT")]
    bytes: Option<ResponseBytes>,
}

/// What is read of a BasicOCSPResponse besides its signature.
#[derive(Sequence)]
struct Basic<'a> {
    body: Body<'a>,
    algorithm: AnyRef<'a>,
    signature: der::asn1::BitStringRef<'a>,
    #[asn1(context_specific = "0", optional = "true", tag_mode = "EXPLICIT")]
    certificates: Option<Vec<AnyRef<'a>>>,
}

#[derive(Sequence)]
struct Body<'a> {
    #[asn1(context_specific = "0", optional = "true", tag_mode = "EXPLICIT")]
    version: Option<u8>,
    /// A choice of a name and a hash of a key: the signature says enough.
    responder: AnyRef<'a>,
    produced: GeneralizedTime,
    answers: Vec<Single<'a>>,
    #[asn1(context_specific = "1", optional = "true", tag_mode = "EXPLICIT")]
    extensions: Option<AnyRef<'a>>,
}

#[derive(Sequence)]
struct Single<'a> {
    certificate: CertId,
    /// `[0]` good, `[1]` revoked, `[2]` unknown.
    status: AnyRef<'a>,
    this_update: GeneralizedTime,
    #[asn1(context_specific = "0", optional = "true", tag_mode = "EXPLICIT")]
    next_update: Option<GeneralizedTime>,
    #[asn1(context_specific = "1", optional = "true", tag_mode = "EXPLICIT")]
    extensions: Option<AnyRef<'a>>,
}

/// What an issuer says of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) is_revoked: bool,
    /// What was known at this time, since 1970.
    pub(super) this_update: Duration,
    /// Until when it counts, since 1970.
    pub(super) until: Duration,
}

/// Reads what a responder says of a certificate at the time `now` since 1970. The issuer has signed it, or who it has
/// charged with that.
pub(super) fn read(bytes: &[u8], of: &CertId, issuer: &Certificate, now: Duration) -> Result<Answer, String> {
    let malformed = |error: der::Error| format!("its answer is malformed: {error}");
    let response = Response::from_der(bytes).map_err(malformed)?;
    if response.status != ResponseStatus::Successful {
        return Err(format!("it refuses to answer: {:?}", response.status));
    }
    let bytes = response.bytes.ok_or("its answer is empty")?;
    if bytes.kind != BASIC {
        return Err(format!("its answer is of another type: {}", bytes.kind));
    }
    let bytes = bytes.response.as_bytes();
    let basic = Basic::from_der(bytes).map_err(malformed)?;
    let signed = Signed::from_der(bytes).map_err(malformed)?;
    if !is_signed(&signed, &basic, issuer, now) {
        return Err("its answer is signed by neither the issuer nor a responder of the issuer".to_owned());
    }
    let answer = basic.body.answers.iter().find(|answer| answer.certificate == *of);
    answer.ok_or("its answer is about another certificate")?.check(now)
}

impl Single<'_> {
    fn check(&self, now: Duration) -> Result<Answer, String> {
        let this_update = self.this_update.to_unix_duration();
        let next_update = self.next_update.map(|time| time.to_unix_duration());
        let until = next_update.unwrap_or(this_update + WITHOUT_END);
        if this_update > now + CLOCK_SKEW || until < now {
            return Err("its answer is not of now; is the clock right?".to_owned());
        }
        match self.status.tag().number().value() {
            0 => Ok(Answer { is_revoked: false, this_update, until }),
            1 => Ok(Answer { is_revoked: true, this_update, until }),
            _ => Err("it does not know the certificate".to_owned()),
        }
    }
}

/// Responders of which a certificate is tried.
const MOST_RESPONDERS: usize = 4;

/// RFC 6960, section 4.2.2.2: the issuer has signed, or one whose certificate it signed for that purpose.
fn is_signed(signed: &Signed, basic: &Basic<'_>, issuer: &Certificate, now: Duration) -> bool {
    if signed.is_by(issuer.key()) {
        return true;
    }
    let certificates = basic.certificates.iter().flatten().take(MOST_RESPONDERS);
    certificates.filter_map(|it| it.to_der().ok()).any(|der| {
        let Ok(responder) = Certificate::from_der(&der) else { return false };
        responder.answers_for_its_issuer()
            && responder.issuer() == issuer.subject()
            && responder.check_time(now).is_ok()
            && responder.is_signed_by(issuer)
            && signed.is_by(responder.key())
    })
}
