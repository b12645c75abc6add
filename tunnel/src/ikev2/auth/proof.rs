//! Local authentication, and verification of the peer (RFC 7296 section 2.15, RFC 7427).

use crate::ikev2::cause::{Cause, Unproved};
use crate::ikev2::config::{Authentication, Connection, Credentials, Round};
use crate::ikev2::identity::Identity;
use crate::ikev2::keys::{Signed, shared_key_mac};
use crate::ikev2::message;
use crate::ikev2::message::numbers::{certificate, method};
use crate::ikev2::message::{Payload, Payloads};
use crypto::SecretBytes;
use crypto::pki::{Certificate, ChainFailure};
use crypto::prf::Prf;
use crypto::signature::{KeyKind, Scheme, SignError, SigningKey, VerifyingKey};
use std::time::Duration;

/// The supported hashes of signatures, as listed in SIGNATURE_HASH_ALGORITHMS: SHA-256, SHA-384, SHA-512, and
/// "identity" for keys with a built-in hash.
pub(in crate::ikev2) const HASHES: &[u8] = &[0, 2, 0, 3, 0, 4, 0, 5];

/// The maximum number of certificates that are read.
const CERTIFICATES: usize = 8;
/// The maximum size of the certificates sent: the message must fit into one datagram if the peer does not support
/// fragmentation.
const MOST_CERTIFICATES: usize = 24 * 1024;
/// The maximum size of a certificate request: the hashes of this many authorities.
const MOST_REQUEST: usize = 20 * 400;
/// The maximum number of authorities in the request of IKE_SA_INIT, which cannot be fragmented, and whose receiver
/// address may be forged.
pub(in crate::ikev2) const MOST_FIRST_REQUEST: usize = 25;

/// A peer that is authenticated in one round. Only [`verify`] creates one.
pub(in crate::ikev2) struct Verified {
    pub(super) identity: Identity,
    /// The number of the round, from 0.
    round: usize,
    /// The signature scheme of the peer; `None` with a pre-shared key.
    scheme: Option<Scheme>,
    /// All identities that the peer's credentials prove, if the connection requires none.
    pub(super) names: Vec<Identity>,
}

impl Verified {
    /// The identity of the peer.
    pub(in crate::ikev2) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The number of the round, from 0.
    pub(super) fn round(&self) -> usize {
        self.round
    }

    /// The signature scheme of the peer, if it has signed.
    pub(in crate::ikev2) fn scheme(&self) -> Option<Scheme> {
        self.scheme
    }

    /// All identities that the peer's credentials prove; empty if the connection requires one.
    pub(in crate::ikev2) fn names(&self) -> &[Identity] {
        &self.names
    }
}

/// The AUTH data of one side.
pub(in crate::ikev2) struct Proof {
    pub(in crate::ikev2) method: u8,
    pub(in crate::ikev2) data: Vec<u8>,
}

/// The hashes in a SIGNATURE_HASH_ALGORITHMS notification.
pub(in crate::ikev2) fn hashes(payloads: &Payloads<'_>) -> Vec<u16> {
    let notify = payloads.notify(message::numbers::notify::SIGNATURE_HASH_ALGORITHMS);
    let data = notify.map_or(&[][..], |notify| notify.data);
    data.as_chunks().0.iter().map(|&hash| u16::from_be_bytes(hash)).collect()
}

/// Computes the local proof. `key` is the local SK_p, `hashes` are the ones that the peer supports, `theirs` is the
/// scheme of the peer's signature if it came first, and `wall` is the time since 1970.
pub(in crate::ikev2) fn prove(
    authentication: &Authentication,
    prf: Prf,
    key: &SecretBytes,
    signed: &Signed<'_>,
    hashes: &[u16],
    theirs: Option<Scheme>,
    wall: Duration,
) -> Result<Proof, Cause> {
    let octets = signed.octets(prf, key);
    match authentication {
        Authentication::SharedKey(shared) => {
            let data = shared_key_mac(prf, shared, &octets).expose().to_vec();
            Ok(Proof { method: method::SHARED_KEY, data })
        }
        Authentication::Certificate(credentials) => {
            if let Some(Err(error)) = credentials.certificates.first().map(|own| own.check_time(wall)) {
                return Err(Cause::OwnCertificate(error.to_string()));
            }
            sign(&credentials.key, credentials.accept_sha1, &octets, hashes, theirs)
        }
        Authentication::RawKeys(keys) => sign(&keys.own, false, &octets, hashes, theirs),
    }
}

