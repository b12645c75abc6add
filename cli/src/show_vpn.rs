//! `postern show vpn`: IPsec peers and their tunnels, in the columns of VyOS.

mod detail;

use crate::answer::Answer;
use crate::explain::explain;
use crate::request::Request;
use crate::tabulate::{columns, duration, short_bytes, short_count, tabulate};
use crate::{Failure, suite, vpn};
use config::print::HIDDEN;
use gateway::ipsec::model::{
    Algorithms, ConnectionType, Group, Integrity, Ipsec, IpsecPeer, IpsecSa, IpsecTunnel, Prf,
};
use std::fmt::Write as _;
use std::net::IpAddr;

/// The peer that the request names, or all, with their text. Profiles are in it only while they have no instances.
fn answer(request: &Request, text: impl Fn(&[IpsecPeer]) -> String + 'static) -> Result<Answer, Failure> {
    let found = vpn::wanted(request)?;
    let peers = found.into_iter().map(|found| found.peer).collect();
    Ok(Answer::new(Ipsec { peers, is_absent: false }, move |answer: &Ipsec| {
        let shown = answer.peers.iter().filter(|peer| !peer.has_instances()).cloned();
        text(&shown.collect::<Vec<_>>())
    }))
}

/// The same, with a message if no peer is configured.
fn answer_of_peers(request: &Request, text: fn(&[IpsecPeer]) -> String) -> Result<Answer, Failure> {
    answer(request, move |peers| match peers {
        [] => "no IPsec peer is configured\n".to_owned(),
        peers => text(peers),
    })
}

pub(crate) fn sas(request: &Request) -> Result<Answer, Failure> {
    answer_of_peers(request, sa_table)
}

pub(crate) fn details(request: &Request) -> Result<Answer, Failure> {
    answer_of_peers(request, detail_text)
}

pub(crate) fn connections(request: &Request) -> Result<Answer, Failure> {
    answer_of_peers(request, connection_table)
}

pub(crate) fn policies(request: &Request) -> Result<Answer, Failure> {
    answer_of_peers(request, |peers| peers.iter().map(detail::policy).collect())
}

pub(crate) fn states(request: &Request) -> Result<Answer, Failure> {
    answer_of_peers(request, |peers| peers.iter().map(detail::state).collect())
}

pub(crate) fn ike_sas(request: &Request) -> Result<Answer, Failure> {
    answer_of_peers(request, ike_text)
}

pub(crate) fn secrets(request: &Request) -> Result<Answer, Failure> {
    answer_of_peers(request, secret_table)
}

pub(crate) fn debug(request: &Request) -> Result<Answer, Failure> {
    answer_of_peers(request, |peers| peers.iter().map(debug_text).collect())
}

pub(crate) fn status(request: &Request) -> Result<Answer, Failure> {
    answer(request, status_text)
}

/// The connections of remote users, which this version does not serve: scripts get the columns of VyOS, and no row.
pub(crate) fn remote_access() -> Answer {
    let head = [
        "Connection ID",
        "Username",
        "Protocol",
        "State",
        "Uptime",
        "Tunnel IP",
        "Remote Host",
        "Remote ID",
        "IKE Proposal",
        "IPSec Proposal",
    ];
    Answer::new(serde_json::json!({ "connections": [] }), move |_| tabulate(&head, &[]))
}

/// The IKE SAs of peers.
pub(crate) fn ike_text(peers: &[IpsecPeer]) -> String {
    peers.iter().map(ike_sa).collect()
}

/// All details of peers.
pub(crate) fn detail_text(peers: &[IpsecPeer]) -> String {
    peers.iter().map(detail::sa).collect()
}

fn debug_text(peer: &IpsecPeer) -> String {
    detail::sa(peer) + &explain(peer)
}

/// Whether IPsec runs, in the words of VyOS that scripts look for, and the tunnels that are down.
fn status_text(peers: &[IpsecPeer]) -> String {
    let tunnels = || peers.iter().flat_map(|peer| peer.tunnels.iter().map(move |tunnel| (peer, tunnel)));
    let down = || tunnels().filter(|(_, tunnel)| tunnel.sas.is_empty());
    let (all, connected) = (tunnels().count(), peers.iter().filter(|peer| peer.up).count());
    let mut text = format!(
        "IPSec Process Running\n\n{} Active IPsec Tunnels, of {all}\n{connected} Connected Peers, of {}\n",
        all - down().count(),
        peers.len()
    );
    for (peer, tunnel) in down() {
        let _ = writeln!(text, "  {} is down: {}", tunnel.name, reason(peer));
    }
    text
}

