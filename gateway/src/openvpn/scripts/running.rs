//! One run of a program: files, child, deadline, exit status.

use super::files::Made;
use super::served;
use super::{Answer, Deferral, Hook, Outcome, Program, Programs, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The commands that scripts find; OpenVPN leaves that to the shell.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The exit status of a program that answers later.
const DEFERRED: i32 = 2;

/// Variables with the paths of files.
pub(super) type Variables = Vec<(String, PathBuf)>;

/// A program that has ended, and answers in a file.
pub(super) struct Awaited {
    /// Those that the program may write.
    files: Vec<Option<Made>>,
    /// The variables with their paths.
    variables: Variables,
    file: usize,
    until: Instant,
}

/// Runs a program to its end. `inherited`: files of the request that it may answer. `ended`: readable when the daemon has ended.
pub(super) fn run(
    programs: &Programs,
    request: &Request,
    inherited: &Variables,
    until: Instant,
    ended: BorrowedFd<'_>,
) -> (Answer, Option<Awaited>) {
    let Some(program) = programs.by_hook.get(&request.hook) else {
        return (Answer::failed("the configuration has no such program"), None);
    };
    if let Some(answer) = served::serve(program, request) {
        return (answer, None);
    }
    let of_certificates = programs.certificates.as_ref().filter(|_| request.hook == Hook::TlsVerify);
    let folder = of_certificates.unwrap_or(&programs.temporary);
    let files = request.files.iter().map(|file| Made::new(folder, &file.content, program.owner));
    let files: Vec<Made> = match files.collect() {
        Ok(files) => files,
        Err(error) => {
            let folder = folder.display();
            return (Answer::failed(format!("no file can be made in {folder}: {error}")), None);
        }
    };
    let mut command = command(programs, program, request, &files);
    command.envs(inherited.iter().filter(|(name, _)| may_set(name)).map(|(name, path)| (name, path)));
    let status = match command.spawn() {
        Ok(child) => wait(child, until, ended),
        Err(error) => Err(error),
    };
    let name = program.path.display();
    let outcome = match status {
        Ok(Some(status)) => match status.code() {
            Some(code) => Outcome::Ended(code),
            None => {
                Outcome::Failed(format!("{name}: ended by signal {}", status.signal().unwrap_or_default()))
            }
        },
        Ok(None) => Outcome::Failed(format!("{name}: killed: it took too long, or the daemon has ended")),
        Err(error) => Outcome::Failed(format!("{name}: {error}")),
    };
    // What the program was given may be a password: it is removed now, and not sent back.
    let written = files.into_iter().zip(&request.files);
    let files: Vec<Option<Made>> =
        written.map(|(made, file)| file.content.is_empty().then_some(made)).collect();
    let contents = read(&files);
    let file = match (request.deferral, &outcome) {
        (Deferral::ByStatus(file), Outcome::Ended(DEFERRED)) => Some(usize::from(file)),
        (Deferral::ByFile(file), Outcome::Ended(0)) => {
            let file = usize::from(file);
            contents.get(file).filter(|content| content.first() == Some(&b'2')).map(|_| file)
        }
        _ => None,
    };
    match file {
        Some(file) if files.get(file).is_some_and(Option::is_some) => {
            let answer = Answer { outcome: Outcome::Deferred, files: contents };
            let asked = request
                .pending
                .and_then(|(file, longest)| Some(Instant::now() + answer.seconds(file.into())?.min(longest)));
            let until = asked.map_or(until, |asked| asked.max(until));
            let variables = variables(&files, request);
            (answer, Some(Awaited { files, variables, file, until }))
        }
        _ => (Answer { outcome, files: contents }, None),
    }
}

/// The contents of files; nothing for those that were removed.
fn read(files: &[Option<Made>]) -> Vec<Vec<u8>> {
    files.iter().map(|file| file.as_ref().map(Made::read).unwrap_or_default()).collect()
}

fn variables(files: &[Option<Made>], request: &Request) -> Variables {
    let files = files.iter().zip(&request.files);
    files.filter_map(|(made, file)| Some((file.variable.clone(), made.as_ref()?.path().to_owned()))).collect()
}

fn command(programs: &Programs, program: &Program, request: &Request, files: &[Made]) -> Command {
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).args(&request.arguments);
    command.env_clear().env("PATH", PATH);
    command.envs(programs.environment.iter().map(|(name, value)| (name, value)));
    command.envs(request.environment.iter().filter(|(name, _)| may_set(name)));
    command.env("script_type", request.hook.script_type());
    for (made, file) in files.iter().zip(&request.files) {
        if file.is_argument {
            command.arg(made.path());
        }
        if may_set(&file.variable) {
            command.env(&file.variable, made.path());
        }
    }
    if let Some((user, group)) = program.owner {
        command.gid(group).uid(user);
    }
    // What it prints belongs into the log, and the standard output is not that.
    let output = io::stderr().as_fd().try_clone_to_owned().map_or_else(|_| Stdio::null(), Stdio::from);
    command.stdin(Stdio::null()).stdout(output).process_group(0);
    // The user that it becomes may have no right to enter the folder, which it inherits then.
    if std::env::current_dir().ok().as_ref() != Some(&programs.folder) {
        command.current_dir(&programs.folder);
    }
    command
}

/// Whether a request may set a variable: a daemon that was taken over must not set those that the loader or a shell reads.
fn may_set(name: &str) -> bool {
    let is_ours = name.starts_with(|letter: char| letter.is_ascii_lowercase());
    is_ours || ["IV_", "UV_", "X509_"].iter().any(|prefix| name.starts_with(prefix))
}

/// The exit status; none if the program was killed.
fn wait(mut child: Child, until: Instant, ended: BorrowedFd<'_>) -> io::Result<Option<ExitStatus>> {
    let pid = Pid::from_child(&child);
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = until.saturating_duration_since(Instant::now());
        let mut polled =
            [PollFd::new(&handle, PollFlags::IN), PollFd::from_borrowed_fd(ended, PollFlags::IN)];
        let ready = poll(&mut polled, Some(&timespec(left)));
        let is_ended = ready.is_ok() && !polled[1].revents().is_empty();
        if left.is_zero() || is_ended {
            // The child has not been waited for, so that its process group is its own.
            let _ = kill_process_group(pid, Signal::KILL);
            child.wait()?;
            return Ok(None);
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() }
}

impl Awaited {
    /// The files for another program that may answer.
    pub(super) fn variables(&self) -> Variables {
        self.variables.clone()
    }

    /// The answer, once it is there or is too late.
    pub(super) fn answer(&self, now: Instant) -> Option<Answer> {
        let content = self.files[self.file].as_ref().map(Made::read).unwrap_or_default();
        let outcome = match content.first() {
            Some(b'1') => Outcome::Ended(0),
            Some(b'0') => Outcome::Ended(1),
            _ if now >= self.until => Outcome::Failed("the deferred answer did not come in time".to_owned()),
            _ => return None,
        };
        Some(Answer { outcome, files: read(&self.files) })
    }
}
