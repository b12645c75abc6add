//! The engines that are chosen among: which may be used now, which have failed, and when those are tried again.

use super::subject::Subject;
use super::table::Row;
use crate::engine::Engine;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// When a failed engine is tried again; doubled each time it fails again.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(300);
/// How often engines that work are checked.
const CHECK: Duration = Duration::from_secs(60);
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
}

/// Something that happened to an engine.
#[derive(Clone, Debug)]
pub struct Event {
    /// When.
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
struct Fate {
    engine: Arc<dyn Engine>,
    works: AtomicBool,
    failures: AtomicU64,
}

/// When a failed engine is tried again.
struct Retry {
    at: Instant,
    wait: Duration,
}

#[derive(Default)]
struct State {
    rows: BTreeMap<Subject, Arc<Row>>,
    rules: Rules,
    retries: BTreeMap<usize, Retry>,
    checked: Option<Instant>,
    events: VecDeque<Event>,
}

/// All of them.
pub(super) struct Members {
    fates: Vec<Fate>,
    engines: Vec<Arc<dyn Engine>>,
    state: Mutex<State>,
}

impl Members {
    pub(super) fn new(engines: Vec<Arc<dyn Engine>>) -> Self {
        let fate = |engine| Fate { engine, works: AtomicBool::new(true), failures: AtomicU64::new(0) };
        Self { fates: engines.iter().cloned().map(fate).collect(), engines, state: Mutex::default() }
    }

    pub(super) fn engines(&self) -> &[Arc<dyn Engine>] {
        &self.engines
    }

    pub(super) fn failures(&self, index: usize) -> u64 {
        self.fates[index].failures.load(Ordering::Relaxed)
    }

    pub(super) fn health(&self, index: usize) -> Health {
        match self.state().retries.get(&index) {
            Some(retry) => Health::Failed(retry.at.saturating_duration_since(Instant::now())),
            None => Health::Works,
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
        let row = Arc::clone(state.rows.entry(subject).or_insert(row));
        self.choose(&state, subject, &row);
        row
    }

    /// An engine has failed under a burst: it is left at once. The first never is, as there would be none.
    #[cold]
    pub(super) fn failed(&self, index: usize) {
        self.fates[index].failures.fetch_add(1, Ordering::Relaxed);
        if index == 0 || !self.fates[index].works.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        state.retries.insert(index, Retry { at: Instant::now() + FIRST_RETRY, wait: FIRST_RETRY });
        self.note(&mut state, index, Happening::Failed);
        self.choose_all(&state);
    }

    /// Tries failed engines whose time has come, and now and then those that work; new events are returned.
    /// To be called about once a second, where it may take a while.
    pub(super) fn tend(&self, now: Instant, last: &mut Option<SystemTime>) -> Vec<Event> {
        let (due, check) = {
            let mut state = self.state();
            let due: Vec<usize> =
                state.retries.iter().filter(|(_, retry)| retry.at <= now).map(|(&index, _)| index).collect();
            let check = state.checked.is_none_or(|checked| now.saturating_duration_since(checked) >= CHECK);
            if check {
                state.checked = Some(now);
            }
            (due, check)
        };
        for index in due {
            let works = self.is_right(index);
            let mut state = self.state();
            if works {
                state.retries.remove(&index);
                self.fates[index].works.store(true, Ordering::Relaxed);
                self.note(&mut state, index, Happening::Recovered);
                self.choose_all(&state);
            } else if let Some(retry) = state.retries.get_mut(&index) {
                retry.wait = (retry.wait * 2).min(LAST_RETRY);
                retry.at = now + retry.wait;
                self.note(&mut state, index, Happening::FailedAgain);
            }
        }
        let working = (1..self.fates.len()).filter(|&index| self.fates[index].works.load(Ordering::Relaxed));
        for index in working.filter(|_| check).collect::<Vec<_>>() {
            if !self.is_right(index) {
                self.failed(index);
            }
        }
        let state = self.state();
        let new = state.events.iter().filter(|event| last.is_none_or(|last| event.at > last));
        let new: Vec<Event> = new.cloned().collect();
        *last = new.last().map(|event| event.at).or(*last);
        new
    }

    /// The latest events, the oldest first.
    pub(super) fn events(&self) -> Vec<Event> {
        self.state().events.iter().cloned().collect()
    }

    /// Whether an engine computes what the first does, for every cipher in use that it has.
    fn is_right(&self, index: usize) -> bool {
        self.rows().iter().filter(|(_, row)| row.measured()[index].cost().is_some()).all(|(subject, _)| {
            let [reference, load] = [0, index].map(|index| subject.load(&*self.engines[index]));
            matches!((reference, load), (Some(reference), Some(load)) if load.agrees_with(&reference))
        })
    }

    fn note(&self, state: &mut State, index: usize, what: Happening) {
        if state.events.len() == EVENTS {
            state.events.pop_front();
        }
        let engine = self.fates[index].engine.name();
        state.events.push_back(Event { at: SystemTime::now(), engine, what });
    }

    fn choose_all(&self, state: &State) {
        for (&subject, row) in &state.rows {
            self.choose(state, subject, row);
        }
    }

    /// Chooses anew who does `subject`: whom it is pinned to, or the fastest that works and is allowed.
    fn choose(&self, state: &State, subject: Subject, row: &Row) {
        let pinned = state.rules.pinned.get(&subject.to_string());
        let pinned = pinned.and_then(|name| {
            let index = self.engines.iter().position(|engine| engine.name() == name)?;
            (self.may(state, index) && row.measured()[index].cost().is_some()).then_some(index)
        });
        row.choose(|index| pinned.map_or_else(|| self.may(state, index), |pinned| pinned == index));
    }

    fn may(&self, state: &State, index: usize) -> bool {
        let allowed = state.rules.accelerators || !self.engines[index].is_accelerator();
        allowed && self.fates[index].works.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
