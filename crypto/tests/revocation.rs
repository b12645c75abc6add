//! Revocation: the required status, and fetching CRLs and OCSP responses. The files in `certificates/ocsp/` were made
//! with OpenSSL.

#[path = "support/authorities.rs"]
mod authorities;

use authorities::{Authority, NOW, authority, authority_params, key, list_params, params, parse};
use crypto::pki::{Certificate, ChainFailure, Evidence, Query, Revocation, TrustStore};
use rcgen::{CertifiedIssuer, CrlDistributionPoint, CrlIssuingDistributionPoint, CrlScope, SerialNumber};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(366 * 86_400);
const PLACE: &str = "http://lists.example/root.crl";

/// A certificate with these CRL distribution points.
fn peer(serial: u64, places: &[&str], issuer: &Authority) -> Certificate {
    let mut params = params("moon");
    params.serial_number = Some(SerialNumber::from(serial));
    let uris: Vec<String> = places.iter().map(|place| (*place).to_owned()).collect();
    params.crl_distribution_points =
        (!uris.is_empty()).then_some(CrlDistributionPoint { uris }).into_iter().collect();
    let key = key();
    parse(params.signed_by(&key, issuer).expect("valid").der())
}

/// A CRL of an issuer with these serial numbers, valid for one year.
fn list(issuer: &Authority, serials: &[u64], year: i32) -> Vec<u8> {
    list_of(issuer, serials, year, None)
}

/// A CRL that covers some of the certificates.
fn list_of(
    issuer: &Authority,
    serials: &[u64],
    year: i32,
    scope: Option<(&str, Option<CrlScope>)>,
) -> Vec<u8> {
    let mut params = list_params(serials, year);
    params.issuing_distribution_point = scope.map(|(place, scope)| CrlIssuingDistributionPoint {
        distribution_point: CrlDistributionPoint { uris: vec![place.to_owned()] },
        scope,
    });
    params.signed_by(issuer).expect("valid").der().to_vec()
}

/// A trust store for the authorities, with its evidence and a counter of wake-ups.
fn store(
    authorities: &[&Certificate],
    revocation: Revocation,
) -> (TrustStore, Arc<Evidence>, Arc<AtomicUsize>) {
    let (mut store, woken) = (TrustStore::default(), Arc::new(AtomicUsize::new(0)));
    for authority in authorities {
        store.add_authority((*authority).clone()).expect("an authority");
    }
    let counter = Arc::clone(&woken);
    let evidence = Arc::new(Evidence::new(move || _ = counter.fetch_add(1, Ordering::Relaxed)));
    store.set_revocation(revocation);
    store.use_evidence(Arc::clone(&evidence));
    (store, evidence, woken)
}

fn failure(store: &TrustStore, peer: &Certificate, now: Duration) -> Option<ChainFailure> {
    store.verify(peer, &[], now).err().map(|error| error.failure)
}

/// The only query that is due.
fn query(evidence: &Evidence, now: Duration) -> Query {
    let mut due = evidence.due(now);
    assert_eq!(due.len(), 1, "{due:?}");
    due.remove(0)
}

#[test]
fn a_list_is_fetched_and_then_the_peer_is_trusted() {
    let root = authority("root");
    let good = peer(7, &[PLACE, "https://lists.example/root.crl", "ldap://lists.example/root"], &root);
    let (store, evidence, woken) = store(&[&parse(root.der())], Revocation::Strict);
    let unknown = failure(&store, &good, NOW).expect("nothing is known yet");
    assert_eq!(
        unknown.to_string(),
        format!("has no revocation status yet, though one is required: {PLACE} is being asked")
    );
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    let query = query(&evidence, NOW);
    assert_eq!((query.url(), query.body()), (PLACE, None));
    assert!(
        failure(&store, &good, NOW).is_some() && evidence.due(NOW).is_empty(),
        "a source has only one pending query"
    );
    evidence.answer(&query, NOW, Ok(list(&root, &[8], 2030))).expect("right");
    assert_eq!(failure(&store, &good, NOW), None);
    assert_eq!(failure(&store, &peer(8, &[PLACE], &root), NOW), Some(ChainFailure::Revoked));
    assert!(evidence.due(NOW + YEAR / 2).is_empty(), "the CRL is cached");
    assert_eq!(evidence.due(NOW + YEAR / 100 * 95).len(), 1, "the CRL is refreshed before it expires");
    let late = failure(&store, &good, NOW + YEAR + YEAR);
    assert!(matches!(late, Some(ChainFailure::StatusAwaited(_))), "{late:?}");
}

