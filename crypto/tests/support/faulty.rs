//! An engine that misbehaves on request.

use crypto::Cipher;
use crypto::cipher::Pair;
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, EngineFailure, Job, Key, LoadError, PairJob, PairKey};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

pub const WORKS: u8 = 0;
pub const FAILS: u8 = 1;
pub const STALLS: u8 = 2;
pub const WRONG: u8 = 3;
pub const FAILS_HALFWAY: u8 = 4;
/// One packet of each burst is wrong, a different one each time. Single packets are right.
pub const ONE_WRONG: u8 = 5;
/// Reports every packet as authentic.
pub const ACCEPTS_ALL: u8 = 6;
/// Reports every packet as forged.
pub const REJECTS_ALL: u8 = 7;

/// AWS-LC with faults.
#[derive(Clone, Default)]
pub struct Faulty {
    pub how: Arc<AtomicU8>,
    pub calls: Arc<AtomicUsize>,
    pub accelerator: bool,
    /// What `holds_descriptors` returns.
    pub holds_descriptors: bool,
    /// Number of keys requested, and whether loading fails.
    pub loads: Arc<AtomicUsize>,
    pub loads_none: Arc<AtomicBool>,
}

impl Faulty {
    fn loading(&self, cipher: impl ToString) -> Result<(), LoadError> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        if self.loads_none.load(Ordering::Relaxed) {
            return Err(LoadError::Failed { engine: "faulty", cipher: cipher.to_string() });
        }
        Ok(())
    }
}

impl Engine for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
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
        Ok(Arc::new(FaultyKey(self.clone(), AwsLc.load(cipher, secret)?)))
    }

    fn load_pair(
        &self,
        pair: Pair,
        encryption: &[u8],
        integrity: &[u8],
    ) -> Result<Arc<dyn PairKey>, LoadError> {
        self.loading(pair)?;
        Ok(Arc::new(FaultyKey(self.clone(), AwsLc.load_pair(pair, encryption, integrity)?)))
    }
}

/// A packet whose result can be made wrong.
trait Spoilable {
    /// Its bytes, and whether it is authentic.
    fn result(&mut self) -> (&mut [u8], &mut bool);

    fn spoil(&mut self) {
        let (bytes, authentic) = self.result();
        bytes.first_mut().into_iter().for_each(|byte| *byte ^= 1);
        *authentic = !*authentic;
    }
}

impl Spoilable for Job<'_> {
    fn result(&mut self) -> (&mut [u8], &mut bool) {
        (self.text, &mut self.authentic)
    }
}

impl Spoilable for PairJob<'_> {
    fn result(&mut self) -> (&mut [u8], &mut bool) {
        (self.packet, &mut self.authentic)
    }
}

struct FaultyKey<K: ?Sized>(Faulty, Arc<K>);

impl<K: ?Sized> FaultyKey<K> {
    fn run<J: Spoilable>(
        &self,
        jobs: &mut [J],
        work: impl Fn(&mut [J]) -> Result<(), EngineFailure>,
    ) -> Result<(), EngineFailure> {
        let call = self.0.calls.fetch_add(1, Ordering::Relaxed);
        match self.0.how.load(Ordering::Relaxed) {
            FAILS => return Err(EngineFailure),
            STALLS => std::thread::sleep(Duration::from_millis(300)),
            WRONG => {
                work(jobs)?;
                jobs.iter_mut().for_each(Spoilable::spoil);
                return Ok(());
            }
            ONE_WRONG => {
                work(jobs)?;
                if jobs.len() > 3 {
                    let which = call % jobs.len();
                    jobs[which].spoil();
                }
                return Ok(());
            }
            how @ (ACCEPTS_ALL | REJECTS_ALL) => {
                work(jobs)?;
                for job in jobs {
                    *job.result().1 = how == ACCEPTS_ALL;
                }
                return Ok(());
            }
            FAILS_HALFWAY => {
                // The first half of the burst stays processed: `restores` is false.
                let half = jobs.len() / 2;
                work(&mut jobs[..half])?;
                return Err(EngineFailure);
            }
            _ => {}
        }
        work(jobs)
    }
}

impl Key for FaultyKey<dyn Key> {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.run(jobs, |jobs| self.1.seal(jobs))
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.run(jobs, |jobs| self.1.open(jobs))
    }

    fn restores(&self) -> bool {
        self.0.how.load(Ordering::Relaxed) != FAILS_HALFWAY
    }
}

impl PairKey for FaultyKey<dyn PairKey> {
    fn seal(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        self.run(jobs, |jobs| self.1.seal(jobs))
    }

    fn open(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        self.run(jobs, |jobs| self.1.open(jobs))
    }

    fn restores(&self) -> bool {
        self.0.how.load(Ordering::Relaxed) != FAILS_HALFWAY
    }
}
