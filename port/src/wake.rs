//! A wake-up event for a worker that waits for packets.

use arrayvec::ArrayVec;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

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

    /// Waits until one of at most three `descriptors` is readable, or the event is signalled; returns which are
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
        let limit = limit.map(|limit| Timespec::try_from(limit).expect("limits are short"));
        let mut polled = ArrayVec::<PollFd<'_>, 4>::new();
        for fd in &descriptors {
            // A missing descriptor is replaced by the event, and its result is ignored.
            polled.push(PollFd::from_borrowed_fd(fd.unwrap_or(self.0.as_fd()), PollFlags::IN));
        }
        polled.push(PollFd::new(&self.0, PollFlags::IN));
        loop {
            match poll(&mut polled, limit.as_ref()) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !polled[N].revents().is_empty() {
            let _ = rustix::io::read(&self.0, &mut [0; 8]);
        }
        Ok(std::array::from_fn(|i| descriptors[i].is_some() && !polled[i].revents().is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
