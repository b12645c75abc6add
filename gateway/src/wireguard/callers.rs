//! Callers of a WireGuard interface that are not its peers, with a limit on log lines about them.

use crypto::PublicKey;
use std::net::SocketAddr;
use std::time::Duration;
use tunnel::Time;

/// Callers that are remembered: the one that was silent for longest gives way.
const REMEMBERED: usize = 16;
/// A caller is logged again after this.
const AGAIN: Duration = Duration::from_secs(60);
/// Lines about peers, and lines about callers, that an interface may log in [`WINDOW`].
const LINES: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// A caller that is no peer. Nothing that it says has been proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The public key that it names; `None` if it has made its messages for another public key than ours.
    pub public: Option<PublicKey>,
    /// Where its last message came from.
    pub source: SocketAddr,
    /// Its messages.
    pub count: u64,
    /// Time since 1970 of the last one.
    pub last: Duration,
    logged: Time,
}

/// Callers that are no peers.
#[derive(Default)]
pub struct Callers(Vec<Caller>);

impl Callers {
    /// Notes a message; tells whether it should be logged.
    pub fn note(&mut self, public: Option<PublicKey>, source: SocketAddr, now: tunnel::Now) -> bool {
        // A caller without a known key is identified by its address; one with a key may move.
        let is_same = |caller: &&mut Caller| {
            caller.public == public && (public.is_some() || caller.source.ip() == source.ip())
        };
        if let Some(caller) = self.0.iter_mut().find(is_same) {
            (caller.source, caller.last) = (source, now.wall);
            caller.count += 1;
            let is_due = now.monotonic - caller.logged >= AGAIN;
            if is_due {
                caller.logged = now.monotonic;
            }
            return is_due;
        }
        if self.0.len() == REMEMBERED
            && let Some(oldest) = (0..REMEMBERED).min_by_key(|&at| self.0[at].last)
        {
            self.0.swap_remove(oldest);
        }
        self.0.push(Caller { public, source, count: 1, last: now.wall, logged: now.monotonic });
        true
    }

    /// Forgets a caller that has become a peer.
    pub fn forget(&mut self, public: &PublicKey) {
        self.0.retain(|caller| caller.public.as_ref() != Some(public));
    }

    /// All of them, the last one first.
    pub fn all(&self) -> Vec<Caller> {
        let mut all = self.0.clone();
        all.sort_by_key(|caller| std::cmp::Reverse(caller.last));
        all
    }
}

/// The subject of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// A peer.
    Peer,
    /// A caller that is none.
    Caller,
}

impl About {
    /// All that a line may be about.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Peer => "peers",
            Self::Caller => "callers",
        }
    }
}

/// How many lines may still be logged. Callers, who may be anyone, take nothing from what is for peers.
#[derive(Default)]
pub struct Allowances {
    peers: Allowance,
    callers: Allowance,
}

impl Allowances {
    /// Whether a line may be logged, and how many of its kind were left out before it.
    pub fn take(&mut self, about: About, now: Time) -> Option<u64> {
        match about {
            About::Peer => self.peers.take(now),
            About::Caller => self.callers.take(now),
        }
    }
}

#[derive(Default)]
struct Allowance {
    since: Option<Time>,
    logged: u32,
    left_out: u64,
}

impl Allowance {
    fn take(&mut self, now: Time) -> Option<u64> {
        if self.since.is_none_or(|since| now - since >= WINDOW) {
            (self.since, self.logged) = (Some(now), 0);
        }
        if self.logged == LINES {
            self.left_out += 1;
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tunnel::Now;

    fn at(seconds: u64) -> Now {
        let monotonic = Time::from_nanoseconds(1 + seconds * 1_000_000_000);
        Now { monotonic, wall: Duration::from_secs(seconds) }
    }

    fn source(number: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], number))
    }

    #[test]
    fn a_caller_is_counted_and_logged_once_a_minute() {
        let mut callers = Callers::default();
        let key = Some(PublicKey([7; 32]));
        let logged: Vec<bool> =
            [0, 1, 59, 60, 61].map(|second| callers.note(key, source(second as u16), at(second))).to_vec();
        assert_eq!(logged, [true, false, false, true, false]);
        assert!(callers.note(None, source(1), at(62)) && !callers.note(None, source(2), at(63)));
        let all = callers.all();
        assert_eq!((all.len(), all[0].count, all[1].count, all[1].source), (2, 2, 5, source(61)));
        callers.forget(&PublicKey([7; 32]));
        assert_eq!(callers.all().len(), 1);
    }

    #[test]
    fn no_more_are_remembered_than_fit_on_a_screen() {
        let mut callers = Callers::default();
        for number in 0..1000u64 {
            let key = PublicKey(std::array::from_fn(|at| (number >> (8 * (at % 8))) as u8));
            callers.note(Some(key), source(1), at(number));
        }
        let all = callers.all();
        assert_eq!((all.len(), all[0].last.as_secs(), all[15].last.as_secs()), (16, 999, 984));
    }

    #[test]
    fn a_log_is_not_flooded_and_says_what_it_leaves_out() {
        let mut allowances = Allowances::default();
        let mut take = |about, second| allowances.take(about, at(second).monotonic);
        let taken = (0..50).filter_map(|_| take(About::Caller, 0)).count();
        assert_eq!(taken, 20);
        assert_eq!(take(About::Peer, 0), Some(0), "peers have an allowance of their own");
        assert_eq!(take(About::Caller, 9), None);
        assert_eq!(take(About::Caller, 10), Some(31));
        assert_eq!(take(About::Caller, 10), Some(0));
    }
}
