//! Measures one cell of the table: one engine, one subject, one size.

use super::operation::Step;
use super::subject::{Hash, Subject};
use aws_lc_rs::digest;
use crypto::choice::{Found, find};
use crypto::cipher::Pair;
use crypto::engine::cbc::Cbc;
use crypto::engine::digest::OpenSslHash;
use crypto::engine::{Engine, EngineFailure, Job, Key, PairJob, PairKey};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Bytes of text processed in turn: as many as one read of a device returns, and as fit the first-level cache.
const WORKING_SET: usize = 64 * 1024;
/// Maximum number of packets processed in turn.
const MOST_PACKETS: usize = 256;
/// Authenticated bytes before the text: the ESP header.
const HEADER: usize = 8;

/// The parameters of one measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The name of the subject.
    pub subject: String,
    /// The name of the engine.
    pub engine: String,
    /// Whether opening is measured, instead of sealing.
    pub opens: bool,
    /// Text length of a packet in bytes.
    pub size: usize,
    /// Maximum number of packets per call.
    pub burst: usize,
    /// Number of threads; they share one key, and each has its own packets.
    pub threads: usize,
}

/// A loaded key, hash or operation.
#[derive(Clone)]
enum Load {
    Cipher(Arc<dyn Key>),
    Pair(Arc<dyn PairKey>, Pair),
    Cbc(Cbc, &'static str),
    OwnHash(&'static digest::Algorithm),
    OpenSslHash(OpenSslHash),
    Operation(Step),
}

/// Processes some packets; returns their number and the time, or `None` if the engine failed.
type Work = Box<dyn FnMut() -> Option<(usize, Duration)> + Send>;

/// The engines of this machine, with the keys loaded so far.
pub struct Meter {
    found: Found,
    loads: HashMap<(String, String), Option<Load>>,
}

impl Default for Meter {
    fn default() -> Self {
        Self { found: find(), loads: HashMap::new() }
    }
}

impl Meter {
    /// The engines of this machine, and the missing ones.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Packets or operations per second of all threads together; `None` if the engine does not support the subject.
    pub fn rate(&mut self, cell: &Cell, time: Duration) -> Option<f64> {
        let load = self.load(cell)?;
        let works: Vec<Work> = (0..cell.threads.max(1)).map(|_| work(&load, cell)).collect();
        let ready = Barrier::new(works.len());
        std::thread::scope(|scope| {
            let threads: Vec<_> = works
                .into_iter()
                .map(|work| {
                    let ready = &ready;
                    scope.spawn(move || {
                        ready.wait();
                        run(work, time)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().ok().flatten()).sum()
        })
    }

    fn load(&mut self, cell: &Cell) -> Option<Load> {
        let key = (cell.subject.clone(), cell.engine.clone());
        if !self.loads.contains_key(&key) {
            let subject = Subject::by_name(&cell.subject)?;
            let engine = self.found.engines.iter().find(|engine| engine.name() == cell.engine);
            let load = engine.and_then(|engine| load(subject, &**engine));
            self.loads.insert(key.clone(), load);
        }
        self.loads.get(&key)?.clone()
    }
}

/// A key for measurements. The bytes differ, since 3DES with equal keys is DES.
fn secret(length: usize) -> Vec<u8> {
    (1..=length as u8).collect()
}

fn load(subject: Subject, engine: &dyn Engine) -> Option<Load> {
    match (subject, engine.name()) {
        (Subject::Cipher(cipher), _) => {
            engine.load(cipher, &secret(cipher.key_length())).ok().map(Load::Cipher)
        }
        (Subject::Pair(pair), _) => {
            let [encryption, integrity] =
                [pair.encryption.key_length(), pair.integrity.key_length()].map(secret);
            engine.load_pair(pair, &encryption, &integrity).ok().map(|key| Load::Pair(key, pair))
        }
        (Subject::Cbc(cipher), name) => cipher.load(name).map(|_| Load::Cbc(cipher, name)),
        (Subject::Hash(hash), "aws-lc") => Some(Load::OwnHash(match hash {
            Hash::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        })),
        (Subject::Hash(hash), "openssl") => {
            OpenSslHash::load(hash.openssl_name()).ok().map(Load::OpenSslHash)
        }
        (Subject::Operation(operation), "aws-lc") => operation.prepare().map(Load::Operation),
        _ => None,
    }
}

fn run(mut work: Work, time: Duration) -> Option<f64> {
    // Warm up: the first call fills caches and runs deferred initialization of a library.
    work()?;
    let (mut packets, mut spent) = (0, Duration::ZERO);
    let end = Instant::now() + time;
    while packets == 0 || Instant::now() < end {
        let (more, took) = work()?;
        packets += more;
        spent += took;
    }
    Some(packets as f64 / spent.as_secs_f64().max(1e-9))
}

fn work(load: &Load, cell: &Cell) -> Work {
    let count = (WORKING_SET / cell.size.max(1)).clamp(1, MOST_PACKETS);
    let how = (cell.burst.clamp(1, count), cell.opens);
    match load {
        Load::Cipher(key) => {
            let (key, mut packets) = (Arc::clone(key), Packets::new(count, cell.size, 16));
            Box::new(move || {
                packets.with_jobs(|jobs| {
                    cycle(jobs, how, |it| key.seal(it), |it| key.open(it), |job| job.authentic)
                })
            })
        }
        Load::Pair(key, pair) => {
            let size = HEADER + cell.size.next_multiple_of(pair.encryption.block());
            let (key, mut packets) =
                (Arc::clone(key), Packets::new(count, size, pair.integrity.tag_length()));
            Box::new(move || {
                packets.with_pair_jobs(|jobs| {
                    cycle(jobs, how, |it| key.seal(it), |it| key.open(it), |job| job.authentic)
                })
            })
        }
        &Load::Cbc(cipher, engine) => {
            let (mut key, mut text) =
                (cipher.load(engine), vec![0x5a; cell.size.next_multiple_of(cipher.block())]);
            repeating(count, move || key.as_mut()?.encrypt(black_box(&mut text)))
        }
        &Load::OwnHash(algorithm) => hashing(cell.size, count, move |bytes| {
            black_box(digest::digest(algorithm, bytes));
            Some(())
        }),
        &Load::OpenSslHash(hash) => hashing(cell.size, count, move |bytes| hash.digest(bytes).map(drop)),
        Load::Operation(step) => {
            let step = Arc::clone(step);
            Box::new(move || {
                let started = Instant::now();
                step()?;
                Some((1, started.elapsed()))
            })
        }
    }
}

fn hashing(size: usize, count: usize, hash: impl Fn(&[u8]) -> Option<()> + Send + 'static) -> Work {
    let bytes = vec![0x5a; size];
    repeating(count, move || hash(black_box(&bytes)))
}

fn repeating(count: usize, mut work: impl FnMut() -> Option<()> + Send + 'static) -> Work {
    Box::new(move || {
        let started = Instant::now();
        for _ in 0..count {
            work()?;
        }
        Some((count, started.elapsed()))
    })
}

/// The packets of one thread.
struct Packets {
    texts: Vec<Vec<u8>>,
    tags: Vec<Vec<u8>>,
}

impl Packets {
    fn new(count: usize, size: usize, tag: usize) -> Self {
        Self { texts: vec![vec![0x5a; size]; count], tags: vec![vec![0; tag]; count] }
    }

    fn with_jobs<T>(&mut self, work: impl FnOnce(&mut [Job<'_>]) -> T) -> T {
        let packets = self.texts.iter_mut().zip(&mut self.tags).zip(0u64..);
        let mut jobs: Vec<Job<'_>> = packets
            .map(|((text, tag), counter)| {
                let mut nonce = [0; 12];
                nonce[4..].copy_from_slice(&counter.to_be_bytes());
                Job { nonce, aad: &[0; HEADER], text, tag, authentic: false }
            })
            .collect();
        work(&mut jobs)
    }

    fn with_pair_jobs<T>(&mut self, work: impl FnOnce(&mut [PairJob<'_>]) -> T) -> T {
        let packets = self.texts.iter_mut().zip(&mut self.tags);
        let mut jobs: Vec<PairJob<'_>> = packets
            .map(|(packet, tag)| PairJob {
                iv: [7; 16],
                packet,
                text: HEADER,
                suffix: &[],
                tag,
                authentic: false,
            })
            .collect();
        work(&mut jobs)
    }
}

/// Seals every packet; with `opens`, also opens them and times only that.
fn cycle<J>(
    jobs: &mut [J],
    (burst, opens): (usize, bool),
    seal: impl FnMut(&mut [J]) -> Result<(), EngineFailure>,
    open: impl FnMut(&mut [J]) -> Result<(), EngineFailure>,
    is_authentic: impl Fn(&J) -> bool,
) -> Option<(usize, Duration)> {
    let mut started = Instant::now();
    jobs.chunks_mut(burst).try_for_each(seal).ok()?;
    if opens {
        started = Instant::now();
        jobs.chunks_mut(burst).try_for_each(open).ok()?;
    }
    let took = started.elapsed();
    (!opens || jobs.iter().all(is_authentic)).then_some((jobs.len(), took))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(subject: &str, engine: &str, opens: bool, threads: usize) -> Cell {
        let (subject, engine) = (subject.to_owned(), engine.to_owned());
        Cell { subject, engine, opens, size: 1400, burst: 32, threads }
    }

    #[test]
    fn the_built_in_engine_has_a_speed_in_everything() {
        let mut meter = Meter::default();
        for subject in Subject::usual() {
            let name = subject.name();
            let rate = meter.rate(&cell(&name, "aws-lc", subject.opens(), 1), Duration::from_micros(100));
            assert!(rate.is_some_and(|rate| rate > 1.0), "{name}: {rate:?}");
        }
    }

    #[test]
    fn threads_share_a_key_and_unknown_names_have_no_speed() {
        let mut meter = Meter::default();
        let time = Duration::from_micros(100);
        assert!(meter.rate(&cell("aes-128-gcm", "aws-lc", true, 3), time).is_some());
        assert_eq!(meter.rate(&cell("aes-128-gcm", "abacus", false, 1), time), None);
        assert_eq!(meter.rate(&cell("rot13", "aws-lc", false, 1), time), None);
    }
}
