use super::*;
use gateway::api::model::{SecretText, Unconfirmed};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

const KEY: &str = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";
const THEIRS: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";

/// A file that others keep for some attempts to save.
#[derive(Default)]
struct File {
    kept: AtomicUsize,
    saved: Mutex<Vec<String>>,
}

impl Local for File {
    fn operate(&self, _: &[&str]) -> Result<String, String> {
        Err(String::new())
    }

    fn save(&self, in_force: &InForce, _: &str) -> Result<String, String> {
        let is_kept = self.kept.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        if is_kept {
            return Err("another process writes it now".to_owned());
        }
        self.saved.lock().expect("no panic").push(in_force.text.as_str().to_owned());
        Ok("0".repeat(64))
    }
}

/// A daemon whose commits are in force at once.
struct Head {
    in_force: Arc<Mutex<InForce>>,
    file: Arc<File>,
    enrolling: Enrolling,
    _folder: tempfile::TempDir,
}

impl Head {
    /// One with a token of berlin, and what becomes of it after each commit.
    fn new(after: fn(&mut InForce)) -> Self {
        let hash = Base64::encode_string(&token::hash(b"a secret"));
        let text = format!(
            "set interfaces wireguard wg0 address 10.255.0.1/24\n\
             set interfaces wireguard wg0 port 51820\n\
             set interfaces wireguard wg0 private-key {KEY}\n\
             set service enrollment address 198.51.100.1\n\
             set service enrollment interface wg0\n\
             set service enrollment branch berlin address 10.255.0.2\n\
             set service enrollment branch berlin token hash {hash}\n\
             set service enrollment branch berlin token expires 99999999999\n"
        );
        let in_force = InForce { revision: 1, text: text.as_str().into(), saved: true, ..InForce::default() };
        let in_force = Arc::new(Mutex::new(in_force));
        let folder = tempfile::tempdir().expect("a folder");
        let api = folder.path().join("api.sock");
        let listener = UnixListener::bind(&api).expect("bound");
        tokio::spawn(answer(listener, Arc::clone(&in_force), after));
        let file = Arc::new(File::default());
        let place = Place { api, state: folder.path().into() };
        let local: Arc<dyn Local> = file.clone();
        let mut enrolling = Enrolling::new(&place, local);
        enrolling.patience = Duration::from_secs(1);
        enrolling.set_serving(&[Token { branch: "berlin".to_owned(), hash }]);
        Self { in_force, file, enrolling, _folder: folder }
    }

    /// Asks to join with a secret; whether the deadline counts on after it.
    async fn ask(&self, secret: &[u8]) -> (Result<Granted, String>, bool) {
        let secret = Base64::encode_string(secret);
        let body =
            format!(r#"{{"version":1,"branch":"berlin","secret":"{secret}","public_key":"{THEIRS}"}}"#);
        let source = Source::of([192, 0, 2, 1].into());
        let deadline = Deadline::after(Duration::ZERO);
        let answer = self.enrolling.respond(body.into(), source, &deadline).await;
        let counts_on = tokio::time::timeout(Duration::from_millis(50), deadline.passed()).await.is_ok();
        let answer = answer.map_err(|denied| match denied {
            Denied::Refused(_, refused) => refused.error,
            Denied::Later(error) => format!("later: {error}"),
        });
        (answer, counts_on)
    }
}

/// Answers what is asked of the daemon, a connection each.
async fn answer(listener: UnixListener, in_force: Arc<Mutex<InForce>>, after: fn(&mut InForce)) {
    loop {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut read = Vec::new();
        let (path, body) = loop {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).await.expect("readable");
            read.extend(&bytes[..count]);
            let text = std::str::from_utf8(&read).expect("text");
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let mut lengths = head.lines().filter_map(|line| line.strip_prefix("content-length: "));
            if body.len() == lengths.next().map_or(0, |it| it.parse().expect("a number")) {
                break (head.split(' ').nth(1).expect("a path").to_owned(), body.to_owned());
            }
        };
        let answer = {
            let mut now = in_force.lock().expect("no panic");
            match &*path {
                "/v1/configuration" => serde_json::to_string(&*now).expect("JSON"),
                "/v1/configuration/commit" => {
                    let commit: Commit = serde_json::from_str(&body).expect("a commit");
                    let mut tree = config::parse(now.text.as_str()).expect("right");
                    config::edits::carry_out(commit.edits.iter().map(SecretText::as_str), &mut tree)
                        .expect("right");
                    now.text = config::print::text(&tree).as_str().expect("text").into();
                    (now.revision, now.saved) = (now.revision + 1, false);
                    after(&mut now);
                    r#"{"revision":2,"changes":[],"warnings":[]}"#.to_owned()
                }
                "/v1/configuration/saved" => {
                    let saved: Saved = serde_json::from_str(&body).expect("what was saved");
                    now.saved = saved.revision == now.revision;
                    "null".to_owned()
                }
                other => panic!("{other}"),
            }
        };
        let length = answer.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all((head + &answer).as_bytes()).await.expect("it listens");
        // The client hangs up once it has read the answer.
        let _ = stream.read(&mut [0]).await;
    }
}

