//! Which of its configured addresses a peer is called at.
//!
//! ```text
//! three initiations in a row are not answered, or   ──> the next address; after the last one, the first
//! three answers of ours to the peer have no effect
//! not at the first, with a session, every 30 s      ──> a probe, one initiation to the first; answered ──> the first
//! the peer itself initiates from another address    ──> that one, as without further addresses
//! ```
//! Only authentic handshake messages are an answer or a call, so an unauthenticated source changes nothing: it can keep an
//! address from answering if it is on the way there, and then the next one is tried. A peer with one address has none of this.

use super::limits::REKEY_TIMEOUT;
use crate::Time;
use std::net::SocketAddr;
use std::time::Duration;

/// Initiations without an answer after which the next address is called: 15 seconds.
pub const TRIES: u32 = 3;
/// The pause between probes of the first address.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// The addresses of a peer, in the order in which they are preferred, and the one in use.
#[derive(Debug, Default)]
pub struct Failover {
    addresses: Vec<SocketAddr>,
    /// The one in use, unless the peer has called from elsewhere.
    current: Option<usize>,
    /// Whether the one in use was chosen because another did not answer.
    is_fallback: bool,
    /// Handshakes in a row at the one in use that were not finished.
    unanswered: u32,
    /// When the next probe begins or, while there is one, when it ends.
    probe_at: Option<Time>,
    is_probing: bool,
}

/// Why an address is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is the first one that is configured.
    First,
    /// Those before it have not answered.
    Fallback,
    /// The peer itself has sent from it.
    Followed,
}

/// What to do when the time of a probe has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Send one initiation there.
    Begin(SocketAddr),
    /// The probe was not answered: forget it, and show the peer which address is still in use.
    End,
    /// Nothing.
    Wait,
}

impl Failover {
    /// Replaces the addresses. Returns where to call from now on, if that changes.
    pub fn set(&mut self, now: Time, addresses: Vec<SocketAddr>) -> Option<SocketAddr> {
        let used = self.current.and_then(|at| self.addresses.get(at)).copied();
        let is_kept = addresses.first() == self.addresses.first();
        self.addresses = addresses;
        self.unanswered = 0;
        match used {
            Some(used) if is_kept && self.position(used).is_some() => self.current = self.position(used),
            // The peer is where it has called from, and that is newer than the configuration.
            None if is_kept && !self.addresses.is_empty() => {}
            _ => (self.current, self.is_fallback) = (Some(0), false),
        }
        self.schedule(now);
        let changed = self.current.and_then(|at| self.addresses.get(at)).copied();
        changed.filter(|address| Some(*address) != used)
    }

    /// Takes the addresses that the name of the peer has now, and its others behind them. `endpoint`, the address in use, is kept if it is
    /// among them. Returns where to call from now on, if that changes.
    ///
    /// The initiations that were not answered still count: a name that has another address with each answer must not keep the peer from
    /// being called at the others.
    pub fn found(
        &mut self,
        now: Time,
        endpoint: Option<SocketAddr>,
        found: &[SocketAddr],
        others: &[SocketAddr],
    ) -> Option<SocketAddr> {
        let others = others.iter().filter(|other| !found.contains(other));
        self.addresses = found.iter().chain(others).copied().collect();
        let at = endpoint.and_then(|endpoint| self.position(endpoint));
        self.is_fallback &= at.is_some_and(|at| at > 0);
        self.current = at.or(Some(0));
        self.schedule(now);
        if at.is_some() { None } else { self.addresses.first().copied() }
    }

    /// Notes that an initiation to the address in use is given up without an answer. Returns the address to call next, if it
    /// is another one.
    pub fn unanswered(&mut self, now: Time) -> Option<SocketAddr> {
        self.unanswered += 1;
        (self.unanswered >= TRIES).then(|| self.next(now)).flatten()
    }

    /// Notes the authentic answer to an initiation; returns whether the first address is in use again because of it.
    pub fn answered(&mut self, now: Time, source: SocketAddr) -> bool {
        let was_probe = std::mem::take(&mut self.is_probing);
        let at = self.position(source).or(was_probe.then_some(0));
        if at.is_some() && at != self.current {
            (self.current, self.is_fallback) = (at, false);
        }
        self.unanswered = 0;
        self.schedule(now);
        was_probe && self.current == Some(0)
    }

    /// Notes an authentic initiation of the peer, which is answered. It proves one direction only: when such answers have no
    /// effect, returns the address to call next.
    pub fn called(&mut self, now: Time, source: SocketAddr) -> Option<SocketAddr> {
        let at = self.position(source);
        if at.is_none() || at != self.current {
            (self.current, self.is_fallback) = (at, false);
        }
        self.schedule(now);
        if self.unanswered >= TRIES {
            return self.next(now);
        }
        self.unanswered += 1;
        None
    }

    /// Notes that an answer of ours has arrived: the peer uses the keys.
    pub fn confirmed(&mut self) {
        self.unanswered = 0;
    }

