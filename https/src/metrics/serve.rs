//! Answers scrapes: `GET /metrics`.

use super::Options;
use super::page::{Latest, PageError};
use crate::daemon::Daemon;
use crate::gate::{Denied, Gate};
use crate::keys::Keys;
use crate::listen::Answering;
use crate::place::Place;
use crate::reply::{header_key, retry_after};
use crate::source::Source;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gateway::api::connections::Deadline;
use gateway::https::wire;
use hyper::Request;
use hyper::body::Incoming;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where metrics are.
const PLACE: &str = "/metrics";
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
/// Times a client may ask again when the daemon has not answered.
const RETRY: Duration = Duration::from_secs(1);

/// The state that all scrapes share.
pub(crate) struct Metrics {
    daemon: Arc<Daemon>,
    serving: Mutex<Arc<Serving>>,
    gate: Gate,
    latest: Arc<Latest>,
}

/// The part of it that changes with the configuration.
#[derive(Default)]
pub(crate) struct Serving {
    /// The token, if there is one.
    token: Option<Keys>,
    options: Options,
}

impl Serving {
    /// What the daemon wants. A token that cannot be read is one that no client has.
    pub(crate) fn new(wanted: &wire::Metrics) -> Self {
        let key = |hash: &String| wire::Key { id: "token".to_owned(), hash: hash.clone() };
        Self {
            token: wanted.token.as_ref().map(|hash| Keys::new(&wanted.salt, &[key(hash)])),
            options: Options { peers: wanted.peers, wireguard_names: wanted.wireguard_names },
        }
    }
}

impl Metrics {
    pub(crate) fn new(place: &Place) -> Self {
        Self {
            daemon: Arc::new(Daemon::new(place.api.clone())),
            serving: Mutex::default(),
            gate: Gate::default(),
            latest: Arc::default(),
        }
    }

    pub(crate) fn set_serving(&self, serving: Serving) {
        *self.lock() = Arc::new(serving);
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Serving>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn respond(&self, head: &Parts, source: Source) -> Response {
        let serving = Arc::clone(&self.lock());
        if let Some(token) = &serving.token {
            let key = header_key(&head.headers);
            if let Err(denied) = self.gate.client(token, key.as_deref().map(Vec::as_slice), source).await {
                return denial(denied);
            }
        }
        if head.uri.path() != PLACE {
            return said(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
        }
        if ![Method::GET, Method::HEAD].contains(&head.method) {
            let mut response = said(StatusCode::METHOD_NOT_ALLOWED, "metrics are read with GET\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        self.page(&head.headers, serving.options).await.unwrap_or_else(|error| {
            retry_after(said(StatusCode::SERVICE_UNAVAILABLE, &format!("{error}\n")), RETRY)
        })
    }

    async fn page(&self, asked: &HeaderMap, options: Options) -> Result<Response, PageError> {
        let page = self.latest.page(&self.daemon, options).await?;
        let is_compressed = takes_gzip(asked);
        let body = if is_compressed { page.gzip().await? } else { page.text() };
        let mut response = body.into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, OPEN_METRICS);
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        if is_compressed {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Ok(response)
    }
}

impl Answering for Metrics {
    const NAME: &'static str = "metrics";

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        source: Source,
        deadline: Deadline,
        _: Duration,
    ) -> Response {
        let (head, body) = request.into_parts();
        // Nothing of a body is read: a client that sends one is closed.
        drop(body);
        deadline.suspend();
        self.respond(&head, source).await
    }

    fn not_allowed(why: &str) -> Response {
        said(StatusCode::FORBIDDEN, &format!("{why}\n"))
    }
}

fn said(status: StatusCode, text: &str) -> Response {
    (status, text.to_owned()).into_response()
}

/// The answer to a request without the token.
fn denial(denied: Denied) -> Response {
    match denied {
        Denied::TooMany(wait) => {
            let answer =
                said(StatusCode::TOO_MANY_REQUESTS, "too many requests: wait, as Retry-After says\n");
            retry_after(answer, wait)
        }
        Denied::WrongKey => {
            let why = "a token is required: Authorization: Bearer TOKEN\n";
            let mut response = said(StatusCode::UNAUTHORIZED, why);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
    }
}

/// Whether a client takes gzip (RFC 9110 section 12.5.3): it names it, and not with a weight of 0.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings = values.flat_map(|value| value.split(',')).map(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Some(1.0), |weight| weight.parse::<f64>().ok());
        (name.trim(), weight.unwrap_or_default())
    });
    codings.any(|(name, weight)| name.eq_ignore_ascii_case("gzip") && weight > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_to_those_who_name_it() {
        let takes = |value: &'static str| {
            takes_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))]))
        };
        assert!(takes("gzip") && takes("deflate, GZIP;q=0.5") && takes("br;q=1, gzip"));
        assert!(!takes("") && !takes("identity") && !takes("gzip;q=0") && !takes("gzip; q=x") && !takes("*"));
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
