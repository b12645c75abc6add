//! What the kernel is to know of the networks behind IPsec peers: that they lead to our interface, before any other route,
//! and nowhere at all while there is none.

use crate::host::netlink::{Route, Rule, Way};
use config::settings::ipsec::{IpSec, Peer, Remote, Tunnel};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The mark on our own outer packets, which must not go inside, and the table for all others.
pub const MARK: u32 = 220;
/// The table of tunnels for everything, for what is from the networks of our side.
const DEFAULTS: u32 = 221;
/// Their table for what this machine sends from whichever address fits.
const UNBOUND: u32 = 222;
/// All tables.
pub const TABLES: [u32; 3] = [MARK, DEFAULTS, UNBOUND];

/// Where tunnels lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// What is behind peers, with what is on our side of the tunnels there.
    behind: BTreeMap<IpNet, BTreeSet<IpNet>>,
    /// Networks of our side that are part of the other side too.
    near: BTreeSet<IpNet>,
    /// Networks that the user excepts.
    excepted: BTreeSet<IpNet>,
    /// Whether the user sets the routes: what must not leave in clear is the same.
    is_routed_elsewhere: bool,
}

/// What the routes depend on.
pub struct Surroundings<'a> {
    /// The number of our interface, if it is up.
    pub index: Option<u32>,
    /// The addresses of this machine.
    pub addresses: &'a [IpNet],
    /// Networks behind other tunnels of ours.
    pub others: &'a BTreeSet<IpNet>,
}

impl Network {
    /// What is to be known for these settings.
    pub fn new(settings: &IpSec) -> Self {
        let mut network = Self { is_routed_elsewhere: settings.disable_route_autoinstall, ..Self::default() };
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
        network.excepted.clone_from(&settings.passthrough);
        network
    }