    /// Decides about a probe whose time has come. Without a key there is no session that it could help; while another
    /// handshake is under way it waits.
    pub fn probe(&mut self, now: Time, has_key: bool, is_busy: bool) -> Probe {
        if std::mem::take(&mut self.is_probing) {
            self.probe_at = Some(now + PROBE_INTERVAL);
            return Probe::End;
        }
        self.probe_at = None;
        if !self.is_away() || !has_key {
            return Probe::Wait;
        }
        self.probe_at = Some(now + REKEY_TIMEOUT);
        if is_busy {
            return Probe::Wait;
        }
        self.is_probing = true;
        Probe::Begin(self.addresses[0])
    }

    /// Notes that a handshake with the address in use takes the place of a probe, if there is one.
    pub fn abandon_probe(&mut self, now: Time) {
        if std::mem::take(&mut self.is_probing) {
            self.probe_at = Some(now + PROBE_INTERVAL);
        }
    }

    /// Notes that the sessions have ended: the next one schedules probes again.
    pub fn stop_probing(&mut self) {
        (self.is_probing, self.probe_at) = (false, None);
    }

    /// Whether the answer that is awaited is that of a probe.
    pub fn is_probing(&self) -> bool {
        self.is_probing
    }

    /// When [`probe`](Self::probe) must be called.
    pub fn probe_at(&self) -> Option<Time> {
        self.probe_at
    }

    /// All addresses, in their order.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Why `endpoint` is used. The data path follows the peer, so it may be none of the addresses.
    pub fn reason(&self, endpoint: SocketAddr) -> Reason {
        match self.position(endpoint) {
            Some(0) => Reason::First,
            at if at.is_some() && at == self.current && self.is_fallback => Reason::Fallback,
            _ => Reason::Followed,
        }
    }

    fn next(&mut self, now: Time) -> Option<SocketAddr> {
        if self.addresses.len() < 2 {
            return None;
        }
        let next = self.current.map_or(0, |at| (at + 1) % self.addresses.len());
        (self.current, self.is_fallback, self.unanswered) = (Some(next), next > 0, 0);
        self.schedule(now);
        self.addresses.get(next).copied()
    }

    /// Whether another address than the first is in use.
    fn is_away(&self) -> bool {
        self.addresses.len() > 1 && self.current != Some(0)
    }

    fn schedule(&mut self, now: Time) {
        if !self.is_away() {
            self.stop_probing();
        } else if self.probe_at.is_none() {
            self.probe_at = Some(now + PROBE_INTERVAL);
        }
    }

