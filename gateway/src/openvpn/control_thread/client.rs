//! The side of a client: servers are tried in turn, until one answers.

mod attempts;

use super::gates::{Gates, Waits};
use super::server::variables::{about_peer, authenticated, chain};
use super::{Chosen, Report, Stage};
use crate::openvpn::certificates::Tracked;
use crate::openvpn::limits::Limits;
use crate::openvpn::login::{Login, Next};
use crate::openvpn::options::Own;
use crate::openvpn::scripts::{Answer, Environment, Outcome};
use crate::openvpn::settings::{ClientLink, ClientSettings, Remote, RenewClient};
use crate::openvpn::tcp::Tcp;
use attempts::Attempts;
use crypto::pki::Certificate;
use crypto::{Engine, Random};
use rustls_pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tunnel::openvpn::channel::PacketError;
use tunnel::openvpn::key_method::Credentials;
use tunnel::openvpn::name_fields::NameFields;
use tunnel::openvpn::{Cause, Client, Outbox, PeerAddress};
use tunnel::{Now, Time};

/// Servers that one answer can leave out.
const MOST_SKIPPED: u32 = 1000;

/// A client, and where it connects to.
#[allow(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub(super) struct ClientSide {
    pub(super) core: Client,
    /// See [`ClientLink::float`]; of the present server.
    pub(super) float: bool,
    links: Vec<ClientLink>,
    /// What the file says about addresses and routes.
    pub(super) own: Arc<Own>,
    remotes: Vec<Remote>,
    tcp: Option<Arc<Tcp>>,
    attempts: Attempts,
    max_rounds: Option<u32>,
    is_random: bool,
    retry_at: Option<Time>,
    /// Until when the server must have answered.
    answers_until: Option<Time>,
    pub(super) login: Login,
    renew: Option<RenewClient>,
    /// Those of the session that is up, or that comes up.
    pub(super) limits: Limits,
    /// See [`ClientSettings::ends_on_failure`].
    ends_on_failure: bool,
    /// See [`ClientSettings::authorities`].
    authorities: Vec<Certificate>,
    /// See [`ClientSettings::name_fields`].
    name_fields: NameFields,
    /// See [`ClientSettings::tracked`].
    tracked: Tracked,
    /// What the management interface is asked before an attempt.
    gates: Gates,
    /// The server of this attempt, if the management interface has named another one.
    other: Option<Remote>,
    stage: Option<Stage>,
    reports: mpsc::UnboundedSender<Report>,
}

impl ClientSide {
    pub(super) fn new(
        settings: ClientSettings,
        engine: Arc<dyn Engine>,
        mut random: Box<dyn Random>,
        reports: mpsc::UnboundedSender<Report>,
        tcp: Option<Arc<Tcp>>,
    ) -> Self {
        let ClientSettings {
            core,
            mut remotes,
            links,
            own,
            is_random,
            retry,
            max_rounds,
            login,
            renew,
            authorities,
            name_fields,
            tracked,
            ends_on_failure,
            names: _,
            name_servers: _,
            is_managed,
            asks_remote,
        } = settings;
        if is_random {
            shuffle(&mut remotes, &mut *random);
        }
        let attempts = Attempts::new(remotes.len(), retry);
        let own = Arc::new(own);
        let mut core = Client::new(core, engine, random);
        let filter = Arc::clone(&own);
        core.set_filter(Box::new(move |option| filter.takes(option)));
        let (login, retry_at) = (Login::new(login), None);
        Self {
            core,
            float: false,
            links,
            own,
            remotes,
            tcp,
            attempts,
            max_rounds,
            is_random,
            retry_at,
            answers_until: None,
            login,
            renew,
            limits: Limits::default(),
            ends_on_failure,
            authorities,
            name_fields,
            tracked,
            gates: Gates {
                is_managed,
                asks_remote,
                is_released: true,
                is_chosen: false,
                waits: Waits::Nothing,
            },
            other: None,
            stage: None,
            reports,
        }
    }

