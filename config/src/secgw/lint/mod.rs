//! Traps that a file may contain although ipsec-secgw starts with it.

mod associations;
mod policies;
mod routes;

use super::finding::Finding;
use super::settings::Settings;
use super::start::CommandLine;

/// All traps, by subject; the caller sorts them by line.
pub(super) fn lint(settings: &Settings, command_line: Option<&CommandLine>) -> Vec<Finding> {
    let mut findings = Vec::new();
    policies::lint(settings, &mut findings);
    associations::lint(settings, command_line, &mut findings);
    routes::lint(settings, command_line, &mut findings);
    if let Some(command_line) = command_line {
        findings.extend(command_line.findings.iter().cloned());
    }
    findings
}
