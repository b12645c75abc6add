//! The process that tells receivers of alerts: programs, webhooks, mail, the syslog; and that writes the log of them.
//!
//! ```text
//! daemon ── lines of JSON ──> reader ──> a bounded queue for each ──> a thread for each ──> exec, POST, SMTP, /dev/log, file
//!    └──────── what became of them <─────────────────────────────────────┘
//! ```
//! The daemon may start no program, and waits for no receiver. A supervisor is started before the daemon gives up its rights; it starts
//! this process when there is a receiver, and again if it fails: then it asks for its orders. The reader never waits for one either: a queue that is full loses
//! messages, and counts them. The process has no right but, if the daemon has no user of its own, to become `nobody` for programs.

mod delivery;
mod exec;
mod form;
mod journal;
mod letter;
mod syslog;

use crate::service_user::User;
use crate::{Failure, Outcome, child, log, machine, privilege};
use caps::{CapSet, Capability, CapsHashSet};
use clap::Args;
use delivery::Hub;
use gateway::health::Connection;
use gateway::health::wire::{LONGEST, Message};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The folder of the daemon's state
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Folders with the programs that alerts may run; root must own them, and all in them
    #[arg(long, value_name = "DIR")]
    scripts: Vec<PathBuf>,
    /// Tell receivers, instead of supervising the process that does
    #[arg(long)]
    worker: bool,
}

/// Starts the supervisor; must be called before rights are given up.
pub(crate) fn start(
    state: &Path,
    allowed: &machine::Allowed,
    user: Option<&User>,
) -> Result<Connection, Failure> {
    let folders = allowed.programs();
    let folders = folders.iter().map(std::path::absolute).collect::<Result<Vec<_>, _>>()?;
    let mut command = this_program(&std::path::absolute(state)?, &folders);
    if let Some(user) = user {
        command.uid(user.uid()).gid(user.gid());
    }
    Ok(Connection::Inherited(child::start(&mut command, "sends alerts")?, folders))
}

fn this_program(state: &Path, scripts: &[PathBuf]) -> Command {
    let mut command = child::command("alerter");
    command.arg("--state").arg(state);
    for folder in scripts {
        command.arg("--scripts").arg(folder);
    }
    command
}

/// Supervises the process that tells receivers, or is it.
pub(crate) fn serve(Arguments { state, scripts, worker }: Arguments) -> Outcome {
    log::start()?;
    keep_few_rights()?;
    privilege::forbid_dumps()?;
    let socket = child::socket()?;
    // A service manager sends signals to all processes. This one ends with the daemon.
    let _ignores = child::ignore_signals()?;
    if worker {
        return tell(socket, &state, scripts);
    }
    child::supervise(&socket, "the process that sends alerts", || {
        let mut worker = this_program(&state, &scripts);
        worker.arg("--worker");
        worker
    })
}

/// Tells receivers until the daemon ends.
fn tell(socket: UnixStream, state: &Path, scripts: Vec<PathBuf>) -> Outcome {
    let mut hub = Hub::new(socket.try_clone()?, state.join("health"), scripts);
    let mut reader = BufReader::new(socket);
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut reader).take(LONGEST as u64).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match serde_json::from_slice(&line) {
            Ok(Message::Orders(orders)) => hub.obey(orders),
            Ok(Message::Notify(notification)) => hub.notify(&notification),
            Ok(Message::Log(line)) => hub.log(line),
            // One that was started again may find the rest of a line.
            Err(error) => tracing::debug!("a message of the daemon cannot be read: {error}"),
        }
    }
    hub.stop();
    Ok(())
}

/// Whether programs are run by another user than this one.
fn becomes_nobody() -> bool {
    rustix::process::geteuid().is_root()
}

/// The rights to become another user, if this is root; otherwise none.
fn keep_few_rights() -> Outcome {
    if !becomes_nobody() {
        return privilege::drop_all();
    }
    let kept = CapsHashSet::from([Capability::CAP_SETUID, Capability::CAP_SETGID, Capability::CAP_KILL]);
    let had = caps::read(None, CapSet::Permitted)?;
    for capability in caps::read(None, CapSet::Bounding)?.difference(&kept) {
        caps::drop(None, CapSet::Bounding, *capability)?;
    }
    let kept: CapsHashSet = had.intersection(&kept).copied().collect();
    for set in [CapSet::Ambient, CapSet::Inheritable] {
        caps::clear(None, set)?;
    }
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}
