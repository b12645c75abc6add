//! An engine that does not encrypt. Benchmarks use it to find the cost of a path without its cipher.
//!
//! Only benchmarks and tests construct it; no configuration can name it.

use super::{Engine, EngineFailure, Job, Key, LoadError, PairJob, PairKey};
use crate::cipher::{Cipher, Pair};
use std::sync::Arc;

/// Leaves every packet unchanged and reports every packet as authentic.
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
