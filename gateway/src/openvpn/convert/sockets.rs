//! Sockets outside, in UDP and TCP, and where they are bound.

use super::{Refusals, Sources};
use crate::openvpn::settings::{PortShare, TcpSettings};
use config::openvpn::OpenVpn;
use config::openvpn::settings::{Connection, Family, Listen, Protocol, Role, TlsRole, Transport};
use port::udp::{MOST_FURTHER, UdpBinding};
use port::{MtuDiscovery, SocketOptions};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Packets that wait for a slow peer: some super-packets. OpenVPN's 64 are less than two of them.
const QUEUE: usize = 256;

/// The sockets of an interface.
pub(super) struct Sockets {
    /// The first UDP port; 0 for any.
    pub(super) port: u16,
    pub(super) udp: UdpBinding,
    pub(super) tcp: Option<TcpSettings>,
}

/// An address and a port that are bound, and their protocol.
struct Local {
    address: SocketAddr,
    is_tcp: bool,
}

/// Converts what says where sockets are bound.
pub(super) fn sockets(settings: &OpenVpn, sources: &Sources<'_>, refusals: &mut Refusals) -> Sockets {
    let is_client = settings.tls.role == TlsRole::Client;
    let is_tcp = |protocol: &Protocol| protocol.transport != Transport::Udp;
    let locals = if settings.role == Role::Server {
        servers(settings, sources, refusals)
    } else {
        same(settings, refusals);
        clients(settings, sources, refusals)
    };
    let (tcp, udp): (Vec<Local>, Vec<Local>) = locals.into_iter().partition(|local| local.is_tcp);
    if settings.role == Role::SiteToSite && !is_client && !tcp.is_empty() && !udp.is_empty() {
        refusals.refuse("proto", "UDP and TCP between two sites", "write one protocol");
    }
    let options = options(settings);
    let mut remotes = settings.connections.iter().map(|it| it.protocol).filter(|_| is_client);
    let has_udp = remotes.clone().any(|protocol| !is_tcp(&protocol)) || !is_client && !udp.is_empty();
    let uses_tcp = remotes.any(|protocol| is_tcp(&protocol)) || !is_client && !tcp.is_empty();
    let (port, udp) = binding(&udp, options.clone(), refusals);
    let tcp: Vec<SocketAddr> = tcp.iter().map(|local| local.address).collect();
    let (listen, local) = if is_client { (Vec::new(), tcp) } else { (tcp, Vec::new()) };
    let given = settings.server.as_ref().filter(|_| refusals.has("tcp-queue-limit"));
    let tcp = uses_tcp.then(|| TcpSettings {
        listen,
        local,
        has_udp,
        queue_limit: given.map_or(QUEUE, |server| server.tcp_queue as usize),
        hand_window: Duration::from_secs(settings.timers.hand_window_seconds.into()),
        options,
        share: settings.server.as_ref().and_then(|server| {
            let (server, folder) = server.port_share.clone()?;
            Some(PortShare { server, folder })
        }),
    });
    Sockets { port, udp, tcp }
}

fn options(settings: &OpenVpn) -> SocketOptions {
    let process = &settings.process;
    SocketOptions {
        fwmark: process.mark.unwrap_or(0),
        device: process.bind_device.clone(),
        buffers: [process.send_buffer, process.receive_buffer],
        mtu_discovery: process.mtu_discovery.as_deref().map(|word| match word {
            "yes" => MtuDiscovery::Always,
            "maybe" => MtuDiscovery::Wanted,
            _ => MtuDiscovery::Off,
        }),
    }
}

/// Where a server listens.
fn servers(settings: &OpenVpn, sources: &Sources<'_>, refusals: &mut Refusals) -> Vec<Local> {
    let is_v6_only = settings.connections.iter().any(|it| it.ipv6_only);
    let of = |listen: &Listen| {
        let Protocol { transport, family } = listen.protocol;
        let ips = match &listen.host {
            None => everywhere(),
            Some(host) => resolve(host, sources, refusals),
        };
        let is_tcp = transport != Transport::Udp;
        let is_same =
            |it: &&Listen| it.port == listen.port && (it.protocol.transport != Transport::Udp) == is_tcp;
        let is_alone = settings.listen.iter().filter(is_same).count() == 1;
        // OpenVPN's IPv6 socket of all addresses takes IPv4, too.
        let is_every = ips.iter().any(|ip| *ip == Ipv6Addr::UNSPECIFIED) && family != Family::V4;
        let is_both = is_every && is_alone && !is_v6_only;
        let (ips, family) = if is_both { (everywhere(), Family::Any) } else { (ips, family) };
        let ips = ips.into_iter().filter(move |ip| fits(family, *ip));
        ips.map(|ip| Local { address: SocketAddr::new(ip, listen.port), is_tcp }).collect::<Vec<_>>()
    };
    settings.listen.iter().flat_map(of).collect()
}

