//! Serves HTTP on a Unix socket: accept → make room → read a request in time → answer → write in time.
//!
//! Only the owner of the socket can connect. The limits protect against clients that hang or leak connections: they must not
//! exhaust the memory or descriptors of the gateway, nor block other clients.

use super::connections::{Connections, Deadline};
use super::model::Problem;
use super::stream::Streamed;
use crate::unix_socket::Listener;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::process::Pid;
use rustix::thread::capabilities;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tower::ServiceExt;

/// Where commits go: their bodies may be longer than those of others.
pub(super) const COMMIT: &str = "/v1/configuration/commit";
/// The typed configuration.
pub(super) const TREE: &str = "/v1/configuration/tree";

/// Bytes of a request's head.
const LONGEST_HEAD: usize = 64 << 10;
/// Bytes a second that a client must take of an answer.
const SLOWEST: u64 = 16 << 10;
/// JSON values of a body: each takes tens of bytes in memory, but may have only two in the body.
const MOST_VALUES: usize = 1 << 20;

/// Bytes that may be on their way to a client when the sender of a streamed answer ends.
const ON_THEIR_WAY: u64 = 512 << 10;

/// The process that has connected, as the kernel knows it (unix(7), `SO_PEERCRED`).
#[derive(Clone, Copy)]
pub(super) struct Client {
    pub(super) uid: u32,
    pub(super) has_capabilities: bool,
}

impl Client {
    fn of(stream: &UnixStream) -> Option<Self> {
        let who = stream.peer_cred().ok()?;
        // One of a PID namespace above ours has no number here, and is no helper of ours.
        let process = who.pid().and_then(Pid::from_raw);
        let has_any = |process| capabilities(Some(process)).is_ok_and(|it| !it.effective.is_empty());
        Some(Self { uid: who.uid(), has_capabilities: process.is_none_or(has_any) })
    }

    /// Whether it is root, and no helper of a daemon that is root: helpers have no capability.
    pub(super) fn is_root(self) -> bool {
        self.uid == 0 && self.has_capabilities
    }
}

/// Limits on the resources that clients can use.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Connections at once. One more ends the connection that has been idle for longest.
    pub(super) connections: usize,
    /// How long a client may take to send a whole request, and to take the answer; also how long it may be idle.
    pub(super) patience: Duration,
    /// Bytes of a request's body.
    pub(super) longest: usize,
    /// Bytes of the body of a commit, which may be a whole configuration.
    pub(super) longest_commit: usize,
    /// Such bodies in memory at once. Further requests wait.
    pub(super) long_at_once: usize,
}

impl Limits {
    pub(super) const USUAL: Self = Self {
        connections: 64,
        patience: Duration::from_secs(10),
        longest: 64 << 10,
        longest_commit: super::LONGEST_COMMIT,
        long_at_once: 2,
    };

    /// The limit of the body of a request to this path.
    fn longest_of(&self, path: &str) -> usize {
        if [COMMIT, TREE].contains(&path) { self.longest_commit } else { self.longest }
    }
}

