//! Clients that are wrong, slow, or many.

use super::*;
use crate::api::{Shown, bind, router};
use crypto::choice::Choice;
use crypto::engine::none;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// The longest wait of a test.
const LONG: Duration = Duration::from_secs(30);

/// An API without interfaces, for as long as the test runs.
async fn served(name: &str, limits: Limits) -> PathBuf {
    let path = std::env::temp_dir().join(format!("postern-api-{}-{name}.sock", std::process::id()));
    let listener = bind(&path).await.expect("free");
    let shown = Shown::new(
        Arc::new(Choice::among(vec![Arc::new(none::None)])),
        vec![Arc::new(crate::ipsec::api::Peers::default())],
    );
    tokio::spawn(serve(listener, router(shown), limits));
    path
}

async fn connected(path: &PathBuf) -> UnixStream {
    timeout(LONG, UnixStream::connect(path)).await.expect("in time").expect("it listens")
}

/// Sends some text, and reads until the other side ends the connection.
async fn asked(path: &PathBuf, text: &str) -> String {
    let mut stream = connected(path).await;
    // A request that is refused early is not read to the end.
    let _ = stream.write_all(text.as_bytes()).await;
    ended(&mut stream).await
}

/// Reads until the other side ends the connection.
async fn ended(stream: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    let _ = timeout(LONG, stream.read_to_end(&mut bytes)).await.expect("it ends");
    String::from_utf8(bytes).expect("it is text")
}

/// A request, and nothing after it.
fn request(method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: postern\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The status of an answer, and what it says.
fn read(answer: &str) -> (u16, Problem) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
}

