//! Hand-off: crypto threads seal and open whole bursts for the workers, while packets wait and a processor is idle.
//!
//! A worker keeps the bursts that it hands off in a line, and goes on with each in its turn: packets leave in the order in which they
//! came. A burst that no crypto thread has begun when the worker has nothing else to do is worked by the worker itself.

use super::idle_cores::IdleCores;
use arc_swap::ArcSwapOption;
use crossbeam_channel::{Receiver, Sender, bounded};
use port::Wake;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use tunnel::Time;

/// The smallest burst that is handed off, in packets: a hand-off costs as much as sealing about as many small ones.
const WORTHWHILE: usize = 8;
/// The bursts of a worker beyond one for each crypto thread: one that it fills, and one that is ready to leave.
const MORE: usize = 2;

/// What a crypto thread may do with a burst.
pub trait Work: Send {
    /// Seals or opens its packets.
    fn work(&mut self);

    /// How many these are.
    fn packets(&self) -> usize;
}

/// A burst, which one thread at a time has.
pub struct Flight<W> {
    burst: Mutex<W>,
    is_done: AtomicBool,
    owner: Option<Arc<Owner>>,
}

/// The worker of a burst.
struct Owner {
    wake: Arc<Wake>,
    is_waiting: AtomicBool,
}

impl<W> Flight<W> {
    /// The burst.
    ///
    /// # Panics
    /// A crypto thread has panicked with it. Its packets may be in clear, so that none may leave.
    pub fn burst(&self) -> MutexGuard<'_, W> {
        self.burst.lock().expect("a crypto thread panicked with this burst")
    }
}

trait Job: Send + Sync {
    fn run(&self);
}

impl<W: Work> Job for Flight<W> {
    fn run(&self) {
        // Also when it panics: the worker must not wait for ever.
        let _done = Done(&self.is_done, self.owner.as_deref());
        self.burst().work();
    }
}

struct Done<'a>(&'a AtomicBool, Option<&'a Owner>);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        // Sequentially consistent, here and in `Line::wait`: either this thread sees the worker wait, or the worker sees the burst done.
        self.0.store(true, Ordering::SeqCst);
        if let Some(owner) = self.1
            && owner.is_waiting.swap(false, Ordering::SeqCst)
        {
            owner.wake.notify();
        }
    }
}

/// What the crypto threads of an interface have done.
#[derive(Debug, Default)]
pub struct HandoffCounters {
    /// Bursts that workers handed off.
    pub handed_off: AtomicU64,
    /// Those of them that a worker took back, as no crypto thread had begun them.
    pub taken_back: AtomicU64,
    /// Nanoseconds that crypto threads worked.
    pub busy: AtomicU64,
}

/// The crypto threads of an interface, as its workers see them.
pub struct CryptoThreads {
    jobs: Sender<Arc<dyn Job>>,
    waiting: Receiver<Arc<dyn Job>>,
    count: usize,
    /// None for a hand-off also when no processor is idle.
    idle_cores: Option<IdleCores>,
    counters: Arc<HandoffCounters>,
}

/// One crypto thread.
pub struct CryptoThread {
    jobs: Receiver<Arc<dyn Job>>,
    counters: Arc<HandoffCounters>,
}

