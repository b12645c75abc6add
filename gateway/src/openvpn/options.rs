//! The network that a server gives its client: options of its push reply, as addresses and routes.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// What the server has given us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Our addresses, with the networks that they are in.
    pub addresses: BTreeSet<IpNet>,
    /// What is routed to the server.
    pub routes: BTreeSet<IpNet>,
    /// `tun-mtu`.
    pub mtu: Option<u32>,
    /// Options that we do not serve.
    pub unserved: Vec<String>,
}

/// Options that the core has read, or that have no effect on addresses and routes. A gateway is the next hop whatever it is.
const READ: &[&str] = &[
    "cipher",
    "peer-id",
    "protocol-flags",
    "key-derivation",
    "ping",
    "ping-restart",
    "ping-exit",
    "ping-timer-rem",
    "route-gateway",
    "route-metric",
    "topology",
    "auth-token",
    "auth-token-user",
    "explicit-exit-notify",
];

/// Options that put traffic into the tunnel: without them it would leave in clear.
const PROTECTING: &[&str] =
    &["redirect-gateway", "redirect-private", "block-ipv6", "block-outside-dns", "route", "route-ipv6"];

/// Reads the options of a push reply.
pub fn parse(options: &[String]) -> Network {
    let mut network = Network::default();
    let is_subnet = options.iter().any(|option| option.trim() == "topology subnet");
    for option in options {
        if network.take(option, is_subnet).is_none() {
            network.unserved.push(option.clone());
        }
    }
    network
}

impl Network {
    /// The first option that we do not serve, and that would put traffic into the tunnel.
    pub fn unprotected(&self) -> Option<&str> {
        let is_protecting = |option: &&String| {
            option.split_ascii_whitespace().next().is_some_and(|it| PROTECTING.contains(&it))
        };
        self.unserved.iter().find(is_protecting).map(String::as_str)
    }

    /// Takes one option; `None` if it is not served.
    fn take(&mut self, option: &str, is_subnet: bool) -> Option<()> {
        let words: Vec<&str> = option.split_ascii_whitespace().collect();
        match *words.first()? {
            "ifconfig" => {
                let local: Ipv4Addr = words.get(1)?.parse().ok()?;
                let second: Ipv4Addr = words.get(2)?.parse().ok()?;
                if is_subnet {
                    let address = Ipv4Net::with_netmask(local, second).ok()?;
                    self.addresses.insert(address.into());
                } else {
                    // net30 and p2p: the second address is the other end.
                    self.addresses.insert(IpAddr::V4(local).into());
                    self.routes.insert(IpAddr::V4(second).into());
                }
            }
            "ifconfig-ipv6" => {
                let address: Ipv6Net = words.get(1)?.parse().ok()?;
                self.addresses.insert(address.into());
            }
            "route" => {
                let mask = words.get(2).map_or(Some(Ipv4Addr::BROADCAST), |mask| mask.parse().ok())?;
                let route = Ipv4Net::with_netmask(words.get(1)?.parse().ok()?, mask).ok()?;
                self.routes.insert(route.trunc().into());
            }
            "route-ipv6" => {
                let route: Ipv6Net = words.get(1)?.parse().ok()?;
                self.routes.insert(route.trunc().into());
            }
            "tun-mtu" => {
                self.mtu = Some(words.get(1)?.parse().ok().filter(|mtu| (576..=65_535).contains(mtu))?);
            }
            word => return READ.contains(&word).then_some(()),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(options: &[&str]) -> Network {
        parse(&options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
    }

    fn set(prefixes: &[&str]) -> BTreeSet<IpNet> {
        prefixes.iter().map(|prefix| prefix.parse().expect("literal")).collect()
    }

    #[test]
    fn the_network_of_a_server_is_read() {
        let network = of(&[
            "route 10.20.0.0 255.255.0.0",
            "route 192.0.2.7",
            "route-ipv6 2001:db8:1::/48",
            "topology subnet",
            "ifconfig 10.8.0.2 255.255.255.0",
            "ifconfig-ipv6 fd00:8::1000/64 fd00:8::1",
            "tun-mtu 1400",
            "peer-id 3",
        ]);
        assert_eq!(network.addresses, set(&["10.8.0.2/24", "fd00:8::1000/64"]));
        assert_eq!(network.routes, set(&["10.20.0.0/16", "192.0.2.7/32", "2001:db8:1::/48"]));
        assert_eq!((network.mtu, network.unserved.len()), (Some(1400), 0));
    }

    #[test]
    fn without_the_subnet_topology_the_second_address_is_the_other_end() {
        let network = of(&["ifconfig 10.8.0.6 10.8.0.5", "topology net30"]);
        assert_eq!((network.addresses, network.routes), (set(&["10.8.0.6/32"]), set(&["10.8.0.5/32"])));
    }

    #[test]
    fn options_that_are_not_served_or_malformed_are_named() {
        let options =
            ["redirect-gateway def1", "dhcp-option DNS 192.0.2.1", "route 10.0.0.0 255.0.255.0", "tun-mtu 1"];
        let network = of(&options);
        assert_eq!(network.unserved, options);
        assert_eq!(network.unprotected(), Some("redirect-gateway def1"));
        assert_eq!(of(&["dhcp-option DNS 192.0.2.1"]).unprotected(), None);
        assert!(network.routes.is_empty() && network.mtu.is_none());
    }
}
