//! Details of SAs in the format of swanctl, and policies in the format of `ip xfrm policy`.

use super::reason;
use crate::suite;
use gateway::ipsec::model::{Algorithms, IpsecIke, IpsecPeer, IpsecSa, IpsecTunnel};

/// A peer with its tunnels.
pub(super) fn sa(peer: &IpsecPeer) -> String {
    let mut lines = match &peer.ike {
        Some(ike) => connected(peer, ike),
        None => disconnected(peer),
    };
    for tunnel in &peer.tunnels {
        lines.extend(tunnel.sas.iter().flat_map(|sa| installed(tunnel, sa)));
        if tunnel.sas.is_empty() {
            lines.push(format!("  {}: #{}, DOWN, {}", tunnel.name, tunnel.number, reason(peer)));
            lines.push(format!("    offered {}", tunnel.proposals.join(", ")));
            lines.extend(selectors(&tunnel.local, &tunnel.remote));
        }
    }
    lines.join("\n") + "\n"
}

fn disconnected(peer: &IpsecPeer) -> Vec<String> {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "any".to_owned());
    vec![
        format!("{}: DOWN, IKEv2, {}", peer.name, reason(peer)),
        format!("  local  '{}' @ {}", peer.local_id, known(&peer.local_address)),
        format!("  remote '{}' @ {}", known(&peer.remote_id), known(&peer.remote_address)),
        format!("  offered {}", peer.proposals.join(", ")),
    ]
}

fn connected(peer: &IpsecPeer, ike: &IpsecIke) -> Vec<String> {
    let star = |ours: bool| if ours { "*" } else { "" };
    let mut lines = vec![
        format!(
            "{}: #{}, ESTABLISHED, IKEv2, {}_i{} {}_r{}",
            peer.name,
            ike.number,
            ike.spi_initiator,
            star(ike.initiated),
            ike.spi_responder,
            star(!ike.initiated)
        ),
        format!("  local  '{}' @ {}", peer.local_id, ike.local),
        format!("  remote '{}' @ {}", peer.remote_id.as_deref().unwrap_or("any"), ike.remote),
        format!("  {}", algorithms(peer.algorithms.as_ref())),
        format!("  established {}s ago{}", peer.uptime.unwrap_or(0), ends(ike.rekeying_in, ike.expires_in)),
    ];
    if ike.refused_exchanges > 0 {
        lines.push(format!("  {} key exchanges put off: too many", ike.refused_exchanges));
    }
    lines
}

fn algorithms(found: Option<&Algorithms>) -> String {
    found.map(suite::full).unwrap_or_default()
}

fn ends(rekeying: Option<u64>, expires: Option<u64>) -> String {
    let rekeying = rekeying.map(|seconds| format!("rekeying in {seconds}s"));
    let expires = expires.map(|seconds| format!("expires in {seconds}s"));
    rekeying.into_iter().chain(expires).map(|text| format!(", {text}")).collect()
}

fn installed(tunnel: &IpsecTunnel, sa: &IpsecSa) -> Vec<String> {
    let state = sa.state.name().to_uppercase();
    let mode = tunnel.mode.name().to_uppercase() + if tunnel.in_udp { "-in-UDP" } else { "" };
    let counters = |bytes: u64, packets: u64| {
        // The counters are of the tunnel: print them once.
        if sa.sending { format!(", {bytes:>6} bytes, {packets:>5} packets") } else { String::new() }
    };
    let mut lines = vec![
        format!(
            "  {}: #{}, {state}, {mode}, ESP:{}",
            tunnel.name,
            tunnel.number,
            algorithms(sa.algorithms.as_ref())
        ),
        format!("    installed {}s ago{}", sa.uptime, ends(sa.rekeying_in, sa.expires_in)),
        format!("    in  {:08x}{}", sa.spi_in, counters(tunnel.received_bytes, tunnel.received_packets)),
        format!("    out {:08x}{}", sa.spi_out, counters(tunnel.sent_bytes, tunnel.sent_packets)),
    ];
    if sa.sending && tunnel.unsent_packets != 0 {
        lines.push(format!("    not sent: {} packets, see: postern show drops", tunnel.unsent_packets));
    }
    lines.extend(selectors(&sa.local, &sa.remote));
    lines
}

fn selectors(local: &[String], remote: &[String]) -> [String; 2] {
    [format!("    local  {}", local.join(" ")), format!("    remote {}", remote.join(" "))]
}

/// The SAs of a peer's tunnels, one for each direction, as `ip xfrm state` lists them, without keys.
pub(super) fn state(peer: &IpsecPeer) -> String {
    let any = || "any".to_owned();
    let [here, there] =
        [&peer.local_address, &peer.remote_address].map(|address| address.clone().unwrap_or_else(any));
    let mut text = String::new();
    for (tunnel, sa) in peer.tunnels.iter().flat_map(|tunnel| tunnel.sas.iter().map(move |sa| (tunnel, sa))) {
        for (from, to, spi) in [(&here, &there, sa.spi_out), (&there, &here, sa.spi_in)] {
            text += &one_way(from, to, spi, tunnel, sa);
        }
    }
    text
}

fn one_way(from: &str, to: &str, spi: u32, tunnel: &IpsecTunnel, sa: &IpsecSa) -> String {
    let carried = if tunnel.in_udp { ", in UDP" } else { "" };
    format!(
        "src {from} dst {to}\n\tproto esp spi {spi:#010x} reqid {} mode {}{carried}\n\t{}, {} for {}s, tunnel {}\n",
        tunnel.number,
        tunnel.mode,
        algorithms(sa.algorithms.as_ref()),
        sa.state,
        sa.uptime,
        tunnel.name
    )
}

/// The policies of a peer's tunnels, outbound and inbound.
pub(super) fn policy(peer: &IpsecPeer) -> String {
    let any = || "any".to_owned();
    let ends = [&peer.local_address, &peer.remote_address].map(|address| address.clone().unwrap_or_else(any));
    let mut text = String::new();
    for tunnel in &peer.tunnels {
        let pairs =
            tunnel.local.iter().flat_map(|local| tunnel.remote.iter().map(move |remote| [local, remote]));
        for [local, remote] in pairs {
            let out = tunnel.sas.iter().find(|sa| sa.sending).map(|sa| sa.spi_out);
            let arriving = tunnel.sas.last().map(|sa| sa.spi_in);
            text += &one([local, remote], "out", &ends, out, tunnel);
            let [here, there] = &ends;
            text += &one([remote, local], "in", &[there.clone(), here.clone()], arriving, tunnel);
        }
    }
    text
}

fn one(
    [from, to]: [&str; 2],
    direction: &str,
    [source, destination]: &[String; 2],
    spi: Option<u32>,
    tunnel: &IpsecTunnel,
) -> String {
    // Without an SA, packets wait for one: they never go in the clear.
    let spi = spi.map_or_else(|| "none".to_owned(), |spi| format!("{spi:#010x}"));
    format!(
        "src {from} dst {to}\n\tdir {direction} action protect tunnel {}\n\ttmpl src {source} dst {destination}\n\t\tproto esp spi {spi} reqid {} mode {}\n",
        tunnel.name, tunnel.number, tunnel.mode
    )
}
