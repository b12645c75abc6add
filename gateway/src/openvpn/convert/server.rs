//! The settings of a server.

use super::{Refusals, Sources, ciphers, keys, routes, seconds, timing};
use crate::openvpn::options;
use crate::openvpn::settings::{ClientOverride, ServerNetwork, ServerSettings};
use config::openvpn::settings::{Addresses, CertificateOf, ClientFile, Connection, Server};
use config::openvpn::{OpenVpn, client_file};
use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use tunnel::openvpn::ServerConfiguration;
use tunnel::openvpn::peer_info::OURS;
use tunnel::openvpn::verify;
use tunnel::openvpn::wrap::Role;

/// The distance of the first IPv6 address for clients from the address of its network.
const FIRST_V6: u128 = 0x1000;
/// More files of clients than the reader lists are not known.
const MOST_FILES: usize = 1000;
/// The file of clients without a file.
const DEFAULT: &str = "DEFAULT";

/// Converts a server.
pub(super) fn server(
    settings: &OpenVpn,
    link: &Connection,
    sources: &Sources<'_>,
    refusals: &mut Refusals,
) -> Option<ServerSettings> {
    let own = settings.server.as_ref()?;
    if own.certificate != CertificateOf::Required {
        let fix = "write verify-client-cert require";
        refusals.refuse("verify-client-cert", "clients without a certificate", fix);
    }
    let network = network(settings, own, sources, refusals);
    let check = keys::check(settings, Role::Client, refusals);
    let identity = keys::identity(settings, refusals);
    let wrap = keys::server_wrap(settings, link, refusals);
    let tls = match verify::server_config(identity?, Arc::new(check?)) {
        Ok(tls) => tls,
        Err(error) => {
            refusals.wrong("cert", error.to_string(), "write the certificate of this key");
            return None;
        }
    };
    let core = ServerConfiguration {
        tls,
        wrap: wrap?,
        ciphers: ciphers(settings),
        auth: keys::digest(settings).0,
        ping: seconds(settings.timers.ping_seconds),
        ping_restart: seconds(settings.timers.restart_seconds),
        max_clients: own.max_clients as usize,
        features: OURS,
        timing: timing(settings),
    };
    Some(ServerSettings { core, network })
}

fn network(
    settings: &OpenVpn,
    own: &Server,
    sources: &Sources<'_>,
    refusals: &mut Refusals,
) -> ServerNetwork {
    let mut network = ServerNetwork {
        v4: network_v4(settings, own, refusals),
        v6: network_v6(settings, own, refusals),
        routes: routes(settings),
        requires_override: own.only_with_file,
        duplicate_names: own.duplicate_names,
        ..ServerNetwork::default()
    };
    // The interface tells each client these itself.
    let gateway = network.own().find(|own| own.addr().is_ipv4()).map(|own| own.addr());
    let gateway = gateway.map(|address| format!("route-gateway {address}"));
    let is_told = |option: &&String| *option != "topology subnet" && Some(*option) != gateway.as_ref();
    network.push = own.push.iter().filter(is_told).cloned().collect();
    if let Some(folder) = &own.client_directory {
        network.clients = clients(folder, &network, sources, refusals);
    }
    network
}

/// The network of clients, of which the server has the first address and clients all others.
fn network_v4(settings: &OpenVpn, own: &Server, refusals: &mut Refusals) -> Option<Ipv4Net> {
    let address = match settings.device.addresses {
        Some(Addresses::Subnet(address)) => address,
        Some(Addresses::Peer(..)) | None => return None,
    };
    let at = |distance: u32| Ipv4Addr::from_bits(address.network().to_bits() + distance);
    let last = Ipv4Addr::from_bits(address.broadcast().to_bits() - 1);
    let is_whole = own.pool.is_some_and(|pool| pool.first == at(2) && pool.last == last);
    if address.addr() != at(1) || !is_whole {
        let name = ["ifconfig-pool", "ifconfig", "server"].into_iter().find(|name| refusals.has(name));
        let fix = format!("write server {} {}", address.network(), address.netmask());
        refusals.refuse(name.unwrap_or("mode"), "a pool of a part of the network", &fix);
    }
    Some(address.trunc())
}

