//! Requests to the API over HTTPS, in VyOS's shapes.

use https::request::{Fields, fields, operations};

const KINDS: &[&str] =
    &["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json"];

/// A body of each type; and of the type in the first line, where there is one.
pub fn requests(data: &[u8]) {
    for kind in KINDS {
        read(kind, data);
    }
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let (kind, body) = data.split_at(end);
    if let Ok(kind) = std::str::from_utf8(kind) {
        read(kind, body.get(1..).unwrap_or_default());
    }
}

fn read(kind: &str, body: &[u8]) {
    let Ok(Fields { data, key }) = fields(kind, body) else { return };
    assert!(data.len() <= body.len() && key.is_none_or(|key| key.len() <= body.len()));
    let Ok(read) = operations(&data) else { return };
    assert!(!read.operations.is_empty());
    for operation in &read.operations {
        let words = operation.words().unwrap_or_default();
        assert!(words.iter().all(|word| !word.contains(char::is_control)));
    }
}
