//! Rates: what was counted between two snapshots, over the time between them.

use gateway::facts::model::{Drop, Facts, Tunnel};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Milliseconds between snapshots beyond which a mean rate would hide what happened between them.
const LONGEST: u64 = 60_000;

/// Tells a tunnel from all others, also later.
pub(super) fn key(tunnel: &Tunnel) -> u64 {
    hash(&(tunnel.protocol, &tunnel.interface, &tunnel.peer, tunnel.tunnel))
}

/// Tells a reason of an interface from all others.
pub(super) fn of_drop(drop: &Drop) -> u64 {
    hash(&(&drop.interface, &drop.reason))
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// How many packets were dropped for a reason, in all.
pub(super) fn dropped(drop: &Drop) -> u64 {
    drop.outbound + drop.inbound + drop.handshake
}

/// A number that is counted, and its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counted {
    count: u64,
    per_second: Option<f64>,
}

impl Counted {
    /// `seconds` have passed since `before` was counted.
    fn now(count: u64, before: Option<Self>, seconds: f64) -> Self {
        // What was removed and added counts anew.
        let since = |before: Self| count.checked_sub(before.count).unwrap_or(count) as f64 / seconds;
        Self { count, per_second: before.map(since) }
    }
}

/// What is kept of a snapshot to tell the rates of the next: little for each tunnel, as there may be ten thousand.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// None before the first.
    moment: Option<u64>,
    started: u64,
    tunnels: HashMap<u64, [Counted; 3]>,
    drops: HashMap<u64, Counted>,
    threads: HashMap<u32, [Counted; 2]>,
}

impl Rates {
    /// The rates since the snapshot before; the same ones for the same snapshot.
    pub(super) fn since(before: &Self, facts: &Facts) -> Self {
        let then = before.moment.filter(|_| before.started == facts.daemon.started);
        let passed = then.and_then(|then| facts.moment.checked_sub(then));
        if passed == Some(0) {
            return before.clone();
        }
        let milliseconds = passed.unwrap_or_default();
        let is_known = passed.is_some_and(|it| it <= LONGEST);
        let seconds = milliseconds as f64 / 1000.0;
        let count =
            |count, before: Option<Counted>| Counted::now(count, before.filter(|_| is_known), seconds);
        let tunnel = |tunnel: &Tunnel| {
            let (key, counts) = (key(tunnel), counts(tunnel));
            let earlier = before.tunnels.get(&key);
            (key, [0, 1, 2].map(|at| count(counts[at], earlier.map(|earlier| earlier[at]))))
        };
        let drop = |drop: &Drop| {
            let key = of_drop(drop);
            (key, count(dropped(drop), before.drops.get(&key).copied()))
        };
        let thread = |thread: &gateway::api::model::Thread| {
            let earlier = before.threads.get(&thread.id);
            let counts = [thread.nanoseconds, thread.waited];
            (thread.id, [0, 1].map(|at| count(counts[at], earlier.map(|earlier| earlier[at]))))
        };
        Self {
            moment: Some(facts.moment),
            started: facts.daemon.started,
            tunnels: facts.tunnels.iter().map(tunnel).collect(),
            drops: facts.drops.iter().map(drop).collect(),
            threads: facts.threads.iter().map(thread).collect(),
        }
    }

    /// Bits a second received from and sent to a peer.
    pub(super) fn of(&self, tunnel: &Tunnel) -> Option<[f64; 2]> {
        let [received, sent, _] = self.tunnels.get(&key(tunnel))?;
        Some([8.0 * received.per_second?, 8.0 * sent.per_second?])
    }

    /// Packets for a peer that were not sent, a second.
    pub(super) fn unsent(&self, tunnel: &Tunnel) -> Option<f64> {
        self.tunnels.get(&key(tunnel))?[2].per_second
    }

    /// Packets that were dropped for a reason, a second.
    pub(super) fn drops(&self, drop: &Drop) -> Option<f64> {
        self.drops.get(&of_drop(drop))?.per_second
    }

    /// The parts of the time in which a thread was on a processor, and waited for one.
    pub(super) fn thread(&self, id: u32) -> Option<[f64; 2]> {
        let [ran, waited] = self.threads.get(&id)?;
        Some([ran.per_second? / 1e9, waited.per_second? / 1e9])
    }
}

fn counts(tunnel: &Tunnel) -> [u64; 3] {
    [tunnel.received_bytes, tunnel.sent_bytes, tunnel.unsent_packets.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(moment: u64, received: u64) -> Facts {
        let tunnel = Tunnel { peer: "berlin".to_owned(), received_bytes: received, ..Tunnel::default() };
        let drop = Drop { reason: "bad-tag".to_owned(), inbound: received / 100, ..Drop::default() };
        Facts { moment, tunnels: vec![tunnel], drops: vec![drop], ..Facts::default() }
    }

    #[test]
    fn rates_are_what_was_counted_over_the_time_between() {
        let first = Rates::since(&Rates::default(), &facts(100_000, 1000));
        let tunnel = &facts(0, 0).tunnels[0];
        assert_eq!(first.of(tunnel), None, "there is nothing before");
        let then = facts(102_000, 2000);
        let second = Rates::since(&first, &then);
        assert_eq!(second.of(tunnel), Some([4000.0, 0.0]));
        assert_eq!(second.drops(&then.drops[0]), Some(5.0));
        let again = Rates::since(&second, &then);
        assert_eq!(again.of(tunnel), Some([4000.0, 0.0]), "the same snapshot has the same rates");
        let anew = Rates::since(&again, &facts(103_000, 500));
        assert_eq!(anew.of(tunnel), Some([4000.0, 0.0]), "a peer that was added again counts anew");
    }

    #[test]
    fn there_is_no_rate_over_a_restart_or_a_long_time() {
        let first = Rates::since(&Rates::default(), &facts(5000, 1000));
        let tunnel = &facts(0, 0).tunnels[0];
        assert_eq!(Rates::since(&first, &facts(5000 + LONGEST + 1, 2000)).of(tunnel), None);
        let mut restarted = facts(6000, 2000);
        restarted.daemon.started = 7;
        assert_eq!(Rates::since(&first, &restarted).of(tunnel), None);
    }
}
