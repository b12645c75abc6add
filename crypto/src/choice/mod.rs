//! Chooses the engine that seals and opens, by measuring on this machine, per cipher, packet size and burst.
//!
//! [`Choice`] is itself an [`Engine`]. It loads each key into the engines that are fastest for some slot. Each burst
//! reads one atomic byte to find the engine to call. If an engine fails, the next one processes the burst, and
//! [`maintain`](Choice::maintain) tries the failed one again later.

mod cache;
mod calibrate;
mod carried;
mod copied;
mod find;
mod guard;
mod key;
mod measured;
mod member;
mod slot;
mod subject;
mod table;

pub use carried::Carried;
pub use find::{Found, find};
pub use guard::{DEADLINE, Guarded};
pub use measured::{Cost, Measured};
pub use member::{EngineChange, Event, Health, Rules};
pub use slot::{BURSTS, Direction, SIZES, Slot};
pub use subject::Subject;
pub use table::Row;

use crate::cipher::{Cipher, Pair};
use crate::engine::library::Unavailable;
use crate::engine::{Engine, Key, LoadError, PairKey};
use crate::lock;
use key::ChosenKey;
use member::Members;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Chooses among engines.
pub struct Choice {
    members: Arc<Members>,
    absent: Vec<(&'static str, Unavailable)>,
    cache: Option<PathBuf>,
    measuring: Mutex<()>,
    /// The number of the last event that [`Choice::maintain`] returned.
    reported: Mutex<u64>,
}

impl Choice {
    /// Chooses among `engines`. The first must support every cipher, since it is used when the others fail.
    pub fn among(engines: Vec<Arc<dyn Engine>>) -> Self {
        assert!(!engines.is_empty(), "there is always the engine that is built in");
        let members = Arc::new(Members::new(engines));
        Self {
            members,
            absent: Vec::new(),
            cache: None,
            measuring: Mutex::default(),
            reported: Mutex::default(),
        }
    }

    /// Chooses among all engines of this machine. Measurements are kept in the file `cache`. They are reused if
    /// program, processor, kernel and engine versions are the same.
    pub fn here(cache: Option<&Path>) -> Self {
        let found = find();
        let mut choice = Self::among(found.engines);
        choice.absent = found.absent;
        choice.cache = cache.map(Path::to_owned);
        choice
    }

    /// Measures the engines for `subjects` now, instead of at first use.
    #[must_use]
    pub fn prepared_for(self, subjects: &[Subject]) -> Self {
        for &subject in subjects {
            self.row(subject);
        }
        self
    }

    /// The engines, in the order of the indices in a [`Row`].
    pub fn engines(&self) -> &[Arc<dyn Engine>] {
        self.members.engines()
    }

    /// The supported engines that this machine lacks, and why.
    pub fn absent(&self) -> &[(&'static str, Unavailable)] {
        &self.absent
    }

    /// The health of the engine with this index, and how often it has failed.
    pub fn health(&self, index: usize) -> (Health, u64) {
        (self.members.health(index), self.members.failures(index))
    }

    /// What the engine with this index has sealed and opened, if it is an accelerator.
    pub fn carried(&self, index: usize) -> Option<[Carried; 2]> {
        self.members.carried(index)
    }

    /// What the configuration says about engines.
    pub fn rules(&self) -> Rules {
        self.members.rules()
    }

    /// Applies new rules at once, to new and existing keys.
    ///
    /// An existing key is only loaded into engines that were chosen, or second choice, when it was made. If the engine
    /// chosen now is not among them, the key uses the first engine; only new keys use the chosen engine.
    pub fn set_rules(&self, rules: Rules) {
        self.members.set_rules(rules);
    }

    /// Whether there are measurements for `subject`.
    pub fn knows(&self, subject: Subject) -> bool {
        self.members.known(subject).is_some()
    }

    /// The measurements for `subject`, taken at first use: about 30 ms per engine.
    pub fn row(&self, subject: Subject) -> Arc<Row> {
        if let Some(row) = self.members.known(subject) {
            return row;
        }
        // Two measurements at once would disturb each other, and take twice as long.
        let _one = lock(&self.measuring);
        self.members.row(subject, || {
            let cached = self.cache.as_deref().and_then(|path| cache::read(path, self.engines(), subject));
            let cached = cached.map(|measured| calibrate::recheck(self.engines(), subject, measured));
            let measured = cached.unwrap_or_else(|| {
                let measured = calibrate::measure(self.engines(), subject);
                if let Some(path) = &self.cache {
                    cache::write(path, self.engines(), subject, &measured);
                }
                measured
            });
            Row::new(measured)
        })
    }

    /// The ciphers measured so far.
    pub fn rows(&self) -> Vec<(Subject, Arc<Row>)> {
        self.members.rows()
    }

    /// Retries failed engines, checks working ones, and returns the events since the last call.
    ///
    /// Call it about once a second, in a thread that may block.
    pub fn maintain(&self) -> Vec<Event> {
        self.members.maintain(Instant::now(), &mut lock(&self.reported))
    }

    /// The latest events, the oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.members.events()
    }

    fn load_all<K: ?Sized>(
        &self,
        subject: Subject,
        load: impl Fn(&dyn Engine) -> Result<Arc<K>, LoadError>,
    ) -> Result<ChosenKey<K>, LoadError> {
        let row = self.row(subject);
        let mut keys = vec![None; self.engines().len()];
        keys[0] = Some(load(&*self.engines()[0])?);
        let mut tried = vec![false; keys.len()];
        tried[0] = true;
        let mut is_settled = false;
        while !is_settled {
            is_settled = true;
            for index in (1..keys.len()).filter(|&index| self.members.is_worth_loading(&row, index)) {
                if std::mem::replace(&mut tried[index], true) {
                    continue;
                }
                keys[index] = load(&*self.engines()[index]).ok();
                if keys[index].is_none() && row.is_chosen(index) {
                    // Now another engine is chosen, perhaps one that was not worth loading before.
                    self.members.failed_to_load(index, subject);
                    is_settled = false;
                }
            }
        }
        Ok(ChosenKey { keys, row, members: Arc::clone(&self.members) })
    }
}

impl Engine for Choice {
    fn name(&self) -> &'static str {
        "chosen"
    }

    fn version(&self) -> String {
        self.engines().iter().map(|engine| engine.name()).collect::<Vec<_>>().join(", ")
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        Ok(Arc::new(self.load_all(cipher.into(), |engine| engine.load(cipher, secret))?))
    }

    fn load_pair(
        &self,
        pair: Pair,
        encryption: &[u8],
        integrity: &[u8],
    ) -> Result<Arc<dyn PairKey>, LoadError> {
        Ok(Arc::new(self.load_all(pair.into(), |engine| engine.load_pair(pair, encryption, integrity))?))
    }
}
