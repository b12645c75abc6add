//! `postern status`: one screen with the state of peers and tunnels, why some are down, and warnings.

mod text;

use crate::answer::Answer;
use crate::output::{NOT_UP, ago, bytes};
use crate::request::Request;
use crate::show_vpn::{no_answer, reason};
use crate::{Failure, client};
use gateway::api::model::{Crypto, Drop, Drops, Status};
use gateway::facts::model::State as Carries;
use gateway::failover::model::{Failover, Group};
use gateway::ipsec::model::{ConnectionType, Ipsec, IpsecPeer, IpsecTunnel};
use gateway::openvpn::model::{self as openvpn, Mode};
use gateway::wireguard::model::{Interface, Interfaces, Peer};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The number of drop reasons shown, those with the most packets first.
const DROPS: usize = 5;

pub(crate) fn show(request: &Request) -> Result<Answer, Failure> {
    let answers: Vec<(PathBuf, Status)> = request.ask_each()?;
    if answers.is_empty() {
        return Err(client::no_daemon().into());
    }
    let daemons = answers.into_iter().map(|(socket, status)| daemon(socket, status));
    let daemons = daemons.collect::<Result<Vec<Daemon>, Failure>>()?;
    let all = Everything { up: daemons.iter().all(|daemon| daemon.up), daemons };
    let status = if all.up { 0 } else { NOT_UP };
    let text = |all: &Everything| all.daemons.iter().map(text::daemon).collect::<Vec<String>>().join("\n");
    Ok(Answer::new(all, text).with_status(status))
}

/// What `--json` prints.
#[derive(Serialize)]
struct Everything {
    /// Whether every peer and tunnel that should be up is up.
    up: bool,
    daemons: Vec<Daemon>,
}

/// A daemon, and what it serves.
#[derive(Serialize)]
struct Daemon {
    socket: PathBuf,
    up: bool,
    #[serde(flatten)]
    status: Status,
    wireguard: Vec<WireGuard>,
    ipsec: Vec<Connection>,
    openvpn: Vec<OpenVpn>,
    /// Prefixes that are blocked while their tunnels are down.
    closed: Vec<Closed>,
    /// The drop reasons with the most packets.
    drops: Vec<Dropped>,
    /// For each cipher, the engine that is chosen for most packet sizes.
    engines: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct WireGuard {
    name: String,
    up: bool,
    listen_port: u16,
    peers: Vec<Line>,
}

#[derive(Serialize)]
struct OpenVpn {
    name: String,
    mode: Mode,
    up: bool,
    /// 0 while none is bound.
    port: u16,
    /// A server's clients that are connected, or the only peer.
    peers: Vec<Line>,
}

#[derive(Serialize)]
struct Connection {
    #[serde(flatten)]
    line: Line,
    tunnels: Vec<Line>,
}

/// A peer or a tunnel.
#[derive(Serialize)]
struct Line {
    name: String,
    state: State,
    /// Its endpoint and uptime, or why it is down.
    why: String,
}

#[derive(Serialize)]
struct Closed {
    prefixes: Vec<String>,
    tunnel: String,
}

#[derive(Serialize)]
struct Dropped {
    interface: String,
    reason: String,
    packets: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
enum State {
    Up,
    /// Not connected, and nothing requires it to be.
    Waiting,
    Down,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Waiting => "waiting",
            Self::Down => "down",
        }
    }
}

