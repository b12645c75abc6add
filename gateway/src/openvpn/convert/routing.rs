//! The network of a client, as far as its own file says it.

use super::{Refusals, Sources};
use crate::openvpn::options::Own;
use config::openvpn::OpenVpn;
use config::openvpn::settings::{Connection, Destination, Route, Routing};
use ipnet::IpNet;
use std::net::IpAddr;

/// Converts it. Host names of routes are resolved now.
pub(super) fn own(
    settings: &OpenVpn,
    link: &Connection,
    sources: &Sources<'_>,
    refusals: &mut Refusals,
) -> Own {
    let mut routes = Vec::new();
    for route in &settings.routing.routes {
        match &route.destination {
            Destination::Host(host) => match addresses(host, sources) {
                Ok(found) => routes.extend(found.into_iter().map(|address| Route {
                    destination: Destination::Network(IpNet::from(address)),
                    ..route.clone()
                })),
                Err(error) => {
                    let reason = format!("{host} has no address now: {error}");
                    refusals.wrong("route", reason, "write its address");
                }
            },
            _ => routes.push(route.clone()),
        }
    }
    let client = settings.client.clone().unwrap_or_default();
    Own {
        addresses: settings.device.addresses,
        ipv6: settings.device.ipv6,
        routing: Routing { routes, ..settings.routing.clone() },
        dns: settings.dns.clone(),
        block_ipv6: settings.device.block_ipv6,
        filters: client.filters,
        no_routes: client.no_routes,
        allow_names: client.allow_names,
        no_addresses: settings.device.is_by_script,
        mtu_max: link.tun_mtu.max(link.tun_mtu_max).into(),
    }
}

/// The IPv4 addresses of a host.
fn addresses(host: &str, sources: &Sources<'_>) -> Result<Vec<IpAddr>, String> {
    let found = (sources.resolve)(host).map_err(|error| error.to_string())?;
    let found: Vec<IpAddr> = found.into_iter().filter(IpAddr::is_ipv4).collect();
    if found.is_empty() { Err("it has no IPv4 address".to_owned()) } else { Ok(found) }
}
