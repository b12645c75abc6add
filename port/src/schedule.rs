//! The scheduling priority of threads.

use rustix::io;
use rustix::process::{getpid, getpriority_process, setpriority_process};

/// The nice value relative to the process. Each step is about a tenth of the CPU share: at 15, a thread has weight 36
/// against 1024. That is 3.4 % of a CPU beside one busy loop; handshakes need no more.
const NICER: i32 = 15;
/// The highest nice value.
const NICEST: i32 = 19;

/// Lowers the priority of the calling thread below that of the main thread, for work that must not delay packets.
///
/// Not `SCHED_IDLE`, which gets 0.3 % of a busy CPU: less than a handshake needs before the peer times out. A packet
/// that wakes its worker preempts a niced thread as soon as one with `SCHED_IDLE`.
pub fn yield_to_packets() -> io::Result<()> {
    let process = getpriority_process(Some(getpid()))?;
    // No ID stands for the calling thread.
    setpriority_process(None, (process + NICER).min(NICEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowering_the_priority_affects_one_thread_and_only_once() {
        let process = getpriority_process(Some(getpid())).expect("the process exists");
        std::thread::spawn(move || {
            for _ in 0..2 {
                yield_to_packets().expect("lowering the priority needs no privilege");
                assert_eq!(getpriority_process(None), Ok((process + NICER).min(NICEST)));
            }
        })
        .join()
        .expect("the thread does not panic");
        assert_eq!(getpriority_process(Some(getpid())), Ok(process));
    }
}