fn daemon(socket: PathBuf, status: Status) -> Result<Daemon, Failure> {
    let interfaces: Interfaces = client::ask_one(&socket, "/v1/interfaces/wireguard")?;
    let mut ipsec: Ipsec = client::ask_one(&socket, "/v1/vpn/ipsec")?;
    ipsec.peers.retain(|peer| !peer.has_instances());
    let openvpn: openvpn::Interfaces = client::ask_one(&socket, "/v1/interfaces/openvpn")?;
    let openvpn: Vec<OpenVpn> = openvpn.interfaces.iter().map(openvpn_interface).collect();
    let drops: Drops = client::ask_one(&socket, "/v1/drops")?;
    let crypto: Crypto = client::ask_one(&socket, "/v1/crypto")?;
    let wireguard: Vec<WireGuard> = interfaces.interfaces.iter().map(wireguard).collect();
    let down = |peer: &&IpsecPeer| peer.tunnels.iter().any(|tunnel| tunnel.sas.is_empty());
    // Only the daemon has groups: postern secgw does not know the question.
    let failover = if ipsec.peers.iter().any(|peer| down(&peer)) {
        client::ask_one(&socket, "/v1/failover").unwrap_or_default()
    } else {
        Failover::default()
    };
    let carried = carried(&failover);
    let closed = ipsec.peers.iter().filter(down).flat_map(|peer| closed(peer, &carried)).collect();
    let ipsec: Vec<Connection> = ipsec.peers.iter().map(connection).collect();
    let is_down = |line: &Line| line.state == State::Down;
    let up = status.refused.is_empty()
        && wireguard.iter().all(|interface| interface.up && !interface.peers.iter().any(is_down))
        && !ipsec.iter().any(|peer| is_down(&peer.line) || peer.tunnels.iter().any(is_down))
        && !openvpn.iter().any(|interface| interface.peers.iter().any(is_down));
    let (drops, engines) = (of_note(&drops.drops), engines(&crypto));
    Ok(Daemon { socket, up, status, wireguard, ipsec, openvpn, closed, drops, engines })
}

fn wireguard(interface: &Interface) -> WireGuard {
    let peers = interface.peers.iter().map(peer).collect();
    WireGuard { name: interface.name.clone(), up: interface.up, listen_port: interface.listen_port, peers }
}

/// WireGuard is silent without traffic: a peer is down only if its answer is overdue, or if handshakes have failed.
fn peer(peer: &Peer) -> Line {
    let name = peer.name.clone().unwrap_or_else(|| peer.public_key.clone());
    let at = peer.endpoint.as_deref().map(|endpoint| format!(", at {endpoint}")).unwrap_or_default();
    let since = peer.latest_handshake.map(|at| format!("last handshake {}", ago(at)));
    let (state, why) = match (peer.active, since) {
        (_, since) if let Some(failure) = &peer.failure => {
            (State::Down, [failure.clone()].into_iter().chain(since).collect::<Vec<_>>().join("; "))
        }
        (true, Some(since)) => {
            let [received, sent] = [peer.received_bytes, peer.sent_bytes].map(bytes);
            (State::Up, format!("{since}{at}, {received} received, {sent} sent"))
        }
        (_, since) if peer.persistent_keepalive != 0 && peer.endpoint.is_some() => {
            let since = since.unwrap_or_else(|| "no handshake yet".to_owned());
            (State::Down, format!("{since}{at}; it should answer every {} s", peer.persistent_keepalive))
        }
        (_, Some(since)) => (State::Waiting, format!("{since}{at}")),
        (_, None) if peer.endpoint.is_none() => {
            let found = peer.host_name.as_ref().map(|name| format!("{name} is being looked up"));
            (State::Waiting, found.unwrap_or_else(|| "it has not called yet".to_owned()))
        }
        (_, None) => (State::Waiting, format!("no handshake yet{at}; one is made when a packet is sent")),
    };
    Line { name, state, why }
}

fn connection(peer: &IpsecPeer) -> Connection {
    let tunnels = peer.tunnels.iter().map(|tunnel| Line {
        name: tunnel.name.clone(),
        state: if tunnel.sas.is_empty() { missing(peer) } else { State::Up },
        why: match &peer.failure {
            Some(failure) if peer.up && tunnel.sas.is_empty() => {
                format!("{}: {}", between(tunnel), failure.what)
            }
            _ => between(tunnel),
        },
    });
    let why = if let (true, Some(seconds)) = (peer.up, peer.silent) {
        format!("{}; postern explain vpn ipsec peer {}", no_answer(seconds), peer.name)
    } else if peer.up {
        let at = peer.remote_address.as_deref().unwrap_or("an unknown address");
        format!("{at}, for {}", crate::tabulate::duration(peer.uptime.unwrap_or_default()))
    } else {
        reason(peer)
    };
    let state = if peer.up { State::Up } else { missing(peer) };
    Connection { line: Line { name: peer.name.clone(), state, why }, tunnels: tunnels.collect() }
}

