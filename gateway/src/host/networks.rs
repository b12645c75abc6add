//! Networks behind tunnels whose policies match both addresses of a packet: their routes lead to the owner's interface and
//! precede all others. Without the interface they are unreachable.

use super::netlink::{Route, Rule, Way};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The mark on the outer packets of such tunnels, which must not go inside, and the table for all other packets.
pub const MARK: u32 = 220;
/// The table of tunnels for everything, for packets from the networks of our side.
pub(crate) const DEFAULTS: u32 = 221;
/// Their table for packets of this machine that have no source address yet.
pub(crate) const UNBOUND: u32 = 222;
/// All tables.
pub(super) const TABLES: [u32; 3] = [MARK, DEFAULTS, UNBOUND];

/// Where tunnels lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// Their place in the configuration, for the log.
    pub place: &'static str,
    /// The UDP ports of their outer packets.
    pub ports: Vec<u16>,
    /// The networks behind peers, with those on our side of the same tunnels.
    pub behind: BTreeMap<IpNet, BTreeSet<IpNet>>,
    /// Networks of our side that are part of the other side too.
    pub near: BTreeSet<IpNet>,
    /// Networks that the user excepts.
    pub excepted: BTreeSet<IpNet>,
    /// Whether the user sets the routes. The protected packets are the same.
    pub is_routed_elsewhere: bool,
    /// Whether the interface is the owner's, so that routes may lead to it.
    pub is_served: bool,
}

/// What the routes depend on.
pub struct Surroundings<'a> {
    /// The number of our interface, if it is up.
    pub index: Option<u32>,
    /// The addresses of this machine.
    pub addresses: &'a [IpNet],
    /// Networks behind other tunnels of ours.
    pub others: &'a BTreeSet<IpNet>,
    /// Networks that another tunnel leads to now, although they are behind these, too.
    pub elsewhere: BTreeSet<IpNet>,
}

