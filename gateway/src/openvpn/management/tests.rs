//! Whole conversations with a client, and a loop of the process that answers as a server with one client would.

use super::connection::{self, Shared};
use super::listener::{BindError, Listener};
use super::{Ask, Board, ClientKey, Signal};
use crate::openvpn::control_thread::{Decision, Session, Snapshot, Victim};
use config::openvpn::settings::{AuthRetry, Management, ManagementAddress};
use crypto::{Secret, hash};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);
const HELLO: &str = ">INFO:OpenVPN Management Interface Version 5 -- type 'help' for more info\r\n";

fn snapshot() -> Snapshot {
    let session = Session {
        number: 9,
        client_id: 3,
        common_name: Some("anna".to_owned()),
        user: None,
        address: None,
        local: None,
        prefixes: Vec::new(),
        cipher: String::new(),
        duration: Duration::ZERO,
        since: Duration::ZERO,
        referred: Duration::ZERO,
        received_bytes: 70,
        sent_bytes: 80,
        received_packets: 0,
        sent_packets: 0,
    };
    Snapshot {
        up: true,
        port: 1194,
        has_both: false,
        sessions: vec![session],
        failed: Vec::new(),
        ended: (1, 2),
    }
}

/// Answers as a server with the client 3, whose key 1 is asked about.
fn answer(ask: Ask) -> String {
    let is_known = |key: ClientKey| Some(key == ClientKey { client: 3, key: 1 });
    match ask {
        Ask::Status(format, reply) => _ = reply.send(Some(format!("{format:?}\nEND\n"))),
        Ask::Sessions(reply) => _ = reply.send(Some((snapshot(), true))),
        Ask::Kill(victim, told, reply) => {
            let is_there = victim == Victim::Name("anna".to_owned()) || victim == Victim::Client(3);
            let _ = reply.send(Some(usize::from(is_there)));
            return format!("kill {told}");
        }
        Ask::Decide(key, decision, reply) => {
            let _ = reply.send(is_known(key));
            return match decision {
                Decision::Accept(lines) => format!("accept {lines:?}"),
                Decision::Refuse { reason, told } => format!("refuse {reason:?} {told:?}"),
            };
        }
        Ask::Pending(key, text, wait, reply) => {
            let _ = reply.send(is_known(key));
            return format!("pending {text} {}", wait.as_secs());
        }
        Ask::Respond(_, reply) => _ = reply.send(None),
        Ask::Verb(value, reply) => _ = reply.send(value.unwrap_or(3)),
        Ask::Mute(value, reply) => _ = reply.send(value.unwrap_or(0)),
        Ask::AuthRetry(value, reply) => _ = reply.send(value.unwrap_or(AuthRetry::None)),
        Ask::Remote(_, reply) => _ = reply.send(Some(false)),
        Ask::Remotes(reply) => {
            _ = reply.send(Some(vec!["vpn,1194,udp".to_owned(), "vpn,443,tcp-client".to_owned()]));
        }
        Ask::Signal(signal) => return format!("signal {signal:?}"),
        Ask::Release => return "release".to_owned(),
        Ask::Forget => return "forget".to_owned(),
    }
    String::new()
}

/// A client, its board, and what the loop of the process was asked.
struct Bed {
    client: DuplexStream,
    board: Arc<Board>,
    asked: mpsc::UnboundedReceiver<String>,
}

fn bed(password: Option<&str>, buffer: usize) -> Bed {
    let board = Arc::new(Board::new(100, true));
    let (asks, mut waiting) = mpsc::channel(8);
    let (told, asked) = mpsc::unbounded_channel();
    let password = password.map(|text| Arc::new(Secret::new(hash::sha256(&[text.as_bytes()]))));
    let shared = Shared { board: Arc::clone(&board), asks, password };
    let (client, ours) = tokio::io::duplex(buffer);
    tokio::spawn(async move { connection::serve(ours, shared).await });
    tokio::spawn(async move {
        while let Some(ask) = waiting.recv().await {
            let text = answer(ask);
            if !text.is_empty() {
                let _ = told.send(text);
            }
        }
    });
    Bed { client, board, asked }
}