    /// The program is to end, for this reason.
    pub(super) fn is_over(&mut self, signal: &'static str) {
        self.report(Report::Over(signal));
    }

    /// Variables about a server that has proved who it is.
    pub(super) fn about(&self, server: SocketAddr, certificates: &[CertificateDer<'static>]) -> Environment {
        let chain = chain(certificates, &self.authorities);
        let mut environment = about_peer(server, certificates, &chain, &self.name_fields, &self.tracked);
        authenticated(&mut environment, server);
        environment
    }

    /// The server that is tried, or that we are connected with.
    fn remote(&self) -> Option<Remote> {
        self.other.or_else(|| self.remotes.get(self.attempts.server()).copied())
    }

    /// The same, for the log.
    pub(super) fn server(&self) -> String {
        self.remote().map_or_else(|| "no server".to_owned(), |remote| format!("server {remote}"))
    }

    pub(super) fn connect(&mut self, now: Now, out: &mut Outbox) {
        self.retry_at = None;
        self.stage = None;
        self.gates.waits = Waits::Nothing;
        if self.gates.is_managed && !self.gates.is_released {
            self.gates.waits = Waits::Release;
            return self.report(Report::Holds);
        }
        let Some(remote) = self.remote() else {
            // No name has an address yet.
            let wait = self.attempts.failed();
            return self.retry_after(now.monotonic, wait, "init_instance");
        };
        match self.login.credentials() {
            Ok(_) if self.gates.asks_remote && !self.gates.is_chosen => {
                self.gates.waits = Waits::Choice;
                self.report(Report::Connects(remote));
            }
            Ok(credentials) => {
                self.core.set_credentials(credentials);
                self.connect_to(now, remote, out);
            }
            Err(question) => {
                self.gates.waits = Waits::User;
                self.report(Report::Asks(question));
            }
        }
    }

    fn connect_to(&mut self, now: Now, remote: Remote, out: &mut Outbox) {
        let Remote { address, is_tcp, timeout, connection } = remote;
        self.gates.passed();
        self.go_on(Stage::Waiting(address));
        if let Some(ClientLink { wrap, float }) = self.links.get(connection) {
            self.core.set_wrap(wrap.clone());
            self.float = *float;
        }
        if let Some(tcp) = self.tcp.as_ref().filter(|_| is_tcp)
            && let Err(error) = tcp.connect(address)
        {
            tracing::info!("no TCP connection to {address}: {error}");
            let wait = self.attempts.failed();
            return self.retry_after(now.monotonic, wait, "init_instance");
        }
        self.answers_until = Some(now.monotonic + timeout);
        self.core.connect(now, PeerAddress { is_tcp, ..address.into() }, out);
    }

    /// Handles a control packet.
    pub(super) fn handle_packet(
        &mut self,
        now: Now,
        from: PeerAddress,
        packet: &[u8],
        out: &mut Outbox,
    ) -> Result<(), PacketError> {
        self.core.handle_packet(now, from, packet, out)?;
        self.answers_until = None;
        self.go_on(if self.core.is_configuring() { Stage::Configuring } else { Stage::Authenticating });
        Ok(())
    }

    /// The revocation list has changed: a session with a server that it names ends now.
    pub(super) fn revocations(&mut self, now: Now, answer: &Answer, out: &mut Outbox) {
        let renewed = match (&answer.outcome, &self.renew) {
            (Outcome::Ended(0), Some(renew)) => {
                renew(answer.files.first().map(Vec::as_slice).unwrap_or_default())
            }
            (Outcome::Failed(reason), _) => Err(reason.clone()),
            _ => return,
        };
        match renewed {
            Ok((tls, check)) => self.core.renew_tls(now, tls, &check, out),
            // The old list still counts.
            Err(error) => tracing::error!("crl-verify: the list is not used: {error}"),
        }
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
        if self.gates.answered(Waits::User) {
            self.connect(now, out);
        }
    }

    /// Takes the token of a push reply, for the next keys and sessions.
    pub(super) fn take_token<'a>(&mut self, options: impl IntoIterator<Item = &'a str>) {
        if self.login.take_pushed(options)
            && let Ok(credentials) = self.login.credentials()
        {
            if self.gates.is_managed {
                self.report(Report::Token(credentials.password.clone()));
            }
            self.core.set_credentials(credentials);
        }
    }

