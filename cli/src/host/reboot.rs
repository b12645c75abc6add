//! `postern reboot`: asks, and tells the machine to restart.

use crate::Failure;
use crate::answer::Answer;
use crate::request::Request;
use std::io::{IsTerminal, Write, stdin, stdout};
use std::path::Path;
use std::process::Command;

/// The option that stands for the answer.
pub(crate) const YES: &str = "yes";

pub(crate) fn now(request: &Request) -> Result<Answer, Failure> {
    if !request.has(YES) && !is_confirmed()? {
        return Ok(Answer::new("not rebooted", |said| format!("{said}\n")).with_status(1));
    }
    let mut command = if Path::new("/run/systemd/system").exists() {
        let mut command = Command::new("systemctl");
        command.arg("reboot");
        command
    } else {
        Command::new("reboot")
    };
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .map_err(|error| format!("{program}: {error}\n  fix: restart this machine where it runs"))?;
    if !status.success() {
        return Err(format!("{program} failed: {status}\n  fix: ask as root").into());
    }
    Ok(Answer::new("rebooting", |said| format!("{said}\n")))
}

/// Asks the operator. A script cannot be asked.
fn is_confirmed() -> Result<bool, Failure> {
    if !stdin().is_terminal() {
        let fix = "postern reboot now --yes";
        return Err(format!("a reboot must be confirmed, and there is no terminal\n  fix: {fix}").into());
    }
    print!("Are you sure you want to reboot this system? [y/N] ");
    stdout().flush()?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