impl Bed {
    /// Reads until this text has come; what came before it.
    async fn reads(&mut self, end: &str) -> String {
        let mut text = String::new();
        let read = async {
            while !text.ends_with(end) {
                match self.client.read_u8().await {
                    Ok(byte) => text.push(char::from(byte)),
                    Err(_) => break,
                }
            }
        };
        let in_time = timeout(LONG, read).await.is_ok();
        assert!(in_time && text.ends_with(end), "{end:?} has not come: {text:?}");
        text[..text.len() - end.len()].to_owned()
    }

    async fn writes(&mut self, text: &str) {
        self.client.write_all(text.as_bytes()).await.expect("it is connected");
    }

    /// Writes a line; the answer up to that of the next command.
    async fn answers(&mut self, line: &str) -> String {
        self.writes(&format!("{line}\npid\n")).await;
        let answer = self.reads(&format!("SUCCESS: pid={}\r\n", std::process::id())).await;
        answer.replace("\r\n", "\n")
    }
}

/// Lines, and their answers.
const ANSWERS: &[(&str, &str)] = &[
    ("", ""),
    ("version", "OpenVPN Version: OpenVPN 2.6.14 (compatible: Postern 0.1.0)\nManagement Version: 5\nEND\n"),
    ("version 3", ""),
    ("status 2", "Some(Commas)\nEND\n"),
    ("status 7", "ERROR: bad status format version number\n"),
    ("load-stats", "SUCCESS: nclients=1,bytesin=71,bytesout=82\n"),
    ("bytecount 1000", "SUCCESS: bytecount interval changed\n"),
    ("kill anna", "SUCCESS: common name 'anna' found, 1 client(s) killed\n"),
    ("kill berta", "ERROR: common name 'berta' not found\n"),
    ("kill 192.0.2.1:5", "ERROR: client at address 192.0.2.1:5 not found\n"),
    ("client-kill 3 HALT", "SUCCESS: client-kill command succeeded\n"),
    ("client-kill 4", "ERROR: client-kill command failed\n"),
    ("client-auth 3 1\npush \"route x\"\n  disable\nEND", "SUCCESS: client-auth command succeeded\n"),
    ("client-auth 3 2\nEND", "ERROR: client-auth command failed\n"),
    ("client-auth-nt 3 1", "SUCCESS: client-auth command succeeded\n"),
    ("client-deny 3 1 'no user' gone", "SUCCESS: client-deny command succeeded\n"),
    ("client-pending-auth 3 1 CR_TEXT:R:PIN 60", "SUCCESS: client-pending-auth command succeeded\n"),
    ("cr-response x", "ERROR: The 'cr-response' command is not supported by the current daemon mode\n"),
    ("hold", "SUCCESS: hold=1\n"),
    ("hold off", "SUCCESS: hold flag set to OFF\n"),
    ("hold", "SUCCESS: hold=0\n"),
    ("hold release", "SUCCESS: hold release succeeded\n"),
    ("signal SIGUSR1", "SUCCESS: signal SIGUSR1 thrown\n"),
    ("verb", "SUCCESS: verb=3\n"),
    ("verb 5", "SUCCESS: verb level changed\n"),
    ("mute 4", "SUCCESS: mute level changed\n"),
    ("auth-retry", "SUCCESS: auth-retry=none\n"),
    ("auth-retry interact", "SUCCESS: auth-retry parameter changed\n"),
    ("forget-passwords", "SUCCESS: Passwords were forgotten\n"),
    ("username Auth x", "ERROR: no username is currently needed at this time\n"),
    ("password Auth x", "ERROR: no password is currently needed at this time\n"),
    ("remote ACCEPT", "ERROR: remote command failed\n"),
    ("remote-entry-count", "2\nEND\n"),
    ("remote-entry-get 1", "1,vpn,443,tcp-client,enabled\nEND\n"),
    ("remote-entry-get all", "0,vpn,1194,udp,enabled\n1,vpn,443,tcp-client,enabled\nEND\n"),
    ("remote-entry-get 2", "ERROR: remote-entry-get: there is no such entry\n"),
    ("test 2", "[0] a line of the command test\n[1] a line of the command test\n"),
    ("env-filter 1", "SUCCESS: env_filter_level=1\n"),
    ("echo on all", "SUCCESS: real-time echo notification set to ON\nEND\n"),
    ("nosuch", "ERROR: unknown command, enter 'help' for more options\n"),
];

