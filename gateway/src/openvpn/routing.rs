//! The network of a client, as addresses, routes and rules of the kernel.
//!
//! A client must not send its own packets into its tunnel. Two ways lead there, and neither needs the address of a gateway, so that
//! both survive a default route that changes, goes, or comes back later, and a server on the local link:
//!
//! - The default route through the tunnel is in a table of its own, which packets without our mark use, as with `wg-quick`. A route to
//!   the server by the gateway of the moment, as OpenVPN sets it, would have to follow that gateway; and all else that goes to the
//!   server's address would leave in clear.
//! - All other routes are in the main table. The addresses of servers are cut out of them.

use super::options::Network;
use crate::host::Own as Number;
use crate::host::netlink::{MAIN_TABLE, Route, Rule, Way};
use crate::host::wants::{LeftIn, Wants};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Routes of a client: a server can push many, and each address that is cut out of one makes up to 128.
const MAX_ROUTES: usize = 16_384;

/// Too many routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// The number of an interface that it uses as mark and as table: the same after each start, so that it finds what it left, and another
/// one for each name.
pub fn number(name: &str) -> u32 {
    // FNV-1a.
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    0x5000_0000 | hash & 0x0fff_ffff
}

/// Where the kernel keeps what a daemon has closed for an interface with this number.
pub fn left_in(number: u32) -> LeftIn {
    LeftIn { table: number, note: number ^ 0x3000_0000 }
}

/// Where the servers of a client are.
pub struct Servers<'a> {
    /// Their addresses.
    pub addresses: &'a BTreeSet<IpAddr>,
    /// Whether unmarked packets, too, reach them without the tunnel.
    pub passed: bool,
    /// The networks of this machine.
    pub links: &'a [IpNet],
}

impl Servers<'_> {
    /// What is cut out of a route for a server: the network of this machine that it is in, if the route has all of that. Otherwise parts
    /// of the route would be closer than the network, and take it.
    fn hole(&self, server: IpAddr, route: &IpNet) -> IpNet {
        let around = self.links.iter().map(IpNet::trunc);
        let around = around.filter(|link| link.contains(&server) && route.contains(link));
        around.min_by_key(IpNet::prefix_len).unwrap_or(IpNet::from(server))
    }
}

/// What the kernel is to have for a network.
pub fn wants(network: &Network, servers: &Servers<'_>, own: Number) -> Result<Wants, TooMany> {
    let mut wants = Wants::default();
    let mut tunnel = network.tunnel.clone();
    for &address in &network.addresses {
        let holds_server = servers.addresses.iter().any(|server| address.contains(server));
        if holds_server {
            // The kernel would route the whole network of the address.
            wants.addresses.insert(address.addr().into());
            tunnel.entry((address.trunc(), MAIN_TABLE)).or_insert(0);
        } else {
            wants.addresses.insert(address);
        }
    }
    let table_of_own = own.table;
    let mut defaults: BTreeSet<bool> = redirected(network);
    for (&(prefix, table), &metric) in &tunnel {
        let v6 = is_v6(prefix);
        if prefix.prefix_len() == 0 {
            defaults.insert(v6);
            continue;
        }
        let outside = network.outside.iter().copied().filter(|it| prefix.contains(it));
        let own = servers.addresses.iter().filter(|server| prefix.contains(*server));
        let within: Vec<IpNet> = outside.chain(own.map(|server| servers.hole(*server, &prefix))).collect();
        for piece in without(prefix, &within) {
            if network.block_ipv6 && v6 {
                wants.closed.insert((piece, table_of_own));
            } else {
                wants.routes.insert((piece, table));
                wants.metrics.extend((metric != 0).then_some(((piece, table), metric)));
            }
        }
        if wants.routes.len() + wants.closed.len() > MAX_ROUTES {
            return Err(TooMany);
        }
    }
    let is_closed_only = |v6: bool| network.block_ipv6 && v6;
    // Routes that lead nowhere are in the table of the interface, too.
    let uses_table = |v6: bool| defaults.contains(&v6) || is_closed_only(v6) && !wants.closed.is_empty();
    let users: Vec<bool> = [false, true].into_iter().filter(|v6| uses_table(*v6)).collect();
    for v6 in users {
        add_table(&mut wants, network, own, v6, defaults.contains(&v6), is_closed_only(v6));
        let passed = servers.addresses.iter().filter(|it| servers.passed && it.is_ipv6() == v6);
        wants.onward.extend(passed.map(|it| (IpNet::from(*it), own.table)));
    }
    Ok(wants)
}

