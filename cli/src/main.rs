//! `postern`: one program with many commands.
#![forbid(unsafe_code)]

mod advise;
mod agentx;
mod alerter;
mod answer;
mod archiver;
mod backup;
#[cfg(feature = "bench")]
mod bench;
#[cfg(feature = "bench")]
mod bench_crypto;
#[cfg(feature = "bench")]
mod bench_document;
#[cfg(feature = "bench")]
mod bench_fairness;
#[cfg(feature = "bench")]
mod bench_look_up;
#[cfg(feature = "bench")]
mod bench_openvpn;
#[cfg(feature = "bench")]
mod bench_rfc2544;
#[cfg(feature = "bench")]
mod bench_secgw;
mod child;
mod client;
mod closed;
mod confine;
mod dhcp;
mod dns;
mod doctor;
mod elsewhere;
mod engines;
mod enroll;
mod explain;
mod explain_wireguard;
mod export;
mod generate;
mod health;
mod host;
#[cfg(feature = "https")]
mod https;
mod import;
mod join;
mod log;
#[cfg(feature = "openvpn")]
mod login;
mod machine;
mod manual;
mod monitor;
mod only_one;
#[cfg(feature = "openvpn")]
mod openvpn;
mod operational;
mod output;
mod passphrase;
#[cfg(feature = "openvpn")]
mod pid_file;
mod pki;
mod place;
mod privilege;
mod processes;
mod reload;
mod request;
mod reset;
mod restore;
mod run;
#[cfg(feature = "openvpn")]
mod scripts;
#[cfg(feature = "secgw")]
mod secgw;
mod service_user;
mod shell;
mod show;
mod show_bottleneck;
mod show_configuration;
mod show_crypto;
mod show_dhcp;
mod show_failover;
mod show_firewall;
mod show_https;
mod show_log;
mod show_machine;
mod show_metrics;
mod show_nat;
mod show_openvpn;
mod show_path;
mod show_qat;
mod show_secgw;
mod show_snmp;
mod show_threads;
mod show_vpn;
mod status;
mod suite;
mod system;
mod tabulate;
mod terminal;
mod top;
mod transfer;
mod version;
mod vpn;
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
    #[command(flatten)]
    Process(processes::Process),
    /// Block protected prefixes until the daemon starts
    Close(closed::Close),
    /// Release the protected prefixes that a stopped daemon left blocked
    Open(closed::Open),
    /// Change the configuration of the running daemon: at a terminal, or by commands from a file or a script
    Configure(shell::Configure),
    /// Type commands as at a router
    Shell(shell::Shell),
    #[command(flatten)]
    Operational(operational::Command),
    /// Print the possible next words of an operational command, for shell completion
    #[command(hide = true)]
    Complete(operational::complete::Arguments),
    /// Write the configuration with all that it names, keys included, into one encrypted file
    Backup(backup::Arguments),
    /// Write the files of a backup to where they were
    Restore(restore::Arguments),
    /// Let branches join this gateway with a token, and manage them
    Enroll(enroll::Arguments),
    /// Join head office as a branch, with a token of postern enroll create
    Join(join::Arguments),
    /// Ask head office for postern join, which gives the order by standard input
    #[command(hide = true)]
    JoinExchange(join::Asked),
    /// Run benchmarks
    #[cfg(feature = "bench")]
    Bench(bench::Arguments),
    /// Say what is wrong with the running gateway, and find unused acceleration
    Doctor(doctor::Arguments),
    /// Measure a tunnel between two sites that are built on this machine (needs root)
    #[cfg(feature = "bench")]
    Demo {
        #[command(subcommand)]
        of: Option<DemoOf>,
        /// Seconds for each transfer
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
    },
    /// Generate keys, man pages, shell completions and references
    #[command(subcommand)]
    Generate(generate::What),
    /// Convert a configuration of VyOS, EdgeOS, wg-quick, strongSwan, libreswan or OpenWrt, with a report of each option
    Import(import::Arguments),
    /// Write a configuration in the words of another program
    #[command(subcommand)]
    Export(export::To),
}

/// What is demonstrated instead of a tunnel of WireGuard.
#[cfg(feature = "bench")]
#[derive(Subcommand)]
enum DemoOf {
    /// Put two encryptors between two hosts, and show the frames on the wire between them and the counters
    Secgw,
}

/// The error that ends a command: a message for a person.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The result of a command.
type Outcome = Result<(), Failure>;

