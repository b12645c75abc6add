//! Processes of this program that `postern run` starts while it still has its rights. Each has one end of a socket as its standard
//! input, and ends when the daemon, which has the other end, does.

use crate::Failure;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// This program with one of its verbs.
pub(crate) fn command(verb: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(verb);
    command
}

/// Starts a process; the daemon's end of its socket. `task` describes the process in an error.
pub(crate) fn start(command: &mut Command, task: &str) -> Result<UnixStream, Failure> {
    let (ours, theirs) = UnixStream::pair()?;
    let started = command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).current_dir("/").spawn();
    started.map_err(|error| format!("the process that {task}: {error}"))?;
    ours.set_nonblocking(true)?;
    Ok(ours)
}

/// The socket of a process that was started so.
pub(crate) fn socket() -> Result<UnixStream, Failure> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.peer_addr().map_err(|error| format!("the standard input is no socket of a daemon: {error}"))?;
    Ok(socket)
}

/// Ignores the signals with which a service manager ends all processes, as long as the returned value is kept.
pub(crate) fn ignore_signals() -> io::Result<impl Sized> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let ignored = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    drop(entered);
    for each in &ignored {
        if let Err(error) = each {
            tracing::warn!("a signal may end it: {error}");
        }
    }
    Ok((runtime, ignored))
}
