//! `postern`: one program with many verbs.
#![forbid(unsafe_code)]

mod bench;
mod client;
mod generate;
mod privilege;
mod run;
mod show;
mod table;
mod wireguard;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// A VPN gateway that gets the most out of the hardware it runs on.
#[derive(Parser)]
#[command(version, about, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Serve everything that a configuration file says
    Run(run::Arguments),
    /// Show what is going on
    Show(show::Arguments),
    /// Measure
    Bench(bench::Arguments),
    /// Build two sites on this machine, join them, and show what the tunnel can do (needs root)
    Demo,
    /// Make new keys
    #[command(subcommand)]
    Generate(generate::What),
    /// Serve one WireGuard interface, to be configured with wg and wg-quick
    Wireguard(wireguard::Arguments),
}

/// What ends a verb: a message for a person.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How a verb ends.
type Outcome = Result<(), Failure>;

fn main() -> ExitCode {
    let cli = Cli::parse_from(arguments());
    let outcome = match cli.verb {
        Verb::Run(arguments) => run::run(arguments),
        Verb::Show(arguments) => show::run(arguments),
        Verb::Bench(arguments) => bench::run(arguments),
        Verb::Demo => ::bench::demo::run(),
        Verb::Generate(what) => {
            generate::run(what);
            Ok(())
        }
        Verb::Wireguard(arguments) => wireguard::run(arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("postern: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The command line. Called by the name of a WireGuard daemon, as wg-quick does it, we are one.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let name = arguments.first().and_then(|name| Path::new(name).file_name()).unwrap_or_default();
    if name.to_string_lossy().ends_with("wireguard") {
        arguments.insert(1, "wireguard".into());
    }
    arguments
}
