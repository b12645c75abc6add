//! Retransmission of requests, with growing intervals (RFC 7296 section 2.4).

use super::config::Patience;
use crate::Time;
use std::time::Duration;

/// Datagrams of one message: one, or its fragments.
pub(super) type Datagrams = Vec<Vec<u8>>;

/// A message that is retransmitted until it is answered.
pub(super) struct Retransmission {
    datagrams: Datagrams,
    pub(super) sent: u32,
    most: u32,
    patience: Patience,
    wait: Duration,
    pub(super) next: Time,
    /// The latest time at which it is given up.
    until: Option<Time>,
}

/// The outcome of a retransmission timer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// The message is sent again.
    Again(Datagrams),
    /// The peer does not answer: the message is given up.
    Dead,
}

impl Retransmission {
    /// Starts the timer of a message that has just been sent.
    pub(super) fn new(now: Time, patience: Patience, datagrams: Datagrams) -> Self {
        let (wait, most) = (patience.first, patience.attempts.saturating_add(1));
        Self { datagrams, sent: 1, most, patience, wait, next: now + wait, until: None }
    }

    /// Limits the message to `most` transmissions.
    pub(super) fn hurry(&mut self, most: u32) {
        self.most = self.most.min(most);
    }

    /// Gives the message up at `time`, or earlier if an earlier time was set, but not before it was sent again once.
    pub(super) fn give_up_at(&mut self, time: Time) {
        let until = self.until.map_or(time, |until| until.min(time));
        self.until = Some(until);
        if self.sent > 1 {
            self.next = self.next.min(time);
        }
    }

    /// Sends the message again at once, and then at the first intervals: one in back-off would ask too seldom.
    pub(super) fn hasten(&mut self, now: Time) {
        if self.next > now + self.patience.first {
            (self.next, self.wait, self.sent) = (now, self.patience.first, 1);
        }
    }

    /// Returns what is due at `now`; `None` if nothing is.
    pub(super) fn handle_timeout(&mut self, now: Time) -> Option<Overdue> {
        if now < self.next {
            return None;
        }
        let is_late = self.sent > 1 && self.until.is_some_and(|until| until <= now);
        if self.sent >= self.most || is_late {
            return Some(Overdue::Dead);
        }
        self.wait = self.patience.after(self.wait);
        // A message past its limit already waits its full time after the second transmission.
        let until = self.until.filter(|until| *until > now);
        self.next = until.map_or(now + self.wait, |until| until.min(now + self.wait));
        self.sent += 1;
        Some(Overdue::Again(self.datagrams.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_nanoseconds(1_000_000_000);

    #[test]
    fn a_request_in_back_off_is_sent_again_before_the_peer_is_given_up() {
        let patience = Patience::default();
        let at = |seconds: u64| NOW + Duration::from_secs(seconds);
        let again = |sent: &mut Retransmission, seconds| match sent.handle_timeout(at(seconds)) {
            Some(Overdue::Again(_)) => true,
            Some(Overdue::Dead) => panic!("given up after {seconds} s"),
            None => false,
        };
        let mut sent = Retransmission::new(NOW, patience, vec![vec![0]]);
        assert!((0..30).filter(|&second| again(&mut sent, second)).count() >= 4);
        sent.hasten(at(30));
        sent.give_up_at(at(60));
        assert!(again(&mut sent, 30), "at once");
        assert!((31..60).filter(|&second| again(&mut sent, second)).count() >= 4);
        assert!(matches!(sent.handle_timeout(at(60)), Some(Overdue::Dead)));
    }
}
