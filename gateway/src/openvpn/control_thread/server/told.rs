//! What a client is told: the options of its push reply.

use super::ServerSide;
use super::deciding::Deciding;
use crate::openvpn::settings::PointToPoint;
use ipnet::IpNet;
use std::net::Ipv4Addr;

impl ServerSide {
    /// Options for all clients, without what the client's settings remove, then its own.
    pub(super) fn options(&self, deciding: &Deciding) -> Vec<String> {
        let Deciding { own, lease, .. } = deciding;
        let mut options = Vec::new();
        if !own.reset {
            options.extend(self.topology());
            options.extend(self.network.push.iter().cloned());
        }
        let is_removed =
            |option: &String| own.remove.iter().any(|prefix| option.starts_with(prefix.as_str()));
        options.retain(|option| !is_removed(option) && !leads_to(option, &own.behind));
        for network in self.network.own() {
            match (network, lease.v4, lease.v6) {
                (IpNet::V4(network), Some(address), _) => {
                    let second = self.network.second(address, own.second).unwrap_or(network.netmask());
                    options.push(format!("ifconfig {address} {second}"));
                }
                (IpNet::V6(network), _, Some(address)) if !is_removed(&"ifconfig-ipv6".to_owned()) => {
                    options.push(format!(
                        "ifconfig-ipv6 {address}/{} {}",
                        network.prefix_len(),
                        network.addr()
                    ));
                }
                _ => {}
            }
        }
        options.extend(own.push.iter().cloned());
        options
    }

    /// The topology, and the gateway of a network.
    fn topology(&self) -> Vec<String> {
        let own = self.network.own().find(|own| own.addr().is_ipv4());
        let told = match self.network.line {
            Some(PointToPoint::Net30) => ["topology net30".to_owned()],
            Some(PointToPoint::Single) => ["topology p2p".to_owned()],
            None => ["topology subnet".to_owned()],
        };
        let gateway = own.filter(|_| self.network.line.is_none());
        told.into_iter().chain(gateway.map(|own| format!("route-gateway {}", own.addr()))).collect()
    }
}

/// Whether an option is the route to a network behind the client: its own network would be behind the tunnel.
fn leads_to(option: &str, behind: &[IpNet]) -> bool {
    let mut words = option.split_ascii_whitespace();
    let route = match (words.next(), words.next(), words.next()) {
        (Some("route"), Some(address), mask) => {
            let mask = mask.map_or(Ok(Ipv4Addr::BROADCAST), str::parse);
            mask.ok()
                .zip(address.parse().ok())
                .and_then(|(mask, address)| ipnet::Ipv4Net::with_netmask(address, mask).ok().map(IpNet::V4))
        }
        (Some("route-ipv6"), Some(network), _) => network.parse().ok(),
        _ => None,
    };
    route.is_some_and(|route| behind.iter().any(|network| network.trunc() == route.trunc()))
}
