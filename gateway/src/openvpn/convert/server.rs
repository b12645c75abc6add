//! The settings of a server.

use super::{Refusals, Sources, access, ciphers, control_packet, fallback, keys, routes, seconds, timing};
use crate::openvpn::pool::first_v6;
use crate::openvpn::settings::{PointToPoint, Renew, Renewed, ServerNetwork, ServerSettings};
use config::openvpn::OpenVpn;
use config::openvpn::settings::{
    Addresses, CertificateOf, Compression, Connection, Pool, Revocation, Server, Topology, Transport,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tunnel::openvpn::ServerConfiguration;
use tunnel::openvpn::of_own_certificate;
use tunnel::openvpn::offer::Offer;
use tunnel::openvpn::peer_info::OURS;
use tunnel::openvpn::server::Rate;
use tunnel::openvpn::verify::{self, Identity, PeerCheck};
use tunnel::openvpn::wrap::Role;

/// Lines of `ifconfig-pool-persist` that are read: a pool has no more addresses.
const MOST_LEASES: usize = 65_536;

/// Converts a server.
pub(super) fn server(
    settings: &OpenVpn,
    link: &Connection,
    sources: &Sources<'_>,
    refusals: &mut Refusals,
) -> Option<ServerSettings> {
    let own = settings.server.as_ref()?;
    let network =
        ServerNetwork { sends_away: link.exit_notify == 2, ..network(settings, own, sources, refusals) };
    let mut access = access::access(settings, own, link, refusals);
    let check = keys::check(settings, Role::Client, refusals);
    let identity = keys::identity(settings, refusals);
    let wrap = keys::server_wrap(settings, link, refusals);
    let (tls, _) = tls(&keys::offer(settings), own.certificate, identity?, check?, refusals)?;
    access.renew = renew(settings, own.certificate);
    let core = ServerConfiguration {
        tls,
        wrap: wrap?,
        ciphers: ciphers(settings),
        fallback: fallback(settings),
        auth: keys::digest(settings).0,
        ends_compression: settings.data.compression != Compression::Off,
        ping: seconds(settings.timers.ping_seconds),
        // Either ends the session of a client.
        ping_restart: seconds(settings.timers.exit_seconds).or(seconds(settings.timers.restart_seconds)),
        max_clients: own.max_clients as usize,
        features: OURS,
        timing: timing(settings),
        control_packet: control_packet(settings),
        new_sessions: own.connect_limit.map(rate),
        // Of a TCP connection the address is proved already.
        answers: own.initial_limit.filter(|_| link.protocol.transport == Transport::Udp).map(rate),
        only: None,
    };
    Some(ServerSettings { core, network, access, site: None })
}

fn rate((most, seconds): (u32, u32)) -> Rate {
    Rate { most, period: Duration::from_secs(seconds.into()) }
}

/// The configuration of TLS.
pub(super) fn tls(
    offer: &Offer,
    certificate: CertificateOf,
    identity: Identity,
    mut check: PeerCheck,
    refusals: &mut Refusals,
) -> Option<Renewed> {
    if certificate == CertificateOf::Optional {
        check.make_optional();
    }
    let check = Arc::new(check);
    let tls = match certificate {
        CertificateOf::None => verify::server_config_without_certificates(offer, identity),
        _ => verify::server_config_of(offer, identity, Arc::clone(&check)),
    };
    match tls {
        Ok(tls) => Some((tls, check)),
        Err(error) => keys::wrong_certificate(of_own_certificate(&error), refusals),
    }
}

/// Makes the configuration of TLS again, when the revocation list has changed.
pub(super) fn renew(settings: &OpenVpn, certificate: CertificateOf) -> Option<Renew> {
    let is_file = matches!(&settings.tls.revocation, Some(Revocation::List(list)) if list.file.is_some());
    let settings = (is_file && certificate != CertificateOf::None).then(|| settings.clone())?;
    Some(Box::new(move |list| {
        let mut refusals = Refusals { given: BTreeMap::new(), found: Vec::new() };
        let check = keys::check_with(&settings, Role::Client, Some(list), &mut refusals);
        let identity = keys::identity(&settings, &mut refusals);
        let made = identity.zip(check).and_then(|(identity, check)| {
            tls(&keys::offer(&settings), certificate, identity, check, &mut refusals)
        });
        made.ok_or_else(|| refusals.found.iter().map(|refusal| refusal.reason.clone()).collect())
    }))
}

fn network(
    settings: &OpenVpn,
    own: &Server,
    sources: &Sources<'_>,
    refusals: &mut Refusals,
) -> ServerNetwork {
    let (v4, local) = network_v4(settings, own.pool).unzip();
    let mut network = ServerNetwork {
        v4,
        local,
        line: match settings.device.topology {
            Topology::Subnet => None,
            Topology::Net30 => Some(PointToPoint::Net30),
            Topology::PointToPoint => Some(PointToPoint::Single),
        },
        pool: pool(v4, own, refusals),
        v6: network_v6(settings, own, refusals),
        // The kernel makes that of the server's address itself.
        routes: routes(settings).into_iter().filter(|route| v4.map(IpNet::V4) != Some(*route)).collect(),
        leases: own.leases.as_ref().map(|(path, _)| leases(path, sources)).unwrap_or_default(),
        requires_override: own.only_with_file,
        duplicate_names: own.duplicate_names,
        relays: own.client_to_client,
        ..ServerNetwork::default()
    };
    // The interface tells each client these itself.
    let gateway = network.own().find(|own| own.addr().is_ipv4()).map(|own| own.addr());
    let gateway = gateway.map(|address| format!("route-gateway {address}"));
    let is_told = |option: &&String| !option.starts_with("topology ") && Some(*option) != gateway.as_ref();
    network.push = own.push.iter().filter(is_told).cloned().collect();
    network
}

/// The addresses that clients had, as a file says. Without the file, and for lines in another form, nothing is remembered.
fn leases(path: &Path, sources: &Sources<'_>) -> Vec<(String, Option<Ipv4Addr>, Option<Ipv6Addr>)> {
    let text = sources.files.read(path).unwrap_or_default();
    let lines = text.as_str().unwrap_or_default().lines().take(MOST_LEASES);
    let lease = |line: &str| {
        let mut fields = line.split(',');
        let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with('#'))?;
        let addresses: Vec<&str> = fields.collect();
        let v4 = addresses.iter().find_map(|field| field.trim().parse().ok());
        let v6 = addresses.iter().find_map(|field| field.trim().parse().ok());
        Some((name.to_owned(), v4, v6))
    };
    lines.filter_map(lease).collect()
}

