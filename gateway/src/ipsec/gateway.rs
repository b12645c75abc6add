//! The running gateway: an interface, the two ports of IKE, and its IKE thread.

use super::connections::Plan;
use super::handle::IkeHandle;
use super::ike_thread::{IkeThread, Inbox, Parts};
use super::port::IkePort;
use super::{MTU, NAME};
use crate::clock::Clock;
use crate::datapath::protocol::Protocol;
use crate::datapath::punt::Punt;
use crate::datapath::tables::Tables;
use crate::datapath::worker::Shared;
use crate::host::networks::MARK;
use crate::ipsec::model;
use crate::rights::Rights;
use crate::tunnel_interface::{Counters, InterfaceError, Options, Removed, SocketKind, TunnelInterface};
use crate::wireguard::update::UpdateError;
use config::settings::{Processors, Threads};
use crossbeam_channel::unbounded;
use crypto::{Engine, random};
use packet::header::esp::{NON_ESP_MARKER, STEERING_BYTE};
use port::schedule::yield_to_packets;
use port::udp::{SocketSlot, Spread, Steering};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::mpsc;
use tunnel::ikev2::Patience;
use tunnel::ikev2::limits::{IKE_PORT, NAT_PORT};

/// What ESP in UDP adds to a packet, at most.
const OVERHEAD: usize = 8 + 16 + 16 + 32;

/// Why the gateway could not be started.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The interface could not be made.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// A port of IKE could not be opened.
    #[error("vpn ipsec: {0}")]
    Port(UpdateError),
}

/// A running gateway. Dropping it deletes the SAs with all peers and removes the interface.
pub struct Gateway {
    tunnel: TunnelInterface,
    commands: IkeHandle,
    initial: SocketSlot,
    stop_port: Box<dyn Fn() + Send + Sync>,
    port: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Makes the interface, down and without peers. Its end is told to `events`.
    pub fn create(
        engine: Arc<dyn Engine>,
        options: Options,
        events: mpsc::UnboundedSender<Removed>,
    ) -> Result<Self, GatewayError> {
        let initial = IkePort::bind(IKE_PORT, MARK).map_err(GatewayError::Port)?;
        // See the module documentation of `tunnel_interface`.
        let options = Options { has_one_sender: true, ..options };
        let mut tunnel = TunnelInterface::create(NAME, &options)?;
        // Containers are often denied it, and most peers take ESP in UDP.
        let sockets = tunnel.receive_threads() as u8;
        let spread = Spread::NotBeginning(NON_ESP_MARKER);
        let steering = Steering { sockets, spread, byte: STEERING_BYTE as u8 };
        if let Err(error) = tunnel.open_raw(MARK, steering) {
            tracing::warn!(
                "vpn ipsec: peers are served that take ESP in UDP, and no others: a raw socket: {error}"
            );
        }
        let mut binding = tunnel.binding().steered(steering);
        binding
            .set_port(NAT_PORT)
            .and_then(|()| binding.set_fwmark(MARK))
            .and_then(|()| binding.open())
            .map_err(GatewayError::Port)?;
        let resources = |error| InterfaceError::Resources(NAME.to_owned(), error);
        Ok(Self::start(tunnel, initial, engine, options, events).map_err(resources)?)
    }

    fn start(
        mut tunnel: TunnelInterface,
        initial: IkePort,
        engine: Arc<dyn Engine>,
        options: Options,
        events: mpsc::UnboundedSender<Removed>,
    ) -> io::Result<Self> {
        let (datapath_events, datapath_events_out) = unbounded();
        let (commands, commands_out) = IkeHandle::new();
        let (floated_in, floated) = Punt::new(Protocol::Ipsec);
        let (initial_in, initial_out) = Punt::new(Protocol::Ipsec);
        let tables = Arc::new(Tables::new(Protocol::Ipsec, MTU as usize));
        let shared = Shared { tables, datapath_events, clock: Clock };
        let link = commands.clone();
        // The IKE thread outlives its follower.
        let tell = move |up, mtu| link.link(up, mtu);
        tunnel.start(&shared, options, floated_in.clone(), events, OVERHEAD, tell)?;
        let drops = Arc::clone(&tunnel.drops().handshake);
        let parts = Parts {
            engine,
            random: [Box::new(random::System::default()), Box::new(random::System::default())],
            shared,
            outside: tunnel.outside(),
            inbound_wakes: tunnel.inbound_wakes(),
            outbound_wake: tunnel.outbound_wake(),
            has_raw: tunnel.has_raw(),
            initial: initial.transmit(),
            drops: Arc::clone(&drops),
            inbox: Inbox {
                commands: commands_out,
                datapath_events: datapath_events_out,
                floated,
                initial: initial_out,
                punts: [floated_in, initial_in.clone()],
            },
        };
        tunnel.start_slow_path(Rights::None, move || IkeThread::new(parts).run())?;
        let stop_port = Box::new(initial.stopper());
        let sockets = initial.sockets();
        let port = std::thread::Builder::new().name(format!("{NAME} ike")).spawn(move || {
            // The priority of the IKE thread that it feeds: excess messages wait in the kernel's queue, and are dropped there.
            let _ = yield_to_packets();
            Rights::Packets.keep();
            if let Err(error) = initial.receive(&initial_in, &drops) {
                tracing::error!("nothing more is received on UDP port {IKE_PORT}: {error}");
            }
        })?;
        Ok(Self { tunnel, commands, initial: sockets, stop_port, port: Some(port) })
    }

    /// The number of its receiving threads.
    pub fn receive_threads(&self) -> usize {
        self.tunnel.receive_threads()
    }

    /// Has packets sealed and opened by at most so many threads at once, on these processors if there are any.
    pub fn set_threads(&self, threads: Threads, processors: &Processors) -> Result<(), InterfaceError> {
        let resources = |error| InterfaceError::Resources(NAME.to_owned(), error);
        self.tunnel.set_threads(threads, processors).map_err(resources)
    }

    /// Serves these peers; others of the same names are ended first.
    pub fn add(&self, plans: Vec<Plan>) {
        self.commands.add(plans);
    }

    /// Ends the connections to these peers.
    pub fn remove(&self, names: Vec<String>) {
        self.commands.remove(names);
    }

    /// Waits so long for the answers of all peers.
    pub fn set_patience(&self, patience: Patience) {
        self.commands.set_patience(patience);
    }

    /// Asks the kernel again for the path MTU to every peer whenever it is called, as long as the gateway runs.
    pub fn measurer(&self) -> impl Fn() + Send + Sync + use<> {
        let commands = self.commands.clone();
        move || commands.measure()
    }

    /// Returns when all that was asked before is done.
    pub async fn settle(&self) {
        self.commands.settle().await;
    }

    /// Shows all peers.
    pub async fn status(&self) -> Vec<model::IpsecPeer> {
        self.commands.status().await
    }

    /// Re-establishes the connection to a peer, or one tunnel of it; returns whether it exists.
    pub async fn reset(&self, peer: &str, tunnel: Option<u32>) -> bool {
        self.commands.reset(peer, tunnel).await
    }
}

impl Counters for Gateway {
    fn tunnel(&self) -> &TunnelInterface {
        &self.tunnel
    }

    fn name(&self) -> &str {
        NAME
    }

    fn sockets(&self) -> Vec<(SocketKind, SocketSlot)> {
        let initial = (SocketKind::Ike, Arc::clone(&self.initial));
        self.tunnel.sockets().into_iter().chain([initial]).collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.commands.stop();
        (self.stop_port)();
        if let Some(port) = self.port.take() {
            let _ = port.join();
        }
    }
}