#[test]
fn nothing_is_fetched_for_untrusted_chains() {
    let (root, other) = (authority("root"), authority("other"));
    let (store, evidence, woken) = store(&[&parse(root.der())], Revocation::Strict);
    let namesake = authority("root");
    for unauthenticated in [peer(7, &[PLACE], &other), peer(7, &[PLACE], &namesake)] {
        assert!(failure(&store, &unauthenticated, NOW).is_some());
    }
    assert!(evidence.due(NOW).is_empty() && woken.load(Ordering::Relaxed) == 0);
}

#[test]
fn forged_old_and_replayed_lists_are_refused() {
    let root = authority("root");
    let good = peer(7, &[PLACE], &root);
    let (store, evidence, _) = store(&[&parse(root.der())], Revocation::Strict);
    assert!(failure(&store, &good, NOW).is_some());
    let mut now = NOW;
    for (bytes, said) in [
        (Ok(list(&authority("root"), &[], 2030)), "has not signed"),
        (Ok(list(&root, &[], 2028)), "not current"),
        (Ok(b"<html>moved</html>".to_vec()), "no revocation list"),
        (Err("connection refused".to_owned()), "connection refused"),
    ] {
        let error = evidence.answer(&query(&evidence, now), now, bytes).expect_err(said);
        assert!(error.contains(said), "{error}");
        let unknown = failure(&store, &good, now).expect("nothing is known");
        assert!(matches!(unknown, ChainFailure::StatusUnknown(_)), "no fetch is pending: {unknown:?}");
        assert!(unknown.to_string().contains(said), "the error is reported: {unknown}");
        assert!(evidence.due(now + 14 * SECOND).is_empty(), "not each attempt of the peer causes a fetch");
        now += 15 * SECOND;
    }
    let fresh = query(&evidence, now);
    evidence.answer(&fresh, now, Ok(list(&root, &[7], 2030))).expect("right");
    assert_eq!(failure(&store, &good, now), Some(ChainFailure::Revoked));
    let _ = evidence.answer(&fresh, now, Ok(list(&root, &[], 2029)));
    assert_eq!(
        failure(&store, &good, now),
        Some(ChainFailure::Revoked),
        "an older CRL does not replace a newer one"
    );
}

/// When a server is back after a long outage, a peer need not wait for the longest retry delay.
#[test]
fn an_expired_list_is_fetched_soon_after_a_peer_calls() {
    let root = authority("root");
    let good = peer(7, &[PLACE], &root);
    let (store, evidence, _) = store(&[&parse(root.der())], Revocation::Strict);
    assert!(failure(&store, &good, NOW).is_some());
    evidence.answer(&query(&evidence, NOW), NOW, Ok(list(&root, &[], 2030))).expect("right");
    assert_eq!(failure(&store, &good, NOW), None);
    let mut now = NOW + YEAR + YEAR / 2;
    for _ in 0..10 {
        let query = query(&evidence, now);
        evidence.answer(&query, now, Err("connection refused".to_owned())).expect_err("it failed");
        now += 3600 * SECOND;
    }
    let last = query(&evidence, now);
    evidence.answer(&last, now, Err("connection refused".to_owned())).expect_err("it failed");
    assert!(evidence.due(now + 60 * SECOND).is_empty(), "no peer needs the status");
    assert!(failure(&store, &good, now).is_some());
    assert!(evidence.due(now + 14 * SECOND).is_empty(), "not each attempt of the peer causes a fetch");
    let again = query(&evidence, now + 15 * SECOND);
    evidence.answer(&again, now, Ok(list(&root, &[], 2031))).expect("right");
    assert_eq!(failure(&store, &good, now), None);
}

