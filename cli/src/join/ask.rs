//! Asks head office, by a process of this program without rights: what the network sends is parsed there.
//!
//! ```text
//! join ── standard input: addresses, pin, request ──> process ── TLS ──> head office
//!      <── standard output: what head office has answered ──┘
//! ```

use crate::{Failure, Outcome, child, privilege};
use clap::Args;
use gateway::api::model::Advice;
use gateway::resolver::{addresses_within, callable};
use https::enrollment::{EnrollError, Granted, Refused, Request, Token, enroll};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;
use tokio::runtime::Builder;
use zeroize::Zeroizing;

/// `nobody`, which owns no file.
const NOBODY: u32 = 65_534;
/// How long a name is looked up.
const LOOK_UP: Duration = Duration::from_secs(10);
/// Bytes of what the processes tell each other.
const LONGEST: u64 = 1 << 20;

/// The hidden verb has no words.
#[derive(Args)]
pub(crate) struct Arguments {}

/// What the process is to do.
#[derive(Serialize, Deserialize)]
struct Order {
    host_name: Option<String>,
    servers: Vec<SocketAddr>,
    port: u16,
    pin: [u8; 32],
    request: Request,
}

/// What it has found.
#[derive(Serialize, Deserialize)]
enum Found {
    /// Who has answered, and why not its name, if that cannot be looked up.
    Granted(Box<Granted>, SocketAddr, Option<Tried>),
    Refused(Refused),
    /// What the name and each address have led to.
    Failed(Vec<Tried>),
}

/// A name or an address at which head office has not answered as wanted.
#[derive(Clone, Serialize, Deserialize)]
struct Tried {
    at: String,
    why: String,
    /// What to do, if it is known.
    fix: Option<String>,
}

/// What head office has answered.
pub(super) struct Answered {
    pub(super) granted: Granted,
    /// The address that has answered.
    pub(super) server: SocketAddr,
    /// Why its name says nothing here, if it has one.
    pub(super) unknown_name: Option<Advice>,
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

/// Asks head office.
pub(super) fn ask(token: &Token, request: Request) -> Result<Answered, NotJoined> {
    let order = Order {
        host_name: token.host_name.clone(),
        servers: token.servers().collect(),
        port: token.port,
        pin: token.pin,
        request,
    };
    match exchange(&order)? {
        Found::Granted(granted, server, unknown) => {
            let advice = |Tried { at, why, fix }: Tried| Advice {
                what: printable(&format!("{at}: {why}")),
                fix: fix.unwrap_or_default(),
            };
            Ok(Answered { granted: *granted, server, unknown_name: unknown.map(advice) })
        }
        Found::Refused(Refused { error, fix }) => {
            let text = printable(&format!("head office refuses: {error}\n  fix: {fix}"));
            Err(NotJoined { text, is_final: true })
        }
        Found::Failed(tried) => Err(NotJoined { text: failed(&tried, token.port), is_final: false }),
    }
}

fn failed(tried: &[Tried], port: u16) -> String {
    let lines: Vec<String> = tried.iter().map(|it| format!("{}: {}", it.at, it.why)).collect();
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

/// Asks one address after the other, those of the name first.
async fn each(order: &Order) -> Found {
    let (mut of_name, mut unknown) = (Vec::new(), None);
    if let Some(name) = &order.host_name {
        match looked_up(name) {
            Ok(found) => of_name.extend(found.into_iter().map(|it| SocketAddr::new(it, order.port))),
            Err(why) => unknown = Some(why),
        }
    }
    let mut tried = Vec::new();
    let others = order.servers.iter().filter(|it| !of_name.contains(it));
    for server in of_name.iter().chain(others) {
        eprintln!("Asking head office at {server} ...");
        match enroll(*server, order.pin, &order.request).await {
            Ok(granted) => return Found::Granted(Box::new(granted), *server, unknown),
            Err(EnrollError::Refused(refused)) => return Found::Refused(refused),
            Err(error) => {
                let name = order.host_name.as_deref().filter(|_| of_name.contains(server));
                let (at, why) = (server.to_string(), error.to_string());
                tried.push(Tried { at, why, fix: fix(error, name) });
            }
        }
    }
    // What servers have said comes first.
    tried.extend(
        unknown.map(|it| Tried {
            fix: it.fix.map(|fix| format!("{fix}; then type the same command again")),
            ..it
        }),
    );
    Found::Failed(tried)
}

/// The first addresses of head office's name, each once.
fn looked_up(name: &str) -> Result<Vec<IpAddr>, Tried> {
    eprintln!("Looking up {name} ...");
    let unknown = |why: String| Tried {
        at: name.to_owned(),
        why: format!("the name cannot be looked up: {why}"),
        fix: Some(format!(
            "name a resolver that works in /etc/resolv.conf, which getent ahosts {name} tries"
        )),
    };
    let found = addresses_within(name, LOOK_UP).and_then(|found| callable(&found, &[]));
    found.map_err(|error| unknown(error.to_string()))
}

/// What to do about an address, which may be one of a name.
fn fix(error: EnrollError, name: Option<&str>) -> Option<String> {
    match error {
        EnrollError::Later(Refused { fix, .. }) => Some(fix),
        EnrollError::WrongPin => {
            let stale = name.map(|name| format!("wait until {name} has the address of head office; "));
            Some(format!(
                "{}use no other way than the one you trust; if head office was set up anew, there: postern enroll create",
                stale.unwrap_or_default()
            ))
        }
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
        let failed = |tried: &[Tried]| failed(tried, 9588);
        let tried = |at: &str, why: &str, fix: Option<&str>| Tried {
            at: at.to_owned(),
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
        let strange =
            fix(EnrollError::Unanswered("it answers 502, and nothing that is known".to_owned()), None);
        assert!(strange.is_some_and(|fix| fix.contains("same version") && !fix.contains("port")));
        // An address that a dynamic name had before may be another's by now.
        let stale = fix(EnrollError::WrongPin, Some("head.example.org")).expect("known");
        assert!(stale.starts_with("wait until head.example.org has the address of head office"), "{stale}");
        let rude = tried("198.51.100.3:9588", "\u{1b}[2J", None);
        assert!(!failed(&[rude]).contains('\u{1b}'));
    }
}
