//! One key, loaded into every engine that may have to use it.

use super::Members;
use super::slot::{Direction, Slot};
use super::table::Row;
use crate::engine::{EngineFailure, Job, Key, PairJob, PairKey};
use std::sync::Arc;

/// A key that calls the fastest engine and, if that fails, the next.
pub(super) struct ChosenKey<K: ?Sized> {
    /// The engines' keys by engine index. The first engine's is always present.
    pub(super) keys: Vec<Option<Arc<K>>>,
    pub(super) row: Arc<Row>,
    pub(super) members: Arc<Members>,
}

/// The method that [`Key`] and [`PairKey`] share.
pub(super) trait Restores {
    fn restores(&self) -> bool;
}

impl Restores for dyn Key {
    fn restores(&self) -> bool {
        Key::restores(self)
    }
}

impl Restores for dyn PairKey {
    fn restores(&self) -> bool {
        PairKey::restores(self)
    }
}

impl<K: ?Sized + Restores> ChosenKey<K> {
    /// Processes a burst with the engine chosen for `slot`, and tells which. If it fails, the choice is made again and the
    /// next engine is called.
    #[inline]
    fn call(
        &self,
        slot: Slot,
        mut work: impl FnMut(&K) -> Result<(), EngineFailure>,
    ) -> Result<usize, EngineFailure> {
        let chosen = self.row.chosen(slot);
        if let Some(key) = &self.keys[chosen] {
            if work(key).is_ok() {
                return Ok(chosen);
            }
            self.members.failed(chosen);
            if !key.restores() {
                return Err(EngineFailure);
            }
        }
        self.call_another(slot, chosen, work)
    }

    #[cold]
    fn call_another(
        &self,
        slot: Slot,
        failed: usize,
        mut work: impl FnMut(&K) -> Result<(), EngineFailure>,
    ) -> Result<usize, EngineFailure> {
        let next = self.row.chosen(slot);
        for index in [next, 0].into_iter().filter(|&index| index != failed) {
            let Some(key) = &self.keys[index] else { continue };
            if work(key).is_ok() {
                return Ok(index);
            }
            self.members.failed(index);
            if !key.restores() {
                break;
            }
        }
        Err(EngineFailure)
    }
}

impl Key for ChosenKey<dyn Key> {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        let Some(first) = jobs.first() else { return Ok(()) };
        let slot = Slot::of(Direction::Seal, jobs.len(), first.text.len());
        let engine = self.call(slot, |key| key.seal(jobs))?;
        self.members.count(engine, Direction::Seal, jobs.iter().map(|job| job.text.len()));
        Ok(())
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        let Some(first) = jobs.first() else { return Ok(()) };
        let slot = Slot::of(Direction::Open, jobs.len(), first.text.len());
        let engine = self.call(slot, |key| key.open(jobs))?;
        self.members.count(engine, Direction::Open, jobs.iter().map(|job| job.text.len()));
        Ok(())
    }
}

impl PairKey for ChosenKey<dyn PairKey> {
    fn seal(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        let Some(first) = jobs.first() else { return Ok(()) };
        let slot = Slot::of(Direction::Seal, jobs.len(), first.packet.len() - first.text);
        let engine = self.call(slot, |key| key.seal(jobs))?;
        self.members.count(engine, Direction::Seal, jobs.iter().map(|job| job.packet.len() - job.text));
        Ok(())
    }

    fn open(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        let Some(first) = jobs.first() else { return Ok(()) };
        let slot = Slot::of(Direction::Open, jobs.len(), first.packet.len() - first.text);
        let engine = self.call(slot, |key| key.open(jobs))?;
        self.members.count(engine, Direction::Open, jobs.iter().map(|job| job.packet.len() - job.text));
        Ok(())
    }
}
