//! The pid file of an OpenVPN interface: written when the interface listens, by a process that has kept the rights of the caller.
//!
//! ```text
//! start ── old file away ── this process ──> other user ── listens ── a byte ──> writes the file, answers, ends
//! ```
//! A program that waits for the file can connect at once. The process between is not waited for later, which the filter of system calls
//! forbids: it starts the one that writes, and ends.

use crate::{Failure, Outcome, child};
use clap::Args;
use disk::Wanted;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// How long a slow disk is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct Arguments {
    /// The process id
    id: u32,
    /// The file
    path: PathBuf,
    /// Leave the writing to a further process
    #[arg(long)]
    apart: bool,
}

/// The file, removed at the end as far as the user of the process may.
pub(crate) struct PidFile {
    path: PathBuf,
    writer: Option<UnixStream>,
}

fn refused(path: &Path, error: impl std::fmt::Display) -> Failure {
    let path = path.display();
    format!("writepid {path}: {error}\n  fix: make the folder, or name a file that can be written").into()
}

fn write(path: &Path, id: u32) -> io::Result<()> {
    let text = format!("{id}\n");
    disk::write(path, &Wanted { bytes: text.as_bytes(), mode: 0o644, owner: (None, None) })
}

impl PidFile {
    /// Removes an old file, and starts the process; must be called before rights are given up.
    pub(crate) fn prepare(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| refused(path, error);
        let id = std::process::id();
        let path_of_writer = std::path::absolute(path).map_err(failed)?;
        // It must not name a process that has ended, and what cannot be written is to be told now.
        if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_dir()) {
            std::fs::remove_file(path).map_err(failed)?;
        }
        let mut attempt = path_of_writer.clone().into_os_string();
        attempt.push(format!(".{id}"));
        write(attempt.as_ref(), id).and_then(|()| std::fs::remove_file(&attempt)).map_err(failed)?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = child::command("pid-file");
        command.arg("--apart").arg(id.to_string()).arg(&path_of_writer).current_dir("/");
        let started = command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).status();
        let started = started.map_err(|error| format!("the process that writes the pid file: {error}"))?;
        if !started.success() {
            return Err("the process that writes the pid file has not started".into());
        }
        ours.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { path: path_of_writer, writer: Some(ours) })
    }

    /// Has it written, once.
    pub(crate) fn write(&mut self) -> Outcome {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let mut answer = String::new();
        writer
            .write_all(b"\n")
            .and_then(|()| writer.shutdown(Shutdown::Write))
            .and_then(|()| writer.read_to_string(&mut answer))
            .map_err(|error| refused(&self.path, error))?;
        if answer.is_empty() { Ok(()) } else { Err(refused(&self.path, answer)) }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if self.writer.is_none() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Waits for the byte, and writes the file. Without the byte, the process of the interface has ended.
pub(crate) fn serve(arguments: &Arguments) -> Outcome {
    let mut socket = child::socket()?;
    if arguments.apart {
        let mut command = child::command("pid-file");
        command.arg(arguments.id.to_string()).arg(&arguments.path);
        // A signal from the terminal is for the process of the interface alone.
        command.stdin(OwnedFd::from(socket)).process_group(0).spawn()?;
        return Ok(());
    }
    if socket.read(&mut [0])? != 0
        && let Err(error) = write(&arguments.path, arguments.id)
    {
        socket.write_all(error.to_string().as_bytes())?;
    }
    Ok(())
}
