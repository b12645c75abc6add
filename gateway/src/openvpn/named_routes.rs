//! Routes to host names that a server pushes (`allow-pull-fqdn`): the names are looked up, and their addresses become routes.

use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

/// The most routes to names that a server may push, and the most addresses of each name.
const MOST: usize = 16;

/// The addresses of names; none of a name that no name server knows.
pub type Known = BTreeMap<String, Vec<IpAddr>>;

/// A route to the addresses of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedRoute {
    host: String,
    /// The table and the metric of the route into the tunnel; outside of it if none.
    inside: Option<(u32, u32)>,
}

/// The routes of one push reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedRoutes(Vec<NamedRoute>);

impl NamedRoutes {
    /// Adds a route, unless there are too many. `inside`: its table and its metric, if it leads into the tunnel.
    pub fn add(&mut self, host: &str, inside: Option<(u32, u32)>) -> bool {
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.push(NamedRoute { host: host.to_owned(), inside });
        }
        has_room
    }

    /// The names.
    pub fn hosts(&self) -> Vec<String> {
        self.0.iter().map(|route| route.host.clone()).collect()
    }

    /// Adds the routes to addresses that are known to those into the tunnel, by table and with a metric, and to those outside.
    pub fn resolve(
        &self,
        known: &Known,
        tunnel: &mut BTreeMap<(IpNet, u32), u32>,
        outside: &mut BTreeSet<IpNet>,
    ) {
        for NamedRoute { host, inside } in &self.0 {
            for prefix in known.get(host).into_iter().flatten().map(|address| IpNet::from(*address)) {
                match inside {
                    Some((table, metric)) => _ = tunnel.insert((prefix, *table), *metric),
                    None => _ = outside.insert(prefix),
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
            tracing::warn!("the route to {host} is not set: it has no IPv4 address now");
        }
        (host.clone(), found)
    };
    hosts.iter().map(addresses).collect()
}
