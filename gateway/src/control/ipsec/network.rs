//! What the kernel is to know of the networks behind IPsec peers: that they lead to our interface, before any other route,
//! and nowhere at all while there is none.

use crate::control::netlink::{Netlink, NetlinkError, Route, Rule, Way};
use config::settings::ipsec::{IpSec, Peer, Remote, Tunnel};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The mark on our own outer packets, which must not go inside, and the table for all others.
pub const MARK: u32 = 220;
/// The table for what has no route of its own: it is read after the main one, so that what is near stays where it is.
const DEFAULTS: u32 = 221;

/// Where tunnels lead.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// What is behind peers, with what is on our side of the tunnels there.
    behind: BTreeMap<IpNet, Vec<IpNet>>,
    /// Networks of our side that are part of the other side too.
    near: BTreeSet<IpNet>,
}

impl Network {
    /// What is to be known for these settings.
    pub fn new(settings: &IpSec) -> Self {
        let mut network = Self::default();
        if settings.disable_route_autoinstall {
            return network;
        }
        let tunnels = || {
            let peers = settings.peers.values();
            peers.flat_map(|peer| peer.tunnels.values().map(move |tunnel| (peer, tunnel)))
        };
        for (peer, tunnel) in tunnels() {
            for prefix in behind(peer, tunnel) {
                network.behind.entry(prefix).or_default().extend(ours(peer, tunnel));
            }
        }
        for (_, tunnel) in tunnels() {
            network.near.extend(network.passed_by(tunnel));
        }
        network
    }

    /// The networks of our side that the routes of a tunnel would take away from us.
    fn passed_by(&self, tunnel: &Tunnel) -> Vec<IpNet> {
        let takes = |ours: &IpNet| {
            // Another tunnel may lead to the same network, or to one between, and is meant then.
            let closest = up_from(*ours).find(|prefix| self.behind.contains_key(prefix));
            // Default routes come after those of the main table.
            closest.is_some_and(|it| {
                it != *ours && it.prefix_len() > 0 && tunnel.remote.prefixes.iter().any(|of| of.trunc() == it)
            })
        };
        tunnel.passed_by().iter().map(IpNet::trunc).filter(takes).collect()
    }

    /// The rules that lead to the routes.
    pub fn rules(&self) -> BTreeSet<Rule> {
        let of = |prefix: &IpNet| {
            let v6 = matches!(prefix, IpNet::V6(_));
            match prefix.prefix_len() {
                0 => vec![Rule::MainFirst { v6 }, Rule::NotMarked { v6, mark: MARK, table: DEFAULTS }],
                _ => vec![Rule::BeforeMain { v6, mark: MARK }],
            }
        };
        self.behind.keys().flat_map(of).collect()
    }

    /// The routes, with an interface of this number, if it is up, on a machine with these addresses. `towards` knows
    /// from which it sends to others.
    fn routes(
        &self,
        index: Option<u32>,
        addresses: &[IpNet],
        mut towards: impl FnMut(IpAddr) -> Option<IpAddr>,
    ) -> BTreeSet<Route> {
        let near = self.near.iter().map(|&prefix| Route { prefix, table: MARK, way: Way::Onward });
        let behind = self.behind.iter().flat_map(|(&prefix, ours)| {
            let link = index.map(|index| {
                // Without networks of ours it is the peer itself that is behind the tunnel.
                let source = match ours[..] {
                    [] => towards(prefix.addr()),
                    _ => source(ours, prefix, addresses),
                };
                Way::Link { index, source }
            });
            // What is to be protected does not leave in clear when the interface goes.
            let ways = link.into_iter().chain([Way::Nowhere]);
            ways.map(move |way| Route { prefix, table: table(prefix), way })
        });
        near.chain(behind).collect()
    }

