//! By which socket the datagrams of a peer leave.
//!
//! The kernel charges a datagram to its socket until the network device has sent it. Where the way to one peer is slow,
//! that peer's datagrams would fill the socket that all share, and all would wait for it. So nobody waits: once the
//! shared socket is full, each peer that still sends goes on with a socket of its own, until that has run empty. Only the
//! peer whose own socket is full loses packets.
//!
//! ```text
//! shared socket ── full ──> own socket ── full, nobody else sends, the link is fast ──> wait, at most WAIT
//!       ^                     │    └───── full otherwise ──> dropped, of this peer
//!       └────── empty ────────┘
//! ```

use super::socket::{UdpSockets, backlog};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The longest wait for an own socket to become half empty: 140 Mbit/s do that. Waiting makes the inside wait too, and
/// saves the work on packets that would be lost; for a slower link, all others would pay too much for that.
const WAIT: Duration = Duration::from_millis(30);
/// How long a peer whose link was too slow is not waited for again.
const IMPATIENCE: Duration = Duration::from_secs(1);
/// A peer is alone while no other was sent to for so long.
const ALONE: Duration = Duration::from_secs(1);
/// From one look for own sockets that have run empty to the next.
const SWEEP: Duration = Duration::from_secs(1);

/// What to do with datagrams that found their socket full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Send them again: the peer has another socket, or there is room now.
    Again,
    /// Drop them.
    Drop,
}

/// A peer that has a socket of its own.
struct Own {
    number: usize,
    /// Until when it is not waited for.
    impatient_until: Instant,
}

/// The peers that do not send by the shared socket, and whether there are others to think of.
pub(super) struct Congestion {
    own: HashMap<SocketAddr, Own>,
    swept: Instant,
    /// Where the last train went, and since when all do.
    last: Option<SocketAddr>,
    since: Instant,
}

impl Congestion {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { own: HashMap::new(), swept: now, last: None, since: now }
    }

    /// Begins a burst: sends peers back to the shared socket whose own has run empty.
    pub(super) fn sweep(&mut self, sockets: &UdpSockets) {
        if self.own.is_empty() || self.swept.elapsed() < SWEEP {
            return;
        }
        self.swept = Instant::now();
        self.own.retain(|remote, own| waiting(sockets, remote, own.number) != Some(0));
    }

    /// Notes that something is sent to a peer.
    #[inline]
    pub(super) fn note(&mut self, remote: &SocketAddr) {
        if self.last.as_ref() != Some(remote) {
            self.last = Some(*remote);
            self.since = Instant::now();
        }
    }

    /// The number of the socket that a peer has of its own.
    #[inline]
    pub(super) fn own(&self, remote: &SocketAddr) -> Option<usize> {
        if self.own.is_empty() { None } else { self.own.get(remote).map(|own| own.number) }
    }

    /// The socket of a peer is full.
    #[cold]
    pub(super) fn full(&mut self, sockets: &UdpSockets, remote: &SocketAddr) -> Full {
        let number = self.own(remote);
        let is_shared = |number| self.own.iter().filter(|(_, own)| own.number == number).count() > 1;
        if number.is_none_or(is_shared)
            && let Some(other) = self.emptiest(sockets, remote, number)
        {
            self.own.insert(*remote, Own { number: other, impatient_until: Instant::now() });
            return Full::Again;
        }
        let is_alone = self.since.elapsed() >= ALONE;
        let Some(own) = self.own.get_mut(remote).filter(|_| is_alone) else { return Full::Drop };
        if own.impatient_until > Instant::now() || !own.wait(sockets, remote) {
            return Full::Drop;
        }
        Full::Again
    }

    /// The socket for a peer that needs one of its own: that with the smallest backlog. In place of one that is `shared` with
    /// other peers, only a socket that no peer has.
    fn emptiest(&self, sockets: &UdpSockets, remote: &SocketAddr, shared: Option<usize>) -> Option<usize> {
        let is_taken = |number| {
            self.own.iter().any(|(other, own)| own.number == number && other.is_ipv4() == remote.is_ipv4())
        };
        let all = 0..sockets.own(remote).len();
        let free = all.filter(|&number| shared.is_none() || !is_taken(number));
        let ranked =
            free.filter_map(|number| Some((is_taken(number), waiting(sockets, remote, number)?, number)));
        ranked.min().map(|(_, _, number)| number)
    }
}

impl Own {
    /// Waits for room; false if that takes too long.
    fn wait(&mut self, sockets: &UdpSockets, remote: &SocketAddr) -> bool {
        let Some(fd) = sockets.fd(remote, Some(self.number)) else { return false };
        let limit = Timespec::try_from(WAIT).expect("it is short");
        let has_room = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], Some(&limit)) == Ok(1);
        if !has_room {
            self.impatient_until = Instant::now() + IMPATIENCE;
        }
        has_room
    }
}

/// Bytes that wait in an own socket.
fn waiting(sockets: &UdpSockets, remote: &SocketAddr, number: usize) -> Option<usize> {
    sockets.own(remote).get(number).map(|fd| backlog(fd.as_fd()))
}
