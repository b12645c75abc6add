//! What the output of a command goes through: `show configuration | match peer | count`.

use super::private;
use super::session::Form;
use crate::Failure;
use regex_lite::Regex;
use std::fmt;
use std::io::{IsTerminal, Write, stdout};
use std::process::{Command, Stdio};

/// The program that shows a page at a time: that of the user, or the first that is installed.
const PAGER: &str = "if [ -n \"$PAGER\" ]; then eval \"$PAGER\"; elif type -P less > /dev/null; then less -FRX; \
    elif type -P more > /dev/null; then more; else cat; fi";

/// A pipe, as help and completion name it.
pub(crate) const PIPES: &[(&str, &str)] = &[
    ("commands", "As lines of set"),
    ("count", "Count the lines"),
    ("json", "As JSON"),
    ("match", "Only lines that match a regular expression"),
    ("more", "A page at a time"),
    ("no-match", "Only lines that do not match a regular expression"),
    ("no-more", "All at once"),
    ("strip-private", "Without addresses, names of users and hosts, and secrets"),
];

/// What is done to a text, in order.
#[derive(Default)]
pub(crate) struct Pipes {
    pub(crate) form: Form,
    stages: Vec<Stage>,
}

enum Stage {
    Match(Regex),
    NoMatch(Regex),
    Count,
    More,
    NoMore,
    StripPrivate,
    /// A program with its arguments, for bash.
    Program(String),
}

/// A failure of which the user was told already.
#[derive(Debug)]
pub(crate) struct Told;

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it failed")
    }
}

impl std::error::Error for Told {}

impl Pipes {
    /// Reads what stands behind the bars.
    pub(crate) fn read(parts: &[&str]) -> Result<Self, Failure> {
        let mut pipes = Self::default();
        for part in parts {
            let words = config::words(part).map_err(|error| error.to_string())?;
            let words: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
            let stage = match words[..] {
                [] => return Err(format!("nothing follows the bar\n  fix: write one of {}", names()).into()),
                ["commands"] => {
                    pipes.form = Form::Commands;
                    continue;
                }
                ["json"] => {
                    pipes.form = Form::Json;
                    continue;
                }
                ["match", pattern] => Stage::Match(expression(pattern)?),
                ["no-match", pattern] => Stage::NoMatch(expression(pattern)?),
                ["match" | "no-match", ..] => {
                    return Err(
                        format!("one expression follows {}\n  fix: | {} 'a b'", words[0], words[0]).into()
                    );
                }
                ["count"] => Stage::Count,
                ["more"] => Stage::More,
                ["no-more"] => Stage::NoMore,
                ["strip-private"] => Stage::StripPrivate,
                _ => Stage::Program((*part).to_owned()),
            };
            pipes.stages.push(stage);
        }
        Ok(pipes)
    }

    /// Whether all that follows are programs.
    pub(crate) fn is_for_programs(&self) -> bool {
        self.form == Form::Braces && self.stages.iter().all(|stage| matches!(stage, Stage::Program(_)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// Writes a text as the last of the pipes gives it.
    pub(crate) fn write(&self, mut text: String, out: &mut dyn Write) -> Result<(), Failure> {
        let last = self.stages.len().saturating_sub(1);
        for (at, stage) in self.stages.iter().enumerate() {
            text = match stage {
                Stage::Match(expression) => kept(&text, |line| expression.is_match(line)),
                Stage::NoMatch(expression) => kept(&text, |line| !expression.is_match(line)),
                Stage::Count => format!("{}\n", text.lines().count()),
                Stage::StripPrivate => private::stripped(&text),
                Stage::More if at == last && stdout().is_terminal() => {
                    out.flush()?;
                    return through(PAGER, &text, true).map(|_| ());
                }
                Stage::More | Stage::NoMore => text,
                Stage::Program(program) => {
                    out.flush()?;
                    through(program, &text, at == last)?
                }
            };
        }
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }
}

fn names() -> String {
    PIPES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn expression(pattern: &str) -> Result<Regex, Failure> {
    // As grep reads it, and without regard to capitals, as routers do.
    Regex::new(&format!("(?i){pattern}"))
        .map_err(|error| format!("{pattern:?} is not a regular expression: {error}").into())
}

fn kept(text: &str, is_kept: impl Fn(&str) -> bool) -> String {
    text.lines().filter(|line| is_kept(line)).map(|line| format!("{line}\n")).collect()
}

/// The output of a program that reads the text; nothing if it prints it itself.
fn through(program: &str, text: &str, prints: bool) -> Result<String, Failure> {
    let output = if prints { Stdio::inherit() } else { Stdio::piped() };
    let mut child = Command::new("bash")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(output)
        .spawn()
        .map_err(|error| format!("bash: {error}"))?;
    let input = child.stdin.take();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A program need not read all of it.
            let _ = input.map(|mut input| input.write_all(text.as_bytes()));
        });
        child.wait_with_output()
    })?;
    if !output.status.success() {
        return Err(Box::new(Told));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piped(text: &str, parts: &[&str]) -> String {
        let mut out = Vec::new();
        Pipes::read(parts).expect("valid").write(text.to_owned(), &mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn lines_are_chosen_and_counted() {
        let text = "peer Berlin\npeer paris\ntunnel 1\n";
        assert_eq!(piped(text, &["match '^peer'", "no-match PARIS"]), "peer Berlin\n");
        assert_eq!(piped(text, &["match peer", "count"]), "2\n");
        assert_eq!((piped(text, &["more"]).as_str(), piped(text, &["no-more"]).as_str()), (text, text));
        assert_eq!(piped(text, &["grep -E '(tunnel|x)'", "count"]), "1\n", "another program");
        assert_eq!(Pipes::read(&["commands"]).expect("valid").form, Form::Commands);
    }

    #[test]
    fn what_is_wrong_is_told() {
        for parts in [&["match"][..], &["match ("], &["match a b"], &[""]] {
            assert!(Pipes::read(parts).is_err(), "{parts:?}");
        }
    }
}
