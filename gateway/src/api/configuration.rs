//! The configuration in force and its revisions: shown, and changed by commits.

use super::Shown;
use super::model::{
    Commit, Committed, Confirm, Confirmed, InForce, Problem, Revision, RevisionText, Saved, SecretText,
};
use super::server::{COMMIT, misplaced, problem, unreadable};
use super::status::{ordered, without_file};
use crate::daemon::archive::ArchiveError;
use crate::daemon::candidate::split;
use crate::daemon::order::Order;
use crate::daemon::rejected::Rejected;
use crate::daemon::transactions::apart;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Digits of SHA-256.
const DIGEST: usize = 64;

pub(super) fn routes() -> Router<Shown> {
    Router::new()
        .route("/v1/configuration", get(in_force))
        .route("/v1/configuration/revisions", get(revisions))
        .route("/v1/configuration/revisions/{number}", get(revision))
        .route(COMMIT, post(committed))
        .route("/v1/configuration/confirm", post(confirm))
        .route("/v1/configuration/saved", post(saved))
}

async fn in_force(State(shown): State<Shown>) -> Result<Response, Response> {
    let (ledger, _) = shown.transactions().ok_or_else(without_file)?;
    let answer: InForce = ledger.in_force();
    Ok(with_secrets(&answer, answer.text.as_str().len()))
}

async fn revisions(State(shown): State<Shown>) -> Result<Json<Vec<Revision>>, Response> {
    let (ledger, _) = shown.transactions().ok_or_else(without_file)?;
    Ok(Json(ledger.revisions()))
}

async fn revision(
    State(shown): State<Shown>,
    number: Result<Path<u64>, PathRejection>,
) -> Result<Response, Response> {
    let Path(number) = number.map_err(|rejection| misplaced(&rejection))?;
    let answer = archived(&shown, number, StatusCode::NOT_FOUND).await?;
    Ok(with_secrets(&answer, answer.text.as_str().len()))
}

/// A revision of the archive; `unknown` is the status if there is none.
async fn archived(shown: &Shown, number: u64, unknown: StatusCode) -> Result<RevisionText, Response> {
    let ledger = Arc::clone(shown.transactions().ok_or_else(without_file)?.0);
    apart(move || ledger.read(number)).await.map_err(|error| {
        let status = match error {
            ArchiveError::Unknown(_) => unknown,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let (error, fix) = split(&error.to_string());
        (status, Json(Problem { error, fix })).into_response()
    })
}

/// The lines of a revision that a change is based on.
pub(super) async fn base(shown: &Shown, number: u64) -> Result<SecretText, Response> {
    let in_force = shown.transactions().ok_or_else(without_file)?.0.in_force();
    if in_force.revision == number {
        return Ok(in_force.text);
    }
    archived(shown, number, StatusCode::GONE).await.map(|revision| revision.text)
}

async fn committed(
    State(shown): State<Shown>,
    request: Result<Json<Commit>, JsonRejection>,
) -> Result<Json<Committed>, Response> {
    let Json(request) = request.map_err(|rejection| unreadable(&rejection))?;
    commit(&shown, request).await.map(Json)
}

/// Has the daemon carry out a commit.
pub(super) async fn commit(shown: &Shown, request: Commit) -> Result<Committed, Response> {
    let (_, orders) = shown.transactions().ok_or_else(without_file)?;
    let is_check = request.check_only;
    let outcome = ordered(orders, |reply| Order::Commit(request, reply)).await?;
    let committed = outcome.map_err(rejected)?;
    if !is_check && !committed.changes.is_empty() {
        shown.has_committed();
    }
    Ok(committed)
}

async fn confirm(
    State(shown): State<Shown>,
    request: Result<Json<Confirm>, JsonRejection>,
) -> Result<Json<Confirmed>, Response> {
    let Json(Confirm { revision }) = request.map_err(|rejection| unreadable(&rejection))?;
    let (ledger, orders) = shown.transactions().ok_or_else(without_file)?;
    // Undoing it may take long.
    if let Some(late) = ledger.unconfirmable() {
        return Err((StatusCode::LOCKED, Json(late)).into_response());
    }
    let confirmed = ordered(orders, |reply| Order::Confirm(revision, reply)).await?;
    confirmed.map(Json).map_err(rejected)
}

async fn saved(
    State(shown): State<Shown>,
    saved: Result<Json<Saved>, JsonRejection>,
) -> Result<Json<()>, Response> {
    let Json(saved) = saved.map_err(|rejection| unreadable(&rejection))?;
    let (ledger, _) = shown.transactions().ok_or_else(without_file)?;
    if let Some(locked) = ledger.unsavable() {
        return Err((StatusCode::LOCKED, Json(locked)).into_response());
    }
    if saved.hash.len() != DIGEST || !saved.hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(problem(StatusCode::BAD_REQUEST, "hash is no SHA-256", "send 64 hexadecimal digits"));
    }
    ledger.has_saved(saved);
    Ok(Json(()))
}

/// The answer to a commit of which nothing is in force.
fn rejected(rejected: Rejected) -> Response {
    let with = |status: StatusCode, problem: Problem| (status, Json(problem)).into_response();
    match rejected {
        Rejected::Conflicts(conflicts) => (StatusCode::CONFLICT, Json(conflicts)).into_response(),
        Rejected::Errors(errors) => (StatusCode::UNPROCESSABLE_ENTITY, Json(errors)).into_response(),
        Rejected::Invalid(problem) => with(StatusCode::BAD_REQUEST, problem),
        Rejected::NoBase(problem) => with(StatusCode::GONE, problem),
        Rejected::Unconfirmed(problem) => with(StatusCode::LOCKED, problem),
        Rejected::Full(problem) => with(StatusCode::INSUFFICIENT_STORAGE, problem),
        Rejected::Unavailable(problem) => with(StatusCode::SERVICE_UNAVAILABLE, problem),
    }
}

/// An answer of which no copy stays in memory once it is sent. `length` is that of its text.
pub(super) fn with_secrets(answer: &impl Serialize, length: usize) -> Response {
    // Each line ends with two characters in JSON, and quotes are two; what is around it is short.
    let mut json = Zeroizing::new(Vec::with_capacity(2 * length + 8192));
    serde_json::to_writer(&mut *json, answer).expect("it has only texts and numbers");
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, Body::from(Bytes::from_owner(json))).into_response()
}
