//! `postern secgw`: the files and the command line of DPDK's ipsec-secgw.
//!
//! ```text
//! words ── command line ──┐
//! file ── settings ───────┴──> check: the errors at start ──> serve; lint: all that is wrong
//! ```

mod ike;
mod reread;
mod serve;
mod surroundings;

use crate::Failure;
use clap::Args;
use config::secgw::{self, CommandLine, Context, Finding, Loaded, Severity};
use reread::Source;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Stands between the words of EAL and those of ipsec-secgw.
const END: &str = "--";

/// Stands for the file in findings about the words.
const WORDS: &str = "command line";

#[derive(Args)]
#[command(
    override_usage = "postern secgw [EAL] -- -p MASK -f FILE --config (PORT,QUEUE,LCORE) [OPTION]... [--ike FILE] [--check] [--api SOCKET]
       postern secgw --lint FILE [--json] [--strict]"
)]
#[command(after_help = "\
Files and words are those of DPDK's example program ipsec-secgw 22.11. What of them is not served yet is refused with
a sentence. Statistics are printed at the end (SIGINT, SIGTERM), and each -t seconds; postern show secgw prints them
at any time. SIGHUP or postern reload secgw reads the file again, without loss.

--dpdk before -- has DPDK open all devices, if this program was built with it: --vdev and -a are then DPDK's.

--check, --lint, --ike, --json, --strict and --api stand anywhere among the words.

exit codes: 0, the file and the words are accepted (--check), or nothing is wrong (--lint; notes do not count);
            1, --lint found traps; 2, ipsec-secgw or Postern would not start")]
pub(crate) struct Arguments {
    /// Check the words and the file as ipsec-secgw does at start, and exit
    #[arg(long)]
    check: bool,
    /// List each trap of a file, with its line and what to do
    #[arg(long, value_name = "FILE")]
    lint: Option<String>,
    /// The configuration with the peers that policies name: sp ipv4 out ike PEER ...
    #[arg(long, value_name = "FILE")]
    ike: Option<String>,
    /// Print findings as JSON
    #[arg(long)]
    json: bool,
    /// Refuse what only Postern takes: default routes, policies with ike, lifetimes of SAs, --address, and udp-encap on SAs without offload
    #[arg(long)]
    strict: bool,
    /// Where postern show secgw asks: /run/postern/secgw.sock, or secgw@NAMESPACE.sock if that is taken
    #[arg(long, value_name = "SOCKET")]
    api: Option<PathBuf>,
    /// The words of EAL, --, and those of ipsec-secgw
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// A file, what is wrong with it, and whether Postern would start.
#[derive(Serialize)]
struct Report {
    file: String,
    accepted: bool,
    findings: Vec<Reported>,
}

#[derive(Serialize)]
struct Reported {
    line: Option<u32>,
    severity: &'static str,
    rule: &'static str,
    text: String,
    fix: String,
}

pub(crate) fn run(mut arguments: Arguments) -> Result<ExitCode, Failure> {
    arguments.take_own_words(std::env::args().any(|word| word == END))?;
    let Arguments { check, lint, ike, json, strict, api, words } = arguments;
    if words.is_empty() && lint.is_none() {
        return Err(
            "there is nothing to do\n  fix: postern secgw --lint FILE, or ipsec-secgw's own words".into()
        );
    }
    let is_check = lint.is_none();
    let command_line = if words.is_empty() { None } else { Some(read_words(&words)) };
    let (file, findings) = match command_line.transpose() {
        Err(error) => (lint.unwrap_or_else(|| WORDS.to_owned()), vec![error]),
        Ok(command_line) => {
            let file =
                lint.clone().or_else(|| command_line.as_ref().map(|line| line.application.file.clone()));
            let file = file.unwrap_or_default();
            let loaded = load(&file, command_line.as_ref(), strict)?;
            let peers = ike::peers(ike.as_deref())?;
            let source = command_line.clone().map(|command_line| Source {
                file: file.clone(),
                command_line,
                strict,
                ike: ike.clone(),
            });
            let mut findings = match &source {
                Some(source) if is_check => {
                    let mut findings = secgw::check(&loaded, &source.command_line, strict);
                    findings.extend(source.check_ike(&loaded.settings, &peers));
                    findings
                }
                _ => secgw::lint(&loaded, command_line.as_ref(), strict),
            };
            if !(is_check && check) {
                findings.extend(surroundings::check(&loaded.settings, command_line.as_ref()));
            }
            if let Some(source) = source.filter(|_| is_check && !check)
                && !secgw::is_refused(&findings)
            {
                return serve::serve(source, loaded.settings, &peers, &findings, api.as_deref());
            }
            if !json && is_check && !secgw::is_refused(&findings) {
                deliver(&accepted(&file, &loaded))?;
            }
            (file, findings)
        }
    };
    let report = Report::new(file, &findings);
    if json {
        deliver(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
    } else if is_check {
        eprint!("{}", text(&report.file, &findings));
    } else {
        deliver(&text(&report.file, &findings))?;
    }
    Ok(ExitCode::from(match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Error) => 2,
        Some(Severity::Warning) => 1,
        // A check lists notes, and accepts.
        Some(Severity::Note) | None => 0,
    }))
}

