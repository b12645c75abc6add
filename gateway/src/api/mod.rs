//! The API of a daemon: HTTP and JSON on a Unix socket that only its owner may use.
//!
//! ```text
//! GET /v1/interfaces/wireguard    GET /v1/drops    GET /v1/offloads    GET /v1/crypto
//! GET /v1/interfaces/wireguard/NAME/explain
//! GET /v1/vpn/ipsec               POST /v1/vpn/ipsec/reset
//! GET /v1/status                  POST /v1/reload
//! ```

mod engines;
mod kernel;
pub mod model;
mod server;
mod status;

pub use engines::{said as said_of_engine, show as show_crypto};
pub use status::Reload;

use crate::clock::Clock;
use crate::host::HeldReader;
use crate::host::netlink::Netlink;
use crate::ipsec::Gateway;
use crate::tunnel_interface::Drops;
use crate::unix_socket::{Listener, SocketError};
use crate::wireguard::interface::Interface;
use ::crypto::PublicKey;
use ::crypto::choice::Choice;
use arc_swap::ArcSwapOption;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path as UrlPath, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use ipnet::IpNet;
use packet::DropReason;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
    /// What the configuration calls its peers.
    pub peers: HashMap<PublicKey, PeerLabels>,
}

/// What the configuration calls a peer.
#[derive(Default, Clone)]
pub struct PeerLabels {
    /// Its name.
    pub name: String,
    /// Who it is.
    pub description: Option<String>,
}

/// The interfaces of a daemon, which come and go with its configuration, and its crypto engines.
#[derive(Clone)]
pub struct Shown {
    interfaces: Arc<Mutex<BTreeMap<String, Entry>>>,
    ipsec: Arc<ArcSwapOption<Gateway>>,
    /// What the rules of the host in nf_tables have dropped.
    held: Arc<OnceLock<HeldReader>>,
    engines: Arc<Choice>,
    itself: Arc<status::Itself>,
}

type Entry = (Arc<Interface>, Labels);

impl Shown {
    /// No interface yet.
    pub fn new(engines: Arc<Choice>) -> Self {
        Self {
            interfaces: Arc::default(),
            ipsec: Arc::default(),
            held: Arc::default(),
            engines,
            itself: Arc::new(status::Itself::new()),
        }
    }

    /// Shows an interface, or shows it with other labels.
    pub fn show(&self, interface: Arc<Interface>, labels: Labels) {
        self.lock().insert(interface.name().to_owned(), (interface, labels));
    }