#[tokio::test]
async fn each_command_is_answered() {
    let mut bed = bed(None, 1 << 16);
    bed.reads(HELLO).await;
    bed.board.state("CONNECTING", ",,,,,");
    for (line, expected) in ANSWERS {
        assert_eq!(bed.answers(line).await, *expected, "{line}");
    }
    assert!(bed.answers("state").await.ends_with(",CONNECTING,,,,,,\nEND\n"));
    assert!(bed.answers("help").await.ends_with("\nEND\n"));
    bed.asked.close();
    let mut asked = Vec::new();
    while let Some(text) = bed.asked.recv().await {
        asked.push(text);
    }
    let expected = [
        "kill RESTART",
        "kill RESTART",
        "kill RESTART",
        "kill HALT",
        "kill RESTART",
        "accept \"push \\\"route x\\\"\\n  disable\\n\"",
        "accept \"\"",
        "accept \"\"",
        "refuse \"no user\" \"gone\"",
        "pending CR_TEXT:R:PIN 60",
        "release",
        "signal User1",
        "forget",
    ];
    assert_eq!(asked, expected);
}

#[tokio::test]
async fn what_happens_is_told_as_it_happens() {
    let mut bed = bed(None, 1 << 16);
    bed.reads(HELLO).await;
    bed.board.log('I', "before");
    let shown = bed.answers("log on all").await;
    assert!(
        shown.starts_with("SUCCESS: real-time log notification set to ON\n")
            && shown.contains(",I,before\nEND\n")
    );
    bed.answers("state on").await;
    bed.board.log('W', "after");
    bed.board.state("EXITING", "SIGTERM,,,,,");
    assert!(bed.reads(",W,after\r\n").await.starts_with(">LOG:"));
    assert!(bed.reads(",EXITING,SIGTERM,,,,,\r\n").await.starts_with(">STATE:"));
    bed.writes("bytecount 1\n").await;
    bed.reads(">BYTECOUNT_CLI:3,70,80\r\n").await;
    bed.reads(">BYTECOUNT_CLI:3,70,80\r\n").await;
    bed.writes("quit\n").await;
    assert!(bed.client.read_u8().await.is_err());
}

#[tokio::test]
async fn without_the_password_nothing_is_told() {
    let mut bed = bed(Some("s3cret"), 1 << 16);
    bed.board.wait(0);
    for _ in 0..2 {
        bed.reads("ENTER PASSWORD:").await;
        bed.writes("status\r\n").await;
        assert_eq!(bed.reads("ERROR: bad password\r\n").await, "");
    }
    bed.reads("ENTER PASSWORD:").await;
    bed.writes("s3cret\r\n").await;
    let hold = ">HOLD:Waiting for hold release:0\r\n";
    assert_eq!(bed.reads(hold).await, format!("SUCCESS: password is correct\r\n{HELLO}"));
    assert!(bed.asked.try_recv().is_err());
}

#[tokio::test]
async fn a_third_wrong_password_ends_the_connection() {
    let mut bed = bed(Some("s3cret"), 1 << 16);
    bed.writes("a\nb\nc\nstatus\n").await;
    let mut text = String::new();
    timeout(LONG, bed.client.read_to_string(&mut text)).await.expect("it ends").expect("ASCII");
    assert!(text.matches("bad password").count() == 3 && !text.contains("INFO"), "{text}");
}

#[tokio::test]
async fn an_endless_line_and_an_endless_block_end_the_connection() {
    for begin in ["", "client-auth 0 0\n"] {
        let mut bed = bed(None, 1 << 10);
        bed.reads(HELLO).await;
        let line = if begin.is_empty() { "x".repeat(100) } else { format!("{}\n", "x".repeat(99)) };
        bed.writes(begin).await;
        let mut written = 0;
        while timeout(LONG, bed.client.write_all(line.as_bytes())).await.expect("it ends").is_ok() {
            written += line.len();
            assert!(written < 1 << 20, "it is never closed");
        }
    }
}

fn management(address: ManagementAddress, connects: bool) -> Management {
    Management {
        address,
        password: None,
        connects,
        hold: false,
        signal: true,
        forget: true,
        up_down: false,
        query_passwords: false,
        query_remote: false,
        client_auth: false,
        log_lines: 10,
        user: None,
        group: None,
    }
}

