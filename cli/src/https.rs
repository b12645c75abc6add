//! The process that serves the API over HTTPS: how it is started, what it is allowed, and what it does of this program.
//!
//! ```text
//! postern run ──> supervisor, waits for orders ──> server, which parses what the network sends
//! ```
//! The daemon may start no program once it has given up its rights, so the supervisor is started before, and starts the server
//! when the daemon sends orders, and again if it fails. Neither has a capability. The server uses few files, and no network but
//! its listening sockets: `confine`.

use crate::answer::{Answer, Form};
use crate::confine::{Files, confine};
use crate::service_user::User;
use crate::shell::files;
use crate::{Failure, Outcome, child, elsewhere, generate, log, operational, privilege};
use ::https::{Local, Place, serve};
use clap::Args;
use gateway::api::model::InForce;
use gateway::helper::Connection;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tokio::runtime::Builder;

/// Bytes of an answer of an operational command.
const LONGEST: usize = 16 << 20;
/// What operational commands read: the kernel, devices, libraries of ciphers with their settings, and the names of users.
const READ: &[&str] = &[
    "/proc",
    "/sys",
    "/dev",
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/ssl/openssl.cnf",
    "/run/systemd",
    "/var/cache/postern",
];
/// What they may write to.
const DEVICES: &[&str] = &["/dev/null", "/dev/crypto"];
/// Threads for what waits.
const WAITING: usize = 8;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The socket of the daemon's API
    #[arg(long, value_name = "SOCKET")]
    api: PathBuf,
    /// The folder of the daemon's state
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// The configuration file of the daemon
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Serve, instead of supervising the process that does
    #[arg(long)]
    server: bool,
}

/// The paths of a daemon: its socket, the folder of its state, its configuration file.
#[derive(Clone, Copy)]
pub(crate) struct Daemon<'a> {
    pub(crate) api: &'a Path,
    pub(crate) state: &'a Path,
    pub(crate) config: &'a Path,
}

/// Starts the supervisor; must be called before rights are given up.
pub(crate) fn start(of: Daemon<'_>, user: Option<&User>) -> Result<Connection, Failure> {
    let mut command = this_program(of);
    if let Some(user) = user {
        command.uid(user.uid()).gid(user.gid());
    }
    Ok(Connection::Inherited(child::start(&mut command, "serves HTTPS")?))
}

fn this_program(Daemon { api, state, config }: Daemon<'_>) -> Command {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut command = child::command("https-server");
    // The snapshot of ten thousand peers has megabytes, and is parsed by one thread or another. glibc would give each an arena that
    // keeps what was freed, and take what is long from there: with these, it goes back to the kernel.
    let settings = [("ARENA_MAX", "1"), ("MMAP_THRESHOLD_", "65536"), ("TRIM_THRESHOLD_", "131072")];
    command.envs(settings.map(|(name, value)| (format!("MALLOC_{name}"), value)));
    for (option, path) in [("--api", api), ("--state", state), ("--config", config)] {
        command.arg(option).arg(absolute(path));
    }
    command
}

/// Supervises the server, or serves.
pub(crate) fn run(arguments: Arguments) -> Outcome {
    log::start()?;
    privilege::drop_all()?;
    let socket = child::socket()?;
    // A service manager sends signals to all processes. This one ends with the daemon.
    let _ignores = child::ignore_signals()?;
    let Arguments { api, state, config, server } = arguments;
    if server {
        return answer_requests(socket, Place { api, state }, &config);
    }
    let daemon = Daemon { api: &api, state: &state, config: &config };
    child::supervise(&socket, "the HTTPS server", || {
        let mut server = this_program(daemon);
        server.arg("--server");
        server
    })
}

