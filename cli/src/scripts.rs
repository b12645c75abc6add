//! The process that runs the programs which OpenVPN's files name, for `postern openvpn`, which may start none itself.

use crate::{Failure, Outcome, child, log, privilege};
use clap::Args;
use gateway::openvpn::scripts::process;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;

#[derive(Args)]
pub(crate) struct Arguments {}

/// Starts the process, which ends when the returned socket is closed.
pub(crate) fn start() -> Result<UnixStream, Failure> {
    // A signal from the terminal is for the daemon alone.
    child::start(child::command("script-runner").process_group(0), "runs scripts")
}

/// Runs programs until the daemon ends.
pub(crate) fn serve(_: &Arguments) -> Outcome {
    log::start()?;
    // Passwords pass through its memory.
    privilege::forbid_dumps()?;
    let socket = child::socket()?;
    // A service manager sends signals to all processes. This one ends with the daemon, which may have a program to run at its end.
    let _ignores = child::ignore_signals()?;
    Ok(process::serve(socket, |folder| std::env::set_current_dir(folder))?)
}
