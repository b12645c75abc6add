//! Routes to host names, and by way of gateways with host names, that a server pushes (`allow-pull-fqdn`): the names are looked up, and
//! their addresses become routes.

use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

/// The most routes with names that a server may push, and the most addresses of each name.
const MOST: usize = 16;

/// The addresses of names; none of a name that no name server knows.
pub type Known = BTreeMap<String, Vec<IpAddr>>;

/// Where a route leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// To the addresses of a name.
    Host(String),
    /// To a network.
    Network(IpNet),
}

/// By which way it leads there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Into the tunnel.
    Inside,
    /// Outside of it.
    Outside,
    /// By the gateway of this name, whose address tells which of both.
    By(String),
}

/// A route of which a part is a name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedRoute {
    to: To,
    way: Way,
    /// The table and the metric of a route into the tunnel.
    place: (u32, u32),
}

/// The routes of one push reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedRoutes(Vec<NamedRoute>);

impl NamedRoutes {
    /// Adds a route, unless there are too many. `place`: its table and its metric, if it leads into the tunnel.
    pub fn add(&mut self, to: To, way: Way, place: (u32, u32)) -> bool {
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.push(NamedRoute { to, way, place });
        }
        has_room
    }

    /// The names, each once.
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts = Vec::new();
        for NamedRoute { to, way, .. } in &self.0 {
            let to = if let To::Host(host) = to { Some(host) } else { None };
            let by = if let Way::By(host) = way { Some(host) } else { None };
            for host in to.into_iter().chain(by) {
                if !hosts.contains(host) {
                    hosts.push(host.clone());
                }
            }
        }
        hosts
    }

    /// Adds the routes to addresses that are known to those into the tunnel, by table and with a metric, and to those outside.
    /// `is_near`: whether a gateway is in the tunnel. Until the address of a gateway is known, nothing is set.
    pub fn resolve(
        &self,
        known: &Known,
        is_near: impl Fn(IpAddr) -> bool,
        tunnel: &mut BTreeMap<(IpNet, u32), u32>,
        outside: &mut BTreeSet<IpNet>,
    ) {
        let of = |host: &String| known.get(host).into_iter().flatten().copied();
        for NamedRoute { to, way, place: (table, metric) } in &self.0 {
            let is_inside = match way {
                Way::Inside => true,
                Way::Outside => false,
                // As in OpenVPN, the first address counts.
                Way::By(host) => match of(host).next() {
                    Some(address) => is_near(address),
                    None => continue,
                },
            };
            let prefixes: Vec<IpNet> = match to {
                To::Host(host) => of(host).map(IpNet::from).collect(),
                To::Network(prefix) => vec![*prefix],
            };
            for prefix in prefixes {
                if is_inside {
                    tunnel.insert((prefix, *table), *metric);
                } else {
                    outside.insert(prefix);
                }
            }
        }
    }
}

/// Looks up names. `route` is about IPv4.
pub fn look_up(hosts: &[String], resolve: impl Fn(&str) -> io::Result<Vec<IpAddr>>) -> Known {
    let is_usable = |address: &IpAddr| match address {
        IpAddr::V4(it) => {
            !(it.is_loopback() || it.is_unspecified() || it.is_multicast() || it.is_broadcast())
        }
        IpAddr::V6(_) => false,
    };
    let addresses = |host: &String| {
        let found = resolve(host).unwrap_or_default();
        let found: Vec<IpAddr> = found.into_iter().filter(is_usable).take(MOST).collect();
        if found.is_empty() {
            tracing::warn!("routes with {host} are not set: it has no IPv4 address now");
        }
        (host.clone(), found)
    };
    hosts.iter().map(addresses).collect()
}