/// What stays closed before a server has said what it wants, so that its own packets leave: with the mark of now, and without the
/// addresses of servers.
pub fn closed_around(closed: &Wants, servers: &Servers<'_>, own: Number) -> Wants {
    let remarked = |rule: &Rule| match *rule {
        Rule::NotMarked { v6, table, .. } => Rule::NotMarked { v6, mark: own.mark, table },
        Rule::MainBefore { v6, .. } => Rule::MainBefore { v6, mark: own.mark },
        other => other,
    };
    let mut wants = Wants { rules: closed.rules.iter().map(remarked).collect(), ..closed.clone() };
    wants.closed.clear();
    for &(prefix, table) in &closed.closed {
        let within =
            servers.addresses.iter().filter(|server| table == MAIN_TABLE && prefix.contains(*server));
        let holes: Vec<IpNet> = within.map(|server| servers.hole(*server, &prefix)).collect();
        wants.closed.extend(without(prefix, &holes).into_iter().map(|piece| (piece, table)));
    }
    let is_redirected =
        |v6: bool| wants.closed.iter().any(|(prefix, table)| *table == own.table && is_v6(*prefix) == v6);
    let passed = servers.addresses.iter().filter(|it| servers.passed && is_redirected(it.is_ipv6()));
    wants.onward.extend(passed.map(|it| (IpNet::from(*it), own.table)));
    wants
}

/// The versions of IP whose default route leads into the tunnel.
fn redirected(network: &Network) -> BTreeSet<bool> {
    let Some(redirect) = network.redirect.filter(|it| !it.is_private) else { return BTreeSet::new() };
    let v4 = (!redirect.not_ipv4).then_some(false);
    let v6 = redirect.ipv6.then_some(true);
    v4.into_iter().chain(v6).collect()
}

/// The table of the interface, and the rules that lead to it.
fn add_table(
    wants: &mut Wants,
    network: &Network,
    own: Number,
    v6: bool,
    has_default: bool,
    is_closed_only: bool,
) {
    let Number { table, mark } = own;
    wants.rules.insert(Rule::NotMarked { v6, mark, table });
    // With `block-local`, the tunnel comes before the links of this machine.
    if !network.redirect.is_some_and(|it| it.block_local) {
        wants.rules.insert(Rule::MainBefore { v6, mark });
    }
    let outside = network.outside.iter().filter(|prefix| is_v6(**prefix) == v6);
    wants.onward.extend(outside.map(|prefix| (*prefix, table)));
    if has_default {
        let everything = everything(v6);
        wants.closed.insert((everything, table));
        if !is_closed_only {
            wants.routes.insert((everything, table));
        }
    }
}

/// Whether what a kernel with these rules and routes lacks lets traffic for the tunnel leave in clear. A route into the tunnel may lack:
/// the one that closes its prefix is below it. Without an IPv6 address outside, no IPv6 packet leaves.
pub fn leaves_in_clear(wants: &Wants, rules: &[Rule], routes: &[Route], has_ipv6: bool) -> bool {
    let is_v6_of = |rule: &Rule| match rule {
        Rule::NotMarked { v6, .. } => Some(*v6),
        // Without it, packets for the links of this machine go into the tunnel.
        _ => None,
    };
    let mut leading = wants.rules.iter().filter_map(|rule| Some((rule, is_v6_of(rule)?)));
    let closes = |&(prefix, table): &(IpNet, u32)| {
        routes.iter().any(|it| (it.prefix, it.table, it.way) == (prefix, table, Way::Nowhere))
    };
    // In the main table are the routes that a daemon closes without a redirect.
    let mut closed = wants.closed.iter().filter(|(_, table)| *table != MAIN_TABLE);
    let counts = |v6: bool| !v6 || has_ipv6;
    leading.any(|(rule, v6)| counts(v6) && !rules.contains(rule))
        || closed.any(|of| counts(is_v6(of.0)) && !closes(of))
}

fn everything(v6: bool) -> IpNet {
    if v6 { Ipv6Net::default().into() } else { Ipv4Net::default().into() }
}

fn is_v6(prefix: IpNet) -> bool {
    matches!(prefix, IpNet::V6(_))
}