    fn position(&self, address: SocketAddr) -> Option<usize> {
        self.addresses.iter().position(|it| *it == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_the_address_in_use_while_it_has_it() {
        let (now, mut failover) = (Time::from_nanoseconds(1), Failover::default());
        let all = |failover: &Failover| failover.addresses().to_vec();
        assert_eq!(failover.found(now, None, &[address(1), address(2)], &[address(9)]), Some(address(1)));
        assert_eq!(all(&failover), [address(1), address(2), address(9)]);
        // Another order does not move it.
        assert_eq!(failover.found(now, Some(address(1)), &[address(2), address(1)], &[address(9)]), None);
        assert_eq!(all(&failover), [address(2), address(1), address(9)]);
        assert_eq!(
            failover.found(now, Some(address(9)), &[address(3)], &[address(9)]),
            None,
            "the other is used"
        );
        assert_eq!(all(&failover), [address(3), address(9)]);
        // It had called from there itself, and is silent now.
        assert_eq!(failover.found(now, Some(address(77)), &[address(3)], &[address(9)]), Some(address(3)));
    }

    #[test]
    fn a_name_with_another_address_each_time_does_not_keep_the_others_from_being_called() {
        let (now, mut failover) = (Time::from_nanoseconds(1), Failover::default());
        let mut used = failover.found(now, None, &[address(1)], &[address(9)]);
        for number in 2..2 + TRIES as u8 {
            used = failover.unanswered(now).or(used);
            used = failover.found(now, used, &[address(number)], &[address(9)]).or(used);
        }
        assert_eq!(used, Some(address(9)));
    }

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, number], 51_820))
    }

    fn at(seconds: u64) -> Time {
        Time::from_nanoseconds((1000 + seconds) * 1_000_000_000)
    }

    /// A peer with so many addresses, of which the first is in use.
    fn with(count: u8) -> Failover {
        let mut failover = Failover::default();
        assert_eq!(failover.set(at(0), (1..=count).map(address).collect()), Some(address(1)));
        failover
    }

    /// The same, which has fallen back to the second.
    fn away() -> Failover {
        let mut failover = with(2);
        let called: Vec<_> = (0..3).map(|_| failover.unanswered(at(15))).collect();
        assert_eq!(called, [None, None, Some(address(2))]);
        failover
    }

    #[test]
    fn three_unanswered_initiations_lead_to_the_next_address_and_from_the_last_to_the_first() {
        let mut failover = with(3);
        let mut called = Vec::new();
        for number in 1..=12 {
            called.extend(failover.unanswered(at(5 * number)));
        }
        assert_eq!(called, [2, 3, 1, 2].map(address));
        assert_eq!(failover.reason(address(2)), Reason::Fallback);
        let mut alone = with(1);
        assert!((1..100).all(|number| alone.unanswered(at(number)).is_none()), "there is no other");
    }

    #[test]
    fn an_answer_ends_the_count() {
        let mut failover = with(2);
        for number in 0..10 {
            assert_eq!([failover.unanswered(at(number)), failover.unanswered(at(number))], [None; 2]);
            assert!(!failover.answered(at(number), address(1)));
        }
        assert_eq!((failover.reason(address(1)), failover.probe_at()), (Reason::First, None));
    }

    #[test]
    fn the_first_address_is_probed_while_another_is_in_use_and_taken_when_it_answers() {
        let mut failover = away();
        assert!(!failover.answered(at(16), address(2)));
        assert_eq!(failover.probe_at(), Some(at(45)));
        assert_eq!(failover.probe(at(45), true, true), Probe::Wait, "a handshake is under way");
        assert_eq!(failover.probe(at(50), true, false), Probe::Begin(address(1)));
        assert_eq!(failover.probe_at(), Some(at(55)));
        assert_eq!(failover.probe(at(55), true, false), Probe::End, "no answer");
        assert_eq!(failover.reason(address(2)), Reason::Fallback);
        assert_eq!(failover.probe_at(), Some(at(85)));
        assert_eq!(failover.probe(at(85), true, false), Probe::Begin(address(1)));
        assert!(failover.answered(at(86), address(1)));
        assert_eq!((failover.reason(address(1)), failover.probe_at()), (Reason::First, None));
    }

    #[test]
    fn a_probe_is_no_try_of_the_address_in_use_and_gives_way_to_its_handshakes() {
        let mut failover = away();
        assert_eq!(failover.probe(at(45), true, false), Probe::Begin(address(1)));
        failover.abandon_probe(at(46));
        assert!(!failover.answered(at(47), address(2)), "the handshake that took its place");
        assert_eq!(failover.probe_at(), Some(at(76)));
        assert_eq!(failover.probe(at(76), false, false), Probe::Wait);
        assert_eq!(failover.probe_at(), None, "without a session there is nothing to bring back");
        failover.answered(at(100), address(2));
        assert_eq!(failover.probe_at(), Some(at(130)), "with the next one there is");
    }

    #[test]
    fn a_peer_that_calls_is_followed_and_its_first_address_is_still_preferred() {
        let mut failover = with(2);
        assert_eq!(failover.called(at(1), address(9)), None);
        failover.confirmed();
        assert_eq!((failover.reason(address(9)), failover.probe_at()), (Reason::Followed, Some(at(31))));
        assert_eq!(failover.probe(at(31), true, false), Probe::Begin(address(1)));
        assert!(failover.answered(at(32), address(9)), "a NAT may answer from another address");
        failover.called(at(40), address(2));
        failover.confirmed();
        assert_eq!(failover.reason(address(2)), Reason::Followed, "nothing was unanswered");
        failover.called(at(50), address(9));
        failover.confirmed();
        let called: Vec<_> = (0..3).filter_map(|_| failover.unanswered(at(60))).collect();
        assert_eq!(called, [address(1)], "from elsewhere, the first is the next");
        let mut alone = with(1);
        alone.called(at(1), address(9));
        assert_eq!(alone.probe_at(), None, "a peer with one address may move as ever");
    }

    #[test]
    fn a_peer_that_calls_and_does_not_hear_the_answers_is_called_at_its_next_address() {
        let mut failover = with(2);
        let called: Vec<_> = (0..4).map(|number| failover.called(at(5 * number), address(1))).collect();
        assert_eq!(called, [None, None, None, Some(address(2))]);
        for number in 0..10 {
            assert_eq!(failover.called(at(20 + number), address(2)), None);
            failover.confirmed();
        }
    }

    #[test]
    fn a_new_list_moves_a_peer_only_if_it_must() {
        let list = |numbers: &[u8]| numbers.iter().map(|&number| address(number)).collect::<Vec<_>>();
        let mut failover = away();
        assert_eq!(failover.set(at(20), list(&[1, 3, 2])), None, "the second is the third now");
        assert_eq!(failover.reason(address(2)), Reason::Fallback);
        assert_eq!(failover.set(at(20), list(&[1, 3])), Some(address(1)), "its address is gone");
        assert_eq!(failover.set(at(20), list(&[4, 3])), Some(address(4)));
        failover.called(at(21), address(9));
        assert_eq!(failover.set(at(22), list(&[4, 5])), None, "it has moved itself");
        assert_eq!(
            failover.set(at(23), list(&[6, 5])),
            Some(address(6)),
            "the configuration says something new"
        );
        assert_eq!(failover.set(at(24), Vec::new()), None);
        assert_eq!(failover.probe_at(), None);
    }
}
