//! Pings, and the end of a session with a silent peer.

use std::time::Duration;

/// What is sent when nothing else is, and what is expected of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keepalive {
    /// `ping`: send something at least this often.
    pub ping: Option<Duration>,
    /// The session ends after a time without a packet of the peer.
    pub silence: Option<Silence>,
}

/// `ping-restart` or `ping-exit`: of both, the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The time without a packet.
    pub after: Duration,
    /// Whether the program is to end, and not to connect again: `ping-exit`.
    pub exits: bool,
}

impl Keepalive {
    /// `ping` and `ping-restart`.
    pub fn restarting(ping: Option<Duration>, restart: Option<Duration>) -> Self {
        Self { ping, silence: restart.map(|after| Silence { after, exits: false }) }
    }

    /// With what the server pushed in its place. A pushed time of 0 is none.
    #[must_use]
    pub fn replaced_by(self, pushed: Self) -> Self {
        Self {
            ping: pushed.ping.or(self.ping).filter(|time| !time.is_zero()),
            silence: pushed.silence.or(self.silence).filter(|silence| !silence.after.is_zero()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_pushes_replaces_each_time_alone() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let own = Keepalive::restarting(seconds(10), seconds(60));
        assert_eq!(own.replaced_by(Keepalive::default()), own);
        assert_eq!(
            own.replaced_by(Keepalive::restarting(seconds(0), seconds(90))),
            Keepalive::restarting(None, seconds(90))
        );
    }
}
