//! The API of a gateway, as a client sees it.

use crate::Outcome;
use crate::api::asked;
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// Commits lines on what is in force; the seconds that it took.
pub(super) fn commit<'a>(socket: &Path, edits: impl Iterator<Item = &'a str>) -> Outcome<f64> {
    let revisions = asked(socket, "GET", "configuration/revisions", "")?;
    let edits: Vec<&str> = edits.collect();
    let request = json!({ "base": revisions[0]["revision"], "edits": edits, "user": "bench", "via": "api" });
    let request = request.to_string();
    let started = Instant::now();
    let answer = asked(socket, "POST", "configuration/commit", &request)?;
    let seconds = started.elapsed().as_secs_f64();
    let is_changed = answer["changes"].as_array().is_some_and(|changes| !changes.is_empty());
    if is_changed { Ok(seconds) } else { Err(format!("the commit was refused: {answer}").into()) }
}