#[test]
fn the_required_status_is_as_configured() {
    let root = authority("root");
    let (with, without) = (peer(7, &[PLACE], &root), peer(8, &[], &root));
    for (revocation, known) in [
        (Revocation::Relaxed, [true, true]),
        (Revocation::IfUri, [false, true]),
        (Revocation::Strict, [false, false]),
    ] {
        let (store, evidence, _) = store(&[&parse(root.der())], revocation);
        let is_trusted = [&with, &without].map(|peer| failure(&store, peer, NOW).is_none());
        assert_eq!(is_trusted, known, "{revocation:?}");
        assert_eq!(evidence.due(NOW).is_empty(), known[0], "{revocation:?}");
    }
}

/// A CRL with another scope says nothing about a certificate that it does not list.
#[test]
fn a_partial_list_counts_only_for_its_scope() {
    let root = authority("root");
    for (scope, counts) in [
        ((PLACE, None), true),
        ((PLACE, Some(CrlScope::UserCertsOnly)), true),
        ((PLACE, Some(CrlScope::CaCertsOnly)), false),
        (("http://lists.example/other.crl", None), false),
    ] {
        let (store, evidence, _) = store(&[&parse(root.der())], Revocation::Strict);
        let good = peer(7, &[PLACE], &root);
        assert!(failure(&store, &good, NOW).is_some());
        let list = list_of(&root, &[], 2030, Some((scope.0, scope.1)));
        evidence.answer(&query(&evidence, NOW), NOW, Ok(list)).expect("right");
        assert_eq!(failure(&store, &good, NOW).is_none(), counts, "{scope:?}");
    }
}

#[test]
fn every_certificate_of_a_chain_needs_its_status() {
    let root = authority("root");
    let mut between = authority_params("between");
    between.serial_number = Some(SerialNumber::from(5));
    between.crl_distribution_points = vec![CrlDistributionPoint { uris: vec![PLACE.to_owned()] }];
    let key = key();
    let between = CertifiedIssuer::signed_by(between, key, &root).expect("valid");
    let (low, sent) = (peer(7, &["http://lists.example/between.crl"], &between), [parse(between.der())]);
    let (store, evidence, _) = store(&[&parse(root.der())], Revocation::Strict);
    for _ in 0..2 {
        assert!(store.verify(&low, &sent, NOW).is_err());
        for query in evidence.due(NOW) {
            let issuer = if query.url() == PLACE { &root } else { &between };
            evidence.answer(&query, NOW, Ok(list(issuer, &[], 2030))).expect("right");
        }
    }
    assert!(store.verify(&low, &sent, NOW).is_ok());
}

#[test]
fn a_file_is_read_again_and_must_be_signed_by_its_authority() {
    let root = authority("root");
    let trusted = parse(root.der());
    let (store, evidence, _) = store(&[&trusted], Revocation::Strict);
    let (seven, eight) = (peer(7, &[], &root), peer(8, &[], &root));
    assert_eq!(failure(&store, &seven, NOW), Some(ChainFailure::NoRevocationList));
    evidence.set_file("/lists/root", &trusted, &list(&root, &[8], 2030)).expect("right");
    assert_eq!([&seven, &eight].map(|it| failure(&store, it, NOW)), [None, Some(ChainFailure::Revoked)]);
    let foreign = list(&authority("root"), &[7], 2030);
    assert!(evidence.set_file("/lists/root", &trusted, &foreign).is_err(), "the old CRLs stay");
    assert_eq!(failure(&store, &seven, NOW), None);
    evidence.set_file("/lists/root", &trusted, &list(&root, &[7], 2030)).expect("right");
    assert_eq!([&seven, &eight].map(|it| failure(&store, it, NOW)), [Some(ChainFailure::Revoked), None]);
    evidence.set_file("/lists/root", &trusted, &list(&root, &[], 2027)).expect("right, and old");
    assert_eq!(failure(&store, &seven, NOW), Some(ChainFailure::RevocationListExpired));
    evidence.keep_files(&[]);
    assert_eq!(failure(&store, &seven, NOW), Some(ChainFailure::NoRevocationList));
}