fn main() -> ExitCode {
    if let Some(code) = dhcp::callback(std::env::args_os()) {
        return code;
    }
    let line = command_line(std::env::args_os());
    let verb = match processes::find(&line).unwrap_or_else(|| Cli::try_parse_from(&line).map(|cli| cli.verb))
    {
        Ok(verb) => verb,
        Err(error) => return refuse(&error, &line),
    };
    let outcome = match verb {
        Verb::Process(process) => return process.run(),
        Verb::Import(arguments) => return ended(import::run(arguments)),
        Verb::Export(to) => return ended(export::run(&to)),
        Verb::Backup(arguments) => return ended(backup::run(&arguments)),
        Verb::Restore(arguments) => return ended(restore::run(&arguments)),
        Verb::Shell(arguments) => return ended(shell::shell(&arguments)),
        Verb::Configure(arguments) => return ended(shell::configure(&arguments)),
        Verb::Close(arguments) => closed::close(&arguments),
        Verb::Open(arguments) => closed::open(&arguments),
        Verb::Operational(command) => return ended(command.run()),
        Verb::Complete(arguments) => {
            operational::complete::run(&arguments);
            Ok(())
        }
        Verb::Enroll(arguments) => enroll::run(arguments),
        Verb::Join(arguments) => join::run(arguments),
        Verb::JoinExchange(arguments) => join::serve(&arguments),
        #[cfg(feature = "bench")]
        Verb::Bench(arguments) => bench::run(arguments),
        Verb::Doctor(arguments) => return ended(doctor::run(arguments)),
        #[cfg(feature = "bench")]
        Verb::Demo { of, seconds } => {
            bench::note_build();
            bench::clean_up_when_told_to_end().map_err(Into::into).and_then(|()| match of {
                Some(DemoOf::Secgw) => ::bench::demo_secgw::run(),
                None => ::bench::demo::run(seconds),
            })
        }
        Verb::Generate(what) => generate::run(what),
    };
    code(outcome)
}

/// The exit code of a command that has only two.
fn code(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::failure(&error);
            ExitCode::FAILURE
        }
    }
}

/// The result of a command that has an exit code of its own. An error has another one than what such commands find.
fn ended(outcome: Result<ExitCode, Failure>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        log::failure(&error);
        ExitCode::from(2)
    })
}

/// Reports a command line that clap refuses; for a command of VyOS, with the command that replaces it here.
fn refuse(error: &clap::Error, line: &[OsString]) -> ExitCode {
    use clap::error::ErrorKind::{InvalidSubcommand, InvalidValue, UnknownArgument};
    if error.kind() == clap::error::ErrorKind::DisplayVersion {
        print!("{}", version::text());
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = line.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if matches!(error.kind(), InvalidSubcommand | InvalidValue | UnknownArgument)
        && let Some(instead) = elsewhere::instead(&words)
    {
        eprintln!("postern: {instead}");
        return ExitCode::from(2);
    }
    error.exit()
}

/// The command line. wg-quick calls this program by the name of a WireGuard daemon, which stands for the verb, and scripts by that of
/// OpenVPN, or by the names of commands.
fn command_line(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let name = arguments.first().and_then(|name| Path::new(name).file_name()).unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    if name.ends_with("wireguard") {
        arguments.insert(1, "wireguard".into());
    } else if name == "openvpn" {
        arguments.insert(1, "openvpn".into());
    } else if let Some(line) = shell::command_line(&name, arguments.get(1..).unwrap_or_default()) {
        arguments.truncate(1);
        arguments.extend(line);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use processes::Process;

    #[test]
    fn the_name_of_a_daemon_stands_for_the_verb() {
        let read = |words: &str| {
            let cli = Cli::try_parse_from(command_line(words.split(' ').map(OsString::from)));
            cli.is_ok_and(|cli| matches!(cli.verb, Verb::Process(Process::Wireguard(_))))
        };
        assert!(read("postern wireguard wg0") && read("/usr/bin/postern-wireguard wg0"));
        assert!(read("postern wireguard wireguard") && read("postern-wireguard wireguard"));
        assert!(!read("postern wg0") && !read("postern-wireguard wireguard wg0"));
    }

    #[cfg(feature = "openvpn")]
    #[test]
    fn the_name_of_openvpn_stands_for_its_verb() {
        let is_openvpn = |words: &str| {
            let cli = Cli::try_parse_from(command_line(words.split(' ').map(OsString::from)));
            cli.is_ok_and(|cli| matches!(cli.verb, Verb::Process(Process::Openvpn(_))))
        };
        assert!(is_openvpn("/usr/sbin/openvpn client.conf") && is_openvpn("openvpn --version"));
        assert!(is_openvpn("postern openvpn --dev tun --help") && !is_openvpn("postern client.conf"));
    }
}
