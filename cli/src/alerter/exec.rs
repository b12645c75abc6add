//! Programs: run without a shell, with an environment of their own, the alerts as JSON on their input, and a deadline.

use super::delivery::Gone;
use super::{becomes_nobody, form};
use gateway::health::model::AlertState;
use gateway::health::programs::program;
use gateway::health::wire::Notification;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a program may take.
const DEADLINE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(20);
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The user and the group `nobody`.
const NOBODY: u32 = 65_534;

/// Runs a program, if it is one that alerts may run.
pub(super) fn run(
    path: &str,
    folders: &[PathBuf],
    receiver: &str,
    notification: &Notification,
    gone: &Gone,
) -> Result<(), String> {
    let program = program(path, folders).map_err(|error| error.to_string())?;
    let input = input(&form::json(receiver, notification)).map_err(|error| error.to_string())?;
    let mut command = command(&program, receiver, notification, input);
    let child = command.spawn().map_err(|error| format!("{path}: {error}"))?;
    match wait(child, Instant::now() + DEADLINE, gone).map_err(|error| error.to_string())? {
        None => Err(format!("{path}: killed: it took more than {} s", DEADLINE.as_secs())),
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(match status.code() {
            Some(code) => format!("{path}: it ended with status {code}"),
            None => format!("{path}: it was ended by signal {}", status.signal().unwrap_or_default()),
        }),
    }
}

/// A file in memory: a pipe would wait for a program that does not read.
fn input(text: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("alerts", MemfdFlags::CLOEXEC)?);
    file.write_all(text)?;
    file.rewind()?;
    Ok(file)
}

fn command(program: &Path, receiver: &str, notification: &Notification, input: File) -> Command {
    let count = notification.alerts.iter().filter(|it| it.state == AlertState::Firing).count();
    let lines: Vec<String> =
        notification.changes().map(|alert| format!("{}: {}", alert.state, alert.sentence)).collect();
    let remedy = notification.changes().next().map(|alert| alert.remedy.clone()).unwrap_or_default();
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH);
    command
        .env("POSTERN_ALERT", receiver)
        .env("POSTERN_STATUS", form::status(notification))
        .env("POSTERN_RULE", &notification.rule)
        .env("POSTERN_SEVERITY", notification.severity.name())
        .env("POSTERN_COUNT", (count + notification.left_out).to_string())
        .env("POSTERN_TEXT", lines.join("\n").replace('\0', "?"))
        .env("POSTERN_REMEDY", remedy.replace('\0', "?"));
    // What it prints belongs into the log, and the standard output is not that.
    let output = io::stderr().as_fd().try_clone_to_owned().map_or_else(|_| Stdio::null(), Stdio::from);
    command.stdin(input).stdout(output).process_group(0).current_dir("/");
    if becomes_nobody() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// The exit status; none if the program was killed.
fn wait(mut child: Child, until: Instant, gone: &Gone) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until || gone.is() {
            // The child has not been waited for, so that its process group is its own.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            child.wait()?;
            return Ok(None);
        }
        sleep(STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::super::form::tests::notification;
    use super::*;
    use std::io::Read;

    #[test]
    fn a_program_has_its_own_environment_and_the_alerts_as_input() {
        let folder = tempfile::tempdir().expect("a folder");
        let said = folder.path().join("said");
        let mut command =
            command(Path::new("/bin/sh"), "local", &notification(), input(b"{}").expect("memory"));
        command.args(["-c", "cat; echo; env"]).stdout(File::create(&said).expect("ours"));
        if becomes_nobody() {
            command.uid(0).gid(0);
        }
        let gone = Gone::default();
        let status = wait(command.spawn().expect("sh"), Instant::now() + DEADLINE, &gone).expect("it ends");
        assert!(status.is_some_and(|status| status.success()));
        let said = std::fs::read_to_string(said).expect("text");
        for line in [
            "POSTERN_ALERT=local",
            "POSTERN_STATUS=firing",
            "POSTERN_RULE=tunnel-down",
            "POSTERN_SEVERITY=critical",
            "POSTERN_COUNT=4",
            "POSTERN_TEXT=resolved: The tunnel wg0 \"rome\" is down.",
        ] {
            assert!(said.lines().any(|it| it == line), "{line}: {said}");
        }
        assert!(said.starts_with("{}") && !said.contains("CARGO"), "{said}");
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed_with_its_children() {
        let mut command = command(Path::new("/bin/sh"), "a", &notification(), input(b"").expect("memory"));
        command.args(["-c", "sleep 600 & wait"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("sh");
        let mut output = child.stdout.take().expect("piped");
        let status = wait(child, Instant::now() + STEP, &Gone::default()).expect("it ends");
        assert_eq!(status, None);
        // Nobody has the other end any more.
        assert_eq!(output.read(&mut [0]).expect("a pipe"), 0);
    }

    #[test]
    fn programs_of_others_are_not_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("alert.sh");
        std::fs::write(&path, "#!/bin/sh\n").expect("ours");
        let path = path.to_str().expect("text");
        let refused = |folders: &[PathBuf]| {
            run(path, folders, "a", &notification(), &Gone::default()).expect_err("it is not run")
        };
        assert!(refused(&["/config/scripts".into()]).contains("alerts run programs in /config/scripts only"));
        assert!(refused(&[]).contains("alerts run programs in no folder only"));
        // The folder for temporary files is open to all.
        assert!(refused(&[folder.path().to_owned()]).contains("others than root can change"));
        let inside = "/config/scripts/../../bin/sh";
        let error = run(inside, &["/config/scripts".into()], "a", &notification(), &Gone::default());
        assert!(error.is_err_and(|error| error.contains("only, and")));
    }
}