fn openssl(file: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/certificates/ocsp/");
    std::fs::read(format!("{folder}{file}")).expect("it is there")
}

fn openssl_certificate(name: &str) -> Certificate {
    Certificate::from_file(&openssl(&format!("{name}.pem"))).expect("PEM").remove(0)
}

#[test]
fn an_ocsp_response_must_be_signed_by_the_issuer_or_its_responder() {
    for (name, answer, said) in [
        ("good", "good.resp", Ok(None)),
        ("good", "good-by-ca.resp", Ok(None)),
        ("bad", "bad.resp", Ok(Some(ChainFailure::Revoked))),
        ("bad", "forged.resp", Err("signed by neither")),
        ("bad", "good.resp", Err("about another certificate")),
        ("good", "good.req", Err("malformed")),
    ] {
        let (store, evidence, _) = store(&[&openssl_certificate("ca")], Revocation::IfUri);
        let peer = openssl_certificate(name);
        assert!(matches!(failure(&store, &peer, NOW), Some(ChainFailure::StatusAwaited(_))));
        let query = query(&evidence, NOW);
        assert_eq!(query.url(), "http://192.0.2.80/ocsp");
        if name == "good" {
            assert_eq!(query.body(), Some(&openssl("good.req")[..]), "the same request as OpenSSL's");
        }
        match (evidence.answer(&query, NOW, Ok(openssl(answer))), said) {
            (Ok(()), Ok(expected)) => assert_eq!(failure(&store, &peer, NOW), expected, "{answer}"),
            (Err(error), Err(said)) => {
                assert!(error.contains(said), "{answer}: {error}");
                assert!(failure(&store, &peer, NOW).is_some(), "{answer}");
            }
            (told, _) => panic!("{answer}: {told:?}"),
        }
    }
}

#[test]
fn an_ocsp_response_must_be_current() {
    let (store, evidence, _) = store(&[&openssl_certificate("ca")], Revocation::Strict);
    let peer = openssl_certificate("good");
    let early = Duration::from_secs(1_790_000_000);
    let _ = failure(&store, &peer, NOW);
    let error =
        evidence.answer(&query(&evidence, NOW), early, Ok(openssl("good-by-ca.resp"))).expect_err("early");
    assert!(error.contains("is the clock right?"), "{error}");
}

/// An authority with a new key keeps its name. A CRL signed with one key says nothing about certificates of the other.
#[test]
fn an_authority_with_two_keys_has_two_lists() {
    let keys = [authority("root"), authority("root")];
    let trusted = keys.each_ref().map(|root| parse(root.der()));
    // Both keys use the same serial number, to tell which CRL was consulted.
    let peers = keys.each_ref().map(|root| [peer(7, &[], root), peer(8, &[], root)]);
    for newer in [0, 1] {
        let lists =
            [0, 1].map(|key| list(&keys[key], &[7 + key as u64], if key == newer { 2030 } else { 2029 }));
        for revocation in [Revocation::Relaxed, Revocation::Strict] {
            let (mut configured, ..) = store(&[&trusted[0], &trusted[1]], revocation);
            let (from_files, evidence, _) = store(&[&trusted[1], &trusted[0]], revocation);
            for (key, list) in lists.iter().enumerate() {
                configured.add_revocation_lists(list).expect("a list");
                evidence.set_file(&format!("/lists/{key}"), &trusted[key], list).expect("a list");
            }
            for store in [configured, from_files] {
                for (key, of_key) in peers.iter().enumerate() {
                    let found = of_key.each_ref().map(|peer| failure(&store, peer, NOW));
                    let mut expected = [None, None];
                    expected[key] = Some(ChainFailure::Revoked);
                    assert_eq!(found, expected, "key {key} with {revocation:?}, newer {newer}");
                }
            }
        }
    }
}

