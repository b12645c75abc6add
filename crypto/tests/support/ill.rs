//! An engine that falls ill when it is told to.

use crypto::Cipher;
use crypto::cipher::Pair;
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, EngineFailure, Job, Key, LoadError, PairJob, PairKey};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

pub const WELL: u8 = 0;
pub const ERRS: u8 = 1;
pub const STALLS: u8 = 2;
pub const LIES: u8 = 3;
pub const BREAKS: u8 = 4;
/// Answers one packet of a burst wrongly, another each time, and no packet that goes alone.
pub const LIES_ONCE: u8 = 5;
/// Calls everything authentic.
pub const TRUSTS: u8 = 6;
/// Calls everything a forgery.
pub const DOUBTS: u8 = 7;

/// AWS-LC, now and then ill.
#[derive(Clone, Default)]
pub struct Ill {
    pub how: Arc<AtomicU8>,
    pub calls: Arc<AtomicUsize>,
    pub accelerator: bool,
    /// Whether it says that its keys hold descriptors.
    pub holds_descriptors: bool,
    /// Keys that were asked of it, and whether it gives none.
    pub loads: Arc<AtomicUsize>,
    pub loads_none: Arc<AtomicBool>,
}

impl Ill {
    fn loading(&self, cipher: impl ToString) -> Result<(), LoadError> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        if self.loads_none.load(Ordering::Relaxed) {
            return Err(LoadError::Failed { engine: "ill", cipher: cipher.to_string() });
        }
        Ok(())
    }
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

    fn holds_descriptors(&self) -> bool {
        self.holds_descriptors
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        self.loading(cipher)?;
        Ok(Arc::new(IllKey(self.clone(), AwsLc.load(cipher, secret)?)))
    }

    fn load_pair(
        &self,
        pair: Pair,
        encryption: &[u8],
        integrity: &[u8],
    ) -> Result<Arc<dyn PairKey>, LoadError> {
        self.loading(pair)?;
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
        verdict: impl Fn(&mut J, bool),
    ) -> Result<(), EngineFailure> {
        let call = self.0.calls.fetch_add(1, Ordering::Relaxed);
        match self.0.how.load(Ordering::Relaxed) {
            ERRS => return Err(EngineFailure),
            STALLS => std::thread::sleep(Duration::from_millis(300)),
            LIES => {
                work(jobs)?;
                jobs.iter_mut().for_each(spoil);
                return Ok(());
            }
            LIES_ONCE => {
                work(jobs)?;
                if jobs.len() > 3 {
                    let which = call % jobs.len();
                    spoil(&mut jobs[which]);
                }
                return Ok(());
            }
            how @ (TRUSTS | DOUBTS) => {
                work(jobs)?;
                for job in jobs {
                    verdict(job, how == TRUSTS);
                }
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

impl IllKey<dyn Key> {
    fn with(
        &self,
        jobs: &mut [Job<'_>],
        work: impl Fn(&mut [Job<'_>]) -> Result<(), EngineFailure>,
    ) -> Result<(), EngineFailure> {
        self.run(jobs, work, |job| spoil(job.text, &mut job.authentic), |job, word| job.authentic = word)
    }
}

impl Key for IllKey<dyn Key> {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.with(jobs, |jobs| self.1.seal(jobs))
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.with(jobs, |jobs| self.1.open(jobs))
    }

    fn restores(&self) -> bool {
        self.0.how.load(Ordering::Relaxed) != BREAKS
    }
}

impl IllKey<dyn PairKey> {
    fn with(
        &self,
        jobs: &mut [PairJob<'_>],
        work: impl Fn(&mut [PairJob<'_>]) -> Result<(), EngineFailure>,
    ) -> Result<(), EngineFailure> {
        self.run(jobs, work, |job| spoil(job.packet, &mut job.authentic), |job, word| job.authentic = word)
    }
}

impl PairKey for IllKey<dyn PairKey> {
    fn seal(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        self.with(jobs, |jobs| self.1.seal(jobs))
    }

    fn open(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        self.with(jobs, |jobs| self.1.open(jobs))
    }

    fn restores(&self) -> bool {
        self.0.how.load(Ordering::Relaxed) != BREAKS
    }
}