impl Arguments {
    /// Takes our own words out of those of ipsec-secgw, behind which they may stand. `has_end` is whether the command line has `--`.
    fn take_own_words(&mut self, has_end: bool) -> Result<(), Failure> {
        let mut words = std::mem::take(&mut self.words);
        // Before any other word, clap takes it for its own.
        if has_end && !words.iter().any(|word| word == END) {
            words.insert(0, END.to_owned());
        }
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--check" => self.check = true,
                "--json" => self.json = true,
                "--strict" => self.strict = true,
                "--ike" => self.ike = Some(words.next().ok_or("--ike needs a file\n  fix: --ike FILE")?),
                "--lint" => self.lint = Some(words.next().ok_or("--lint needs a file\n  fix: --lint FILE")?),
                "--api" => {
                    self.api = Some(words.next().ok_or("--api needs a socket\n  fix: --api SOCKET")?.into());
                }
                _ => self.words.push(word),
            }
        }
        Ok(())
    }
}

fn read_words(words: &[String]) -> Result<CommandLine, Finding> {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    CommandLine::read(words, processors)
}

fn load(file: &str, command_line: Option<&CommandLine>, strict: bool) -> Result<Loaded, Failure> {
    let text = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    let context = match command_line {
        Some(command_line) => command_line.context(strict),
        None => Context { strict, ..Context::default() },
    };
    Ok(secgw::read(&text, &context))
}

impl Report {
    fn new(file: String, findings: &[Finding]) -> Self {
        let accepted = !secgw::is_refused(findings);
        let findings = findings.iter().map(|finding| Reported {
            line: finding.line,
            severity: finding.severity.name(),
            rule: finding.rule,
            text: finding.text.clone(),
            fix: finding.fix.clone(),
        });
        Self { file, accepted, findings: findings.collect() }
    }
}

/// One line for a file that would start.
fn accepted(file: &str, loaded: &Loaded) -> String {
    let settings = &loaded.settings;
    format!(
        "{file}: accepted: {} policies, {} SAs, {} routes, {} neighbours, {} flow rules\n",
        settings.policies.len(),
        settings.sas.len(),
        settings.routes.len(),
        settings.neighbours.len(),
        settings.flows.len()
    )
}

/// The findings, and how many there are of each severity.
fn text(file: &str, findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let place = if finding.rule == "command-line" { WORDS } else { file };
        let _ = writeln!(text, "{}", finding.in_file(place));
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    if findings.len() > 1 {
        let (errors, warnings, notes) =
            (count(Severity::Error), count(Severity::Warning), count(Severity::Note));
        let _ = writeln!(text, "{file}: {errors} errors, {warnings} warnings, {notes} notes");
    }
    text
}

fn deliver(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parsed(line: &str) -> Arguments {
        let mut arguments = Command::parse_from(line.split_whitespace()).arguments;
        arguments.take_own_words(line.contains(" -- ")).expect("--lint has a file");
        arguments
    }

    #[test]
    fn our_words_stand_anywhere_and_theirs_are_kept() {
        let read =
            parsed("secgw -l 0-1 -n 4 --vdev net_tap0 -- -p 0x3 -f ep0.cfg --config (0,0,0) --check --json");
        assert!(read.check && read.json && read.lint.is_none());
        assert_eq!(read.words.join(" "), "-l 0-1 -n 4 --vdev net_tap0 -- -p 0x3 -f ep0.cfg --config (0,0,0)");
        let read = parsed("secgw --check --strict --lcores=0 -- -P -f x");
        assert!(read.check && read.strict);
        let read = parsed("secgw --lcores=0 -- -P -f x --api /run/x.sock");
        assert_eq!(
            (read.api, read.words.join(" ")),
            (Some("/run/x.sock".into()), "--lcores=0 -- -P -f x".to_owned())
        );
        assert_eq!(read.words.join(" "), "--lcores=0 -- -P -f x");
        for line in ["secgw -- -P --check -f x", "secgw --check -- -P -f x"] {
            assert_eq!(parsed(line).words.join(" "), "-- -P -f x", "{line}");
        }
        let read = parsed("secgw --lint ep0.cfg --json");
        assert_eq!((read.lint.as_deref(), read.json, read.words.len()), (Some("ep0.cfg"), true, 0));
    }
}
