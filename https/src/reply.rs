//! Headers of requests and answers.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use std::time::Duration;
use zeroize::Zeroizing;

/// The key in a header: `Authorization: Bearer KEY`, or `X-API-Key: KEY`.
pub(crate) fn header_key(headers: &HeaderMap) -> Option<Zeroizing<Vec<u8>>> {
    let of = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let bearer = of("authorization").and_then(|value| {
        let (scheme, key) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(key.trim_ascii())
    });
    bearer.or_else(|| of("x-api-key")).map(|key| Zeroizing::new(key.to_vec()))
}

/// An answer of JSON.
pub(crate) fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Answers may have secrets.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Says how long to wait.
pub(crate) fn retry_after(mut response: Response, wait: Duration) -> Response {
    let seconds = wait.as_secs() + 1;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}
