//! From a request to its answer: the place, the key if it is in a header, the body, and what it asks for.

use crate::app::App;
use crate::daemon::Refused;
use crate::gate::Client;
use crate::long_bodies::Room;
use crate::reply::header_key;
use crate::source::Source;
use crate::{typed, vyos};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::Response;
use gateway::api::connections::Deadline;
use gateway::api::server::{Unread, whole};
use http_body_util::BodyExt;
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
/// Bytes of a refused request that are read and forgotten.
const DISCARDED: usize = 1 << 20;
/// Characters of a path in the log.
const LONGEST_SHOWN: usize = 100;

/// Answers a request.
pub(crate) async fn answer(
    app: Arc<App>,
    request: Request<Incoming>,
    source: Source,
    deadline: Deadline,
    patience: Duration,
) -> Response {
    let (head, body) = request.into_parts();
    let (client, response) = respond(&app, &head, body, source, &deadline, patience).await;
    log(&head, source, client.as_ref(), response.status());
    response
}

async fn respond(
    app: &App,
    head: &Parts,
    body: Incoming,
    source: Source,
    deadline: &Deadline,
    patience: Duration,
) -> (Option<Client>, Response) {
    let is_typed = head.uri.path().starts_with(typed::PREFIX);
    if !is_typed && !vyos::is_endpoint(head.uri.path()) {
        return (None, vyos::error(StatusCode::NOT_FOUND, &format!("there is no {}", head.uri.path())));
    }
    let client = match header_key(&head.headers) {
        // VyOS has the key in the body.
        None if !is_typed => None,
        key => match app.client(key.as_deref().map(Vec::as_slice), source).await {
            Ok(client) => Some(client),
            Err(denied) => {
                discard(&head.headers, body).await;
                return (None, if is_typed { typed::denial(denied) } else { vyos::denial(denied) });
            }
        },
    };
    let (body, room) = match read(app, head, body, source, client.is_some(), deadline, patience).await {
        Ok(read) => read,
        Err(refused) if is_typed => return (client, typed::refusal(refused)),
        Err(refused) => return (client, vyos::error(refused.status, &refused.error)),
    };
    deadline.suspend();
    match client {
        Some(client) if is_typed => {
            let response = typed::answer(app, head, body, &client).await;
            (Some(client), response)
        }
        client => vyos::answer(app, head, body, source, client, room).await,
    }
}

/// Logs the requests of keys, the changes at the usual level. Requests without a key are logged for debugging only: anyone may send
/// them, as fast as the network allows.
fn log(head: &Parts, source: Source, client: Option<&Client>, status: StatusCode) {
    let (method, path, status) = (&head.method, shown(head.uri.path()), status.as_u16());
    let Some(Client { id }) = client else {
        tracing::debug!("https: {source} - {method} {path} {status}");
        return;
    };
    if method == Method::GET || path == "/retrieve" || path == "/show" {
        tracing::debug!("https: {source} {id} {method} {path} {status}");
    } else {
        tracing::info!("https: {source} {id} {method} {path} {status}");
    }
}

/// The beginning of a path.
fn shown(path: &str) -> &str {
    path.get(..LONGEST_SHOWN).unwrap_or(path)
}

fn is_short(body: &Incoming) -> bool {
    body.size_hint().upper().is_some_and(|upper| upper <= LONGEST as u64)
}

/// Reads the beginning of a body that is refused: one that is closed unread resets the connection, and a client that still sends
/// loses the answer. A client that waits for leave to send gets the answer instead.
async fn discard(headers: &HeaderMap, mut body: Incoming) {
    let mut left = DISCARDED;
    while left > 0 && !headers.contains_key(header::EXPECT) {
        let Some(Ok(frame)) = body.frame().await else { return };
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
    }
}

/// The whole body, if it is not too long; with its room if it is long.
async fn read<'a>(
    app: &'a App,
    head: &Parts,
    body: Incoming,
    source: Source,
    is_known: bool,
    deadline: &Deadline,
    patience: Duration,
) -> Result<(Bytes, Option<Room<'a>>), Refused> {
    let may_be_long = matches!(
        head.uri.path(),
        "/configure" | "/configure-section" | "/config-file" | "/v1/configuration/commit" | typed::TREE
    );
    let longest = if may_be_long { LONGEST_CONFIGURATION } else { LONGEST };
    let too_large =
        || Refused::new(StatusCode::PAYLOAD_TOO_LARGE, format!("a request has at most {longest} bytes here"));
    if body.size_hint().lower() > longest as u64 {
        discard(&head.headers, body).await;
        return Err(too_large());
    }
    let room = if may_be_long && !is_short(&body) {
        let room = if is_known {
            deadline.suspend();
            Some(app.long_bodies.known().await)
        } else {
            app.long_bodies.unknown(source)
        };
        let Some(room) = room else {
            discard(&head.headers, body).await;
            let full = "other long requests are being read\n  fix: send this one again, with the key in a header: \
                        Authorization: Bearer KEY";
            return Err(Refused::new(StatusCode::SERVICE_UNAVAILABLE, full));
        };
        deadline.restart(patience.max(LONG_PATIENCE));
        Some(room)
    } else {
        None
    };
    let body = whole(body, longest).await.map_err(|unread| match unread {
        Unread::TooLarge => too_large(),
        Unread::Incomplete(error) => Refused::bad(format!("the request is incomplete: {error}")),
    })?;
    Ok((body, room))
}
