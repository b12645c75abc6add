//! Hand-off: crypto threads seal and open whole bursts for the workers, while packets wait and a processor is idle.
//!
//! A worker keeps the bursts that it hands off in a line, and goes on with each in its turn: packets leave in the order in which they
//! came. A burst that no crypto thread has begun when the worker has nothing else to do is worked by the worker itself.

use super::idle_cores::IdleCores;
use super::stage_times::{StageTimes, Stopwatch};
use super::{Observer, Stage};
use arc_swap::ArcSwapOption;
use crossbeam_channel::{Receiver, Sender, bounded};
use port::Wake;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use tunnel::Time;

/// The smallest burst that is handed off, in packets: a smaller one is done before a thread has woken.
const WORTHWHILE: usize = 8;
/// The bursts of a worker beyond one for each crypto thread: one that it fills, and one that is ready to leave.
const MORE: usize = 2;

/// What a crypto thread may do with a burst.
pub trait Work: Send {
    /// The stage that this is.
    const STAGE: &'static Stage;

    /// Seals or opens its packets.
    fn work(&mut self);

    /// How many these are.
    fn packets(&self) -> usize;

    /// The time of the burst.
    fn now(&self) -> Time;
}

/// What the worker of a direction does with its bursts before and after that.
pub trait Way<W> {
    /// Does what the protocol wants done, while the bursts in `line` are under way; tells whether that was anything.
    fn carry_out_orders(&mut self, _line: &mut Line<W>) -> bool {
        false
    }

    /// Receives a burst, and carries it up to the work; false when there was none. The bursts in `line` came before it.
    fn begin(&mut self, burst: &mut W, line: &mut Line<W>, observer: &mut impl Observer) -> io::Result<bool>;

    /// Carries a burst on from there.
    fn finish(&mut self, burst: &mut W, observer: &mut impl Observer);

    /// Waits for packets, or for `wake`.
    fn wait(&mut self, wake: &Wake) -> io::Result<()>;
}

/// A burst, which one thread at a time has.
struct Flight<W> {
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
    fn burst(&self) -> MutexGuard<'_, W> {
        self.burst.lock().expect("a crypto thread panicked with this burst")
    }
}

trait Job: Send + Sync {
    fn run(&self);

    /// Whether it is a burst, which a worker may take back.
    fn is_burst(&self) -> bool {
        true
    }
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

/// A look at the processors. It takes long on large machines: no worker does it while a crypto thread is there.
struct Look {
    cores: IdleCores,
    counters: Arc<HandoffCounters>,
}

impl Job for Look {
    fn run(&self) {
        self.cores.read(self.counters.busy.load(Ordering::Relaxed));
    }

