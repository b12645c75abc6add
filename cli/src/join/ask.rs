//! Asks head office, by a process of this program without rights: what the network sends is parsed there.
//!
//! ```text
//! join ── standard input: addresses, pin, request ──> process ── TLS ──> head office
//!      <── standard output: what head office has answered ──┘
//! ```

use crate::{Failure, Outcome, child, privilege};
use clap::Args;
use https::enrollment::{EnrollError, Granted, Refused, Request, Token, enroll};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use tokio::runtime::Builder;
use zeroize::Zeroizing;

/// `nobody`, which owns no file.
const NOBODY: u32 = 65_534;
/// Bytes of what the processes tell each other.
const LONGEST: u64 = 1 << 20;

/// The hidden verb has no words.
#[derive(Args)]
pub(crate) struct Arguments {}

/// What the process is to do.
#[derive(Serialize, Deserialize)]
struct Order {
    servers: Vec<SocketAddr>,
    pin: [u8; 32],
    request: Request,
}

/// What it has found.
#[derive(Serialize, Deserialize)]
enum Found {
    Granted(Granted, SocketAddr),
    Refused(Refused),
    /// What each address has led to.
    Failed(Vec<Tried>),
}

/// An address at which head office has not answered as wanted.
#[derive(Clone, Serialize, Deserialize)]
struct Tried {
    server: SocketAddr,
    why: String,
    /// What to do, if it is known.
    fix: Option<String>,
}

/// Why head office has not answered as wanted.
pub(super) struct NotJoined {
    pub(super) text: String,
    /// Head office has refused, so that nothing is gained by asking again.
    pub(super) is_final: bool,
}

impl From<Failure> for NotJoined {
    fn from(error: Failure) -> Self {
        Self { text: error.to_string(), is_final: false }
    }
}

/// The answer of head office, and the address that has given it.
pub(super) fn ask(token: &Token, request: Request) -> Result<(Granted, SocketAddr), NotJoined> {
    let order = Order { servers: token.servers().collect(), pin: token.pin, request };
    match exchange(&order)? {
        Found::Granted(granted, server) => Ok((granted, server)),
        Found::Refused(Refused { error, fix }) => {
            let text = printable(&format!("head office refuses: {error}\n  fix: {fix}"));
            Err(NotJoined { text, is_final: true })
        }
        Found::Failed(tried) => Err(NotJoined { text: failed(&tried), is_final: false }),
    }
}

fn failed(tried: &[Tried]) -> String {
    let lines: Vec<String> = tried.iter().map(|it| format!("{}: {}", it.server, it.why)).collect();
    let port = tried.first().map_or(0, |it| it.server.port());
    let fix = tried.iter().find_map(|it| it.fix.clone()).unwrap_or_else(|| {
        format!("let TCP port {port} through at head office, then type the same command again")
    });
    printable(&format!("{}\n  fix: {fix}", lines.join("\n")))
}

/// Text of head office without control characters, which a terminal would obey.
fn printable(text: &str) -> String {
    text.replace(|character: char| character.is_control() && character != '\n', " ")
}

fn exchange(order: &Order) -> Result<Found, Failure> {
    let mut command = child::command("join-exchange");
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/").spawn()?;
    let text = Zeroizing::new(serde_json::to_vec(order)?);
    if let Some(mut input) = process.stdin.take() {
        input.write_all(&text)?;
    }
    let mut answer = Vec::new();
    if let Some(output) = process.stdout.take() {
        output.take(LONGEST).read_to_end(&mut answer)?;
    }
    if !process.wait()?.success() {
        return Err("the process that asks head office has failed\n  fix: type the same command again".into());
    }
    Ok(serde_json::from_slice(&answer)?)
}

/// The process that asks.
pub(crate) fn serve(_: &Arguments) -> Outcome {
    privilege::drop_all()?;
    let mut text = Zeroizing::new(Vec::with_capacity(4096));
    io::stdin().take(LONGEST).read_to_end(&mut text)?;
    let order: Order = serde_json::from_slice(&text)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(each(&order));
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &found)?;
    Ok(out.flush()?)
}

/// Asks one address after the other.
async fn each(order: &Order) -> Found {
    let mut tried = Vec::new();
    for server in &order.servers {
        eprintln!("Asking head office at {server} ...");
        match enroll(*server, order.pin, &order.request).await {
            Ok(granted) => return Found::Granted(granted, *server),
            Err(EnrollError::Refused(refused)) => return Found::Refused(refused),
            Err(error) => tried.push(Tried { server: *server, why: error.to_string(), fix: fix(error) }),
        }
    }
    Found::Failed(tried)
}

fn fix(error: EnrollError) -> Option<String> {
    match error {
        EnrollError::Later(Refused { fix, .. }) => Some(fix),
        EnrollError::WrongPin => Some(
            "use no other way than the one you trust; if head office was set up anew, there: postern enroll create"
                .to_owned(),
        ),
        EnrollError::Unanswered(_) => Some(
            "type the same command again; if that does not help, at head office: journalctl -u postern, and the same \
             version of Postern on both"
                .to_owned(),
        ),
        EnrollError::Unreachable(_) | EnrollError::Refused(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_that_failed_is_named_with_what_to_type() {
        let tried = |server: &str, why: &str, fix: Option<&str>| Tried {
            server: server.parse().expect("right"),
            why: why.to_owned(),
            fix: fix.map(str::to_owned),
        };
        let silent = tried("198.51.100.1:9588", "it cannot be reached", None);
        let text = failed(std::slice::from_ref(&silent));
        assert!(text.contains("198.51.100.1:9588: it cannot be reached\n  fix: let TCP port 9588"), "{text}");
        let other = tried("198.51.100.2:9588", "its key is another one", Some("do that"));
        let text = failed(&[silent, other]);
        assert!(text.ends_with("198.51.100.2:9588: its key is another one\n  fix: do that"), "{text}");
        // It was reached: no port is in the way.
        let strange = fix(EnrollError::Unanswered("it answers 502, and nothing that is known".to_owned()));
        assert!(strange.is_some_and(|fix| fix.contains("same version") && !fix.contains("port")));
        let rude = tried("198.51.100.3:9588", "\u{1b}[2J", None);
        assert!(!failed(&[rude]).contains('\u{1b}'));
    }
}