fn sign(
    key: &SigningKey,
    accept_sha1: bool,
    octets: &[u8],
    hashes: &[u16],
    theirs: Option<Scheme>,
) -> Result<Proof, Cause> {
    let said = |error: SignError| Cause::CannotSign(error.to_string());
    if let Some(scheme) = key.scheme_for(hashes, theirs) {
        let algorithm = scheme.to_der();
        let signature = key.sign(scheme, octets).map_err(said)?;
        // RFC 7427 section 3: the length of the algorithm's name, the name, the signature.
        let data = [&[algorithm.len() as u8][..], &algorithm, &signature].concat();
        return Ok(Proof { method: method::SIGNATURE, data });
    }
    match key.public().kind() {
        // An attacker that removes the peer's list of hashes would obtain a SHA-1 signature over data of its choice.
        KeyKind::Rsa { .. } if !accept_sha1 => Err(Cause::OnlySha1),
        KeyKind::Rsa { .. } => {
            let data = key.sign(Scheme::RsaPkcs1Sha1, octets).map_err(said)?;
            Ok(Proof { method: method::RSA, data })
        }
        kind => {
            let data = key.sign_raw(octets).map_err(said)?;
            Ok(Proof { method: method_of(kind).unwrap_or(0), data })
        }
    }
}

/// The method for a curve and its hash (RFC 4754).
fn method_of(kind: KeyKind) -> Option<u8> {
    match kind {
        KeyKind::EcdsaP256 => Some(method::ECDSA_256),
        KeyKind::EcdsaP384 => Some(method::ECDSA_384),
        KeyKind::EcdsaP521 => Some(method::ECDSA_521),
        KeyKind::Rsa { .. } | KeyKind::Ed25519 => None,
    }
}

/// The local certificates, the end-entity certificate first (section 3.6).
pub(in crate::ikev2) fn certificate_payloads(authentication: &Authentication) -> Vec<Payload<'_>> {
    let Authentication::Certificate(credentials) = authentication else { return Vec::new() };
    let encoding = certificate::X509_SIGNATURE;
    let mut room = MOST_CERTIFICATES;
    let fitting = credentials.certificates.iter().take_while(|one| {
        let left = room.checked_sub(one.to_der().len());
        room = left.unwrap_or(0);
        left.is_some()
    });
    fitting.map(|one| Payload::Certificate(message::Certificate { encoding, data: one.to_der() })).collect()
}

/// The hashes of the trusted authorities of all rounds, for a certificate request; `None` without certificate
/// authentication.
pub(in crate::ikev2) fn request(config: &Connection) -> Option<Vec<u8>> {
    let trusted = config.rounds().filter_map(|round| match round.authentication {
        Authentication::SharedKey(_) | Authentication::RawKeys(_) => None,
        Authentication::Certificate(credentials) => Some(credentials.trust.request()),
    });
    let mut hashes = trusted.reduce(|all, more| [all, more].concat())?;
    hashes.truncate(MOST_REQUEST);
    Some(hashes)
}

/// The certificate request with these hashes.
pub(in crate::ikev2) fn request_payload(hashes: &[u8]) -> Payload<'_> {
    let encoding = certificate::X509_SIGNATURE;
    Payload::CertificateRequest(message::Certificate { encoding, data: hashes })
}

/// The authentication payloads of the peer.
pub(in crate::ikev2) struct Shown<'a> {
    pub(in crate::ikev2) identity: Identity,
    pub(in crate::ikev2) auth: &'a message::Authentication<'a>,
    pub(in crate::ikev2) certificates: &'a [message::Certificate<'a>],
}

