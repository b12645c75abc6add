//! What the API shows of WireGuard.
//!
//! ```text
//! GET /v1/interfaces/wireguard    GET /v1/interfaces/wireguard/NAME/explain
//! ```

use super::endpoint_reason::endpoint_reason;
use super::interface::Interface;
use super::labels::Labels;
use super::model;
use super::update::Snapshot;
use super::{explain, facts};
use crate::by_name::ByName;
use crate::clock::Clock;
use crate::facts::Tunnels;
use crate::host::netlink::Netlink;
use crate::service::View;
use crate::tunnel_interface::Counters;
use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use ipnet::IpNet;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A peer whose last handshake is not older than this is called active.
pub(super) const ACTIVE: Duration = Duration::from_secs(300);

type Entry = (Arc<Interface>, Labels);

/// The interfaces, which come and go with the configuration.
#[derive(Clone, Default)]
pub struct Interfaces(ByName<Entry>);

impl Interfaces {
    /// Shows an interface, or shows it with other labels.
    pub fn show(&self, interface: Arc<Interface>, labels: Labels) {
        let name = interface.name().to_owned();
        self.0.show(&name, (interface, labels));
    }

    /// Shows it no more.
    pub fn hide(&self, name: &str) {
        self.0.hide(name);
    }

    fn all(&self) -> Vec<Entry> {
        self.0.all()
    }
}

impl View for Interfaces {
    fn interfaces(&self) -> Vec<Arc<dyn Counters>> {
        self.all().into_iter().map(|(interface, _)| interface as Arc<dyn Counters>).collect()
    }

    fn routes(&self) -> Router {
        Router::new()
            .route("/v1/interfaces/wireguard", get(interfaces))
            .route("/v1/interfaces/wireguard/{name}/explain", get(explain_interface))
            .with_state(self.clone())
    }

    fn tunnels(&self) -> Tunnels<'_> {
        Box::pin(async {
            let mut tunnels = Vec::new();
            for (interface, labels) in self.all() {
                let snapshot = interface.snapshot().await;
                let name = interface.name().to_owned();
                let of = move || facts::tunnels(&name, &snapshot, &labels, Clock.now().wall);
                // If it panicked, it has said so already.
                tunnels.extend(tokio::task::spawn_blocking(of).await.unwrap_or_default());
            }
            tunnels
        })
    }
}

async fn interfaces(State(shown): State<Interfaces>) -> Json<model::Interfaces> {
    let mut interfaces = Vec::new();
    for (interface, labels) in shown.all() {
        interfaces.push(show_interface(&interface, &labels).await);
    }
    Json(model::Interfaces { interfaces })
}

async fn explain_interface(
    State(shown): State<Interfaces>,
    Path(name): Path<String>,
) -> Json<model::Explanations> {
    let mut interfaces = Vec::new();
    for (interface, labels) in shown.all().into_iter().filter(|(interface, _)| interface.name() == name) {
        let (snapshot, name) = (interface.snapshot().await, name.clone());
        let explain = move || explain::interface(&name, &snapshot, &labels, Clock.now().wall);
        // If it panicked, it has said so already.
        interfaces.extend(tokio::task::spawn_blocking(explain).await);
    }
    Json(model::Explanations { interfaces })
}

async fn show_interface(interface: &Interface, labels: &Labels) -> model::Interface {
    let snapshot = Arc::new(interface.snapshot().await);
    let wall = Clock.now().wall;
    let failures = failures(interface.name(), &snapshot, labels).await;
    let peers = snapshot.peers.iter().map(|peer| model::Peer {
        name: labels.peers.get(&peer.public).map(|labels| labels.name.clone()),
        description: labels.peers.get(&peer.public).and_then(|labels| labels.description.clone()),
        public_key: peer.public.to_string(),
        has_preshared_key: !peer.preshared.is_zero(),
        host_name: labels.peers.get(&peer.public).and_then(|labels| labels.host.clone()),
        endpoint: peer.endpoint.map(|endpoint| endpoint.to_string()),
        addresses: peer.addresses.iter().map(SocketAddr::to_string).collect(),
        endpoint_reason: endpoint_reason(peer),
        allowed_ips: peer.allowed_ips.iter().map(IpNet::to_string).collect(),
        latest_handshake: peer.last_handshake.map(|at| at.as_secs()),
        active: peer.last_handshake.is_some_and(|at| wall.saturating_sub(at) < ACTIVE),
        received_bytes: peer.received_bytes,
        sent_bytes: peer.sent_bytes,
        unsent_packets: peer.unsent_packets,
        persistent_keepalive: peer.persistent_keepalive,
        failure: failures.get(&peer.public.to_string()).cloned(),
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

/// Why peers are down, by their keys; an interface that is down says enough itself.
async fn failures(name: &str, snapshot: &Arc<Snapshot>, labels: &Labels) -> HashMap<String, String> {
    if !snapshot.up {
        return HashMap::new();
    }
    let (name, snapshot, labels) = (name.to_owned(), Arc::clone(snapshot), labels.clone());
    let explain = move || explain::failures(&name, &snapshot, &labels, Clock.now().wall);
    // If it panicked, it has said so already.
    tokio::task::spawn_blocking(explain).await.unwrap_or_default()
}

/// The addresses of an interface; none if it was moved to another network namespace.
fn addresses(interface: &str) -> Vec<String> {
    let Ok(mut netlink) = Netlink::open() else { return Vec::new() };
    let found = netlink.link(interface).and_then(|link| netlink.addresses(Some(link.index)));
    found.unwrap_or_default().iter().map(IpNet::to_string).collect()
}
