//! The state of each engine: whether it may be used, whether it failed, and when it is tried again.

use super::calibrate;
use super::carried::{Carried, Counter};
use super::measured::Measured;
use super::slot::Direction;
use super::subject::Subject;
use super::table::Row;
use crate::engine::Engine;
use crate::lock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

/// Delay before a failed engine is tried again; it doubles with each further failure.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(300);
/// Interval between checks of working engines.
const CHECK: Duration = Duration::from_secs(60);
/// After this time without a failure the retry delay starts at [`FIRST_RETRY`] again.
const HEALTHY: Duration = Duration::from_secs(300);
/// Number of events kept.
const EVENTS: usize = 64;

/// What the configuration says about engines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The engine to use for a cipher: names of engines by names of ciphers.
    pub pinned: BTreeMap<String, String>,
    /// Whether hardware accelerators may be used.
    pub accelerators: bool,
}

/// A change of an engine's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineChange {
    /// The engine failed and is no longer used.
    Failed,
    /// A retry failed.
    FailedAgain,
    /// A retry succeeded; the engine is used again.
    Recovered,
    /// The engine was chosen for this cipher but loaded no key.
    NotLoaded(Subject),
    /// The engine failed while it was measured for this cipher.
    NotMeasured(Subject),
    /// The engine computed a wrong result for this cipher while it was measured.
    Wrong(Subject),
    /// The engine was measured again for this cipher and works.
    Measured(Subject),
}

/// A change of an engine's state, with number and time.
#[derive(Clone, Debug)]
pub struct Event {
    /// Sequence number, from 1.
    pub number: u64,
    /// Wall clock time.
    pub at: SystemTime,
    /// Name of the engine.
    pub engine: &'static str,
    /// The change.
    pub what: EngineChange,
}

/// The state of an engine, for users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The engine works.
    Works,
    /// The engine failed, and is tried again after this time.
    Failed(Duration),
}

/// Health and failure count of one engine.
struct EngineHealth {
    works: AtomicBool,
    failures: AtomicU64,
}

/// When a failed engine is tried again.
struct Retry {
    at: Instant,
    wait: Duration,
    /// Since when the engine works again. If it fails soon after that, the delay goes on doubling.
    recovered: Option<Instant>,
}

impl Retry {
    fn first(now: Instant) -> Self {
        Self { at: now + FIRST_RETRY, wait: FIRST_RETRY, recovered: None }
    }

    /// A retry with twice the last delay.
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
    /// Engines that failed, or recovered less than [`HEALTHY`] ago.
    retries: BTreeMap<usize, Retry>,
    /// Ciphers for which an engine failed while it was measured.
    unmeasured: BTreeMap<(Subject, usize), Retry>,
    checked: Option<Instant>,
    events: VecDeque<Event>,
    /// Number of events so far.
    last_event: u64,
}

/// All engines, with their state.
pub(super) struct Members {
    health: Vec<EngineHealth>,
    engines: Vec<Arc<dyn Engine>>,
    /// One for each engine that is an accelerator.
    counters: Vec<Option<Counter>>,
    state: Mutex<State>,
}

impl Members {
    pub(super) fn new(engines: Vec<Arc<dyn Engine>>) -> Self {
        let healthy = |_| EngineHealth { works: AtomicBool::new(true), failures: AtomicU64::new(0) };
        let counter = |engine: &Arc<dyn Engine>| engine.is_accelerator().then(Counter::default);
        let (health, counters) =
            (engines.iter().map(healthy).collect(), engines.iter().map(counter).collect());
        Self { health, engines, counters, state: Mutex::default() }
    }

    /// Counts a burst that an engine has processed, if it is an accelerator.
    pub(super) fn count(
        &self,
        index: usize,
        direction: Direction,
        lengths: impl ExactSizeIterator<Item = usize>,
    ) {
        if let Some(counter) = &self.counters[index] {
            counter.add(direction, lengths);
        }
    }

