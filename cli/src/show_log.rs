//! `postern show log` and `postern monitor log`: the log of the daemon, of the kernel, or of the whole machine.
//!
//! Each comes from the journal if there is one. Without it the daemon's lines come from its memory, the kernel's from `/dev/kmsg`
//! and those of the machine from the file of a syslog daemon.

use crate::answer::Answer;
use crate::monitor::log::whole_lines;
use crate::monitor::{Lines, follow_program};
use crate::request::Request;
use crate::{Failure, Outcome, client, host};
use gateway::api::model::Log;
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The unit of the daemon.
const UNIT: &str = "postern";
/// How many lines are shown of a log before it is followed, and by `show log tail`.
const FEW: usize = 10;
/// How often is looked for more where nothing announces it.
const OFTEN: Duration = Duration::from_millis(500);
/// The files of syslog daemons.
const FILES: [&str; 2] = ["var/log/syslog", "var/log/messages"];

/// Whose log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Daemon,
    Kernel,
    Machine,
}

/// Where a log is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// `journalctl` with these arguments.
    Journal(&'static [&'static str]),
    /// The memory of the daemons.
    Daemon,
    /// The kernel's ring of records.
    Kernel(PathBuf),
    File(PathBuf),
}

/// A log, as JSON.
#[derive(Debug, Serialize)]
struct Shown {
    source: String,
    lines: Vec<String>,
}

/// The log as far as it is kept, or its last lines.
pub(crate) fn show(request: &Request, of: Of) -> Result<Answer, Failure> {
    shown(request, of, None)
}

/// The last lines of the machine's log.
pub(crate) fn tail(request: &Request) -> Result<Answer, Failure> {
    let count = request.value("LINES").map(str::parse).transpose()?.unwrap_or(FEW);
    shown(request, Of::Machine, Some(count))
}

fn shown(request: &Request, of: Of, last: Option<usize>) -> Result<Answer, Failure> {
    let source = Source::of(of, request)?;
    let mut lines = source.lines(request, last)?;
    lines.drain(..lines.len().saturating_sub(last.unwrap_or(usize::MAX)));
    let shown = Shown { source: source.name(), lines };
    Ok(Answer::new(shown, |shown| shown.lines.iter().map(|line| format!("{line}\n")).collect()))
}

/// The last lines, and those that come.
pub(crate) fn follow(request: &Request, of: Of) -> Result<Answer, Failure> {
    let source = Source::of(of, request)?;
    let request = request.clone();
    Ok(Answer::going(move |out, form| source.follow(&request, &mut Lines::new(out, form))))
}

impl Source {
    fn of(of: Of, request: &Request) -> Result<Self, Failure> {
        let root = host::root();
        let has_journal = root.join("run/systemd/journal/socket").exists();
        let file = || FILES.iter().map(|file| root.join(file)).find(|file| file.exists());
        match of {
            Of::Kernel if has_journal => Ok(Self::Journal(&["--dmesg"])),
            Of::Kernel => Ok(Self::Kernel(root.join("dev/kmsg"))),
            // An interface that wg-quick started, or a daemon in the foreground, does not log as the unit.
            Of::Daemon if request.api().is_none() && has_journal && has_lines(UNIT) => {
                Ok(Self::Journal(&["--unit", UNIT]))
            }
            Of::Daemon => Ok(Self::Daemon),
            Of::Machine if has_journal => Ok(Self::Journal(&[])),
            Of::Machine => match file() {
                Some(file) => Ok(Self::File(file)),
                None if client::is_any_daemon_here() || request.api().is_some() => Ok(Self::Daemon),
                None => Err(
                    "there is no log: neither a journal nor /var/log/syslog\n  fix: apt-get install rsyslog"
                        .into(),
                ),
            },
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Journal(_) => "journal".to_owned(),
            Self::Daemon => "daemon".to_owned(),
            Self::Kernel(path) | Self::File(path) => path.display().to_string(),
        }
    }

    /// Its lines, or the last so many; more are harmless.
    fn lines(&self, request: &Request, last: Option<usize>) -> Result<Vec<String>, Failure> {
        match self {
            Self::Journal(arguments) => {
                let mut command = journalctl(arguments);
                command.args(last.map(|count| format!("--lines={count}")));
                let output = command.stderr(Stdio::inherit()).output().map_err(no_journalctl)?;
                Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
            }
            Self::Daemon => Ok(asked(request, 0)?.1),
            Self::Kernel(path) => records(path, false)?.collect(),
            Self::File(path) => {
                let bytes = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
                Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
            }
        }
    }

    fn follow(&self, request: &Request, lines: &mut Lines<'_>) -> Outcome {
        match self {
            Self::Journal(arguments) => follow_journal(arguments, lines),
            Self::Daemon => follow_daemon(request, lines),
            Self::Kernel(path) => {
                let known = records(path, false)?.collect::<Result<Vec<String>, Failure>>()?;
                lines.last(&known, FEW)?;
                // A record can have come between the two.
                records(path, true)?.skip(known.len()).try_for_each(|line| lines.put(&line?))
            }
            Self::File(path) => follow_file(path, lines),
        }
    }
}