    /// The attempt may go on.
    pub(super) fn leave_hold(&mut self, now: Now, out: &mut Outbox) {
        if self.gates.answered(Waits::Release) {
            self.gates.is_released = true;
            self.connect(now, out);
        }
    }

    /// The management interface has answered where to connect to.
    pub(super) fn choose(&mut self, now: Now, chosen: Chosen, out: &mut Outbox) {
        if !self.gates.answered(Waits::Choice) {
            return;
        }
        match chosen {
            Chosen::Next => {}
            Chosen::Skip(count) => {
                (0..count.min(MOST_SKIPPED)).for_each(|_| _ = self.attempts.failed());
                return self.connect(now, out);
            }
            Chosen::Other(remote) => self.other = Some(remote),
        }
        self.gates.is_chosen = true;
        self.connect(now, out);
    }

    /// The server waits for the user.
    pub(super) fn tell_pending(&mut self, rest: &str) {
        let seconds = rest.split(',').find_map(|part| part.strip_prefix("timeout ")?.parse().ok());
        self.go_on(Stage::Pending(seconds.map(Duration::from_secs)));
    }

    /// A message of the server for the user.
    pub(super) fn tell_user(&self, text: &str) {
        if self.gates.is_managed {
            self.report(Report::Info(text.to_owned()));
        }
    }

    /// Texts of `echo` that the server has pushed.
    pub(super) fn tell_echo(&self, pushed: &[String]) {
        let texts = pushed.iter().filter(|_| self.gates.is_managed).filter_map(|it| it.strip_prefix("echo "));
        texts.for_each(|text| self.report(Report::Echo(text.to_owned())));
    }

