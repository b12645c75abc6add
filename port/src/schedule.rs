//! How the kernel's scheduler is to treat a thread.

#![expect(unsafe_code, reason = "a system call that rustix lacks")]

use std::io;

/// Has the calling thread run when nobody else wants the processor, and interrupted at once when somebody does
/// (`SCHED_IDLE`). When all processors are busy it still gets about a third of a percent.
///
/// Being nice is not enough: Linux lets even the nicest thread finish its slice, milliseconds in which packets wait.
pub fn run_when_idle() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameter lives as long as the call; 0 stands for the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const priority) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_always_become_more_modest() {
        std::thread::spawn(|| {
            run_when_idle().expect("anybody may");
            let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("procfs");
            // proc(5): the policy is the 41st field; the second may contain spaces.
            let mut fields = stat.rsplit(')').next().expect("it has a name").split_whitespace();
            let policy = fields.nth(41 - 3).map(str::to_owned);
            assert_eq!(policy, Some(libc::SCHED_IDLE.to_string()));
        })
        .join()
        .expect("the thread does not panic");
    }
}
