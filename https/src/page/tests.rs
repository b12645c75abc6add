//! The page over TCP, with a daemon that answers what these tests say.

use super::stream::MOST_OF_SESSION;
use super::{Serving, StatusPage};
use crate::listen::Answering;
use crate::listen::{self, Front};
use crate::place::Place;
use axum::Json;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use base64ct::{Base64, Encoding};
use gateway::api::connections::Deadline;
use gateway::api::model::{Bottlenecks, Crypto};
use gateway::api::server::converse;
use gateway::facts::model::{Facts, History, State, Tunnel};
use gateway::health::model::Health;
use gateway::https::wire::{self, Listener};
use gateway::wireguard::model::{Explained, Explanation, Explanations, Finding, PeerState};
use hyper::Request;
use hyper::body::Incoming;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixListener};

const TOKEN: &str = "a long secret of a reader";

struct Page {
    address: String,
    /// How often the daemon was asked for facts.
    asked: Arc<AtomicUsize>,
    app: Arc<StatusPage>,
    front: Arc<Front>,
    folder: TempDir,
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

/// A snapshot of its own for each time that it is asked: all tunnels have carried more.
fn facts(asked: usize) -> Facts {
    let tunnel = |peer: &str, state| Tunnel {
        interface: "wg0".to_owned(),
        peer: peer.to_owned(),
        state,
        public_key: Some("KEY".to_owned()),
        received_bytes: 1000 * asked as u64,
        ..Tunnel::default()
    };
    let up = (0..98).map(|number| tunnel(&format!("site{number}"), State::Up));
    let mut tunnels: Vec<Tunnel> = up.collect();
    tunnels.extend([tunnel("paris", State::Up), tunnel("berlin", State::Down)]);
    Facts { moment: 1000 * asked as u64, tunnels, ..Facts::default() }
}

async fn daemon(listener: UnixListener, asked: Arc<AtomicUsize>) {
    while let Ok((stream, _)) = listener.accept().await {
        let asked = Arc::clone(&asked);
        let answer = move |request: Request<Incoming>| {
            let response = match request.uri().path() {
                "/v1/facts" => Json(facts(asked.fetch_add(1, Ordering::Relaxed) + 1)).into_response(),
                "/v1/interfaces/wireguard/wg0/explain" => Json(explanations()).into_response(),
                "/v1/bottleneck" => Json(Bottlenecks::default()).into_response(),
                "/v1/health" => Json(Health::default()).into_response(),
                "/v1/crypto" => Json(Crypto::default()).into_response(),
                "/v1/facts/history" => Json(History::default()).into_response(),
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
        Self::start_in(tempfile::tempdir().expect("a folder"))
    }

    fn start_in(folder: TempDir) -> Self {
        let _ = std::fs::remove_file(folder.path().join("sock"));
        let (socket, asked) = (folder.path().join("sock"), Arc::new(AtomicUsize::new(0)));
        tokio::spawn(daemon(UnixListener::bind(&socket).expect("a socket"), Arc::clone(&asked)));
        let app = Arc::new(StatusPage::new(&Place { api: socket, state: folder.path().to_owned() }));
        let wanted = wire::Page {
            salt: Base64::encode_string(b"salt"),
            token: Base64::encode_string(&wire::hash(b"salt", TOKEN.as_bytes())),
            sessions: Base64::encode_string(b"of this token"),
            ..wire::Page::default()
        };
        app.set_serving(Serving::new(&wanted));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("ours");
        let address = listener.local_addr().expect("bound");
        let front = Arc::new(Front::new(64, 64));
        let wanted = [Listener { address, clients: Vec::new() }];
        listen::open(&front, &wanted, vec![listener.into()], None, &app).expect("it listens");
        Self { address: address.to_string(), asked, app, front, folder }
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

    /// A connection on which a view is followed.
    async fn follow(&self, view: &str, cookie: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).await.expect("it listens");
        let request = format!("GET /events{view} HTTP/1.1\r\nhost: {}\r\n{cookie}\r\n", self.address);
        stream.write_all(request.as_bytes()).await.expect("it reads");
        BufReader::new(stream)
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

/// The next lines of a stream up to one that begins so; none at its end.
async fn line(stream: &mut BufReader<TcpStream>, begin: &str) -> Option<String> {
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        if line.starts_with(begin) {
            return Some(line);
        }
    }
}

/// Waits until something is so, which it will be.
async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_stream_tells_what_changes_and_ends_with_its_session() {
    let page = Page::start();
    let (head, _) = page.ask("GET", "/events/", "", "").await;
    assert!(head.starts_with("http/1.1 401"), "{head}");
    let cookie = page.login().await;
    let mut stream = page.follow("/", &cookie).await;
    assert!(line(&mut stream, "HTTP/1.1 200").await.is_some());
    assert!(line(&mut stream, "content-type: text/event-stream").await.is_some());
    let first = line(&mut stream, "data: [").await.expect("all parts");
    assert!(first.contains("\"id\":\"tunnels\"") && first.contains("no answer from 192.0.2.1"), "{first}");
    assert!(!first.contains("KEY") && !first.contains("OURS"), "{first}");
    let second = line(&mut stream, "data: [").await.expect("what changed");
    assert!(second.contains("\"id\":\"t") && second.contains("kbit/s"), "{second}");
    assert!(!second.contains("\"id\":\"tunnels\"") && !second.contains("\"id\":\"summary\""), "{second}");
    page.ask("POST", "/logout", &cookie, "").await;
    assert_eq!(line(&mut stream, "never").await, None);
}

#[tokio::test]
async fn streams_of_a_login_are_bounded_and_one_that_ends_makes_room() {
    let page = Page::start();
    let cookie = page.login().await;
    let mut open = Vec::new();
    for _ in 0..MOST_OF_SESSION {
        let mut stream = page.follow("/drops", &cookie).await;
        assert!(line(&mut stream, "HTTP/1.1 200").await.is_some());
        open.push(stream);
    }
    let (head, text) = page.ask("GET", "/events/drops", &cookie, "").await;
    assert!(head.starts_with("http/1.1 429") && head.contains("retry-after:"), "{head}{text}");
    assert!(page.ask("HEAD", "/events/drops", &cookie, "").await.0.starts_with("http/1.1 429"));
    let other = page.login().await;
    let mut stream = page.follow("/drops", &other).await;
    assert!(line(&mut stream, "HTTP/1.1 200").await.is_some(), "another login has its own");
    open.pop();
    until(|| page.app.streams().count() == MOST_OF_SESSION).await;
    let mut again = page.follow("/drops", &cookie).await;
    assert!(line(&mut again, "HTTP/1.1 200").await.is_some());
    drop((open, stream, again));
    until(|| page.app.streams().count() == 0).await;
}

#[tokio::test]
async fn a_reader_that_stalls_is_dropped_and_another_goes_on() {
    let page = Page::start();
    let cookie = page.login().await;
    let stalled = page.follow("/", &cookie).await;
    let mut reads = page.follow("/", &cookie).await;
    until(|| page.app.streams().count() == 2).await;
    let mut events = 0;
    while page.app.streams().count() == 2 {
        line(&mut reads, "event: ").await.expect("the other goes on");
        events += 1;
    }
    assert!(events > 5, "it had its time: {events}");
    line(&mut reads, "event: ").await.expect("still");
    drop(stalled);
}

#[tokio::test]
async fn sessions_and_pages_outlive_a_restart_and_streams_end_when_the_service_does() {
    let page = Page::start();
    let cookie = page.login().await;
    let mut stream = page.follow("/", &cookie).await;
    line(&mut stream, "data: [").await.expect("it is followed");
    page.front.close();
    let again = Page::start_in(page.folder);
    let (head, _) = again.ask("GET", "/", &cookie, "").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let mut stream = again.follow("/performance", &cookie).await;
    line(&mut stream, "data: [").await.expect("it is followed again");
    again.app.end();
    assert_eq!(line(&mut stream, "never").await, None);
    assert!(again.ask("GET", "/", &cookie, "").await.0.starts_with("http/1.1 303"));
}

#[tokio::test]
async fn each_view_has_its_own_page_and_what_is_none_is_not_found() {
    let page = Page::start();
    let cookie = page.login().await;
    for (path, says) in [
        ("/", "<h1>Overview</h1>"),
        ("/tunnel?protocol=wireguard&interface=wg0&peer=berlin", "no answer from 192.0.2.1"),
        ("/performance", "<h1>Performance</h1>"),
        ("/drops?all=yes", "<h1>Drops</h1>"),
        ("/health", "<h1>Health</h1>"),
    ] {
        let (head, text) = page.ask("GET", path, &cookie, "").await;
        assert!(head.starts_with("http/1.1 200") && text.contains(says), "{path}: {head}{text}");
        assert!(!text.contains("KEY") && !text.contains(" style=") && !text.contains("<script>"), "{text}");
    }
    for path in ["/tunnel", "/tunnel?protocol=wireguard&interface=wg0&peer=%3Cscript%3E", "/events/tunnel/x"]
    {
        let (head, text) = page.ask("GET", path, &cookie, "").await;
        assert!(head.starts_with("http/1.1 404") && !text.contains("<script>"), "{path}: {head}{text}");
    }
}

#[tokio::test]
async fn hostile_requests_get_no_more_than_a_refusal() {
    let page = Page::start();
    let cookie = page.login().await;
    for path in [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/events/../v1/facts",
        "/style.css/..",
        "/%00",
        "/events/%ff",
    ] {
        let (head, text) = page.ask("GET", path, &cookie, "").await;
        assert!(head.starts_with("http/1.1 404") && !text.contains("root:"), "{path}: {head}{text}");
    }
    let odd = page.ask("GET", "/?filter=%3Cscript%3Ealert(1)%3C/script%3E%00%ff&page=-1", &cookie, "").await;
    assert!(odd.0.starts_with("http/1.1 200") && !odd.1.contains("<script>"), "{}", odd.1);
    for host in ["host: a.example\r\n", "host: 127.0.0.1@a.example\r\n", "host: \r\n"] {
        let (head, text) = page.ask("GET", "/", &format!("{host}{cookie}"), "").await;
        assert!(head.starts_with("http/1.1 421") && !text.contains("berlin"), "{host}: {head}");
    }
    let long = format!("x-long: {}\r\n{cookie}", "x".repeat(1 << 20));
    let mut stream = TcpStream::connect(&page.address).await.expect("it listens");
    let request = format!("GET / HTTP/1.1\r\nhost: {}\r\n{long}\r\n", page.address);
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
}
