//! Addresses, routes and name servers of the interface, as programs are told of them: OpenVPN's variables and arguments.

use super::Environment;
use config::openvpn::settings::{Addresses, Destination, Dns, Gateway, Ipv6Addresses, Route, Routing};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr};

/// The routes of the main table (proc_net(5)).
const ROUTES: &str = "/proc/net/route";
/// The flag of a route with a gateway (linux/route.h).
const RTF_GATEWAY: u32 = 2;
/// More routes than these are not told: the kernel limits the size of an environment.
const MOST_ROUTES: usize = 1000;

/// What programs are told of the interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addressing {
    /// IPv4 addresses.
    pub v4: Option<Addresses>,
    /// IPv6 addresses.
    pub v6: Option<Ipv6Addresses>,
    /// Routes, those of the file first.
    pub routes: Vec<Route>,
    /// The gateway of routes without one.
    pub gateway: Option<Gateway>,
    /// The metric of routes without one.
    pub metric: Option<u32>,
    /// Whether the default route leads into the tunnel.
    pub redirects: bool,
    /// Name servers and search domains.
    pub dns: Dns,
    /// The MTU inside, if the server has set another.
    pub mtu: Option<u32>,
}

impl Addressing {
    /// With what a server has pushed.
    pub fn of_routing(routing: &Routing, dns: Dns) -> Self {
        Self {
            routes: routing.routes.clone(),
            gateway: routing.gateway.clone(),
            metric: routing.metric,
            redirects: routing.redirect.is_some_and(|redirect| !redirect.is_private),
            dns,
            ..Self::default()
        }
    }

    /// Our address and the second one of `ifconfig`: the arguments of programs.
    pub fn ends(&self) -> [String; 2] {
        match self.v4 {
            Some(Addresses::Subnet(net)) => [net.addr().to_string(), net.netmask().to_string()],
            Some(Addresses::Peer(local, remote)) => [local.to_string(), remote.to_string()],
            None => [String::new(), String::new()],
        }
    }

    /// The variables. `outside`: the default gateway of this machine; `server`: the outer address of the server.
    pub fn tell(&self, environment: &mut Environment, outside: Ipv4Addr, server: Option<IpAddr>) {
        let [local, second] = self.ends();
        match self.v4 {
            Some(Addresses::Subnet(_)) => environment.set("ifconfig_netmask", second),
            Some(Addresses::Peer(..)) => environment.set("ifconfig_remote", second),
            None => {}
        }
        if self.v4.is_some() {
            environment.set("ifconfig_local", local);
        }
        if let Some(Ipv6Addresses { local, remote }) = self.v6 {
            environment.set("ifconfig_ipv6_local", local.addr());
            environment.set("ifconfig_ipv6_netbits", local.prefix_len());
            environment.set("ifconfig_ipv6_remote", remote);
        }
        environment.set("route_net_gateway", outside);
        if let Some(gateway) = self.inside() {
            environment.set("route_vpn_gateway", gateway);
        }
        self.tell_routes(environment, outside, server);
        self.tell_name_servers(environment);
    }

    /// The gateway of IPv4 routes without one.
    fn inside(&self) -> Option<IpAddr> {
        match (&self.gateway, self.v4) {
            (Some(Gateway::Address(address)), _) => Some(*address),
            (_, Some(Addresses::Peer(_, remote))) => Some(remote.into()),
            _ => None,
        }
    }

    fn tell_routes(&self, environment: &mut Environment, outside: Ipv4Addr, server: Option<IpAddr>) {
        let (mut v4, mut v6) = (0, 0);
        for route in self.routes.iter().take(MOST_ROUTES) {
            let network = match (&route.destination, server) {
                (Destination::Network(network), _) => *network,
                (Destination::Remote, Some(server)) => IpNet::from(server),
                (Destination::Remote, None) | (Destination::Host(_), _) => continue,
            };
            let gateway = match &route.gateway {
                None | Some(Gateway::Tunnel) => match network {
                    IpNet::V4(_) => self.inside(),
                    IpNet::V6(_) => self.v6.map(|own| own.remote.into()),
                },
                Some(Gateway::Network) => Some(outside.into()),
                Some(Gateway::Remote) => server,
                Some(Gateway::Address(address)) => Some(*address),
                Some(Gateway::Host(_)) => None,
            };
            let (kind, number) = match network {
                IpNet::V4(network) => {
                    v4 += 1;
                    environment.set(&format!("route_network_{v4}"), network.addr());
                    environment.set(&format!("route_netmask_{v4}"), network.netmask());
                    ("route", v4)
                }
                IpNet::V6(network) => {
                    v6 += 1;
                    environment.set(&format!("route_ipv6_network_{v6}"), network);
                    ("route_ipv6", v6)
                }
            };
            if let Some(gateway) = gateway {
                environment.set(&format!("{kind}_gateway_{number}"), gateway);
            }
            if let Some(metric) = route.metric.or(self.metric) {
                environment.set(&format!("{kind}_metric_{number}"), metric);
            }
        }
    }