fn answer_requests(socket: UnixStream, place: Place, config: &Path) -> Outcome {
    let folders = [place.state.join("https"), place.state.join("config")];
    for folder in &folders {
        // A rule is about a folder that is there. One that cannot be made is reported when it is used.
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    }
    let folders = [&folders[..], folder_of(config).as_slice()].concat();
    confine("the HTTPS server", Files { read: READ, devices: DEVICES, folders: &folders })?;
    // One thread for connections, and some for what waits: more would take processors from the data path.
    let runtime = Builder::new_current_thread().max_blocking_threads(WAITING).enable_all().build()?;
    let local = Arc::new(ThisProgram { api: place.api.clone() });
    let outcome = runtime.block_on(serve(socket, place, local));
    runtime.shutdown_background();
    Ok(outcome?)
}

/// The folder of a file, where it is replaced: of the file itself, if a link leads to it.
fn folder_of(file: &Path) -> Option<PathBuf> {
    let file = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).map(Path::to_owned)
}

/// What the server uses of this program.
struct ThisProgram {
    api: PathBuf,
}

impl Local for ThisProgram {
    fn operate(&self, words: &[&str]) -> Result<String, String> {
        let answer = self.answer(words)?.map_err(|error| error.to_string())?;
        let mut text = Bounded(Vec::new());
        answer.write(&mut text, Form::default()).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&text.0).into_owned())
    }

    fn save(&self, in_force: &InForce, file: &str) -> Result<String, String> {
        files::write_in_force(in_force, file).map_err(|error| {
            let fix = match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    "\n  fix: let the user of the daemon write there (docs/https.md), or save as /config/NAME"
                }
                _ => "",
            };
            format!("{file}: {error}{fix}")
        })
    }
}

impl ThisProgram {
    /// The answer of a command, or that there is no such command.
    fn answer(&self, words: &[&str]) -> Result<Result<Answer, Failure>, String> {
        if let ["show", "log", ..] = words {
            return Err("the server starts no programs, as the one that reads the log\n  \
                        fix: GET /v1/log has the log of the daemon"
                .to_owned());
        }
        if let ["generate", words @ ..] = words {
            let generated = generate::find(words).map(Ok);
            return generated.ok_or_else(|| invalid(words, 0, "generate "));
        }
        let found = operational::find(words);
        let (entry, values) = found.ok_or_else(|| {
            let owned: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            elsewhere::instead(&owned).unwrap_or_else(|| invalid(words, operational::known_words(words), ""))
        })?;
        Ok(entry.run(values, operational::Options::default(), Some(self.api.clone())))
    }
}

/// VyOS's error for a command that there is not; the brackets show the first word that is wrong.
fn invalid(words: &[&str], known: usize, before: &str) -> String {
    let (right, wrong) = words.split_at(known.min(words.len()));
    let right: String = right.iter().map(|word| format!("{word} ")).collect();
    format!(
        "Invalid command: {before}{right}[{}]\n  fix: docs/commands.md lists all commands",
        wrong.join(" ")
    )
}

/// Takes no more than an answer may have.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LONGEST {
            return Err(io::Error::other(format!("the answer has more than {LONGEST} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &str) -> Result<String, String> {
        let words: Vec<&str> = words.split(' ').collect();
        ThisProgram { api: "/nonexistent.sock".into() }.operate(&words)
    }

    #[test]
    fn commands_are_found_and_others_are_named() {
        assert!(said("show version").is_ok_and(|text| text.contains("postern")));
        assert!(said("generate pki wireguard key-pair").is_ok_and(|text| text.starts_with("Private key: ")));
        assert!(said("generate wireguard default-keypair").is_ok_and(|text| text.contains("Public key: ")));
        assert!(said("generate pki frob").is_err_and(|text| text.contains("[pki frob]")));
        assert!(said("show frob").is_err_and(|text| text.contains("Invalid command: show [frob]")));
        assert!(said("show vpn ipsec sa").is_err_and(|text| text.contains("/nonexistent.sock")));
        assert!(said("show log").is_err_and(|text| text.contains("fix: GET /v1/log")));
    }

    #[test]
    fn an_answer_has_an_end() {
        let mut bounded = Bounded(vec![0; LONGEST]);
        assert!(bounded.write(b"a").is_err());
    }
}
