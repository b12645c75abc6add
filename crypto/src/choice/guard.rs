//! Guards engines that depend on a driver, which may hang or return wrong results.
//!
//! The engine works on copies, in a thread of its own and with a deadline. Each burst includes a packet whose result is
//! known and, for opening, a forgery. If the engine fails, the burst is unchanged and the next engine processes it.

use super::copied::{AnyJob, AnyKey, Copied};
use super::slot::Direction;
use crate::cipher::{Cipher, Pair};
use crate::engine::aws_lc::AwsLc;
use crate::engine::{Engine, EngineFailure, Job, Key, LoadError, PairJob, PairKey};
use crate::lock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use zeroize::Zeroizing;

/// Time limit of a burst, plus a limit per byte. A slow engine is measured as slow; a hung one is given up.
pub const DEADLINE: Duration = Duration::from_millis(50);
const PER_BYTE: Duration = Duration::from_nanos(500);
/// How long loading a key may take: at first use the kernel tests an implementation.
const LOADING: Duration = Duration::from_secs(5);
/// Text length of the known packet. It is sealed under the key in use but never sent, with a nonce that no protocol
/// reaches. Its IV, as a counter block, leaves the last word room to count, because devices differ in how far they
/// carry.
const KNOWN_TEXT: usize = 48;
/// Bytes before the text of a [`PairJob`]: ESP header and IV.
const KNOWN_HEADER: usize = 24;
/// AAD or suffix of the known packet, if the packets of the burst have one.
const KNOWN_BESIDE: [u8; 8] = [0xa5; 8];
const KNOWN_IV: [u8; 16] =
    [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1];

/// The bytes that AWS-LC may recompute are one in so many of all bytes: for reported forgeries, and for other packets.
const FORGERIES: i64 = 8;
const SAMPLES: i64 = 64;
/// Maximum credit in bytes: see [`Credit`].
const MOST_CREDIT: i64 = 1 << 20;
/// Cost of recomputing a packet, in bytes, in addition to its length.
const EACH: usize = 128;

/// An engine whose results are checked, with a deadline for each call.
pub struct Guarded {
    engine: Arc<dyn Engine>,
    threads: Arc<GuardThreads>,
    /// Alive while a thread still loads a key past its deadline. No other thread starts loading until then.
    abandoned: Mutex<Weak<()>>,
}

