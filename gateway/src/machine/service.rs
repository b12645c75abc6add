//! Keeps what the helper does what the configuration says.
//!
//! ```text
//! plan       the helper says what is not allowed, and what is missing: nothing is touched
//! carry out  the helper writes files and values, or puts them back; a part without a helper waits for one
//! undo       the helper does what was before
//! maintain   what waits is tried again
//! ```
//!
//! What was done stays when the daemon ends: it is the machine's.

use super::api::Shown;
use super::client::ClientError;
use super::model::{self, Finding, Setting, State};
use super::request::{Answer, Verb};
use crate::host::wants::Wants;
use crate::service::{
    Context, Phase, Planned, Policy, Refusal, Refused, Requirements, Service, Step, View, Work,
};
use config::settings::Machine;
use config::settings::machine::{Part, Profile};
use config::{Path, Settings};
use port::Pace;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a part is to be, and what it was.
type Intent = (Arc<Machine>, Option<Arc<Machine>>);

/// What other programs of the machine do.
#[derive(Default)]
pub struct MachineService {
    /// What each part is to be. None before the first configuration: an earlier daemon may have left something.
    parts: BTreeMap<Part, Arc<Machine>>,
    /// What is planned, and what was before it.
    intents: BTreeMap<Part, Intent>,
    /// What is missing, by the parts that wait for it.
    waiting: BTreeMap<Part, Vec<Finding>>,
    shown: Shown,
}

/// What the helper, or the machine, refuses.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Said(String);

impl Service for MachineService {
    fn requirements(&self, settings: &Settings) -> Requirements {
        let parts = Part::ALL.iter().filter(|part| !settings.machine.lines(**part).is_empty()).count();
        Requirements { served: vec![(parts, "machine setting")], ..Requirements::default() }
    }

    fn wants(&self, _: &Settings) -> BTreeMap<String, Wants> {
        BTreeMap::new()
    }

    fn plan<'a>(&'a mut self, settings: &'a mut Settings, context: &'a Context) -> Work<'a, Planned> {
        Box::pin(async {
            let wanted = Arc::new(std::mem::take(&mut settings.machine));
            let mut planned = Planned::default();
            for part in Part::ALL {
                let before = self.parts.get(&part);
                let is_same = before.is_some_and(|before| before.lines(part) == wanted.lines(part));
                if !is_same || self.waiting.contains_key(&part) {
                    self.plan_part(part, &wanted, context, &mut planned).await;
                }
            }
            planned
        })
    }

    fn carry_out<'a>(&'a mut self, step: &'a Step, context: &'a Context) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async {
            let Some((part, wanted)) = self.intent(step).map(|(part, (wanted, _))| (part, wanted)) else {
                return Ok(());
            };
            self.apply(part, wanted, context).await.map_err(|said| Refusal::new(said, false))
        })
    }

    fn undo<'a>(
        &'a mut self,
        step: &'a Step,
        _: Policy,
        context: &'a Context,
    ) -> Work<'a, Result<(), Refusal>> {
        Box::pin(async {
            let Some((part, (_, before))) = self.intent(step) else { return Ok(()) };
            // Before the first configuration there was what an earlier daemon has left, which is not known any more.
            let before = before.unwrap_or_default();
            self.apply(part, before, context).await.map_err(|said| {
                self.waiting.insert(part, vec![finding(part, &said)]);
                Refusal::new(said, true)
            })
        })
    }

    fn finish(&mut self) -> Work<'_, ()> {
        self.intents.clear();
        Box::pin(std::future::ready(()))
    }

    fn maintain<'a>(&'a mut self, context: &'a Context) -> Work<'a, ()> {
        Box::pin(async {
            for (part, missing) in self.waiting.clone() {
                let Some(wanted) = self.parts.get(&part).cloned() else { continue };
                // Files are written only if something has changed.
                if self.findings(part, &wanted, context).await == missing {
                    continue;
                }
                match self.apply(part, wanted, context).await {
                    Ok(()) if !self.waiting.contains_key(&part) => tracing::info!("{part} is in force"),
                    Ok(()) => {}
                    Err(said) => _ = self.waiting.insert(part, vec![finding(part, &said)]),
                }
            }
        })
    }

    fn pending(&self) -> BTreeSet<Path> {
        self.waiting.values().flatten().map(path_of).collect()
    }

    fn serves(&self) -> bool {
        self.parts.iter().any(|(part, wanted)| !wanted.lines(*part).is_empty())
    }

    fn interface_removed(&mut self, _: &str) -> bool {
        false
    }

    fn view(&self) -> Arc<dyn View> {
        Arc::new(self.shown.clone())
    }

    fn stop(&mut self) {}
}

