//! The configuration as JSON with the types of the grammar: read, replaced, and changed by a merge patch.
//!
//! ```text
//! GET   configuration in force ──> JSON, with its revision as ETag
//! PUT   JSON, with the revision that was read ──┐
//! PATCH members that change, null deletes ──────┴──> lines of set and delete ──> commit
//! ```
//! A flag is `true`, a number is a number, several values are a list, all else is a string; an object has the words or names
//! below a place.

use super::Shown;
use super::configuration::{self, commit, with_secrets};
use super::model::{Commit, CommitError, CommitErrors, Committed, SecretText, Via};
use super::server::{TREE, problem, unreadable};
use super::status::without_file;
use crate::daemon::candidate::{Candidate, Wrong};
use crate::daemon::transactions::apart;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing};
use config::error::MOST_ERRORS;
use config::schema::{Cursor, Kind, Place, Type};
use config::{Path, Tree, edits};
use serde::Deserialize;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

/// What belongs to a commit beside the configuration.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Options {
    user: Option<String>,
    comment: Option<String>,
    confirm_minutes: Option<u32>,
    check_only: bool,
}

type Asked<T> = Result<T, Response>;

/// Bytes of the lines of a change: each has its whole path, so a long name with many members would otherwise take the
/// product of both.
const LONGEST_LINES: usize = 64 << 20;

pub(super) fn routes() -> Router<Shown> {
    Router::new().route(TREE, routing::get(get).put(put).patch(patch))
}

/// `GET`
async fn get(State(shown): State<Shown>) -> Asked<Response> {
    let (ledger, _) = shown.transactions().ok_or_else(without_file)?;
    let in_force = ledger.in_force();
    let tree = parsed(&in_force.text).ok_or_else(foreign)?;
    let mut answer = with_secrets(&json(&tree), in_force.text.as_str().len());
    answer.headers_mut().insert(header::ETAG, tag(in_force.revision));
    Ok(answer)
}

/// `PUT`
async fn put(
    State(shown): State<Shown>,
    headers: HeaderMap,
    options: Result<Query<Options>, QueryRejection>,
    body: Result<Json<Value>, JsonRejection>,
) -> Asked<Response> {
    let Some(base) = base_of(&headers)? else {
        let why = "a whole configuration replaces the one that it is based on: name that one";
        return Err(problem(StatusCode::PRECONDITION_REQUIRED, why, "send its ETag as If-Match"));
    };
    let Json(body) = body.map_err(|rejection| unreadable(&rejection))?;
    let before = configuration::base(&shown, base).await?;
    let lines = apart(move || replaced(&body, &before)).await?;
    committed(shown, base, lines, options).await
}

/// The lines that replace a configuration.
fn replaced(body: &Value, before: &SecretText) -> Result<Vec<Zeroizing<String>>, Unusable> {
    let before = parsed(before).ok_or(Unusable::Base)?;
    let lines = lines(body, &Tree::default())?;
    let new = Candidate::new(&Tree::default(), &secret(lines), None).map_err(|wrong| match wrong {
        Wrong::Errors(errors) => errors,
        Wrong::Conflicts(_) => unreachable!("nothing is merged"),
    })?;
    Ok(edits::between(&before, &new.tree))
}

/// Why no lines can be made of a change.
enum Unusable {
    /// The base is of another version of Postern.
    Base,
    Body(CommitErrors),
}

impl From<CommitErrors> for Unusable {
    fn from(errors: CommitErrors) -> Self {
        Self::Body(errors)
    }
}

impl From<Unusable> for Response {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Base => foreign(),
            Unusable::Body(errors) => (StatusCode::UNPROCESSABLE_ENTITY, Json(errors)).into_response(),
        }
    }
}

/// `PATCH`
async fn patch(
    State(shown): State<Shown>,
    headers: HeaderMap,
    options: Result<Query<Options>, QueryRejection>,
    body: Result<Json<Value>, JsonRejection>,
) -> Asked<Response> {
    let base = match base_of(&headers)? {
        Some(base) => base,
        None => shown.transactions().ok_or_else(without_file)?.0.revision(),
    };
    let Json(body) = body.map_err(|rejection| unreadable(&rejection))?;
    let before = configuration::base(&shown, base).await?;
    let lines = apart(move || changed(&body, &before)).await?;
    committed(shown, base, lines, options).await
}

/// The lines that change a configuration.
fn changed(body: &Value, before: &SecretText) -> Result<Vec<Zeroizing<String>>, Unusable> {
    let before = parsed(before).ok_or(Unusable::Base)?;
    Ok(lines(body, &before)?)
}

async fn committed(
    shown: Shown,
    base: u64,
    edits: Vec<Zeroizing<String>>,
    options: Result<Query<Options>, QueryRejection>,
) -> Asked<Response> {
    let Query(Options { user, comment, confirm_minutes, check_only }) = options.map_err(|rejection| {
        problem(StatusCode::BAD_REQUEST, rejection.body_text(), "see /v1/openapi.json for the parameters")
    })?;
    let user = user.unwrap_or_else(|| "api".to_owned());
    let edits = secret(edits);
    let request = Commit { base, edits, comment, user, via: Via::Api, confirm_minutes, check_only };
    let committed: Committed = commit(&shown, request).await?;
    Ok(([(header::ETAG, tag(committed.revision))], Json(committed)).into_response())
}

fn secret(lines: Vec<Zeroizing<String>>) -> Vec<SecretText> {
    lines.iter().map(|line| SecretText::from(line.as_str())).collect()
}

/// The configuration of a revision; none if it is of another version of Postern.
fn parsed(text: &SecretText) -> Option<Tree> {
    config::parse(text.as_str()).ok()
}