    /// Shows it no more.
    pub fn hide(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Shows the IPsec gateway, or none.
    pub fn show_ipsec(&self, gateway: Option<Arc<Gateway>>) {
        self.ipsec.store(gateway);
    }

    /// Shows what the rules of the host in nf_tables have dropped.
    pub(crate) fn set_held(&self, held: HeldReader) {
        let _ = self.held.set(held);
    }

    fn all(&self) -> Vec<Entry> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        lock(&self.interfaces)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the socket.
pub async fn bind(path: &Path) -> Result<Listener, SocketError> {
    Listener::bind(path).await
}

/// Serves the API for ever.
pub async fn serve(listener: Listener, shown: Shown) {
    server::serve(listener, router(shown), server::Limits::USUAL).await;
}

fn router(shown: Shown) -> Router {
    Router::new()
        .route("/v1/interfaces/wireguard", get(interfaces))
        .route("/v1/interfaces/wireguard/{name}/explain", get(explain_interface))
        .route("/v1/drops", get(drops))
        .route("/v1/offloads", get(offloads))
        .route("/v1/crypto", get(crypto))
        .route("/v1/vpn/ipsec", get(ipsec))
        .route("/v1/vpn/ipsec/reset", post(reset))
        .route("/v1/status", get(status::status))
        .route("/v1/reload", post(status::reload))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .with_state(shown)
}

async fn unknown(place: Uri) -> Response {
    let error = format!("there is no {}", place.path());
    server::problem(StatusCode::NOT_FOUND, error, "use a client of the daemon's version: postern --version")
}

async fn not_allowed(method: Method, place: Uri) -> Response {
    let error = format!("{method} cannot be done with {}", place.path());
    server::problem(StatusCode::METHOD_NOT_ALLOWED, error, "see the header Allow for what can be done")
}

/// The error for a request body that cannot be parsed.
fn unreadable(rejection: &JsonRejection) -> Response {
    server::problem(
        rejection.status(),
        rejection.body_text(),
        "send JSON, with content-type: application/json",
    )
}

async fn interfaces(State(shown): State<Shown>) -> Json<model::Interfaces> {
    let mut interfaces = Vec::new();
    for (interface, labels) in shown.all() {
        interfaces.push(show_interface(&interface, &labels).await);
    }
    Json(model::Interfaces { interfaces })
}

async fn explain_interface(
    State(shown): State<Shown>,
    UrlPath(name): UrlPath<String>,
) -> Json<model::Explanations> {
    let mut interfaces = Vec::new();
    for (interface, labels) in shown.all().into_iter().filter(|(interface, _)| interface.name() == name) {
        let (snapshot, name) = (interface.snapshot().await, name.clone());
        let explain =
            move || crate::wireguard::explain::interface(&name, &snapshot, &labels, Clock.now().wall);
        // If it panicked, it has said so already.
        interfaces.extend(tokio::task::spawn_blocking(explain).await);
    }
    Json(model::Explanations { interfaces })
}

async fn drops(State(shown): State<Shown>) -> Json<model::Drops> {
    let mut drops = Vec::new();
    for (interface, _) in shown.all() {
        drops.extend(show_drops(interface.name(), interface.drops()));
        drops.extend(kernel::drops(interface.name(), &interface.sockets()));
    }
    if let Some(gateway) = shown.ipsec.load_full() {
        drops.extend(show_drops(crate::ipsec::NAME, gateway.drops()));
        drops.extend(kernel::drops(crate::ipsec::NAME, &gateway.sockets()));
    }
    if let Some(held) = shown.held.get() {
        drops.extend(kernel::held(crate::ipsec::NAME, held.read()));
    }
    Json(model::Drops { drops })
}

async fn ipsec(State(shown): State<Shown>) -> Json<model::Ipsec> {
    let peers = match shown.ipsec.load_full() {
        Some(gateway) => gateway.status().await,
        None => Vec::new(),
    };
    Json(model::Ipsec { peers })
}

async fn reset(
    State(shown): State<Shown>,
    which: Result<Json<model::Reset>, JsonRejection>,
) -> Result<Json<bool>, Response> {
    let Json(which) = which.map_err(|rejection| unreadable(&rejection))?;
    let known = match shown.ipsec.load_full() {
        Some(gateway) => gateway.reset(&which.peer, which.tunnel).await,
        None => false,
    };
    Ok(Json(known))
}

async fn offloads(State(shown): State<Shown>) -> Json<model::Offloads> {
    let mut offloads: Vec<model::Offload> = shown
        .all()
        .iter()
        .flat_map(|(interface, _)| show_offloads(interface.name(), interface.offloads()))
        .collect();
    if let Some(gateway) = shown.ipsec.load_full() {
        offloads.extend(show_offloads(crate::ipsec::NAME, gateway.offloads()));
    }
    Json(model::Offloads { offloads })
}

async fn crypto(State(shown): State<Shown>) -> Json<model::Crypto> {
    Json(engines::show(&shown.engines))
}

async fn show_interface(interface: &Interface, labels: &Labels) -> model::Interface {
    let snapshot = interface.snapshot().await;
    let wall = Clock.now().wall;
    let peers = snapshot.peers.iter().map(|peer| model::Peer {
        name: labels.peers.get(&peer.public).map(|labels| labels.name.clone()),
        description: labels.peers.get(&peer.public).and_then(|labels| labels.description.clone()),
        public_key: peer.public.to_string(),
        has_preshared_key: !peer.preshared.is_zero(),
        endpoint: peer.endpoint.map(|endpoint| endpoint.to_string()),
        allowed_ips: peer.allowed_ips.iter().map(IpNet::to_string).collect(),
        latest_handshake: peer.last_handshake.map(|at| at.as_secs()),
        active: peer.last_handshake.is_some_and(|at| wall.saturating_sub(at) < ACTIVE),
        received_bytes: peer.received_bytes,
        sent_bytes: peer.sent_bytes,
        unsent_packets: peer.unsent_packets,
        persistent_keepalive: peer.persistent_keepalive,
    });
    let mut peers: Vec<model::Peer> = peers.collect();
    // Without names, as they were added.
    peers.sort_by(|a, b| {
        let [a, b] = [a, b].map(|peer| peer.name.as_deref().unwrap_or_default());
        config::tree::natural_order(a, b)
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
        peers,
    }
}

/// The addresses of an interface; none if it was moved to another network namespace.
fn addresses(interface: &str) -> Vec<String> {
    let Ok(mut netlink) = Netlink::open() else { return Vec::new() };
    let found = netlink.link(interface).and_then(|link| netlink.addresses(Some(link.index)));
    found.unwrap_or_default().iter().map(IpNet::to_string).collect()
}

fn show_drops(interface: &str, drops: &Drops) -> Vec<model::Drop> {
    let show = |reason: &DropReason| {
        let [outbound, inbound, handshake] = drops.read(*reason);
        model::Drop {
            interface: interface.to_owned(),
            reason: reason.name().to_owned(),
            meaning: reason.sentence().to_owned(),
            outbound,
            inbound,
            handshake,
        }
    };
    DropReason::ALL.iter().map(show).collect()
}

fn show_offloads(interface: &str, offloads: &port::Offloads) -> Vec<model::Offload> {
    let show = |(name, does, offload): (&str, &str, &port::Offload)| {
        let (calls, packets, fallbacks) = offload.counters();
        let (interface, state) = (interface.to_owned(), offload_state(offload.state()));
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
    offloads.all().into_iter().map(show).collect()
}

fn offload_state(state: port::offload::State) -> model::OffloadState {
    use port::offload::State;
    match state {
        State::Unprobed => model::OffloadState::Unprobed,
        State::On => model::OffloadState::On,
        State::SwitchedOff => model::OffloadState::SwitchedOff,
        State::Unsupported => model::OffloadState::Unsupported,
        State::Failed => model::OffloadState::Failed,
    }
}