#[tokio::test]
async fn a_branch_hears_that_it_has_joined_once_that_is_saved() {
    let head = Head::new(|_| {});
    head.file.kept.store(2, Relaxed);
    assert!(head.ask(b"a secret").await.0.is_ok(), "the file was kept for a moment");
    let saved = head.file.saved.lock().expect("no panic").concat();
    assert!(saved.contains("peer berlin public-key") && head.in_force.lock().expect("no panic").saved);
}

#[tokio::test]
async fn a_branch_that_is_not_saved_may_ask_again_with_its_key() {
    let head = Head::new(|_| {});
    head.file.kept.store(usize::MAX, Relaxed);
    let said = head.ask(b"a secret").await.0.expect_err("it is not saved");
    assert!(said.contains("later: head office cannot save"), "{said}");
    assert!(head.in_force.lock().expect("no panic").text.as_str().contains("peer berlin public-key"));
    head.file.kept.store(0, Relaxed);
    assert!(head.ask(b"a secret").await.0.is_ok());
    assert!(head.in_force.lock().expect("no panic").saved);
}

#[tokio::test]
async fn a_commit_that_may_be_undone_is_not_saved() {
    let head = Head::new(|now| now.confirm = Some(Unconfirmed::default()));
    let said = head.ask(b"a secret").await.0.expect_err("it may be undone");
    assert!(said.contains("later: a commit at head office waits"), "{said}");
    assert!(head.file.saved.lock().expect("no panic").is_empty());
}

#[tokio::test]
async fn only_the_right_secret_keeps_a_connection_beyond_its_time() {
    let head = Head::new(|_| {});
    let (said, counts_on) = head.ask(b"another").await;
    assert!(said.is_err() && counts_on, "it may be closed for others");
    let (said, counts_on) = head.ask(b"a secret").await;
    assert!(said.is_ok() && !counts_on, "what is being committed is not cut off");
}

#[test]
fn only_the_secret_of_the_branch_itself_is_right() {
    let place = Place { api: "/nonexistent.sock".into(), state: "/nonexistent".into() };
    let enrolling = Enrolling::new(&place, Arc::new(File::default()));
    let token = |branch: &str, hash: &str| Token { branch: branch.to_owned(), hash: hash.to_owned() };
    let hash = Base64::encode_string(&token::hash(b"a secret"));
    enrolling.set_serving(&[token("berlin", &hash), token("lyon", "AAAA")]);
    assert!(enrolling.is_right("berlin", &token::hash(b"a secret")));
    for (branch, secret) in [("berlin", &b"another"[..]), ("lyon", b"a secret"), ("rome", b"a secret")] {
        assert!(!enrolling.is_right(branch, &token::hash(secret)), "{branch}");
    }
    enrolling.set_serving(&[]);
    assert!(!enrolling.is_right("berlin", &token::hash(b"a secret")), "it was retired");
}

#[test]
fn what_is_no_request_is_refused_without_its_secret() {
    let status = |body: &str| match read(body.as_bytes()) {
        Err(Denied::Refused(status, Refused { error, .. })) if !error.contains("Sesame") => status,
        _ => panic!("{body}"),
    };
    let whole = |version: u32, key: &str| {
        format!(r#"{{"version":{version},"branch":"b","secret":"OpenSesame","public_key":"{key}"}}"#)
    };
    let key = Base64::encode_string(&[7; 32]);
    assert!(read(whole(1, &key).as_bytes()).is_ok());
    for wrong in ["", "{", "[]", "null", r#"{"secret":"OpenSesame"}"#, &whole(2, &key), &whole(1, "AAAA")] {
        assert_eq!(status(wrong), StatusCode::BAD_REQUEST);
    }
}