/// Verifies the peer's proof; `key` is its SK_p, `wall` the time since 1970.
pub(in crate::ikev2) fn verify(
    (round, number): (Round<'_>, usize),
    prf: Prf,
    key: &SecretBytes,
    signed: &Signed<'_>,
    shown: Shown<'_>,
    wall: Duration,
) -> Result<Verified, Cause> {
    let outcome = if round.remote.is_some_and(|expected| *expected != shown.identity) {
        Err(Unproved::Identity)
    } else {
        let octets = signed.octets(prf, key);
        match round.authentication {
            Authentication::SharedKey(shared) => {
                verify_mac(prf, shared, shown.auth, &octets).map(|()| None).map_err(Unproved::Proof)
            }
            Authentication::Certificate(credentials) => {
                verify_signature(credentials, &shown, &octets, wall).map(Some)
            }
            Authentication::RawKeys(keys) => verify_octets(&keys.peer, false, shown.auth, &octets).map(Some),
        }
    };
    match outcome {
        Ok(scheme) => Ok(Verified { identity: shown.identity, round: number, scheme, names: Vec::new() }),
        Err(why) => Err(Cause::NotAuthentic { identity: shown.identity.to_string(), why }),
    }
}

fn verify_mac(
    prf: Prf,
    shared: &SecretBytes,
    auth: &message::Authentication<'_>,
    octets: &[u8],
) -> Result<(), String> {
    if auth.method != method::SHARED_KEY {
        return Err("it does not use a pre-shared key".to_owned());
    }
    // An empty key proves nothing.
    if shared.is_empty() {
        return Err("no pre-shared key is configured".to_owned());
    }
    let expected = shared_key_mac(prf, shared, octets);
    if expected == SecretBytes::new(auth.data.to_vec()) {
        return Ok(());
    }
    Err("the pre-shared keys differ".to_owned())
}

/// Whether the credentials of a peer authenticated under `served` would also authenticate it as `named` under another
/// connection, which names that identity. A pre-shared key proves only the identity that the peer has `claimed`.
pub(in crate::ikev2) fn proves(
    named: (&Identity, &Connection),
    served: &Connection,
    claimed: &Identity,
    certificates: &[message::Certificate<'_>],
    wall: Duration,
) -> bool {
    let (name, other) = named;
    match (&other.authentication, &served.authentication) {
        (Authentication::SharedKey(one), Authentication::SharedKey(other)) => name == claimed && one == other,
        (Authentication::RawKeys(one), Authentication::RawKeys(other)) => one.peer == other.peer,
        (Authentication::Certificate(credentials), Authentication::Certificate(_)) => {
            read_certificates(certificates).is_ok_and(|(peer, others)| {
                // A certificate that is revoked, or may be, still identifies its owner: it must not give access that
                // a valid one does not.
                let of_name = |failure| failure == ChainFailure::Revoked || is_without_status(&failure);
                let verified = || credentials.trust.verify(&peer, &others, wall).map_err(|it| it.failure);
                peer.holds(name) && verified().map_or_else(of_name, |_| true)
            })
        }
        _ => false,
    }
}

/// The identities that the peer may have, once it is authenticated as `claimed`.
pub(in crate::ikev2) fn identities(
    config: &Connection,
    claimed: &Identity,
    certificates: &[message::Certificate<'_>],
) -> Vec<Identity> {
    let mut found = vec![claimed.clone()];
    if let Authentication::Certificate(_) = &config.authentication
        && let Ok((peer, _)) = read_certificates(certificates)
    {
        found.extend(peer.identities());
    }
    found
}

/// Verifies that the certificate leads to a trusted authority, that it contains the identity, and that its owner has
/// signed; returns the scheme.
fn verify_signature(
    credentials: &Credentials,
    shown: &Shown<'_>,
    octets: &[u8],
    wall: Duration,
) -> Result<Scheme, Unproved> {
    let (peer, others) = read_certificates(shown.certificates).map_err(unproved)?;
    // Before the chain, which may cause a request to a server: only the owner of the key can cause that.
    let scheme = verify_octets(peer.key(), credentials.accept_sha1, shown.auth, octets)?;
    let verified = credentials.trust.verify(&peer, &others, wall);
    if let Err(error) = &verified
        && !matches!(error.failure, ChainFailure::StatusAwaited(_))
    {
        let is_unknown = is_without_status(&error.failure);
        return Err(if is_unknown {
            Unproved::Status(error.to_string())
        } else {
            Unproved::Certificate(Box::new(error.clone()))
        });
    }
    if !peer.holds(&shown.identity) {
        return Err(unproved(format!("its certificate is for {}", peer.subject())));
    }
    verified.map(|_| scheme).map_err(|error| Unproved::Awaited(error.to_string()))
}

/// Whether the only failure of a chain is an unknown revocation status.
fn is_without_status(failure: &ChainFailure) -> bool {
    matches!(
        failure,
        ChainFailure::StatusUnknown(_)
            | ChainFailure::StatusAwaited(_)
            | ChainFailure::NoRevocationList
            | ChainFailure::RevocationListExpired
            | ChainFailure::RevocationListSignature
    )
}

/// The peer's certificate, and the intermediate ones. An unreadable intermediate certificate is skipped, as another
/// one may complete the chain.
fn read_certificates(
    payloads: &[message::Certificate<'_>],
) -> Result<(Certificate, Vec<Certificate>), String> {
    let of_x509 = payloads.iter().filter(|payload| payload.encoding == certificate::X509_SIGNATURE);
    let mut read = of_x509.take(CERTIFICATES).map(|payload| Certificate::from_der(payload.data));
    let peer = read.next().ok_or("it sent no certificate")?.map_err(|error| error.to_string())?;
    Ok((peer, read.filter_map(Result::ok).collect()))
}

/// Verifies that the owner of a key has signed; returns the scheme.
fn verify_octets(
    key: &VerifyingKey,
    accept_sha1: bool,
    auth: &message::Authentication<'_>,
    octets: &[u8],
) -> Result<Scheme, Unproved> {
    let (scheme, verified) = match auth.method {
        method::SIGNATURE => {
            let cut_off = || unproved("its signature is truncated");
            let (&length, rest) = auth.data.split_first().ok_or_else(cut_off)?;
            let (algorithm, signature) = rest.split_at_checked(length.into()).ok_or_else(cut_off)?;
            let scheme = Scheme::from_der(algorithm).map_err(unproved)?;
            (scheme, key.verify(scheme, octets, signature))
        }
        method::RSA if !accept_sha1 => return Err(Unproved::Sha1),
        method::RSA => (Scheme::RsaPkcs1Sha1, key.verify(Scheme::RsaPkcs1Sha1, octets, auth.data)),
        other if method_of(key.kind()) == Some(other) => {
            (key.kind().schemes()[0], key.verify_raw(octets, auth.data))
        }
        _ => return Err(unproved("its authentication method does not match its key")),
    };
    verified.map_err(|_| unproved("its signature is invalid"))?;
    Ok(scheme)
}

fn unproved(why: impl ToString) -> Unproved {
    Unproved::Proof(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! key {
        ($name:literal) => {
            SigningKey::from_file(include_bytes!(concat!("../../../../crypto/tests/keys/", $name)))
                .expect("a key")
        };
    }

    fn proof(key: SigningKey, hashes: &[u16]) -> Result<(Proof, VerifyingKey), Cause> {
        proof_with(key, hashes, false)
    }

    fn proof_with(
        key: SigningKey,
        hashes: &[u16],
        accept_sha1: bool,
    ) -> Result<(Proof, VerifyingKey), Cause> {
        let public = key.public().clone();
        sign(&key, accept_sha1, b"octets", hashes, None).map(|proof| (proof, public))
    }

    fn read(proof: &Proof, key: &VerifyingKey, accept_sha1: bool) -> Result<Scheme, Unproved> {
        let auth = message::Authentication { method: proof.method, data: &proof.data };
        assert!(verify_octets(key, accept_sha1, &auth, b"others").is_err());
        verify_octets(key, accept_sha1, &auth, b"octets")
    }

    const ALL: &[u16] = &[1, 2, 3, 4, 5];

    #[test]
    fn with_rfc_7427_a_signature_names_its_algorithm() {
        for key in [key!("rsa2048.pem"), key!("ec-p256.pem"), key!("ec-p521.pem"), key!("ed25519.pem")] {
            let (proof, public) = proof(key, ALL).expect("it has a hash");
            assert_eq!(proof.method, method::SIGNATURE);
            assert_eq!(read(&proof, &public, false), Ok(public.kind().schemes()[0]));
        }
    }

    #[test]
    fn who_pads_as_pkcs1_is_answered_so() {
        let key = key!("rsa2048.pem");
        let theirs = key.sign(Scheme::RsaPkcs1Sha512, b"octets").expect("a scheme of RSA's");
        let algorithm = Scheme::RsaPkcs1Sha512.to_der();
        let data = [&[algorithm.len() as u8][..], &algorithm, &theirs].concat();
        let shown = Proof { method: method::SIGNATURE, data };
        let public = key.public();
        let theirs = read(&shown, public, false).expect("it is right");
        let ours = sign(&key, false, b"octets", ALL, Some(theirs)).expect("it has a hash");
        assert_eq!(
            (ours.method, read(&ours, public, false)),
            (method::SIGNATURE, Ok(Scheme::RsaPkcs1Sha256))
        );
    }

    #[test]
    fn without_it_the_method_names_the_algorithm() {
        for (key, expected) in [
            (key!("ec-p256.pem"), method::ECDSA_256),
            (key!("ec-p384.pem"), method::ECDSA_384),
            (key!("ec-p521.pem"), method::ECDSA_521),
        ] {
            let (proof, public) = proof(key, &[1]).expect("there is a method");
            assert_eq!(proof.method, expected);
            assert_eq!(read(&proof, &public, false), Ok(public.kind().schemes()[0]));
        }
        assert!(proof(key!("ed25519.pem"), &[]).is_err(), "RFC 8420 needs RFC 7427");
    }

    #[test]
    fn sha1_is_taken_and_made_only_where_that_is_configured() {
        assert_eq!(proof(key!("rsa2048.pem"), &[1]).err(), Some(Cause::OnlySha1));
        let (proof, public) = proof_with(key!("rsa2048.pem"), &[], true).expect("there is a method");
        assert_eq!(proof.method, method::RSA);
        assert_eq!(read(&proof, &public, true), Ok(Scheme::RsaPkcs1Sha1));
        assert_eq!(read(&proof, &public, false), Err(Unproved::Sha1));
    }

    #[test]
    fn where_sha1_is_accepted_it_is_made_only_for_who_knows_no_rfc_7427() {
        for hashes in [&[2][..], &[1, 4], ALL] {
            let (proof, public) = proof_with(key!("rsa2048.pem"), hashes, true).expect("it has a hash");
            assert_eq!(proof.method, method::SIGNATURE);
            assert!(read(&proof, &public, true).is_ok_and(|scheme| scheme != Scheme::RsaPkcs1Sha1));
        }
    }

    #[test]
    fn methods_and_algorithms_of_other_keys_do_not_fit() {
        let (proof, _) = proof(key!("ec-p256.pem"), &[]).expect("there is a method");
        assert!(read(&proof, key!("ec-p384.pem").public(), true).is_err());
        assert!(read(&proof, key!("rsa2048.pem").public(), true).is_err());
    }

    #[test]
    fn a_certificate_that_we_cannot_read_does_not_spoil_the_others() {
        let made = rcgen::generate_simple_self_signed(["peer.example".to_owned()]).expect("valid");
        let encoding = certificate::X509_SIGNATURE;
        let good = message::Certificate { encoding, data: made.cert.der() };
        let odd = message::Certificate { encoding, data: b"of a kind that we do not know" };
        let count = |payloads: &[message::Certificate<'_>]| {
            read_certificates(payloads).map(|(_, others)| others.len())
        };
        assert_eq!(count(&[good, odd, good]), Ok(1));
        assert_eq!(count(&[good; 20]), Ok(CERTIFICATES - 1));
        assert!(count(&[odd, good]).is_err(), "the first is the peer's");
        assert!(count(&[]).is_err());
    }

    /// Truncated and corrupted signatures are rejected, as in CVE-2018-16151.
    #[test]
    fn damaged_signatures_are_not_right() {
        let (proof, public) = proof(key!("ec-p256.pem"), ALL).expect("it has a hash");
        for length in 0..proof.data.len() {
            let cut = Proof { method: proof.method, data: proof.data[..length].to_vec() };
            assert!(read(&cut, &public, true).is_err());
        }
        for at in 0..proof.data.len() {
            let mut changed = Proof { method: proof.method, data: proof.data.clone() };
            changed.data[at] ^= 1;
            assert!(read(&changed, &public, true).is_err());
        }
    }
}
