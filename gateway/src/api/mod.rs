//! The API of a daemon: HTTP and JSON on a Unix socket that only its owner may use.
//!
//! ```text
//! GET /v1/interfaces/wireguard    GET /v1/drops    GET /v1/offloads
//! ```

pub mod model;

use crate::clock::Clock;
use crate::control::interface::Interface;
use crate::control::netlink::Netlink;
use crate::control::socket::{Listener, SocketError};
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use crypto::PublicKey;
use ipnet::IpNet;
use packet::DropReason;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where daemons put their sockets, and where `postern show` looks for them.
pub const DIRECTORY: &str = "/run/postern";
/// A peer whose last handshake is not older than this is called active.
const ACTIVE: Duration = Duration::from_secs(300);

/// The socket of a daemon that serves the interface or configuration called `name`.
pub fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{name}.sock"))
}

/// What the API shows of an interface beyond what the interface itself knows.
#[derive(Default, Clone)]
pub struct Labels {
    /// What it is for.
    pub description: Option<String>,
    /// The names of its peers.
    pub peers: HashMap<PublicKey, String>,
}

/// The interfaces of a daemon, which come and go with its configuration.
#[derive(Default, Clone)]
pub struct Shown(Arc<Mutex<BTreeMap<String, Entry>>>);

type Entry = (Arc<Interface>, Labels);

impl Shown {
    /// Shows an interface, or shows it with other labels.
    pub fn show(&self, interface: Arc<Interface>, labels: Labels) {
        self.lock().insert(interface.name().to_owned(), (interface, labels));
    }

    /// Shows it no more.
    pub fn hide(&self, name: &str) {
        self.lock().remove(name);
    }

    fn all(&self) -> Vec<Entry> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the socket.
pub async fn bind(path: &Path) -> Result<Listener, SocketError> {
    Listener::bind(path).await
}

/// Serves the API for ever.
pub async fn serve(listener: Listener, shown: Shown) {
    let router = Router::new()
        .route("/v1/interfaces/wireguard", get(interfaces))
        .route("/v1/drops", get(drops))
        .route("/v1/offloads", get(offloads))
        .with_state(shown);
    if let Err(error) = axum::serve(Incoming(listener), router).await {
        tracing::error!("api: {error}");
    }
}

async fn interfaces(State(shown): State<Shown>) -> Json<model::Interfaces> {
    let mut interfaces = Vec::new();
    for (interface, labels) in shown.all() {
        interfaces.push(show_interface(&interface, &labels).await);
    }
    Json(model::Interfaces { interfaces })
}

async fn drops(State(shown): State<Shown>) -> Json<model::Drops> {
    Json(model::Drops {
        drops: shown.all().iter().flat_map(|(interface, _)| show_drops(interface)).collect(),
    })
}

async fn offloads(State(shown): State<Shown>) -> Json<model::Offloads> {
    let offloads = shown.all().iter().flat_map(|(interface, _)| show_offloads(interface)).collect();
    Json(model::Offloads { offloads })
}

/// A socket for axum.
struct Incoming(Listener);

impl axum::serve::Listener for Incoming {
    type Io = tokio::net::UnixStream;
    type Addr = ();

    async fn accept(&mut self) -> (Self::Io, ()) {
        loop {
            match self.0.accept().await {
                Ok(stream) => return (stream, ()),
                Err(error) => {
                    tracing::warn!("api: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn show_interface(interface: &Interface, labels: &Labels) -> model::Interface {
    let snapshot = interface.snapshot().await;
    let wall = Clock::default().now().wall;
    let peers = snapshot.peers.iter().map(|peer| model::Peer {
        name: labels.peers.get(&peer.public).cloned(),
        public_key: peer.public.to_string(),
        has_preshared_key: !peer.preshared.is_zero(),
        endpoint: peer.endpoint.map(|endpoint| endpoint.to_string()),
        allowed_ips: peer.allowed_ips.iter().map(IpNet::to_string).collect(),
        latest_handshake: peer.last_handshake.map(|at| at.as_secs()),
        active: peer.last_handshake.is_some_and(|at| wall.saturating_sub(at) < ACTIVE),
        received_bytes: peer.received_bytes,
        sent_bytes: peer.sent_bytes,
        persistent_keepalive: peer.persistent_keepalive,
    });
    model::Interface {
        name: interface.name().to_owned(),
        description: labels.description.clone(),
        addresses: addresses(interface.name()),
        up: snapshot.up,
        mtu: interface.mtu(),
        public_key: snapshot.public.map(|key| key.to_string()),
        listen_port: snapshot.listen_port,
        fwmark: snapshot.fwmark,
        peers: peers.collect(),
    }
}

/// The addresses of an interface; none if it was moved to another network namespace.
fn addresses(interface: &str) -> Vec<String> {
    let Ok(mut netlink) = Netlink::open() else { return Vec::new() };
    let found = netlink.link(interface).and_then(|link| netlink.addresses(link.index));
    found.unwrap_or_default().iter().map(IpNet::to_string).collect()
}

fn show_drops(interface: &Interface) -> Vec<model::Drop> {
    let show = |reason: &DropReason| {
        let [outbound, inbound, handshake] = interface.drops().read(*reason);
        model::Drop {
            interface: interface.name().to_owned(),
            reason: reason.name().to_owned(),
            meaning: reason.sentence().to_owned(),
            outbound,
            inbound,
            handshake,
        }
    };
    DropReason::ALL.iter().map(show).collect()
}

fn show_offloads(interface: &Interface) -> Vec<model::Offload> {
    let show = |(name, does, offload): (&str, &str, &port::Offload)| {
        let (calls, packets, fallbacks) = offload.counters();
        let (interface, state) = (interface.name().to_owned(), offload.state().name().to_owned());
        model::Offload {
            interface,
            offload: name.to_owned(),
            does: does.to_owned(),
            state,
            calls,
            packets,
            fallbacks,
        }
    };
    interface.offloads().all().into_iter().map(show).collect()
}
