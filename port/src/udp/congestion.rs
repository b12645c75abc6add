//! Selection of the socket for each peer, so that a slow peer does not delay the others.
//!
//! The kernel charges a datagram to its socket until the network device has sent it. If the link to one peer is slow,
//! the datagrams of that peer would fill the shared socket and delay all peers. So when the shared socket is full,
//! each peer that sends gets a socket of its own until that socket is empty again. Only a peer whose own socket is
//! full loses packets.
//!
//! ```text
//! shared socket ── full ──> own socket ── full, no other peer sends, the link is fast ──> wait, at most WAIT
//!       ^                     │    └───── full otherwise ──> dropped, of this peer only
//!       └────── empty ────────┘
//! ```

use super::socket::{MOST_RECEIVING, OWN, Path, UdpSockets, backlog};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The longest wait for an own socket to become half empty, which takes a link of 140 Mbit/s. Waiting also delays the
/// inside, and saves the work on packets that would be lost. For a slower link the delay would cost the other peers
/// too much.
const WAIT: Duration = Duration::from_millis(30);
/// The time without waiting after a peer's link was too slow.
const IMPATIENCE: Duration = Duration::from_secs(1);
/// A peer is alone if no other was sent to for this time.
const ALONE: Duration = Duration::from_secs(1);
/// The time for which a peer's own socket counts as full after it was. A link of 10 Gbit/s sends 310 KB meanwhile, which is less than the
/// socket holds: no link runs dry.
const FULL: Duration = Duration::from_micros(250);
/// The interval at which own sockets are checked for being empty.
const SWEEP: Duration = Duration::from_secs(1);

/// The action for datagrams whose socket is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Send them again: the peer has another socket, or there is room now.
    Again,
    /// Drop them.
    Drop,
}

/// A peer with a socket of its own.
struct Own {
    number: usize,
    /// No waiting for this peer until then.
    impatient_until: Instant,
    /// No attempt to send until then.
    full_until: Instant,
}

/// The peers with an own socket, and whether other peers are active.
pub(super) struct Congestion {
    own: HashMap<Path, Own>,
    /// The number of peers of each own socket, by the number of its shared socket: a drop must not cost a scan of all peers.
    owners: [[u32; OWN]; MOST_RECEIVING],
    swept: Instant,
    /// The destination of the last train, and since when all trains go to it.
    last: Option<Path>,
    since: Instant,
}

impl Congestion {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { own: HashMap::new(), owners: [[0; OWN]; MOST_RECEIVING], swept: now, last: None, since: now }
    }

    /// Starts a burst: peers whose own socket is empty return to the shared socket.
    pub(super) fn sweep(&mut self, sockets: &UdpSockets) {
        if self.own.is_empty() || self.swept.elapsed() < SWEEP {
            return;
        }
        self.swept = Instant::now();
        let Self { own, owners, .. } = self;
        // One look at each socket that is in use.
        let mut waits = [[None; OWN]; MOST_RECEIVING];
        own.retain(|path, own| {
            let waits = &mut waits[path.number()][own.number];
            let stays =
                *waits.get_or_insert_with(|| waiting(sockets, path, own.number).is_some_and(|it| it > 0));
            owners[path.number()][own.number] -= u32::from(!stays);
            stays
        });
    }

    /// Notes that a train is sent to a peer.
    #[inline]
    pub(super) fn note(&mut self, path: &Path) {
        if self.last.as_ref() != Some(path) {
            self.last = Some(*path);
            self.since = Instant::now();
        }
    }

    /// The number of the peer's own socket.
    #[inline]
    pub(super) fn own(&self, path: &Path) -> Option<usize> {
        if self.own.is_empty() { None } else { self.own.get(path).map(|own| own.number) }
    }

    /// Whether the peer's own socket was full a moment ago.
    #[inline]
    pub(super) fn is_full(&self, path: &Path) -> bool {
        !self.own.is_empty() && self.own.get(path).is_some_and(|own| own.full_until > Instant::now())
    }

    /// Handles a full socket of a peer.
    #[cold]
    pub(super) fn full(&mut self, sockets: &UdpSockets, path: &Path) -> Full {
        let number = self.own(path);
        let owners = self.owners[path.number()];
        if number.is_none_or(|number| owners[number] > 1)
            && let Some(other) = self.emptiest(sockets, path, number)
        {
            self.give(path, other);
            return Full::Again;
        }
        let is_alone = self.since.elapsed() >= ALONE;
        let Some(own) = self.own.get_mut(path) else { return Full::Drop };
        if is_alone && own.impatient_until <= Instant::now() && own.wait(sockets, path) {
            return Full::Again;
        }
        own.full_until = Instant::now() + FULL;
        Full::Drop
    }

    /// Assigns an own socket to a peer, in place of any previous one.
    fn give(&mut self, path: &Path, number: usize) {
        let now = Instant::now();
        let before = self.own.insert(*path, Own { number, impatient_until: now, full_until: now });
        let owners = &mut self.owners[path.number()];
        if let Some(Own { number, .. }) = before {
            owners[number] -= 1;
        }
        owners[number] += 1;
    }

    /// The socket for a peer that needs its own: the one with the smallest backlog. If the present one is `shared`
    /// with other peers, only an unused socket may replace it.
    fn emptiest(&self, sockets: &UdpSockets, path: &Path, shared: Option<usize>) -> Option<usize> {
        let owners = self.owners[path.number()];
        let is_taken = |number: usize| owners[number] > 0;
        let all = 0..sockets.own(path).len();
        let free = all.filter(|&number| shared.is_none() || !is_taken(number));
        let ranked =
            free.filter_map(|number| Some((is_taken(number), waiting(sockets, path, number)?, number)));
        ranked.min().map(|(_, _, number)| number)
    }
}