#[tokio::test]
async fn a_wrong_request_gets_an_error_with_a_fix() {
    let path = served("wrong", Limits::USUAL).await;
    let large = "x".repeat(Limits::USUAL.longest + 1);
    for (method, place, body, status, said) in [
        ("GET", "/v1/nothing", "", 404, "/v1/nothing"),
        ("GET", "/", "", 404, "there is no /"),
        ("POST", "/v1/drops", "", 405, "POST"),
        ("DELETE", "/v1/vpn/ipsec/reset", "", 405, "DELETE"),
        ("POST", "/v1/vpn/ipsec/reset", "{", 400, "JSON"),
        ("POST", "/v1/vpn/ipsec/reset", "{\"peer\": 7}", 400, "peer"),
        ("GET", "/v1/log/x", "", 400, "Cannot parse"),
        ("POST", "/v1/vpn/ipsec/reset", &large, 413, "at most 65536 bytes"),
        ("GET", "/v1/drops", &large, 413, "at most 65536 bytes"),
    ] {
        let answer = asked(&path, &request(method, place, body)).await;
        let (found, problem) = read(&answer);
        assert!(found == status && problem.error.contains(said) && problem.fix.is_some(), "{answer}");
    }
    let untyped =
        "POST /v1/vpn/ipsec/reset HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(read(&asked(&path, untyped).await).0, 415);
    assert!(asked(&path, "nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    assert!(asked(&path, &request("GET", "/v1/drops", "")).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_body_without_length_has_an_end() {
    let path = served("chunked", Limits::USUAL).await;
    let head = "POST /v1/vpn/ipsec/reset HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
                connection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    let text = head.to_owned() + &format!("1000\r\n{}\r\n", " ".repeat(0x1000)).repeat(20);
    let answer = asked(&path, &text).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[tokio::test]
async fn a_body_of_very_many_values_is_not_parsed() {
    let path = served("values", Limits::USUAL).await;
    let list = format!("[{}0]", "0,".repeat(MOST_VALUES));
    let (status, problem) = read(&asked(&path, &request("PATCH", TREE, &list)).await);
    assert!(status == 413 && problem.error.contains("1048576 JSON values"), "{problem:?}");
}

#[tokio::test]
async fn few_long_bodies_are_in_memory_at_once_and_others_wait() {
    let limits = Limits { long_at_once: 1, ..Limits::USUAL };
    let path = served("long", limits).await;
    let long = request("POST", COMMIT, &" ".repeat(limits.longest + 1));
    let mut slow = connected(&path).await;
    slow.write_all(&long.as_bytes()[..long.len() - 1]).await.expect("it is read");
    let mut waiting = connected(&path).await;
    // Its body is more than the socket holds: it cannot be sent before the first one is answered.
    let longer = request("POST", COMMIT, &" ".repeat(4 << 20));
    let sending = waiting.write_all(longer.as_bytes());
    tokio::pin!(sending);
    assert!(timeout(Duration::from_millis(500), &mut sending).await.is_err(), "it must wait");
    assert_eq!(read(&asked(&path, &request("POST", COMMIT, "{")).await).0, 400, "a short one need not");
    slow.write_all(b" ").await.expect("it is read");
    assert!(ended(&mut slow).await.starts_with("HTTP/1.1 400 "));
    timeout(LONG, sending).await.expect("it is its turn").expect("it is read");
    assert!(ended(&mut waiting).await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn a_client_that_never_finishes_its_request_is_left() {
    let limits = Limits { patience: Duration::from_millis(500), ..Limits::USUAL };
    let path = served("slow", limits).await;
    // A slow client that sends a byte at a time is disconnected too, in the head and in the body.
    let head = request("POST", "/v1/vpn/ipsec/reset", &" ".repeat(4000));
    for fast in [0, head.len() - 4000] {
        let mut stream = connected(&path).await;
        stream.write_all(&head.as_bytes()[..fast]).await.expect("it is read");
        let dripping = async {
            for byte in &head.as_bytes()[fast..] {
                if stream.write_all(&[*byte]).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            panic!("{} bytes were waited for", head.len());
        };
        timeout(LONG, dripping).await.expect("the connection ends");
    }
    let mut silent = connected(&path).await;
    assert_eq!(ended(&mut silent).await, "");
}

#[tokio::test]
async fn a_client_that_is_idle_after_its_answer_is_left() {
    let limits = Limits { patience: Duration::from_millis(300), ..Limits::USUAL };
    let path = served("idle", limits).await;
    let mut stream = connected(&path).await;
    let request = "GET /v1/drops HTTP/1.1\r\nhost: a\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("it is read");
    assert!(ended(&mut stream).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_long_answer_may_take_longer_on_a_slow_link() {
    let patience = Duration::from_millis(300);
    let (mut client, server) = tokio::io::duplex(64 << 10);
    let answer = |_| std::future::ready(Response::new(Body::from(vec![b'x'; 2 << 20])));
    tokio::spawn(converse(server, patience, Deadline::after(patience), answer));
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.expect("it is read");
    let (mut part, mut taken) = (vec![0; 64 << 10], 0);
    loop {
        match timeout(LONG, client.read(&mut part)).await.expect("in time").expect("read") {
            0 => break,
            count => taken += count,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(taken > 2 << 20, "{taken}: it was cut off");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_left_when_the_sender_of_a_stream_has_ended() {
    use crate::api::stream;
    use tokio::sync::mpsc;
    let patience = Duration::from_millis(300);
    let (mut client, server) = tokio::io::duplex(1 << 10);
    let (sender, receiver) = mpsc::channel(1);
    let (streamed, at_work) = stream::answer("text/plain", receiver);
    let streamed = std::sync::Mutex::new(Some(streamed));
    let deadline = Deadline::after(patience);
    let working = deadline.clone();
    let answer = move |_| {
        working.suspend();
        std::future::ready(streamed.lock().expect("no panic").take().expect("one request"))
    };
    let serving = tokio::spawn(converse(server, patience, deadline.clone(), answer));
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("it is read");
    // More than is on its way: the sender waits.
    let chunk = Bytes::from(vec![b'x'; 64 << 10]);
    while timeout(Duration::from_secs(1), sender.send(chunk.clone())).await.is_ok() {}
    assert!(!serving.is_finished(), "the sender may wait for as long as it wants");
    drop((sender, at_work));
    let runs_again = async {
        loop {
            match deadline.left() {
                Some(left) => break left,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let left = timeout(LONG, runs_again).await.expect("the time runs again");
    assert!(left <= patience + time_to_take(ON_THEIR_WAY), "{left:?}");
    // Half a minute is too long for a test.
    deadline.restart(Duration::ZERO);
    timeout(LONG, serving).await.expect("the connection is closed").expect("no panic");
}

#[tokio::test]
async fn a_thousand_connections_do_not_block_another_client() {
    // So long that no deadline passes during the test.
    let limits = Limits { patience: LONG * 10, ..Limits::USUAL };
    let path = served("many", limits).await;
    let mut connections = Vec::new();
    for _ in 0..1000 {
        connections.push(connected(&path).await);
        if connections.len() % 100 == 0 {
            let answer = asked(&path, &request("GET", "/v1/drops", "")).await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{}: {answer}", connections.len());
        }
    }
    // The last connections are still served.
    let mut open = 0;
    for stream in &mut connections {
        let mut byte = [0];
        open += usize::from(timeout(Duration::from_millis(1), stream.read(&mut byte)).await.is_err());
    }
    assert!((1..=limits.connections).contains(&open), "{open}");
    let last = connections.last_mut().expect("a thousand");
    last.write_all(request("GET", "/v1/drops", "").as_bytes()).await.expect("it is read");
    assert!(ended(last).await.starts_with("HTTP/1.1 200 "));
}
