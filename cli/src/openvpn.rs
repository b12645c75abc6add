//! `postern openvpn`: one interface from OpenVPN's own files and command line.
//!
//! ```text
//! files ──> plan ──> daemon? start this program again in the background, and wait until it is ready
//!            └──> log, pid file, sockets ──> other user, few rights ──> serve ──> signals: SIGHUP reads the files again
//! ```

mod asks;
mod background;
mod files;
mod log;
mod process;
mod serve;
mod signals;
mod status_file;
mod tasks;

use crate::Outcome;
use background::Caller;
use clap::Args;
use files::{Directives, Read};
use gateway::openvpn::convert::Plan;

/// Validates instead of serving. OpenVPN has no such option.
const CHECK: &str = "--check";

#[derive(Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
The chapter OpenVPN of the guide lists the directives that are served. Each other one is refused with its line and what to do."
)]
pub(crate) struct Arguments {
    /// Validate the configuration and exit; stands before or behind the directives
    #[arg(long)]
    check: bool,
    /// Set by the parent of a background process
    #[arg(long, hide = true)]
    tell_when_ready: bool,
    /// A file, or OpenVPN's directives with two dashes: --config FILE
    #[arg(value_name = "DIRECTIVE", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    directives: Vec<String>,
}

pub(crate) fn run(arguments: Arguments) -> Outcome {
    run_with(arguments, serve::engines)
}

/// For measurements: what the path costs when nothing is encrypted.
#[cfg(feature = "bench")]
pub(crate) fn run_without_cipher(directives: Vec<String>) -> Outcome {
    let none = || Ok(crate::bench::without_cipher());
    run_with(Arguments { check: false, tell_when_ready: false, directives }, none)
}

fn run_with(arguments: Arguments, engines: serve::Engines) -> Outcome {
    let Arguments { mut check, tell_when_ready, mut directives } = arguments;
    directives.retain(|word| {
        check |= word == CHECK;
        word != CHECK
    });
    if let Some(outcome) = tasks::run(&directives) {
        return outcome;
    }
    let directives = Directives::new(directives);
    if check {
        crate::log::start()?;
        let Plan { name, remarks, process, .. } = directives.read()?.plan;
        process::check(&process)?;
        process::report(&remarks);
        println!("interface {name}: nothing wrong");
        return Ok(());
    }
    if !tell_when_ready && directives.is_daemon()? {
        return background::start();
    }
    let Read { plan, files } = directives.read()?;
    let mut caller = Caller::new(tell_when_ready)?;
    let board = asks::board(plan.management.as_ref());
    caller.keeps(log::start(&plan.log, &board)?);
    let outcome = serve::start(plan, directives, &files, board, &mut caller, engines);
    if let Err(error) = &outcome {
        caller.fail(error);
    }
    outcome
}