    fn go_on(&mut self, stage: Stage) {
        let rank = |stage: Stage| match stage {
            Stage::Waiting(_) => 0,
            Stage::Authenticating => 1,
            Stage::Configuring => 2,
            Stage::Pending(_) => 3,
        };
        // Keys of a session that is up are negotiated again, too.
        let is_new = match self.stage {
            None => matches!(stage, Stage::Waiting(_)),
            Some(before) => rank(stage) > rank(before),
        };
        if self.gates.is_managed && is_new {
            self.stage = Some(stage);
            self.report(Report::Stage(stage));
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
        self.other = None;
        self.gates.waits = Waits::Nothing;
    }

    /// The session is up.
    pub(super) fn connected(&mut self) {
        self.attempts.succeeded();
        self.stage = None;
    }

    /// The session has ended, or an attempt has failed.
    pub(super) fn closed(&mut self, now: Time, was_connected: bool, cause: &Cause) {
        self.answers_until = None;
        if was_connected {
            self.report(Report::Disconnected(signal(cause)));
        }
        let is_failure = matches!(cause, Cause::Key(_) | Cause::HandshakeTimeout);
        if matches!(cause, Cause::PingExit(_)) || is_failure && self.ends_on_failure {
            return self.report(Report::Over(signal(cause)));
        }
        let Cause::Refused(reason) = cause else {
            self.login.ended();
            let wait = self.attempts.failed();
            return self.retry_after(now, wait, signal(cause));
        };
        if self.gates.is_managed {
            self.report(Report::Failed(reason.clone()));
        }
        let (advance, wait) = match self.login.refused(reason) {
            Next::Retry { advance, wait } => (advance, wait),
            Next::Ask => (false, Some(Duration::ZERO)),
            Next::End => return self.report(Report::Refused(reason.clone())),
        };
        let usual = if advance { self.attempts.failed() } else { self.attempts.refused() };
        self.retry_after(now, wait.unwrap_or(usual), signal(cause));
    }

    fn retry_after(&mut self, now: Time, wait: Duration, reason: &'static str) {
        if self.max_rounds.is_some_and(|most| self.attempts.rounds() >= most) {
            return self.report(Report::GaveUp);
        }
        self.retry_at = Some(now + wait);
        self.other = None;
        self.report(Report::Reconnects(reason));
    }

    /// The names of servers have these addresses now. A session goes on with the old one.
    pub(super) fn set_remotes(&mut self, mut remotes: Vec<Remote>) {
        if self.is_random {
            // Those that are known keep their order.
            let rank = |remote: &Remote| self.remotes.iter().position(|known| known == remote);
            remotes.sort_by_key(|remote| rank(remote).unwrap_or(usize::MAX));
        }
        if remotes != self.remotes {
            self.attempts.set_servers(remotes.len());
            self.remotes = remotes;
        }
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

/// OpenVPN's name of the reason, for programs.
pub(super) fn signal(cause: &Cause) -> &'static str {
    match cause {
        Cause::Gone(_) => "ping-restart",
        Cause::PingExit(_) => "ping-exit",
        Cause::ConnectionEnded => "connection-reset",
        Cause::Exited => "remote-exit",
        Cause::Told(command) if command.starts_with("HALT") => "server-pushed-halt",
        Cause::Told(_) => "server-pushed-connection-reset",
        Cause::Stopped => "sigusr1",
        Cause::Refused(_) => "auth-failure",
        _ => "tls-error",
    }
}

/// Every order is equally likely, but for the remainder of 32 random bits.
fn shuffle<T>(items: &mut [T], random: &mut dyn Random) {
    for last in (1..items.len()).rev() {
        let mut bytes = [0; 4];
        random.fill(&mut bytes);
        items.swap(last, u32::from_ne_bytes(bytes) as usize % (last + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openvpn::convert::tests::{CLIENT, client};
    use crypto::engine::aws_lc::AwsLc;
    use crypto::random::System;

    #[test]
    fn an_answer_that_comes_twice_or_late_leaves_the_session_as_it_is() {
        let mut settings = client(CLIENT);
        (settings.is_managed, settings.asks_remote) = (true, true);
        let other = Remote { is_tcp: false, ..settings.remotes[0] };
        let (reports, _told) = mpsc::unbounded_channel();
        let random = Box::new(System::default());
        let mut side = ClientSide::new(settings, Arc::new(AwsLc), random, reports, None);
        let now = Now { monotonic: Time::from_nanoseconds(1), wall: Duration::from_secs(1_800_000_000) };
        let mut sent = |act: &mut dyn FnMut(&mut ClientSide, &mut Outbox)| {
            let mut out = Outbox::new();
            act(&mut side, &mut out);
            !out.is_empty()
        };
        // The first attempt was released before the interface was made.
        assert!(!sent(&mut |side, out| side.connect(now, out)), "it is asked where to connect to");
        assert!(!sent(&mut |side, out| side.leave_hold(now, out)));
        assert!(sent(&mut |side, out| side.choose(now, Chosen::Next, out)), "it connects");
        for _ in 0..2 {
            sent(&mut |side, out| side.stop(now, out));
            assert!(!sent(&mut |side, out| side.connect(now, out)), "it waits for the release");
        }
        assert!(!sent(&mut |side, out| side.choose(now, Chosen::Other(other), out)), "a slow name server");
        assert!(!sent(&mut |side, out| side.leave_hold(now, out)), "it is asked");
        assert!(sent(&mut |side, out| side.choose(now, Chosen::Next, out)), "it connects");
        assert!(!sent(&mut |side, out| side.leave_hold(now, out)), "it was released twice");
        assert!(!sent(&mut |side, out| side.choose(now, Chosen::Other(other), out)), "the answer is late");
        assert!(!sent(&mut |side, out| side.choose(now, Chosen::Skip(1), out)));
        sent(&mut |side, _| side.gates.asks_remote = false);
        assert!(!sent(&mut |side, out| side.leave_hold(now, out)), "two signals had two reports");
    }
}
