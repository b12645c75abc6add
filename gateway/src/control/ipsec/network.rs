//! What the kernel is to know of the networks behind IPsec peers: that they lead to our interface, before any other route.

use crate::control::netlink::{Netlink, NetlinkError, Rule};
use config::settings::ipsec::{IpSec, Remote, Tunnel};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The mark on our own outer packets, which must not go inside, and the table for all others.
pub const MARK: u32 = 220;

/// Routes, and the rules that lead to them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Prefixes, with the address that this machine itself sends from.
    pub routes: BTreeSet<(IpNet, Option<IpAddr>)>,
    /// The rules.
    pub rules: BTreeSet<Rule>,
}

impl Network {
    /// What is to be known for these settings, on a machine with these addresses.
    pub fn new(settings: &IpSec, addresses: &[IpNet]) -> Self {
        let mut network = Self::default();
        if settings.disable_route_autoinstall {
            return network;
        }
        for peer in settings.peers.values() {
            let hosts = || {
                peer.remote_addresses.iter().filter_map(|remote| match remote {
                    Remote::Address(address) => Some(IpNet::from(*address)),
                    Remote::Name(_) => None,
                })
            };
            for tunnel in peer.tunnels.values() {
                let prefixes: Vec<IpNet> = match &tunnel.remote.prefixes[..] {
                    [] => hosts().collect(),
                    prefixes => prefixes.to_vec(),
                };
                for prefix in prefixes {
                    network.add(prefix.trunc(), source(tunnel, prefix, addresses));
                }
            }
        }
        network
    }

    fn add(&mut self, prefix: IpNet, source: Option<IpAddr>) {
        let v6 = matches!(prefix, IpNet::V6(_));
        self.routes.insert((prefix, source));
        if prefix.prefix_len() == 0 {
            // What this machine knows to be elsewhere, its own networks above all, stays there.
            self.rules.extend([Rule::MainFirst { v6 }, Rule::NotMarked { v6, mark: MARK }]);
        } else {
            self.rules.insert(Rule::BeforeMain { v6, mark: MARK });
        }
    }

    /// Gives the interface the routes that it lacks, and takes those that it should not have.
    pub fn change_routes(
        &self,
        before: &Self,
        netlink: &mut Netlink,
        index: u32,
    ) -> Result<(), NetlinkError> {
        for &(prefix, source) in self.routes.difference(&before.routes) {
            netlink.add_route(index, prefix, MARK, source)?;
        }
        let kept: BTreeSet<IpNet> = self.routes.iter().map(|&(prefix, _)| prefix).collect();
        for &(prefix, _) in before.routes.iter().filter(|(prefix, _)| !kept.contains(prefix)) {
            netlink.remove_route(index, prefix, MARK)?;
        }
        Ok(())
    }
}

/// An address of ours that is on our side of the tunnel.
fn source(tunnel: &Tunnel, remote: IpNet, addresses: &[IpNet]) -> Option<IpAddr> {
    let is_inside = |address: &IpAddr| tunnel.local.prefixes.iter().any(|prefix| prefix.contains(address));
    let of_family =
        addresses.iter().map(IpNet::addr).filter(|address| address.is_ipv4() == remote.addr().is_ipv4());
    of_family.filter(|address| !address.is_loopback()).find(is_inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Settings;

    fn settings(extra: &str) -> IpSec {
        let peer = "set vpn ipsec site-to-site peer b";
        let text = format!(
            "set vpn ipsec esp-group E proposal 1 encryption aes256gcm128\n\
             set vpn ipsec ike-group I proposal 1 encryption aes256gcm128\n\
             set vpn ipsec ike-group I proposal 1 dh-group 19\n\
             set vpn ipsec authentication psk b id 192.0.2.1\n\
             set vpn ipsec authentication psk b id 192.0.2.2\n\
             set vpn ipsec authentication psk b secret hidden\n\
             {peer} authentication mode pre-shared-secret\n\
             {peer} authentication local-id 192.0.2.1\n\
             {peer} authentication remote-id 192.0.2.2\n\
             {peer} local-address 192.0.2.1\n\
             {peer} remote-address 192.0.2.2\n\
             {peer} ike-group I\n\
             {peer} default-esp-group E\n\
             {extra}\n"
        )
        .replace("PEER", peer);
        Settings::new(&config::parse(&text).expect("right")).expect("right").0.ipsec
    }

    fn net(text: &str) -> IpNet {
        text.parse().expect("literal")
    }

    #[test]
    fn networks_behind_peers_come_before_the_main_table() {
        let settings =
            settings("PEER tunnel 1 local prefix 10.1.0.0/24\nPEER tunnel 1 remote prefix 10.2.0.0/16");
        let addresses = [net("192.0.2.1/24"), net("10.1.0.1/24")];
        let network = Network::new(&settings, &addresses);
        let source = Some("10.1.0.1".parse().expect("literal"));
        assert_eq!(network.routes, BTreeSet::from([(net("10.2.0.0/16"), source)]));
        assert_eq!(network.rules, BTreeSet::from([Rule::BeforeMain { v6: false, mark: MARK }]));
        assert_eq!(Network::new(&settings, &[]).routes, BTreeSet::from([(net("10.2.0.0/16"), None)]));
    }

    #[test]
    fn a_tunnel_for_everything_leaves_what_is_near_where_it_is() {
        let network = Network::new(
            &settings("PEER tunnel 1 local prefix 10.1.0.0/24\nPEER tunnel 1 remote prefix 0.0.0.0/0"),
            &[],
        );
        let rules = [Rule::MainFirst { v6: false }, Rule::NotMarked { v6: false, mark: MARK }];
        assert_eq!(network.rules, BTreeSet::from(rules));
    }

    #[test]
    fn a_tunnel_between_the_gateways_alone_leads_to_the_peer() {
        let network = Network::new(&settings("PEER tunnel 1 protocol gre"), &[]);
        assert_eq!(network.routes, BTreeSet::from([(net("192.0.2.2/32"), None)]));
    }
}
