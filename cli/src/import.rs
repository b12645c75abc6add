//! `postern import`: configurations of other programs as `set` lines, with a report of each option.

use crate::Failure;
use crate::pki::easy_rsa;
use clap::{Args, Subcommand};
use config::import::{self, Disk, Files, Format, Imported, Outcome, Place, Source, Wanted};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
The lines go to standard output or to --output, with all secrets; the report goes to standard error, without them.

exit codes: 0, the result is a valid configuration (options may be left: see the report);
            1, the result would be refused: the report says why; 2, a file cannot be read")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    format: Option<From>,
    #[command(flatten)]
    options: Options,
}

/// The program that a configuration is from.
#[derive(Subcommand)]
enum From {
    /// VyOS 1.2 to 1.5: config.boot, or the output of `show configuration commands`
    Vyos(Options),
    /// EdgeOS: config.boot, or the output of `show configuration commands`
    Edgeos(Options),
    /// wg-quick: files that are named after their interfaces
    WgQuick(Options),
    /// strongSwan: swanctl.conf
    Swanctl(Options),
    /// strongSwan and libreswan: ipsec.conf, and the ipsec.secrets beside it or given behind it
    IpsecConf(Options),
    /// OpenWrt: files of /etc/config, or the folder, of which packages network, openvpn, ipsec and postern are read
    Uci {
        #[command(flatten)]
        options: Options,
        /// Take only what this OpenWrt serves by Postern: the package postern, and interfaces of protocols that begin with postern_; what
        /// matters for security must not be left
        #[arg(long)]
        only_postern: bool,
    },
    /// easy-rsa: authority, certificates, keys and revocation list, as lines of `set pki`
    EasyRsa(easy_rsa::Arguments),
}

#[derive(Args)]
struct Options {
    /// The files to import
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write the lines to a new file that only its owner can read
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Report in JSON
    #[arg(long)]
    json: bool,
    /// Where the root directory of the other machine is: for files with absolute paths
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// An address of this gateway, which tells whether it is left or right in ipsec.conf
    #[arg(long, value_name = "ADDRESS")]
    local: Vec<IpAddr>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let (format, options) = match arguments.format {
        None => (None, arguments.options),
        Some(From::Vyos(options)) => (Some(Format::Vyos), options),
        Some(From::Edgeos(options)) => (Some(Format::EdgeOs), options),
        Some(From::WgQuick(options)) => (Some(Format::WgQuick), options),
        Some(From::Swanctl(options)) => (Some(Format::Swanctl), options),
        Some(From::IpsecConf(options)) => (Some(Format::IpsecConf), options),
        Some(From::Uci { options, only_postern }) => {
            let wanted = if only_postern { Wanted::Own } else { Wanted::All };
            (Some(Format::Uci(wanted)), packages(options))
        }
        Some(From::EasyRsa(arguments)) => return import_easy_rsa(&arguments),
    };
    let disk = Disk { root: options.root.clone() };
    let sources: Vec<Source> = options.files.iter().map(|file| source(file)).collect::<Result<_, _>>()?;
    let format = match format {
        Some(format) => format,
        None => sources.iter().find_map(import::detect).ok_or(
            "the format of the file is not known\n  fix: name it: postern import vyos, edgeos, wg-quick, swanctl, ipsec-conf or uci FILE",
        )?,
    };
    let imported = import::import(format, &sources, &disk, &options.local)?;
    deliver(imported.text.bytes(), options.output.as_deref())?;
    let report = Report::new(&imported);
    if options.json {
        eprintln!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        eprint!("{}", report.text());
    }
    Ok(if imported.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The packages of UCI that may have tunnels.
const PACKAGES: [&str; 4] = ["network", "openvpn", "ipsec", "postern"];

/// Names the files of packages instead of the folder that they are in.
fn packages(options: Options) -> Options {
    let files = options.files.iter().flat_map(|file| {
        if file.is_dir() {
            PACKAGES.iter().map(|name| file.join(name)).filter(|file| file.exists()).collect()
        } else {
            vec![file.clone()]
        }
    });
    Options { files: files.collect(), ..options }
}

/// The lines of a folder of easy-rsa; what is left is told on standard error.
fn import_easy_rsa(arguments: &easy_rsa::Arguments) -> Result<ExitCode, Failure> {
    let found = easy_rsa::import(arguments)?;
    deliver(found.lines.as_bytes(), arguments.output.as_deref())?;
    for line in &found.left {
        eprintln!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

fn source(file: &Path) -> Result<Source, Failure> {
    // Files that are named here are on this machine, whatever the root of the other one is.
    let here = Disk { root: PathBuf::from("/") };
    let text = here.read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Source { name: file.display().to_string(), text })
}

/// Writes the lines to a file that must not exist, or prints them.
pub(crate) fn deliver(text: &[u8], output: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = output else {
        io::stdout().write_all(text)?;
        return Ok(io::stdout().flush()?);
    };
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("{} exists\n  fix: name another file, or remove it", path.display())
        }
        _ => format!("{}: {error}", path.display()),
    })?;
    file.write_all(text)?;
    Ok(file.sync_all()?)
}

