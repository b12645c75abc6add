//! An engine behind a driver may stall or lie. It works on copies, in a thread of its own, with a packet among the others
//! whose answer is known: whatever becomes of it, the burst is still there for the next engine.

mod copied;

use super::table::Direction;
use crate::cipher::{Cipher, Pair};
use crate::engine::aws_lc::AwsLc;
use crate::engine::{Engine, EngineFailure, Job, Key, LoadError, PairJob, PairKey};
use copied::{AnyJob, AnyKey, Copied};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use zeroize::Zeroizing;

/// How long a burst may take, and each byte of it: an engine may be slow, which is measured, but not stall.
const DEADLINE: Duration = Duration::from_millis(50);
const PER_BYTE: Duration = Duration::from_nanos(500);
/// How long a key may take to load: with the first of a kind a kernel tests its own implementation.
const LOADING: Duration = Duration::from_secs(5);
/// The packet whose answer is known. It is sealed under the key in use, but never leaves, and its nonce no protocol
/// counts up to. As a counter block its last word has room to count, since devices differ in how far they carry.
const KNOWN_TEXT: [u8; 48] = [0x5a; 48];
const KNOWN_IV: [u8; 16] =
    [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1];

/// An engine under guard.
pub struct Guarded {
    engine: Arc<dyn Engine>,
    attendants: Arc<Attendants>,
    /// There while a thread loads a key that should have been loaded long ago. Nobody else waits for the same.
    late: Mutex<Weak<()>>,
}

impl Guarded {
    /// Guards `engine`.
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self { engine, attendants: Arc::default(), late: Mutex::default() }
    }

    /// Loads a key in a thread of its own, as a driver may have to ask its device for it.
    fn load_any(
        &self,
        cipher: String,
        load: impl FnOnce(&dyn Engine) -> Result<AnyKey, LoadError> + Send + 'static,
    ) -> Result<AnyKey, LoadError> {
        let failed = || LoadError::Failed { engine: self.name(), cipher: cipher.clone() };
        if lock(&self.late).strong_count() > 0 {
            return Err(failed());
        }
        let (give, take) = channel();
        let (engine, loading) = (Arc::clone(&self.engine), Arc::new(()));
        let late = Arc::downgrade(&loading);
        let loads = move || {
            let _ = give.send(load(&*engine));
            drop(loading);
        };
        std::thread::Builder::new().name(String::from("crypto load")).spawn(loads).map_err(|_| failed())?;
        take.recv_timeout(LOADING).unwrap_or_else(|_| {
            *lock(&self.late) = late;
            Err(failed())
        })
    }

    /// Puts a key under guard, once the packet is sealed whose answer is known.
    fn guard(&self, key: AnyKey, reference: AnyKey, tags: &[usize]) -> Result<GuardedKey, EngineFailure> {
        let mut known = Vec::with_capacity(tags.len());
        for &tag in tags {
            let mut sealed = [Copied::default()];
            sealed[0].set(KNOWN_IV, 0, [&[], &KNOWN_TEXT, &vec![0; tag]]);
            reference.run(Direction::Seal, &mut sealed)?;
            known.extend(sealed);
        }
        let attendants = Arc::clone(&self.attendants);
        Ok(GuardedKey { key: Some(key), reference, known, attendants })
    }
}

impl Engine for Guarded {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn version(&self) -> String {
        self.engine.version()
    }

    fn is_accelerator(&self) -> bool {
        self.engine.is_accelerator()
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        let reference = AnyKey::Cipher(AwsLc.load(cipher, secret)?);
        let secret = Zeroizing::new(secret.to_vec());
        let load = move |engine: &dyn Engine| engine.load(cipher, &secret).map(AnyKey::Cipher);
        let key = self.load_any(cipher.to_string(), load)?;
        let failed = |_| LoadError::Failed { engine: self.name(), cipher: cipher.to_string() };
        Ok(Arc::new(self.guard(key, reference, cipher.tag_lengths()).map_err(failed)?))
    }

    fn load_pair(
        &self,
        pair: Pair,
        encryption: &[u8],
        integrity: &[u8],
    ) -> Result<Arc<dyn PairKey>, LoadError> {
        let reference = AnyKey::Pair(AwsLc.load_pair(pair, encryption, integrity)?);
        let secrets = [encryption, integrity].map(|secret| Zeroizing::new(secret.to_vec()));
        let load =
            move |engine: &dyn Engine| engine.load_pair(pair, &secrets[0], &secrets[1]).map(AnyKey::Pair);
        let key = self.load_any(pair.to_string(), load)?;
        let failed = |_| LoadError::Failed { engine: self.name(), cipher: pair.to_string() };
        Ok(Arc::new(self.guard(key, reference, &[pair.integrity.tag_length()]).map_err(failed)?))
    }
}

struct GuardedKey {
    /// There until it is dropped.
    key: Option<AnyKey>,
    reference: AnyKey,
    /// The known packet, sealed, with a tag of each length.
    known: Vec<Copied>,
    attendants: Arc<Attendants>,
}