    fn tell_name_servers(&self, environment: &mut Environment) {
        let dns = &self.dns;
        for (index, domain) in dns.search_of_dns.iter().enumerate() {
            environment.set(&format!("dns_search_domain_{}", index + 1), domain);
        }
        for (index, server) in dns.servers.iter().enumerate() {
            let name = |part: &str| format!("dns_server_{}_{part}", index + 1);
            for (index, (address, port)) in server.addresses.iter().enumerate() {
                environment.set(&name(&format!("address_{}", index + 1)), address);
                if let Some(port) = port {
                    environment.set(&name(&format!("port_{}", index + 1)), port);
                }
            }
            for (index, domain) in server.domains.iter().enumerate() {
                environment.set(&name(&format!("resolve_domain_{}", index + 1)), domain);
            }
            for (part, value) in
                [("dnssec", &server.dnssec), ("transport", &server.transport), ("sni", &server.server_name)]
            {
                if let Some(value) = value {
                    environment.set(&name(part), value);
                }
            }
        }
        for (index, option) in self.foreign_options().iter().enumerate() {
            environment.set(&format!("foreign_option_{}", index + 1), option);
        }
    }

    /// `dhcp-option` in order. As in OpenVPN 2.6, those about name servers have what `dns` says, if it says anything.
    fn foreign_options(&self) -> Vec<String> {
        let dns = &self.dns;
        let is = |option: &str, kinds: &[&str]| {
            option.split(' ').nth(1).is_some_and(|it| kinds.contains(&it.to_ascii_uppercase().as_str()))
        };
        let mut options = dns.options.clone();
        if !dns.servers.is_empty() {
            options.retain(|option| !is(option, &["DNS", "DNS6"]));
            let addresses = dns.servers.iter().flat_map(|server| &server.addresses);
            options.extend(addresses.map(|(address, _)| format!("dhcp-option DNS {address}")));
        }
        if !dns.search_of_dns.is_empty() {
            options.retain(|option| !is(option, &["DOMAIN-SEARCH"]));
            let domains = dns.search_of_dns.iter();
            options.extend(domains.map(|domain| format!("dhcp-option DOMAIN-SEARCH {domain}")));
        }
        options
    }
}

/// The default gateway of this machine; `0.0.0.0` without one, as OpenVPN tells programs.
pub fn default_gateway() -> Ipv4Addr {
    std::fs::read_to_string(ROUTES).ok().and_then(|text| default_of(&text)).unwrap_or(Ipv4Addr::UNSPECIFIED)
}

fn default_of(text: &str) -> Option<Ipv4Addr> {
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let hexadecimal = |index: usize| u32::from_str_radix(fields.get(index)?, 16).ok();
        let (network, gateway, flags, mask) =
            (hexadecimal(1)?, hexadecimal(2)?, hexadecimal(3)?, hexadecimal(7)?);
        let metric: u32 = fields.get(6)?.parse().ok()?;
        // Addresses are in the byte order of the network, printed as a number of this machine.
        let gateway = Ipv4Addr::from(gateway.to_ne_bytes());
        (network == 0 && mask == 0 && flags & RTF_GATEWAY != 0).then_some((metric, gateway))
    };
    text.lines().filter_map(route).min().map(|(_, gateway)| gateway)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_gateway_is_that_of_the_lowest_metric() {
        let text = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
            a\t00000000\t014DA8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
            b\t00000000\t024DA8C0\t0003\t0\t0\t5\t00000000\t0\t0\t0\n\
            c\t004DA8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let expected =
            if cfg!(target_endian = "little") { Some([192, 168, 77, 2].into()) } else { default_of(text) };
        assert_eq!((default_of(text), default_of("")), (expected, None));
    }
}