impl Networks {
    /// What is to be known for both. What bypasses the tunnels of one must do so in the other, or not be protected there.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        let bypasses = |it: &IpNet| self.lets(it) && other.lets(it);
        let near: BTreeSet<IpNet> = self.near.union(&other.near).copied().filter(bypasses).collect();
        let excepted = self.excepted.union(&other.excepted).copied().filter(bypasses).collect();
        for (prefix, ours) in other.behind {
            self.behind.entry(prefix).or_default().extend(ours);
        }
        self.near = near.into_iter().filter(|prefix| !self.behind.contains_key(prefix)).collect();
        self.excepted = excepted;
        self.is_routed_elsewhere &= other.is_routed_elsewhere;
        self.is_served |= other.is_served;
        self
    }

    /// Whether packets to a network may leave beside these tunnels.
    fn lets(&self, network: &IpNet) -> bool {
        let length = |around: Option<&IpNet>| around.map(IpNet::prefix_len);
        let of = |prefix: &&IpNet| prefix.contains(network);
        let protected = length(self.behind.keys().filter(of).max_by_key(|it| it.prefix_len()));
        let excepted = self.near.iter().chain(&self.excepted).filter(of).max_by_key(|it| it.prefix_len());
        // The closer one counts.
        length(excepted) >= protected
    }

    /// Whether nothing is to be known.
    pub fn is_empty(&self) -> bool {
        self.behind.is_empty()
    }

    /// Packets that bypass the tunnels although their destination is behind a peer.
    pub fn exceptions(&self) -> BTreeSet<IpNet> {
        self.near.union(&self.excepted).copied().collect()
    }

    /// Sources and destinations of packets that may leave only through a tunnel.
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
            if around.elsewhere.contains(&prefix) {
                // The other tunnel has its route in this table, too.
                routes.insert(Route { prefix, table: MARK, way: Way::Nowhere });
                continue;
            }
            let link = around.index.map(|index| {
                // Without networks of ours it is the peer itself that is behind the tunnel.
                let source = if ours.is_empty() {
                    towards(prefix.addr())
                } else {
                    source(ours, prefix, around.addresses)
                };
                Way::Link { index, source, metric: 0 }
            });
            // Protected packets do not leave in clear when the interface is removed.
            let ways: Vec<Way> = link.into_iter().chain([Way::Nowhere]).collect();
            let tables = if prefix.prefix_len() == 0 { &[DEFAULTS, UNBOUND][..] } else { &[MARK] };
            for &table in tables {
                routes.extend(ways.iter().map(|&way| Route { prefix, table, way }));
            }
        }
        routes.extend(self.onward(around));
        routes
    }

    /// Tells whether a prefix is in a network behind a tunnel, other than everything. Thousands are asked about, and there are few
    /// lengths of prefixes.
    fn containing(&self) -> impl Fn(&IpNet) -> bool {
        let behind: BTreeSet<IpNet> = self.behind.keys().map(IpNet::trunc).collect();
        let lengths: BTreeSet<u8> =
            behind.iter().map(IpNet::prefix_len).filter(|length| *length > 0).collect();
        move |prefix| {
            let wider = lengths.range(..=prefix.prefix_len());
            let mut wider = wider.filter_map(|length| IpNet::new(prefix.addr(), *length).ok());
            wider.any(|around| behind.contains(&around.trunc()))
        }
    }

    /// What goes on to the tables of the next rules. What this machine sends from whichever address fits may also stay on
    /// its links: it gets an address there.
    fn onward(&self, around: &Surroundings<'_>) -> impl Iterator<Item = Route> {
        let exceptions = self.exceptions();
        let defaults: BTreeSet<bool> = self.defaults().map(|(prefix, _)| is_v6(prefix)).collect();
        let around_any = self.containing();
        let of_tunnels = move |prefix: &IpNet| {
            let closer = around_any(prefix);
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

    fn net(text: &str) -> IpNet {
        text.parse().expect("literal")
    }

    fn networks(behind: &[&str], near: &[&str], excepted: &[&str]) -> Networks {
        let all = |texts: &[&str]| texts.iter().map(|text| net(text)).collect();
        Networks {
            behind: behind.iter().map(|prefix| (net(prefix), BTreeSet::new())).collect(),
            near: all(near),
            excepted: all(excepted),
            ..Networks::default()
        }
    }

    #[test]
    fn an_exception_of_one_policy_opens_nothing_that_the_other_protects() {
        let plain = networks(&["10.0.0.0/8"], &[], &[]);
        for with in [
            networks(&["10.0.0.0/8"], &["10.1.0.0/16"], &[]),
            networks(&["10.0.0.0/8"], &[], &["10.1.0.0/16"]),
        ] {
            for both in [plain.clone().and(with.clone()), with.clone().and(plain.clone())] {
                assert!(both.exceptions().is_empty(), "{both:?}");
            }
            assert_eq!(with.clone().and(with.clone()).exceptions(), [net("10.1.0.0/16")].into());
            // The other policy has nothing to do with it.
            let apart = networks(&["172.16.0.0/12"], &[], &[]);
            assert_eq!(apart.clone().and(with.clone()).exceptions(), [net("10.1.0.0/16")].into());
            assert_eq!(with.and(apart).exceptions(), [net("10.1.0.0/16")].into());
        }
        // A part of what the other excepts.
        let wide = networks(&["10.0.0.0/8"], &[], &["10.1.0.0/16"]);
        let part = networks(&["10.0.0.0/8"], &[], &["10.1.2.0/24"]);
        assert_eq!(wide.and(part.clone()).exceptions(), [net("10.1.2.0/24")].into());
        let closer = networks(&["10.0.0.0/8", "10.1.2.0/23"], &[], &["10.1.0.0/16"]);
        assert!(closer.and(part).exceptions().is_empty(), "a tunnel lies between");
        // Near in one, and behind a peer in the other.
        let near = networks(&["10.0.0.0/8"], &["10.1.0.0/16"], &[]);
        assert!(near.and(networks(&["10.1.0.0/16"], &[], &[])).exceptions().is_empty());
    }

    #[test]
    fn routes_are_set_if_either_policy_wants_them() {
        let elsewhere = Networks { is_routed_elsewhere: true, ..networks(&["10.0.0.0/8"], &[], &[]) };
        assert!(!elsewhere.clone().and(networks(&["10.0.0.0/8"], &[], &[])).is_routed_elsewhere);
        assert!(elsewhere.clone().and(elsewhere).is_routed_elsewhere);
    }
}
