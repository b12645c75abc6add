//! The configuration as typed JSON: read with its revision, and changed on the base of it.

use super::Router;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// The status of an answer, its entity tag, and its body.
fn asked(router: &Router, method: &str, tag: &str, body: &Value) -> (u16, String, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let condition = if tag.is_empty() { String::new() } else { format!("if-match: {tag}\r\n") };
    let head = format!(
        "{method} /v1/configuration/tree?user=alice&comment=typed HTTP/1.1\r\nhost: postern\r\nconnection: close\r\n\
         content-type: application/json\r\n{condition}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = UnixStream::connect(&router.site.socket).expect("it listens");
    stream.write_all(head.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap_or_default();
    (status, tag.to_owned(), serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
}

fn mtu(value: &Value) -> Value {
    json!({ "interfaces": { "wireguard": { "wg0": { "mtu": value } } } })
}

#[test]
fn typed_changes_keep_those_of_others_and_conflicts_are_named() {
    let Some(router) = Router::new() else { return };
    let (status, read, mut whole) = asked(&router, "GET", "", &Value::Null);
    assert_eq!(status, 200, "{whole}");
    let (status, second, answer) = asked(&router, "PATCH", "", &mtu(&json!(1300)));
    assert_eq!((status, router.mtu()), (200, 1300), "{answer}");
    // What was read before is the base: the same place is a conflict, another one is not.
    let (status, _, answer) = asked(&router, "PATCH", &read, &mtu(&json!(1301)));
    let place = &answer["conflicts"][0];
    assert_eq!((status, place["path"].as_str()), (409, Some("interfaces wireguard wg0 mtu")), "{answer}");
    let described = json!({ "interfaces": { "wireguard": { "wg0": { "description": "it's \"one\"" } } } });
    let (status, third, answer) = asked(&router, "PATCH", &read, &described);
    assert_eq!((status, router.mtu()), (200, 1300), "{answer}");
    assert!(second != read && third != second, "{read} {second} {third}");
    // A whole configuration needs its base, and replaces what it was read from.
    whole["system"] = json!({ "config-management": { "commit-revisions": 7 } });
    let (status, _, answer) = asked(&router, "PUT", "", &whole);
    assert_eq!(status, 428, "{answer}");
    let (status, _, answer) = asked(&router, "PUT", &third, &whole);
    assert_eq!(status, 200, "{answer}");
    assert!(
        router.text().contains("commit-revisions 7") && !router.text().contains("description"),
        "{answer}"
    );
    let revisions = router.get("configuration/revisions");
    let (user, said) = (&revisions[0]["user"], &revisions[0]["comment"]);
    assert_eq!((user.as_str(), said.as_str()), (Some("alice"), Some("typed")), "{revisions}");
    let (status, _, answer) = asked(&router, "PATCH", "", &mtu(&json!("many")));
    let wrong = &answer["errors"][0];
    assert_eq!((status, wrong["path"].as_str()), (422, Some("interfaces wireguard wg0 mtu")), "{answer}");
}
