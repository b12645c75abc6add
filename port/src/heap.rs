//! The memory of the process: not to be written to a disk, and given back when it is free.

#![expect(unsafe_code, reason = "a function of the C library")]

use rustix::io;
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use std::sync::atomic::{AtomicBool, Ordering};

static LOCKED: AtomicBool = AtomicBool::new(false);

/// Keeps all memory that is used, now and later, out of swap. What is only reserved stays so.
///
/// Only for a process without a limit of locked memory: beyond a limit, later reservations would fail.
pub fn lock() -> io::Result<()> {
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?;
    LOCKED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Gives back what the allocator keeps for later: after something large was read that only passed through. It takes a few
/// milliseconds, and nothing where the allocator has no such function.
pub fn give_back() {
    let locked = LOCKED.load(Ordering::Relaxed);
    if locked {
        // What is locked cannot be given back. It stays in memory for these milliseconds unless the machine has none.
        let _ = munlockall();
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers, and locks what it works on.
    unsafe {
        libc::malloc_trim(0);
    }
    if locked {
        // It was allowed before.
        let _ = lock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("it is there");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    #[test]
    fn what_is_locked_stays_locked_when_memory_is_given_back() {
        if lock().is_err() {
            // Neither a privilege nor a limit that is large enough.
            assert_eq!(locked_kib(), 0);
            return;
        }
        assert!(locked_kib() > 0);
        give_back();
        assert!(locked_kib() > 0);
        LOCKED.store(false, Ordering::Relaxed);
        munlockall().expect("anybody may");
    }
}