/// The state of a peer or tunnel without keys: waiting, unless it should have keys or its negotiation has failed.
fn missing(peer: &IpsecPeer) -> State {
    let waits = matches!(peer.connection_type, ConnectionType::None | ConnectionType::Trap);
    if waits && peer.failure.is_none() { State::Waiting } else { State::Down }
}

fn between(tunnel: &IpsecTunnel) -> String {
    let side = |prefixes: &[String]| {
        if prefixes.is_empty() { "the gateway".to_owned() } else { prefixes.join(" ") }
    };
    format!("{} to {}", side(&tunnel.local), side(&tunnel.remote))
}

/// The networks that a tunnel of a group carries.
fn carried(failover: &Failover) -> BTreeSet<String> {
    let is_carried =
        |group: &&Group| group.members.iter().any(|member| member.is_used && member.state == Carries::Up);
    failover.groups.iter().filter(is_carried).flat_map(|group| group.prefixes.iter().cloned()).collect()
}

/// What is closed while a tunnel of the peer is down, unless another one carries it.
fn closed<'a>(peer: &'a IpsecPeer, carried: &'a BTreeSet<String>) -> impl Iterator<Item = Closed> + 'a {
    let down = peer.tunnels.iter().filter(|tunnel| tunnel.sas.is_empty());
    let closed = down.map(|tunnel| Closed {
        prefixes: tunnel.remote.iter().filter(|prefix| !carried.contains(*prefix)).cloned().collect(),
        tunnel: tunnel.name.clone(),
    });
    closed.filter(|closed| !closed.prefixes.is_empty())
}

fn openvpn_interface(interface: &openvpn::Interface) -> OpenVpn {
    let mut peers: Vec<Line> = interface.sessions.iter().map(|it| session(interface.mode, it)).collect();
    // A client should be connected; the other end of a site-to-site tunnel may be the one that calls, and a server waits.
    let missing = match (&interface.failure, interface.mode) {
        (Some(failure), _) => Some((State::Down, failure.clone())),
        (None, Mode::Client) => Some((State::Down, "not connected".to_owned())),
        (None, Mode::SiteToSite) => Some((State::Waiting, "not connected".to_owned())),
        (None, Mode::Server) => None,
    };
    if let Some((state, why)) = missing.filter(|_| peers.is_empty()) {
        peers.push(Line { name: only_peer(interface.mode).to_owned(), state, why });
    }
    OpenVpn {
        name: interface.name.clone(),
        mode: interface.mode,
        up: interface.up,
        port: interface.port,
        peers,
    }
}

fn session(mode: Mode, session: &openvpn::Session) -> Line {
    let name = session.common_name.as_ref().filter(|_| mode == Mode::Server);
    let name = name.map_or_else(|| only_peer(mode).to_owned(), Clone::clone);
    let at = session.remote_host.as_deref().unwrap_or("an unknown address");
    let [received, sent] = [session.received_bytes, session.sent_bytes].map(bytes);
    let why = format!("{at}, connected {}, {received} received, {sent} sent", ago(session.connected_since));
    Line { name, state: State::Up, why }
}

/// What a peer is called that has no name.
fn only_peer(mode: Mode) -> &'static str {
    match mode {
        Mode::Server => "client",
        Mode::Client => "server",
        Mode::SiteToSite => "peer",
    }
}

/// The drop reasons with the most packets.
fn of_note(drops: &[Drop]) -> Vec<Dropped> {
    let mut drops: Vec<Dropped> = drops
        .iter()
        .map(|drop| Dropped {
            interface: drop.interface.clone(),
            reason: drop.reason.clone(),
            packets: drop.outbound + drop.inbound + drop.handshake,
        })
        .filter(|drop| drop.packets > 0)
        .collect();
    drops.sort_by_key(|drop| std::cmp::Reverse(drop.packets));
    drops.truncate(DROPS);
    drops
}

/// For each cipher, the engine that is chosen for most packet sizes.
fn engines(crypto: &Crypto) -> BTreeMap<String, String> {
    let chosen = crypto.ciphers.iter().filter_map(|cipher| {
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for place in &cipher.places {
            *places.entry(&place.chosen).or_default() += 1;
        }
        let (engine, _) = places.into_iter().max_by_key(|(_, count)| *count)?;
        Some((cipher.name.clone(), engine.to_owned()))
    });
    chosen.collect()
}

#[cfg(test)]
mod tests;
