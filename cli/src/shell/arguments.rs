//! `postern configure`: its options, and where its commands come from.

use super::api::Socket;
use super::batch::{self, Source};
use super::console::Console;
use super::session::Session;
use super::{attached, interactive, signals, user};
use crate::{Failure, client};
use clap::Args;
use std::io::{IsTerminal, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Commands from options or a file instead of the terminal.
#[derive(Args)]
struct Given {
    /// Carry out this command, and then the next one: -c COMMAND -c COMMAND
    #[arg(short = 'c', long = "command", value_name = "COMMAND")]
    command: Vec<String>,
    /// Carry out the commands of a file; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    commands: Option<PathBuf>,
    /// Go on after a command that failed
    #[arg(long)]
    keep_going: bool,
}

#[derive(Args)]
#[command(
    after_help = "Without -c and --commands, commands are read from standard input: at a terminal with editing and \
    completion (press ? or TAB).\n\n\
    Exit status: 0 if all commands were carried out, 1 if one failed, or if changes were not committed, 2 if no daemon answers."
)]
pub(crate) struct Configure {
    #[command(flatten)]
    given: Given,
    /// Continue the session in this file, and leave it there for the next command
    #[arg(long, value_name = "FILE")]
    session: Option<PathBuf>,
    /// Only begin the session of --session
    #[arg(long, requires = "session", hide = true)]
    begin: bool,
    /// Start the process of a script's session, and print the folder of its pipes
    #[arg(long, hide = true)]
    attach: bool,
    /// Be that process
    #[arg(long, value_name = "FOLDER", hide = true)]
    serve: Option<PathBuf>,
    /// Ask the daemon at this socket; by default at the one in POSTERN_API
    #[arg(long, value_name = "SOCKET")]
    api: Option<PathBuf>,
}

#[derive(Args)]
#[command(
    after_help = "Operational commands need no `postern` before them, and may be abbreviated; configure begins a session. All \
    other lines are carried out by bash.\n\n\
    Exit status: 0 if all commands were carried out, 1 if one failed."
)]
pub(crate) struct Shell {
    #[command(flatten)]
    given: Given,
    /// Ask the daemon at this socket; by default at the one in POSTERN_API
    #[arg(long, value_name = "SOCKET")]
    api: Option<PathBuf>,
}

/// The exit status if no daemon answers.
const NO_DAEMON: u8 = 2;

pub(crate) fn configure(arguments: &Configure) -> Result<ExitCode, Failure> {
    if arguments.attach {
        return attached::begin(client::chosen(arguments.api.clone()).as_deref());
    }
    let user = user::name();
    let router = Box::new(Socket::new(client::chosen(arguments.api.clone())));
    let begun = match arguments.session.as_deref().filter(|_| !arguments.begin) {
        Some(file) => Session::restore(router, user.clone(), file),
        None => Session::begin(router, user.clone()),
    };
    let session = match begun {
        Ok(session) => session,
        Err(error) => {
            crate::log::failure(&error);
            return Ok(ExitCode::from(NO_DAEMON));
        }
    };
    if let Some(folder) = &arguments.serve {
        return attached::serve(session, folder);
    }
    if let Some(file) = arguments.session.as_deref().filter(|_| arguments.begin) {
        session.store(file)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut console = Console::configuring(client::chosen(arguments.api.clone()), session, user);
    let is_done = carry_out(&mut console, &arguments.given)?;
    let is_left = end(&console, arguments.session.as_deref())?;
    Ok(ExitCode::from(u8::from(!is_done || is_left)))
}

pub(crate) fn shell(arguments: &Shell) -> Result<ExitCode, Failure> {
    let mut console = Console::operational(client::chosen(arguments.api.clone()), user::name());
    let is_done = carry_out(&mut console, &arguments.given)?;
    let is_left = end(&console, None)?;
    Ok(ExitCode::from(u8::from(!is_done || is_left)))
}

/// Carries out what was asked for, or what is typed; whether none of it failed.
fn carry_out(console: &mut Console, given: &Given) -> Result<bool, Failure> {
    let is_typed = given.command.is_empty()
        && given.commands.is_none()
        && stdin().is_terminal()
        && stdout().is_terminal();
    signals::watch(!is_typed)?;
    let source = match (&given.command[..], given.commands.as_deref()) {
        _ if is_typed => {
            return interactive::run(console).map(|()| true);
        }
        ([], Some(file)) if file != Path::new("-") => Source::file(file)?,
        ([], _) => Source::input(),
        (commands, _) => Source::commands(commands),
    };
    Ok(batch::run(console, source, given.keep_going))
}

/// Keeps the session for the next command, or says what is lost. Whether that is anything.
fn end(console: &Console, file: Option<&Path>) -> Result<bool, Failure> {
    match (console.session(), file) {
        (Some(session), Some(file)) => session.store(file).map(|()| false),
        (None, Some(file)) => {
            std::fs::remove_file(file).map_err(|error| format!("{}: {error}", file.display()))?;
            Ok(false)
        }
        (Some(session), None) if session.is_changed() => {
            eprintln!(
                "postern: changes were not committed, and are dropped\n  fix: end with commit, or exit discard"
            );
            Ok(true)
        }
        _ => Ok(false),
    }
}
