//! The crypto threads of an interface: how many there are, and where they run.

use super::TunnelInterface;
use super::options::processors;
use crate::datapath::handoff::CryptoThreads;
use crate::datapath::idle_cores::IdleCores;
use crate::rights::Rights;
use crate::thread_name::thread_name;
use config::settings::{Processors, Threads};
use std::io;
use std::sync::{Arc, PoisonError};
use std::thread;

/// The workers of an interface that most packets have: one a direction.
const WORKERS: usize = 2;
/// The threads of `auto`, at most.
const MOST_THREADS: usize = 64;

impl TunnelInterface {
    /// Has packets sealed and opened by at most so many threads at once: the two workers, and crypto threads beside them. All of them, and
    /// the other workers, stay on these processors, if there are any.
    pub fn set_threads(&self, threads: Threads, on: &Processors) -> io::Result<()> {
        let is_moved = self.pinning.processors() != *on;
        self.pinning.set(on);
        let wanted = match (threads, on.numbers().len()) {
            (Threads::Auto, 0) => processors().min(MOST_THREADS),
            (Threads::Auto, count) => count.min(MOST_THREADS),
            (Threads::Count(count), _) => count.into(),
        };
        let wanted = wanted.saturating_sub(WORKERS);
        let has = self.crypto_threads.load().as_ref().map_or(0, |threads| threads.count());
        if has == wanted && !(is_moved && wanted > 0) {
            return Ok(());
        }
        let needs_none = self.hands_off_always || wanted == 0;
        let idle_cores = if needs_none { None } else { Some(IdleCores::open()?.among(on)) };
        let (crypto_threads, bodies) = CryptoThreads::new(wanted, idle_cores);
        let mut handles = self.crypto_handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.retain(|handle| !handle.is_finished());
        let others = self.outbound_wakes.len() + self.inbound_wakes.len() + self.raw_wakes.len();
        for (place, body) in (others..).zip(bodies) {
            let name = thread_name(self.device.name(), "crypto");
            let pinning = Arc::clone(&self.pinning);
            handles.push(thread::Builder::new().name(name).spawn(move || {
                let _pinned = pinning.enter(place);
                Rights::Packets.keep();
                body.serve();
            })?);
        }
        self.crypto_threads.store(Some(crypto_threads).filter(|threads| threads.count() > 0));
        // They let go of the threads that they had.
        self.wake_workers();
        Ok(())
    }

    /// Its crypto threads, if it has any.
    pub fn crypto_threads(&self) -> Option<Arc<CryptoThreads>> {
        self.crypto_threads.load_full()
    }
}
