//! One OpenVPN interface: what carries its packets, its control thread, and how to talk to it.

use super::control_thread::{Command, ControlThread, Inbox, Parts, Report, Snapshot};
use super::scripts::Answer;
use super::settings::{Remote, Settings};
use super::tcp::Tcp;
use crate::clock::Clock;
use crate::datapath::protocol::Protocol;
use crate::datapath::punt::Punt;
use crate::datapath::tables::Tables;
use crate::datapath::worker::Shared;
use crate::rights::Rights;
use crate::tunnel_interface::{
    Counters, Drops, InterfaceError, Options, Removed, SocketKind, TunnelInterface,
};
use crossbeam_channel::{Sender, unbounded};
use crypto::{Engine, random};
use port::Offloads;
use port::udp::SocketSlot;
use std::io;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tunnel::openvpn::key_method::Credentials;

/// What an OpenVPN data packet with an AEAD cipher adds: header, packet number and tag.
const OVERHEAD: usize = 4 + 4 + 16;

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
        options: Options,
        events: mpsc::UnboundedSender<Removed>,
        reports: mpsc::UnboundedSender<Report>,
    ) -> Result<Self, InterfaceError> {
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
        let tcp = settings.tcp.clone().map(Tcp::new).transpose()?.map(Arc::new);
        if let Some(tcp) = &tcp {
            tunnel.open_tcp(tcp.connections());
        }
        let tables = Arc::new(Tables::new(Protocol::OpenVpn, settings.mtu as usize));
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

    /// Hands in what the user has answered.
    pub fn answer(&self, credentials: Credentials) {
        let _ = self.commands.send(Command::Answer(credentials));
    }

    /// The revocation list has changed, or cannot be read.
    pub(super) fn renew_revocations(&self, answer: Answer) {
        // The control thread lives as long as the interface.
        let _ = self.commands.send(Command::Revocations(answer));
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
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Disconnect(name.to_owned(), reply));
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
    fn name(&self) -> &str {
        self.tunnel.name()
    }

    fn drops(&self) -> &Drops {
        self.tunnel.drops()
    }

    fn offloads(&self) -> &Offloads {
        self.tunnel.offloads()
    }

    fn sockets(&self) -> Vec<(SocketKind, SocketSlot)> {
        self.tunnel.sockets()
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Stop);
    }
}