impl Guarded {
    /// Guards `engine`.
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self { engine, threads: Arc::default(), abandoned: Mutex::default() }
    }

    /// Loads a key in a thread of its own, because a driver may have to ask its device.
    fn load_any(
        &self,
        cipher: String,
        load: impl FnOnce(&dyn Engine) -> Result<AnyKey, LoadError> + Send + 'static,
    ) -> Result<AnyKey, LoadError> {
        let failed = || LoadError::Failed { engine: self.name(), cipher: cipher.clone() };
        if lock(&self.abandoned).strong_count() > 0 || self.threads.is_engine_blocked() {
            return Err(failed());
        }
        let (give, take) = channel();
        let (engine, loading) = (Arc::clone(&self.engine), Arc::new(()));
        let abandoned = Arc::downgrade(&loading);
        let loads = move || {
            let _ = give.send(load(&*engine));
            drop(loading);
        };
        std::thread::Builder::new().name(String::from("crypto load")).spawn(loads).map_err(|_| failed())?;
        take.recv_timeout(LOADING).unwrap_or_else(|_| {
            *lock(&self.abandoned) = abandoned;
            Err(failed())
        })
    }

    /// Wraps a key, with a known packet for each tag length, both with and without AAD.
    fn guard(&self, key: AnyKey, reference: AnyKey, tags: &[usize]) -> Result<GuardedKey, EngineFailure> {
        let mut known = Vec::with_capacity(2 * tags.len());
        for &tag in tags {
            for beside in [&[][..], &KNOWN_BESIDE] {
                known.push(KnownAnswer::new(&reference, tag, beside)?);
            }
        }
        Ok(GuardedKey {
            key: Some(key),
            reference,
            known,
            threads: Arc::clone(&self.threads),
            bursts: AtomicU64::new(0),
            forgeries: Credit::full(FORGERIES),
            samples: Credit::empty(SAMPLES),
        })
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

    fn holds_descriptors(&self) -> bool {
        self.engine.holds_descriptors()
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

/// A packet whose result is known, as plaintext and as sealed by AWS-LC.
struct KnownAnswer {
    plain: Copied,
    sealed: Copied,
}

impl KnownAnswer {
    fn new(reference: &AnyKey, tag: usize, beside: &[u8]) -> Result<Self, EngineFailure> {
        let text = if matches!(reference, AnyKey::Pair(_)) { KNOWN_HEADER } else { 0 };
        let mut plain = Copied::default();
        plain.set(
            KNOWN_IV,
            text,
            [beside, &[0x5a; KNOWN_TEXT + KNOWN_HEADER][..text + KNOWN_TEXT], &vec![0; tag]],
        );
        let mut sealed = plain.clone();
        reference.run(Direction::Seal, std::slice::from_mut(&mut sealed), 1)?;
        Ok(Self { plain, sealed })
    }

    /// Number of test packets added to a burst.
    fn count(direction: Direction) -> usize {
        match direction {
            Direction::Seal => 1,
            Direction::Open => 2,
        }
    }

    /// Fills in the test packets of a burst. For opening, the second is a forgery: one bit of its tag is flipped,
    /// another one in each burst.
    fn fill(&self, direction: Direction, number: u64, copies: &mut [Copied]) {
        match (direction, copies) {
            (Direction::Seal, [plain]) => plain.set_like(&self.plain),
            (Direction::Open, [sealed, forged]) => {
                sealed.set_like(&self.sealed);
                forged.set_like(&self.sealed);
                let bit = number as usize % (8 * forged.tag.len());
                forged.tag[bit / 8] ^= 1 << (bit % 8);
            }
            _ => unreachable!("`count` gives the number of test packets"),
        }
    }

    /// Whether the engine returned the right results for the test packets.
    fn is_right(&self, direction: Direction, answers: &[Copied]) -> bool {
        match (direction, answers) {
            (Direction::Seal, [answer]) => {
                (&answer.bytes, &answer.tag) == (&self.sealed.bytes, &self.sealed.tag)
            }
            (Direction::Open, [answer, forged]) => {
                answer.authentic && answer.bytes == self.plain.bytes && !forged.authentic
            }
            _ => false,
        }
    }
}

/// How many bytes may be recomputed: a share of all bytes processed.
struct Credit {
    bytes: AtomicI64,
    share: i64,
}

impl Credit {
    fn full(share: i64) -> Self {
        Self { bytes: AtomicI64::new(MOST_CREDIT), share }
    }

    fn empty(share: i64) -> Self {
        Self { bytes: AtomicI64::new(0), share }
    }

    fn earn(&self, bytes: usize) {
        let before = self.bytes.fetch_add(bytes as i64 / self.share, Ordering::Relaxed);
        if before > MOST_CREDIT {
            self.bytes.fetch_min(MOST_CREDIT, Ordering::Relaxed);
        }
    }

    /// Two threads may both spend the last credit, which does no harm.
    fn spend(&self, bytes: usize) -> bool {
        let bytes = (bytes + EACH) as i64;
        let has = self.bytes.load(Ordering::Relaxed) >= bytes;
        if has {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        has
    }
}

struct GuardedKey {
    /// `Some` until the drop.
    key: Option<AnyKey>,
    reference: AnyKey,
    /// One for each tag length, with and without AAD.
    known: Vec<KnownAnswer>,
    threads: Arc<GuardThreads>,
    bursts: AtomicU64,
    forgeries: Credit,
    samples: Credit,
}

impl Drop for GuardedKey {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.threads.drop_key(key);
        }
    }
}

/// A burst that is passed to a guard thread and back.
struct Burst {
    key: AnyKey,
    direction: Direction,
    /// The first `live` copies are in use. The others keep their memory for later bursts.
    jobs: Vec<Copied>,
    live: usize,
    outcome: Result<(), EngineFailure>,
}

/// A thread that runs bursts on the engine.
struct GuardThread {
    give: Sender<Burst>,
    take: Receiver<Burst>,
    /// Alive as long as the thread.
    life: Weak<()>,
    /// Memory kept for the copies of the next burst and for recomputed packets.
    spare: Vec<Copied>,
    again: Vec<Copied>,
}

impl GuardThread {
    fn start() -> std::io::Result<Self> {
        let (give, given) = channel::<Burst>();
        let (back, take) = channel();
        let living = Arc::new(());
        let life = Arc::downgrade(&living);
        // The thread ends when `GuardThread` is dropped: at once if idle, otherwise when the engine returns.
        std::thread::Builder::new().name(String::from("crypto guard")).spawn(move || {
            while let Ok(mut burst) = given.recv() {
                let live = burst.live;
                burst.outcome = burst.key.run(burst.direction, &mut burst.jobs[..live], live);
                if back.send(burst).is_err() {
                    break;
                }
            }
            drop(living);
        })?;
        Ok(Self { give, take, life, spare: Vec::new(), again: Vec::new() })
    }
}

/// The guard threads of one engine.
#[derive(Default)]
struct GuardThreads {
    /// Idle threads: at most as many as bursts ran at the same time.
    idle: Mutex<Vec<GuardThread>>,
    /// Threads that were given up while the engine still blocks them.
    abandoned: Mutex<Vec<Weak<()>>>,
    /// Feeds the thread that drops keys. A device may be slow to release a key, and the caller may have packets to
    /// process.
    reaper: Mutex<Option<Sender<AnyKey>>>,
}

impl GuardThreads {
    /// A thread to run a burst. Fails while the engine blocks a thread that was given up: each such thread keeps its
    /// key and packets in memory. So a hung device blocks at most as many threads as there are workers.
    fn thread(&self) -> Result<GuardThread, EngineFailure> {
        if self.is_engine_blocked() {
            return Err(EngineFailure);
        }
        let idle = lock(&self.idle).pop();
        idle.map_or_else(|| GuardThread::start().map_err(|_| EngineFailure), Ok)
    }

    fn is_engine_blocked(&self) -> bool {
        let mut abandoned = lock(&self.abandoned);
        abandoned.retain(|life| life.strong_count() > 0);
        !abandoned.is_empty()
    }

    fn give_up(&self, thread: GuardThread) {
        lock(&self.abandoned).push(thread.life.clone());
    }

    fn drop_key(&self, key: AnyKey) {
        let mut reaper = lock(&self.reaper);
        if reaper.is_none() {
            let (give, take) = channel::<AnyKey>();
            let drop_keys = move || take.into_iter().for_each(drop);
            let started = std::thread::Builder::new().name(String::from("crypto drop")).spawn(drop_keys);
            *reaper = started.is_ok().then_some(give);
        }
        // If the thread could not be started, the key is dropped here.
        if let Some(give) = &*reaper {
            let _ = give.send(key);
        }
    }
}

impl GuardedKey {
    fn run<J: AnyJob>(&self, direction: Direction, jobs: &mut [J]) -> Result<(), EngineFailure> {
        let Some(first) = jobs.first() else { return Ok(()) };
        let (tag, beside) = (first.tag_length(), first.has_beside());
        let fits =
            |known: &&KnownAnswer| known.plain.tag.len() == tag && known.plain.beside.is_empty() != beside;
        let known = self.known.iter().find(fits).ok_or(EngineFailure)?;
        let key = self.key.clone().ok_or(EngineFailure)?;
        let number = self.bursts.fetch_add(1, Ordering::Relaxed);
        let mut thread = self.threads.thread()?;
        let mut copies = std::mem::take(&mut thread.spare);
        let live = jobs.len() + KnownAnswer::count(direction);
        copies.resize_with(copies.len().max(live), Copied::default);
        for (copy, job) in copies.iter_mut().zip(&*jobs) {
            job.copy(copy);
        }
        known.fill(direction, number, &mut copies[jobs.len()..live]);
        let bytes: usize = copies[..live].iter().map(|copy| copy.bytes.len()).sum();
        let deadline = DEADLINE + PER_BYTE * bytes as u32;
        let burst = Burst { key, direction, jobs: copies, live, outcome: Ok(()) };
        thread.give.send(burst).map_err(|_| EngineFailure)?;
        let Ok(burst) = thread.take.recv_timeout(deadline) else {
            // The engine can still write to the copies, but not to the packets.
            self.threads.give_up(thread);
            return Err(EngineFailure);
        };
        let outcome = burst
            .outcome
            .and_then(|()| right(known.is_right(direction, &burst.jobs[jobs.len()..live])))
            .and_then(|()| {
                self.compute_again(direction, jobs, &burst.jobs, (number, bytes), &mut thread.again)
            });
        if outcome.is_ok() {
            for (job, copy) in jobs.iter_mut().zip(&burst.jobs) {
                job.take(direction, copy);
            }
        }
        thread.spare = burst.jobs;
        lock(&self.threads.idle).push(thread);
        outcome
    }

    /// Recomputes a sample of the burst with AWS-LC, in one call: packets that the engine reported as forged, and
    /// others.
    ///
    /// A packet that is wrongly reported as forged is lost. But recomputing every forgery would let an attacker halve
    /// the throughput by sending forgeries. So the bytes recomputed are limited to a share of all bytes. An engine that
    /// often rejects authentic packets is still found soon.
    fn compute_again<J: AnyJob>(
        &self,
        direction: Direction,
        jobs: &[J],
        done: &[Copied],
        (number, bytes): (u64, usize),
        again: &mut Vec<Copied>,
    ) -> Result<(), EngineFailure> {
        self.forgeries.earn(bytes);
        self.samples.earn(bytes);
        // Start at a varying packet, so that the sample does not depend on the rhythm in which credit is earned.
        let start = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % jobs.len();
        let doubtful = |index: &usize| {
            let is_forged = direction == Direction::Open && !done[*index].authentic;
            let credit = if is_forged { &self.forgeries } else { &self.samples };
            (is_forged || *index == start) && credit.spend(done[*index].bytes.len())
        };
        let chosen: Vec<usize> = (start..jobs.len()).chain(0..start).filter(doubtful).collect();
        again.resize_with(again.len().max(chosen.len()), Copied::default);
        for (copy, &index) in again.iter_mut().zip(&chosen) {
            jobs[index].copy(copy);
        }
        self.reference.run(direction, &mut again[..chosen.len()], chosen.len())?;
        let agree = |(&index, again): (&usize, &Copied)| match direction {
            Direction::Seal => (&done[index].bytes, &done[index].tag) == (&again.bytes, &again.tag),
            Direction::Open => {
                done[index].authentic == again.authentic
                    && (!again.authentic || done[index].bytes == again.bytes)
            }
        };
        right(chosen.iter().zip(&*again).all(agree))
    }
}

fn right(is_right: bool) -> Result<(), EngineFailure> {
    is_right.then_some(()).ok_or(EngineFailure)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_share_of_many_forgeries_is_recomputed() {
        let credit = Credit::full(FORGERIES);
        let packet = 1400;
        let all = (0..100_000).filter(|_| {
            credit.earn(packet);
            credit.spend(packet)
        });
        let most = MOST_CREDIT as usize / packet + 100_000 / FORGERIES as usize;
        let again = all.count();
        assert!((100_000 / 10..=most).contains(&again), "{again}");
    }

    #[test]
    fn forgeries_flip_each_bit_of_the_tag_in_turn() {
        let reference = AnyKey::Cipher(AwsLc.load(Cipher::Aes128Gcm, &[7; 16]).expect("it loads"));
        let known = KnownAnswer::new(&reference, 8, &KNOWN_BESIDE).expect("it seals");
        let mut wrong = [0; 8];
        for number in 0..64 {
            let mut packets = [Copied::default(), Copied::default()];
            known.fill(Direction::Open, number, &mut packets);
            for (wrong, (ours, right)) in wrong.iter_mut().zip(packets[1].tag.iter().zip(&packets[0].tag)) {
                *wrong |= ours ^ right;
            }
            reference.run(Direction::Open, &mut packets, 2).expect("it opens");
            assert!(known.is_right(Direction::Open, &packets), "{number}");
            packets[1].authentic = true;
            assert!(!known.is_right(Direction::Open, &packets), "a forgery that was accepted");
        }
        assert_eq!(wrong, [0xff; 8]);
    }
}