    /// Gives the kernel the routes that it lacks, and takes those that it should not have.
    pub fn keep(&self, netlink: &mut Netlink, index: Option<u32>) -> Result<(), NetlinkError> {
        let addresses = netlink.addresses(None)?;
        let wanted = self.routes(index, &addresses, |to| netlink.outside(to, MARK).ok()?.source);
        let present = present(netlink)?;
        let mut missing: Vec<Route> = wanted.difference(&present).copied().collect();
        missing.sort_by_key(|route| order(route.way));
        let mut outcome = Ok(());
        // One that is refused keeps no other back.
        for route in missing {
            outcome = outcome.and(netlink.add_route(route));
        }
        let places: BTreeSet<_> = wanted.iter().map(|route| place(*route)).collect();
        for &route in present.iter().filter(|route| !places.contains(&place(**route))) {
            outcome = outcome.and(netlink.remove_route(route));
        }
        outcome
    }
}

impl Network {
    /// Whether there are routes, by whoever of us.
    pub fn is_present(netlink: &mut Netlink) -> Result<bool, NetlinkError> {
        Ok(!present(netlink)?.is_empty())
    }
}

/// Our routes in our tables.
fn present(netlink: &mut Netlink) -> Result<BTreeSet<Route>, NetlinkError> {
    let mut present: BTreeSet<Route> = netlink.routes(MARK)?.into_iter().collect();
    present.extend(netlink.routes(DEFAULTS)?);
    Ok(present)
}

/// What is added later: there is no moment in which something goes inside that must not.
fn order(way: Way) -> u8 {
    match way {
        Way::Onward => 0,
        Way::Nowhere => 1,
        Way::Link { .. } => 2,
    }
}

/// Routes of the same place take the place of each other.
fn place(route: Route) -> (IpNet, u32, u8) {
    (route.prefix, route.table, order(route.way))
}

/// A prefix, and those that it is part of, the longest first.
fn up_from(prefix: IpNet) -> impl Iterator<Item = IpNet> {
    std::iter::successors(Some(prefix.trunc()), IpNet::supernet)
}

fn table(prefix: IpNet) -> u32 {
    if prefix.prefix_len() == 0 { DEFAULTS } else { MARK }
}

/// What a tunnel leads to.
fn behind(peer: &Peer, tunnel: &Tunnel) -> Vec<IpNet> {
    let host = |remote: &Remote| match remote {
        Remote::Address(address) => Some(IpNet::from(*address)),
        Remote::Name(_) => None,
    };
    match &tunnel.remote.prefixes[..] {
        [] => peer.remote_addresses.iter().filter_map(host).collect(),
        prefixes => prefixes.iter().map(IpNet::trunc).collect(),
    }
}

/// What is on our side of a tunnel; nothing if that is whichever address of ours the peer is called from.
fn ours(peer: &Peer, tunnel: &Tunnel) -> Vec<IpNet> {
    match &tunnel.local.prefixes[..] {
        [] => peer.local_address.map(IpNet::from).into_iter().collect(),
        prefixes => prefixes.to_vec(),
    }
}

