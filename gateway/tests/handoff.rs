//! Bursts that crypto threads seal and open: they leave in the order in which they came, and no packet of a burst that failed leaves.

#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use crypto::Cipher;
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, EngineFailure, Job, Key, LoadError};
use gateway::bed::Bed;
use gateway::datapath::handoff::{CryptoThreads, CryptoThreadsSlot};
use port::Wake;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::v4;

/// Packets of a train, and trains.
const TRAIN: u32 = 60;
const TRAINS: u32 = 600;
const TRIES: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// An engine whose calls take longer and shorter, so that bursts are done in another order than they came in.
struct Uneven {
    /// The call that panics, if one does.
    panics: Option<u32>,
}

struct UnevenKey {
    key: Arc<dyn Key>,
    calls: AtomicU32,
    panics: Option<u32>,
}

impl Engine for Uneven {
    fn name(&self) -> &'static str {
        "uneven"
    }

    fn version(&self) -> String {
        String::new()
    }

    fn load(&self, cipher: Cipher, secret: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        let key = AwsLc.load(cipher, secret)?;
        Ok(Arc::new(UnevenKey { key, calls: AtomicU32::new(0), panics: self.panics }))
    }
}

impl UnevenKey {
    fn dawdle(&self) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        assert_ne!(self.panics, Some(call), "as the test wants it");
        if call.is_multiple_of(3) {
            thread::sleep(Duration::from_micros(u64::from(call % 7) * 20));
        }
    }
}

impl Key for UnevenKey {
    fn seal(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.dawdle();
        self.key.seal(jobs)
    }

    fn open(&self, jobs: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        self.dawdle();
        self.key.open(jobs)
    }
}

/// What came out of a tunnel with crypto threads.
struct Carried {
    /// The numbers of the packets.
    numbers: Vec<u32>,
    handed_off: u64,
    /// Whether both workers served until they were stopped.
    is_whole: bool,
}

fn carry(panics: Option<u32>) -> Carried {
    let bed: Bed = Bed::new(&Uneven { panics }).expect("the engine has the cipher");
    bed.allow(&["0.0.0.0/0".parse().expect("literal")]);
    let (crypto_threads, bodies) = CryptoThreads::new(3, None);
    let counters = Arc::clone(crypto_threads.counters());
    let wakes = [(), ()].map(|()| Arc::new(Wake::new().expect("there are descriptors left")));
    let [out_wake, in_wake] = wakes.each_ref().map(Arc::clone);
    let slot = CryptoThreadsSlot::default();
    let mut outbound = bed.outbound.with_crypto_threads(Arc::clone(&slot), Arc::clone(&out_wake));
    let mut inbound = bed.inbound.with_crypto_threads(Arc::clone(&slot), Arc::clone(&in_wake));
    // They find those that they are given later too.
    slot.store(Some(crypto_threads));
    let (stop, mut numbers) = (Arc::new(AtomicBool::new(false)), Vec::new());
    let stopped = [(); 2].map(|()| Arc::clone(&stop));
    let threads: Vec<_> = bodies.into_iter().map(|body| thread::spawn(move || body.serve())).collect();
    let [out_stop, in_stop] = stopped;
    let workers = [
        thread::spawn(move || outbound.serve(&out_stop, &out_wake)),
        thread::spawn(move || inbound.serve(&in_stop, &in_wake)),
    ];
    let notify = || {
        for wake in &wakes {
            wake.notify();
        }
    };
    let deadline = Instant::now() + PATIENCE;
    let mut trains = 0..TRAINS;
    while numbers.len() < (TRAIN * TRAINS) as usize && Instant::now() < deadline {
        // A worker that received more at once could make a train that the other has no room for. A link in memory wakes nobody.
        let on_the_way = trains.start * TRAIN - numbers.len() as u32;
        if on_the_way < 10 * TRAIN
            && let Some(train) = trains.next()
        {
            let packets: Vec<Vec<u8>> = (0..TRAIN).map(|packet| numbered(train * TRAIN + packet)).collect();
            bed.inside.push(packets.iter().map(Vec::as_slice), None, 0);
        } else {
            thread::sleep(Duration::from_micros(50));
        }
        notify();
        numbers.extend(std::iter::from_fn(|| bed.delivered.pop()).map(|packet| number(&packet)));
        if workers.iter().any(thread::JoinHandle::is_finished) {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    notify();
    slot.store(None);
    let is_whole = workers.map(|worker| worker.join().is_ok()) == [true, true];
    for thread in threads {
        // One that panicked has said so.
        let _ = thread.join();
    }
    Carried { numbers, handed_off: counters.handed_off.load(Ordering::Relaxed), is_whole }
}

#[test]
fn packets_leave_in_the_order_in_which_they_came() {
    let hands_off = |_| {
        let carried = carry(None);
        assert!(carried.numbers.iter().copied().eq(0..TRAIN * TRAINS), "{:?}", carried.numbers);
        assert!(carried.is_whole);
        carried.handed_off > 10
    };
    // Nothing is handed off while other programs use all processors.
    assert!((0..TRIES).any(hands_off), "nothing was handed off in {TRIES} runs");
}

#[test]
fn a_crypto_thread_that_panics_ends_the_worker_and_no_packet_of_its_burst_leaves() {
    let carried = carry(Some(20));
    assert!(!carried.is_whole);
    assert!(carried.numbers.iter().copied().eq(0..carried.numbers.len() as u32), "{:?}", carried.numbers);
    assert!(carried.numbers.len() < (TRAIN * TRAINS) as usize);
}

fn numbered(number: u32) -> Vec<u8> {
    let mut packet = v4(1, 100, 0);
    packet[60..64].copy_from_slice(&number.to_be_bytes());
    packet
}

fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[60..64].try_into().expect("four bytes"))
}