impl Drop for GuardedKey {
    fn drop(&mut self) {
        // A device may be slow to forget a key, and whoever drops it may have packets to move.
        let key = self.key.take();
        let _ = std::thread::Builder::new().name(String::from("crypto drop")).spawn(move || drop(key));
    }
}

/// A burst on its way to the engine and back.
struct Burst {
    key: AnyKey,
    direction: Direction,
    /// The first `live` are in use; the others are kept for their memory.
    jobs: Vec<Copied>,
    live: usize,
    outcome: Result<(), EngineFailure>,
}

/// A thread that waits for bursts.
struct Attendant {
    give: Sender<Burst>,
    take: Receiver<Burst>,
    /// Memory of the last burst.
    spare: Vec<Copied>,
}

impl Attendant {
    fn start() -> std::io::Result<Self> {
        let (give, given) = channel::<Burst>();
        let (back, take) = channel();
        // It ends when it is forgotten: at once if it waits, or whenever the engine lets it go.
        std::thread::Builder::new().name(String::from("crypto guard")).spawn(move || {
            while let Ok(mut burst) = given.recv() {
                burst.outcome = burst.key.run(burst.direction, &mut burst.jobs[..burst.live]);
                if back.send(burst).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { give, take, spare: Vec::new() })
    }
}

/// Those that wait, as many as there were bursts at the same time.
#[derive(Default)]
struct Attendants(Mutex<Vec<Attendant>>);

impl Attendants {
    fn one(&self) -> Result<Attendant, EngineFailure> {
        let idle = lock(&self.0).pop();
        idle.map_or_else(|| Attendant::start().map_err(|_| EngineFailure), Ok)
    }
}

impl GuardedKey {
    fn run<J: AnyJob>(&self, direction: Direction, jobs: &mut [J]) -> Result<(), EngineFailure> {
        let Some(tag) = jobs.first().map(AnyJob::tag_length) else { return Ok(()) };
        let known = self.known.iter().find(|known| known.tag.len() == tag).ok_or(EngineFailure)?;
        let mut attendant = self.attendants.one()?;
        let mut copies = std::mem::take(&mut attendant.spare);
        let live = jobs.len() + 1;
        copies.resize_with(copies.len().max(live), Copied::default);
        for (copy, job) in copies.iter_mut().zip(&*jobs) {
            job.copy(copy);
        }
        let bytes = if direction == Direction::Seal { &KNOWN_TEXT[..] } else { &known.bytes };
        copies[jobs.len()].set(KNOWN_IV, 0, [&[], bytes, &known.tag]);
        if direction == Direction::Seal {
            copies[jobs.len()].tag.fill(0);
        }
        let key = self.key.clone().ok_or(EngineFailure)?;
        let bytes: usize = copies[..live].iter().map(|copy| copy.bytes.len()).sum();
        let deadline = DEADLINE + PER_BYTE * bytes as u32;
        let burst = Burst { key, direction, jobs: copies, live, outcome: Ok(()) };
        attendant.give.send(burst).map_err(|_| EngineFailure)?;
        // An attendant that is late is forgotten, and what it may still do with its copies concerns nobody.
        let burst = attendant.take.recv_timeout(deadline).map_err(|_| EngineFailure)?;
        let outcome = burst.outcome.and_then(|()| self.judge(known, &burst, jobs));
        if outcome.is_ok() {
            for (job, copy) in jobs.iter_mut().zip(&burst.jobs) {
                job.take(direction, copy);
            }
        }
        attendant.spare = burst.jobs;
        lock(&self.attendants.0).push(attendant);
        outcome
    }

    /// Whether the answer to the known packet is right, and every packet called a forgery is one.
    fn judge<J: AnyJob>(&self, known: &Copied, burst: &Burst, jobs: &[J]) -> Result<(), EngineFailure> {
        let answer = &burst.jobs[burst.live - 1];
        let right = match burst.direction {
            Direction::Seal => (&answer.bytes, &answer.tag) == (&known.bytes, &known.tag),
            Direction::Open => answer.authentic && answer.bytes == KNOWN_TEXT,
        };
        if !right {
            return Err(EngineFailure);
        }
        if burst.direction == Direction::Seal {
            return Ok(());
        }
        for (job, _) in jobs.iter().zip(&burst.jobs).filter(|(_, copy)| !copy.authentic) {
            let mut again = [Copied::default()];
            job.copy(&mut again[0]);
            self.reference.run(Direction::Open, &mut again)?;
            if again[0].authentic {
                return Err(EngineFailure);
            }
        }
        Ok(())
    }
}

impl Key for GuardedKey {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.run(Direction::Seal, jobs)
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.run(Direction::Open, jobs)
    }
}

impl PairKey for GuardedKey {
    fn seal(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        self.run(Direction::Seal, jobs)
    }

    fn open(&self, jobs: &mut [PairJob<'_>]) -> Result<(), EngineFailure> {
        self.run(Direction::Open, jobs)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
