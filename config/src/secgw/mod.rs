//! The files and the command line of DPDK's `ipsec-secgw`, as version 22.11 defines them.
//!
//! ```text
//! file ── lines ──> Line ── tokens ──> policy, association, route, flow ──> Settings ──> start ──> lint ──> Findings
//! command line ── getopt ──> eal, application ──> CommandLine ──────────────────────────────┘
//! ```
//! The same lines are accepted and refused as there, with the same messages. Reading ends at the first error. What ipsec-secgw
//! accepts and then ignores, or reads otherwise than it is written, is accepted too, with a finding. Only lines at which
//! ipsec-secgw crashes are refused with a sentence of ours.

pub mod algorithm;
mod application;
mod association;
mod cores;
mod eal;
mod finding;
mod flow;
mod getopt;
mod lines;
mod lint;
mod number;
mod policy;
mod route;
pub mod settings;
mod start;
mod tokens;

pub use application::{Application, QueueAssignment};
pub use eal::{Device, Driver, Eal};
pub use finding::{Finding, Severity};
pub use settings::Settings;
pub use start::CommandLine;

use finding::Finding as Error;
use lines::{Line, Lines};
use tokens::{Tokens, shown};

/// What of the command line decides how lines are read. Nothing stands for an unknown command line.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Whether `-l` is given, or implied.
    pub library: Option<bool>,
    /// The ports and queues of `--config`.
    pub queues: Option<Vec<(u16, u16)>>,
    /// Whether only what ipsec-secgw accepts is accepted.
    pub strict: bool,
}

/// A file that was read.
#[derive(Debug, Default)]
pub struct Loaded {
    /// What it says.
    pub settings: Settings,
    /// What ipsec-secgw ignores silently, or reads otherwise than it is written. The last one may be the error that ended reading.
    pub findings: Vec<Finding>,
}

impl Loaded {
    /// Whether a finding is an error.
    pub fn is_refused(&self) -> bool {
        is_refused(&self.findings)
    }
}

/// Whether one of the findings is an error.
pub fn is_refused(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// Reads a file up to its end, or to its first error.
pub fn read(text: &[u8], context: &Context) -> Loaded {
    let mut loaded = Loaded::default();
    let mut lines = Lines::new(text);
    let error = loop {
        match lines.next() {
            Ok(Some(line)) => {
                if let Err(error) = loaded.line(&line, context) {
                    break Some(error);
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    loaded.findings.append(&mut lines.findings);
    loaded.findings.sort_by_key(|finding| finding.line);
    loaded.findings.extend(error);
    loaded
}

/// All that is wrong with a file that was read: errors at start, then traps. Of a file that ended at an error, only that.
pub fn lint(loaded: &Loaded, command_line: Option<&CommandLine>, strict: bool) -> Vec<Finding> {
    let mut findings = loaded.findings.clone();
    if !loaded.is_refused() {
        findings.extend(start::check(&loaded.settings, command_line, strict));
        findings.extend(lint::lint(&loaded.settings, command_line));
    }
    findings.sort_by_key(|finding| finding.line);
    findings
}

/// The errors at which ipsec-secgw ends after it has read its file.
pub fn check(loaded: &Loaded, command_line: &CommandLine, strict: bool) -> Vec<Finding> {
    if loaded.is_refused() {
        return loaded
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .cloned()
            .collect();
    }
    start::check(&loaded.settings, Some(command_line), strict)
}

impl Loaded {
    fn line(&mut self, line: &Line, context: &Context) -> Result<(), Error> {
        let text = line.text.trim_start_matches([' ', '\t']);
        if text.is_empty() {
            return Ok(());
        }
        let (keyword, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        if rest.trim_matches([' ', '\t']).is_empty() {
            return Err(unknown(line));
        }
        if keyword == "neigh" {
            return self.neighbour(line, rest);
        }
        let mut words = tokens::split(rest);
        let excess = words.len().saturating_sub(tokens::MOST);
        words.truncate(tokens::MOST);
        let mut tokens = Tokens::new(line.number, &words);
        if excess > 0 {
            let fix = format!("a line has at most {} words behind its keyword", tokens::MOST);
            match keyword {
                // Reading an SA clears the error.
                "sa" => {
                    let ignored = format!("the last {excess} words are ignored");
                    tokens.warn("excess-words", ignored, fix);
                }
                "sp" | "rt" | "flow" => return Err(tokens.refuse("too many arguments", fix)),
                _ => {}
            }
        }
        let outcome = self.words(keyword, &mut tokens, context);
        self.findings.append(&mut tokens.findings);
        outcome.and_then(|is_known| if is_known { Ok(()) } else { Err(unknown(line)) })
    }

    /// Reads the words behind a keyword; whether it is one.
    fn words(&mut self, keyword: &str, tokens: &mut Tokens<'_>, context: &Context) -> Result<bool, Error> {
        let settings = &mut self.settings;
        match keyword {
            "sp" => settings.policies.push(policy::read(tokens, &mut settings.ike_peers)?),
            "sa" => settings.sas.extend(association::read(tokens, context)?),
            "rt" => {
                let routes = &settings.routes;
                let route = route::read(tokens, |family| {
                    routes.iter().filter(|route| route.family == family).count()
                })?;
                settings.routes.push(route);
            }
            "flow" if settings.flows.len() >= flow::MOST => {
                let fix = format!("ipsec-secgw takes {} flow rules", flow::MOST);
                tokens.warn("flow-dropped", "Too many flow rules: this one is ignored", fix);
            }
            "flow" => settings.flows.extend(flow::read(tokens)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn neighbour(&mut self, line: &Line, rest: &str) -> Result<(), Error> {
        match route::neighbour(line.number, rest) {
            Ok((port, Some(neighbour))) => {
                self.settings.neighbours.insert(port, neighbour);
            }
            Ok((port, None)) => {
                let text = format!(
                    "the Ethernet address of port {port} is none: ipsec-secgw sends to an undefined one, Postern ignores the line"
                );
                let fix = "write six numbers in hexadecimal with colons between";
                self.findings.push(Finding::warning(line.number, "ethernet-address", text, fix));
            }
            Err(Some(error)) => return Err(error),
            Err(None) => return Err(unknown(line)),
        }
        Ok(())
    }
}

/// The error of a line whose keyword is not known or stands alone; keys in it are not shown.
fn unknown(line: &Line) -> Error {
    let mut is_key = false;
    let mut words: Vec<&str> = Vec::new();
    for word in line.text.split(' ') {
        words.push(if is_key { "***" } else { shown(word) });
        is_key = word.ends_with("_key");
    }
    let fix = "a line begins with sp, sa, rt, neigh port or flow, and has words behind it";
    Error::error(line.number, "line", format!("parsing \"{}\" failed", words.join(" ")), fix)
}
