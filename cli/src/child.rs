//! Processes of this program that `postern run` starts while it still has its rights. Each has one end of a socket as its standard
//! input, and ends when the daemon, which has the other end, does.

use crate::{Failure, Outcome};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// The pause before a process that has failed is started again; it doubles.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// This program with one of its verbs.
pub(crate) fn command(verb: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(verb).envs(crate::log::environment());
    command
}

/// Starts a process; the daemon's end of its socket. `task` describes the process in an error.
pub(crate) fn start(command: &mut Command, task: &str) -> Result<UnixStream, Failure> {
    let (ours, theirs) = UnixStream::pair()?;
    let started = command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).current_dir("/").spawn();
    started.map_err(|error| format!("the process that {task}: {error}"))?;
    ours.set_nonblocking(true)?;
    Ok(ours)
}

/// The socket of a process that was started so.
pub(crate) fn socket() -> Result<UnixStream, Failure> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.peer_addr().map_err(|error| format!("the standard input is no socket of a daemon: {error}"))?;
    Ok(socket)
}

/// Ignores the signals with which a service manager ends all processes, as long as the returned value is kept.
pub(crate) fn ignore_signals() -> io::Result<impl Sized> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    let ignored = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    drop(entered);
    for each in &ignored {
        if let Err(error) = each {
            tracing::warn!("a signal may end it: {error}");
        }
    }
    Ok((runtime, ignored))
}

/// Starts a process of the same socket when there are orders, and again if it fails, until the daemon ends.
pub(crate) fn supervise(socket: &UnixStream, name: &str, start: impl Fn() -> Command) -> Outcome {
    let mut pause = PAUSE;
    while !is_ended(socket, PollFlags::IN, None)? {
        let mut started = Instant::now();
        while !start().status()?.success() {
            pause = pause_of(pause, started.elapsed());
            tracing::error!("{name} has failed, and is started again in {} s", pause.as_secs());
            if is_ended(socket, PollFlags::empty(), Some(pause))? {
                return Ok(());
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            started = Instant::now();
        }
        pause = PAUSE;
    }
    Ok(())
}

/// The pause after a process has failed that ran for a time: the first one again, if it ran for long.
fn pause_of(next: Duration, ran: Duration) -> Duration {
    if ran > LONGEST_PAUSE { PAUSE } else { next }
}

/// Waits for an event, or for a time. Whether the daemon has ended.
fn is_ended(socket: &UnixStream, event: PollFlags, wait: Option<Duration>) -> Result<bool, Failure> {
    let mut waits = [PollFd::new(socket, event)];
    let wait = wait.map(Timespec::try_from).transpose()?;
    // A signal that is ignored ends a wait too.
    retry_on_intr(|| poll(&mut waits, wait.as_ref()))?;
    Ok(waits[0].revents().contains(PollFlags::HUP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal, kill_process};
    use rustix::thread::gettid;
    use std::cell::Cell;
    use std::io::Write;
    use std::net::Shutdown;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_process_that_ran_for_long_is_started_again_soon() {
        let long = Duration::from_secs(16);
        assert_eq!(pause_of(long, Duration::from_secs(59)), long);
        assert_eq!(pause_of(long, Duration::from_secs(61)), PAUSE);
    }

    #[test]
    fn a_supervisor_that_waits_ends_with_its_daemon() {
        let (daemon, ours) = UnixStream::pair().expect("sockets");
        assert!(!is_ended(&ours, PollFlags::empty(), Some(Duration::from_millis(1))).expect("polled"));
        drop(daemon);
        assert!(is_ended(&ours, PollFlags::empty(), Some(Duration::from_secs(600))).expect("polled"));
    }

    #[test]
    fn an_ignored_signal_does_not_end_a_supervisor_that_waits() {
        let _ignores = ignore_signals().expect("a runtime");
        let (daemon, ours) = UnixStream::pair().expect("sockets");
        let (send, thread) = mpsc::channel();
        let waits = thread::spawn(move || {
            send.send(gettid()).expect("it is waited for");
            is_ended(&ours, PollFlags::IN, None).map_err(|error| error.to_string())
        });
        let thread = thread.recv().expect("it has started");
        // The kernel prefers the thread of this number. It may not be waiting yet.
        for _ in 0..20 {
            let _ = kill_process(thread, Signal::HUP);
            thread::sleep(Duration::from_millis(10));
        }
        drop(daemon);
        assert_eq!(waits.join().expect("no panic"), Ok(true));
    }

    #[test]
    fn a_process_that_fails_is_started_again_and_one_that_ends_is_not() {
        let (daemon, ours) = UnixStream::pair().expect("sockets");
        (&daemon).write_all(b"orders").expect("a socket");
        let starts = Cell::new(0);
        // The second one finds the daemon gone, as the server does.
        let start = || {
            starts.set(starts.get() + 1);
            if starts.get() == 2 {
                daemon.shutdown(Shutdown::Both).expect("ours");
            }
            Command::new(if starts.get() == 1 { "false" } else { "true" })
        };
        supervise(&ours, "it", start).expect("supervised");
        assert_eq!(starts.get(), 2);
    }
}
