//! The parts of what the server serves: the API for other machines, metrics, the status page, and branches that join.

use super::model;
use super::process::{OrderError, Process};
use super::service::{Part, ServedPart, certificate, hash};
use super::wire;
use crate::service::Work;
use axum::Json;
use axum::response::{IntoResponse, Response};
use base64ct::{Base64, Encoding};
use config::Settings;
use config::settings::{Enrollment, Https, Metrics, MetricsPeers, MetricsTls, Page};
use crypto::SecretBytes;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// The API for other machines.
pub type HttpsService = ServedPart<Api>;
/// Counters and states for Prometheus.
pub type MetricsService = ServedPart<MetricsPart>;
/// The status page.
pub type PageService = ServedPart<PagePart>;
/// Branches that join.
pub type EnrollmentService = ServedPart<EnrollmentPart>;

/// `service https`
#[derive(Default)]
pub struct Api;

impl Part for Api {
    type Settings = Https;
    const NAME: &'static str = "https";
    const ABOUT: &'static str = "API over HTTPS";
    const PLACE: &'static str = "/v1/service/https";

    fn is_wanted(settings: &Settings) -> bool {
        settings.https.is_some()
    }

    fn take(settings: &mut Settings) -> Option<Https> {
        settings.https.take()
    }

    fn listen(https: &Https) -> &BTreeMap<SocketAddr, Vec<IpNet>> {
        &https.listen
    }

    fn keys(https: &Https) -> Vec<String> {
        https.keys.keys().cloned().collect()
    }

    fn order<'a>(
        process: &'a mut Process,
        wanted: Option<(&'a Https, Vec<wire::Listener>)>,
        salt: &'a SecretBytes,
        sockets: Vec<BorrowedFd<'a>>,
    ) -> Work<'a, Result<Option<String>, OrderError>> {
        let service = wanted.map(|(https, listeners)| wire::Service {
            listeners,
            salt: Base64::encode_string(salt.expose()),
            keys: https
                .keys
                .iter()
                .map(|(id, key)| wire::Key { id: id.clone(), hash: hash(salt, key) })
                .collect(),
            certificate: https.certificate.as_ref().map(certificate),
            lifetime_days: https.lifetime_days,
            names: https.names.clone(),
            tls12: https.versions.tls12,
            tls13: https.versions.tls13,
            is_strict: https.is_strict,
        });
        Box::pin(async move { process.order(service, &sockets).await })
    }

    fn fingerprint(process: &Process) -> Option<String> {
        process.fingerprint()
    }

    fn answer(shown: model::Https) -> Response {
        Json(shown).into_response()
    }
}

/// `service metrics`
#[derive(Default)]
pub struct MetricsPart;

impl Part for MetricsPart {
    type Settings = Metrics;
    const NAME: &'static str = "metrics";
    const ABOUT: &'static str = "metrics endpoint";
    const PLACE: &'static str = "/v1/service/metrics";

    fn is_wanted(settings: &Settings) -> bool {
        settings.metrics.is_some()
    }

    fn take(settings: &mut Settings) -> Option<Metrics> {
        settings.metrics.take()
    }

    fn listen(metrics: &Metrics) -> &BTreeMap<SocketAddr, Vec<IpNet>> {
        &metrics.listen
    }

    fn keys(metrics: &Metrics) -> Vec<String> {
        metrics.token.iter().map(|_| "token".to_owned()).collect()
    }

    fn order<'a>(
        process: &'a mut Process,
        wanted: Option<(&'a Metrics, Vec<wire::Listener>)>,
        salt: &'a SecretBytes,
        sockets: Vec<BorrowedFd<'a>>,
    ) -> Work<'a, Result<Option<String>, OrderError>> {
        let metrics = wanted.map(|(metrics, listeners)| wire::Metrics {
            listeners,
            salt: Base64::encode_string(salt.expose()),
            token: metrics.token.as_ref().map(|token| hash(salt, token)),
            tls: metrics.tls.as_ref().map(secured),
            peers: match metrics.peers {
                MetricsPeers::All => wire::Peers::All,
                MetricsPeers::DownOnly => wire::Peers::DownOnly,
                MetricsPeers::Off => wire::Peers::Off,
            },
            wireguard_names: metrics.wireguard_names,
        });
        Box::pin(async move { process.order_metrics(metrics, &sockets).await })
    }

    fn fingerprint(process: &Process) -> Option<String> {
        process.metrics_fingerprint()
    }

    fn answer(shown: model::Https) -> Response {
        let model::Https { is_served, addresses, keys, fingerprint, problem } = shown;
        let has_token = !keys.is_empty();
        Json(model::Metrics { is_served, addresses, has_token, fingerprint, problem }).into_response()
    }
}