fn journalctl(arguments: &[&str]) -> Command {
    let mut command = Command::new("journalctl");
    command.arg("--no-pager").args(arguments).stdin(Stdio::null());
    command
}

fn no_journalctl(error: std::io::Error) -> Failure {
    format!("journalctl: {error}\n  fix: apt-get install systemd").into()
}

/// Whether the journal has anything of a unit.
fn has_lines(unit: &str) -> bool {
    let output = journalctl(&["--quiet", "--lines=1", "--unit", unit]).stderr(Stdio::null()).output();
    output.is_ok_and(|output| !output.stdout.is_empty())
}

fn follow_journal(arguments: &[&str], lines: &mut Lines<'_>) -> Outcome {
    let mut command = journalctl(arguments);
    command.args(["--follow", &format!("--lines={FEW}")]);
    follow_program(command, lines, no_journalctl)
}

/// The lines of all daemons after this number, and the number of the last.
fn asked(request: &Request, after: u64) -> Result<(u64, Vec<String>), Failure> {
    let answers: Vec<(PathBuf, Log)> = client::ask_each(request.api(), &format!("/v1/log/{after}"))?;
    if answers.is_empty() {
        return Err(client::no_daemon().into());
    }
    let several = answers.len() > 1;
    let mut last = after;
    let mut lines = Vec::new();
    for (socket, log) in answers {
        // Several daemons number their lines alike: only one of them can be followed.
        last = if several { after } else { log.lines.last().map_or(after, |line| line.number) };
        let name = socket.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let named = |text: String| if several { format!("{name}: {text}") } else { text };
        lines.extend(log.lines.into_iter().map(|line| named(line.text)));
    }
    Ok((last, lines))
}

fn follow_daemon(request: &Request, lines: &mut Lines<'_>) -> Outcome {
    let (mut last, known) = asked(request, 0)?;
    if last == 0 && !known.is_empty() {
        return Err("several daemons run here\n  fix: name one with --api SOCKET".into());
    }
    lines.last(&known, FEW)?;
    loop {
        std::thread::sleep(OFTEN);
        let (number, new) = asked(request, last)?;
        last = number;
        new.iter().try_for_each(|line| lines.put(line))?;
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let fix = if error.kind() == ErrorKind::PermissionDenied { "\n  fix: ask as root" } else { "" };
    format!("{}: {error}{fix}", path.display()).into()
}

fn follow_file(path: &Path, lines: &mut Lines<'_>) -> Outcome {
    let open = || File::open(path).map_err(|error| unreadable(path, &error));
    let mut file = open()?;
    let mut rest = Vec::new();
    file.read_to_end(&mut rest)?;
    lines.last(&whole_lines(&mut rest), FEW)?;
    loop {
        std::thread::sleep(OFTEN);
        let at = file.stream_position()?;
        // It was rotated: another file has the name, or this one was emptied.
        if std::fs::metadata(path).is_ok_and(|it| it.len() < at) {
            file = open()?;
            file.seek(SeekFrom::Start(0))?;
        }
        file.read_to_end(&mut rest)?;
        whole_lines(&mut rest).iter().try_for_each(|line| lines.put(line))?;
    }
}

/// The kernel's records (Documentation/ABI/testing/dev-kmsg): one a read. Those that come are waited for, if so wanted.
fn records(path: &Path, waits: bool) -> Result<impl Iterator<Item = Result<String, Failure>>, Failure> {
    let flags = if waits { OFlags::empty() } else { OFlags::NONBLOCK };
    let open = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let mut file = open.map_err(|error| unreadable(path, &error))?;
    let path = path.to_owned();
    // No record is longer than this.
    let mut buffer = vec![0; 8_192];
    Ok(std::iter::from_fn(move || {
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return None,
                Ok(length) => return Some(Ok(record(&String::from_utf8_lossy(&buffer[..length])))),
                // Older records were overwritten: the next is still there.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::PIPE) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) => return Some(Err(unreadable(&path, &error))),
            }
        }
    }))
}

/// `6,339,5140900,-;text` as `dmesg` prints it; lines after the first are for programs.
fn record(text: &str) -> String {
    let first = text.lines().next().unwrap_or_default();
    let Some((head, message)) = first.split_once(';') else { return first.to_owned() };
    let microseconds: u64 = head.split(',').nth(2).and_then(|number| number.parse().ok()).unwrap_or_default();
    format!("[{:>5}.{:06}] kernel: {message}", microseconds / 1_000_000, microseconds % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_the_kernel_is_one_line() {
        let text =
            "6,339,5140900,-;qat_c3xxx 0000:00:0b.0: qat_dev0 started\n SUBSYSTEM=pci\n DEVICE=+pci:1\n";
        assert_eq!(record(text), "[    5.140900] kernel: qat_c3xxx 0000:00:0b.0: qat_dev0 started");
        assert_eq!(record("garbage"), "garbage");
    }

    #[test]
    fn a_line_without_end_waits_for_it() {
        let mut bytes = b"one\ntwo\nthr".to_vec();
        assert_eq!(whole_lines(&mut bytes), ["one", "two"]);
        bytes.extend(b"ee\n");
        assert_eq!((whole_lines(&mut bytes), bytes), (vec!["three".to_owned()], Vec::new()));
    }
}
