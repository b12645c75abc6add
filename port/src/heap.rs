//! Memory that is free, but not the system's yet.

#![expect(unsafe_code, reason = "a function of the C library")]

/// Gives back what the allocator keeps for later: after something large was read that only passed through. It takes a few
/// milliseconds, and nothing where the allocator has no such function.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers, and locks what it works on.
    unsafe {
        libc::malloc_trim(0);
    }
}
