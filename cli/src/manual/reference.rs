//! The command reference: a section for each command that can be typed, with its arguments.

use crate::Cli;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

const HEAD: &str = "# Commands\n\n\
    Generated from the command definitions by `postern generate manual`; a test checks that it is current.\n\
    Every command also takes `--help`.\n";

/// The reference in Markdown.
pub(super) fn text() -> String {
    let mut command = Cli::command();
    command.build();
    let mut text = HEAD.to_owned();
    describe(&mut command, &mut text);
    text
}

/// Writes a section for the command, if it is complete, and for those below it.
fn describe(command: &mut Command, text: &mut String) {
    if command.is_hide_set() || command.get_name() == "help" {
        return;
    }
    if !command.is_subcommand_required_set() {
        section(command, text);
    }
    for below in command.get_subcommands_mut() {
        describe(below, text);
    }
}

fn section(command: &mut Command, text: &mut String) {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let _ = write!(text, "\n## {name}\n\n");
    let about = command.get_long_about().or(command.get_about());
    text.extend(about.map(|about| format!("{about}\n\n")));
    let _ = write!(text, "```\n{usage}\n```\n");
    let mut arguments = command.get_arguments().filter(|it| !it.is_hide_set() && is_own(it)).peekable();
    if arguments.peek().is_some() {
        text.push('\n');
    }
    for argument in arguments {
        let help = argument.get_help().map(|help| format!(": {help}")).unwrap_or_default();
        let _ = writeln!(text, "- `{argument}`{help}{}", choices(argument));
    }
    text.extend(command.get_after_help().map(|help| format!("\n{help}\n")));
}

/// Whether an argument is specific to the command.
fn is_own(argument: &Arg) -> bool {
    !matches!(argument.get_id().as_str(), "help" | "version")
}

/// The words that an argument may be, where there is a list, and its default.
fn choices(argument: &Arg) -> String {
    if !argument.get_action().takes_values() {
        return String::new();
    }
    let quoted =
        |words: Vec<String>| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let values = argument.get_possible_values();
    let names = values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name().to_owned());
    let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
    let parts = [("one of ", names.collect::<Vec<_>>()), ("default ", defaults.collect())];
    let parts = parts.into_iter().filter(|(_, words)| !words.is_empty());
    let parts: Vec<String> = parts.map(|(label, words)| label.to_owned() + &quoted(words)).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join("; ")) }
}
