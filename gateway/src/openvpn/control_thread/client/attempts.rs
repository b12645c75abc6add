//! The attempts of a client to connect.

use std::time::Duration;

/// The time to the next attempt is doubled after so many attempts for each server, as in OpenVPN.
const QUICK: u32 = 5;

/// The attempts to connect: which server is next, and when.
pub(super) struct Attempts {
    servers: u32,
    /// The number of the attempt, from the first server on.
    number: u32,
    /// The time to the next one, and how long it may grow.
    retry: (Duration, Duration),
}

impl Attempts {
    pub(super) fn new(servers: usize, retry: (Duration, Duration)) -> Self {
        Self { servers: servers.max(1) as u32, number: 0, retry }
    }

    /// There are so many servers now.
    pub(super) fn set_servers(&mut self, servers: usize) {
        let (rounds, server) = (self.rounds(), self.server() as u32);
        self.servers = servers.max(1) as u32;
        self.number = rounds.saturating_mul(self.servers).saturating_add(server.min(self.servers - 1));
    }

    /// How often all servers were tried since one answered.
    pub(super) fn rounds(&self) -> u32 {
        self.number / self.servers
    }

    /// The server of this attempt.
    pub(super) fn server(&self) -> usize {
        (self.number % self.servers) as usize
    }

    /// The session is up: if it ends, the next server is tried soon.
    pub(super) fn succeeded(&mut self) {
        self.number %= self.servers;
    }

    /// Goes on to the next server; returns how long to wait before.
    pub(super) fn failed(&mut self) -> Duration {
        let wait = self.wait();
        self.number = self.number.wrapping_add(1);
        wait
    }

    /// Stays with the server; returns how long to wait before.
    pub(super) fn refused(&mut self) -> Duration {
        let wait = self.wait();
        self.number = self.number.wrapping_add(self.servers);
        wait
    }

    fn wait(&self) -> Duration {
        let (first, slowest) = self.retry;
        (first * 2u32.pow(self.rounds().saturating_sub(QUICK).min(10))).min(slowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Duration = Duration::from_secs(1);

    fn attempts(servers: usize) -> Attempts {
        Attempts::new(servers, (RETRY, Duration::from_secs(300)))
    }

    #[test]
    fn servers_are_tried_in_turn_and_ever_more_slowly() {
        let mut attempts = attempts(2);
        let tried: Vec<(usize, u64)> =
            (0..40).map(|_| (attempts.server(), attempts.failed().as_secs())).collect();
        assert_eq!(tried[..4], [(0, 1), (1, 1), (0, 1), (1, 1)]);
        assert_eq!(tried[10..14], [(0, 1), (1, 1), (0, 2), (1, 2)], "after five rounds");
        assert_eq!(tried[39], (1, 300));
    }

    #[test]
    fn after_a_session_that_was_up_the_next_server_is_tried_soon() {
        let mut attempts = attempts(3);
        (0..100).for_each(|_| _ = attempts.failed());
        attempts.succeeded();
        assert_eq!((attempts.server(), attempts.failed()), (1, RETRY));
        assert_eq!(Attempts::new(0, attempts.retry).server(), 0);
    }

    #[test]
    fn more_or_fewer_servers_keep_the_round() {
        let mut attempts = attempts(2);
        (0..13).for_each(|_| _ = attempts.failed());
        assert_eq!((attempts.server(), attempts.rounds()), (1, 6));
        attempts.set_servers(3);
        assert_eq!((attempts.server(), attempts.rounds()), (1, 6));
        attempts.set_servers(0);
        assert_eq!((attempts.server(), attempts.rounds()), (0, 6));
    }

    #[test]
    fn after_a_refusal_the_same_server_is_tried_ever_more_slowly() {
        let mut attempts = attempts(2);
        attempts.failed();
        let tried: Vec<(usize, u64)> =
            (0..8).map(|_| (attempts.server(), attempts.refused().as_secs())).collect();
        assert_eq!(tried[..6], [(1, 1); 6]);
        assert_eq!(tried[6..], [(1, 2), (1, 4)]);
    }
}
