//! From a request to its answer: the place, the body, the key, and what it asks for.

use crate::app::{App, LONG_AT_ONCE};
use crate::daemon::Refused;
use crate::source::Source;
use crate::{typed, vyos};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use gateway::api::connections::Deadline;
use gateway::api::server::{Unread, whole};
use hyper::Request;
use hyper::body::{Body as _, Bytes, Incoming};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a request.
const LONGEST: usize = 64 << 10;
/// Bytes of a request that may have a whole configuration.
const LONGEST_CONFIGURATION: usize = 16 << 20;
/// How long such a request may take.
const LONG_PATIENCE: Duration = Duration::from_secs(60);
/// Answers a request.
pub(crate) async fn answer(
    app: Arc<App>,
    request: Request<Incoming>,
    source: Source,
    deadline: Deadline,
    patience: Duration,
) -> Response {
    let (head, body) = request.into_parts();
    let is_typed = head.uri.path().starts_with(typed::PREFIX);
    if !is_typed && !vyos::is_endpoint(head.uri.path()) {
        return vyos::error(StatusCode::NOT_FOUND, &format!("there is no {}", head.uri.path()));
    }
    let body = match read(&app, &head, body, &deadline, patience).await {
        Ok(body) => body,
        Err(refused) => return vyos::error(refused.status, &refused.error),
    };
    deadline.suspend();
    let (method, path) = (head.method.clone(), head.uri.path().to_owned());
    let (client, response) = if is_typed {
        typed::answer(&app, &head, body, source).await
    } else {
        vyos::answer(&app, &head, body, source).await
    };
    let (id, status) = (client.map_or("-".to_owned(), |client| client.id), response.status().as_u16());
    if method == Method::GET || path == "/retrieve" || path == "/show" {
        tracing::debug!("https: {source} {id} {method} {path} {status}");
    } else {
        tracing::info!("https: {source} {id} {method} {path} {status}");
    }
    response
}

/// The whole body, if it is not too long.
async fn read(
    app: &App,
    head: &Parts,
    body: Incoming,
    deadline: &Deadline,
    patience: Duration,
) -> Result<Bytes, Refused> {
    let is_short = body.size_hint().upper().is_some_and(|upper| upper <= LONGEST as u64);
    let may_be_long = matches!(
        head.uri.path(),
        "/configure" | "/configure-section" | "/config-file" | "/v1/configuration/commit" | typed::TREE
    );
    let longest = if may_be_long { LONGEST_CONFIGURATION } else { LONGEST };
    let _permit = if may_be_long && !is_short {
        let permit = app.long_permits.try_acquire().map_err(|_| {
            let error = format!("{LONG_AT_ONCE} long requests are being read: send this one again");
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, error)
        })?;
        deadline.restart(patience.max(LONG_PATIENCE));
        Some(permit)
    } else {
        None
    };
    whole(body, longest).await.map_err(|unread| match unread {
        Unread::TooLarge => {
            Refused::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a request has at most {longest} bytes here"))
        }
        Unread::Incomplete(error) => Refused::bad(format!("the request is incomplete: {error}")),
    })
}
