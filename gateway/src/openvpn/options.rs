//! The network of a client: its own settings and the options of the server's push reply, as addresses and routes.
//!
//! ```text
//! push reply ── filter ──> config::openvpn::pushed ──┐
//! file ──> Own ──────────────────────────────────────┴──> Network ──> routing
//! ```

#[cfg(test)]
mod tests;

use super::named_routes::{NamedRoutes, To, Way};
use super::scripts::addressing::Addressing;
use config::openvpn::settings::{
    Addresses, Destination, Dns, Filter, FilterAction, Gateway, Ipv6Addresses, Redirect, Route, Routing,
    Topology,
};
use config::openvpn::{Pushed, pushed};
use ipnet::{IpNet, Ipv4Net};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// What a client's own file says about its network.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a directive of its own")]
pub struct Own {
    /// `ifconfig`.
    pub addresses: Option<Addresses>,
    /// `ifconfig-ipv6`.
    pub ipv6: Option<Ipv6Addresses>,
    /// Routes and the default gateway. Host names are resolved.
    pub routing: Routing,
    /// Name servers and search domains.
    pub dns: Dns,
    /// `block-ipv6`.
    pub block_ipv6: bool,
    /// `pull-filter`.
    pub filters: Vec<Filter>,
    /// `route-nopull`.
    pub no_routes: bool,
    /// `allow-pull-fqdn`.
    pub allow_names: bool,
    /// `ifconfig-noexec`.
    pub no_addresses: bool,
    /// The largest MTU that is taken.
    pub mtu_max: u32,
}

/// What the client is to have in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Our addresses, with the networks that they are in.
    pub addresses: BTreeSet<IpNet>,
    /// What is routed to the server, by table, with its metric; 0 for the kernel's.
    pub tunnel: BTreeMap<(IpNet, u32), u32>,
    /// What stays outside of the tunnel.
    pub outside: BTreeSet<IpNet>,
    /// Routes to host names, which are looked up.
    pub named: NamedRoutes,
    /// The default route.
    pub redirect: Option<Redirect>,
    /// ICMPv6 errors in place of IPv6 through the tunnel.
    pub block_ipv6: bool,
    /// Name servers and search domains.
    pub dns: Dns,
    /// `tun-mtu`.
    pub mtu: Option<u32>,
    /// Options that are not served, and what is done about them.
    pub warnings: Vec<String>,
    /// The first option that is not served, and that would put traffic into the tunnel.
    pub unprotected: Option<String>,
    /// What programs are told of it.
    pub told: Addressing,
}

/// The main routing table (linux/rtnetlink.h).
const MAIN: u32 = 254;

/// Options that the core has read, or that have no effect on addresses and routes.
const READ: &[&str] = &[
    "cipher",
    "peer-id",
    "protocol-flags",
    "key-derivation",
    "ping",
    "ping-restart",
    "ping-exit",
    "ping-timer-rem",
    "tun-ipv6",
    "auth-token",
    "auth-token-user",
    "explicit-exit-notify",
    "sndbuf",
    "rcvbuf",
    "socket-flags",
    "inactive",
    "session-timeout",
    "register-dns",
    "echo",
    "setenv",
    "setenv-safe",
];

/// Options that put traffic into the tunnel: without them it would leave in clear.
const PROTECTING: &[&str] = &["redirect-gateway", "redirect-private", "block-ipv6", "route", "route-ipv6"];

/// Options that `route-nopull` leaves out.
const OF_ROUTES: &[&str] = &[
    "route",
    "route-ipv6",
    "route-metric",
    "redirect-gateway",
    "redirect-private",
    "block-ipv6",
    "block-outside-dns",
    "dhcp-option",
    "dns",
];

/// The networks that these options route into the tunnel.
pub fn pushed_routes(options: &[String]) -> BTreeSet<IpNet> {
    Own::default().network(options).tunnel.into_keys().map(|(prefix, _)| prefix).collect()
}

/// The name of an option.
fn name(option: &str) -> &str {
    option.split_ascii_whitespace().next().unwrap_or_default()
}

impl Own {
    /// Whether an option is taken; `None` if `pull-filter reject` ends the connection.
    pub fn takes(&self, option: &str) -> Option<bool> {
        let action = self.filters.iter().find(|filter| option.starts_with(&filter.prefix));
        match action.map(|filter| filter.action) {
            Some(FilterAction::Reject) => None,
            Some(FilterAction::Ignore) => Some(false),
            Some(FilterAction::Accept) | None => Some(!(self.no_routes && OF_ROUTES.contains(&name(option)))),
        }
    }