/// The report as it is printed.
#[derive(Serialize)]
struct Report {
    /// Whether the daemon would serve the result.
    valid: bool,
    taken: usize,
    translated: usize,
    left: usize,
    /// The options left out that weaken security: selectors, authentication or algorithms.
    left_security: usize,
    options: Vec<Reported>,
    problems: Vec<Shown>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Reported {
    file: String,
    line: usize,
    column: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_line: Option<usize>,
    option: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lines: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    security: bool,
}

#[derive(Serialize)]
struct Shown {
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Report {
    fn new(imported: &Imported) -> Self {
        let options: Vec<Reported> = imported.entries.iter().map(Reported::new).collect();
        let count = |outcome: &str| options.iter().filter(|it| it.outcome == outcome).count();
        let problems = imported.problems.iter().map(|problem| Shown {
            place: problem.place.as_ref().map(Place::to_string),
            reason: problem.reason.clone(),
            fix: problem.fix.clone(),
        });
        Self {
            valid: imported.problems.is_empty(),
            taken: count(TAKEN),
            translated: count(TRANSLATED),
            left: count(LEFT),
            left_security: options.iter().filter(|it| it.security).count(),
            problems: problems.collect(),
            warnings: imported.warnings.clone(),
            options,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for option in &self.options {
            option.write(&mut text);
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        for Shown { place, reason, fix } in &self.problems {
            let place = place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
            let _ = writeln!(text, "refused: {place}{reason}");
            let _ = fix.as_ref().map(|fix| writeln!(text, "  fix: {fix}"));
        }
        let Self { taken, translated, left, left_security, .. } = self;
        let _ = writeln!(
            text,
            "{taken} taken, {translated} translated, {left} left, {left_security} of which matter for security"
        );
        let verdict = match self.problems.len() {
            0 => "the result is a valid configuration: postern run --check tells what this machine lacks for it".to_owned(),
            1 => "the result would be refused, for the reason above".to_owned(),
            number => format!("the result would be refused, for the {number} reasons above"),
        };
        let _ = writeln!(text, "{verdict}");
        text
    }
}

const TAKEN: &str = "taken";
const TRANSLATED: &str = "translated";
const LEFT: &str = "left";

impl Reported {
    fn new(entry: &import::Entry) -> Self {
        let import::Entry { place, option, lines, outcome } = entry;
        let (outcome, why, fix, security) = match outcome {
            Outcome::Taken => (TAKEN, None, None, false),
            Outcome::Translated(why) => (TRANSLATED, Some(why.clone()), None, false),
            Outcome::Left { why, fix, security } => (LEFT, Some(why.clone()), Some(fix.clone()), *security),
        };
        Self {
            file: place.file.to_string(),
            line: place.line,
            column: place.column,
            last_line: (place.last_line > place.line).then_some(place.last_line),
            option: option.clone(),
            outcome,
            lines: lines.clone(),
            why,
            fix,
            security,
        }
    }

    fn write(&self, text: &mut String) {
        let Self { file, line, column, option, outcome, .. } = self;
        let until = self.last_line.map(|last| format!(", to line {last}")).unwrap_or_default();
        let matters = if self.security { ", matters for security" } else { "" };
        let why = self.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let _ = writeln!(text, "{file}:{line}:{column}: {option}{until}: {outcome}{matters}{why}");
        let _ = self.fix.as_ref().map(|fix| writeln!(text, "  fix: {fix}"));
        for line in &self.lines {
            let _ = writeln!(text, "  > {line}");
        }
    }
}
