//! The engines that are chosen among: which may be used now, which have failed, and when those are tried again.

use super::calibrate;
use super::measured::Measured;
use super::subject::Subject;
use super::table::Row;
use crate::engine::Engine;
use crate::lock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

/// When a failed engine is tried again; doubled each time it fails again.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(300);
/// How often engines that work are checked.
const CHECK: Duration = Duration::from_secs(60);
/// After this time without a failure an engine is as good as one that never failed.
const HEALTHY: Duration = Duration::from_secs(300);
/// Events that are remembered.
const EVENTS: usize = 64;

/// What a person has decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The engine to use for a cipher, by their names.
    pub pinned: BTreeMap<String, String>,
    /// Whether accelerators on a bus may be used.
    pub accelerators: bool,
}

/// What became of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// It failed and is not used any more.
    Failed,
    /// It was tried again and failed again.
    FailedAgain,
    /// It was tried again, works, and is used again.
    Recovered,
    /// It was to be used for this cipher and did not load a key.
    NotLoaded(Subject),
    /// It failed when it was measured for this cipher.
    NotMeasured(Subject),
    /// It computed something wrong for this cipher when it was measured.
    Wrong(Subject),
    /// It was measured again for this cipher, and works.
    Measured(Subject),
}

/// Something that happened to an engine.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its number: 1 for the first that happened.
    pub number: u64,
    /// When, by a clock that may be set.
    pub at: SystemTime,
    /// To which.
    pub engine: &'static str,
    /// What.
    pub what: Happening,
}

/// How an engine fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works.
    Works,
    /// It failed, and is tried again after this time.
    Failed(Duration),
}

/// How one engine fares.
struct EngineHealth {
    works: AtomicBool,
    failures: AtomicU64,
}

/// When what has failed is tried again.
struct Retry {
    at: Instant,
    wait: Duration,
    /// Since when it works again. What fails soon after that goes on to wait longer.
    recovered: Option<Instant>,
}

impl Retry {
    fn first(now: Instant) -> Self {
        Self { at: now + FIRST_RETRY, wait: FIRST_RETRY, recovered: None }
    }

    /// Twice as long as last time.
    fn after(now: Instant, wait: Duration) -> Self {
        let wait = (wait * 2).min(LAST_RETRY);
        Self { at: now + wait, wait, recovered: None }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.recovered.is_none() && self.at <= now
    }
}

#[derive(Default)]
struct State {
    rows: BTreeMap<Subject, Arc<Row>>,
    rules: Rules,
    /// Engines that have failed, or had until not long ago.
    retries: BTreeMap<usize, Retry>,
    /// What could not be measured.
    unmeasured: BTreeMap<(Subject, usize), Retry>,
    checked: Option<Instant>,
    events: VecDeque<Event>,
    /// How many events there were.
    happened: u64,
}

/// All of them.
pub(super) struct Members {
    health: Vec<EngineHealth>,
    engines: Vec<Arc<dyn Engine>>,
    state: Mutex<State>,
}

impl Members {
    pub(super) fn new(engines: Vec<Arc<dyn Engine>>) -> Self {
        let healthy = |_| EngineHealth { works: AtomicBool::new(true), failures: AtomicU64::new(0) };
        Self { health: engines.iter().map(healthy).collect(), engines, state: Mutex::default() }
    }

    pub(super) fn engines(&self) -> &[Arc<dyn Engine>] {
        &self.engines
    }

    pub(super) fn failures(&self, index: usize) -> u64 {
        self.health[index].failures.load(Ordering::Relaxed)
    }

    pub(super) fn health(&self, index: usize) -> Health {
        match self.state().retries.get(&index) {
            Some(retry) if retry.recovered.is_none() => {
                Health::Failed(retry.at.saturating_duration_since(Instant::now()))
            }
            _ => Health::Works,
        }
    }

    pub(super) fn rules(&self) -> Rules {
        self.state().rules.clone()
    }

    pub(super) fn set_rules(&self, rules: Rules) {
        let mut state = self.state();
        state.rules = rules;
        self.choose_all(&state);
    }

