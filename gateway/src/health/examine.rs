//! The rules about a machine, applied without a daemon: on this machine, where root can read more than the daemon, and on a copy of the
//! files of another one.

use super::machine::{Log, Machine};
use super::model::{Alert, AlertState, Health};
use super::rules::{Rule, Verdict, tuned};
use super::sight::{Host, Seen, Span};
use crate::bottleneck::Processors;
use config::settings::Watched;
use crypto::machine::Files;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a configuration.
const LONGEST: u64 = 16 << 20;

/// Where a copy of a machine may have its configuration: Postern's, and that of VyOS.
const CONFIGURATIONS: [&str; 2] = ["etc/postern/postern.conf", "config/config.boot"];

/// Applies the rules to this machine and a configuration, or the reason why there is none. Counters are those since boot.
pub fn examine(configured: Result<&Watched, String>) -> Health {
    apply(Path::new("/"), &Machine::here(&mut Log::default()), configured)
}

/// Applies them to the machine whose `/proc`, `/sys`, `/dev`, `/lib` and `/etc` are below this root, and to its configuration unless another
/// one is given.
pub fn examine_copy(root: &Path, configured: Option<Result<Watched, String>>) -> Health {
    let configured = configured.unwrap_or_else(|| configuration(root));
    apply(root, &Machine::read(root), configured.as_ref().map_err(Clone::clone))
}

fn configuration(root: &Path) -> Result<Watched, String> {
    let files = Files { root };
    let path = CONFIGURATIONS.into_iter().find(|path| files.has(path));
    let path =
        path.ok_or_else(|| format!("there is no configuration: /{} is not there", CONFIGURATIONS[0]))?;
    read(&files.text_of(path, LONGEST)?).map_err(|error| format!("/{path}: {error}"))
}

/// Reads what rules look at in a configuration. Unknown lines are left out: the configuration of a router has settings that a gateway lacks.
pub fn read(text: &str) -> Result<Watched, String> {
    /// How often wrong lines are removed and the rest is parsed again: the parser reports a limited number at once.
    const ROUNDS: usize = 8;
    let mut text = text.to_owned();
    let mut first = String::new();
    for _ in 0..ROUNDS {
        let errors = match config::parse(&text) {
            Ok(tree) => return Ok(Watched::new(&tree)),
            Err(errors) => errors,
        };
        let wrong: Vec<usize> = errors.iter().map(|error| error.location.line).collect();
        if first.is_empty() {
            first = errors.first().map(|error| error.reason.clone()).unwrap_or_default();
        }
        text = without(&text, &wrong);
    }
    Err(first)
}

/// A text without some lines; with the first one of a block the whole block is left out.
fn without(text: &str, lines: &[usize]) -> String {
    let is_in_braces = config::is_in_braces(text);
    let mut kept = String::new();
    // How many braces are open of a block that is left out.
    let mut depth = 0;
    for (at, line) in text.lines().enumerate() {
        let (opens, closes) = (line.trim_end().ends_with('{'), line.trim() == "}");
        if depth > 0 {
            depth = (depth + usize::from(opens)).saturating_sub(usize::from(closes));
        } else if !lines.contains(&(at + 1)) {
            kept.push_str(line);
        } else if is_in_braces && opens {
            depth = 1;
        }
        kept.push('\n');
    }
    kept
}

fn apply(root: &Path, machine: &Machine, configured: Result<&Watched, String>) -> Health {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let Host { processors, available } = Host::read(Files { root });
    let shares = processors.and_then(|all| all.since(Processors::default()));
    let seen = Seen {
        shares,
        available,
        machine,
        span: Span::Boot,
        configured: configured.clone(),
        facts: None,
        at,
    };
    let mut health = Health { at, ..Health::default() };
    let tunings = configured.map(|it| it.tunings.clone()).unwrap_or_default();
    for tuned in tuned(&tunings).filter(|tuned| tuned.rule.is_of_machine()) {
        let verdict = tuned.verdict(|rule, threshold| rule.check_machine(&seen, threshold));
        health.alerts.extend(alerts(tuned.rule, &verdict, at));
        health.rules.push(tuned.shown(&verdict, matches!(verdict, Verdict::Failing(_))));
    }
    health
}

fn alerts(rule: &Rule, verdict: &Verdict, at: u64) -> Vec<Alert> {
    let Verdict::Failing(troubles) = verdict else { return Vec::new() };
    let one = |trouble: &super::rules::Trouble| Alert {
        rule: rule.name.to_owned(),
        severity: rule.severity,
        subject: trouble.subject.clone(),
        sentence: trouble.sentence.clone(),
        remedy: trouble.remedy.clone(),
        state: AlertState::Firing,
        since: at,
        firing_since: Some(at),
        resolved_at: None,
    };
    troubles.iter().map(one).collect()
}