/// The network of clients, and the address of the server in it.
fn network_v4(settings: &OpenVpn, pool: Option<Pool>) -> Option<(Ipv4Net, Ipv4Addr)> {
    match settings.device.addresses? {
        Addresses::Subnet(address) => Some((address.trunc(), address.addr())),
        Addresses::Peer(local, _) => Some((around(local, pool, settings), local)),
    }
}

/// The network of clients of a server that has the address of another end (`ifconfig LOCAL REMOTE`): the smallest route that has its
/// address and the pool, as `server` sets one. Without such a route, the smallest network that has them.
fn around(local: Ipv4Addr, pool: Option<Pool>, settings: &OpenVpn) -> Ipv4Net {
    let ends = pool.map_or([local; 2], |pool| [pool.first, pool.last]);
    let fits = |network: &Ipv4Net| {
        // The kernel takes the last address for a broadcast.
        let is_inside =
            |it: &Ipv4Addr| network.contains(it) && ![network.network(), network.broadcast()].contains(it);
        is_inside(&local) && ends.iter().all(is_inside)
    };
    let routes = routes(settings).into_iter().filter_map(|route| match route {
        IpNet::V4(route) => Some(route),
        IpNet::V6(_) => None,
    });
    let least = || (0..=30).rev().filter_map(|length| Ipv4Net::new(local, length).ok()).map(|it| it.trunc());
    let of_route = routes.filter(fits).max_by_key(Ipv4Net::prefix_len);
    of_route.or_else(|| least().find(fits)).unwrap_or_else(|| Ipv4Net::from(local))
}

/// The addresses that clients without settings get.
fn pool(network: Option<Ipv4Net>, own: &Server, refusals: &mut Refusals) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let network = network?;
    let name = if refusals.has("ifconfig-pool") { "ifconfig-pool" } else { "server" };
    let Some(pool) = own.pool else {
        let fix = "write ifconfig-pool FIRST LAST with addresses of the network";
        refusals.refuse(name, "a server without a pool", fix);
        return None;
    };
    let is_inside = |address: &Ipv4Addr| network.contains(address) && *address > network.network();
    if !is_inside(&pool.first) || !is_inside(&pool.last) || pool.last == network.broadcast() {
        let reason = format!("it is not a part of {network} without its first and its last address");
        refusals.wrong(name, reason, "write addresses of the server's network");
    }
    Some((pool.first, pool.last))
}

fn network_v6(settings: &OpenVpn, own: &Server, refusals: &mut Refusals) -> Option<Ipv6Net> {
    let address = settings.device.ipv6?.local;
    let at = |distance: u128| Ipv6Addr::from_bits(address.network().to_bits() | distance);
    let is_whole = own.pool6.is_some_and(|pool| pool.first.addr() == at(first_v6(address)));
    if address.addr() != at(1) || !is_whole {
        let name = if refusals.has("ifconfig-ipv6-pool") { "ifconfig-ipv6-pool" } else { "server-ipv6" };
        let fix = "write server-ipv6 NETWORK/LENGTH";
        refusals.refuse(name, "a pool of a part of the network", fix);
    }
    Some(address.trunc())
}