/// With the CRL of one key only, the status of the other key's certificates is unknown, but that is no error of the
/// CRL.
#[test]
fn the_list_of_a_new_key_does_not_count_for_the_old_key() {
    let (old, new) = (authority("root"), authority("root"));
    let trusted = [parse(old.der()), parse(new.der())];
    let peers = [peer(7, &[], &old), peer(7, &[], &new)];
    for (revocation, of_old) in
        [(Revocation::Relaxed, None), (Revocation::Strict, Some(ChainFailure::NoRevocationList))]
    {
        let (mut store, ..) = store(&[&trusted[0], &trusted[1]], revocation);
        store.add_revocation_lists(&list(&new, &[], 2030)).expect("a list");
        assert_eq!(peers.each_ref().map(|it| failure(&store, it, NOW)), [of_old, None], "{revocation:?}");
    }
}

/// Both keys use one address, which serves the CRLs of both in turn.
#[test]
fn each_key_fetches_its_own_list() {
    let (old, new) = (authority("root"), authority("root"));
    let (store, evidence, _) = store(&[&parse(old.der()), &parse(new.der())], Revocation::Strict);
    let peers = [peer(7, &[PLACE], &old), peer(7, &[PLACE], &new)];
    let statuses = || peers.each_ref().map(|peer| failure(&store, peer, NOW).is_none());
    assert_eq!(statuses(), [false, false]);
    let answers: Vec<_> =
        evidence.due(NOW).iter().map(|it| evidence.answer(it, NOW, Ok(list(&new, &[], 2030)))).collect();
    assert_eq!(answers.len(), 2, "one for each key");
    assert_eq!(answers.iter().filter(|it| it.is_ok()).count(), 1, "{answers:?}");
    assert_eq!(statuses(), [false, true]);
}

/// The number of sources is limited per authority, whatever certificates it signs.
#[test]
fn sources_are_limited_per_authority() {
    let (root, other) = (authority("root"), authority("other"));
    let (store, evidence, _) = store(&[&parse(root.der()), &parse(other.der())], Revocation::Strict);
    let _ = failure(&store, &peer(7, &[PLACE], &other), NOW);
    let of_other = query(&evidence, NOW);
    evidence.answer(&of_other, NOW, Ok(list(&other, &[], 2030))).expect("right");
    for number in 0..40 {
        let places: Vec<String> = (0..4).map(|place| format!("http://{number}.example/{place}")).collect();
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        let _ = failure(&store, &peer(number, &places, &root), NOW + SECOND * number as u32);
    }
    // Certificates of CAs below it count as well.
    for number in 0..20 {
        let mut between = authority_params(&format!("between {number}"));
        between.crl_distribution_points =
            vec![CrlDistributionPoint { uris: vec![format!("http://b.example/{number}")] }];
        let key = key();
        let between = CertifiedIssuer::signed_by(between, key, &root).expect("valid");
        let low = peer(7, &[&format!("http://low.example/{number}")], &between);
        let _ = store.verify(&low, &[parse(between.der())], NOW);
    }
    let due = evidence.due(NOW + SECOND * 60);
    assert_eq!(
        failure(&store, &peer(7, &[PLACE], &other), NOW),
        None,
        "the other authority's sources are kept"
    );
    assert!(due.len() == 16 && due.iter().all(|query| query.limit() <= 4 << 20), "{}", due.len());
    assert!(due.iter().any(|query| query.url().starts_with("http://39.")), "the newest stay");
    evidence.keep_authorities(&HashSet::from([parse(root.der()).key_hash()]));
    assert!(
        failure(&store, &peer(7, &[PLACE], &other), NOW).is_some(),
        "the authority is no longer configured"
    );
}