    /// The network with these options, which were filtered.
    pub fn network(&self, options: &[String]) -> Network {
        let of_network = options.iter().map(String::as_str);
        let of_network =
            of_network.filter(|option| !READ.contains(&name(option)) && name(option) != "block-outside-dns");
        let pushed = pushed(of_network);
        let mut network = Network {
            block_ipv6: self.block_ipv6 || pushed.block_ipv6,
            redirect: joined(self.routing.redirect, pushed.routing.redirect),
            dns: self.joined_dns(pushed.dns.clone()),
            ..Network::default()
        };
        if options.iter().any(|option| name(option) == "block-outside-dns") {
            network.warn("block-outside-dns has no effect on Linux: name servers are set per interface");
        }
        for option in &pushed.refused {
            network.warn(&format!("the server's option {option:?} is not served"));
        }
        let is_protecting = |option: &&String| PROTECTING.contains(&name(option));
        network.unprotected = pushed.refused.iter().find(is_protecting).cloned();
        network.take_addresses(self, &pushed);
        network.take_routes(self, &pushed);
        network.take_mtu(self, pushed.mtu);
        network.tell(self, pushed);
        network
    }

    /// IPv4 addresses.
    fn v4(&self, pushed: &Pushed) -> Option<Addresses> {
        match (pushed.addresses, self.addresses) {
            (Some((local, second)), _) if pushed.topology == Topology::Subnet => {
                Ipv4Net::with_netmask(local, second).ok().map(Addresses::Subnet)
            }
            (Some((local, remote)), _) => Some(Addresses::Peer(local, remote)),
            (None, own) => own,
        }
    }

    fn joined_dns(&self, pushed: Dns) -> Dns {
        let mut dns = self.dns.clone();
        dns.dhcp.extend(pushed.dhcp);
        dns.search.extend(pushed.search);
        dns.search_of_dns.extend(pushed.search_of_dns);
        dns.options.extend(pushed.options);
        for server in pushed.servers {
            // A server of the file is not replaced by one that is pushed.
            if dns.servers.iter().all(|own| own.priority != server.priority) {
                dns.servers.push(server);
            }
        }
        dns.servers.sort_by_key(|server| server.priority);
        dns
    }
}

/// The flags of both.
fn joined(one: Option<Redirect>, other: Option<Redirect>) -> Option<Redirect> {
    let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
    Some(Redirect {
        is_private: one.is_private && other.is_private,
        def1: one.def1 || other.def1,
        local: one.local || other.local,
        autolocal: one.autolocal || other.autolocal,
        bypass_dhcp: one.bypass_dhcp || other.bypass_dhcp,
        bypass_dns: one.bypass_dns || other.bypass_dns,
        block_local: one.block_local || other.block_local,
        ipv6: one.ipv6 || other.ipv6,
        not_ipv4: one.not_ipv4 || other.not_ipv4,
    })
}

/// Whether a machine can have this address in a tunnel.
fn is_usable(address: IpAddr) -> bool {
    let is_broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || is_broadcast)
}

impl Network {
    fn warn(&mut self, text: &str) {
        self.warnings.push(text.to_owned());
    }

    fn take_addresses(&mut self, own: &Own, pushed: &Pushed) {
        let v4 = own.v4(pushed);
        let v6 = pushed.ipv6.or(own.ipv6).map(|it| IpNet::V6(it.local));
        let v4 = match v4 {
            Some(Addresses::Subnet(net)) => Some((IpNet::V4(net), None)),
            // net30 and p2p: the second address is the other end.
            Some(Addresses::Peer(local, remote)) => Some((IpAddr::V4(local).into(), Some(remote))),
            None => None,
        };
        let v6 = v6.map(|net| (net, None));
        for (net, remote) in v4.into_iter().chain(v6) {
            if !is_usable(net.addr()) || net.prefix_len() == 0 {
                self.warn(&format!("the address {net} is not set: no interface can have it"));
            } else if !own.no_addresses {
                self.addresses.insert(net);
                self.tunnel.extend(remote.map(|remote| ((IpAddr::V4(remote).into(), MAIN), 0)));
            }
        }
    }

