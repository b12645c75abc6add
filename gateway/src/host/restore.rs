//! Compares what is wanted with what is there. First what closes comes, then what opens, then what is not wanted goes: there
//! is no moment in which something leaves that must not.

use super::Wanted;
use super::guard::Protected;
use super::netlink::{Netlink, NetlinkError, Route, Rule, Way};
use crate::ipsec::NAME;
use crate::ipsec::network::{MARK, Surroundings, TABLES};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

/// What became of a comparison.
#[derive(Default)]
pub(super) struct Outcome {
    /// What was not there and must always be.
    pub(super) restored: Vec<String>,
    /// What was refused, by the name of the interface that it is for.
    pub(super) errors: Vec<(String, NetlinkError)>,
}

impl Outcome {
    /// The first error of an interface; those of others are logged.
    pub(super) fn of(mut self, name: &str) -> Result<(), NetlinkError> {
        let own = self.errors.iter().position(|(of, _)| of == name).map(|at| self.errors.remove(at).1);
        self.log();
        own.map_or(Ok(()), Err)
    }

    pub(super) fn log(&self) {
        for (name, error) in &self.errors {
            tracing::warn!("interface {name}: {error}");
        }
    }

    fn note(&mut self, owner: &str, outcome: Result<(), NetlinkError>) {
        self.errors.extend(outcome.err().map(|error| (owner.to_owned(), error)));
    }
}

/// What differs.
pub(super) struct Plan {
    /// All rules that are wanted.
    rules: BTreeMap<Rule, String>,
    missing_rules: Vec<(Rule, String)>,
    /// Those that lead nowhere come first.
    missing_routes: Vec<(Route, String)>,
    missing_addresses: Vec<(u32, IpNet, String)>,
    unwanted_rules: Vec<Rule>,
    unwanted_routes: Vec<Route>,
}

impl Wanted {
    /// What must not leave in clear.
    pub(super) fn protected(&self) -> Protected {
        Protected {
            pairs: self.ipsec.pairs(),
            exceptions: self.ipsec.exceptions(),
            interfaces: self.links.keys().cloned().collect(),
        }
    }

    /// Compares with what is there.
    pub(super) fn plan(&self, netlink: &mut Netlink, ipsec_is_served: bool) -> Result<Plan, NetlinkError> {
        let addresses = netlink.addresses(None)?;
        let mut rules: BTreeMap<Rule, String> = BTreeMap::new();
        let mut routes: BTreeMap<Route, String> = BTreeMap::new();
        let (mut missing_addresses, mut indices) = (Vec::new(), BTreeSet::new());
        for (name, network) in &self.links {
            rules.extend(network.rules.iter().map(|rule| (*rule, name.clone())));
            let closed = network.closed.iter();
            let closed = closed.map(|&(prefix, table)| Route { prefix, table, way: Way::Nowhere });
            routes.extend(closed.map(|route| (route, name.clone())));
            // Nothing can lead to a link that is down, or to none.
            let Ok(link) = netlink.link(name) else { continue };
            if network.routes.is_empty() && network.addresses.is_empty() {
                continue;
            }
            indices.insert(link.index);
            if !link.up {
                continue;
            }
            let present = netlink.addresses(Some(link.index))?;
            let missing = network.addresses.iter().filter(|address| !present.contains(address));
            missing_addresses.extend(missing.map(|&address| (link.index, address, name.clone())));
            let way = Way::Link { index: link.index, source: None };
            let open = network.routes.iter().map(|&(prefix, table)| Route { prefix, table, way });
            routes.extend(open.map(|route| (route, name.clone())));
        }
        let index = if ipsec_is_served { netlink.link(NAME).ok().filter(|link| link.up) } else { None };
        let others = self.links.values().flat_map(|link| &link.closed).map(|(prefix, _)| *prefix);
        let others = others.filter(|prefix| prefix.prefix_len() > 0).collect();
        let around =
            Surroundings { index: index.map(|link| link.index), addresses: &addresses, others: &others };
        if !self.ipsec.is_empty() {
            let of_ipsec = self.ipsec.routes(&around, |to| netlink.outside(to, MARK).ok()?.source);
            routes.extend(of_ipsec.into_iter().map(|route| (route, NAME.to_owned())));
            rules.extend(self.ipsec.rules(&addresses).into_iter().map(|rule| (rule, NAME.to_owned())));
        }
        let present: BTreeSet<Route> = netlink.routes()?.into_iter().collect();
        let is_ours = |route: &Route| match route.way {
            Way::Link { index, .. } => indices.contains(&index) || TABLES.contains(&route.table),
            Way::Nowhere | Way::Onward => true,
        };
        let places: BTreeSet<_> = routes.keys().map(|route| place(*route)).collect();
        let unwanted = |route: &Route| is_ours(route) && !places.contains(&place(*route));
        let unwanted_routes = present.iter().copied().filter(unwanted).collect();
        routes.retain(|route, _| !present.contains(route));
        let mut missing_routes: Vec<_> = routes.into_iter().collect();
        missing_routes.sort_by_key(|(route, _)| order(route.way));
        let present = netlink.rules()?;
        let missing_rules = rules.iter().filter(|(rule, _)| !present.contains(rule));
        let missing_rules = missing_rules.map(|(rule, name)| (*rule, name.clone())).collect();
        let unwanted_rules = present.into_iter().filter(|rule| !rules.contains_key(rule)).collect();
        Ok(Plan { rules, missing_rules, missing_routes, missing_addresses, unwanted_rules, unwanted_routes })
    }
}

impl Plan {
    /// All rules that are wanted.
    pub(super) fn rules(&self) -> BTreeSet<Rule> {
        self.rules.keys().copied().collect()
    }

    /// Adds what closes: routes that lead nowhere or go on, and rules. What is refused keeps nothing else back.
    pub(super) fn close(&self, netlink: &mut Netlink, outcome: &mut Outcome) {
        for (route, owner) in self.missing_routes.iter().filter(|(route, _)| !is_open(route)) {
            outcome.restored.push(format!("the route {} of table {}", route.prefix, route.table));
            outcome.note(owner, netlink.add_route(*route));
        }
        for (rule, owner) in &self.missing_rules {
            outcome.restored.push(format!("the rule {}", rule.priority()));
            outcome.note(owner, netlink.add_rule(*rule));
        }
    }

    /// Adds addresses and the routes into tunnels, and removes what is not wanted.
    pub(super) fn open(&self, netlink: &mut Netlink, outcome: &mut Outcome) {
        for (index, address, owner) in &self.missing_addresses {
            outcome.note(owner, netlink.add_address(*index, *address));
        }
        for (route, owner) in self.missing_routes.iter().filter(|(route, _)| is_open(route)) {
            outcome.note(owner, netlink.add_route(*route));
        }
        for rule in &self.unwanted_rules {
            outcome.note("", netlink.remove_rule(*rule));
        }
        for route in &self.unwanted_routes {
            outcome.note("", netlink.remove_route(*route));
        }
    }
}

fn is_open(route: &Route) -> bool {
    matches!(route.way, Way::Link { .. })
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
