//! Whether the kernel's clock is kept right by something: adjtimex(2).
//!
#![expect(unsafe_code, reason = "a system call without a safe wrapper, which takes its structure by address")]

use std::io;
use std::mem::zeroed;

/// Whether a program, as of NTP, keeps the clock of the machine synchronised. It needs no right, and changes nothing.
pub fn is_synchronised() -> io::Result<bool> {
    // SAFETY: the structure is one of numbers only, for which zero is a value.
    let mut state: libc::timex = unsafe { zeroed() };
    // SAFETY: the kernel writes one structure of this type; `modes` is 0, so that it only reads its own state.
    let answer = unsafe { libc::adjtimex(&raw mut state) };
    if answer == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_answers_without_a_right() {
        super::is_synchronised().expect("every kernel has it");
    }
}