/// Makes what sessions of the status page count with another hash than any other of the token.
const SESSIONS: &[u8] = b"sessions of the status page";

/// `service page`
#[derive(Default)]
pub struct PagePart;

impl Part for PagePart {
    type Settings = Page;
    const NAME: &'static str = "page";
    const ABOUT: &'static str = "status page";
    const PLACE: &'static str = "/v1/service/page";

    fn is_wanted(settings: &Settings) -> bool {
        settings.page.is_some()
    }

    fn take(settings: &mut Settings) -> Option<Page> {
        settings.page.take()
    }

    fn listen(page: &Page) -> &BTreeMap<SocketAddr, Vec<IpNet>> {
        &page.listen
    }

    fn keys(_: &Page) -> Vec<String> {
        vec!["token".to_owned()]
    }

    fn order<'a>(
        process: &'a mut Process,
        wanted: Option<(&'a Page, Vec<wire::Listener>)>,
        salt: &'a SecretBytes,
        sockets: Vec<BorrowedFd<'a>>,
    ) -> Work<'a, Result<Option<String>, OrderError>> {
        let page = wanted.map(|(page, listeners)| wire::Page {
            listeners,
            salt: Base64::encode_string(salt.expose()),
            token: hash(salt, &page.token),
            sessions: Base64::encode_string(&wire::hash(SESSIONS, page.token.expose())),
            tls: page.tls.as_ref().map(secured),
            names: page.names.clone(),
        });
        Box::pin(async move { process.order_page(page, &sockets).await })
    }

    fn fingerprint(process: &Process) -> Option<String> {
        process.page_fingerprint()
    }

    fn answer(shown: model::Https) -> Response {
        MetricsPart::answer(shown)
    }
}

/// `service enrollment`
#[derive(Default)]
pub struct EnrollmentPart;

impl Part for EnrollmentPart {
    type Settings = Enrollment;
    const NAME: &'static str = "enrollment";
    const ABOUT: &'static str = "enrolment of branches";
    const PLACE: &'static str = "/v1/service/enrollment";

    fn is_wanted(settings: &Settings) -> bool {
        settings.enrollment.is_some()
    }

    fn take(settings: &mut Settings) -> Option<Enrollment> {
        settings.enrollment.take()
    }

    fn listen(enrollment: &Enrollment) -> &BTreeMap<SocketAddr, Vec<IpNet>> {
        &enrollment.listen
    }

    fn keys(enrollment: &Enrollment) -> Vec<String> {
        enrollment.branches.keys().cloned().collect()
    }

    fn order<'a>(
        process: &'a mut Process,
        wanted: Option<(&'a Enrollment, Vec<wire::Listener>)>,
        _: &'a SecretBytes,
        sockets: Vec<BorrowedFd<'a>>,
    ) -> Work<'a, Result<Option<String>, OrderError>> {
        let enrollment = wanted.map(|(enrollment, listeners)| {
            let tokens = enrollment.branches.iter().filter_map(|(name, branch)| {
                let hash = Base64::encode_string(&branch.token.as_ref()?.hash);
                Some(wire::Token { branch: name.clone(), hash })
            });
            wire::Enrollment { listeners, tokens: tokens.collect() }
        });
        Box::pin(async move { process.order_enrollment(enrollment, &sockets).await })
    }

    fn fingerprint(process: &Process) -> Option<String> {
        process.enrollment_pin()
    }

    fn answer(shown: model::Https) -> Response {
        let model::Https { is_served, addresses, keys, fingerprint, problem } = shown;
        Json(model::Enrollment { is_served, addresses, branches: keys, pin: fingerprint, problem })
            .into_response()
    }
}

/// How connections of a part are secured.
fn secured(tls: &MetricsTls) -> wire::MetricsTls {
    wire::MetricsTls { certificate: tls.certificate.as_ref().map(certificate) }
}
