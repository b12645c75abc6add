//! What the page shows: the snapshot of facts, and why tunnels are down, read once a second at most for all browsers.

use crate::daemon::{Daemon, Refused};
use gateway::facts::FRESH;
use gateway::facts::model::{Facts, Protocol, State, Tunnel};
use gateway::ipsec::model::Ipsec;
use gateway::{openvpn, wireguard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// Interfaces whose failures are explained at once.
const EXPLAINED: usize = 32;

/// The cause of a failure, and what to do, a line each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reason {
    pub(super) cause: String,
    pub(super) fix: Vec<String>,
}

/// What the page shows.
#[derive(Default)]
pub(super) struct View {
    /// Tunnels with trouble are first.
    pub(super) facts: Facts,
    /// By protocol, interface and peer.
    pub(super) reasons: BTreeMap<(Protocol, String, String), Reason>,
}

impl View {
    pub(super) fn new(mut facts: Facts, reasons: BTreeMap<(Protocol, String, String), Reason>) -> Self {
        // Stable: within a state the order of the snapshot stays.
        facts.tunnels.sort_by_key(|tunnel| match tunnel.state {
            State::Down => 0,
            State::Waiting => 1,
            State::Up => 2,
        });
        Self { facts, reasons }
    }

    pub(super) fn reason(&self, tunnel: &Tunnel) -> Option<&Reason> {
        let of = |peer: &str| self.reasons.get(&(tunnel.protocol, tunnel.interface.clone(), peer.to_owned()));
        if tunnel.state == State::Down { of(&tunnel.peer) } else { None }
    }

    /// How many tunnels have this state.
    pub(super) fn count(&self, state: State) -> usize {
        self.facts.tunnels.iter().filter(|it| it.state == state).count()
    }
}

type Outcome = Result<Arc<View>, String>;

/// The latest view, or why there is none. Those who ask while it is made wait for it.
#[derive(Default)]
pub(super) struct Latest(Mutex<Option<(Instant, Outcome)>>);

impl Latest {
    /// A view that is at most a second old.
    pub(super) async fn view(&self, daemon: &Daemon) -> Outcome {
        let mut latest = self.0.lock().await;
        if let Some((at, view)) = latest.as_ref()
            && at.elapsed() < FRESH
        {
            return view.clone();
        }
        // It is not kept while the next is made: that of ten thousand tunnels has several megabytes.
        *latest = None;
        let made = match timeout(PATIENCE, make(daemon)).await {
            Ok(made) => made.map(Arc::new).map_err(|refused| refused.error),
            Err(_) => Err("the daemon does not answer".to_owned()),
        };
        *latest = Some((Instant::now(), made.clone()));
        made
    }
}

async fn make(daemon: &Daemon) -> Result<View, Refused> {
    let facts: Facts = daemon.ask("/v1/facts").await?;
    let down = facts.tunnels.iter().filter(|tunnel| tunnel.state == State::Down);
    let places: BTreeSet<(Protocol, String)> =
        down.map(|tunnel| (tunnel.protocol, tunnel.interface.clone())).collect();
    let mut reasons = BTreeMap::new();
    for (protocol, interface) in places.into_iter().take(EXPLAINED) {
        // An interface may be removed meanwhile: the tunnel is then shown without a reason, once.
        let found = explain(daemon, protocol, &interface).await.unwrap_or_default();
        reasons.extend(found.into_iter().map(|(peer, reason)| ((protocol, interface.clone(), peer), reason)));
    }
    Ok(View::new(facts, reasons))
}

/// The reasons of an interface, by peer.
async fn explain(
    daemon: &Daemon,
    protocol: Protocol,
    interface: &str,
) -> Result<Vec<(String, Reason)>, Refused> {
    Ok(match protocol {
        Protocol::WireGuard => {
            let path = format!("/v1/interfaces/wireguard/{interface}/explain");
            of_wireguard(daemon.ask(&path).await?)
        }
        Protocol::Ipsec => of_ipsec(daemon.ask("/v1/vpn/ipsec").await?),
        Protocol::OpenVpn => {
            let path = format!("/v1/interfaces/openvpn/{interface}/explain");
            of_openvpn(daemon.ask(&path).await?)
        }
    })
}

fn of_wireguard(found: wireguard::model::Explanations) -> Vec<(String, Reason)> {
    let peers = found.interfaces.into_iter().flat_map(|interface| interface.peers);
    let reason = |peer: wireguard::model::Explained| {
        let first = peer.findings.into_iter().next()?;
        Some((peer.name.unwrap_or(peer.public_key), Reason { cause: first.what, fix: first.fix }))
    };
    peers.filter_map(reason).collect()
}

fn of_ipsec(found: Ipsec) -> Vec<(String, Reason)> {
    let failed = found.peers.into_iter().filter_map(|peer| Some((peer.name, peer.failure?)));
    failed
        .map(|(name, failure)| {
            let cause = [vec![failure.what], failure.details].concat().join("; ");
            (name, Reason { cause, fix: failure.fix })
        })
        .collect()
}

/// A client has one peer, of which all that failed is told.
fn of_openvpn(found: openvpn::model::Explanations) -> Vec<(String, Reason)> {
    let reasons = found.interfaces.into_iter().filter_map(|interface| {
        let latest = interface.failed.into_iter().next();
        let reason = match (interface.failure, latest) {
            (Some(cause), _) => Reason { cause, fix: Vec::new() },
            (None, Some(failed)) => Reason { cause: failed.reason, fix: failed.fix },
            (None, None) => return None,
        };
        Some(reason)
    });
    // As facts name the only peer of an interface.
    reasons.flat_map(|reason| ["server", "site"].map(|peer| (peer.to_owned(), reason.clone()))).collect()
}
