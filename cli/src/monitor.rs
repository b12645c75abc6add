//! `postern monitor`: what goes on until it is interrupted. On a terminal it is updated in place.

pub(crate) mod bandwidth;
pub(crate) mod command;
pub(crate) mod log;
pub(crate) mod rates;
pub(crate) mod traffic;
pub(crate) mod vpn;

use crate::answer::Form;
use crate::{Failure, Outcome};
use serde_json::json;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Lines on their way out, each at once.
pub(crate) struct Lines<'a> {
    out: &'a mut dyn Write,
    form: Form,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(out: &'a mut dyn Write, form: Form) -> Self {
        Self { out, form }
    }

    pub(crate) fn put(&mut self, line: &str) -> Outcome {
        if self.form.json {
            writeln!(self.out, "{}", json!({ "line": line }))?;
        } else {
            writeln!(self.out, "{line}")?;
        }
        Ok(self.out.flush()?)
    }

    /// The last `count` of these.
    pub(crate) fn last(&mut self, lines: &[String], count: usize) -> Outcome {
        lines[lines.len().saturating_sub(count)..].iter().try_for_each(|line| self.put(line))
    }
}

/// Passes on what a program prints until it ends, or nothing reads any more.
pub(crate) fn follow_program(
    mut command: Command,
    lines: &mut Lines<'_>,
    not_started: impl Fn(io::Error) -> Failure,
) -> Outcome {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(not_started)?;
    let from = child.stdout.take().map(BufReader::new);
    let outcome = from.into_iter().flat_map(BufRead::lines).try_for_each(|line| lines.put(&line?));
    let _ = child.kill();
    child.wait()?;
    outcome
}

/// A word of a path or a query (RFC 3986 section 2.1).
fn encoded(word: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    word.bytes().map(encode).collect()
}

/// Writes a text in the place of the one before.
pub(crate) fn overwrite(out: &mut dyn Write, text: &str) -> Outcome {
    // To the upper left corner, each line to its end, and what is left below (ECMA-48: CUP, EL, ED).
    let lines: String = text.lines().map(|line| format!("{line}\x1b[K\n")).collect();
    write!(out, "\x1b[H{lines}\x1b[J")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_follow_are_json_values_of_their_own() {
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out, Form { json: true, terminal: false });
        lines.last(&["a".to_owned(), "b".to_owned()], 1).expect("memory");
        lines.put("c").expect("memory");
        assert_eq!(String::from_utf8(out).expect("UTF-8"), "{\"line\":\"b\"}\n{\"line\":\"c\"}\n");
    }

    #[test]
    fn a_program_is_followed_to_its_end() {
        let mut out = Vec::new();
        let mut command = Command::new("printf");
        command.arg("a\\nb\\n");
        let mut lines = Lines::new(&mut out, Form::default());
        follow_program(command, &mut lines, Into::into).expect("it ends");
        assert_eq!(out, b"a\nb\n");
    }

    #[test]
    fn a_shorter_text_leaves_nothing_of_a_longer_one() {
        let mut out = Vec::new();
        overwrite(&mut out, "a\nb\n").expect("memory");
        assert_eq!(out, b"\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
