//! The side of a client: servers are tried in turn, until one answers.

use super::Report;
use crate::openvpn::login::{Login, Next};
use crate::openvpn::settings::{ClientSettings, Remote};
use crate::openvpn::tcp::Tcp;
use crypto::{Engine, Random};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tunnel::openvpn::channel::PacketError;
use tunnel::openvpn::key_method::Credentials;
use tunnel::openvpn::{Cause, Client, Outbox};
use tunnel::{Now, Time};

/// The time to the next attempt, as in OpenVPN (`connect-retry`).
const RETRY: Duration = Duration::from_secs(1);
/// The same time is doubled after so many attempts for each server.
const QUICK: u32 = 5;
/// The longest time to the next attempt.
const SLOWEST: Duration = Duration::from_secs(300);

/// A client, and where it connects to.
pub(super) struct ClientSide {
    pub(super) core: Client,
    /// See [`ClientSettings::float`].
    pub(super) float: bool,
    remotes: Vec<Remote>,
    tcp: Option<Arc<Tcp>>,
    attempts: Attempts,
    retry_at: Option<Time>,
    /// Until when the server must have answered.
    answers_until: Option<Time>,
    login: Login,
    /// Whether an attempt waits for the answer of the user.
    is_asking: bool,
    reports: mpsc::UnboundedSender<Report>,
}

/// The attempts to connect: which server is next, and when.
struct Attempts {
    servers: u32,
    /// The number of the attempt, from the first server on.
    number: u32,
}

impl Attempts {
    fn new(servers: usize) -> Self {
        Self { servers: servers.max(1) as u32, number: 0 }
    }

    /// The server of this attempt.
    fn server(&self) -> usize {
        (self.number % self.servers) as usize
    }

    /// The session is up: if it ends, the next server is tried soon.
    fn succeeded(&mut self) {
        self.number %= self.servers;
    }

    /// Goes on to the next server; returns how long to wait before.
    fn failed(&mut self) -> Duration {
        let wait = self.wait();
        self.number = self.number.wrapping_add(1);
        wait
    }

    /// Stays with the server; returns how long to wait before.
    fn refused(&mut self) -> Duration {
        let wait = self.wait();
        self.number = self.number.wrapping_add(self.servers);
        wait
    }

    fn wait(&self) -> Duration {
        let rounds = self.number / self.servers;
        (RETRY * 2u32.pow(rounds.saturating_sub(QUICK).min(10))).min(SLOWEST)
    }
}

impl ClientSide {
    pub(super) fn new(
        settings: ClientSettings,
        engine: Arc<dyn Engine>,
        random: Box<dyn Random>,
        reports: mpsc::UnboundedSender<Report>,
        tcp: Option<Arc<Tcp>>,
    ) -> Self {
        let ClientSettings { core, remotes, float, routes: _, login } = settings;
        let attempts = Attempts::new(remotes.len());
        let (core, login) = (Client::new(core, engine, random), Login::new(login));
        Self {
            core,
            float,
            remotes,
            tcp,
            attempts,
            retry_at: None,
            answers_until: None,
            login,
            is_asking: false,
            reports,
        }
    }

    /// The server that is tried, or that we are connected with.
    fn remote(&self) -> Option<Remote> {
        self.remotes.get(self.attempts.server()).copied()
    }

    /// The same, for the log.
    pub(super) fn server(&self) -> String {
        self.remote().map_or_else(|| "no server".to_owned(), |remote| format!("server {remote}"))
    }

    pub(super) fn connect(&mut self, now: Now, out: &mut Outbox) {
        self.retry_at = None;
        let Some(remote) = self.remote() else { return };
        match self.login.credentials() {
            Ok(credentials) => {
                self.core.set_credentials(credentials);
                self.connect_to(now, remote, out);
            }
            Err(question) => {
                self.is_asking = true;
                self.report(Report::Asks(question));
            }
        }
    }

    fn connect_to(&mut self, now: Now, remote: Remote, out: &mut Outbox) {
        let Remote { address, is_tcp, timeout } = remote;
        if let Some(tcp) = self.tcp.as_ref().filter(|_| is_tcp)
            && let Err(error) = tcp.connect(address)
        {
            tracing::info!("no TCP connection to {address}: {error}");
            self.retry_at = Some(now.monotonic + self.attempts.failed());
            return;
        }
        self.answers_until = Some(now.monotonic + timeout);
        self.core.connect(now, address, out);
    }

