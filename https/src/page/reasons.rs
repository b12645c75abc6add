//! Why tunnels are down, as `postern explain` says it: asked for the interfaces that have such tunnels, and kept for a few seconds.

use super::view::parsed;
use crate::daemon::{Daemon, Refused};
use base64ct::{Base64, Encoding};
use gateway::facts::model::{Facts, Protocol, State, Tunnel};
use gateway::ipsec::model::Ipsec;
use gateway::{openvpn, wireguard};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interfaces whose failures are explained at once.
const EXPLAINED: usize = 32;
/// How long an explanation is shown, unless another tunnel of the interface goes down: that of ten thousand tunnels takes a while.
const LASTS: Duration = Duration::from_secs(5);

/// Bytes of a key, and what stands in its place.
const KEY: usize = 32;
const NO_KEY: &str = "(postern explain shows it)";

/// The cause of a failure, and what to do, a line each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reason {
    pub(super) cause: String,
    pub(super) fix: Vec<String>,
}

impl Reason {
    fn new(cause: &str, fix: &[String]) -> Self {
        Self { cause: without_keys(cause), fix: fix.iter().map(|line| without_keys(line)).collect() }
    }
}

/// A text without keys. Those of WireGuard are public where they are explained, but a page has none.
fn without_keys(text: &str) -> String {
    let is_key = |word: &str| Base64::decode_vec(word).is_ok_and(|key| key.len() == KEY);
    let words = text
        .split(' ')
        .map(|word| if is_key(word.trim_matches([',', '.', ':', ';', '\''])) { NO_KEY } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The reasons of tunnels that are down.
#[derive(Clone, Default)]
pub(super) struct Reasons(BTreeMap<(Protocol, String), Explained>);

/// The reasons of an interface, by peer: none for a peer that is down without one.
#[derive(Clone)]
struct Explained {
    at: Instant,
    peers: Arc<HashMap<String, Vec<Reason>>>,
}

impl Reasons {
    #[cfg(test)]
    pub(super) fn new(tunnel: &Tunnel, reason: Reason) -> Self {
        let peers = Arc::new(HashMap::from([(tunnel.peer.clone(), vec![reason])]));
        let explained = Explained { at: Instant::now(), peers };
        Self(BTreeMap::from([((tunnel.protocol, tunnel.interface.clone()), explained)]))
    }

    pub(super) fn of(&self, tunnel: &Tunnel) -> &[Reason] {
        let explained = self.0.get(&(tunnel.protocol, tunnel.interface.clone()));
        explained.and_then(|it| it.peers.get(&tunnel.peer)).map_or(&[], |reasons| reasons)
    }

    /// The reasons of what is down now. Interfaces whose explanation is old, or does not know all of them, are explained anew.
    pub(super) async fn renewed(mut self, daemon: &Daemon, facts: &Facts) -> Self {
        let mut places: BTreeMap<(Protocol, &str), HashSet<&str>> = BTreeMap::new();
        for tunnel in facts.tunnels.iter().filter(|tunnel| tunnel.state == State::Down) {
            places.entry((tunnel.protocol, &tunnel.interface)).or_default().insert(&tunnel.peer);
        }
        let mut now = BTreeMap::new();
        for ((protocol, interface), down) in places.into_iter().take(EXPLAINED) {
            let place = (protocol, interface.to_owned());
            let kept = self.0.remove(&place).filter(|kept| kept.knows(&down));
            let explained = match kept {
                Some(kept) => kept,
                // An interface may be removed meanwhile: the tunnel is then shown without a reason, once.
                None => explain(daemon, protocol, interface, &down).await.unwrap_or_default(),
            };
            now.insert(place, explained);
        }
        Self(now)
    }
}

impl Default for Explained {
    fn default() -> Self {
        Self { at: Instant::now(), peers: Arc::default() }
    }
}

impl Explained {
    fn knows(&self, down: &HashSet<&str>) -> bool {
        self.at.elapsed() < LASTS && down.iter().all(|peer| self.peers.contains_key(*peer))
    }
}

/// The reasons of those peers of an interface that are down.
async fn explain(
    daemon: &Daemon,
    protocol: Protocol,
    interface: &str,
    down: &HashSet<&str>,
) -> Result<Explained, Refused> {
    let path = match protocol {
        Protocol::WireGuard => format!("/v1/interfaces/wireguard/{interface}/explain"),
        Protocol::Ipsec => "/v1/vpn/ipsec".to_owned(),
        Protocol::OpenVpn => format!("/v1/interfaces/openvpn/{interface}/explain"),
    };
    let json = daemon.bytes(&path).await?;
    let mut peers: HashMap<String, Vec<Reason>> =
        down.iter().map(|peer| ((*peer).to_owned(), Vec::new())).collect();
    let peers = parsed(move || {
        let found = match protocol {
            Protocol::WireGuard => of_wireguard(serde_json::from_slice(&json).ok()?),
            Protocol::Ipsec => of_ipsec(serde_json::from_slice(&json).ok()?),
            Protocol::OpenVpn => of_openvpn(serde_json::from_slice(&json).ok()?),
        };
        for (peer, reasons) in found {
            peers.entry(peer).and_modify(|it| *it = reasons);
        }
        Some(peers)
    });
    Ok(Explained { at: Instant::now(), peers: Arc::new(peers.await?) })
}

type Found = Vec<(String, Vec<Reason>)>;

fn of_wireguard(found: wireguard::model::Explanations) -> Found {
    let peers = found.interfaces.into_iter().flat_map(|interface| interface.peers);
    let reasons = |peer: wireguard::model::Explained| {
        let findings = peer.findings.iter().map(|it| Reason::new(&it.what, &it.fix));
        (peer.name.unwrap_or(peer.public_key), findings.collect())
    };
    peers.map(reasons).collect()
}

fn of_ipsec(found: Ipsec) -> Found {
    let failed = found.peers.into_iter().filter_map(|peer| Some((peer.name, peer.failure?)));
    failed
        .map(|(name, failure)| {
            let cause = [vec![failure.what], failure.details].concat().join("; ");
            (name, vec![Reason::new(&cause, &failure.fix)])
        })
        .collect()
}

/// A client has one peer, of which all that failed is told.
fn of_openvpn(found: openvpn::model::Explanations) -> Found {
    let reasons = found.interfaces.into_iter().map(|interface| {
        let failure = interface.failure.map(|cause| Reason::new(&cause, &[]));
        let failed = interface.failed.iter().map(|it| Reason::new(&it.reason, &it.fix));
        failure.into_iter().chain(failed).collect::<Vec<_>>()
    });
    // As facts name the only peer of an interface.
    reasons.flat_map(|found| ["server", "site"].map(|peer| (peer.to_owned(), found.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_no_key() {
        let key = Base64::encode_string(&[7; KEY]);
        for (text, shown) in [
            (
                format!("it must have a peer with our public key, {key}"),
                "it must have a peer with our public key, (postern explain shows it)",
            ),
            (
                format!("set interfaces wireguard wg0 peer p public-key {key}"),
                "set interfaces wireguard wg0 peer p public-key (postern explain shows it)",
            ),
            ("ping 192.0.2.1".to_owned(), "ping 192.0.2.1"),
        ] {
            assert_eq!(without_keys(&text), shown);
        }
        assert!(!without_keys(&format!("calls with '{key}', and {key}.")).contains(&key));
    }
}