impl Own {
    /// Waits for room; returns false if that takes too long.
    fn wait(&mut self, sockets: &UdpSockets, path: &Path) -> bool {
        let Some(fd) = sockets.fd(path, 0, Some(self.number)) else { return false };
        let limit = Timespec::try_from(WAIT).expect("it is short");
        let has_room = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], Some(&limit)) == Ok(1);
        if !has_room {
            self.impatient_until = Instant::now() + IMPATIENCE;
        }
        has_room
    }
}

/// The backlog of an own socket in bytes.
fn waiting(sockets: &UdpSockets, path: &Path, number: usize) -> Option<usize> {
    sockets.own(path).get(number).map(|fd| backlog(fd.as_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Offloads;
    use std::net::Ipv6Addr;

    fn remote(v6: bool, number: u16) -> Path {
        let remote = if v6 { (Ipv6Addr::LOCALHOST, number).into() } else { ([127, 0, 0, 1], number).into() };
        Path { remote, binding: 0 }
    }

    /// The number of peers of each socket, by a scan of all peers.
    fn owners(congestion: &Congestion) -> [[u32; OWN]; MOST_RECEIVING] {
        let mut owners = [[0; OWN]; MOST_RECEIVING];
        congestion.own.iter().for_each(|(remote, own)| owners[remote.number()][own.number] += 1);
        owners
    }

    #[test]
    fn the_number_of_peers_of_each_socket_is_kept_up_to_date() {
        let sockets = UdpSockets::bind(0, 0, &Offloads::default()).expect("loopback is there");
        let mut congestion = Congestion::new();
        for number in 1..100 {
            for v6 in [false, true] {
                assert_eq!(congestion.full(&sockets, &remote(v6, number)), Full::Again);
                assert_eq!(congestion.owners, owners(&congestion));
            }
        }
        assert_eq!(
            congestion.owners.map(|of| of.iter().sum::<u32>()),
            [&[99; 2][..], &[0; MOST_RECEIVING - 2]].concat()[..]
        );
        // All are empty: nothing was sent.
        congestion.swept -= SWEEP;
        congestion.sweep(&sockets);
        assert_eq!((congestion.own.len(), congestion.owners), (0, [[0; OWN]; MOST_RECEIVING]));
    }

    #[test]
    fn a_socket_of_the_other_ip_version_is_not_shared() {
        let sockets = UdpSockets::bind(0, 0, &Offloads::default()).expect("loopback is there");
        let mut congestion = Congestion::new();
        for v6 in [false, true] {
            assert_eq!(congestion.full(&sockets, &remote(v6, 1)), Full::Again, "it gets its own");
        }
        let numbers = [false, true].map(|v6| congestion.own(&remote(v6, 1)));
        assert_eq!(numbers, [Some(0); 2]);
        for v6 in [false, true] {
            assert_eq!(congestion.full(&sockets, &remote(v6, 1)), Full::Drop, "no other peer has it");
        }
    }

    #[test]
    fn a_peer_that_shares_a_socket_moves_to_an_unused_one() {
        let sockets = UdpSockets::bind(0, 0, &Offloads::default()).expect("loopback is there");
        let mut congestion = Congestion::new();
        for number in 0..=OWN as u16 {
            assert_eq!(congestion.full(&sockets, &remote(false, number)), Full::Again);
        }
        let last = remote(false, OWN as u16);
        assert!(!congestion.is_full(&last));
        let before = Instant::now();
        assert_eq!(congestion.full(&sockets, &last), Full::Drop, "all are taken");
        assert!(congestion.own[&last].full_until >= before + FULL);
        congestion.own.get_mut(&last).expect("it has one").full_until += Duration::from_secs(9);
        assert!(congestion.is_full(&last) && !congestion.is_full(&remote(false, 0)));
        let shared = congestion.own(&last).expect("it has one");
        let other = (shared + 1) % OWN;
        congestion.own.retain(|_, own| own.number != other);
        congestion.owners[0][other] = 0;
        assert_eq!((congestion.full(&sockets, &last), congestion.own(&last)), (Full::Again, Some(other)));
        assert_eq!(congestion.owners, owners(&congestion));
    }
}
