//! What ends the workers, and their waits.

use port::Wake;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What ends workers, from any thread.
#[derive(Clone)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    /// For each worker, what wakes it: one event would be taken by one of them.
    wakes: Arc<[Arc<Wake>]>,
}

impl Stopper {
    /// Something that ends so many workers.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new(workers: usize) -> io::Result<Self> {
        let wakes: Vec<_> = (0..workers).map(|_| Wake::new().map(Arc::new)).collect::<Result<_, _>>()?;
        Ok(Self { stop: Arc::default(), wakes: wakes.into() })
    }

    /// How many workers it ends.
    pub(super) fn workers(&self) -> usize {
        self.wakes.len()
    }

    /// What wakes a worker.
    pub(super) fn waker(&self, worker: usize) -> Arc<Wake> {
        Arc::clone(&self.wakes[worker])
    }

    /// Ends the workers.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Whether they are to end.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends one wait of each worker.
    pub(super) fn wake(&self) {
        self.wakes.iter().for_each(|wake| wake.notify());
    }
}