impl MachineService {
    async fn plan_part(
        &mut self,
        part: Part,
        wanted: &Arc<Machine>,
        context: &Context,
        planned: &mut Planned,
    ) {
        let is_empty = wanted.lines(part).is_empty();
        if !is_empty {
            let findings = self.findings(part, wanted, context).await;
            let (refused, missing): (Vec<Finding>, Vec<Finding>) =
                findings.into_iter().partition(|finding| finding.is_refused);
            if !refused.is_empty() {
                // A part is changed as a whole or not at all.
                let said: Vec<String> = refused.iter().map(text_of).collect();
                planned.refused.insert(part.path(), Refusal::new(Said(said.join("\n")), false));
                return;
            }
            let missing = missing.iter().map(|it| (path_of(it), Refusal::new(Said(text_of(it)), true)));
            planned.refused.extend(missing.collect::<Refused>());
        }
        let phase = if is_empty { Phase::Remove } else { Phase::Switch };
        planned.steps.push(Step { path: part.path(), phase, frees: Vec::new(), needs: Vec::new() });
        self.intents.insert(part, (Arc::clone(wanted), self.parts.get(&part).cloned()));
    }

    /// What is planned for the part of a step, and what was before.
    fn intent(&self, step: &Step) -> Option<(Part, Intent)> {
        let intent = self.intents.iter().find(|(part, _)| part.path() == step.path)?;
        Some((*intent.0, intent.1.clone()))
    }

    /// What would not work; without a helper, nothing does.
    async fn findings(&self, part: Part, wanted: &Machine, context: &Context) -> Vec<Finding> {
        match context.machine.lock().await.ask(Verb::Check, part, wanted).await {
            Ok(answer) => answer.findings.into_iter().map(|it| within(part, wanted, it)).collect(),
            Err(error) => vec![within(part, wanted, finding(part, &error))],
        }
    }

    /// Has the helper make a part what it is to be. What is missing is waited for; an error means that nothing has changed.
    async fn apply(&mut self, part: Part, wanted: Arc<Machine>, context: &Context) -> Result<(), Said> {
        let asked = context.machine.lock().await.ask(Verb::Apply, part, &wanted).await;
        let is_empty = wanted.lines(part).is_empty();
        let answer = match asked {
            Ok(Answer { refused: Some(said), .. }) => return Err(Said(format!("{part}: {said}"))),
            Ok(answer) => answer,
            // Without a helper nothing was done that would have to go.
            Err(ClientError::Off | ClientError::Absent { .. }) if is_empty => Answer::default(),
            Err(error) => Answer { findings: vec![finding(part, &error)], ..Answer::default() },
        };
        let findings: Vec<Finding> =
            answer.findings.into_iter().map(|found| within(part, &wanted, found)).collect();
        let mut settings = answer.settings;
        if part == Part::Performance {
            settings.extend(set_pace(wanted.performance));
        }
        let state = match (is_empty, findings.is_empty()) {
            (_, false) => State::Waiting,
            (true, true) => State::Unset,
            (false, true) => State::InForce,
        };
        let lines = wanted.lines(part).lines().map(str::to_owned).collect();
        let (path, files, found) = (part.to_string(), answer.files, findings.clone());
        self.shown.show(part, model::Part { path, state, lines, files, settings, findings: found });
        if findings.is_empty() {
            self.waiting.remove(&part);
        } else {
            self.waiting.insert(part, findings);
        }
        self.parts.insert(part, wanted);
        Ok(())
    }
}

/// Sets the pace of our own workers; what there is of it then.
fn set_pace(profile: Option<Profile>) -> Vec<Setting> {
    let pace = match profile {
        None => Pace::USUAL,
        Some(Profile::Throughput) => Pace::THROUGHPUT,
        Some(Profile::Latency) => Pace::LATENCY,
    };
    pace.set();
    if profile.is_none() {
        return Vec::new();
    }
    let setting = |name: &str, before: String, now: String| Setting {
        name: name.to_owned(),
        before: Some(before),
        wanted: now.clone(),
        now: Some(now),
        ..Setting::default()
    };
    let number = |pace: Pace| (pace.burst.to_string(), pace.spin_microseconds.to_string());
    let ((burst, spin), (burst_before, spin_before)) = (number(pace), number(Pace::USUAL));
    vec![
        setting("postern packets in a burst", burst_before, burst),
        setting("postern microseconds awake", spin_before, spin),
    ]
}

fn finding(part: Part, error: &dyn std::error::Error) -> Finding {
    let text = error.to_string();
    let (why, fix) = text.split_once("\n  fix: ").unwrap_or((&text, ""));
    Finding { path: part.to_string(), why: why.to_owned(), fix: fix.to_owned(), is_refused: false }
}

/// A finding about a whole part that is only waited for is shown at the first line of it: the part itself is changed.
fn within(part: Part, wanted: &Machine, mut finding: Finding) -> Finding {
    if !finding.is_refused && finding.path == part.to_string() {
        let line = wanted.lines(part).lines().next().unwrap_or_default();
        let words = line.split(' ').skip(1).take(part.words().len() + 1);
        finding.path = words.collect::<Vec<_>>().join(" ");
    }
    finding
}

fn path_of(finding: &Finding) -> Path {
    Path::new(finding.path.split(' '))
}

fn text_of(finding: &Finding) -> String {
    let Finding { path, why, fix, .. } = finding;
    let place = if why.starts_with(path.as_str()) { String::new() } else { format!("{path}: ") };
    if fix.is_empty() { format!("{place}{why}") } else { format!("{place}{why}\n  fix: {fix}") }
}
