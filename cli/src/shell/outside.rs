//! Programs that the command line starts: this one, for operational commands, and bash for all that it does not know.

use super::pipe::Told;
use crate::client::API;
use crate::{Cli, Failure, operational};
use clap::CommandFactory;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether a word is a command of this program.
pub(super) fn is_ours(word: &str) -> bool {
    operational::is_verb(word) || Cli::command().find_subcommand(word).is_some()
}

/// This program with these words.
fn ours(words: &[String], api: Option<&Path>) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words);
    if let Some(api) = api.filter(|_| words.first().is_some_and(|word| operational::is_verb(word))) {
        command.arg("--api").arg(api);
    }
    Ok(command)
}

/// Runs a command of this program, which prints itself.
pub(super) fn run_ours(words: &[String], api: Option<&Path>) -> Result<(), Failure> {
    let status = ours(words, api)?.status()?;
    if status.success() { Ok(()) } else { Err(Box::new(Told)) }
}

/// What a command of this program prints. One that says that something is down prints that, too.
pub(super) fn output_of_ours(words: &[String], api: Option<&Path>) -> Result<String, Failure> {
    let output = ours(words, api)?.stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.is_empty() && !output.status.success() { Err(Box::new(Told)) } else { Ok(text) }
}

/// Whether bash would not wait for more.
pub(super) fn is_complete(text: &str) -> Result<bool, Failure> {
    let output = bash().args(["-n", "-c", text]).output().map_err(|error| format!("bash: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let is_open =
        ["unexpected end of file", "unexpected EOF", "here-document"].iter().any(|it| said.contains(it));
    // A quotation or a here-document may go on; anything else is an error that bash reports when it runs it.
    Ok(!is_open)
}

/// Whether bash knows a word: as a program, or as one of its own.
pub(super) fn is_program(word: &str) -> bool {
    bash()
        .args(["-c", "type -t -- \"$1\" > /dev/null", "bash", word])
        .status()
        .is_ok_and(|status| status.success())
}

/// Whether a word sets a variable of the program behind it: `LC_ALL=C date`.
pub(super) fn is_assignment(word: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    word.split_once('=').is_some_and(|(name, _)| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_of_name)
    })
}

/// Runs lines of bash, in which the operational commands are programs in a folder.
pub(super) fn run_program(text: &str, programs: &Path, api: Option<&Path>) -> Result<(), Failure> {
    let mut command = bash();
    let path = std::env::var("PATH").unwrap_or_default();
    command.args(["-c", text]).env("PATH", format!("{}:{path}", programs.display()));
    if let Some(api) = api {
        command.env(API, api);
    }
    let status = command.status().map_err(|error| format!("bash: {error}"))?;
    if status.success() { Ok(()) } else { Err(Box::new(Told)) }
}

/// A line in which bash replaces what it would: `save backup-$(date +%F).conf`. None if it has nothing of that kind.
pub(super) fn expand(line: &str) -> Result<Option<String>, Failure> {
    if !line.contains("$(") && !line.contains('`') {
        return Ok(None);
    }
    let (verb, words) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let output = bash()
        .args(["-c", &format!("printf '%s\\n' {words}")])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("bash: {error}"))?;
    if !output.status.success() {
        return Err(Box::new(Told));
    }
    let words = String::from_utf8_lossy(&output.stdout);
    let words: Vec<String> = words.lines().map(config::print::quoted).collect();
    Ok(Some(format!("{verb} {}", words.join(" "))))
}

/// `cd`, which no other process can do.
pub(super) fn change_folder(line: &str) -> Result<(), Failure> {
    let home = || std::env::var("HOME").unwrap_or_else(|_| "/".to_owned());
    let words = config::words(line).map_err(|error| error.to_string())?;
    let folder = match words.get(1).map(|word| word.as_str()) {
        None | Some("~") => home(),
        Some(folder) => {
            folder.strip_prefix("~/").map_or_else(|| folder.to_owned(), |rest| format!("{}/{rest}", home()))
        }
    };
    std::env::set_current_dir(&folder).map_err(|error| format!("{folder}: {error}").into())
}

fn bash() -> Command {
    Command::new("bash")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bash_waits_for_is_not_complete() {
        let complete = |text: &str| is_complete(text).expect("bash is there");
        assert!(
            complete("echo a\n") && complete("cat << EOF\na\nEOF\n") && complete("fi\n"),
            "an error is complete"
        );
        assert!(!complete("cat << 'EOF'\na\n") && !complete("while true; do\n") && !complete("echo 'a\n"));
    }

    #[test]
    fn a_variable_may_stand_before_a_program() {
        assert!(
            is_assignment("LC_ALL=C")
                && is_assignment("_x=")
                && !is_assignment("a-b=c")
                && !is_assignment("=c")
        );
        assert!(is_program("cat") && is_program("for") && !is_program("frobnicate") && !is_program("-v"));
    }

    #[test]
    fn bash_replaces_commands_in_names_of_files() {
        let year = expand("save /tmp/'a b'-$(echo 7).conf").expect("bash is there");
        assert_eq!(year.as_deref(), Some("save '/tmp/a b-7.conf'"));
        assert_eq!(expand("save 'a b'").expect("nothing to do"), None);
    }
}
