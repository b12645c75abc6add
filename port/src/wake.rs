//! A wake-up event for a worker that waits for packets.

use crate::Pace;
use arrayvec::ArrayVec;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// An event that one thread waits for and any thread may signal (eventfd(2)).
pub struct Wake(OwnedFd);

impl Wake {
    /// Creates an event that is not signalled.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?))
    }

    /// Ends the current or the next wait.
    pub fn notify(&self) {
        // The only possible error is a full counter, and then the event is already signalled.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Waits until one of at most 32 `descriptors` is readable, or the event is signalled; returns which are
    /// readable.
    pub fn wait<const N: usize>(&self, descriptors: [Option<BorrowedFd<'_>>; N]) -> io::Result<[bool; N]> {
        self.wait_at_most(descriptors, None)
    }

    /// As [`wait`](Self::wait), for at most `limit`.
    pub fn wait_at_most<const N: usize>(
        &self,
        descriptors: [Option<BorrowedFd<'_>>; N],
        limit: Option<Duration>,
    ) -> io::Result<[bool; N]> {
        let mut readable = [false; N];
        self.wait_for(&descriptors, limit, &mut readable)?;
        Ok(readable)
    }

    /// As [`wait_at_most`](Self::wait_at_most), for a number of descriptors, at most 32, that is not known before; `readable` is at
    /// least as long.
    pub(crate) fn wait_for(
        &self,
        descriptors: &[Option<BorrowedFd<'_>>],
        limit: Option<Duration>,
        readable: &mut [bool],
    ) -> io::Result<()> {
        let limit = limit.map(|limit| Timespec::try_from(limit).expect("limits are short"));
        let mut polled = ArrayVec::<PollFd<'_>, 33>::new();
        for fd in descriptors {
            // A missing descriptor is replaced by the event, and its result is ignored.
            polled.push(PollFd::from_borrowed_fd(fd.unwrap_or(self.0.as_fd()), PollFlags::IN));
        }
        polled.push(PollFd::new(&self.0, PollFlags::IN));
        if !spin(&mut polled, Pace::now())? {
            while poll_or_interrupted(&mut polled, limit.as_ref())?.is_none() {}
        }
        if !polled[descriptors.len()].revents().is_empty() {
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }
        for (place, readable) in readable[..descriptors.len()].iter_mut().enumerate() {
            *readable = descriptors[place].is_some() && !polled[place].revents().is_empty();
        }
        Ok(())
    }

    /// Waits until one of any number of `descriptors` is readable, or the event is signalled, for at most `limit`.
    ///
    /// Calls `failed` with the place of each descriptor that reports an error. Without a pause it would end the next wait at once.
    pub fn wait_for_any(
        &self,
        descriptors: &[BorrowedFd<'_>],
        limit: Option<Duration>,
        mut failed: impl FnMut(usize),
    ) -> io::Result<()> {
        let limit = limit.map(|limit| Timespec::try_from(limit).expect("limits are short"));
        let all = descriptors.iter().copied().chain([self.0.as_fd()]);
        let mut polled: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        if !spin(&mut polled, Pace::now())? {
            while poll_or_interrupted(&mut polled, limit.as_ref())?.is_none() {}
        }
        for (place, descriptor) in descriptors.iter().enumerate() {
            if polled[place].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
                // Reading the error of a socket clears it.
                let _ = rustix::net::sockopt::socket_error(descriptor);
                failed(place);
            }
        }
        if !polled[descriptors.len()].revents().is_empty() {
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }
        Ok(())
    }
}

/// Looks for something readable without sleeping, as long as the pace says; whether there is.
fn spin(polled: &mut [PollFd<'_>], pace: Pace) -> io::Result<bool> {
    let Some(spin) = pace.spin() else { return Ok(false) };
    let begun = Instant::now();
    while begun.elapsed() < spin {
        if poll_or_interrupted(polled, Some(&Timespec::default()))?.is_some_and(|ready| ready > 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How many descriptors are readable; none if a signal came.
fn poll_or_interrupted(polled: &mut [PollFd<'_>], limit: Option<&Timespec>) -> io::Result<Option<usize>> {
    match poll(polled, limit) {
        Ok(ready) => Ok(Some(ready)),
        Err(Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_spins_finds_what_is_ready_and_gives_up_otherwise() {
        let (reader, writer) = rustix::pipe::pipe().expect("there are descriptors left");
        let mut polled = [PollFd::new(&reader, PollFlags::IN)];
        assert!(!spin(&mut polled, Pace::LATENCY).expect("poll works"), "nothing is there");
        rustix::io::write(&writer, b"x").expect("a pipe takes a byte");
        assert!(
            spin(&mut polled, Pace { spin_microseconds: 1_000_000, ..Pace::LATENCY }).expect("poll works")
        );
        assert!(!spin(&mut polled, Pace::USUAL).expect("poll works"), "it sleeps at once");
    }

    #[test]
    fn a_wait_for_many_ends_by_any_of_them_and_tells_which_failed() {
        let wake = Wake::new().expect("there are descriptors left");
        let pipes: Vec<_> =
            (0..9).map(|_| rustix::pipe::pipe().expect("there are descriptors left")).collect();
        let readers: Vec<_> = pipes.iter().map(|(reader, _)| reader.as_fd()).collect();
        let wait = |limit| {
            let mut all = Vec::new();
            wake.wait_for_any(&readers, limit, |place| all.push(place)).expect("poll works");
            all
        };
        assert!(wait(Some(Duration::from_millis(1))).is_empty(), "nothing is there");
        rustix::io::write(&pipes[8].1, b"x").expect("a pipe takes a byte");
        assert!(wait(None).is_empty());
        rustix::io::read(&pipes[8].0, &mut [0; 1]).expect("it is there");
        wake.notify();
        assert!(wait(None).is_empty());
        let (closed, _) = rustix::pipe::pipe().expect("there are descriptors left");
        let mut all = Vec::new();
        wake.wait_for_any(&[readers[0], closed.as_fd()], None, |place| all.push(place)).expect("poll works");
        assert_eq!(all, [1], "its other end is closed");
    }

    #[test]
    fn a_ring_ends_one_wait() {
        let wake = Wake::new().expect("there are descriptors left");
        let (reader, writer) = rustix::pipe::pipe().expect("there are descriptors left");
        wake.notify();
        wake.notify();
        assert_eq!(wake.wait([Some(reader.as_fd()), None]).expect("poll works"), [false, false]);
        rustix::io::write(&writer, b"x").expect("a pipe takes a byte");
        assert_eq!(wake.wait([Some(reader.as_fd()), None]).expect("poll works"), [true, false]);
    }
}
