//! Jobs of either kind as copies, which an engine may work on after everybody has forgotten them.

use super::slot::Direction;
use crate::engine::{EngineFailure, Job, Key, NONCE, PairJob, PairKey};
use std::sync::Arc;

/// A copy of a [`Job`] or of a [`PairJob`].
#[derive(Clone, Default, PartialEq)]
pub(super) struct Copied {
    /// A nonce, or an IV.
    pub(super) iv: [u8; 16],
    /// What is authenticated besides `bytes`: before them, or after.
    pub(super) beside: Vec<u8>,
    /// The text, or the packet that has it.
    pub(super) bytes: Vec<u8>,
    /// Where the text begins.
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

    /// Makes it a copy of another, in the memory that it has.
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

/// A job of either kind.
pub(super) trait AnyJob {
    /// Makes `copy` a copy of it.
    fn copy(&self, copy: &mut Copied);

    /// Takes over what became of its copy.
    fn take(&mut self, direction: Direction, copy: &Copied);

    /// Bytes of its tag.
    fn tag_length(&self) -> usize;

    /// Whether anything is authenticated besides the packet.
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
    // What is not authentic stays as it came.
    if direction == Direction::Seal || copy.authentic {
        bytes.copy_from_slice(&copy.bytes);
    }
}

/// A key that takes one kind of jobs.
trait Works<J> {
    fn work(&self, direction: Direction, jobs: &mut [J]) -> Result<(), EngineFailure>;

    /// Seals or opens all, `burst` in a call; the verdicts.
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

/// A key of either kind.
#[derive(Clone)]
pub(super) enum AnyKey {
    Cipher(Arc<dyn Key>),
    Pair(Arc<dyn PairKey>),
}

impl AnyKey {
    /// Seals or opens the copies, `burst` in a call.
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
