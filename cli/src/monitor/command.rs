//! `postern monitor command`: an operational command again and again, all of it or what has changed.

use super::overwrite;
use crate::answer::{Answer, Form};
use crate::request::Request;
use crate::{Failure, Outcome};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How often it is run.
const INTERVAL: Duration = Duration::from_secs(2);

/// All that the command prints, each time.
pub(crate) fn whole(request: &Request) -> Result<Answer, Failure> {
    again(request, |_, now| now.to_owned())
}

/// The lines that were not there the time before.
pub(crate) fn changes(request: &Request) -> Result<Answer, Failure> {
    again(request, changed)
}

fn again(request: &Request, show: fn(&str, &str) -> String) -> Result<Answer, Failure> {
    let line = request.value("COMMAND").unwrap_or_default().to_owned();
    if !matches!(line.split_whitespace().next(), Some("show" | "explain")) {
        let fix = "postern monitor command \"show vpn ipsec sa\"";
        return Err(format!("`{line}` is not a command that shows something\n  fix: {fix}").into());
    }
    let api = request.api().map(ToOwned::to_owned);
    Ok(Answer::going(move |out, form| follow(&line, api.as_ref(), show, out, form)))
}

fn follow(
    line: &str,
    api: Option<&PathBuf>,
    show: fn(&str, &str) -> String,
    out: &mut dyn Write,
    form: Form,
) -> Outcome {
    let mut before = String::new();
    if form.terminal && !form.json {
        out.write_all(b"\x1b[2J")?;
    }
    loop {
        let now = run(line, api)?;
        let shown = show(&before, &now);
        match form {
            Form { json: true, .. } => writeln!(out, "{}", json!({ "text": shown }))?,
            Form { terminal: true, .. } => overwrite(out, &format!("{line}  (Ctrl-C ends)\n\n{shown}"))?,
            _ => out.write_all(shown.as_bytes())?,
        }
        out.flush()?;
        before = now;
        std::thread::sleep(INTERVAL);
    }
}

/// What a command prints: this program runs it, as it would if it were typed.
fn run(line: &str, api: Option<&PathBuf>) -> Result<String, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(line.split_whitespace()).stdin(Stdio::null());
    if let Some(socket) = api {
        command.arg("--api").arg(socket);
    }
    let output = command.output()?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// The lines of `now` that `before` does not have.
fn changed(before: &str, now: &str) -> String {
    let known: Vec<&str> = before.lines().collect();
    now.lines().filter(|line| !known.contains(line)).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_changed_are_shown() {
        assert_eq!(changed("a\nb 1\n", "a\nb 2\nc\n"), "b 2\nc\n");
        assert_eq!(changed("", "a\n"), "a\n");
    }

    #[test]
    fn only_what_shows_something_is_repeated() {
        let of = |line: &str| Request::new(None, "", vec![("COMMAND", line.to_owned())]);
        let refused = |line: &str| whole(&of(line)).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused("monitor vpn").contains("is not a command that shows something"));
        assert!(refused("restart vpn").contains("fix: postern monitor command"));
        assert_eq!(refused("show datapath"), "");
    }
}
