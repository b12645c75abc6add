//! Serves HTTP on a Unix socket: accept → make room → read a request in time → answer → write in time.
//!
//! Only the owner of the socket can connect. The limits protect against clients that hang or leak connections: they must not
//! exhaust the memory or descriptors of the gateway, nor block other clients.

use super::model::Problem;
use crate::unix_socket::Listener;
use axum::body::Body;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tower::ServiceExt;

/// Where commits go: their bodies may be longer than those of others.
pub(super) const COMMIT: &str = "/v1/configuration/commit";

/// Limits on the resources that clients can use.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Connections at once. One more ends the connection that has been idle for longest.
    pub(super) connections: usize,
    /// How long a client may take to send a whole request, and to take the answer; also how long it may be idle.
    pub(super) patience: Duration,
    /// Bytes of a request's body, and of its head.
    pub(super) longest: usize,
    /// Bytes of the body of a commit, which may be a whole configuration.
    pub(super) longest_commit: usize,
}

impl Limits {
    pub(super) const USUAL: Self = Self {
        connections: 64,
        patience: Duration::from_secs(10),
        longest: 64 << 10,
        longest_commit: 16 << 20,
    };

    /// The limit of the body of a request to this path.
    fn longest_of(&self, path: &str) -> usize {
        if path == COMMIT { self.longest_commit } else { self.longest }
    }
}

/// When the client must have sent its request or taken the answer; `None` while the daemon works on a request.
type Deadline = Option<Instant>;

/// A connection.
struct Served {
    task: AbortHandle,
    deadline: Arc<watch::Sender<Deadline>>,
}

/// Serves connections for ever.
pub(super) async fn serve(listener: Listener, router: Router, limits: Limits) {
    let mut served = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok(stream) => {
                if !make_room(&mut served, limits.connections) {
                    tracing::warn!("api: {} requests are being answered: one more is refused", served.len());
                    continue;
                }
                let deadline = Arc::new(watch::Sender::new(Some(Instant::now() + limits.patience)));
                let conversation = converse(stream, router.clone(), limits, Arc::clone(&deadline));
                let task = tokio::spawn(conversation).abort_handle();
                served.push_back(Served { task, deadline });
            }
            Err(error) => {
                tracing::warn!("api: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Makes room for one more connection: closes the longest idle one if necessary. False if none is idle.
fn make_room(served: &mut VecDeque<Served>, most: usize) -> bool {
    served.retain(|connection| !connection.task.is_finished());
    if served.len() < most {
        return true;
    }
    let idle = served.iter().enumerate().filter_map(|(at, it)| Some(((*it.deadline.borrow())?, at)));
    let Some((_, longest)) = idle.min() else { return false };
    served.remove(longest).inspect(|idle| idle.task.abort()).is_some()
}

/// Answers the requests of one connection, until the client is late.
async fn converse(
    stream: UnixStream,
    router: Router,
    limits: Limits,
    deadline: Arc<watch::Sender<Deadline>>,
) {
    let seen = deadline.subscribe();
    let service = service_fn(move |request| {
        let (router, deadline) = (router.clone(), Arc::clone(&deadline));
        async move {
            let working = || _ = deadline.send_replace(None);
            let response = answer(request, router, limits, working).await;
            deadline.send_replace(Some(Instant::now() + limits.patience));
            Ok::<_, Infallible>(response)
        }
    });
    // The deadline covers the whole request, not only its head.
    let mut http = http1::Builder::new();
    http.header_read_timeout(None).max_buf_size(limits.longest);
    tokio::select! {
        ended = http.serve_connection(TokioIo::new(stream), service) => {
            if let Err(error) = ended {
                tracing::debug!("api: {error}");
            }
        }
        () = overdue(seen) => tracing::debug!("api: a client was idle or slow for {:?}", limits.patience),
    }
}

/// Returns when the deadline has passed without being moved.
async fn overdue(mut deadline: watch::Receiver<Deadline>) {
    loop {
        let at = *deadline.borrow_and_update();
        let passed = async {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = passed => return,
            changed = deadline.changed() => if changed.is_err() { return },
        }
    }
}

/// Reads a whole request, and answers it.
async fn answer(request: Request<Incoming>, router: Router, limits: Limits, working: impl Fn()) -> Response {
    let (head, body) = request.into_parts();
    let longest = limits.longest_of(head.uri.path());
    let too_large = || {
        problem(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a request has at most {longest} bytes"),
            "send a shorter request",
        )
    };
    // Refuse an announced length without reading the body.
    if body.size_hint().lower() > longest as u64 {
        return too_large();
    }
    let body = match Limited::new(body, longest).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return too_large(),
        Err(error) => {
            return problem(StatusCode::BAD_REQUEST, format!("the request is incomplete: {error}"), AGAIN);
        }
    };
    working();
    match router.oneshot(Request::from_parts(head, Body::from(body))).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

const AGAIN: &str = "send it again";

/// The answer to a request that is refused.
pub(crate) fn problem(status: StatusCode, error: impl Into<String>, fix: impl Into<String>) -> Response {
    (status, Json(Problem { error: error.into(), fix: Some(fix.into()) })).into_response()
}

/// The error for a request body that cannot be parsed.
pub(crate) fn unreadable(rejection: &JsonRejection) -> Response {
    problem(rejection.status(), rejection.body_text(), "send JSON, with content-type: application/json")
}

#[cfg(test)]
#[path = "server/tests.rs"]
mod tests;
