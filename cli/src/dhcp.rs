//! The processes of DHCP clients, for the daemon, which may start none: a supervisor, udhcpc for each interface, and what that calls.
//!
//! ```text
//! postern run ──> dhcp-clients --supervise ──> dhcp-clients ──> dhcp-client, becomes udhcpc ──> this program, called as `... bound`
//!                  starts that again if it fails   parses what they say      ╰───────────── confined ──────────────╯
//! ```
//! All run as the daemon's user, without rights to configure networks or to become another user. udhcpc parses packets of
//! unauthenticated sources, with raw sockets: so it is confined, with what it calls. It opens no files but programs and libraries,
//! and reaches no Unix socket. Without the user `postern` it is root with the same limits.

use crate::confine::{confine_dhcp_client, limit_memory_of_client};
use crate::service_user::{self, User};
use crate::{Failure, Outcome, child, log};
use caps::{CapSet, Capability, CapsHashSet};
use clap::Args;
use gateway::dhcp::supervisor;
use gateway::helper::Connection;
use rustix::fs::{Mode, OFlags};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Marks the environment of a client: what it calls is this program, with the event as the only argument.
const OF_CLIENT: &str = "POSTERN_DHCP_EVENT";
const EVENTS: [&str; 5] = ["bound", "deconfig", "leasefail", "nak", "renew"];
/// udhcpc uses the descriptors 3 and 4 without a look at what they are.
const FREE_DESCRIPTOR: i32 = 64;
const THIS: &str = "/proc/self/exe";
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Args)]
pub(crate) struct Supervisor {
    /// The user to become
    #[arg(long)]
    user: Option<String>,
    /// Start the supervisor, and again if it fails
    #[arg(long)]
    supervise: bool,
}

#[derive(Args)]
pub(crate) struct Client {
    /// The program, and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    line: Vec<String>,
}

/// Starts the supervisor; must be called before rights are given up.
pub(crate) fn start(user: Option<&User>) -> Result<Connection, Failure> {
    let mut command = child::command("dhcp-clients");
    command.arg("--supervise");
    if let Some(user) = user {
        command.args(["--user", user.name()]);
    }
    // A signal from the terminal is for the daemon alone.
    Ok(Connection::Inherited(child::start(command.process_group(0), "runs DHCP clients")?))
}

/// Supervises clients until the daemon ends.
pub(crate) fn serve(arguments: &Supervisor) -> Outcome {
    log::start()?;
    if let Some(user) = service_user::named(arguments.user.as_deref(), None)? {
        service_user::become_user(&user)?;
    }
    keep_rights_of_clients()?;
    let socket = child::socket()?;
    socket.set_nonblocking(false)?;
    // A service manager sends signals to all processes. This one ends with the daemon.
    let _ignores = child::ignore_signals()?;
    if arguments.supervise {
        return child::supervise(&socket, "the supervisor of DHCP clients", || {
            child::command("dhcp-clients")
        });
    }
    report_limits();
    // A client of another user finds the program by it, also one that was replaced since.
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    Ok(supervisor::serve(&socket, |line| {
        let mut command = child::command("dhcp-client");
        command.arg("--").args(line);
        command
    })?)
}

/// Tells once what clients are not limited to: a client itself has no log.
fn report_limits() {
    let limited = std::thread::spawn(|| confine_dhcp_client(&[]));
    match limited.join() {
        Ok(Ok(lacking)) => lacking.iter().for_each(|it| tracing::warn!("DHCP clients: {it}")),
        Ok(Err(error)) => tracing::error!("DHCP clients cannot be limited, and are not started: {error}"),
        Err(_) => {}
    }
}

/// Packet sockets, and port 68.
fn keep_rights_of_clients() -> Result<(), Failure> {
    let wanted = CapsHashSet::from([Capability::CAP_NET_RAW, Capability::CAP_NET_BIND_SERVICE]);
    let kept: CapsHashSet = caps::read(None, CapSet::Permitted)?.intersection(&wanted).copied().collect();
    for other in caps::all().difference(&wanted) {
        // Only root may, and only root needs it: it would get them back from a program.
        let _ = caps::drop(None, CapSet::Bounding, *other);
    }
    for set in [CapSet::Ambient, CapSet::Inheritable] {
        caps::clear(None, set)?;
    }
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    // By these, a program of another user than root gets them.
    caps::set(None, CapSet::Inheritable, &kept)?;
    caps::set(None, CapSet::Ambient, &kept)?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Becomes a client, which is killed when the supervisor ends, however that ends.
pub(crate) fn become_client(arguments: &Client) -> Outcome {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let Some((program, rest)) = arguments.line.split_first() else { return Ok(()) };
    // Inherited by what it becomes, which calls the program by it: its path may lead to another one by then.
    let this = rustix::fs::open(THIS, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let this = fcntl_dupfd_cloexec(this, FREE_DESCRIPTOR)?;
    fcntl_setfd(&this, FdFlags::empty())?;
    limit_memory_of_client()?;
    confine_dhcp_client(&[program, THIS])?;
    let mut command = Command::new(program);
    command.args(rest).arg("-s").arg(format!("/proc/self/fd/{}", this.as_raw_fd()));
    command.env_clear().env("PATH", PATH).env(OF_CLIENT, "1");
    Err(format!("{program}: {}", command.exec()).into())
}

/// What a client calls at an event, if that is what this process is.
pub(crate) fn callback(mut line: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    std::env::var_os(OF_CLIENT)?;
    let event = line.nth(1)?.into_string().ok()?;
    if line.next().is_some() || !EVENTS.contains(&event.as_str()) {
        return None;
    }
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let said = supervisor::say(&event, variable, &mut std::io::stdout());
    Some(if said.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