    /// What is to be known for both: what is excepted must be so in both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        for (prefix, ours) in other.behind {
            self.behind.entry(prefix).or_default().extend(ours);
        }
        self.near.extend(other.near);
        self.near.retain(|prefix| !self.behind.contains_key(prefix));
        self
    }

    /// Whether nothing is to be known.
    pub fn is_empty(&self) -> bool {
        self.behind.is_empty()
    }

    /// The networks of our side that the routes of a tunnel would take away from us.
    fn passed_by(&self, tunnel: &Tunnel) -> Vec<IpNet> {
        let takes = |ours: &IpNet| {
            // Another tunnel may lead to the same network, or to one between, and is meant then.
            let closest = up_from(*ours).find(|prefix| self.behind.contains_key(prefix));
            closest.is_some_and(|it| it != *ours && tunnel.remote.prefixes.iter().any(|of| of.trunc() == it))
        };
        tunnel.passed_by().iter().map(IpNet::trunc).filter(takes).collect()
    }

    /// What goes past the tunnels although it is to a network behind a peer.
    pub fn exceptions(&self) -> BTreeSet<IpNet> {
        self.near.union(&self.excepted).copied().collect()
    }

    /// What must not leave but through a tunnel: from what to what.
    pub fn pairs(&self) -> BTreeSet<(IpNet, IpNet)> {
        let behind = self.behind.iter();
        behind
            .flat_map(|(&remote, ours)| sources(remote, ours).into_iter().map(move |it| (it, remote)))
            .collect()
    }

    /// The tunnels for everything, with what is on our side of them.
    fn defaults(&self) -> impl Iterator<Item = (IpNet, BTreeSet<IpNet>)> {
        let defaults = self.behind.iter().filter(|(prefix, _)| prefix.prefix_len() == 0);
        defaults.map(|(&prefix, ours)| (prefix, sources(prefix, ours)))
    }

    /// The rules that lead to the routes, on a machine with these addresses.
    pub fn rules(&self, addresses: &[IpNet]) -> BTreeSet<Rule> {
        if self.is_routed_elsewhere {
            return BTreeSet::new();
        }
        let closer = self.behind.keys().filter(|prefix| prefix.prefix_len() > 0);
        let mut rules: BTreeSet<Rule> =
            closer.map(|prefix| Rule::BeforeMain { v6: is_v6(*prefix), mark: MARK }).collect();
        for (prefix, ours) in self.defaults() {
            let v6 = is_v6(prefix);
            rules.extend([Rule::Onward { v6 }, Rule::Marked { v6, mark: MARK }]);
            rules.extend(ours.iter().map(|&source| Rule::From { source, table: DEFAULTS }));
            // Without an address on our side of the tunnel this machine sends nothing through it.
            if source(&ours, prefix, addresses).is_some() {
                rules.insert(Rule::Unbound { v6, table: UNBOUND });
                rules.extend([true, false].into_iter().filter(|_| v6).map(|upper| Rule::Bound { upper }));
            }
        }
        rules
    }

    /// The routes. `towards` knows from which address this machine sends to others.
    pub fn routes(
        &self,
        around: &Surroundings<'_>,
        mut towards: impl FnMut(IpAddr) -> Option<IpAddr>,
    ) -> BTreeSet<Route> {
        let mut routes = BTreeSet::new();
        if self.is_routed_elsewhere {
            return routes;
        }
        for (&prefix, ours) in &self.behind {
            let link = around.index.map(|index| {
                // Without networks of ours it is the peer itself that is behind the tunnel.
                let source = if ours.is_empty() {
                    towards(prefix.addr())
                } else {
                    source(ours, prefix, around.addresses)
                };
                Way::Link { index, source }
            });
            // What is to be protected does not leave in clear when the interface goes.
            let ways: Vec<Way> = link.into_iter().chain([Way::Nowhere]).collect();
            let tables = if prefix.prefix_len() == 0 { &[DEFAULTS, UNBOUND][..] } else { &[MARK] };
            for &table in tables {
                routes.extend(ways.iter().map(|&way| Route { prefix, table, way }));
            }
        }
        routes.extend(self.onward(around));
        routes
    }

    /// What goes on to the tables of the next rules. What this machine sends from whichever address fits may also stay on
    /// its links: it gets an address there.
    fn onward(&self, around: &Surroundings<'_>) -> impl Iterator<Item = Route> {
        let exceptions = self.exceptions();
        let defaults: BTreeSet<bool> = self.defaults().map(|(prefix, _)| is_v6(prefix)).collect();
        let of_tunnels = move |prefix: &IpNet| {
            let closer = self.behind.keys().any(|it| it.prefix_len() > 0 && it.contains(prefix));
            let tables = [(MARK, closer), (DEFAULTS, defaults.contains(&is_v6(*prefix)))];
            tables.into_iter().filter(|(_, is_needed)| *is_needed).map(|(table, _)| table).collect::<Vec<_>>()
        };
        let is_behind = |prefix: &IpNet| self.behind.contains_key(prefix);
        let mut passed: BTreeSet<IpNet> = exceptions.union(around.others).copied().collect();
        // Links have such addresses in the main table.
        passed.extend(IpNet::new(IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 0]), 10));
        let links = around.addresses.iter().map(IpNet::trunc);
        let unbound: BTreeSet<IpNet> = passed.iter().copied().chain(links).collect();
        let mut routes = BTreeSet::new();
        for &prefix in passed.iter().filter(|prefix| !is_behind(prefix)) {
            routes.extend(of_tunnels(&prefix).into_iter().map(|table| (prefix, table)));
        }
        for &prefix in unbound.iter().filter(|prefix| !is_behind(prefix)) {
            routes.extend(of_tunnels(&prefix).contains(&DEFAULTS).then_some((prefix, UNBOUND)));
        }
        routes.into_iter().map(|(prefix, table)| Route { prefix, table, way: Way::Onward })
    }
}

