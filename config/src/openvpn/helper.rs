//! Directives that stand for others, expanded as OpenVPN documents them: `server`, `server-ipv6`, `keepalive`, `compat-mode`.

use super::builder::Builder;
use super::draft::ServerHelper;
use super::settings::{Addresses, DataCipher, Gateway, Ipv6Addresses, Pool, Pool6, TlsRole, Topology};
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The distance of the first IPv6 address for clients from the address of its network.
const FIRST6: u128 = 0x1000;

/// Expands the directives that stand for others.
pub(super) fn expand(builder: &mut Builder<'_>) {
    let draft = &mut builder.draft;
    draft.is_server |= draft.helper.is_some() || draft.helper6.is_some();
    // As in OpenVPN 2.7; but two ends written by hand are those of net30, as in older versions.
    if draft.is_server && !draft.has_topology {
        let has_mask = |(local, second)| Ipv4Net::with_netmask(local, second).is_ok();
        let is_by_hand = draft.helper.is_none() && draft.ifconfig.is_some_and(|it| !has_mask(it));
        draft.device.topology = if is_by_hand { Topology::Net30 } else { Topology::Subnet };
    }
    // Clients get one address each, and not four.
    if draft.is_linear && draft.device.topology == Topology::Net30 {
        draft.device.topology = Topology::PointToPoint;
    }
    if let Some(helper) = builder.draft.helper {
        server(builder, helper);
    }
    if let Some(network) = builder.draft.helper6 {
        server6(builder, network);
    }
    keepalive(builder);
    compatible(builder);
}

fn server(builder: &mut Builder<'_>, ServerHelper { network, has_pool }: ServerHelper) {
    for name in ["client", "pull", "tls-client"] {
        if builder.has(name) {
            builder.refuse(
                "server",
                format!("{name} and server exclude each other"),
                format!("delete {name}"),
            );
        }
    }
    if builder.has("ifconfig-pool") && has_pool {
        let fix = "delete it, or write server NETWORK NETMASK nopool";
        builder.refuse("ifconfig-pool", "server sets it too", fix);
    }
    if builder.draft.ifconfig.take().is_some() {
        builder.warn("ifconfig", "it has no effect beside server");
    }
    let topology = builder.draft.device.topology;
    if topology != Topology::Subnet && network.prefix_len() > 28 {
        let reason = format!("{network} is too small for topology {topology}");
        builder.refuse("server", reason, "write topology subnet, or a larger network");
    }
    let draft = &mut builder.draft;
    draft.tls_role = Some(TlsRole::Server);
    let at = |distance: u32| Ipv4Addr::from(u32::from(network.network()) + distance);
    let before_last = |distance: u32| Ipv4Addr::from(u32::from(network.broadcast()) - distance);
    let length = network.prefix_len();
    draft.device.addresses = Ipv4Net::new(at(1), length).ok().map(Addresses::Subnet);
    let (first, last) = match topology {
        Topology::Subnet => (at(2), before_last(1)),
        Topology::Net30 | Topology::PointToPoint => (at(4), before_last(4)),
    };
    if has_pool {
        draft.server.pool = Some(Pool { first, last });
    }
    let told = match (topology, draft.server.client_to_client) {
        (Topology::Subnet, _) => Some(format!("route-gateway {}", at(1))),
        (_, true) => Some(format!("route {} {}", network.network(), network.netmask())),
        (Topology::Net30, false) => Some(format!("route {}", at(1))),
        (Topology::PointToPoint, false) => None,
    };
    draft.server.push.extend(told);
    draft.routing.gateway.get_or_insert(Gateway::Address(IpAddr::V4(at(2))));
}

fn server6(builder: &mut Builder<'_>, network: Ipv6Net) {
    let draft = &mut builder.draft;
    draft.tls_role = Some(TlsRole::Server);
    let at = |distance: u128| Ipv6Addr::from(u128::from(network.network()) | distance);
    let length = network.prefix_len();
    let with_length = |address| Ipv6Net::new(address, length).ok();
    if draft.device.ipv6.is_none() {
        draft.device.ipv6 = with_length(at(1)).map(|local| Ipv6Addresses { local, remote: at(2) });
    }
    // A small network has no address so far from its first.
    let distance = if length >= 112 { 2 } else { FIRST6 };
    if draft.server.pool6.is_none() {
        draft.server.pool6 = with_length(at(distance)).map(|first| Pool6 { first });
    }
}

fn keepalive(builder: &mut Builder<'_>) {
    let Some((ping, timeout)) = builder.draft.keepalive else { return };
    for name in ["ping", "ping-restart", "ping-exit"] {
        if builder.has(name) {
            builder.warn(name, "it has no effect beside keepalive");
        }
    }
    let draft = &mut builder.draft;
    draft.timers.ping_seconds = ping;
    draft.timers.exit_seconds = 0;
    if draft.is_server {
        // The server waits twice as long, so that the client notices first.
        draft.timers.restart_seconds = timeout.saturating_mul(2);
        draft.server.push.push(format!("ping {ping}"));
        draft.server.push.push(format!("ping-restart {timeout}"));
    } else {
        draft.timers.restart_seconds = timeout;
    }
}

/// Defaults of an older version.
fn compatible(builder: &mut Builder<'_>) {
    let draft = &mut builder.draft;
    let version = draft.compatible.unwrap_or((u32::MAX, 0));
    if version < (2, 5)
        && let Some(cipher) = draft.cipher
        && !draft.data.ciphers.contains(&cipher)
        && cipher != DataCipher::None
    {
        draft.data.ciphers.push(cipher);
    }
    if version < (2, 4) && draft.data.fallback.is_none() {
        draft.data.fallback = draft.cipher;
    }
    if draft.is_server {
        draft.server.push.insert(0, format!("topology {}", draft.device.topology));
    }
}
