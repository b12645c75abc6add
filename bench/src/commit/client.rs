//! The API of a gateway, as a client sees it.

use crate::Outcome;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
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

fn asked(socket: &Path, method: &str, path: &str, body: &str) -> Outcome<Value> {
    let mut stream = UnixStream::connect(socket)?;
    let length = body.len();
    let head = format!(
        "{method} /v1/{path} HTTP/1.1\r\nhost: postern\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or("the gateway does not speak HTTP")?;
    Ok(serde_json::from_str(body)?)
}