    pub(super) fn rows(&self) -> Vec<(Subject, Arc<Row>)> {
        self.state().rows.iter().map(|(&subject, row)| (subject, Arc::clone(row))).collect()
    }

    /// The row of `subject`, made if there is none.
    pub(super) fn row(&self, subject: Subject, make: impl FnOnce() -> Row) -> Arc<Row> {
        if let Some(row) = self.state().rows.get(&subject) {
            return Arc::clone(row);
        }
        let row = Arc::new(make());
        let mut state = self.state();
        if let Some(row) = state.rows.get(&subject) {
            // Another thread was faster.
            return Arc::clone(row);
        }
        state.rows.insert(subject, Arc::clone(&row));
        for (index, measured) in row.measured().iter().enumerate() {
            if let Some(what) = flaw(measured, subject) {
                state.unmeasured.insert((subject, index), Retry::first(Instant::now()));
                self.note(&mut state, index, what);
            }
        }
        self.choose(&state, subject, &row);
        row
    }

    /// An engine has failed under a burst: it is left at once. The first never is, as there would be none.
    #[cold]
    pub(super) fn failed(&self, index: usize) {
        self.leave(index, Happening::Failed);
    }

    /// An engine that is chosen for `subject` has not loaded a key of it.
    #[cold]
    pub(super) fn failed_to_load(&self, index: usize, subject: Subject) {
        self.leave(index, Happening::NotLoaded(subject));
    }

