//! An engine that falls ill when it is told to.

use crypto::Cipher;
use crypto::cipher::Pair;
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, EngineFailure, Job, Key, LoadError, PairJob, PairKey};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

pub const WELL: u8 = 0;
pub const ERRS: u8 = 1;
pub const STALLS: u8 = 2;
pub const LIES: u8 = 3;
pub const BREAKS: u8 = 4;

/// AWS-LC, now and then ill.
#[derive(Clone, Default)]
pub struct Ill {
    pub how: Arc<AtomicU8>,
    pub calls: Arc<AtomicUsize>,
    pub accelerator: bool,
}

impl Engine for Ill {
    fn name(&self) -> &'static str {
        "ill"
    }

    fn version(&self) -> String {
        String::from("1")
    }

    fn is_accelerator(&self) -> bool {
        self.accelerator
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        Ok(Arc::new(IllKey(self.clone(), AwsLc.load(cipher, secret)?)))
    }

    fn load_pair(
        &self,
        pair: Pair,
        encryption: &[u8],
        integrity: &[u8],
    ) -> Result<Arc<dyn PairKey>, LoadError> {
        Ok(Arc::new(IllKey(self.clone(), AwsLc.load_pair(pair, encryption, integrity)?)))
    }
}

struct IllKey<K: ?Sized>(Ill, Arc<K>);

impl<K: ?Sized> IllKey<K> {
    fn run<J>(
        &self,
        jobs: &mut [J],
        work: impl Fn(&mut [J]) -> Result<(), EngineFailure>,
        spoil: impl Fn(&mut J),
    ) -> Result<(), EngineFailure> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        match self.0.how.load(Ordering::Relaxed) {
            ERRS => return Err(EngineFailure),
            STALLS => std::thread::sleep(Duration::from_millis(300)),
            LIES => {
                work(jobs)?;
                jobs.iter_mut().for_each(spoil);
                return Ok(());
            }
            BREAKS => {
                // With half of its work done, which it may not leave behind.
                let half = jobs.len() / 2;
                work(&mut jobs[..half])?;
                return Err(EngineFailure);
            }
            _ => {}
        }
        work(jobs)
    }
}

fn spoil(bytes: &mut [u8], authentic: &mut bool) {
    bytes.first_mut().into_iter().for_each(|byte| *byte ^= 1);
    *authentic = !*authentic;
}

impl Key for IllKey<dyn Key> {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.run(jobs, |jobs| self.1.seal(jobs), |job| spoil(job.text, &mut job.authentic))
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.run(jobs, |jobs| self.1.open(jobs), |job| spoil(job.text, &mut job.authentic))
    }

    fn restores(&self) -> bool {
        self.0.how.load(Ordering::Relaxed) != BREAKS
    }
}

impl PairKey for IllKey<dyn PairKey> {
    fn seal(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        self.run(jobs, |jobs| self.1.seal(jobs), |job| spoil(job.packet, &mut job.authentic))
    }

    fn open(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        self.run(jobs, |jobs| self.1.open(jobs), |job| spoil(job.packet, &mut job.authentic))
    }
}