/// Where a client connects from: the first connection in UDP, and the first in TCP, say it.
fn clients(settings: &OpenVpn, sources: &Sources<'_>, refusals: &mut Refusals) -> Vec<Local> {
    let mut all = Vec::new();
    for is_tcp in [false, true] {
        let is = |it: &&Connection| (it.protocol.transport != Transport::Udp) == is_tcp;
        let Some(first) = settings.connections.iter().find(is) else { continue };
        let port_of = |it: &Connection| it.local_port.filter(|_| it.bind).unwrap_or(0);
        let is_one = settings.connections.iter().filter(is).all(|it| port_of(it) == port_of(first));
        // Any port, where blocks differ: OpenVPN binds one only by default.
        let port = if is_one { port_of(first) } else { 0 };
        let ips = match &first.local {
            Some(host) => resolve(host, sources, refusals),
            // A TCP connection without an address or a port of its own is not bound.
            None if is_tcp && port == 0 => Vec::new(),
            None => everywhere(),
        };
        let ips = ips.into_iter().filter(|ip| !first.ipv6_only || fits(first.protocol.family, *ip));
        all.extend(ips.map(|ip| Local { address: SocketAddr::new(ip, port), is_tcp }));
    }
    all
}

/// Connections in UDP share a socket.
fn same(settings: &OpenVpn, refusals: &mut Refusals) {
    for is_tcp in [false, true] {
        let is = |it: &&Connection| (it.protocol.transport != Transport::Udp) == is_tcp;
        let mut of = settings.connections.iter().filter(is).map(|it| &it.local);
        let first = of.next();
        if of.any(|other| Some(other) != first) {
            let fix = "write local once, outside of the blocks";
            refusals.refuse("local", "different addresses in blocks <connection>", fix);
        }
    }
}

fn everywhere() -> Vec<IpAddr> {
    vec![Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()]
}

fn fits(family: Family, ip: IpAddr) -> bool {
    match family {
        Family::Any => true,
        Family::V4 => ip.is_ipv4(),
        Family::V6 => ip.is_ipv6(),
    }
}

/// The addresses of a host of this machine.
fn resolve(host: &str, sources: &Sources<'_>, refusals: &mut Refusals) -> Vec<IpAddr> {
    let found = host.parse().map_or_else(|_| (sources.resolve)(host), |ip| Ok(vec![ip]));
    found.unwrap_or_else(|error| {
        let fix = "write an address of this machine";
        refusals.wrong("local", format!("{host} has no address now: {error}"), fix);
        Vec::new()
    })
}

/// The first binding has one port, and an address of each version of IP; all others are further ones.
fn binding(locals: &[Local], options: SocketOptions, refusals: &mut Refusals) -> (u16, UdpBinding) {
    let Some(first) = locals.first() else { return (0, UdpBinding { options, ..UdpBinding::default() }) };
    let port = first.address.port();
    let mut udp = UdpBinding { v4: None, v6: None, further: Vec::new(), options, steering: None };
    for address in wanted(locals) {
        match address.ip() {
            IpAddr::V4(ip) if udp.v4.is_none() && address.port() == port => udp.v4 = Some(ip),
            IpAddr::V6(ip) if udp.v6.is_none() && address.port() == port => udp.v6 = Some(ip),
            _ => udp.further.push(address),
        }
    }
    if udp.further.len() > MOST_FURTHER {
        let reason = format!(
            "{} UDP sockets: a server has at most {MOST_FURTHER} beside the first",
            udp.further.len()
        );
        refusals.refuse("local", &reason, "write local * PORT udp for all addresses with a port");
    }
    (port, udp)
}

/// The addresses that are bound, each once: one for all addresses has a port alone.
fn wanted(locals: &[Local]) -> Vec<SocketAddr> {
    let all: Vec<SocketAddr> = locals.iter().map(|local| local.address).collect();
    let is_of_other = |at: &SocketAddr| {
        let whole = |it: &&SocketAddr| it.ip().is_unspecified() && it.is_ipv4() == at.is_ipv4();
        !at.ip().is_unspecified() && all.iter().filter(whole).any(|it| it.port() == at.port())
    };
    let mut wanted: Vec<SocketAddr> = Vec::new();
    for at in all.iter().filter(|at| !is_of_other(at)) {
        if !wanted.contains(at) {
            wanted.push(*at);
        }
    }
    wanted
}
