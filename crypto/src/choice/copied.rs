//! Owned copies of [`Job`]s and [`PairJob`]s. An engine can go on using them after its caller has given up waiting.

use super::slot::Direction;
use crate::engine::{EngineFailure, Job, Key, NONCE, PairJob, PairKey};
use std::sync::Arc;

/// A copy of a [`Job`] or of a [`PairJob`].
#[derive(Clone, Default, PartialEq)]
pub(super) struct Copied {
    /// The nonce of a [`Job`] or the IV of a [`PairJob`].
    pub(super) iv: [u8; 16],
    /// The data that is authenticated but not encrypted: the AAD of a [`Job`], the suffix of a [`PairJob`].
    pub(super) beside: Vec<u8>,
    /// The text of a [`Job`], the packet of a [`PairJob`].
    pub(super) bytes: Vec<u8>,
    /// Offset of the text in `bytes`.
    pub(super) text: usize,
    pub(super) tag: Vec<u8>,
    pub(super) authentic: bool,
}

impl Copied {
    pub(super) fn set(&mut self, iv: [u8; 16], text: usize, [beside, bytes, tag]: [&[u8]; 3]) {
        for (to, from) in [(&mut self.beside, beside), (&mut self.bytes, bytes), (&mut self.tag, tag)] {
            to.clear();
            to.extend_from_slice(from);
        }
        (self.iv, self.text, self.authentic) = (iv, text, false);
    }

    /// Copies from `other`, reusing the memory of this copy.
    pub(super) fn set_like(&mut self, other: &Self) {
        self.set(other.iv, other.text, [&other.beside, &other.bytes, &other.tag]);
    }

    fn job(&mut self) -> Job<'_> {
        let nonce: [u8; NONCE] = std::array::from_fn(|i| self.iv[i]);
        Job { nonce, aad: &self.beside, text: &mut self.bytes, tag: &mut self.tag, authentic: false }
    }

    fn pair_job(&mut self) -> PairJob<'_> {
        PairJob {
            iv: self.iv,
            packet: &mut self.bytes,
            text: self.text,
            suffix: &self.beside,
            tag: &mut self.tag,
            authentic: false,
        }
    }
}

/// A [`Job`] or a [`PairJob`].
pub(super) trait AnyJob {
    /// Copies the job into `copy`.
    fn copy(&self, copy: &mut Copied);

    /// Takes the result over from a copy that an engine processed.
    fn take(&mut self, direction: Direction, copy: &Copied);

    /// Tag length in bytes.
    fn tag_length(&self) -> usize;

    /// Whether the job has an AAD or a suffix.
    fn has_beside(&self) -> bool;
}

impl AnyJob for Job<'_> {
    fn copy(&self, copy: &mut Copied) {
        let mut iv = [0; 16];
        iv[..NONCE].copy_from_slice(&self.nonce);
        copy.set(iv, 0, [self.aad, self.text, self.tag]);
    }

    fn take(&mut self, direction: Direction, copy: &Copied) {
        take([self.text, self.tag], &mut self.authentic, direction, copy);
    }

    fn tag_length(&self) -> usize {
        self.tag.len()
    }

    fn has_beside(&self) -> bool {
        !self.aad.is_empty()
    }
}

impl AnyJob for PairJob<'_> {
    fn copy(&self, copy: &mut Copied) {
        copy.set(self.iv, self.text, [self.suffix, self.packet, self.tag]);
    }

    fn take(&mut self, direction: Direction, copy: &Copied) {
        take([self.packet, self.tag], &mut self.authentic, direction, copy);
    }

    fn tag_length(&self) -> usize {
        self.tag.len()
    }

    fn has_beside(&self) -> bool {
        !self.suffix.is_empty()
    }
}

fn take([bytes, tag]: [&mut [u8]; 2], authentic: &mut bool, direction: Direction, copy: &Copied) {
    match direction {
        Direction::Seal => tag.copy_from_slice(&copy.tag),
        Direction::Open => *authentic = copy.authentic,
    }
    // A packet that does not authenticate stays unchanged.
    if direction == Direction::Seal || copy.authentic {
        bytes.copy_from_slice(&copy.bytes);
    }
}

/// A key for one type of job.
trait Works<J> {
    fn work(&self, direction: Direction, jobs: &mut [J]) -> Result<(), EngineFailure>;

    /// Seals or opens all jobs, `burst` per call; returns which are authentic.
    fn work_in_bursts(
        &self,
        direction: Direction,
        mut jobs: Vec<J>,
        burst: usize,
        verdict: impl Fn(&J) -> bool,
    ) -> Result<Vec<bool>, EngineFailure> {
        jobs.chunks_mut(burst.max(1)).try_for_each(|jobs| self.work(direction, jobs))?;
        Ok(jobs.iter().map(verdict).collect())
    }
}

impl<'a> Works<Job<'a>> for Arc<dyn Key> {
    fn work(&self, direction: Direction, jobs: &mut [Job<'a>]) -> Result<(), EngineFailure> {
        match direction {
            Direction::Seal => self.seal(jobs),
            Direction::Open => self.open(jobs),
        }
    }
}

impl<'a> Works<PairJob<'a>> for Arc<dyn PairKey> {
    fn work(&self, direction: Direction, jobs: &mut [PairJob<'a>]) -> Result<(), EngineFailure> {
        match direction {
            Direction::Seal => self.seal(jobs),
            Direction::Open => self.open(jobs),
        }
    }
}

/// A [`Key`] or a [`PairKey`].
#[derive(Clone)]
pub(super) enum AnyKey {
    Cipher(Arc<dyn Key>),
    Pair(Arc<dyn PairKey>),
}

impl AnyKey {
    /// Seals or opens the copies, `burst` per call.
    pub(super) fn run(
        &self,
        direction: Direction,
        copies: &mut [Copied],
        burst: usize,
    ) -> Result<(), EngineFailure> {
        let verdicts = match self {
            Self::Cipher(key) => {
                let jobs = copies.iter_mut().map(Copied::job).collect();
                key.work_in_bursts(direction, jobs, burst, |job: &Job<'_>| job.authentic)?
            }
            Self::Pair(key) => {
                let jobs = copies.iter_mut().map(Copied::pair_job).collect();
                key.work_in_bursts(direction, jobs, burst, |job: &PairJob<'_>| job.authentic)?
            }
        };
        for (copy, authentic) in copies.iter_mut().zip(verdicts) {
            copy.authentic = authentic;
        }
        Ok(())
    }
}