/// An address of ours that is on our side of the tunnel.
fn source(ours: &[IpNet], remote: IpNet, addresses: &[IpNet]) -> Option<IpAddr> {
    let is_inside = |address: &IpAddr| ours.iter().any(|prefix| prefix.contains(address));
    let of_family =
        addresses.iter().map(IpNet::addr).filter(|address| address.is_ipv4() == remote.addr().is_ipv4());
    of_family.filter(|address| !address.is_loopback()).find(is_inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Settings;
    use std::sync::Arc;

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

    fn way(prefix: &str, way: Way) -> Route {
        let prefix = net(prefix);
        Route { prefix, table: table(prefix), way }
    }

    /// The routes to a prefix through the interface 7.
    fn link(prefix: &str, source: Option<&str>) -> [Route; 2] {
        let source = source.map(|source| source.parse().expect("literal"));
        [Way::Link { index: 7, source }, Way::Nowhere].map(|it| way(prefix, it))
    }

    fn routes(settings: &IpSec, addresses: &[&str]) -> BTreeSet<Route> {
        let addresses: Vec<IpNet> = addresses.iter().copied().map(net).collect();
        Network::new(settings).routes(Some(7), &addresses, |_| Some([192, 0, 2, 7].into()))
    }

    #[test]
    fn networks_behind_peers_come_before_the_main_table() {
        let settings =
            settings("PEER tunnel 1 local prefix 10.1.0.0/24\nPEER tunnel 1 remote prefix 10.2.0.0/16");
        let found = routes(&settings, &["192.0.2.1/24", "10.1.0.1/24"]);
        assert_eq!(found, BTreeSet::from(link("10.2.0.0/16", Some("10.1.0.1"))));
        let rules = Network::new(&settings).rules();
        assert_eq!(rules, BTreeSet::from([Rule::BeforeMain { v6: false, mark: MARK }]));
        assert_eq!(routes(&settings, &[]), BTreeSet::from(link("10.2.0.0/16", None)));
    }

    #[test]
    fn without_an_interface_networks_behind_peers_are_nowhere() {
        let settings =
            settings("PEER tunnel 1 local prefix 10.1.0.0/24\nPEER tunnel 1 remote prefix 10.2.0.0/16");
        let nowhere = way("10.2.0.0/16", Way::Nowhere);
        assert_eq!(Network::new(&settings).routes(None, &[], |_| None), BTreeSet::from([nowhere]));
    }

    #[test]
    fn a_tunnel_for_everything_leaves_what_is_near_where_it_is() {
        let settings =
            settings("PEER tunnel 1 local prefix 10.1.0.0/24\nPEER tunnel 1 remote prefix 0.0.0.0/0");
        let rules =
            [Rule::MainFirst { v6: false }, Rule::NotMarked { v6: false, mark: MARK, table: DEFAULTS }];
        assert_eq!(Network::new(&settings).rules(), BTreeSet::from(rules));
        assert_eq!(routes(&settings, &[]), BTreeSet::from(link("0.0.0.0/0", None)));
    }

    #[test]
    fn a_prefix_that_contains_our_own_network_leaves_it_to_us() {
        let tunnels = "PEER tunnel 1 local prefix 10.1.0.0/24\nPEER tunnel 1 remote prefix 10.0.0.0/8\n\
             PEER tunnel 2 local prefix 10.1.0.0/24\nPEER tunnel 2 remote prefix 0.0.0.0/0";
        let wide = [link("10.0.0.0/8", None), link("0.0.0.0/0", None)].concat();
        let expected = wide.into_iter().chain([way("10.1.0.0/24", Way::Onward)]).collect();
        assert_eq!(routes(&settings(tunnels), &[]), expected);
    }

    #[test]
    fn a_network_on_our_side_that_is_behind_another_tunnel_is_not_near() {
        let tunnels = "PEER tunnel 1 local prefix 10.1.0.0/24\nPEER tunnel 1 remote prefix 10.0.0.0/8\n\
             PEER tunnel 2 local prefix 10.9.0.0/24\nPEER tunnel 2 remote prefix 10.1.0.0/24";
        let found = routes(&settings(tunnels), &[]);
        assert!(found.iter().all(|route| route.way != Way::Onward), "{found:?}");
    }

    #[test]
    fn a_tunnel_between_the_gateways_alone_leads_to_the_peer() {
        let mut settings = settings("PEER tunnel 1 protocol gre");
        let found = routes(&settings, &["10.1.0.1/24", "192.0.2.1/24"]);
        assert_eq!(found, BTreeSet::from(link("192.0.2.2/32", Some("192.0.2.1"))));
        for peer in settings.peers.values_mut() {
            Arc::get_mut(peer).expect("nobody else has it").local_address = None;
        }
        let found = routes(&settings, &["10.1.0.1/24", "192.0.2.7/24"]);
        assert_eq!(found, BTreeSet::from(link("192.0.2.2/32", Some("192.0.2.7"))));
    }
}