fn foreign() -> Response {
    let why = "the revision is of another version of Postern and cannot be read";
    problem(StatusCode::INTERNAL_SERVER_ERROR, why, "base the change on the newest revision")
}

/// A revision as an entity tag (RFC 9110 section 8.8.3).
fn tag(revision: u64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{revision}\"")).expect("digits in quotes")
}

/// The header If-Match is not one entity tag of ours.
#[derive(Debug)]
struct WrongTag;

impl From<WrongTag> for Response {
    fn from(_: WrongTag) -> Self {
        let why = "If-Match is not one ETag of a revision";
        problem(StatusCode::BAD_REQUEST, why, "send the ETag as it was received")
    }
}

/// The revision of If-Match (RFC 9110 section 13.1.1).
fn base_of(headers: &HeaderMap) -> Result<Option<u64>, WrongTag> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.strip_prefix('"')?.strip_suffix('"')?.parse().ok());
    number.map(Some).ok_or(WrongTag)
}

/// A configuration as JSON. It has secrets.
pub(super) fn json(tree: &Tree) -> Value {
    value(tree, Cursor::root())
}

fn value(tree: &Tree, cursor: Cursor) -> Value {
    let values = tree.own_values();
    match cursor.node().map(|node| node.kind) {
        Some(Kind::Flag) => Value::Bool(true),
        Some(Kind::FlagOr(_)) if values.is_empty() => Value::Bool(true),
        Some(Kind::Values(kind)) => values.iter().map(|value| scalar(kind, value)).collect(),
        Some(Kind::Value(kind) | Kind::FlagOr(kind)) => {
            values.first().map_or(Value::Null, |value| scalar(kind, value))
        }
        _ => {
            let below = tree.children();
            let members =
                below.filter_map(|(word, branch)| Some((word.to_owned(), value(branch, cursor.down(word)?))));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}

fn scalar(kind: Type, text: &str) -> Value {
    match (kind, text.parse::<u64>()) {
        // 007 stays what it is.
        (Type::Number(..), Ok(number)) if number.to_string() == text => number.into(),
        _ => text.into(),
    }
}

/// The lines that apply a merge patch (RFC 7396) to a configuration.
fn lines(patch: &Value, base: &Tree) -> Result<Vec<Zeroizing<String>>, CommitErrors> {
    let mut change = Change::default();
    change.walk(patch, &mut Vec::new(), Some(Cursor::root()), Some(base));
    if change.errors.is_empty() { Ok(change.lines) } else { Err(CommitErrors { errors: change.errors }) }
}

#[derive(Default)]
struct Change {
    lines: Vec<Zeroizing<String>>,
    /// Bytes of the lines.
    length: usize,
    errors: Vec<CommitError>,
}

impl Change {
    /// `before` is what is there now.
    fn walk<'a>(
        &mut self,
        patch: &'a Value,
        path: &mut Vec<&'a str>,
        place: Option<Cursor>,
        before: Option<&Tree>,
    ) {
        if self.is_full() {
            return;
        }
        let node = place.and_then(Cursor::node);
        match patch {
            Value::Object(members) => {
                let is_inner = matches!(place.map(Cursor::place), Some(Place::Inner(_)));
                if members.is_empty() && !is_inner {
                    self.line("set", path, None);
                }
                for (word, below) in members {
                    let before = before.and_then(|tree| tree.at(&[word]));
                    path.push(word);
                    self.walk(below, path, place.and_then(|place| place.down(word)), before);
                    path.pop();
                }
            }
            _ if path.is_empty() => self.wrong(path, "a configuration is an object"),
            Value::Null | Value::Bool(false) => {
                if before.is_some() {
                    self.line("delete", path, None);
                }
            }
            Value::Bool(true) => self.line("set", path, None),
            Value::Array(values) => self.values(values, path, before),
            only @ (Value::String(_) | Value::Number(_))
                if node.is_some_and(|node| matches!(node.kind, Kind::Values(_))) =>
            {
                self.values(std::slice::from_ref(only), path, before);
            }
            Value::String(text) => self.line("set", path, Some(text)),
            Value::Number(number) => self.line("set", path, Some(&number.to_string())),
        }
    }

    /// A list replaces the one that is there.
    fn values(&mut self, values: &[Value], path: &[&str], before: Option<&Tree>) {
        if before.is_some() {
            self.line("delete", path, None);
        }
        for value in values {
            if self.is_full() {
                return;
            }
            match value {
                Value::String(text) => self.line("set", path, Some(text)),
                Value::Number(number) => self.line("set", path, Some(&number.to_string())),
                _ => self.wrong(path, "a list has texts and numbers only"),
            }
        }
    }

    fn wrong(&mut self, path: &[&str], why: &str) {
        let fix = Some("see /v1/openapi.json for the types".to_owned());
        self.errors.push(CommitError {
            path: Path::new(path.iter().copied()).to_string(),
            why: why.to_owned(),
            fix,
        });
    }

    fn line(&mut self, verb: &str, path: &[&str], value: Option<&str>) {
        let line = edits::line(verb, path, value);
        self.length += line.len();
        if self.length > LONGEST_LINES {
            self.errors = vec![CommitError {
                path: String::new(),
                why: format!("the change has more than {LONGEST_LINES} bytes as lines of set and delete"),
                fix: Some("commit it in parts".to_owned()),
            }];
        }
        self.lines.push(line);
    }

    /// Whether the change is refused already, with as many errors as are reported.
    fn is_full(&self) -> bool {
        self.length > LONGEST_LINES || self.errors.len() >= MOST_ERRORS
    }
}

#[cfg(test)]
#[path = "typed/tests.rs"]
mod tests;
