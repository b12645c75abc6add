//! `postern doctor`: says what is wrong with the gateway and its machine, and finds unused acceleration.
//!
//! The daemon says what its rules find. What it may not read, as debugfs and the log of the kernel, is read here, by who may.

use crate::output::NOT_UP;
use crate::{Failure, client, health, host, place};
use bench::doctor::{examine as examine_crypto, gather, read};
use clap::{Args, Subcommand};
use config::settings::Watched;
use gateway::health::model::{Alert, Health, Rule, State};
use gateway::health::{examine, examine_copy, read_watched};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    /// The socket of the only daemon to ask; all daemons without it
    #[arg(long, value_name = "SOCKET")]
    api: Option<PathBuf>,
    /// Examine a copy of the /proc, /sys, /dev, /lib and /etc of another machine in this directory, and ask no daemon
    #[arg(long, value_name = "DIR", conflicts_with = "api")]
    root: Option<PathBuf>,
    /// The configuration to examine (default: DIR/etc/postern/postern.conf, with --root)
    #[arg(long, value_name = "FILE", requires = "root")]
    config: Option<PathBuf>,
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

/// Asks the daemons for what is wrong, or examines the machine; the exit code says whether there are findings.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Some(What::Crypto { root }) = arguments.what else {
        return health(&arguments);
    };
    let inputs = match root {
        Some(root) => read(&root),
        None => gather(&std::env::current_exe()?)?,
    };
    let report = examine_crypto(&inputs);
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    Ok(if report.has_losses() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints the rules that fail, with what to do.
fn health(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let copy = arguments.root.clone().or_else(host::copy);
    let daemons = match &copy {
        Some(root) => {
            if !root.is_dir() {
                return Err(format!("{}: there is no such directory", root.display()).into());
            }
            let configured = arguments.config.as_ref().map(|path| configuration(path));
            vec![examine_copy(root, configured)]
        }
        None => here(arguments.api.as_deref())?,
    };
    let wrong: Vec<Wrong<'_>> = daemons.iter().flat_map(failing).collect();
    if arguments.json {
        let unknown = daemons.iter().flat_map(unknown);
        let all: Vec<Wrong<'_>> = wrong.iter().cloned().chain(unknown).collect();
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        print!("{}", text(&wrong, &daemons));
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_UP) })
}

/// What rules look at in a file.
fn configuration(path: &Path) -> Result<Watched, String> {
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{} is not there", path.display()),
        _ => format!("{}: {error}", path.display()),
    })?;
    read_watched(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// What the daemons say, and what can be read without them.
fn here(api: Option<&Path>) -> Result<Vec<Health>, Failure> {
    let mut daemons = match client::ask::<Health>(api, "/v1/health") {
        Ok(daemons) => daemons,
        // One that was named is asked for.
        Err(error) if api.is_some() => return Err(error),
        Err(error) => vec![health::silent(&error.to_string())],
    };
    let configured = configuration(Path::new(place::CONFIG));
    let read = examine(configured.as_ref().map_err(Clone::clone));
    for daemon in &mut daemons {
        complete(daemon, &read);
    }
    Ok(daemons)
}

/// Puts what was read here in the place of what a daemon does not know.
fn complete(daemon: &mut Health, read: &Health) {
    for rule in &read.rules {
        let known = daemon.rules.iter_mut().find(|it| it.rule == rule.rule);
        match known {
            Some(known) if known.state == State::Unknown && rule.state != State::Unknown => {
                known.clone_from(rule);
            }
            Some(_) => continue,
            None => daemon.rules.push(rule.clone()),
        }
        daemon.alerts.extend(read.alerts.iter().filter(|alert| alert.rule == rule.rule).cloned());
    }
}

/// A rule that fails, with its alerts.
#[derive(Clone, Serialize)]
struct Wrong<'a> {
    #[serde(flatten)]
    rule: &'a Rule,
    alerts: Vec<&'a Alert>,
}

fn failing(health: &Health) -> impl Iterator<Item = Wrong<'_>> {
    let rules = health.rules.iter().filter(|rule| matches!(rule.state, State::Firing | State::Pending));
    rules.map(|rule| {
        let of_rule = |it: &&Alert| it.rule == rule.rule && health::is_open(it);
        Wrong { rule, alerts: health.alerts.iter().filter(of_rule).collect() }
    })
}

/// The rules that cannot be told.
fn unknown(health: &Health) -> impl Iterator<Item = Wrong<'_>> {
    let rules = health.rules.iter().filter(|rule| rule.state == State::Unknown);
    rules.map(|rule| Wrong { rule, alerts: Vec::new() })
}

fn text(wrong: &[Wrong<'_>], daemons: &[Health]) -> String {
    let mut text = String::new();
    for Wrong { rule, alerts } in wrong {
        let _ = writeln!(text, "{:<9} {}: {}", rule.severity, rule.rule, rule.about);
        for alert in alerts {
            text.push_str(&health::trouble(alert));
        }
    }
    let unknown = daemons.iter().flat_map(|health| &health.rules).filter(|it| it.state == State::Unknown);
    for rule in unknown {
        let why = rule.why.as_deref().unwrap_or("it was not looked at");
        let _ = writeln!(text, "unknown   {}: because {why}", rule.rule);
    }
    if wrong.is_empty() {
        text.push_str("No rule of health fails: postern show health lists them.\n");
    }
    text + "Acceleration that is not used: postern doctor crypto\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::health::model::AlertState;

    #[test]
    fn rules_that_fail_are_printed_with_the_fix_and_others_are_not() {
        let rule = |name: &str, state| Rule { rule: name.to_owned(), state, ..Rule::default() };
        let rules =
            [("tunnel-down", State::Firing), ("memory-low", State::Ok), ("files-low", State::Unknown)];
        let alert = Alert {
            rule: "tunnel-down".to_owned(),
            sentence: "The tunnel wg0 berlin is down.".to_owned(),
            remedy: "postern explain".to_owned(),
            state: AlertState::Firing,
            ..Alert::default()
        };
        let resolved = Alert { state: AlertState::Resolved, sentence: "Once.".to_owned(), ..alert.clone() };
        let rules = rules.into_iter().map(|(name, state)| rule(name, state)).collect();
        let ill = Health { rules, alerts: vec![alert, resolved], ..Health::default() };
        let wrong: Vec<Wrong<'_>> = failing(&ill).collect();
        let said = text(&wrong, std::slice::from_ref(&ill));
        assert!(said.starts_with("warning   tunnel-down: "), "{said}");
        assert!(said.contains("wg0 berlin is down.") && said.contains("fix: postern explain"), "{said}");
        assert!(said.contains("unknown   files-low") && !said.contains("memory-low"), "{said}");
        assert!(!said.contains("Once."), "{said}");
        assert!(text(&[], &[]).starts_with("No rule of health fails"));
    }
}
