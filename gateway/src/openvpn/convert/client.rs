//! The settings of a client.

use super::{Refusals, Sources, ciphers, keepalive, keys, routes, timing};
use crate::openvpn::settings::ClientSettings;
use config::openvpn::OpenVpn;
use config::openvpn::settings::{Connection, Family};
use std::net::{IpAddr, SocketAddr};
use tunnel::openvpn::ClientConfiguration;
use tunnel::openvpn::key_method::Credentials;
use tunnel::openvpn::peer_info::OURS;
use tunnel::openvpn::verify;
use tunnel::openvpn::wrap::Role;

/// Converts a client.
pub(super) fn client(
    settings: &OpenVpn,
    link: &Connection,
    sources: &Sources<'_>,
    refusals: &mut Refusals,
) -> Option<ClientSettings> {
    let remotes = remotes(settings, sources, refusals);
    if settings.connections.iter().any(|it| !keys::is_same(it.wrapping.as_ref(), link.wrapping.as_ref())) {
        let name = ["tls-crypt-v2", "tls-crypt", "tls-auth"].into_iter().find(|name| refusals.has(name));
        let fix = "write the key once, outside of the blocks";
        refusals.refuse(name.unwrap_or("remote"), "keys of blocks <connection>", fix);
    }
    let check = keys::check(settings, Role::Server, refusals);
    let identity = keys::identity(settings, refusals);
    let wrap = keys::client_wrap(settings, link, refusals);
    let tls = match verify::client_config(Some(identity?), check?) {
        Ok(tls) => tls,
        Err(error) => {
            refusals.wrong("cert", error.to_string(), "write the certificate of this key");
            return None;
        }
    };
    let core = ClientConfiguration {
        tls,
        wrap: wrap?,
        ciphers: ciphers(settings),
        auth: keys::digest(settings).0,
        credentials: Credentials::default(),
        peer_info: Vec::new(),
        mtu: link.tun_mtu,
        features: OURS,
        keepalive: keepalive(settings, refusals),
        timing: timing(settings),
    };
    Some(ClientSettings { core, remotes, float: link.float, routes: routes(settings) })
}

/// The addresses of the servers, in the order in which they are tried.
fn remotes(settings: &OpenVpn, sources: &Sources<'_>, refusals: &mut Refusals) -> Vec<SocketAddr> {
    let mut remotes = Vec::new();
    for it in &settings.connections {
        let Some(host) = &it.remote else { continue };
        let addresses = match host.parse() {
            Ok(address) => Ok(vec![address]),
            Err(_) => (sources.resolve)(host),
        };
        let fits = |address: &IpAddr| match it.protocol.family {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        };
        let addresses = addresses
            .map_err(|error| error.to_string())
            .map(|all| all.into_iter().filter(fits).collect::<Vec<IpAddr>>());
        match addresses {
            Ok(found) if !found.is_empty() => {
                remotes.extend(found.into_iter().map(|address| SocketAddr::new(address, it.remote_port)));
            }
            Ok(_) => {
                let reason = format!("{host} has no address of the IP version of proto");
                refusals.wrong("remote", reason, "write proto udp");
            }
            Err(error) => {
                let fix = "write its address, or start again when the name server answers";
                refusals.wrong("remote", format!("{host} has no address now: {error}"), fix);
            }
        }
    }
    remotes
}