    /// What an accelerator has sealed and opened.
    pub(super) fn carried(&self, index: usize) -> Option<[Carried; 2]> {
        self.counters[index].as_ref().map(Counter::read)
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

    /// The row of `subject`, if it was measured.
    pub(super) fn known(&self, subject: Subject) -> Option<Arc<Row>> {
        self.state().rows.get(&subject).map(Arc::clone)
    }

    /// The row of `subject`; `make` measures it if there is none.
    pub(super) fn row(&self, subject: Subject, make: impl FnOnce() -> Row) -> Arc<Row> {
        if let Some(row) = self.known(subject) {
            return row;
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

    /// An engine failed during a burst: stop using it at once. The first engine is never excluded, because none would
    /// remain.
    #[cold]
    pub(super) fn failed(&self, index: usize) {
        self.stop_using(index, EngineChange::Failed);
    }

    /// An engine chosen for `subject` failed to load a key.
    #[cold]
    pub(super) fn failed_to_load(&self, index: usize, subject: Subject) {
        self.stop_using(index, EngineChange::NotLoaded(subject));
    }

    fn stop_using(&self, index: usize, why: EngineChange) {
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

    /// Whether to load a key of `subject` into an engine: if the engine is allowed, and is the chosen or the second
    /// choice.
    ///
    /// An engine that holds descriptors for each key must be the chosen one now. If it is chosen later, only later keys
    /// are loaded into it.
    pub(super) fn is_worth_loading(&self, row: &Row, index: usize) -> bool {
        let state = self.state();
        let allowed = |index: usize| self.is_allowed(&state, index);
        if self.engines[index].holds_descriptors() {
            return self.is_usable(&state, index) && row.is_chosen(index);
        }
        allowed(index) && (row.is_chosen(index) || row.is_near(index, allowed))
    }

    /// Retries failed engines that are due, checks working ones every [`CHECK`], and returns new events.
    ///
    /// Call it about once a second, in a thread that may block.
    pub(super) fn maintain(&self, now: Instant, reported: &mut u64) -> Vec<Event> {
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
        let new = state.events.iter().filter(|event| event.number > *reported).cloned().collect();
        *reported = state.last_event;
        new
    }

    /// Failed engines whose retry is due. Engines that are not allowed are skipped.
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
            self.note(&mut state, index, EngineChange::Recovered);
            self.choose_all(&state);
        } else {
            *retry = Retry::after(now, retry.wait);
            self.note(&mut state, index, EngineChange::FailedAgain);
        }
    }

    /// The working engines, if a check is due.
    fn to_check(&self, now: Instant) -> Vec<usize> {
        let mut state = self.state();
        if state.checked.is_some_and(|checked| now.saturating_duration_since(checked) < CHECK) {
            return Vec::new();
        }
        state.checked = Some(now);
        (1..self.health.len()).filter(|&index| self.is_usable(&state, index)).collect()
    }

    fn to_measure(&self, now: Instant) -> Vec<(Subject, usize)> {
        let state = self.state();
        let due = state.unmeasured.iter().filter(|(_, retry)| retry.is_due(now)).map(|(&which, _)| which);
        due.filter(|&(_, index)| self.is_usable(&state, index)).collect()
    }

    fn measure_again(&self, subject: Subject, index: usize, now: Instant) {
        let two = [0, index].map(|index| Arc::clone(&self.engines[index]));
        let Some(measured) = calibrate::measure(&two, subject).pop() else { return };
        let mut state = self.state();
        let Some(row) = state.rows.get(&subject).cloned() else { return };
        let change = match flaw(&measured, subject) {
            None => {
                state.unmeasured.remove(&(subject, index));
                Some(EngineChange::Measured(subject))
            }
            Some(what) => {
                if let Some(retry) = state.unmeasured.get_mut(&(subject, index)) {
                    *retry = Retry::after(now, retry.wait);
                }
                (row.measured()[index] != measured).then_some(what)
            }
        };
        row.set(index, measured);
        if let Some(what) = change {
            self.note(&mut state, index, what);
            self.choose(&state, subject, &row);
        }
    }

    /// The last [`EVENTS`] events, oldest first.
    pub(super) fn events(&self) -> Vec<Event> {
        self.state().events.iter().cloned().collect()
    }

    /// Whether an engine computes the same as the first, for every cipher in use that it supports.
    fn is_right(&self, index: usize) -> bool {
        self.rows().iter().filter(|(_, row)| row.measured()[index].cost().is_some()).all(|(subject, _)| {
            let [reference, load] = [0, index].map(|index| subject.load(&*self.engines[index]));
            matches!((reference, load), (Ok(reference), Ok(load)) if load.agrees_with(&reference).is_ok())
        })
    }

    fn note(&self, state: &mut State, index: usize, what: EngineChange) {
        if state.events.len() == EVENTS {
            state.events.pop_front();
        }
        state.last_event += 1;
        let (number, engine) = (state.last_event, self.engines[index].name());
        state.events.push_back(Event { number, at: SystemTime::now(), engine, what });
    }

    fn choose_all(&self, state: &State) {
        for (&subject, row) in &state.rows {
            self.choose(state, subject, row);
        }
    }

    /// Chooses the engine for `subject`: the pinned one, or the fastest that works and is allowed.
    fn choose(&self, state: &State, subject: Subject, row: &Row) {
        let pinned = state.rules.pinned.get(&subject.to_string());
        let pinned = pinned.and_then(|name| {
            let index = self.engines.iter().position(|engine| engine.name() == name)?;
            (self.is_usable(state, index) && row.measured()[index].cost().is_some()).then_some(index)
        });
        row.choose(|index| pinned.map_or_else(|| self.is_usable(state, index), |pinned| pinned == index));
    }

    /// Whether the configuration allows the engine.
    fn is_allowed(&self, state: &State, index: usize) -> bool {
        state.rules.accelerators || !self.engines[index].is_accelerator()
    }

    /// Whether the engine is allowed and works.
    fn is_usable(&self, state: &State, index: usize) -> bool {
        self.is_allowed(state, index) && self.health[index].works.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Whether the engine recovered so long ago that its failure no longer counts.
fn is_past(retry: &Retry, now: Instant) -> bool {
    retry.recovered.is_some_and(|recovered| now.saturating_duration_since(recovered) >= HEALTHY)
}

/// The event for an engine that could not be measured.
fn flaw(measured: &Measured, subject: Subject) -> Option<EngineChange> {
    match measured {
        Measured::Works(_) | Measured::Lacks => None,
        Measured::Failed => Some(EngineChange::NotMeasured(subject)),
        Measured::Wrong => Some(EngineChange::Wrong(subject)),
    }
}
