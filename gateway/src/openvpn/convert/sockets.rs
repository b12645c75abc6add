//! Sockets outside: UDP or TCP, and where a server listens.

use super::Refusals;
use crate::openvpn::settings::TcpSettings;
use config::openvpn::OpenVpn;
use config::openvpn::settings::{Connection, Family, Role, Transport};
use port::tcp::socket::SocketOptions;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Packets that wait for a slow peer: some super-packets. OpenVPN's 64 are less than two of them.
const QUEUE: usize = 256;

/// Refuses what is not served.
pub(super) fn check(settings: &OpenVpn, refusals: &mut Refusals) {
    let transports = settings.listen.iter().map(|listen| listen.protocol.transport);
    let is_tcp: Vec<bool> = transports.map(|transport| transport != Transport::Udp).collect();
    if is_tcp.contains(&true) && is_tcp.contains(&false) {
        refusals.refuse(
            "proto",
            "UDP and TCP in one server",
            "write a file for each, with networks of their own",
        );
    }
    let has_family = |family: Family| family != Family::Any;
    if is_tcp.contains(&false) && settings.listen.iter().any(|listen| has_family(listen.protocol.family)) {
        let fix = "write proto udp: both versions are bound";
        refusals.refuse("proto", "one version of IP on a server in UDP", fix);
    }
}

/// TCP, if it is used.
pub(super) fn tcp(settings: &OpenVpn, refusals: &Refusals) -> Option<TcpSettings> {
    let listen: Vec<SocketAddr> = settings
        .listen
        .iter()
        .filter(|listen| listen.protocol.transport == Transport::TcpServer)
        .flat_map(|listen| everywhere(listen.protocol.family).map(|ip| SocketAddr::new(ip, listen.port)))
        .collect();
    let is_client = settings.role == Role::Client;
    let is_tcp = |it: &&Connection| is_client && it.protocol.transport != Transport::Udp;
    let first = settings.connections.iter().find(is_tcp);
    if listen.is_empty() && first.is_none() {
        return None;
    }
    let has_udp = is_client && !settings.connections.iter().all(|it| is_tcp(&it));
    let given = settings.server.as_ref().filter(|_| refusals.has("tcp-queue-limit"));
    Some(TcpSettings {
        listen,
        local: None,
        has_udp,
        queue_limit: given.map_or(QUEUE, |server| server.tcp_queue as usize),
        hand_window: Duration::from_secs(settings.timers.hand_window_seconds.into()),
        options: SocketOptions { fwmark: settings.process.mark.unwrap_or(0), ..SocketOptions::default() },
    })
}

fn everywhere(family: Family) -> impl Iterator<Item = IpAddr> {
    let v6 = (family != Family::V4).then_some(IpAddr::from(Ipv6Addr::UNSPECIFIED));
    let v4 = (family != Family::V6).then_some(IpAddr::from(Ipv4Addr::UNSPECIFIED));
    v6.into_iter().chain(v4)
}
