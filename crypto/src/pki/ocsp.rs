//! OCSP (RFC 6960) in the profile of RFC 5019: SHA-1 identifies the issuer, and there is no nonce, so that responses
//! can be produced in advance and cached.

use super::Certificate;
use super::signed::CLOCK_SKEW;
use super::signed::Signed;
use aws_lc_rs::digest;
use der::asn1::{AnyRef, GeneralizedTime, Int, Null, ObjectIdentifier, OctetString};
use der::{Decode, Encode, Enumerated, Sequence, Tagged};
use std::time::Duration;

const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
const BASIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");

/// Validity of a response without nextUpdate: newer information may be available at any time.
const WITHOUT_END: Duration = Duration::from_secs(3600);

#[derive(Clone, PartialEq, Eq, Sequence)]
struct HashAlgorithm {
    oid: ObjectIdentifier,
    #[asn1(optional = "true")]
    parameters: Option<Null>,
}

/// CertID: identifies a certificate in requests and responses.
#[derive(Clone, Sequence)]
pub(super) struct CertId {
    algorithm: HashAlgorithm,
    issuer_name: OctetString,
    issuer_key: OctetString,
    serial: Int,
}

impl PartialEq for CertId {
    /// Ignores the hash parameters, which are NULL or absent and have no meaning.
    fn eq(&self, other: &Self) -> bool {
        self.algorithm.oid == other.algorithm.oid
            && (&self.issuer_name, &self.issuer_key, &self.serial)
                == (&other.issuer_name, &other.issuer_key, &other.serial)
    }
}

impl CertId {
    /// The CertID of a certificate of `issuer`.
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

    /// The OCSPRequest for this certificate alone.
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

/// BasicOCSPResponse; [`Signed`] reads the signature.
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
    /// ResponderID. Not used: the signature identifies the responder.
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

/// The status of a certificate, from an OCSP response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) is_revoked: bool,
    /// thisUpdate, as time since 1970.
    pub(super) this_update: Duration,
    /// nextUpdate, or the end of [`WITHOUT_END`], as time since 1970.
    pub(super) until: Duration,
}

/// Reads the status of a certificate from an OCSP response, at the time `now` since 1970.
///
/// The issuer, or a responder that it authorized, must have signed it. An error is a phrase that follows the
/// responder's address.
pub(super) fn read(bytes: &[u8], of: &CertId, issuer: &Certificate, now: Duration) -> Result<Answer, String> {
    let malformed = |error: der::Error| format!("sends a malformed OCSP response: {error}");
    let response = Response::from_der(bytes).map_err(malformed)?;
    if response.status != ResponseStatus::Successful {
        return Err(format!("refuses to answer: {:?}", response.status));
    }
    let bytes = response.bytes.ok_or("sends an empty OCSP response")?;
    if bytes.kind != BASIC {
        return Err(format!("sends an OCSP response of another type: {}", bytes.kind));
    }
    let bytes = bytes.response.as_bytes();
    let basic = Basic::from_der(bytes).map_err(malformed)?;
    let signed = Signed::from_der(bytes).map_err(malformed)?;
    if !is_signed(&signed, &basic, issuer, now) {
        return Err(
            "sends an OCSP response that is signed by neither the issuer nor a responder of the issuer"
                .to_owned(),
        );
    }
    let answer = basic.body.answers.iter().find(|answer| answer.certificate == *of);
    answer.ok_or("sends an OCSP response about another certificate")?.check(now)
}

impl Single<'_> {
    fn check(&self, now: Duration) -> Result<Answer, String> {
        let this_update = self.this_update.to_unix_duration();
        let next_update = self.next_update.map(|time| time.to_unix_duration());
        let until = next_update.unwrap_or(this_update + WITHOUT_END);
        if this_update > now + CLOCK_SKEW || until < now {
            return Err("sends an OCSP response that is not current; is the clock right?".to_owned());
        }
        match self.status.tag().number().value() {
            0 => Ok(Answer { is_revoked: false, this_update, until }),
            1 => Ok(Answer { is_revoked: true, this_update, until }),
            _ => Err("does not know the certificate".to_owned()),
        }
    }
}

/// Maximum number of responder certificates tried.
const MOST_RESPONDERS: usize = 4;

/// RFC 6960, section 4.2.2.2: the signer is the issuer, or a responder whose certificate the issuer signed for that
/// purpose.
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