    /// Handles a control packet.
    pub(super) fn handle_packet(
        &mut self,
        now: Now,
        from: SocketAddr,
        packet: &[u8],
        out: &mut Outbox,
    ) -> Result<(), PacketError> {
        self.core.handle_packet(now, from, packet, out)?;
        self.answers_until = None;
        Ok(())
    }

    /// A TCP connection has ended.
    pub(super) fn connection_ended(&mut self, now: Now, address: SocketAddr, out: &mut Outbox) {
        if self.remote().is_some_and(|remote| remote.is_tcp && remote.address == address) {
            self.core.handle_connection_end(now, out);
        }
    }

    /// The user has answered.
    pub(super) fn answered(&mut self, now: Now, credentials: Credentials, out: &mut Outbox) {
        self.login.answered(credentials);
        if std::mem::take(&mut self.is_asking) {
            self.connect(now, out);
        }
    }

    /// Takes the token of a push reply, for the next keys and sessions.
    pub(super) fn take_token<'a>(&mut self, options: impl IntoIterator<Item = &'a str>) {
        if self.login.take_pushed(options)
            && let Ok(credentials) = self.login.credentials()
        {
            self.core.set_credentials(credentials);
        }
    }

    fn report(&self, report: Report) {
        // When the program ends, the report has no receiver.
        let _ = self.reports.send(report);
    }

    pub(super) fn stop(&mut self, now: Now, out: &mut Outbox) {
        self.core.stop(now, out);
        self.answers_until = None;
        self.retry_at = None;
        self.is_asking = false;
    }

    /// The session is up.
    pub(super) fn connected(&mut self) {
        self.attempts.succeeded();
    }

    /// The session has ended, or an attempt has failed.
    pub(super) fn closed(&mut self, now: Time, cause: &Cause) {
        self.answers_until = None;
        let Cause::Refused(reason) = cause else {
            self.login.ended();
            self.retry_at = Some(now + self.attempts.failed());
            return;
        };
        let (advance, wait) = match self.login.refused(reason) {
            Next::Retry { advance, wait } => (advance, wait),
            Next::Ask => (false, Some(Duration::ZERO)),
            Next::End => return self.report(Report::Refused(reason.clone())),
        };
        let usual = if advance { self.attempts.failed() } else { self.attempts.refused() };
        self.retry_at = Some(now + wait.unwrap_or(usual));
    }

    pub(super) fn handle_timeout(&mut self, now: Now, out: &mut Outbox) {
        if self.retry_at.is_some_and(|at| now.monotonic >= at) {
            return self.connect(now, out);
        }
        if self.answers_until.is_some_and(|until| now.monotonic >= until) {
            self.answers_until = None;
            return self.core.handle_silence(now, out);
        }
        self.core.handle_timeout(now, out);
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.core.next_timeout().into_iter().chain(self.retry_at).chain(self.answers_until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_tried_in_turn_and_ever_more_slowly() {
        let mut attempts = Attempts::new(2);
        let tried: Vec<(usize, u64)> =
            (0..40).map(|_| (attempts.server(), attempts.failed().as_secs())).collect();
        assert_eq!(tried[..4], [(0, 1), (1, 1), (0, 1), (1, 1)]);
        assert_eq!(tried[10..14], [(0, 1), (1, 1), (0, 2), (1, 2)], "after five rounds");
        assert_eq!(tried[39], (1, 300));
    }

    #[test]
    fn after_a_session_that_was_up_the_next_server_is_tried_soon() {
        let mut attempts = Attempts::new(3);
        (0..100).for_each(|_| _ = attempts.failed());
        attempts.succeeded();
        assert_eq!((attempts.server(), attempts.failed()), (1, RETRY));
        assert_eq!(Attempts::new(0).server(), 0);
    }

    #[test]
    fn after_a_refusal_the_same_server_is_tried_ever_more_slowly() {
        let mut attempts = Attempts::new(2);
        attempts.failed();
        let tried: Vec<(usize, u64)> =
            (0..8).map(|_| (attempts.server(), attempts.refused().as_secs())).collect();
        assert_eq!(tried[..6], [(1, 1); 6]);
        assert_eq!(tried[6..], [(1, 2), (1, 4)]);
    }
}
