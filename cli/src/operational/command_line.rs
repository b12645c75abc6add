//! The command line of the operational commands: the commands of clap, built from the table, and back to an entry.

use super::names::Names;
use super::table::all_entries;
use super::{Argument, Entry, Flag, Options, about_words, find, is_argument};
use crate::client::{self, Asking};
use crate::{Failure, answer};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Error, FromArgMatches, Subcommand, value_parser};
use std::process::ExitCode;

/// An operational command that was typed.
pub(crate) struct Command {
    entry: &'static Entry,
    values: Vec<String>,
    options: Options,
    asking: Asking,
}

impl Command {
    /// Runs it and prints the answer.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Self { entry, values, options, asking } = self;
        let answer = entry.run(values, options, client::chosen(asking.api))?;
        answer::print(&answer, asking.json)?;
        Ok(ExitCode::from(answer.status))
    }

    /// Whether it is the entry with this path, with so many values.
    #[cfg(test)]
    pub(super) fn is(&self, path: &str, values: usize) -> bool {
        self.entry.path == path && self.values.len() == values
    }
}

/// The first words of the table, each once, in its order.
pub(crate) fn verbs() -> Vec<&'static str> {
    following(&[])
}

/// The words that can follow these in a path, each once, in the order of the table.
fn following(path: &[&str]) -> Vec<&'static str> {
    let mut words = Vec::new();
    for entry in all_entries().filter(|entry| begins(entry, path)) {
        words.extend(entry.words().nth(path.len()).filter(|word| !words.contains(word)));
    }
    words
}

/// Whether the path of an entry begins with these words.
fn begins(entry: &Entry, path: &[&str]) -> bool {
    path.iter().copied().eq(entry.words().take(path.len()))
}

/// The entry with exactly this path.
fn entry_at(path: &[&str]) -> Option<&'static Entry> {
    all_entries().find(|entry| entry.words().eq(path.iter().copied()))
}

/// The command for a path that ends with a word, with all commands below it.
fn command(path: &[&'static str]) -> clap::Command {
    let name = path.last().copied().unwrap_or_default();
    let own = entry_at(path);
    let (arguments, words): (Vec<&str>, Vec<&str>) =
        following(path).into_iter().partition(|word| is_argument(word));
    // A word in the place of an argument is a command of its own.
    let replaces = own.is_none() && !arguments.is_empty() && !words.is_empty();
    let mut command = clap::Command::new(name).hide(is_hidden(path)).subcommand_negates_reqs(replaces);
    let mut entries: Vec<&Entry> = own.into_iter().collect();
    let mut below: Vec<Vec<&'static str>> = words.into_iter().map(|word| [path, &[word]].concat()).collect();
    for word in arguments {
        let with_argument = [path, &[word]].concat();
        let found = all_entries().find(|entry| begins(entry, &with_argument));
        let argument = found.and_then(|entry| entry.arguments.iter().find(|it| it.name == word));
        command = command.args(argument.map(|argument| positional(argument, own.is_none())));
        entries.extend(entry_at(&with_argument));
        below
            .extend(following(&with_argument).into_iter().map(|word| [&with_argument[..], &[word]].concat()));
    }
    let about = own.map(|entry| entry.about).or_else(|| about_words(path));
    let more = entries.iter().find_map(|entry| entry.more).or_else(|| more_of_all(path));
    if let Some(about) = about {
        command = command.about(about);
    }
    if let Some(more) = more {
        command = command.after_help(more);
    }
    if path.iter().any(|word| is_argument(word)) {
        command = command.override_usage(usage(path));
    }
    if entries.is_empty() {
        command = command.subcommand_required(true).arg_required_else_help(true);
    }
    let flags = entries.iter().flat_map(|entry| entry.options);
    command = command.args(flags.map(option));
    command.subcommands(below.iter().map(|path| self::command(path)))
}

/// What there is to know about each command that begins with this path.
fn more_of_all(path: &[&str]) -> Option<&'static str> {
    let mut found = all_entries().filter(|entry| begins(entry, path)).map(|entry| entry.more);
    let first = found.next().flatten();
    first.filter(|_| found.all(|more| more == first))
}

/// The usage of a command that has an argument before its last word: clap leaves out one that it takes for optional.
fn usage(path: &[&str]) -> String {
    let word = |word: &&str| if is_argument(word) { format!(" <{word}>") } else { format!(" {word}") };
    let after = following(path).into_iter().filter(|it| is_argument(it));
    let own: String = after.map(|it| word(&it)).collect();
    format!("postern{} [OPTIONS]{own}", path.iter().map(word).collect::<String>())
}

/// Whether all commands that begin with this path are hidden.
fn is_hidden(path: &[&str]) -> bool {
    all_entries().filter(|entry| begins(entry, path)).all(|entry| entry.is_hidden)
}

fn option(flag: &Flag) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name).help(flag.about);
    match flag.value {
        Some(value) => arg.value_name(value),
        None => arg.action(ArgAction::SetTrue),
    }
}

fn positional(argument: &'static Argument, is_required: bool) -> Arg {
    let arg = Arg::new(argument.name).value_name(argument.name).help(argument.about).required(is_required);
    match argument.names {
        Names::Tunnels | Names::Number => arg.value_parser(value_parser!(u32)),
        _ => arg,
    }
}

impl Subcommand for Command {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        command.subcommands(verbs().into_iter().map(|verb| Asking::augment_args(self::command(&[verb]))))
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        verbs().contains(&name)
    }
}

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let (mut typed, mut path, mut at) = (Vec::new(), Vec::new(), matches);
        while let Some((name, below)) = at.subcommand() {
            typed.push(name.to_owned());
            path.push(name);
            for argument in following(&path).into_iter().filter(|word| is_argument(word)) {
                let Some(value) = below.get_raw(argument).and_then(|mut values| values.next()) else {
                    continue;
                };
                typed.push(value.to_string_lossy().into_owned());
                path.push(argument);
            }
            at = below;
        }
        let words: Vec<&str> = typed.iter().map(String::as_str).collect();
        let Some((entry, values)) = find(&words) else {
            return Err(Error::raw(ErrorKind::MissingSubcommand, "a word is missing\n"));
        };
        let mut options = Options::default();
        for flag in entry.options {
            match flag.value {
                Some(_) => {
                    options.values.extend(at.get_one::<String>(flag.name).map(|it| (flag.name, it.clone())));
                }
                None => options.flags.extend(at.get_flag(flag.name).then_some(flag.name)),
            }
        }
        Ok(Self { entry, values, options, asking: Asking::from_arg_matches(at)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
