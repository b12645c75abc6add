//! Keeps what the helper does what the configuration says.
//!
//! ```text
//! plan       the helper says what is not allowed, and what is missing: nothing is touched
//! carry out  the helper writes files and values, or puts them back; a part without a helper waits for one
//! undo       the helper does what was before
//! maintain   what the helper has done late is reported, and what waits is tried again
//! ```
//!
//! A change waits for the helper for a short time only: programs may take minutes to restart. The helper goes on then, and what
//! comes of it is reported later.
//!
//! What was done stays when the daemon ends: it is the machine's.

use super::api::Shown;
use super::client::{Answered, Awaited, ClientError};
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
use std::time::Duration;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::{Instant, timeout_at};

/// How long a change of the configuration waits for the helper, for all parts together. All other orders wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same where what waits is tried again.
const PATIENCE_AGAIN: Duration = Duration::from_secs(2);

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
    /// What the helper has not finished in time.
    late: BTreeMap<Part, Late>,
    /// Until when the change that is planned waits for the helper.
    until: Option<Instant>,
    shown: Shown,
}

/// What the helper is still at.
struct Late {
    wanted: Arc<Machine>,
    answer: Awaited,
}

/// What the helper, or the machine, refuses.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Said(String);

/// Why a part is not what it is to be.
enum NotApplied {
    /// Nothing has changed.
    Refused(Said),
    /// The helper goes on.
    Late(Said),
}