/// What is on our side of tunnels to a network; everything if that is whichever address of ours the peer is called from.
fn sources(remote: IpNet, ours: &BTreeSet<IpNet>) -> BTreeSet<IpNet> {
    if !ours.is_empty() {
        let networks = ours.iter().map(IpNet::trunc).filter(|it| is_v6(*it) == is_v6(remote));
        return networks.collect();
    }
    let everything = IpNet::new(if is_v6(remote) { [0; 16].into() } else { [0; 4].into() }, 0);
    everything.into_iter().collect()
}

fn is_v6(prefix: IpNet) -> bool {
    matches!(prefix, IpNet::V6(_))
}

/// A prefix, and those that it is part of, the longest first.
fn up_from(prefix: IpNet) -> impl Iterator<Item = IpNet> {
    std::iter::successors(Some(prefix.trunc()), IpNet::supernet)
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
fn source(ours: &BTreeSet<IpNet>, remote: IpNet, addresses: &[IpNet]) -> Option<IpAddr> {
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

    fn way(prefix: &str, table: u32, way: Way) -> Route {
        Route { prefix: net(prefix), table, way }
    }

    /// The routes to a prefix through the interface 7.
    fn link(prefix: &str, table: u32, source: Option<&str>) -> [Route; 2] {
        let source = source.map(|source| source.parse().expect("literal"));
        [Way::Link { index: 7, source }, Way::Nowhere].map(|it| way(prefix, table, it))
    }

    fn routes_at(settings: &IpSec, index: Option<u32>, addresses: &[&str]) -> BTreeSet<Route> {
        let addresses: Vec<IpNet> = addresses.iter().copied().map(net).collect();
        let around = Surroundings { index, addresses: &addresses, others: &BTreeSet::new() };
        Network::new(settings).routes(&around, |_| Some([192, 0, 2, 7].into()))
    }

    fn routes(settings: &IpSec, addresses: &[&str]) -> BTreeSet<Route> {
        routes_at(settings, Some(7), addresses)
    }

    const NARROW: &str = "PEER tunnel 1 local prefix 10.1.0.0/24\nPEER tunnel 1 remote prefix 10.2.0.0/16";
    const ALL: &str = "PEER tunnel 1 local prefix 10.1.0.0/24\nPEER tunnel 1 remote prefix 0.0.0.0/0";

    #[test]
    fn networks_behind_peers_come_before_the_main_table() {
        let settings = settings(NARROW);
        let found = routes(&settings, &["192.0.2.1/24", "10.1.0.1/24"]);
        assert_eq!(found, BTreeSet::from(link("10.2.0.0/16", MARK, Some("10.1.0.1"))));
        let rules = Network::new(&settings).rules(&[]);
        assert_eq!(rules, BTreeSet::from([Rule::BeforeMain { v6: false, mark: MARK }]));
        assert_eq!(routes(&settings, &[]), BTreeSet::from(link("10.2.0.0/16", MARK, None)));
    }

    #[test]
    fn without_an_interface_networks_behind_peers_are_nowhere() {
        let nowhere = way("10.2.0.0/16", MARK, Way::Nowhere);
        assert_eq!(routes_at(&settings(NARROW), None, &[]), BTreeSet::from([nowhere]));
    }

    #[test]
    fn a_tunnel_for_everything_comes_before_the_main_table_for_what_it_protects() {
        let settings = settings(ALL);
        let network = Network::new(&settings);
        let from = Rule::From { source: net("10.1.0.0/24"), table: DEFAULTS };
        let rules = [Rule::Onward { v6: false }, Rule::Marked { v6: false, mark: MARK }, from];
        assert_eq!(network.rules(&[net("192.0.2.1/24")]), BTreeSet::from(rules));
        let near = [DEFAULTS, UNBOUND].map(|table| way("10.1.0.0/24", table, Way::Onward));
        let links = [DEFAULTS, UNBOUND].map(|table| link("0.0.0.0/0", table, None)).concat();
        assert_eq!(routes(&settings, &[]), links.into_iter().chain(near).collect());
        assert_eq!(network.pairs(), BTreeSet::from([(net("10.1.0.0/24"), net("0.0.0.0/0"))]));
    }

    #[test]
    fn what_this_machine_sends_from_any_address_goes_inside_or_stays_on_its_links() {
        let settings = settings(ALL);
        let unbound = Rule::Unbound { v6: false, table: UNBOUND };
        let addresses = ["192.0.2.1/24", "10.1.0.1/24"];
        assert!(Network::new(&settings).rules(&addresses.map(net)).contains(&unbound));
        let found = routes(&settings, &addresses);
        assert!(found.contains(&way("192.0.2.0/24", UNBOUND, Way::Onward)), "{found:?}");
        assert!(!found.contains(&way("192.0.2.0/24", DEFAULTS, Way::Onward)), "{found:?}");
        assert!(found.contains(&link("0.0.0.0/0", UNBOUND, Some("10.1.0.1"))[0]), "{found:?}");
    }

    #[test]
    fn a_prefix_that_contains_our_own_network_leaves_it_to_us() {
        let tunnels = "PEER tunnel 1 local prefix 10.1.0.0/24\nPEER tunnel 1 remote prefix 10.0.0.0/8\n\
             PEER tunnel 2 local prefix 10.1.0.0/24\nPEER tunnel 2 remote prefix 0.0.0.0/0";
        let found = routes(&settings(tunnels), &[]);
        for table in TABLES {
            assert!(found.contains(&way("10.1.0.0/24", table, Way::Onward)), "{found:?}");
        }
    }

    #[test]
    fn what_the_user_excepts_is_passed_by_unless_a_tunnel_leads_closer() {
        let excepted = "set vpn ipsec passthrough 10.0.0.0/8\nset vpn ipsec passthrough 198.51.100.0/24";
        let tunnels = format!("{ALL}\n{}\n{excepted}", NARROW.replace("tunnel 1", "tunnel 2"));
        let settings = settings(&tunnels);
        let found = routes(&settings, &[]);
        for prefix in ["10.0.0.0/8", "198.51.100.0/24"] {
            assert!(found.contains(&way(prefix, DEFAULTS, Way::Onward)), "{found:?}");
            assert!(!found.contains(&way(prefix, MARK, Way::Onward)), "{found:?}");
        }
        assert!(found.contains(&link("10.2.0.0/16", MARK, None)[0]), "{found:?}");
    }

    #[test]
    fn a_network_on_our_side_that_is_behind_another_tunnel_is_not_near() {
        let tunnels = "PEER tunnel 1 local prefix 10.1.0.0/24\nPEER tunnel 1 remote prefix 10.0.0.0/8\n\
             PEER tunnel 2 local prefix 10.9.0.0/24\nPEER tunnel 2 remote prefix 10.1.0.0/24";
        let found = routes(&settings(tunnels), &[]);
        assert!(!found.contains(&way("10.1.0.0/24", MARK, Way::Onward)), "{found:?}");
    }

    #[test]
    fn a_tunnel_between_the_gateways_alone_leads_to_the_peer() {
        let mut settings = settings("PEER tunnel 1 protocol gre");
        let found = routes(&settings, &["10.1.0.1/24", "192.0.2.1/24"]);
        assert_eq!(found, BTreeSet::from(link("192.0.2.2/32", MARK, Some("192.0.2.1"))));
        for peer in settings.peers.values_mut() {
            Arc::get_mut(peer).expect("nobody else has it").local_address = None;
        }
        let found = routes(&settings, &["10.1.0.1/24", "192.0.2.7/24"]);
        assert_eq!(found, BTreeSet::from(link("192.0.2.2/32", MARK, Some("192.0.2.7"))));
        let everything = (net("0.0.0.0/0"), net("192.0.2.2/32"));
        assert_eq!(Network::new(&settings).pairs(), BTreeSet::from([everything]));
    }
}
