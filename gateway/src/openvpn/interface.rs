//! One OpenVPN interface: what carries its packets, its control thread, and how to talk to it.

use super::control_thread::{
    Chosen, Command, ControlThread, Decision, Inbox, Parts, Report, Snapshot, Victim,
};
use super::scripts::Answer;
use super::settings::{ForClients, Remote, Settings};
use super::tcp::Tcp;
use crate::clock::Clock;
use crate::datapath::protocol::Protocol;
use crate::datapath::punt::Punt;
use crate::datapath::tables::Tables;
use crate::datapath::worker::Shared;
use crate::rights::Rights;
use crate::tunnel_interface::{Counters, InterfaceError, Options, Removed, TunnelInterface};
use config::openvpn::settings::AuthRetry;
use crossbeam_channel::{Sender, unbounded};
use crypto::{Engine, random};
use port::shaper::Shaper;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tunnel::openvpn::key_method::Credentials;

/// What an OpenVPN data packet with an AEAD cipher adds: header, packet number and tag.
const OVERHEAD: usize = 4 + 4 + 16;
/// Offloads by which many packets come from inside at once.
const SUPER_PACKETS: [&str; 2] = ["tun-tso", "tun-uso"];

/// A running interface. Dropping it tells the peers, ends everything and removes the interface.
pub struct Interface {
    tunnel: TunnelInterface,
    commands: Sender<Command>,
}

impl Interface {
    /// Makes the interface `name`, down. Its end is told to `events`, what a server gives us to `reports`.
    pub fn create(
        name: &str,
        settings: Settings,
        engine: Arc<dyn Engine>,
        mut options: Options,
        events: mpsc::UnboundedSender<Removed>,
        reports: mpsc::UnboundedSender<Report>,
    ) -> Result<Self, InterfaceError> {
        if settings.shaper.is_some_and(|limit| Shaper::takes_singly(limit.get())) {
            options.without.extend(SUPER_PACKETS.map(str::to_owned));
        }
        let tunnel = if settings.is_null {
            TunnelInterface::null(name, &options)?
        } else {
            TunnelInterface::create(name, &options)?
        };
        let resources = |error| InterfaceError::Resources(name.to_owned(), error);
        Self::start(tunnel, settings, engine, options, events, reports).map_err(resources)
    }

    fn start(
        mut tunnel: TunnelInterface,
        settings: Settings,
        engine: Arc<dyn Engine>,
        options: Options,
        events: mpsc::UnboundedSender<Removed>,
        reports: mpsc::UnboundedSender<Report>,
    ) -> io::Result<Self> {
        let (datapath_events, datapath_events_out) = unbounded();
        let (commands, commands_out) = unbounded();
        let (punt, datagrams) = Punt::new(Protocol::OpenVpn);
        if let Some(limit) = settings.shaper {
            tunnel.shape(limit);
        }
        let tcp = settings.tcp.clone().map(|tcp| Tcp::new(tunnel.name(), tcp)).transpose()?.map(Arc::new);
        if let Some(tcp) = &tcp {
            tunnel.open_tcp(tcp.connections());
        }
        let tables = Arc::new(Tables::new(Protocol::OpenVpn, settings.mtu as usize));
        if let Some(own) = settings.relayed_beside() {
            tables.relayed_beside.set(own).expect("it was made here");
        }
        let shared = Shared { tables, datapath_events, clock: Clock };
        let inbox = Inbox {
            commands: commands_out,
            datapath_events: datapath_events_out,
            datagrams,
            punt: punt.clone(),
        };
        let link = commands.clone();
        // The control thread outlives its follower.
        let tell = move |up, mtu| _ = link.send(Command::Link { up, mtu });
        tunnel.start(&shared, options, punt, events, OVERHEAD, tell)?;
        let parts = Parts {
            name: tunnel.name().to_owned(),
            settings,
            engine,
            random: Box::new(random::System::default()),
            shared,
            outside: tunnel.outside_of_slow_path(),
            outbound_wake: tunnel.outbound_wake(),
            drops: Arc::clone(&tunnel.drops().handshake),
            binding: tunnel.binding(),
            tcp,
            inbox,
            own: commands.clone(),
            reports,
        };
        tunnel.start_slow_path(Rights::Sockets, move || ControlThread::new(parts).run())?;
        Ok(Self { tunnel, commands })
    }

