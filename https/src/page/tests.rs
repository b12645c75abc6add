//! The page over TCP, with a daemon that answers what these tests say.

use super::{Serving, StatusPage};
use crate::listen::{self, Front};
use crate::place::Place;
use axum::Json;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use base64ct::{Base64, Encoding};
use gateway::api::connections::Deadline;
use gateway::api::server::converse;
use gateway::facts::model::{Facts, State, Tunnel};
use gateway::https::wire::{self, Listener};
use gateway::wireguard::model::{Explained, Explanation, Explanations, Finding, PeerState};
use hyper::Request;
use hyper::body::Incoming;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener};

const TOKEN: &str = "a long secret of a reader";

struct Page {
    address: String,
    /// How often the daemon was asked for facts.
    asked: Arc<AtomicUsize>,
    _front: Arc<Front>,
    _folder: TempDir,
}

fn explanations() -> Explanations {
    let finding =
        Finding { what: "no answer from 192.0.2.1:51820".to_owned(), fix: vec!["ping 192.0.2.1".to_owned()] };
    let peer = Explained {
        name: Some("berlin".to_owned()),
        public_key: "KEY".to_owned(),
        endpoint: None,
        allowed_ips: Vec::new(),
        has_preshared_key: false,
        state: PeerState::Down,
        findings: vec![finding],
    };
    let interface = Explanation {
        interface: "wg0".to_owned(),
        public_key: Some("OURS".to_owned()),
        peers: vec![peer],
        callers: Vec::new(),
    };
    Explanations { interfaces: vec![interface] }
}

fn facts() -> Facts {
    let tunnel = |peer: &str, state| Tunnel {
        interface: "wg0".to_owned(),
        peer: peer.to_owned(),
        state,
        public_key: Some("KEY".to_owned()),
        ..Tunnel::default()
    };
    Facts { tunnels: vec![tunnel("paris", State::Up), tunnel("berlin", State::Down)], ..Facts::default() }
}

async fn daemon(listener: UnixListener, asked: Arc<AtomicUsize>) {
    while let Ok((stream, _)) = listener.accept().await {
        let asked = Arc::clone(&asked);
        let answer = move |request: Request<Incoming>| {
            let response = match request.uri().path() {
                "/v1/facts" => {
                    asked.fetch_add(1, Ordering::Relaxed);
                    Json(facts()).into_response()
                }
                "/v1/interfaces/wireguard/wg0/explain" => Json(explanations()).into_response(),
                _ => StatusCode::NOT_FOUND.into_response(),
            };
            async move { response }
        };
        let patience = Duration::from_secs(10);
        tokio::spawn(converse(stream, patience, Deadline::after(patience), answer));
    }
}

impl Page {
    /// In a runtime: it starts tasks.
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (socket, asked) = (folder.path().join("sock"), Arc::new(AtomicUsize::new(0)));
        tokio::spawn(daemon(UnixListener::bind(&socket).expect("a socket"), Arc::clone(&asked)));
        let app = Arc::new(StatusPage::new(&Place { api: socket, state: folder.path().to_owned() }));
        let wanted = wire::Page {
            salt: Base64::encode_string(b"salt"),
            token: Base64::encode_string(&wire::hash(b"salt", TOKEN.as_bytes())),
            ..wire::Page::default()
        };
        app.set_serving(Serving::new(&wanted));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("ours");
        let address = listener.local_addr().expect("bound");
        let front = Arc::new(Front::new(8, 8));
        let wanted = [Listener { address, clients: Vec::new() }];
        listen::open(&front, &wanted, vec![listener.into()], None, &app).expect("it listens");
        Self { address: address.to_string(), asked, _front: front, _folder: folder }
    }

    /// The answer to a request of these lines, in lower case in its head.
    async fn ask(&self, method: &str, path: &str, more: &str, body: &str) -> (String, String) {
        let host = if more.contains("host:") { String::new() } else { format!("host: {}\r\n", self.address) };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{host}{more}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        let mut stream = TcpStream::connect(&self.address).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_lowercase(), body.to_owned())
    }

    /// The cookie of a session.
    async fn login(&self) -> String {
        let (head, _) = self.ask("POST", "/login", "", "token=a+long+secret+of+a+reader").await;
        assert!(head.starts_with("http/1.1 303") && head.contains("httponly; samesite=strict"), "{head}");
        let (_, cookie) = head.split_once("set-cookie: ").expect("a cookie");
        format!("cookie: {}\r\n", cookie.split(';').next().expect("a pair"))
    }
}

#[tokio::test]
async fn a_reader_logs_in_and_sees_what_is_down_with_its_cause_and_fix() {
    let page = Page::start();
    let (head, _) = page.ask("GET", "/", "", "").await;
    assert!(head.starts_with("http/1.1 303") && head.contains("location: /login"), "{head}");
    let (head, text) = page.ask("GET", "/login", "", "").await;
    assert!(head.starts_with("http/1.1 200") && text.contains("type=\"password\""), "{head}{text}");
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    assert!(head.contains("x-content-type-options: nosniff") && head.contains("no-store"), "{head}");
    let cookie = page.login().await;
    let (head, text) = page.ask("GET", "/", &cookie, "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}{text}");
    assert!(text.contains("no answer from 192.0.2.1:51820") && text.contains("ping 192.0.2.1"), "{text}");
    assert!(text.find("berlin") < text.find("paris"), "{text}");
    assert!(!text.contains("KEY") && !text.contains("OURS"), "{text}");
    page.ask("POST", "/logout", &cookie, "").await;
    assert!(page.ask("GET", "/", &cookie, "").await.0.starts_with("http/1.1 303"));
}

#[tokio::test]
async fn what_is_no_reader_gets_nothing() {
    let page = Page::start();
    let (head, text) = page.ask("POST", "/login", "", "token=a+guess").await;
    assert!(head.starts_with("http/1.1 401") && !head.contains("set-cookie"), "{head}");
    assert!(text.contains("This is not the token"), "{text}");
    let cookie = page.login().await;
    let status = async |method, path, more: &str, body: &str| {
        let (head, _) = page.ask(method, path, more, body).await;
        head.split(' ').nth(1).and_then(|it| it.parse::<u16>().ok()).expect("a status")
    };
    assert_eq!(status("GET", "/", &format!("host: rebound.example\r\n{cookie}"), "").await, 421);
    assert_eq!(status("POST", "/logout", &format!("origin: http://a.example\r\n{cookie}"), "").await, 403);
    assert_eq!(status("GET", "/", &cookie, "").await, 200, "the session goes on");
    assert_eq!(status("GET", "/v1/facts", &cookie, "").await, 404, "it is no way to the API");
    assert_eq!(status("POST", "/", &cookie, "").await, 405);
    assert_eq!(status("POST", "/login", "", &"x".repeat(5000)).await, 400);
}

#[tokio::test]
async fn many_browsers_ask_the_daemon_once_a_second() {
    let page = Page::start();
    let cookie = page.login().await;
    let begun = std::time::Instant::now();
    for _ in 0..50 {
        assert!(page.ask("GET", "/", &cookie, "").await.0.starts_with("http/1.1 200"));
    }
    let most = begun.elapsed().as_secs() as usize + 1;
    assert!(page.asked.load(Ordering::Relaxed) <= most, "{:?} in {most} s", page.asked);
}
