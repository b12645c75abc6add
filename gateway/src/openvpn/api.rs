//! What the API shows of OpenVPN.
//!
//! ```text
//! GET /v1/interfaces/openvpn    GET /v1/interfaces/openvpn/NAME/explain    POST /v1/interfaces/openvpn/reset
//! ```

use super::control_thread::{Session, Snapshot};
use super::interface::Interface;
use super::model::{self, Mode, Transport};
use super::served::{Failure, Served};
use super::{explain, facts};
use crate::api::server::unreadable;
use crate::by_name::ByName;
use crate::clock::Clock;
use crate::facts::Tunnels;
use crate::host::netlink::Netlink;
use crate::service::View;
use crate::tunnel_interface::Counters;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use ipnet::IpNet;
use std::sync::Arc;
use std::time::Duration;
use tunnel::openvpn::PeerAddress;

/// An interface, with what its configuration says of it.
#[derive(Clone)]
struct Entry {
    interface: Arc<Interface>,
    mode: Mode,
    description: Option<String>,
    failure: Failure,
}

/// The interfaces, which come and go with the configuration.
#[derive(Clone, Default)]
pub struct Interfaces(ByName<Entry>);

impl Interfaces {
    /// Shows an interface, or shows it with another description.
    pub(super) fn show(&self, served: &Served) {
        let entry = Entry {
            interface: Arc::clone(&served.interface),
            mode: served.settings.mode.into(),
            description: served.settings.description.clone(),
            failure: served.failure.clone(),
        };
        self.0.show(served.interface.name(), entry);
    }

    /// Shows it no more.
    pub(super) fn hide(&self, name: &str) {
        self.0.hide(name);
    }

    fn all(&self) -> Vec<Entry> {
        self.0.all()
    }
}

impl View for Interfaces {
    fn interfaces(&self) -> Vec<Arc<dyn Counters>> {
        self.all().into_iter().map(|entry| entry.interface as Arc<dyn Counters>).collect()
    }

    fn routes(&self) -> Router {
        Router::new()
            .route("/v1/interfaces/openvpn", get(interfaces))
            .route("/v1/interfaces/openvpn/{name}/explain", get(explain_interface))
            .route("/v1/interfaces/openvpn/reset", post(reset))
            .with_state(self.clone())
    }

    fn tunnels(&self) -> Tunnels<'_> {
        Box::pin(async {
            let mut tunnels = Vec::new();
            for entry in self.all() {
                let snapshot = entry.interface.snapshot().await;
                tunnels.extend(facts::tunnels(entry.interface.name(), entry.mode, &snapshot));
            }
            tunnels
        })
    }
}

async fn interfaces(State(shown): State<Interfaces>) -> Json<model::Interfaces> {
    let mut interfaces = Vec::new();
    for entry in shown.all() {
        let snapshot = entry.interface.snapshot().await;
        interfaces.push(model::Interface {
            name: entry.interface.name().to_owned(),
            description: entry.description,
            mode: entry.mode,
            addresses: addresses(entry.interface.name()),
            up: snapshot.up,
            port: snapshot.port,
            sessions: sessions(&snapshot),
            failure: entry.failure.text(),
        });
    }
    Json(model::Interfaces { interfaces })
}

async fn explain_interface(
    State(shown): State<Interfaces>,
    Path(name): Path<String>,
) -> Json<model::Explanations> {
    let mut interfaces = Vec::new();
    for entry in shown.all().into_iter().filter(|entry| entry.interface.name() == name) {
        let snapshot = entry.interface.snapshot().await;
        interfaces.push(model::Explanation {
            interface: name.clone(),
            mode: entry.mode,
            up: snapshot.up,
            sessions: sessions(&snapshot),
            failure: entry.failure.text(),
            failed: snapshot.failed.iter().map(|failed| explain::failed(&name, failed)).collect(),
        });
    }
    Json(model::Explanations { interfaces })
}

/// Ends sessions; whether there were some of that name.
async fn reset(
    State(shown): State<Interfaces>,
    which: Result<Json<model::Reset>, JsonRejection>,
) -> Result<Json<bool>, Response> {
    let Json(which) = which.map_err(|rejection| unreadable(&rejection))?;
    let mut count = 0;
    for entry in shown.all() {
        if which.interface.as_ref().is_some_and(|name| name != entry.interface.name()) {
            continue;
        }
        if let Some(client) = &which.client {
            count += entry.interface.disconnect(client).await;
        } else {
            entry.interface.restart();
            count += 1;
        }
    }
    Ok(Json(count > 0))
}

fn sessions(snapshot: &Snapshot) -> Vec<model::Session> {
    let now = Clock.now().wall;
    snapshot.sessions.iter().map(|it| session(it, now)).collect()
}

fn session(session: &Session, now: Duration) -> model::Session {
    // A client has everything behind its server.
    let prefixes = session.prefixes.iter().filter(|prefix| prefix.prefix_len() != 0);
    let is_host = |prefix: &&IpNet| prefix.prefix_len() == prefix.max_prefix_len();
    let (hosts, networks): (Vec<&IpNet>, Vec<&IpNet>) = prefixes.partition(is_host);
    model::Session {
        common_name: session.common_name.clone(),
        remote_host: session.address.map(|address| address.socket.to_string()),
        protocol: match session.address {
            Some(PeerAddress { is_tcp: true, .. }) => Transport::Tcp,
            _ => Transport::Udp,
        },
        local_host: session.local.map(|address| address.to_string()),
        tunnel_ips: hosts.iter().map(|prefix| prefix.addr().to_string()).collect(),
        networks: networks.iter().map(ToString::to_string).collect(),
        cipher: session.cipher.clone(),
        connected_since: now.saturating_sub(session.duration).as_secs(),
        received_bytes: session.received_bytes,
        sent_bytes: session.sent_bytes,
    }
}

/// The addresses of an interface; none if it was moved to another network namespace.
fn addresses(interface: &str) -> Vec<String> {
    let Ok(mut netlink) = Netlink::open() else { return Vec::new() };
    let found = netlink.link(interface).and_then(|link| netlink.addresses(Some(link.index)));
    found.unwrap_or_default().iter().map(IpNet::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_from_networks_and_the_default_route_is_neither() {
        let prefixes = ["10.8.0.2/32", "fd00:8::2/128", "10.4.0.0/24", "0.0.0.0/0"];
        let shown = session(
            &Session {
                number: 0,
                client_id: 0,
                user: None,
                since: Duration::ZERO,
                referred: Duration::ZERO,
                common_name: None,
                address: Some(PeerAddress::tcp(([192, 0, 2, 1], 7).into())),
                local: "192.0.2.9:1194".parse().ok(),
                prefixes: prefixes.map(|it| it.parse().expect("literal")).to_vec(),
                cipher: "AES-256-GCM".to_owned(),
                duration: Duration::from_secs(60),
                received_bytes: 1,
                sent_bytes: 2,
                received_packets: 0,
                sent_packets: 0,
            },
            Duration::from_secs(1000),
        );
        assert_eq!((shown.tunnel_ips.len(), shown.networks), (2, vec!["10.4.0.0/24".to_owned()]));
        let at = (shown.remote_host.as_deref(), shown.protocol);
        assert_eq!(at, (Some("192.0.2.1:7"), Transport::Tcp));
        assert_eq!((shown.connected_since, shown.local_host.as_deref()), (940, Some("192.0.2.9:1194")));
    }
}