/// Serves connections for ever.
pub(super) async fn serve(listener: Listener, router: Router, limits: Limits) {
    // They are all of the owner of the socket.
    let mut connections = Connections::new(limits.connections, limits.connections);
    let long_bodies = Arc::new(Semaphore::new(limits.long_at_once));
    loop {
        match listener.accept().await {
            Ok(stream) => {
                if !connections.make_room(&()) {
                    tracing::warn!(
                        "api: {} requests are being answered: one more is refused",
                        connections.len()
                    );
                    continue;
                }
                let deadline = Deadline::after(limits.patience);
                let (router, working, long_bodies) =
                    (router.clone(), deadline.clone(), Arc::clone(&long_bodies));
                let client = Client::of(&stream);
                let answer = move |mut request: Request<Incoming>| {
                    if let Some(client) = client {
                        request.extensions_mut().insert(client);
                    }
                    answer(request, router.clone(), limits, Arc::clone(&long_bodies), working.clone())
                };
                let conversation = converse(stream, limits.patience, deadline.clone(), answer);
                connections.add((), tokio::spawn(conversation).abort_handle(), deadline);
            }
            Err(error) => {
                tracing::warn!("api: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Answers the requests of one connection, until the client is late. `answer` suspends the deadline once it has read a request.
pub async fn converse<S, A, F>(stream: S, patience: Duration, deadline: Deadline, answer: A)
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response>,
{
    let restarted = deadline.clone();
    let service = service_fn(move |request| {
        let (answered, deadline) = (answer(request), restarted.clone());
        async move {
            let response = answered.await;
            match response.extensions().get::<Streamed>().cloned() {
                None => deadline.restart(patience + time_to_take(response.body().size_hint().lower())),
                // Its connection has no further request, whose time this would be.
                Some(streamed) => {
                    tokio::spawn(async move {
                        streamed.ended().await;
                        deadline.restart(patience + time_to_take(ON_THEIR_WAY));
                    });
                }
            }
            Ok::<_, Infallible>(response)
        }
    });
    // The deadline covers the whole request, not only its head.
    let mut http = http1::Builder::new();
    http.header_read_timeout(None).max_buf_size(LONGEST_HEAD);
    tokio::select! {
        ended = http.serve_connection(TokioIo::new(stream), service) => {
            if let Err(error) = ended {
                tracing::debug!("api: {error}");
            }
        }
        () = deadline.passed() => tracing::debug!("api: a client was idle or slow for {patience:?}"),
    }
}

/// The time that a client on a slow link may take for an answer, beyond that for a short one.
fn time_to_take(bytes: u64) -> Duration {
    Duration::from_secs(bytes / SLOWEST)
}

/// Reads a whole request, and answers it.
async fn answer(
    request: Request<Incoming>,
    router: Router,
    limits: Limits,
    long_bodies: Arc<Semaphore>,
    deadline: Deadline,
) -> Response {
    let (head, body) = request.into_parts();
    let longest = limits.longest_of(head.uri.path());
    // Held until the answer: the body is in memory until then.
    let _permit = if longest > limits.longest && !is_at_most(&body, limits.longest) {
        deadline.suspend();
        let permit = long_bodies.acquire_owned().await.expect("it is never closed");
        deadline.restart(limits.patience);
        Some(permit)
    } else {
        None
    };
    let body = match whole(body, longest).await {
        Ok(body) if has_many_values(&body) => {
            let why = format!("a request has at most {MOST_VALUES} JSON values");
            return problem(StatusCode::PAYLOAD_TOO_LARGE, why, "commit it in parts");
        }
        Ok(body) => body,
        Err(Unread::TooLarge) => {
            return problem(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("a request has at most {longest} bytes"),
                if longest > limits.longest { "commit it in parts" } else { "send a shorter request" },
            );
        }
        Err(Unread::Incomplete(error)) => {
            return problem(StatusCode::BAD_REQUEST, format!("the request is incomplete: {error}"), AGAIN);
        }
    };
    deadline.suspend();
    match router.oneshot(Request::from_parts(head, Body::from(body))).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Whether a body has announced no more than these bytes.
fn is_at_most(body: &Incoming, length: usize) -> bool {
    body.size_hint().upper().is_some_and(|upper| upper <= length as u64)
}

/// Whether JSON has more values than are parsed, by the characters that begin or separate them. Those within texts count too.
fn has_many_values(json: &[u8]) -> bool {
    json.len() > MOST_VALUES && json.iter().filter(|byte| b",[{".contains(byte)).count() > MOST_VALUES
}

/// Why the body of a request could not be read.
#[derive(Debug)]
pub enum Unread {
    /// It is longer than allowed.
    TooLarge,
    /// The client did not send all of it.
    Incomplete(String),
}

/// The whole body of a request, of at most so many bytes.
pub async fn whole(body: Incoming, longest: usize) -> Result<Bytes, Unread> {
    // Refuse an announced length without reading the body.
    if body.size_hint().lower() > longest as u64 {
        return Err(Unread::TooLarge);
    }
    match Limited::new(body, longest).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Unread::TooLarge),
        Err(error) => Err(Unread::Incomplete(error.to_string())),
    }
}

const AGAIN: &str = "send it again";

/// The answer to a request that is refused.
pub(crate) fn problem(status: StatusCode, error: impl Into<String>, fix: impl Into<String>) -> Response {
    (status, Json(Problem { error: error.into(), fix: Some(fix.into()) })).into_response()
}

/// The error for a request body that cannot be parsed.
pub(crate) fn unreadable(rejection: &JsonRejection) -> Response {
    // JSON of a wrong type: 422 is for a wrong configuration, with all its errors.
    let status = match rejection.status() {
        StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
        other => other,
    };
    problem(status, rejection.body_text(), "send JSON, with content-type: application/json")
}

/// The error for a path with a word of a wrong type.
pub(crate) fn misplaced(rejection: &PathRejection) -> Response {
    let why = rejection.body_text();
    problem(StatusCode::BAD_REQUEST, why, "write a number there: /v1/openapi.json has the type")
}

#[cfg(test)]
#[path = "server/tests.rs"]
mod tests;
