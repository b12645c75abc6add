//! One WireGuard interface: what carries its packets, its handshake thread, and how to talk to it.

use super::handshake_thread::{Command, HandshakeThread, Inbox, Parts};
use super::update::{Snapshot, Update, UpdateError};
use crate::clock::Clock;
use crate::datapath::protocol::Protocol;
use crate::datapath::punt::Punt;
use crate::datapath::tables::Tables;
use crate::datapath::worker::Shared;
use crate::rights::Rights;
use crate::tunnel_interface::{Counters, DEFAULT_MTU, InterfaceError, Options, Removed, TunnelInterface};
use config::settings::{Mss, Processors, Threads};
use crossbeam_channel::{Sender, unbounded};
use crypto::{Engine, PublicKey, random};
use packet::header::wireguard::{DATA, DATA_OVERHEAD, STEERING_BYTE};
use port::udp::{Spread, Steering};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{mpsc, oneshot};

/// A running interface. Dropping it ends everything and removes the interface.
pub struct Interface {
    tunnel: TunnelInterface,
    tables: Arc<Tables>,
    commands: Sender<Command>,
}

impl Interface {
    /// Makes the interface `name`, down and without peers. Its end is told to `events`.
    pub fn create(
        name: &str,
        engine: Arc<dyn Engine>,
        options: Options,
        events: mpsc::UnboundedSender<Removed>,
    ) -> Result<Self, InterfaceError> {
        let tunnel = TunnelInterface::create(name, &options)?;
        let resources = |error| InterfaceError::Resources(name.to_owned(), error);
        Self::start(tunnel, engine, options, events).map_err(resources)
    }

    fn start(
        mut tunnel: TunnelInterface,
        engine: Arc<dyn Engine>,
        options: Options,
        events: mpsc::UnboundedSender<Removed>,
    ) -> io::Result<Self> {
        let (datapath_events, datapath_events_out) = unbounded();
        let (commands, commands_out) = unbounded();
        let (punt, datagrams) = Punt::new(Protocol::WireGuard);
        let tables = Arc::new(Tables::new(Protocol::WireGuard, DEFAULT_MTU as usize));
        let shared = Shared { tables: Arc::clone(&tables), datapath_events, clock: Clock };
        let inbox = Inbox {
            commands: commands_out,
            datapath_events: datapath_events_out,
            datagrams,
            punt: punt.clone(),
        };
        let link = commands.clone();
        // The handshake thread outlives its follower.
        let tell = move |up, mtu| _ = link.send(Command::Link { up, mtu });
        tunnel.start(&shared, options, punt, events, DATA_OVERHEAD, tell)?;
        let random = Box::new(random::System::default());
        let (outside, drops, binding) =
            (tunnel.outside(), Arc::clone(&tunnel.drops().handshake), tunnel.binding());
        let outbound_wake = tunnel.outbound_wake();
        let name = tunnel.name().to_owned();
        let receivers = tunnel.receive_threads() as u8;
        // Handshake messages come to the first thread.
        let spread = Spread::Beginning(DATA.to_le_bytes());
        let steering = Steering { sockets: receivers, spread, byte: STEERING_BYTE as u8 };
        let binding = binding.steered(steering);
        let parts =
            Parts { name, engine, random, shared, outside, outbound_wake, drops, binding, inbox, receivers };
        tunnel.start_slow_path(Rights::Sockets, move || HandshakeThread::new(parts).run())?;
        Ok(Self { tunnel, tables, commands })
    }

    /// The name it was made with.
    pub fn name(&self) -> &str {
        self.tunnel.name()
    }

    /// Its MTU.
    pub fn mtu(&self) -> usize {
        self.tables.mtu.load(Ordering::Relaxed)
    }

    /// Uses all offloads but these.
    pub fn set_offloads(&self, without: &[String]) -> Result<(), InterfaceError> {
        self.tunnel.set_offloads(without)
    }

    /// Has packets sealed and opened by at most so many threads at once, on these processors if there are any.
    pub fn set_threads(&self, threads: Threads, processors: &Processors) -> Result<(), InterfaceError> {
        let resources = |error| InterfaceError::Resources(self.name().to_owned(), error);
        self.tunnel.set_threads(threads, processors).map_err(resources)
    }

    /// The number of its receiving threads.
    pub fn receive_threads(&self) -> usize {
        self.tunnel.receive_threads()
    }

    /// Clamps the segment sizes that TCP announces, over IPv4 and IPv6.
    pub fn set_segment_sizes(&self, sizes: [Option<Mss>; 2]) {
        for (place, size) in self.tables.segment_sizes.iter().zip(sizes) {
            let size = match size {
                None => 0,
                Some(Mss::Fitting) => u16::MAX,
                Some(Mss::Bytes(bytes)) => bytes,
            };
            place.store(size, Ordering::Relaxed);
        }
    }

    /// Changes keys, peers, port or mark.
    pub async fn update(&self, update: Update) -> Result<(), UpdateError> {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Update(update, reply));
        answer.await.expect("the handshake thread lives as long as the interface")
    }

    /// Whether each of these peers is not where it is called.
    pub(super) async fn lost(&self, peers: Vec<PublicKey>) -> Vec<bool> {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Lost(peers, reply));
        answer.await.expect("the handshake thread lives as long as the interface")
    }

    /// Shows keys and peers.
    pub async fn snapshot(&self) -> Snapshot {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Snapshot(reply));
        answer.await.expect("the handshake thread lives as long as the interface")
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
