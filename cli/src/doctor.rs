//! `postern doctor`: finds unused acceleration.

use crate::Failure;
use bench::doctor::{examine, gather, read};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Find processor instructions, libraries and accelerators that are not used
    ///
    /// Each finding has its evidence, its cost and its fix. Notes are marked with a dash; they do not slow Postern down.
    ///
    /// Exit status: 0 if no acceleration is unused, 1 if there are findings other than notes, 2 if it could not be examined.
    Crypto {
        /// Examine a copy of the /proc and /sys of another machine in this directory, without measurements
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
    },
}

/// Examines the machine; the exit code says whether there are findings.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let What::Crypto { root } = arguments.what;
    let inputs = match root {
        Some(root) => read(&root),
        None => gather(&std::env::current_exe()?)?,
    };
    let report = examine(&inputs);
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    Ok(if report.has_losses() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