#[tokio::test]
async fn a_unix_socket_is_for_its_owner_and_one_client_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    std::fs::write(&path, "").expect("ours");
    let wanted = management(ManagementAddress::Unix(path.clone()), false);
    assert!(Listener::bind(&wanted, (None, None), None).is_err(), "a file is not replaced");
    std::fs::remove_file(&path).expect("ours");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("ours"));
    let listener = Listener::bind(&wanted, (None, None), None).expect("an old socket is replaced");
    assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    let mut asks = listener.serve(Arc::new(Board::new(1, false))).expect("a runtime");
    let mut first = UnixStream::connect(&path).await.expect("it listens");
    let mut second = UnixStream::connect(&path).await.expect("it listens");
    let mut hello = vec![0; HELLO.len()];
    first.read_exact(&mut hello).await.expect("the greeting");
    let early = timeout(Duration::from_millis(200), second.read_u8()).await;
    assert!(early.is_err(), "the second one waits");
    drop(first);
    second.read_exact(&mut hello).await.expect("the greeting");
    // What follows when a client leaves.
    assert!(matches!(asks.recv().await, Some(Ask::Forget)));
    assert!(matches!(asks.recv().await, Some(Ask::Signal(Signal::User1))));
}

#[tokio::test]
async fn the_process_ends_with_the_program_that_it_has_connected_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let wanted = management(ManagementAddress::Unix(path.clone()), true);
    assert!(Listener::bind(&wanted, (None, None), None).is_err(), "the program does not listen");
    let program = std::os::unix::net::UnixListener::bind(&path).expect("ours");
    let listener = Listener::bind(&wanted, (None, None), None).expect("it is connected");
    let mut asks = listener.serve(Arc::new(Board::new(1, false))).expect("a runtime");
    let (stream, _) = program.accept().expect("it is connected");
    stream.set_nonblocking(true).expect("a socket");
    let mut stream = UnixStream::from_std(stream).expect("a socket");
    let mut hello = vec![0; HELLO.len()];
    stream.read_exact(&mut hello).await.expect("the greeting");
    drop(stream);
    assert!(matches!(asks.recv().await, Some(Ask::Forget)));
    assert!(matches!(asks.recv().await, Some(Ask::Signal(Signal::User1))));
    assert!(matches!(asks.recv().await, Some(Ask::Signal(Signal::Terminate))));
}

#[tokio::test]
async fn a_program_of_another_user_that_listens_is_not_connected_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let own = rustix::process::geteuid();
    // Root is always allowed: the program is another user's.
    let user = if own.is_root() { rustix::process::Uid::from_raw(4711) } else { own };
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    let there = path.clone();
    let listens = std::thread::spawn(move || {
        // Of this thread alone.
        rustix::thread::set_thread_res_uid(user, user, user).expect("root, or no change");
        std::os::unix::net::UnixListener::bind(&there).expect("the folder is open to all")
    });
    let _program = listens.join().expect("no panic");
    let wanted = management(ManagementAddress::Unix(path), true);
    let other = (Some(user.as_raw() + 1), None);
    assert!(matches!(
        Listener::bind(&wanted, other, None),
        Err(BindError::Connect(_, error)) if error.kind() == std::io::ErrorKind::PermissionDenied
    ));
    assert!(Listener::bind(&wanted, (Some(user.as_raw()), None), None).is_ok());
}

#[tokio::test]
async fn a_line_that_is_not_utf_8_is_refused_and_ends_a_block() {
    let mut bed = bed(None, 1 << 16);
    bed.reads(HELLO).await;
    bed.client.write_all(b"password Auth caf\xe9\n").await.expect("it is connected");
    assert_eq!(bed.answers("hold").await, "ERROR: the line is not UTF-8\nSUCCESS: hold=1\n");
    bed.client.write_all(b"client-auth 3 1\npush \"\xe9\"\nEND\n").await.expect("it is connected");
    assert_eq!(bed.reads("ERROR: the line is not UTF-8\r\n").await, "");
    assert!(bed.client.read_u8().await.is_err(), "it is closed");
}

#[tokio::test]
async fn the_user_that_the_process_becomes_has_the_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let wanted = management(ManagementAddress::Unix(path.clone()), false);
    let own = rustix::process::geteuid();
    // Only root can give it away.
    let later = if own.is_root() { 4711 } else { own.as_raw() };
    let user = || std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&path).expect("it is there"));
    let _first = Listener::bind(&wanted, (None, None), Some(later)).expect("it is bound");
    assert_eq!(user(), later);
    let other = if own.is_root() { 4712 } else { later };
    let _second = Listener::bind(&wanted, (Some(other), None), Some(later)).expect("it is bound");
    assert_eq!(user(), other, "management-client-user");
}