impl CryptoThread {
    /// Works until the interface ends.
    pub fn serve(&self) {
        for job in &self.jobs {
            let begun = Instant::now();
            job.run();
            self.counters.busy.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

impl CryptoThreads {
    /// So many threads, for the caller to start. With `idle_cores`, they are given bursts only while a processor is idle.
    pub fn new(count: usize, idle_cores: Option<IdleCores>) -> (Arc<Self>, Vec<CryptoThread>) {
        let (jobs, waiting) = bounded(2 * count);
        let counters = Arc::<HandoffCounters>::default();
        let thread = || CryptoThread { jobs: waiting.clone(), counters: Arc::clone(&counters) };
        let threads = std::iter::repeat_with(thread).take(count).collect();
        (Arc::new(Self { jobs, waiting, count, idle_cores, counters }), threads)
    }

    /// The number of threads.
    pub fn count(&self) -> usize {
        self.count
    }

    /// What they have done.
    pub fn counters(&self) -> &Arc<HandoffCounters> {
        &self.counters
    }

    /// Bursts that wait for a thread.
    pub fn backlog(&self) -> usize {
        self.waiting.len()
    }

    fn is_worthwhile(&self, now: Time) -> bool {
        let busy = || self.counters.busy.load(Ordering::Relaxed);
        self.idle_cores.as_ref().is_none_or(|cores| cores.has_idle(now, busy))
    }

    fn hand_off<W: Work + 'static>(&self, flight: &Arc<Flight<W>>) -> bool {
        let job = Arc::clone(flight) as Arc<dyn Job>;
        let is_taken = self.jobs.try_send(job).is_ok();
        self.counters.handed_off.fetch_add(u64::from(is_taken), Ordering::Relaxed);
        is_taken
    }

    /// Works a burst that waits for a thread; false if there is none.
    fn help(&self) -> bool {
        let Ok(job) = self.waiting.try_recv() else { return false };
        self.counters.taken_back.fetch_add(1, Ordering::Relaxed);
        job.run();
        true
    }
}

/// Where the workers of an interface find its crypto threads. A worker that is woken after a change uses the new ones.
pub type CryptoThreadsSlot = Arc<ArcSwapOption<CryptoThreads>>;

/// The bursts of a worker.
pub struct Line<W> {
    slot: CryptoThreadsSlot,
    threads: Option<Arc<CryptoThreads>>,
    owner: Option<Arc<Owner>>,
    make: Box<dyn Fn() -> W + Send + Sync>,
    spare: Vec<Arc<Flight<W>>>,
    /// In the order in which they came.
    under_way: VecDeque<Arc<Flight<W>>>,
    /// Whether there were packets without a pause.
    is_busy: bool,
}

impl<W: Work + 'static> Line<W> {
    /// The line of a worker that hands nothing off.
    pub fn alone(make: impl Fn() -> W + Send + Sync + 'static) -> Self {
        let mut line = Self {
            slot: CryptoThreadsSlot::default(),
            threads: None,
            owner: None,
            make: Box::new(make),
            spare: Vec::new(),
            under_way: VecDeque::new(),
            is_busy: false,
        };
        line.resize();
        line
    }

    /// The same of a worker that waits for `wake`, and hands off to these threads.
    #[must_use]
    pub fn with_threads(mut self, slot: CryptoThreadsSlot, wake: Arc<Wake>) -> Self {
        let owner = Owner { wake, is_waiting: AtomicBool::new(false) };
        (self.slot, self.owner) = (slot, Some(Arc::new(owner)));
        self.spare.clear();
        self.resize();
        self
    }

    /// Takes as many bursts as the threads ask for.
    fn resize(&mut self) {
        let threads = self.threads.as_ref().map_or(0, |threads| threads.count + MORE - 1);
        let owner = &self.owner;
        let flight = || Flight {
            burst: Mutex::new((self.make)()),
            is_done: AtomicBool::new(false),
            owner: owner.clone(),
        };
        self.spare.resize_with(1 + threads, || Arc::new(flight()));
    }

    /// Uses other threads from now on, if there are others. No burst is under way.
    #[inline]
    fn refresh(&mut self) {
        let current = self.slot.load();
        if current.as_ref().map(Arc::as_ptr) != self.threads.as_ref().map(Arc::as_ptr) {
            self.threads.clone_from(&current);
            self.resize();
        }
    }

    /// An empty burst; none if all are under way.
    #[inline]
    pub fn take(&mut self) -> Option<Arc<Flight<W>>> {
        if self.under_way.is_empty() {
            self.refresh();
        }
        self.spare.pop()
    }

    /// Takes a burst back whose packets have left.
    #[inline]
    pub fn give_back(&mut self, flight: Arc<Flight<W>>) {
        self.spare.push(flight);
    }

    /// Notes whether the port had packets.
    #[inline]
    pub fn note(&mut self, had_packets: bool) {
        self.is_busy = had_packets;
    }

    /// Puts a burst in line, for a crypto thread, if that is worthwhile or others are before it. If not, it is returned: the caller
    /// works it at once.
    #[inline]
    pub fn hand_off(&mut self, flight: Arc<Flight<W>>, now: Time) -> Option<Arc<Flight<W>>> {
        let Some(threads) = &self.threads else { return Some(flight) };
        let packets = flight.burst().packets();
        let is_worthwhile = self.is_busy && packets >= WORTHWHILE && threads.is_worthwhile(now);
        if self.under_way.is_empty() && !is_worthwhile {
            return Some(flight);
        }
        flight.is_done.store(false, Ordering::SeqCst);
        if !is_worthwhile || !threads.hand_off(&flight) {
            flight.run();
        }
        self.under_way.push_back(flight);
        None
    }

    /// The next burst, if it is done.
    #[inline]
    pub fn next_done(&mut self) -> Option<Arc<Flight<W>>> {
        let is_done = self.under_way.front()?.is_done.load(Ordering::SeqCst);
        if is_done { self.under_way.pop_front() } else { None }
    }

    /// Finishes all bursts that are under way.
    pub fn drain(&mut self, mut finish: impl FnMut(&mut W)) {
        while !self.under_way.is_empty() {
            while let Some(flight) = self.next_done() {
                finish(&mut flight.burst());
                self.give_back(flight);
            }
            if self.threads.as_ref().is_some_and(|threads| !threads.help()) {
                std::thread::yield_now();
            }
        }
    }

    /// Works a burst that waits for a crypto thread, or else calls `sleep` until there is more to do.
    pub fn wait(&mut self, sleep: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let (Some(threads), Some(owner), Some(next)) = (&self.threads, &self.owner, self.under_way.front())
        else {
            return sleep();
        };
        if threads.help() {
            return Ok(());
        }
        owner.is_waiting.store(true, Ordering::SeqCst);
        if next.is_done.load(Ordering::SeqCst) { Ok(()) } else { sleep() }
    }
}
