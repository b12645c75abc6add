//! Lines that no command and no program carries out: what is wrong with them, and what to type instead.

use super::{outside, verbs};
use crate::{Failure, elsewhere, operational};
use config::schema::nearest;

/// Commands of a session that are useful without one, or are programs of every Linux.
const ANYWHERE: &[&str] = &["configure", "confirm", "exit", "run", "save", "show", "top"];

/// Why bash must not carry out a line that was meant for a session or for a router: `set` would change the arguments of bash.
pub(super) fn misplaced(line: &str, is_in_session: bool) -> Result<(), Failure> {
    image(line)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some((&first, behind)) = words.split_first() else { return Ok(()) };
    let is_for_bash = first == "set" && behind.first().is_some_and(|word| word.starts_with(['-', '+']));
    if is_for_bash || ANYWHERE.contains(&first) || !verbs::VERBS.iter().any(|verb| verb.name == first) {
        return Ok(());
    }
    let fix = if is_in_session { "type it without run" } else { "type configure first" };
    Err(format!("Invalid command: [{first}]\n  fix: {fix}").into())
}

/// Why images of the system are not added and deleted here.
pub(super) fn image(line: &str) -> Result<(), Failure> {
    let words: Vec<&str> = line.split_whitespace().collect();
    elsewhere::image(&words).map_or(Ok(()), |instead| Err(instead.into()))
}

/// Why a line cannot be carried out, if there is no program of its first word either.
pub(super) fn unknown(line: &str) -> Result<(), Failure> {
    let first = line.split_whitespace().next().unwrap_or_default();
    let is_name = first.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    // Assignments, paths and all that begins a construct of bash is for bash.
    if first.is_empty() || !is_name || outside::is_program(first) {
        return Ok(());
    }
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    if let Some(instead) = elsewhere::instead(&words) {
        return Err(instead.into());
    }
    let known: Vec<&str> = [operational::verb_names(), vec!["configure", "exit", "save"]].concat();
    let begun: Vec<&str> = known.iter().copied().filter(|name| name.starts_with(first)).collect();
    if !begun.is_empty() {
        return Err(format!("Ambiguous command: [{first}]\n  fix: write one of {}", begun.join(", ")).into());
    }
    let fix = match nearest(first, &known) {
        Some(near) => format!("did you mean {near}?"),
        None => "press ? for a list of commands".to_owned(),
    };
    Err(format!("Invalid command: [{first}]\n  fix: {fix}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(outcome: Result<(), Failure>) -> String {
        outcome.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn commands_of_a_session_are_not_given_to_bash() {
        for line in ["set interfaces wireguard wg0 mtu 1400", "commit", "delete x", "edit vpn", "load a; ls"]
        {
            assert!(said(misplaced(line, false)).ends_with("fix: type configure first"), "{line}");
        }
        assert!(said(misplaced("set x", true)).ends_with("fix: type it without run"));
        for line in ["set -e; false", "set +x", "top -bn1", "confirm", "ls", ""] {
            assert_eq!(said(misplaced(line, false)), "", "{line}");
        }
    }

    #[test]
    fn images_are_not_installed_and_the_answer_names_what_is() {
        for line in
            ["add system image <URL>", "install image", "delete system image 1.3", "show system image"]
        {
            assert!(said(misplaced(line, false)).contains("apt-get upgrade"), "{line}");
        }
        assert_eq!(said(misplaced("install -m 600 a b", false)), "", "a program");
    }

    #[test]
    fn what_no_program_is_called_is_told_with_its_neighbours() {
        assert!(said(unknown("re vpn")).starts_with("Ambiguous command: [re]\n  fix: write one of reload, "));
        assert!(said(unknown("shwo vpn")).ends_with("did you mean show?"));
        assert!(said(unknown("frobnicate")).starts_with("Invalid command: [frobnicate]"));
        for line in ["ls -l", "for i in 1; do", "x=1", "./a.sh", "{ ls", "cd /", ": a", "[ -e /x ]"] {
            assert_eq!(said(unknown(line)), "", "{line}");
        }
    }
}