/// The authentication method of each peer.
fn secret_table(peers: &[IpsecPeer]) -> String {
    let row = |peer: &IpsecPeer| {
        let shown = match &peer.secret_at {
            Some(place) => format!("{HIDDEN}, set by {place}"),
            None => peer.authentication.to_string(),
        };
        let remote = peer.remote_id.clone().unwrap_or_else(|| "any".to_owned());
        vec![peer.name.clone(), peer.local_id.clone(), remote, shown]
    };
    tabulate(&["Connection", "Local ID", "Peer ID", "Secret"], &peers.iter().map(row).collect::<Vec<_>>())
}

/// A value that is not known.
const NOTHING: &str = "N/A";

/// The SA that a tunnel sends with, if it is up.
fn in_use(tunnel: &IpsecTunnel) -> Option<&IpsecSa> {
    tunnel.sas.iter().find(|sa| sa.sending).or(tunnel.sas.last())
}

/// The state of a peer in a word. A connected peer that does not answer is `silent`, as in `explain`.
pub(crate) fn state(peer: &IpsecPeer) -> &'static str {
    match (peer.up, peer.silent) {
        (true, Some(_)) => "silent",
        (true, None) => "up",
        (false, _) => "down",
    }
}

/// Why packets may not pass through a tunnel, in a few words; empty if no reason is known.
fn trouble(peer: &IpsecPeer, tunnel: &IpsecTunnel) -> String {
    match peer.silent {
        _ if tunnel.sas.is_empty() => reason(peer),
        Some(seconds) => no_answer(seconds),
        None => String::new(),
    }
}

/// The reason for a peer that does not answer.
pub(crate) fn no_answer(seconds: u64) -> String {
    format!("the peer has not answered for {}", duration(seconds))
}

/// Why a tunnel is down, in a few words.
pub(crate) fn reason(peer: &IpsecPeer) -> String {
    match (&peer.failure, peer.connection_type) {
        (Some(failure), _) => failure.what.clone(),
        (None, ConnectionType::None) => "waits for the peer to call".to_owned(),
        (None, ConnectionType::Trap) => "waits for a packet".to_owned(),
        (None, ConnectionType::Initiate) => "is being set up".to_owned(),
    }
}

/// The tunnels of peers.
pub(crate) fn sa_table(peers: &[IpsecPeer]) -> String {
    let mut head = vec![
        "Connection",
        "State",
        "Uptime",
        "Bytes In/Out",
        "Packets In/Out",
        "Remote address",
        "Remote ID",
        "Proposal",
    ];
    let tunnels = || peers.iter().flat_map(|peer| peer.tunnels.iter().map(move |tunnel| (peer, tunnel)));
    let mut rows: Vec<Vec<String>> = tunnels().map(|(peer, tunnel)| sa(peer, tunnel)).collect();
    // Not a column of VyOS: it stands last, and only if a tunnel has a reason.
    let troubles: Vec<String> = tunnels().map(|(peer, tunnel)| trouble(peer, tunnel)).collect();
    if troubles.iter().any(|trouble| !trouble.is_empty()) {
        head.push("Reason");
        for (row, trouble) in rows.iter_mut().zip(troubles) {
            row.push(trouble);
        }
    }
    tabulate(&head, &rows)
}

