//! `postern show vpn`: IPsec peers and their tunnels, in the columns of VyOS.

mod detail;

use crate::suite::Suite;
use crate::tabulate::{duration, short_bytes, short_count, tabulate};
use crate::{Outcome, show, vpn};
use clap::Subcommand;
use gateway::api::model::{Ipsec, IpsecPeer, IpsecTunnel};
use std::path::Path;

#[derive(Subcommand)]
pub(crate) enum What {
    /// IPsec
    Ipsec {
        #[command(subcommand)]
        what: IpsecKind,
    },
    /// IKE
    Ike {
        #[command(subcommand)]
        what: IkeKind,
    },
}

#[derive(Subcommand)]
pub(crate) enum IpsecKind {
    /// The tunnels: whether they are up, what they have carried, and what protects them
    Sa {
        /// Everything about them
        #[arg(value_parser = ["detail", "verbose"])]
        view: Option<String>,
    },
    /// Peers and their tunnels: who, where, and for which networks
    Connections,
    /// Which packets must go through which tunnel
    Policy,
}

#[derive(Subcommand)]
pub(crate) enum IkeKind {
    /// The connections in which keys are agreed on
    Sa,
}

pub(crate) fn show(what: &What, api: Option<&Path>, json: bool) -> Outcome {
    let peers: Vec<IpsecPeer> = vpn::peers(api)?.into_iter().map(|found| found.peer).collect();
    let text = match what {
        _ if peers.is_empty() => "no IPsec peer is configured\n".to_owned(),
        What::Ipsec { what: IpsecKind::Sa { view: None } } => sas(&peers),
        What::Ipsec { what: IpsecKind::Sa { view: Some(_) } } => peers.iter().map(detail::sa).collect(),
        What::Ipsec { what: IpsecKind::Connections } => connections(&peers),
        What::Ipsec { what: IpsecKind::Policy } => peers.iter().map(detail::policy).collect(),
        What::Ike { what: IkeKind::Sa } => peers.iter().map(ike_sa).collect(),
    };
    show::print(json, &Ipsec { peers }, &text)
}

/// What is not there.
const NOTHING: &str = "N/A";

/// Why a tunnel is down, in a few words.
fn reason(peer: &IpsecPeer) -> String {
    match (&peer.failure, peer.connection_type.as_str()) {
        (Some(failure), _) => failure.what.clone(),
        (None, "none") => "waits for the peer to call".to_owned(),
        (None, "trap") => "waits for a packet".to_owned(),
        (None, _) => "is being set up".to_owned(),
    }
}

fn sas(peers: &[IpsecPeer]) -> String {
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
    // A column of ours, behind those of VyOS and only when there is something to say.
    if tunnels().any(|(_, tunnel)| tunnel.sas.is_empty()) {
        head.push("Reason");
        for (row, (peer, tunnel)) in rows.iter_mut().zip(tunnels()) {
            row.push(if tunnel.sas.is_empty() { reason(peer) } else { String::new() });
        }
    }
    tabulate(&head, &rows)
}

fn sa(peer: &IpsecPeer, tunnel: &IpsecTunnel) -> Vec<String> {
    let or_nothing = |text: &Option<String>| text.clone().unwrap_or_else(|| NOTHING.to_owned());
    let newest = tunnel.sas.last();
    let up = |text: String| if newest.is_some() { text } else { NOTHING.to_owned() };
    vec![
        tunnel.name.clone(),
        if newest.is_some() { "up" } else { "down" }.to_owned(),
        newest.map_or_else(|| NOTHING.to_owned(), |sa| duration(sa.uptime)),
        up(format!("{}/{}", short_bytes(tunnel.received_bytes), short_bytes(tunnel.sent_bytes))),
        up(format!("{}/{}", short_count(tunnel.received_packets), short_count(tunnel.sent_packets))),
        or_nothing(&peer.remote_address),
        or_nothing(&peer.remote_id),
        newest.map_or_else(|| NOTHING.to_owned(), |sa| Suite::read(&sa.suite).joined("_")),
    ]
}

fn connections(peers: &[IpsecPeer]) -> String {
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
    let state = |up: bool| if up { "up" } else { "down" }.to_owned();
    let suite = |text: Option<&String>| text.map_or_else(none, |text| Suite::read(text).joined("/"));
    let mut rows = Vec::new();
    for peer in peers {
        let address = peer.remote_address.clone().unwrap_or_else(none);
        let ids = [peer.local_id.clone(), peer.remote_id.clone().unwrap_or_else(none)];
        let row = |name: &str, up, kind: &str, selectors: [String; 2], proposal| {
            let who = vec![name.to_owned(), state(up), kind.to_owned(), address.clone()];
            [who, selectors.to_vec(), ids.to_vec(), vec![proposal]].concat()
        };
        rows.push(row(&peer.name, peer.up, "IKEv2", [none(), none()], suite(peer.suite.as_ref())));
        for tunnel in &peer.tunnels {
            let selectors = [tunnel.local.join(" "), tunnel.remote.join(" ")];
            let newest = tunnel.sas.last();
            let proposal = suite(newest.map(|sa| &sa.suite));
            rows.push(row(&tunnel.name, newest.is_some(), "IPsec", selectors, proposal));
        }
    }
    tabulate(&head, &rows)
}

fn ike_sa(peer: &IpsecPeer) -> String {
    let both = |one: &str, other: &str| format!("{one:<39} {other:<39}").trim_end().to_owned() + "\n";
    let line = |cells: [&str; 8]| {
        let [state, version, encryption, hash, group, nat, active, lifetime] = cells;
        format!(
            "    {state:<6} {version:<6}  {encryption:<14} {hash:<18} {group:<14} {nat:<6} {active:<7} {lifetime:<7}"
        )
        .trim_end()
        .to_owned()
            + "\n"
    };
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "any".to_owned());
    let suite = Suite::read(peer.suite.as_deref().unwrap_or_default());
    let or_not =
        |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "n/a".to_owned());
    let row = [
        if peer.up { "up" } else { "down" }.to_owned(),
        "IKEv2".to_owned(),
        or_not(Some(suite.encryption("_"))),
        // A cipher that authenticates has no hash; the keys are made with one.
        or_not(suite.integrity.or(suite.prf)),
        or_not(suite.group),
        match &peer.ike {
            Some(ike) if ike.nat => "yes",
            _ => "no",
        }
        .to_owned(),
        peer.uptime.unwrap_or(0).to_string(),
        peer.lifetime.to_string(),
    ];
    let ids = [
        format!("{} {}", known(&peer.remote_id), known(&peer.remote_address)),
        format!("{} {}", peer.local_id, known(&peer.local_address)),
    ];
    let mut text = both("Peer ID / IP", "Local ID / IP") + &both("------------", "-------------");
    text += &both(&ids[0], &ids[1]);
    text.push('\n');
    text += &line(["State", "IKEVer", "Encrypt", "Hash", "D-H Group", "NAT-T", "A-Time", "L-Time"]);
    text += &line(["-----", "------", "-------", "----", "---------", "-----", "------", "------"]);
    text += &line(row.each_ref().map(String::as_str));
    text.push('\n');
    text
}

#[cfg(test)]
pub(crate) mod tests;
