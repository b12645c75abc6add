//! The memory of the process: locked against swapping, and returned to the system when free.

#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "a function of the C library"))]

use rustix::io;
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use std::sync::atomic::{AtomicBool, Ordering};

static LOCKED: AtomicBool = AtomicBool::new(false);

/// Locks all used memory, present and future, against swapping. Reserved but unused memory is not affected.
///
/// Only for a process without a limit of locked memory: with a limit, later allocations would fail.
pub fn lock() -> io::Result<()> {
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?;
    LOCKED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Returns free memory of the allocator to the system, after large temporary data. It takes a few milliseconds, and
/// does nothing where the allocator has no such function.
pub fn give_back() {
    let locked = LOCKED.load(Ordering::Relaxed);
    if locked {
        // Locked memory cannot be returned. It stays resident meanwhile unless the machine runs out of memory.
        let _ = munlockall();
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes no pointers, and locks the heap that it works on.
    unsafe {
        libc::malloc_trim(0);
    }
    if locked {
        // Locking succeeded before.
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
    fn memory_stays_locked_after_free_memory_is_returned() {
        if lock().is_err() {
            // Neither the privilege nor a sufficient limit.
            assert_eq!(locked_kib(), 0);
            return;
        }
        assert!(locked_kib() > 0);
        give_back();
        assert!(locked_kib() > 0);
        LOCKED.store(false, Ordering::Relaxed);
        munlockall().expect("it needs no privilege");
    }
}
