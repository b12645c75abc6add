//! Requests to the daemon.

use axum::http::StatusCode;
use gateway::api::client::exchange;
use gateway::api::model::{Commit, CommitErrors, Committed, Confirm, Confirmed, InForce, Problem, Saved};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::http::request::Builder;
use hyper::{Request, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Requests to the daemon at once: it serves 64 connections, and others use it too.
const AT_ONCE: usize = 16;
/// How long the daemon may take: a commit may restart programs of the machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The daemon at a socket.
pub(crate) struct Daemon {
    socket: PathBuf,
    permits: Semaphore,
}

/// An error for the client: the status, and the text with its fix.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) error: String,
}

impl Refused {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }

    pub(crate) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }
}

/// The outcome of a commit.
pub(crate) enum Outcome {
    Committed(Committed),
    /// Others have changed the same meanwhile.
    Conflict,
}

impl Daemon {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket, permits: Semaphore::new(AT_ONCE) }
    }

    async fn pass(&self, method: &str, path: &str, body: Bytes) -> Result<(StatusCode, Bytes), Refused> {
        let answer = self.forward(Request::builder().method(method).uri(path), body).await?;
        Ok((answer.status(), answer.into_body()))
    }

    /// Passes a request with JSON on.
    pub(crate) async fn forward(&self, request: Builder, body: Bytes) -> Result<Response<Bytes>, Refused> {
        let request = request.header("host", "postern").header("content-type", "application/json");
        let request = request.body(Full::new(body)).map_err(|error| Refused::bad(error.to_string()))?;
        let _permit = self.permits.acquire().await.map_err(|_| unavailable("it ends"))?;
        match timeout(PATIENCE, exchange(&self.socket, request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(unavailable(&error.to_string())),
            Err(_) => Err(unavailable("it does not answer")),
        }
    }

    /// What the daemon has at a place, as JSON.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refused> {
        let (status, body) = self.pass("GET", path, Bytes::new()).await?;
        read(status, &body)
    }

    async fn tell<T: DeserializeOwned>(&self, path: &str, details: &impl Serialize) -> Result<T, Refused> {
        let (status, body) = self.pass("POST", path, json(details)?).await?;
        read(status, &body)
    }

    /// The configuration in force.
    pub(crate) async fn in_force(&self) -> Result<InForce, Refused> {
        self.ask("/v1/configuration").await
    }

    /// The latest snapshot of facts, as JSON.
    pub(crate) async fn facts(&self) -> Result<Bytes, Refused> {
        self.bytes("/v1/facts").await
    }

    /// What the daemon has at a place, as it sends it: what is long is parsed in another thread.
    pub(crate) async fn bytes(&self, path: &str) -> Result<Bytes, Refused> {
        let (status, body) = self.pass("GET", path, Bytes::new()).await?;
        if status.is_success() { Ok(body) } else { Err(unavailable(&format!("it answers {status}"))) }
    }

    /// Keeps the commit that waits to be confirmed.
    pub(crate) async fn confirm(&self) -> Result<Confirmed, Refused> {
        let InForce { revision, confirm, .. } = self.in_force().await?;
        let revision = confirm.map_or(revision, |unconfirmed| unconfirmed.revision);
        self.tell("/v1/configuration/confirm", &Confirm { revision }).await
    }

    pub(crate) async fn saved(&self, saved: &Saved) -> Result<(), Refused> {
        self.tell::<serde_json::Value>("/v1/configuration/saved", saved).await.map(|_| ())
    }

    pub(crate) async fn commit(&self, commit: &Commit) -> Result<Outcome, Refused> {
        let (status, body) = self.pass("POST", "/v1/configuration/commit", json(commit)?).await?;
        match status {
            StatusCode::CONFLICT => Ok(Outcome::Conflict),
            StatusCode::UNPROCESSABLE_ENTITY => {
                let errors: CommitErrors = parsed(&body)?;
                Err(Refused::bad(text(&errors)))
            }
            _ => read(status, &body).map(Outcome::Committed),
        }
    }
}

fn json(details: &impl Serialize) -> Result<Bytes, Refused> {
    serde_json::to_vec(details).map(Bytes::from).map_err(|error| Refused::bad(error.to_string()))
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|_| unavailable("it is of another version"))
}

fn read<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<T, Refused> {
    if status.is_success() {
        return parsed(body);
    }
    let Problem { error, fix } = parsed(body)?;
    let text = fix.map_or(error.clone(), |fix| format!("{error}\n  fix: {fix}"));
    // What is the daemon's own status is no fault of the request.
    let status = if status.is_server_error() || status == StatusCode::LOCKED {
        status
    } else {
        StatusCode::BAD_REQUEST
    };
    Err(Refused::new(status, text))
}

/// All that is wrong with a commit, each with its place.
fn text(CommitErrors { errors }: &CommitErrors) -> String {
    let lines = errors.iter().map(|error| {
        let place = if error.path.is_empty() { String::new() } else { format!("[{}]\n", error.path) };
        let fix = error.fix.as_ref().map(|fix| format!("  fix: {fix}\n")).unwrap_or_default();
        format!("{place}  {}\n{fix}", error.why)
    });
    lines.collect::<String>() + "Commit failed"
}

fn unavailable(why: &str) -> Refused {
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, format!("the daemon cannot be asked: {why}"))
}