impl NotApplied {
    /// As a step is refused that is carried out.
    fn into_refusal(self) -> Refusal {
        match self {
            Self::Refused(said) => Refusal::new(said, false),
            Self::Late(said) => Refusal::unfinished(said),
        }
    }
}

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
            self.report_late();
            self.until = Some(Instant::now() + PATIENCE);
            for part in Part::ALL {
                let before = self.parts.get(&part);
                let is_same = before.is_some_and(|before| before.lines(part) == wanted.lines(part));
                let is_begun = is_same && self.late.contains_key(&part);
                if !is_begun && (!is_same || self.waiting.contains_key(&part)) {
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
            let until = self.until();
            let applied = self.apply(part, wanted, context, until).await;
            self.order_agent(context);
            applied.map_err(NotApplied::into_refusal)
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
            let until = self.until();
            let undone = self.apply(part, before, context, until).await.map_err(|error| match error {
                NotApplied::Refused(said) => {
                    self.waiting.insert(part, vec![finding(part, &said)]);
                    Refusal::new(said, true)
                }
                NotApplied::Late(said) => Refusal::unfinished(said),
            });
            self.order_agent(context);
            undone
        })
    }

    fn finish(&mut self) -> Work<'_, ()> {
        self.intents.clear();
        self.until = None;
        Box::pin(std::future::ready(()))
    }

    fn maintain<'a>(&'a mut self, context: &'a Context) -> Work<'a, ()> {
        Box::pin(async {
            self.report_late();
            let until = Instant::now() + PATIENCE_AGAIN;
            for (part, missing) in self.waiting.clone() {
                let Some(wanted) = self.parts.get(&part).cloned() else { continue };
                if self.late.contains_key(&part) {
                    continue;
                }
                // Files are written only if something has changed.
                match self.findings(part, &wanted, context, until).await {
                    Some(found) if found != missing => {}
                    _ => continue,
                }
                match self.apply(part, wanted, context, until).await {
                    Ok(()) => self.report(part),
                    Err(NotApplied::Refused(said)) => self.has_refused(part, &said),
                    Err(NotApplied::Late(_)) => {}
                }
            }
            self.order_agent(context);
        })
    }

    fn pending(&self) -> BTreeSet<Path> {
        self.waiting.values().flatten().map(path_of).collect()
    }

    fn serves(&self) -> bool {
        self.parts.iter().any(|(part, wanted)| !wanted.lines(*part).is_empty())
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
            let findings = self.findings(part, wanted, context, self.until()).await;
            let findings = findings.unwrap_or_else(|| vec![within(part, wanted, unanswered(part))]);
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

    /// Has the sub-agent of snmpd run as long as SNMP is configured. It waits by itself for an snmpd that is missing.
    fn order_agent(&self, context: &Context) {
        let part = Part::Snmp;
        let is_wanted = self.parts.get(&part).is_some_and(|wanted| !wanted.lines(part).is_empty());
        context.snmp.order(is_wanted, self.waiting.get(&part).cloned().unwrap_or_default());
    }

    /// What is planned for the part of a step, and what was before.
    fn intent(&self, step: &Step) -> Option<(Part, Intent)> {
        let intent = self.intents.iter().find(|(part, _)| part.path() == step.path)?;
        Some((*intent.0, intent.1.clone()))
    }

    /// Until when this change waits for the helper.
    fn until(&self) -> Instant {
        self.until.unwrap_or_else(|| Instant::now() + PATIENCE)
    }

    /// What would not work; without a helper, nothing does. None if the helper does not say so in time.
    async fn findings(
        &self,
        part: Part,
        wanted: &Arc<Machine>,
        context: &Context,
        until: Instant,
    ) -> Option<Vec<Finding>> {
        let answer = context.machine.ask(Verb::Check, part, wanted);
        let answered = timeout_at(until, answer).await.ok()?;
        Some(match answered.unwrap_or_else(|_| Err(ended())) {
            Ok(Answer { refused: Some(said), .. }) => {
                vec![Finding { is_refused: true, ..finding(part, &Said(said)) }]
            }
            Ok(answer) => answer.findings.into_iter().map(|it| within(part, wanted, it)).collect(),
            Err(error) => vec![within(part, wanted, finding(part, &error))],
        })
    }

    /// Has the helper make a part what it is to be.
    async fn apply(
        &mut self,
        part: Part,
        wanted: Arc<Machine>,
        context: &Context,
        until: Instant,
    ) -> Result<(), NotApplied> {
        // What was asked before, and is not begun, need not be done.
        self.late.remove(&part);
        let mut answer = context.machine.ask(Verb::Apply, part, &wanted);
        if let Ok(answered) = timeout_at(until, &mut answer).await {
            let answered = answered.unwrap_or_else(|_| Err(ended()));
            return self.applied(part, wanted, answered).map_err(NotApplied::Refused);
        }
        let finding = unanswered(part);
        let said = Said(text_of(&finding));
        self.show(part, &wanted, vec![finding], Answer::default());
        self.parts.insert(part, Arc::clone(&wanted));
        self.late.insert(part, Late { wanted, answer });
        Err(NotApplied::Late(said))
    }

    /// Takes up what the helper has done after a change has stopped to wait for it.
    fn report_late(&mut self) {
        for (part, Late { wanted, mut answer }) in std::mem::take(&mut self.late) {
            let answered = match answer.try_recv() {
                Ok(answered) => answered,
                Err(TryRecvError::Closed) => Err(ended()),
                Err(TryRecvError::Empty) => {
                    self.late.insert(part, Late { wanted, answer });
                    continue;
                }
            };
            match self.applied(part, wanted, answered) {
                Ok(()) => self.report(part),
                Err(said) => self.has_refused(part, &said),
            }
        }
    }

    /// A part became what it is to be, without a change that would tell.
    fn report(&self, part: Part) {
        match self.waiting.get(&part) {
            None => tracing::info!("{part} is in force"),
            Some(findings) => findings.iter().for_each(|it| tracing::warn!("{}", text_of(it))),
        }
    }

    /// A part was refused that is in the configuration already: it is tried again.
    fn has_refused(&mut self, part: Part, said: &Said) {
        let finding = finding(part, said);
        if self.waiting.get(&part).is_none_or(|before| *before != [finding.clone()]) {
            tracing::error!("{}", text_of(&finding));
        }
        if let Some(wanted) = self.parts.get(&part).cloned() {
            self.show(part, &wanted, vec![finding], Answer::default());
        }
    }

    /// Takes up what the helper has done. What is missing is waited for; an error means that nothing has changed.
    fn applied(&mut self, part: Part, wanted: Arc<Machine>, answered: Answered) -> Result<(), Said> {
        let is_empty = wanted.lines(part).is_empty();
        let mut answer = match answered {
            Ok(Answer { refused: Some(said), .. }) => return Err(Said(format!("{part}: {said}"))),
            Ok(answer) => answer,
            // Without a helper nothing was done that would have to go.
            Err(ClientError::Off | ClientError::Absent { .. }) if is_empty => Answer::default(),
            Err(error) => Answer { findings: vec![finding(part, &error)], ..Answer::default() },
        };
        let findings = std::mem::take(&mut answer.findings);
        let findings = findings.into_iter().map(|found| within(part, &wanted, found)).collect();
        if part == Part::Performance {
            answer.settings.extend(set_pace(wanted.performance));
        }
        self.show(part, &wanted, findings, answer);
        self.parts.insert(part, wanted);
        Ok(())
    }

    /// Shows what there is of a part, and waits for what is missing.
    fn show(&mut self, part: Part, wanted: &Machine, findings: Vec<Finding>, answer: Answer) {
        let lines = wanted.public_lines(part);
        let state = match (lines.is_empty(), findings.is_empty()) {
            (_, false) => State::Waiting,
            (true, true) => State::Unset,
            (false, true) => State::InForce,
        };
        let Answer { files, settings, .. } = answer;
        let (path, found) = (part.to_string(), findings.clone());
        self.shown.show(part, model::Part { path, state, lines, files, settings, findings: found });
        if findings.is_empty() {
            self.waiting.remove(&part);
        } else {
            self.waiting.insert(part, findings);
        }
    }
}

/// The helper has not answered in time.
fn unanswered(part: Part) -> Finding {
    Finding {
        path: part.to_string(),
        why:
            "the programs of the machine take long; what comes of it is shown by: postern show system managed"
                .to_owned(),
        ..Finding::default()
    }
}

fn ended() -> ClientError {
    ClientError::Ended(std::io::ErrorKind::BrokenPipe.into())
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
    let row =
        |name: &str, of: fn(Pace) -> u32| setting(name, of(Pace::USUAL).to_string(), of(pace).to_string());
    vec![
        row("postern packets in a burst", |pace| pace.burst as u32),
        row("postern microseconds awake", |pace| pace.spin_microseconds),
        row("postern microseconds between calls", |pace| pace.pause_microseconds),
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