    fn is_burst(&self) -> bool {
        false
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
    look: Option<Arc<Look>>,
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
        let look = idle_cores.map(|cores| Arc::new(Look { cores, counters: Arc::clone(&counters) }));
        (Arc::new(Self { jobs, waiting, count, look, counters }), threads)
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

    /// Whether a processor is idle, as far as is known.
    fn has_idle_core(&self, now: Time) -> bool {
        let Some(look) = &self.look else { return true };
        if look.cores.is_due(now) {
            // If all of them are behind, the next look will do.
            let _ = self.jobs.try_send(Arc::<Look>::clone(look));
        }
        look.cores.has_idle()
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
        self.counters.taken_back.fetch_add(u64::from(job.is_burst()), Ordering::Relaxed);
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
    /// Where the times of stages are noted.
    times: Option<Arc<StageTimes>>,
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
            times: None,
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

    /// The same, which notes the times of stages here.
    #[must_use]
    pub fn with_times(self, times: Arc<StageTimes>) -> Self {
        Self { times: Some(times), ..self }
    }

    /// A stopwatch for bursts of this line.
    fn stopwatch(&self) -> Stopwatch {
        self.times.clone().map(Stopwatch::new).unwrap_or_default()
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

    /// Carries one burst to its end; false when there was nothing to do.
    ///
    /// # Errors
    /// The port is gone.
    pub fn burst(&mut self, way: &mut impl Way<W>, observer: &mut impl Observer) -> io::Result<bool> {
        let ordered = way.carry_out_orders(self);
        let Some(flight) = self.take() else { return Ok(ordered) };
        let mut burst = flight.burst();
        let has_begun = way.begin(&mut burst, self, observer);
        if let Ok(true) = has_begun {
            burst.work();
            observer.finished(W::STAGE);
            way.finish(&mut burst, observer);
        }
        drop(burst);
        self.spare.push(flight);
        Ok(has_begun? || ordered)
    }

    /// Carries until `stop` is set; the thread that sets it calls `Wake::notify`.
    ///
    /// # Errors
    /// The port is gone.
    pub fn serve(&mut self, way: &mut impl Way<W>, stop: &AtomicBool, wake: &Wake) -> io::Result<()> {
        let (mut watch, mut behind) = (self.stopwatch(), self.stopwatch());
        while !stop.load(Ordering::Relaxed) {
            self.finish_done(|burst| {
                behind.begin();
                way.finish(burst, &mut behind);
                behind.end(burst.packets());
            });
            let ordered = way.carry_out_orders(self);
            let Some(flight) = self.take() else {
                self.wait(|| wake.wait([]).map(|[]| ()))?;
                continue;
            };
            let mut burst = flight.burst();
            watch.begin();
            let has_begun = way.begin(&mut burst, self, &mut watch)?;
            let is_worthwhile = has_begun && self.is_worthwhile(&burst);
            let is_next = !is_worthwhile && self.under_way.is_empty();
            if has_begun && is_next {
                burst.work();
                watch.finished(W::STAGE);
                way.finish(&mut burst, &mut watch);
            }
            if has_begun {
                watch.end(burst.packets());
            } else {
                watch.cancel();
            }
            drop(burst);
            if has_begun && !is_next {
                self.put_in_line(flight, is_worthwhile);
            } else {
                self.spare.push(flight);
            }
            self.is_busy = has_begun;
            if !has_begun && !ordered {
                self.wait(|| way.wait(wake))?;
            }
        }
        Ok(())
    }

    /// An empty burst; none if all are under way.
    #[inline]
    fn take(&mut self) -> Option<Arc<Flight<W>>> {
        if self.under_way.is_empty() {
            self.refresh();
        }
        self.spare.pop()
    }

    /// Whether a crypto thread is to have a burst.
    #[inline]
    fn is_worthwhile(&self, burst: &W) -> bool {
        let Some(threads) = &self.threads else { return false };
        self.is_busy && burst.packets() >= WORTHWHILE && threads.has_idle_core(burst.now())
    }

    /// Puts a burst behind those that are under way, for a crypto thread if it is worthwhile.
    fn put_in_line(&mut self, flight: Arc<Flight<W>>, is_worthwhile: bool) {
        flight.is_done.store(false, Ordering::SeqCst);
        let is_handed_off =
            is_worthwhile && self.threads.as_ref().is_some_and(|threads| threads.hand_off(&flight));
        if !is_handed_off {
            flight.run();
        }
        self.under_way.push_back(flight);
    }

    /// Finishes bursts in their order, up to the first that is not done.
    #[inline]
    fn finish_done(&mut self, mut finish: impl FnMut(&mut W)) {
        while self.under_way.front().is_some_and(|flight| flight.is_done.load(Ordering::SeqCst)) {
            let Some(flight) = self.under_way.pop_front() else { return };
            finish(&mut flight.burst());
            self.spare.push(flight);
        }
    }

    /// Finishes all bursts that are under way.
    pub fn drain(&mut self, mut finish: impl FnMut(&mut W)) {
        while !self.under_way.is_empty() {
            self.finish_done(&mut finish);
            if self.threads.as_ref().is_some_and(|threads| !threads.help()) {
                std::thread::yield_now();
            }
        }
    }

    /// Works a burst that waits for a crypto thread, or else calls `sleep` until there is more to do.
    fn wait(&mut self, sleep: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
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
