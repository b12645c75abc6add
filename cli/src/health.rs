//! Health: one table of rules about facts, and alerts that begin and end.
//!
//! ```text
//! facts, twice ──> Sight ──> rules: ok, failing or unknown ──> alerts: pending ──> firing ──> resolved
//!                            rules.rs                          alerts.rs
//! ```

mod alerts;
mod rules;
#[cfg(test)]
mod tests;

use crate::answer::{Answer, Form};
use crate::monitor::Lines;
use crate::output::{NOT_UP, timestamp};
use crate::request::Request;
use crate::{Failure, Outcome};
use alerts::{Alerts, Change};
use gateway::bottleneck::{Processors, Shares};
use gateway::facts::model::Facts;
use rules::{RULES, Rule, Verdict};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often facts are read, and over how long rates are.
const INTERVAL: Duration = Duration::from_secs(1);

/// What rules look at: two readings, and the machine.
#[derive(Debug)]
struct Sight {
    before: Facts,
    now: Facts,
    /// What the processors did between both.
    shares: Option<Shares>,
    /// The part of the memory that is available, or why it is not known.
    available: Result<f64, String>,
}

impl Sight {
    /// Seconds between both readings; none if the daemon was restarted, or told the same snapshot twice.
    fn seconds(&self) -> Option<f64> {
        let milliseconds = self.now.moment.checked_sub(self.before.moment).filter(|&it| it > 0)?;
        (self.before.daemon.started == self.now.daemon.started).then_some(milliseconds as f64 / 1000.0)
    }
}

/// The facts of all daemons, as those of one.
fn read(request: &Request) -> Result<(Facts, Option<Processors>), Failure> {
    let mut all = request.ask::<Facts>()?.into_iter();
    let first = all.next().unwrap_or_default();
    let joined = all.fold(first, |mut joined, more| {
        joined.daemon.refused_parts += more.daemon.refused_parts;
        joined.tunnels.extend(more.tunnels);
        joined.drops.extend(more.drops);
        joined.threads.extend(more.threads);
        joined.offloads.extend(more.offloads);
        joined.engines.extend(more.engines);
        joined
    });
    Ok((joined, Processors::read(Path::new("/proc/stat"))))
}

/// The part of the memory that programs could have, from proc_meminfo(5).
fn available(meminfo: &Path) -> Result<f64, String> {
    let text = std::fs::read_to_string(meminfo).map_err(|error| format!("{}: {error}", meminfo.display()))?;
    let field = |name: &str| -> Option<f64> {
        text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    let part = field("MemAvailable:").zip(field("MemTotal:")).filter(|(_, all)| *all > 0.0);
    part.map(|(free, all)| free / all).ok_or_else(|| format!("{} has no MemAvailable", meminfo.display()))
}

fn sight(
    (before, then): (Facts, Option<Processors>),
    (now, processors): (Facts, Option<Processors>),
) -> Sight {
    let shares = processors.zip(then).and_then(|(now, then)| now.since(then));
    Sight { before, now, shares, available: available(Path::new("/proc/meminfo")) }
}

/// What one rule says.
#[derive(Debug, Serialize)]
struct Checked {
    rule: &'static str,
    severity: rules::Severity,
    about: &'static str,
    #[serde(flatten)]
    verdict: Verdict,
}

/// `postern show health`: every rule, looked at for a second.
pub(crate) fn show(request: &Request) -> Result<Answer, Failure> {
    let before = read(request)?;
    std::thread::sleep(INTERVAL);
    let mut now = read(request)?;
    // Others have asked, too: the snapshot may be the same for a second.
    if now.0.moment == before.0.moment {
        std::thread::sleep(INTERVAL);
        now = read(request)?;
    }
    let sight = sight(before, now);
    let checked: Vec<Checked> = RULES.iter().map(|rule| check(rule, &sight)).collect();
    let is_failing = checked.iter().any(|it| matches!(it.verdict, Verdict::Failing(_)));
    let status = if is_failing { NOT_UP } else { 0 };
    Ok(Answer::new(checked, |checked| text(checked)).with_status(status))
}

fn check(rule: &'static Rule, sight: &Sight) -> Checked {
    Checked { rule: rule.name, severity: rule.severity, about: rule.about, verdict: rule.check(sight) }
}

fn text(checked: &[Checked]) -> String {
    let mut text = String::new();
    for Checked { rule, severity, about, verdict } in checked {
        let _ = match verdict {
            Verdict::Ok => writeln!(text, "ok        {rule}: {about}"),
            Verdict::Unknown(why) => writeln!(text, "unknown   {rule}: because {why}"),
            Verdict::Failing(_) => writeln!(text, "{:<9} {rule}: {about}", severity.name()),
        };
        let Verdict::Failing(troubles) = verdict else { continue };
        for trouble in troubles {
            let _ = writeln!(text, "            {}\n              fix: {}", trouble.sentence, trouble.remedy);
        }
    }
    text
}

/// `postern monitor health`: a line when an alert begins, and one when it ends.
pub(crate) fn follow(request: &Request) -> Result<Answer, Failure> {
    let first = read(request)?;
    let request = request.clone();
    Ok(Answer::going(move |out, form| again(&request, first.clone(), out, form)))
}

fn again(
    request: &Request,
    mut before: (Facts, Option<Processors>),
    out: &mut dyn Write,
    form: Form,
) -> Outcome {
    let (mut alerts, begun) = (Alerts::default(), Instant::now());
    loop {
        std::thread::sleep(INTERVAL);
        let changes = match read(request) {
            Ok(now) => {
                let sight = sight(before, now.clone());
                before = now;
                alerts.look(RULES, &sight, begun.elapsed())
            }
            Err(error) => {
                alerts.silent(error.to_string().lines().next().unwrap_or_default(), begun.elapsed())
            }
        };
        for change in changes {
            tell(out, form, &change)?;
        }
    }
}

fn tell(out: &mut dyn Write, form: Form, change: &Change) -> Outcome {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if form.json {
        writeln!(out, "{}", serde_json::to_string(change)?)?;
        return Ok(out.flush()?);
    }
    let Change { state, rule, severity, trouble } = change;
    let line = format!("{} {state} {severity} {rule}: {}", timestamp(at), trouble.sentence);
    Lines::new(out, form).put(&line)?;
    if *state == alerts::State::Firing {
        Lines::new(out, form).put(&format!("  fix: {}", trouble.remedy))?;
    }
    Ok(())
}
