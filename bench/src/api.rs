//! Requests to the API of a gateway.

use crate::Outcome;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The answer to a request for `/v1/path`.
pub(crate) fn asked(socket: &Path, method: &str, path: &str, body: &str) -> Outcome<Value> {
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
