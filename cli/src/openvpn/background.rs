//! `daemon`: the process in the background, and its caller, which waits until the interface is set up.

use crate::{Failure, Outcome};
use rustix::process::setsid;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The line that the background process sends to its parent once it is ready.
const READY: &[u8] = b"ready\n";

/// Starts this program in the background, and waits until it is ready.
pub(super) fn start() -> Outcome {
    let mut child = Command::new(std::env::current_exe()?)
        // Not the name of the file, which may imply the verb.
        .arg0("postern")
        .args(["openvpn", "--tell-when-ready"])
        // Our own arguments, behind the verb.
        .args(crate::command_line(std::env::args_os()).into_iter().skip(2))
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = Vec::new();
    child.stdout.take().ok_or("the standard output is no pipe")?.read_to_end(&mut said)?;
    if said == READY {
        return Ok(());
    }
    // The child has printed the reason on our standard error.
    std::process::exit(child.wait()?.code().unwrap_or(1));
}

/// Who started this process.
pub(super) struct Caller {
    /// The pipe of a parent that waits.
    parent: Option<File>,
    /// The standard error that the log has replaced.
    errors: Option<File>,
}

impl Caller {
    /// `waits`: whether it is a parent that waits. Its pipe is not left to what this process starts.
    pub(super) fn new(waits: bool) -> Result<Self, Failure> {
        let mut parent = None;
        if waits {
            parent = Some(File::from(std::io::stdout().as_fd().try_clone_to_owned()?));
            rustix::stdio::dup2_stdout(nowhere()?)?;
        }
        Ok(Self { parent, errors: None })
    }

    /// Errors of the start go there too.
    pub(super) fn keeps(&mut self, errors: Option<File>) {
        self.errors = errors;
    }

    /// Reports why the start has failed where the log does not.
    pub(super) fn fail(&mut self, error: &Failure) {
        if let Some(errors) = &mut self.errors {
            // Nothing is left to tell the caller of a failure.
            let _ = writeln!(errors, "postern: {error}");
        }
    }

    /// Leaves the terminal, which passwords may have been read from. The filter of system calls allows that no more.
    pub(super) fn leave_terminal(&self) -> Outcome {
        if self.parent.is_some() {
            setsid()?;
        }
        Ok(())
    }

    /// Lets the caller go: the interface is set up.
    pub(super) fn release(&mut self) -> Outcome {
        let keeps_errors = self.errors.is_some() || std::env::var_os("LOG_LEVEL").is_some();
        let Some(mut parent) = self.parent.take() else { return Ok(()) };
        let nowhere = nowhere()?;
        rustix::stdio::dup2_stdin(&nowhere)?;
        if !keeps_errors {
            rustix::stdio::dup2_stderr(&nowhere)?;
        }
        // A parent that was killed does not wait any more.
        let _ = parent.write_all(READY);
        self.errors = None;
        Ok(())
    }
}

fn nowhere() -> std::io::Result<File> {
    File::options().read(true).write(true).open("/dev/null")
}