    /// The name it was made with.
    pub fn name(&self) -> &str {
        self.tunnel.name()
    }

    /// The names of servers have these addresses now.
    pub fn set_servers(&self, servers: Vec<Remote>) {
        let _ = self.commands.send(Command::Servers(servers));
    }

    /// A server takes over what its clients are told.
    pub(super) fn adopt(&self, change: ForClients) {
        // The control thread lives as long as the interface.
        let _ = self.commands.send(Command::ForClients(change));
    }

    /// Hands in what the user has answered.
    pub fn answer(&self, credentials: Credentials) {
        let _ = self.commands.send(Command::Answer(credentials));
    }

    /// The revocation list has changed, or cannot be read.
    pub(super) fn renew_revocations(&self, answer: Answer) {
        // The control thread lives as long as the interface.
        let _ = self.commands.send(Command::Revocations(answer));
    }

    /// The hashes of passwords have changed, or cannot be read.
    pub(super) fn renew_hashes(&self, answer: Answer) {
        // The control thread lives as long as the interface.
        let _ = self.commands.send(Command::PasswordHashes(answer));
    }

    /// Begins to serve clients, after the programs of the beginning.
    pub(super) fn release(&self) {
        // The control thread lives as long as the interface.
        let _ = self.commands.send(Command::Release);
    }

    /// Ends the sessions, and takes no others.
    pub(super) fn stop_serving(&self) {
        // The control thread lives as long as the interface.
        let _ = self.commands.send(Command::Link { up: false, mtu: 0 });
    }

    /// Begins the sessions again.
    pub fn restart(&self) {
        // The control thread lives as long as the interface.
        let _ = self.commands.send(Command::Restart);
    }

    /// Ends the sessions of clients with this common name; how many there were.
    pub async fn disconnect(&self, name: &str) -> usize {
        self.kill(Victim::Name(name.to_owned()), "RESTART".to_owned()).await
    }

    /// Ends sessions of clients, which are told this; how many there were.
    pub async fn kill(&self, victim: Victim, told: String) -> usize {
        self.ask(|reply| Command::Disconnect { victim, told, reply }).await
    }

    /// Decides about a client; whether it was asked about.
    pub async fn decide(&self, client: u64, key: u64, decision: Decision) -> bool {
        self.ask(|reply| Command::Decide { client, key, decision, reply }).await
    }

    /// Tells a client that its user is needed; whether it was asked about.
    pub async fn pending(&self, client: u64, key: u64, text: String, wait: Duration) -> bool {
        self.ask(|reply| Command::Pending { client, key, text, wait, reply }).await
    }

    /// Answers a challenge of the server; whether there is a session.
    pub async fn respond(&self, text: String) -> bool {
        self.ask(|reply| Command::Respond(text, reply)).await
    }

    /// What a client does when its password is refused, from now on.
    pub fn set_auth_retry(&self, retry: AuthRetry) {
        let _ = self.commands.send(Command::AuthRetry(retry));
    }

    /// Forgets passwords that the user has entered.
    pub fn forget_passwords(&self) {
        let _ = self.commands.send(Command::Forget);
    }

    /// An attempt to connect need not wait.
    pub fn leave_hold(&self) {
        let _ = self.commands.send(Command::LeaveHold);
    }

    /// Where to connect to.
    pub fn choose(&self, chosen: Chosen) {
        let _ = self.commands.send(Command::Remote(chosen));
    }

    async fn ask<T: Default>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> T {
        let (reply, answer) = oneshot::channel();
        // The control thread lives as long as the interface.
        let _ = self.commands.send(command(reply));
        answer.await.unwrap_or_default()
    }

    /// Shows the sessions.
    pub async fn snapshot(&self) -> Snapshot {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Snapshot(reply));
        answer.await.expect("the control thread lives as long as the interface")
    }
}

impl Counters for Interface {
    fn tunnel(&self) -> &TunnelInterface {
        &self.tunnel
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Stop);
    }
}