fn network_v6(settings: &OpenVpn, own: &Server, refusals: &mut Refusals) -> Option<Ipv6Net> {
    let address = settings.device.ipv6?.local;
    let at = |distance: u128| Ipv6Addr::from_bits(address.network().to_bits() | distance);
    let is_whole = own.pool6.is_some_and(|pool| pool.first.addr() == at(FIRST_V6));
    if address.addr() != at(1) || !is_whole {
        let name = if refusals.has("ifconfig-ipv6-pool") { "ifconfig-ipv6-pool" } else { "server-ipv6" };
        let fix = "write server-ipv6 NETWORK/LENGTH with a length from 64 to 111";
        refusals.refuse(name, "a pool of a part of the network, or a small network", fix);
    }
    Some(address.trunc())
}

/// The files of `client-config-dir`, by common name.
fn clients(
    folder: &Path,
    network: &ServerNetwork,
    sources: &Sources<'_>,
    refusals: &mut Refusals,
) -> BTreeMap<String, ClientOverride> {
    const NAME: &str = "client-config-dir";
    let names = sources.files.list(folder).unwrap_or_else(|error| {
        let reason = format!("cannot read {}: {error}", folder.display());
        refusals.wrong(NAME, reason, "make the directory, or mend its rights");
        Vec::new()
    });
    if names.len() >= MOST_FILES {
        refusals.refuse(NAME, "1000 files and more", "delete files of clients that have none to set");
    }
    let mut clients = BTreeMap::new();
    for name in names {
        let path = folder.join(&name);
        if name == DEFAULT {
            refusals.refuse(NAME, "a file DEFAULT", "write its lines into the file of each client");
        }
        let text = match sources.files.read(&path) {
            Ok(text) => text,
            Err(error) => {
                let reason = format!("cannot read {}: {error}", path.display());
                refusals.wrong(NAME, reason, "mend the rights of the file");
                continue;
            }
        };
        match client_file(&path.to_string_lossy(), &text, sources.files) {
            Ok((file, _)) => _ = clients.insert(name, client(&path, file, network, refusals)),
            Err(found) => refusals.found.extend(found),
        }
    }
    clients
}

/// The file of one client.
fn client(path: &Path, file: ClientFile, network: &ServerNetwork, refusals: &mut Refusals) -> ClientOverride {
    let mut refuse = |directive: &str, what: &str, fix: &str| {
        let what = format!("{directive} in {}: {what}", path.display());
        refusals.refuse("client-config-dir", &what, fix);
    };
    let ClientFile { address, address6, routes, push, reset, remove, is_disabled, username, session_seconds } =
        file;
    if reset {
        refuse("push-reset", "other options than those of all clients", "delete the line");
    }
    if !remove.is_empty() {
        refuse("push-remove", "fewer options than all clients have", "delete the line");
    }
    if username.is_some() {
        refuse("override-username", "user names", "delete the line");
    }
    if session_seconds.is_some() {
        refuse("session-timeout", "the end of a session", "delete the line");
    }
    if let Some((address, mask)) = address {
        let own =
            network.v4.filter(|own| own.contains(&address) && mask.is_none_or(|it| it == own.netmask()));
        if own.is_none() || mask.is_none() {
            let fix = "write an address in the network of server, with its netmask";
            refuse("ifconfig-push", "an address of another network, or without its netmask", fix);
        }
    }
    if let Some((address, _)) = address6
        && !network.v6.is_some_and(|own| own.contains(&address.addr()))
    {
        let fix = "write an address in the network of server-ipv6";
        refuse("ifconfig-ipv6-push", "an address of another network", fix);
    }
    let is_lonely = |one: bool, other: bool, has_both: bool| has_both && one && !other;
    let has_both = network.v4.is_some() && network.v6.is_some();
    if is_lonely(address.is_some(), address6.is_some(), has_both) {
        refuse("ifconfig-push", "an IPv4 address alone", "write ifconfig-ipv6-push too");
    }
    if is_lonely(address6.is_some(), address.is_some(), has_both) {
        refuse("ifconfig-ipv6-push", "an IPv6 address alone", "write ifconfig-push too");
    }
    // OpenVPN leaves such a route out of what the client is told; its own network would be behind the tunnel.
    let pushed = options::parse(&network.push).routes;
    if let Some(route) = routes.iter().find(|route| pushed.contains(&route.trunc())) {
        let fix = format!("push the route to {route} in the files of the other clients");
        refuse("iroute", "a network that all clients are told to reach through the tunnel", &fix);
    }
    ClientOverride {
        v4: address.map(|(address, _)| address),
        v6: address6.map(|(address, _)| address.addr()),
        behind: routes,
        push,
        is_disabled,
    }
}
