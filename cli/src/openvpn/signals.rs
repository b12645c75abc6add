//! Signals, with OpenVPN's meanings.

use std::io;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// SIGHUP: read the files again, and start anew.
    Reread,
    /// SIGUSR1: connect again, or end the sessions of clients.
    Reconnect,
    /// SIGUSR2: print the status.
    Status,
    /// SIGTERM, SIGINT: programs are told which, in OpenVPN's words.
    End(&'static str),
}

/// The signals of this process.
pub(super) struct Signals {
    hangup: Stream,
    user1: Stream,
    user2: Stream,
    terminate: Stream,
    interrupt: Stream,
}

impl Asked {
    /// With `remap-usr1`.
    pub(super) fn remapped(self, remap: Option<&str>) -> Self {
        match (self, remap) {
            (Self::Reconnect, Some("SIGHUP")) => Self::Reread,
            (Self::Reconnect, Some("SIGTERM")) => Self::End("sigterm"),
            _ => self,
        }
    }
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.hangup.recv() => Asked::Reread,
            _ = self.user1.recv() => Asked::Reconnect,
            _ = self.user2.recv() => Asked::Status,
            _ = self.terminate.recv() => Asked::End("sigterm"),
            _ = self.interrupt.recv() => Asked::End("sigint"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Asked;

    #[test]
    fn only_sigusr1_is_remapped() {
        assert_eq!(Asked::Reconnect.remapped(Some("SIGHUP")), Asked::Reread);
        assert_eq!(Asked::Reconnect.remapped(Some("SIGTERM")), Asked::End("sigterm"));
        assert_eq!(Asked::Reconnect.remapped(None), Asked::Reconnect);
        assert_eq!(Asked::Status.remapped(Some("SIGTERM")), Asked::Status);
    }
}