/// The networks of a prefix that have none of these, which are all in it.
fn without(prefix: IpNet, holes: &[IpNet]) -> Vec<IpNet> {
    if holes.is_empty() {
        return vec![prefix];
    }
    if holes.contains(&prefix) {
        return Vec::new();
    }
    let halves = prefix.subnets(prefix.prefix_len() + 1).into_iter().flatten();
    let pieces = halves.map(|half| {
        let within: Vec<IpNet> = holes.iter().filter(|hole| half.contains(*hole)).copied().collect();
        without(half, &within)
    });
    pieces.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::openvpn::settings::Redirect;
    use std::collections::BTreeMap;

    const OWN: Number = Number { table: 77, mark: 5 };

    fn net(text: &str) -> IpNet {
        text.parse().expect("literal")
    }

    fn network(tunnel: &[&str]) -> Network {
        let tunnel: BTreeMap<_, _> = tunnel.iter().map(|prefix| ((net(prefix), MAIN_TABLE), 0)).collect();
        Network { tunnel, ..Network::default() }
    }

    fn served(network: &Network, server: &str) -> Wants {
        served_at(network, server, &[])
    }

    fn served_at(network: &Network, server: &str, links: &[IpNet]) -> Wants {
        let addresses = BTreeSet::from([server.parse().expect("literal")]);
        let servers = Servers { addresses: &addresses, passed: false, links };
        wants(network, &servers, OWN).expect("few routes")
    }

    fn routes(wants: &Wants, table: u32) -> Vec<String> {
        let routes = wants.routes.iter().filter(|(_, of)| *of == table);
        routes.map(|(prefix, _)| prefix.to_string()).collect()
    }

    #[test]
    fn the_server_is_cut_out_of_routes() {
        let found = served(&network(&["10.0.0.0/8", "192.0.2.0/30"]), "192.0.2.1");
        assert_eq!(routes(&found, MAIN_TABLE), ["10.0.0.0/8", "192.0.2.0/32", "192.0.2.2/31"]);
        assert!(found.rules.is_empty());
        let found = served(&network(&["0.0.0.0/1", "128.0.0.0/1"]), "192.0.2.1");
        assert_eq!(found.routes.len(), 32);
        assert!(found.routes.iter().all(|(prefix, _)| !prefix.contains(&net("192.0.2.1/32"))));
        assert!(served(&network(&["192.0.2.1/32"]), "192.0.2.1").routes.is_empty(), "the server itself");
        assert_eq!(served(&network(&["2000::/3"]), "2001:db8::1").routes.len(), 125);
    }

    #[test]
    fn the_network_of_a_server_on_the_local_link_stays_as_it_is() {
        let links = [net("192.0.2.7/24"), net("10.1.2.3/16")];
        let found = served_at(&network(&["192.0.0.0/16"]), "192.0.2.1", &links);
        assert!(found.routes.len() == 8, "{:?}", found.routes);
        assert!(found.routes.iter().all(|(prefix, _)| !prefix.contains(&net("192.0.2.0/24"))));
        assert!(served_at(&network(&["192.0.2.0/24"]), "192.0.2.1", &links).routes.is_empty());
        assert_eq!(served_at(&network(&["192.0.2.0/30"]), "192.0.2.1", &links).routes.len(), 2);
    }

    #[test]
    fn a_refused_rule_or_closing_route_lets_redirected_traffic_leave_in_clear() {
        let mut whole = network(&["10.0.0.0/8"]);
        whole.redirect = Some(Redirect { ipv6: true, ..Redirect::default() });
        let wants = served(&whole, "192.0.2.1");
        let rules: Vec<Rule> = wants.rules.iter().copied().collect();
        let closing = |&(prefix, table): &(IpNet, u32)| Route { prefix, table, way: Way::Nowhere };
        let routes: Vec<Route> = wants.closed.iter().map(closing).collect();
        assert!(rules.len() == 4 && routes.len() == 2, "{wants:?}");
        assert!(!leaves_in_clear(&wants, &rules, &routes, true), "no route into the tunnel is needed");
        let is_v4 = |rule: &Rule| matches!(rule, Rule::NotMarked { v6: false, .. });
        let without: Vec<Rule> = rules.iter().copied().filter(|rule| !is_v4(rule)).collect();
        assert!(leaves_in_clear(&wants, &without, &routes, false));
        let without: Vec<Route> = routes.iter().copied().filter(|route| is_v6(route.prefix)).collect();
        assert!(leaves_in_clear(&wants, &rules, &without, false));
        let without: Vec<Route> = routes.iter().copied().filter(|route| !is_v6(route.prefix)).collect();
        assert!(leaves_in_clear(&wants, &rules, &without, true));
        assert!(!leaves_in_clear(&wants, &rules, &without, false), "this machine has no IPv6");
        let split = served(&network(&["10.0.0.0/8"]), "192.0.2.1");
        assert!(!leaves_in_clear(&split, &[], &[], true), "nothing is redirected");
    }

    #[test]
    fn what_stays_outside_is_cut_out_of_wider_routes_only() {
        let mut network = network(&["10.0.0.0/30", "10.0.0.1/32"]);
        network.outside.insert(net("10.0.0.0/31"));
        assert_eq!(routes(&served(&network, "192.0.2.1"), MAIN_TABLE), ["10.0.0.1/32", "10.0.0.2/31"]);
    }

    #[test]
    fn the_default_route_has_a_table_of_its_own_for_packets_without_the_mark() {
        let mut network = network(&[]);
        network.redirect = Some(Redirect { def1: true, ..Redirect::default() });
        network.outside.insert(net("203.0.113.0/24"));
        let found = served(&network, "192.0.2.1");
        assert_eq!(routes(&found, 77), ["0.0.0.0/0"]);
        assert_eq!(found.closed, BTreeSet::from([(net("0.0.0.0/0"), 77)]));
        assert_eq!(found.onward, BTreeSet::from([(net("203.0.113.0/24"), 77)]));
        let rules =
            [Rule::MainBefore { v6: false, mark: 5 }, Rule::NotMarked { v6: false, mark: 5, table: 77 }];
        assert_eq!(found.rules, BTreeSet::from(rules));
        network.redirect =
            Some(Redirect { ipv6: true, not_ipv4: true, block_local: true, ..Redirect::default() });
        let found = served(&network, "192.0.2.1");
        assert_eq!(routes(&found, 77), ["::/0"]);
        assert_eq!(found.rules, BTreeSet::from([Rule::NotMarked { v6: true, mark: 5, table: 77 }]));
        network.redirect = Some(Redirect { is_private: true, ..Redirect::default() });
        assert!(served(&network, "192.0.2.1").rules.is_empty());
    }

    #[test]
    fn blocked_ipv6_leads_nowhere() {
        let mut network = network(&["2001:db8::/32", "10.0.0.0/8"]);
        network.block_ipv6 = true;
        network.redirect = Some(Redirect { ipv6: true, ..Redirect::default() });
        let found = served(&network, "192.0.2.1");
        assert_eq!(
            (routes(&found, 77), routes(&found, MAIN_TABLE)),
            (vec!["0.0.0.0/0".to_owned()], vec!["10.0.0.0/8".to_owned()])
        );
        assert!(
            found.closed.contains(&(net("::/0"), 77)) && found.closed.contains(&(net("2001:db8::/32"), 77))
        );
        assert!(found.rules.contains(&Rule::NotMarked { v6: true, mark: 5, table: 77 }));
    }

    #[test]
    fn an_address_in_the_network_of_the_server_does_not_take_it() {
        let mut network = network(&[]);
        network.addresses.insert(net("192.0.2.77/24"));
        let found = served(&network, "192.0.2.1");
        assert_eq!(found.addresses, BTreeSet::from([net("192.0.2.77/32")]));
        assert!(found.routes.iter().all(|(prefix, _)| !prefix.contains(&net("192.0.2.1/32"))));
        assert_eq!(served(&network, "198.51.100.1").addresses, BTreeSet::from([net("192.0.2.77/24")]));
    }

    #[test]
    fn routes_are_bounded() {
        let prefixes: Vec<String> = (0..200).map(|it| format!("2001:db8:{it:x}::/48")).collect();
        let tunnel: Vec<&str> = prefixes.iter().map(String::as_str).collect();
        let mut network = network(&tunnel);
        network.outside.extend((0..200).map(|it| net(&format!("2001:db8:{it:x}::1/128"))));
        let addresses = BTreeSet::new();
        let servers = Servers { addresses: &addresses, passed: false, links: &[] };
        assert_eq!(wants(&network, &servers, OWN).err(), None);
        network.outside.extend((0..200).map(|it| net(&format!("2001:db8:{it:x}:8000::1/128"))));
        assert_eq!(wants(&network, &servers, OWN).err(), Some(TooMany));
    }

    #[test]
    fn each_name_has_a_number_of_its_own() {
        assert_eq!(number("tun0"), number("tun0"));
        assert!(number("tun0") != number("tun1") && number("tun0") >> 28 == 5);
    }

    #[test]
    fn what_stays_closed_lets_the_packets_to_a_new_server_out() {
        let mark = |mark: u32| {
            [Rule::NotMarked { v6: false, mark, table: 77 }, Rule::MainBefore { v6: false, mark }]
        };
        let closed = [(net("0.0.0.0/0"), 77), (net("192.0.2.0/30"), MAIN_TABLE), (net("192.0.2.0/30"), 88)];
        let left = Wants { closed: closed.into(), rules: mark(4).into(), ..Wants::default() };
        let addresses = BTreeSet::from(["192.0.2.1".parse().expect("literal")]);
        let around =
            |passed| closed_around(&left, &Servers { addresses: &addresses, passed, links: &[] }, OWN);
        let found = around(true);
        let expected = [
            (net("0.0.0.0/0"), 77),
            (net("192.0.2.0/32"), MAIN_TABLE),
            (net("192.0.2.2/31"), MAIN_TABLE),
            (net("192.0.2.0/30"), 88),
        ];
        assert_eq!((found.closed, found.rules), (expected.into(), mark(5).into()));
        assert_eq!(found.onward, [(net("192.0.2.1/32"), 77)].into());
        assert!(around(false).onward.is_empty());
    }
}
