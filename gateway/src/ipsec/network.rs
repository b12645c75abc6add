//! The networks behind IPsec peers, for the host.

use crate::host::networks::Networks;
use crate::host::wants::Wants;
use config::settings::ipsec::{IpSec, Peer, Remote, Tunnel};
use ipnet::IpNet;
use tunnel::ikev2::limits::{IKE_PORT, NAT_PORT};

/// The networks that the tunnels of these settings lead to, while no interface serves them.
pub fn networks(settings: &IpSec) -> Networks {
    let mut networks = Networks {
        place: "vpn ipsec",
        ports: vec![IKE_PORT, NAT_PORT],
        is_routed_elsewhere: settings.disable_route_autoinstall,
        ..Networks::default()
    };
    let tunnels = || {
        let peers = settings.peers.values();
        peers.flat_map(|peer| peer.tunnels.values().map(move |tunnel| (peer, tunnel)))
    };
    for (peer, tunnel) in tunnels() {
        for prefix in behind(peer, tunnel) {
            networks.behind.entry(prefix).or_default().extend(ours(peer, tunnel));
        }
    }
    for (_, tunnel) in tunnels() {
        let passed = passed_by(&networks, tunnel);
        networks.near.extend(passed);
    }
    networks.excepted.clone_from(&settings.passthrough);
    networks
}

/// What is wanted for these networks; nothing if there are none.
pub fn wants(networks: Networks, is_served: bool) -> Option<Wants> {
    let networks = Networks { is_served, ..networks };
    (!networks.is_empty()).then(|| Wants { networks, ..Wants::default() })
}

/// The networks of our side that the routes of a tunnel would take away from us.
fn passed_by(networks: &Networks, tunnel: &Tunnel) -> Vec<IpNet> {
    let takes = |ours: &IpNet| {
        // Another tunnel may lead to the same network, or to one between, and is meant then.
        let closest = up_from(*ours).find(|prefix| networks.behind.contains_key(prefix));
        closest.is_some_and(|it| it != *ours && tunnel.remote.prefixes.iter().any(|of| of.trunc() == it))
    };
    tunnel.passed_by().iter().map(IpNet::trunc).filter(takes).collect()
}

/// A prefix, and those that it is part of, the longest first.
fn up_from(prefix: IpNet) -> impl Iterator<Item = IpNet> {
    std::iter::successors(Some(prefix.trunc()), IpNet::supernet)
}

/// The networks that a tunnel leads to.
pub(super) fn behind(peer: &Peer, tunnel: &Tunnel) -> Vec<IpNet> {
    let host = |remote: &Remote| match remote {
        Remote::Address(address) => Some(IpNet::from(*address)),
        Remote::Name(_) => None,
    };
    match &tunnel.remote.prefixes[..] {
        [] => peer.remote_addresses.iter().filter_map(host).collect(),
        prefixes => prefixes.iter().map(IpNet::trunc).collect(),
    }
}

/// Our side of a tunnel; none if that is the local address of the IKE SA, which routing chooses.
fn ours(peer: &Peer, tunnel: &Tunnel) -> Vec<IpNet> {
    match &tunnel.local.prefixes[..] {
        [] => peer.local_address.map(IpNet::from).into_iter().collect(),
        prefixes => prefixes.to_vec(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::host::netlink::{Route, Rule, Way};
    use crate::host::networks::{DEFAULTS, MARK, Surroundings, UNBOUND};
    use config::Settings;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    pub(in crate::ipsec) fn settings(extra: &str) -> IpSec {
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
        [Way::Link { index: 7, source, metric: 0 }, Way::Nowhere].map(|it| way(prefix, table, it))
    }

    fn routes_at(settings: &IpSec, index: Option<u32>, addresses: &[&str]) -> BTreeSet<Route> {
        let addresses: Vec<IpNet> = addresses.iter().copied().map(net).collect();
        let (others, elsewhere) = (&BTreeSet::new(), BTreeSet::new());
        let around = Surroundings { index, addresses: &addresses, others, elsewhere };
        networks(settings).routes(&around, |_| Some([192, 0, 2, 7].into()))
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
        let rules = networks(&settings).rules(&[]);
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
        let networks = networks(&settings);
        let from = Rule::From { source: net("10.1.0.0/24"), table: DEFAULTS };
        let rules = [Rule::Onward { v6: false }, Rule::Marked { v6: false, mark: MARK }, from];
        assert_eq!(networks.rules(&[net("192.0.2.1/24")]), BTreeSet::from(rules));
        let near = [DEFAULTS, UNBOUND].map(|table| way("10.1.0.0/24", table, Way::Onward));
        let links = [DEFAULTS, UNBOUND].map(|table| link("0.0.0.0/0", table, None)).concat();
        assert_eq!(routes(&settings, &[]), links.into_iter().chain(near).collect());
        assert_eq!(networks.pairs(), BTreeSet::from([(net("10.1.0.0/24"), net("0.0.0.0/0"))]));
    }

    #[test]
    fn what_this_machine_sends_from_any_address_goes_inside_or_stays_on_its_links() {
        let settings = settings(ALL);
        let unbound = Rule::Unbound { v6: false, table: UNBOUND };
        let addresses = ["192.0.2.1/24", "10.1.0.1/24"];
        assert!(networks(&settings).rules(&addresses.map(net)).contains(&unbound));
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
        for table in [MARK, DEFAULTS, UNBOUND] {
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
            Arc::get_mut(peer).expect("the only reference").local_address = None;
        }
        let found = routes(&settings, &["10.1.0.1/24", "192.0.2.7/24"]);
        assert_eq!(found, BTreeSet::from(link("192.0.2.2/32", MARK, Some("192.0.2.7"))));
        let everything = (net("0.0.0.0/0"), net("192.0.2.2/32"));
        assert_eq!(networks(&settings).pairs(), BTreeSet::from([everything]));
    }
}