    fn take_routes(&mut self, own: &Own, pushed: &Pushed) {
        if own.routing.is_by_script {
            self.redirect = None;
            return;
        }
        let metric = pushed.routing.metric.or(own.routing.metric).unwrap_or(0);
        let table = own.routing.table.unwrap_or(MAIN);
        let gateway = pushed.routing.gateway.as_ref().or(own.routing.gateway.as_ref());
        let of = |route: &Route| (route.table.unwrap_or(table), route.metric.unwrap_or(metric));
        let routes = own.routing.routes.iter().map(|route| (route, true));
        for (route, is_own) in routes.chain(pushed.routing.routes.iter().map(|route| (route, false))) {
            let allows_names = is_own || own.allow_names;
            let way = match &route.gateway {
                Some(Gateway::Host(name)) if allows_names => Way::By(name.clone()),
                Some(Gateway::Host(name)) => {
                    self.warn(&format!("the route by way of {name} is not set without allow-pull-fqdn"));
                    continue;
                }
                _ if self.is_into_tunnel(route, gateway) => Way::Inside,
                _ => Way::Outside,
            };
            let (table, metric) = of(route);
            let (name, to) = match (&route.destination, &way) {
                // It stays outside in any case.
                (Destination::Remote, _) => continue,
                (Destination::Host(host), _) if !allows_names => {
                    self.warn(&format!("the route to {host} is not set without allow-pull-fqdn"));
                    continue;
                }
                (Destination::Host(host), _) => (host.clone(), To::Host(host.clone())),
                (Destination::Network(prefix), Way::By(_)) if matches!(prefix, IpNet::V6(_)) => {
                    self.warn(&format!("the route to {prefix} is not set: its gateway is not an address"));
                    continue;
                }
                (Destination::Network(prefix), Way::By(_)) => {
                    (prefix.to_string(), To::Network(prefix.trunc()))
                }
                (Destination::Network(prefix), Way::Inside) => {
                    self.tunnel.insert((prefix.trunc(), table), metric);
                    continue;
                }
                (Destination::Network(prefix), Way::Outside) => {
                    self.outside.insert(prefix.trunc());
                    continue;
                }
            };
            if !self.named.add(to, way, (table, metric)) {
                self.warn(&format!("the route to {name} is not set: too many routes have names"));
            }
        }
        let inside: BTreeSet<IpNet> = self.tunnel.keys().map(|(prefix, _)| *prefix).collect();
        self.outside.retain(|prefix| !inside.contains(prefix));
    }

    /// Whether the next hop is the other end. `vpn_gateway` is the gateway of `route-gateway`.
    fn is_into_tunnel(&mut self, route: &Route, gateway: Option<&Gateway>) -> bool {
        match &route.gateway {
            None | Some(Gateway::Tunnel) => true,
            Some(Gateway::Network) => false,
            Some(Gateway::Address(address)) => {
                let is_near = self.is_near(*address, gateway);
                // Without an address of its own, nothing tells which gateways are inside.
                if !is_near && !self.addresses.is_empty() {
                    self.warn(&format!(
                        "a route by way of {address}, which is not in the tunnel: it stays outside"
                    ));
                }
                is_near || self.addresses.is_empty()
            }
            Some(Gateway::Remote | Gateway::Host(_)) => {
                self.warn("a route by way of a host: it stays outside of the tunnel");
                false
            }
        }
    }

    /// Whether an address is in the tunnel, as far as that is known. `gateway`: that of `route-gateway`.
    pub(super) fn is_near(&self, address: IpAddr, gateway: Option<&Gateway>) -> bool {
        self.addresses.iter().any(|net| net.contains(&address))
            || self.tunnel.contains_key(&(IpNet::from(address), MAIN))
            || gateway == Some(&Gateway::Address(address))
            || matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
    }

    /// The same without routes and name servers.
    #[must_use]
    pub fn with_addresses_alone(self) -> Self {
        let Self { addresses, block_ipv6, mtu, told, unprotected, .. } = self;
        Self { addresses, block_ipv6, mtu, unprotected, told, ..Self::default() }
    }

    /// Keeps what programs are told, also of what is left to them.
    fn tell(&mut self, own: &Own, pushed: Pushed) {
        let Routing { routes, gateway, metric, redirect, .. } = pushed.routing.clone();
        self.told = Addressing {
            v4: own.v4(&pushed),
            v6: pushed.ipv6.or(own.ipv6),
            routes: own.routing.routes.iter().cloned().chain(routes).collect(),
            gateway: gateway.or(own.routing.gateway.clone()),
            metric: metric.or(own.routing.metric),
            redirects: joined(own.routing.redirect, redirect).is_some_and(|redirect| !redirect.is_private),
            dns: self.dns.clone(),
            mtu: self.mtu,
        };
    }

    fn take_mtu(&mut self, own: &Own, mtu: Option<u16>) {
        let Some(mtu) = mtu.map(u32::from) else { return };
        if mtu > own.mtu_max {
            let text = format!("the server's tun-mtu {mtu} is too large\n  fix: write tun-mtu-max {mtu}");
            return self.warn(&text);
        }
        // RFC 791: the least that a host receives whole.
        if mtu < 576 {
            return self.warn(&format!("the server's tun-mtu {mtu} is too small"));
        }
        self.mtu = Some(mtu);
    }
}
