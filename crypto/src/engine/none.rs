//! No encryption at all: what is left of a path's cost when the cipher is taken out of it.
//!
//! Only benchmarks construct it; no configuration can name it.

use super::{Engine, EngineFailure, Job, Key, LoadError, PairJob, PairKey};
use crate::cipher::{Cipher, Pair};
use std::sync::Arc;

/// The engine that leaves every packet as it is, and takes every packet for authentic.
pub struct None;

impl Engine for None {
    fn name(&self) -> &'static str {
        "none"
    }

    fn version(&self) -> String {
        String::from("built in")
    }

    fn load(&self, _: Cipher, _: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        Ok(Arc::new(NoneKey))
    }

    fn load_pair(&self, _: Pair, _: &[u8], _: &[u8]) -> Result<Arc<dyn PairKey>, LoadError> {
        Ok(Arc::new(NoneKey))
    }
}

struct NoneKey;

impl Key for NoneKey {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        for job in jobs {
            job.tag.fill(0);
        }
        Ok(())
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        for job in jobs {
            job.authentic = true;
        }
        Ok(())
    }
}

impl PairKey for NoneKey {
    fn seal(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        for job in jobs {
            job.tag.fill(0);
        }
        Ok(())
    }

    fn open(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        for job in jobs {
            job.authentic = true;
        }
        Ok(())
    }
}
