//! Pinning: the threads that carry the packets of an interface stay on the processors that the configuration names.
//!
//! ```text
//! processors 2-5:   out ─> 2   in ─> 3   out 1 ─> 4   in 1 ─> 5   crypto ─> 2 ...
//! ```
//! Threads have places: those of the first receiving thread (`out`, `in`, `raw`), of the next, and so on, then `tcp` or crypto threads. A
//! thread takes one processor, by its place, and begins again with the first when the list ends. The slow path and the
//! thread that follows the interface are not pinned.

use config::settings::Processors;
use rustix::io::Errno;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The threads of an interface, and where they are to stay.
#[derive(Default)]
pub(super) struct Pinning(Mutex<State>);

#[derive(Default)]
struct State {
    processors: Processors,
    /// Those that run, with their places.
    threads: Vec<(usize, Pid)>,
}

/// A thread that runs at its place, until this is dropped.
pub(super) struct Pinned {
    pinning: Arc<Pinning>,
    thread: Pid,
}

impl Pinning {
    /// Lets the threads stay on these processors from now on. Without any, threads that were pinned may run wherever the calling thread may.
    pub(super) fn set(&self, processors: &Processors) {
        let mut state = self.state();
        if state.processors == *processors {
            return;
        }
        state.processors = processors.clone();
        for &(place, thread) in &state.threads {
            report(state.apply(place, thread));
        }
    }

    /// The processors.
    pub(super) fn processors(&self) -> Processors {
        self.state().processors.clone()
    }

    /// Pins the calling thread, before it gives up the right to: a thread that carries packets has no such call.
    pub(super) fn enter(self: &Arc<Self>, place: usize) -> Pinned {
        let (mut state, thread) = (self.state(), gettid());
        if !state.processors.is_empty() {
            report(state.apply(place, thread));
        }
        state.threads.push((place, thread));
        drop(state);
        Pinned { pinning: Arc::clone(self), thread }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pinned {
    /// The kernel may give the number to another thread afterwards.
    fn drop(&mut self) {
        self.pinning.state().threads.retain(|(_, thread)| *thread != self.thread);
    }
}

impl State {
    fn apply(&self, place: usize, thread: Pid) -> Result<(), Errno> {
        let set = match self.processors.numbers() {
            [] => sched_getaffinity(None)?,
            numbers => {
                let mut set = CpuSet::new();
                set.set(usize::from(numbers[place % numbers.len()]));
                set
            }
        };
        sched_setaffinity(Some(thread), &set)
    }
}

/// The packets flow all the same.
fn report(pinned: Result<(), Errno>) {
    if let Err(error) = pinned {
        tracing::warn!("a thread is not on the processor that the configuration names: {error}");
    }
}

/// The processors that a thread, by default the calling one, may use.
pub(super) fn allowed(thread: Option<Pid>) -> Processors {
    let allowed = sched_getaffinity(thread).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number)).map(|number| number as u16).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn of(thread: Pid) -> Processors {
        allowed(Some(thread))
    }

    #[test]
    fn threads_take_processors_in_turn_and_let_them_go() {
        let (pinning, usable) = (Arc::new(Pinning::default()), allowed(None));
        let (running, ready) = mpsc::channel();
        let threads: Vec<_> = (0..3)
            .map(|place| {
                let (end, ends) = mpsc::channel::<()>();
                let (pinning, running) = (Arc::clone(&pinning), running.clone());
                let thread = std::thread::spawn(move || {
                    let _pinned = pinning.enter(place);
                    running.send((place, gettid())).expect("it is read");
                    let _ = ends.recv();
                });
                (end, thread)
            })
            .collect();
        let mut ids: Vec<(usize, Pid)> = ready.iter().take(3).collect();
        ids.sort_unstable_by_key(|(place, _)| *place);
        let last = *usable.numbers().last().expect("at least one");
        pinning.set(&[last].into_iter().collect());
        assert!(ids.iter().all(|(_, thread)| of(*thread) == pinning.processors()));
        pinning.set(&usable);
        for (place, thread) in &ids {
            let number = usable.numbers()[place % usable.numbers().len()];
            assert_eq!(of(*thread), [number].into_iter().collect());
        }
        pinning.set(&Processors::default());
        assert!(ids.iter().all(|(_, thread)| of(*thread) == usable));
        for (end, thread) in threads {
            drop(end);
            thread.join().expect("it does not panic");
        }
        assert!(pinning.state().threads.is_empty());
    }
}