    fn leave(&self, index: usize, why: Happening) {
        self.health[index].failures.fetch_add(1, Ordering::Relaxed);
        if index == 0 || !self.health[index].works.swap(false, Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let mut state = self.state();
        let before = state.retries.remove(&index).filter(|retry| !is_past(retry, now));
        let retry = before.map_or_else(|| Retry::first(now), |before| Retry::after(now, before.wait));
        state.retries.insert(index, retry);
        self.note(&mut state, index, why);
        self.choose_all(&state);
    }

    /// Whether a key of `subject` is to be loaded into an engine: where it may be used, and is chosen or next to that. One
    /// that holds descriptors for each key must be chosen now; when it is later, it is from the next key on.
    pub(super) fn is_worth_loading(&self, row: &Row, index: usize) -> bool {
        let state = self.state();
        let allowed = |index: usize| self.is_allowed(&state, index);
        if self.engines[index].holds_descriptors() {
            return self.may(&state, index) && row.is_chosen(index);
        }
        allowed(index) && (row.is_chosen(index) || row.is_near(index, allowed))
    }

    /// Tries failed engines whose time has come, and now and then those that work; new events are returned.
    /// To be called about once a second, where it may take a while.
    pub(super) fn maintain(&self, now: Instant, told: &mut u64) -> Vec<Event> {
        for index in self.due(now) {
            self.try_again(index, now);
        }
        for index in self.to_check(now) {
            if !self.is_right(index) {
                self.failed(index);
            }
        }
        for (subject, index) in self.to_measure(now) {
            self.measure_again(subject, index, now);
        }
        let state = self.state();
        let new = state.events.iter().filter(|event| event.number > *told).cloned().collect();
        *told = state.happened;
        new
    }

    /// Failed engines that are due for another try. Engines that may not be used are skipped.
    fn due(&self, now: Instant) -> Vec<usize> {
        let mut state = self.state();
        state.retries.retain(|_, retry| !is_past(retry, now));
        let due = state.retries.iter().filter(|(_, retry)| retry.is_due(now)).map(|(&index, _)| index);
        due.filter(|&index| self.is_allowed(&state, index)).collect()
    }

    fn try_again(&self, index: usize, now: Instant) {
        let works = self.is_right(index);
        let mut state = self.state();
        let Some(retry) = state.retries.get_mut(&index) else { return };
        if works {
            retry.recovered = Some(now);
            self.health[index].works.store(true, Ordering::Relaxed);
            self.note(&mut state, index, Happening::Recovered);
            self.choose_all(&state);
        } else {
            *retry = Retry::after(now, retry.wait);
            self.note(&mut state, index, Happening::FailedAgain);
        }
    }

    /// Engines that work, if it is time to check them.
    fn to_check(&self, now: Instant) -> Vec<usize> {
        let mut state = self.state();
        if state.checked.is_some_and(|checked| now.saturating_duration_since(checked) < CHECK) {
            return Vec::new();
        }
        state.checked = Some(now);
        (1..self.health.len()).filter(|&index| self.may(&state, index)).collect()
    }

    fn to_measure(&self, now: Instant) -> Vec<(Subject, usize)> {
        let state = self.state();
        let due = state.unmeasured.iter().filter(|(_, retry)| retry.is_due(now)).map(|(&which, _)| which);
        due.filter(|&(_, index)| self.may(&state, index)).collect()
    }

    fn measure_again(&self, subject: Subject, index: usize, now: Instant) {
        let two = [0, index].map(|index| Arc::clone(&self.engines[index]));
        let Some(measured) = calibrate::measure(&two, subject).pop() else { return };
        let mut state = self.state();
        let Some(row) = state.rows.get(&subject).cloned() else { return };
        let news = match flaw(&measured, subject) {
            None => {
                state.unmeasured.remove(&(subject, index));
                Some(Happening::Measured(subject))
            }
            Some(what) => {
                if let Some(retry) = state.unmeasured.get_mut(&(subject, index)) {
                    *retry = Retry::after(now, retry.wait);
                }
                (row.measured()[index] != measured).then_some(what)
            }
        };
        row.set(index, measured);
        if let Some(what) = news {
            self.note(&mut state, index, what);
            self.choose(&state, subject, &row);
        }
    }

    /// The latest events, the oldest first.
    pub(super) fn events(&self) -> Vec<Event> {
        self.state().events.iter().cloned().collect()
    }

    /// Whether an engine computes what the first does, for every cipher in use that it has.
    fn is_right(&self, index: usize) -> bool {
        self.rows().iter().filter(|(_, row)| row.measured()[index].cost().is_some()).all(|(subject, _)| {
            let [reference, load] = [0, index].map(|index| subject.load(&*self.engines[index]));
            matches!((reference, load), (Ok(reference), Ok(load)) if load.agrees_with(&reference).is_ok())
        })
    }

    fn note(&self, state: &mut State, index: usize, what: Happening) {
        if state.events.len() == EVENTS {
            state.events.pop_front();
        }
        state.happened += 1;
        let (number, engine) = (state.happened, self.engines[index].name());
        state.events.push_back(Event { number, at: SystemTime::now(), engine, what });
    }

    fn choose_all(&self, state: &State) {
        for (&subject, row) in &state.rows {
            self.choose(state, subject, row);
        }
    }

    /// Selects the engine for `subject` again: the pinned one, or the fastest that works and is allowed.
    fn choose(&self, state: &State, subject: Subject, row: &Row) {
        let pinned = state.rules.pinned.get(&subject.to_string());
        let pinned = pinned.and_then(|name| {
            let index = self.engines.iter().position(|engine| engine.name() == name)?;
            (self.may(state, index) && row.measured()[index].cost().is_some()).then_some(index)
        });
        row.choose(|index| pinned.map_or_else(|| self.may(state, index), |pinned| pinned == index));
    }

    /// Whether a person allows it.
    fn is_allowed(&self, state: &State, index: usize) -> bool {
        state.rules.accelerators || !self.engines[index].is_accelerator()
    }

    /// Whether it may be used now.
    fn may(&self, state: &State, index: usize) -> bool {
        self.is_allowed(state, index) && self.health[index].works.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Whether it failed so long ago that it counts no more.
fn is_past(retry: &Retry, now: Instant) -> bool {
    retry.recovered.is_some_and(|recovered| now.saturating_duration_since(recovered) >= HEALTHY)
}

/// What went wrong when an engine was measured.
fn flaw(measured: &Measured, subject: Subject) -> Option<Happening> {
    match measured {
        Measured::Works(_) | Measured::Lacks => None,
        Measured::Failed => Some(Happening::NotMeasured(subject)),
        Measured::Wrong => Some(Happening::Wrong(subject)),
    }
}
