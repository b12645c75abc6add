//! `postern agentx`: the sub-agent of the machine's snmpd.
//!
//! ```text
//! snmpd ── Unix socket, AgentX ──> bounded buffer ──> session ──> answer, from objects at most a second old
//! daemon ── GET /v1/facts, /v1/health ──> objects, and what has changed ──> traps
//! postern run ──> supervisor, waits for `service snmp` ──> sub-agent ──> reports to the daemon
//! ```
//! A process of its own without capabilities: what snmpd sends cannot touch the daemon, and one that hangs costs it nothing. Each call
//! to either has a deadline. If the connection ends, it is opened again after a pause. The daemon may start no program once it has given
//! up its rights, so a supervisor is started before: it starts the sub-agent when the daemon says so, and again if it fails. Started by
//! hand, the sub-agent has no supervisor.

mod connection;
mod report;
mod source;

use crate::confine::{Files, confine};
use crate::place::API;
use crate::service_user::User;
use crate::{Failure, Outcome, child, log, privilege};
use clap::Args;
use connection::{Connection, Refused};
use gateway::helper::Connection as ToDaemon;
use gateway::snmp::OFF;
use gateway::snmp::mib::POSTERN;
use report::Reporter;
use source::Source;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The pause before snmpd is tried again.
const PAUSE: Duration = Duration::from_secs(2);
/// After how many failures in a row the log has it: snmpd may be starting.
const LOGGED: u32 = 4;
/// How long the daemon may take to read a report.
const DEADLINE: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct Arguments {
    /// The socket of the daemon's API
    #[arg(long, value_name = "SOCKET", default_value = API)]
    api: PathBuf,
    /// The socket of snmpd, whose file says `master agentx`
    #[arg(long, value_name = "SOCKET", default_value = "/var/agentx/master")]
    master: PathBuf,
    /// Start the sub-agent when the daemon says so, by the socket that is the standard input
    #[arg(long, hide = true)]
    supervise: bool,
    /// Be the sub-agent of the daemon at the standard input
    #[arg(long, hide = true, conflicts_with = "supervise")]
    worker: bool,
}

/// Starts the supervisor; must be called before rights are given up.
pub(crate) fn start(api: &Path, master: &Path, user: Option<&User>) -> Result<ToDaemon, Failure> {
    let mut command = this_program(&std::path::absolute(api)?, &std::path::absolute(master)?);
    command.arg("--supervise");
    if let Some(user) = user {
        command.uid(user.uid()).gid(user.gid());
    }
    Ok(ToDaemon::Inherited(child::start(&mut command, "answers SNMP")?))
}

fn this_program(api: &Path, master: &Path) -> Command {
    let mut command = child::command("agentx");
    command.arg("--api").arg(api).arg("--master").arg(master);
    command
}

/// Supervises the sub-agent, or is it until the process is ended.
pub(crate) fn run(Arguments { api, master, supervise, worker }: Arguments) -> Outcome {
    log::start()?;
    privilege::drop_all()?;
    // A service manager sends signals to all processes. One of the daemon ends with it, and one that was started by hand by a signal.
    let _ignores = (supervise || worker).then(child::ignore_signals).transpose()?;
    if supervise {
        return child::supervise(&child::socket()?, "the sub-agent of snmpd", || {
            let mut command = this_program(&api, &master);
            command.arg("--worker");
            command
        });
    }
    confine("the sub-agent of snmpd", Files::default())?;
    let daemon = worker.then(child::socket).transpose()?;
    if let Some(daemon) = &daemon {
        daemon.set_nonblocking(false)?;
        daemon.set_write_timeout(Some(DEADLINE))?;
        let orders = daemon.try_clone()?;
        std::thread::Builder::new().name("orders".to_owned()).spawn(|| end_when_told(orders))?;
    }
    serve(&master, Source::new(api)?, &mut Reporter::new(daemon, &master), worker)
}

/// Ends the process when the daemon says so, or has ended.
fn end_when_told(mut orders: UnixStream) {
    let mut bytes = [0; 64];
    loop {
        match orders.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The last order counts.
            Ok(read) if read > 0 && bytes[read - 1] != OFF => {}
            _ => std::process::exit(0),
        }
    }
}

/// Connects to snmpd and answers it, again and again.
fn serve(master: &Path, mut source: Source, reporter: &mut Reporter, is_of_daemon: bool) -> Outcome {
    let mut failures = if is_of_daemon { 0 } else { LOGGED - 1 };
    loop {
        match Connection::open(master) {
            Ok(mut connection) => {
                tracing::info!("snmpd asks for what is below {}", dotted(POSTERN));
                reporter.is_connected();
                failures = 0;
                let ended = connection.serve(&mut source, reporter);
                let why = ended.err().unwrap_or_else(|| "it has ended".into());
                tracing::warn!("snmpd: {why}; it is tried again");
                reporter.has_failed(why.to_string(), fix(&why, is_of_daemon));
            }
            Err(error) => {
                failures += 1;
                let (why, fix) = (format!("{}: {error}", master.display()), fix(&error, is_of_daemon));
                if failures == LOGGED {
                    tracing::warn!("{why}; it is tried again\n  fix: {fix}");
                }
                reporter.has_failed(why, fix);
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// What to do about an snmpd that does not answer.
fn fix(error: &Failure, is_of_daemon: bool) -> &'static str {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    if error.downcast_ref::<Refused>().is_some_and(Refused::is_duplicate) {
        return "end the other sub-agent: systemctl disable --now postern-agentx, if that is its unit";
    }
    match kind {
        Some(ErrorKind::PermissionDenied) if is_of_daemon => {
            "systemctl restart snmpd; an agentXPerms in snmpd.local.conf must let the group of the daemon in"
        }
        _ if is_of_daemon => "systemctl restart snmpd; without systemd: SNMPCONFPATH=/etc/snmp/postern snmpd",
        _ => "start snmpd with `master agentx` in its file, or name its socket: --master SOCKET",
    }
}

fn dotted(oid: &[u32]) -> String {
    oid.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_depends_on_what_is_wrong() {
        let of = |kind: ErrorKind| fix(&Failure::from(io::Error::from(kind)), true);
        assert!(of(ErrorKind::NotFound).starts_with("systemctl restart snmpd; without systemd"));
        assert!(of(ErrorKind::PermissionDenied).contains("agentXPerms"));
        assert!(fix(&Failure::from(io::Error::from(ErrorKind::NotFound)), false).contains("--master SOCKET"));
    }
}