fn sa(peer: &IpsecPeer, tunnel: &IpsecTunnel) -> Vec<String> {
    let or_nothing = |text: &Option<String>| text.clone().unwrap_or_else(|| NOTHING.to_owned());
    let newest = in_use(tunnel);
    let algorithms = newest.and_then(|sa| sa.algorithms);
    let up = |text: String| if newest.is_some() { text } else { NOTHING.to_owned() };
    // As VyOS 1.3 names those of a peer that is called by its address: scripts look for it.
    let is_older = peer.name.starts_with('@') || peer.name.parse::<IpAddr>().is_ok();
    vec![
        format!("{}{}", if is_older { "peer-" } else { "" }, tunnel.name),
        if newest.is_some() { "up" } else { "down" }.to_owned(),
        newest.map_or_else(|| NOTHING.to_owned(), |sa| duration(sa.uptime)),
        up(format!("{}/{}", short_bytes(tunnel.received_bytes), short_bytes(tunnel.sent_bytes))),
        up(format!("{}/{}", short_count(tunnel.received_packets), short_count(tunnel.sent_packets))),
        or_nothing(&peer.remote_address),
        or_nothing(&peer.remote_id),
        algorithms.map_or_else(|| NOTHING.to_owned(), |algorithms| suite::joined(&algorithms, "_")),
    ]
}

fn connection_table(peers: &[IpsecPeer]) -> String {
    let head = [
        "Connection",
        "State",
        "Type",
        "Remote address",
        "Local TS",
        "Remote TS",
        "Local id",
        "Remote id",
        "Proposal",
    ];
    let none = || "-".to_owned();
    let of_tunnel = |up: bool| if up { "up" } else { "down" };
    let proposal =
        |found: Option<Algorithms>| found.map_or_else(none, |algorithms| suite::joined(&algorithms, "/"));
    let mut rows = Vec::new();
    for peer in peers {
        let address = peer.remote_address.clone().unwrap_or_else(none);
        let ids = [peer.local_id.clone(), peer.remote_id.clone().unwrap_or_else(none)];
        let row = |name: &str, state: &str, kind: &str, selectors: [String; 2], proposal| {
            let who = vec![name.to_owned(), state.to_owned(), kind.to_owned(), address.clone()];
            [who, selectors.to_vec(), ids.to_vec(), vec![proposal]].concat()
        };
        rows.push(row(&peer.name, state(peer), "IKEv2", [none(), none()], proposal(peer.algorithms)));
        for tunnel in &peer.tunnels {
            let selectors = [tunnel.local.join(" "), tunnel.remote.join(" ")];
            let newest = in_use(tunnel);
            let algorithms = proposal(newest.and_then(|sa| sa.algorithms));
            rows.push(row(&tunnel.name, of_tunnel(newest.is_some()), "IPsec", selectors, algorithms));
        }
    }
    tabulate(&head, &rows)
}

fn ike_sa(peer: &IpsecPeer) -> String {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "any".to_owned());
    let algorithms = peer.algorithms.as_ref();
    let or_not = |text: Option<&str>| text.unwrap_or("n/a").to_owned();
    // A cipher that authenticates has no hash; the keys are made with one.
    let hash = |it: &Algorithms| it.integrity.map(Integrity::name).or(it.prf.map(Prf::name));
    let row = [
        state(peer).to_owned(),
        "IKEv2".to_owned(),
        or_not(algorithms.map(|it| suite::encryption(it, "_")).as_deref()),
        or_not(algorithms.and_then(hash)),
        or_not(algorithms.and_then(|it| it.group).map(Group::name)),
        match &peer.ike {
            Some(ike) if ike.nat => "yes",
            _ => "no",
        }
        .to_owned(),
        peer.uptime.unwrap_or(0).to_string(),
        peer.lifetime.map_or_else(|| "never".to_owned(), |seconds| seconds.to_string()),
    ];
    let ids = [
        format!("{} {}", known(&peer.remote_id), known(&peer.remote_address)),
        format!("{} {}", peer.local_id, known(&peer.local_address)),
    ];
    let ends = [["Peer ID / IP", "Local ID / IP"], ["------------", "-------------"], [&ids[0], &ids[1]]];
    let algorithms = [
        ["State", "IKEVer", "Encrypt", "Hash", "D-H Group", "NAT-T", "A-Time", "L-Time"],
        ["-----", "------", "-------", "----", "---------", "-----", "------", "------"],
        row.each_ref().map(String::as_str),
    ];
    // The widths of VyOS.
    columns("", [39, 39], &ends) + "\n" + &columns("    ", [6, 7, 12, 13, 14, 6, 7, 7], &algorithms) + "\n"
}

#[cfg(test)]
mod tests;
