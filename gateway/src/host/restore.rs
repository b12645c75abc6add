//! Compares the wanted state with the actual one. Additions that close come first, then additions that open, then removals:
//! no protected packet leaves in between.

use super::guard::Protected;
use super::links::Compared;
use super::netlink::{MAIN_TABLE, Netlink, NetlinkError, Route, Rule, Way};
use super::networks::{MARK, Surroundings, TABLES};
use super::present::Kernel;
use super::sharing::{self, Shared, Sharing};
use super::wants::Wants;
use ipnet::IpNet;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The result of a comparison.
#[derive(Default)]
pub(super) struct Outcome {
    /// What was not there and must always be.
    pub(super) restored: Vec<String>,
    /// What was refused, by the name of the interface that it is for.
    pub(super) errors: Vec<(String, NetlinkError)>,
    /// What was found of links and static routes.
    pub(super) router: Compared,
}

impl Outcome {
    /// The first error of an interface; those of others are logged.
    pub(super) fn of(mut self, name: &str) -> Result<(), NetlinkError> {
        let own = self.errors.iter().position(|(of, _)| of == name).map(|at| self.errors.remove(at).1);
        self.log();
        own.map_or(Ok(()), Err)
    }

    /// Tells of links and static routes as of the rest. What a link that is away or down explains is not told again and again.
    pub(super) fn tell_router(&mut self) {
        let is_told = |error: &NetlinkError| {
            !matches!(error.error, Errno::NODEV | Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN)
        };
        let Compared { restored, links, routes, leases } = std::mem::take(&mut self.router);
        self.restored.extend(restored);
        self.errors.extend(links.into_iter().filter(|(_, error)| is_told(error)));
        let routes = routes.into_iter().filter(|(_, error)| is_told(error));
        self.errors.extend(routes.map(|((prefix, _), error)| (format!("route {prefix}"), error)));
        self.errors.extend(leases.into_iter().filter(|(_, error)| is_told(error)));
    }

    pub(super) fn log(&self) {
        for (name, error) in &self.errors {
            tracing::warn!("{}: {error}", shown(name));
        }
    }

    /// A table was made again, or was not.
    pub(super) fn note_table(&mut self, table: &str, restored: io::Result<bool>) {
        match restored {
            Ok(restored) => self.restored.extend(restored.then(|| table.to_owned())),
            Err(error) => {
                let error = NetlinkError::new("it is not put back", &error);
                self.errors.push((table.to_owned(), error));
            }
        }
    }

    fn note(&mut self, owner: &str, outcome: Result<(), NetlinkError>) {
        self.errors.extend(outcome.err().map(|error| (owner.to_owned(), error)));
    }
}

/// What an error is about: an interface, or a route that the user has set.
pub(super) fn shown(name: &str) -> String {
    if name.contains(' ') { name.to_owned() } else { format!("interface {name}") }
}

/// What differs.
pub(super) struct Plan<'a> {
    /// All rules that are wanted.
    rules: BTreeMap<Rule, &'a str>,
    missing_rules: Vec<(Rule, &'a str)>,
    /// Those that lead nowhere come first.
    missing_routes: Vec<(Route, &'a str)>,
    missing_addresses: Vec<(u32, IpNet, &'a str)>,
    unwanted_rules: Vec<Rule>,
    unwanted_routes: Vec<Route>,
}

/// What the kernel is to have, by the names of the interfaces that it is for.
pub(super) type Wanted = BTreeMap<String, Wants>;

/// What must not leave in clear.
pub(super) fn protected(wanted: &Wanted) -> Protected {
    let interfaces = wanted.keys().filter(|name| *name != sharing::OWNER).cloned().collect();
    let mut protected = Protected { interfaces, ..Protected::default() };
    for networks in wanted.values().map(|wants| &wants.networks).filter(|networks| !networks.is_empty()) {
        protected.pairs.extend(networks.pairs());
        protected.exceptions.extend(networks.exceptions());
    }
    protected
}

/// All that is wanted, with the interfaces that it is for.
#[derive(Default)]
struct Collected<'a> {
    rules: BTreeMap<Rule, &'a str>,
    routes: BTreeMap<Route, &'a str>,
    /// Those of the routes.
    places: BTreeSet<Place>,
    /// Those of networks behind several tunnels, which the others leave alone.
    reserved: BTreeSet<Place>,
    missing_addresses: Vec<(u32, IpNet, &'a str)>,
    /// Links that are there and have routes or addresses of ours.
    indices: BTreeSet<u32>,
}

impl<'a> Collected<'a> {
    /// Adds what does not depend on others.
    fn add(&mut self, netlink: &mut Netlink, name: &'a str, wants: &Wants) -> Result<(), NetlinkError> {
        self.rules.extend(wants.rules.iter().map(|rule| (*rule, name)));
        let closed = wants.closed.iter();
        self.add_routes(name, closed.map(|&(prefix, table)| Route { prefix, table, way: Way::Nowhere }));
        let onward = wants.onward.iter();
        self.add_routes(name, onward.map(|&(prefix, table)| Route { prefix, table, way: Way::Onward }));
        if wants.routes.is_empty() && wants.addresses.is_empty() {
            return Ok(());
        }
        // Nothing can lead to a link that is down, or to none.
        let Ok(link) = netlink.link(name) else { return Ok(()) };
        self.indices.insert(link.index);
        if !link.up {
            return Ok(());
        }
        let present = netlink.addresses(Some(link.index))?;
        let missing = wants.addresses.iter().filter(|address| !present.contains(address));
        self.missing_addresses.extend(missing.map(|&address| (link.index, address, name)));
        let route = |&(prefix, table): &(IpNet, u32)| {
            // 1024 is the kernel's own of IPv6, which is read back as none.
            let metric = wants.metrics.get(&(prefix, table)).copied().filter(|it| *it != 1024).unwrap_or(0);
            Route { prefix, table, way: Way::Link { index: link.index, source: None, metric } }
        };
        self.add_routes(name, wants.routes.iter().map(route));
        Ok(())
    }

    /// Adds routes, unless another interface has a route of the same place. Only one of them fits, and each would replace the
    /// other for ever. The first interface by name gets it, whatever the kernel has: the configuration alone decides.
    fn add_routes(&mut self, name: &'a str, routes: impl IntoIterator<Item = Route>) {
        for route in routes {
            if !self.reserved.contains(&place(route)) && self.places.insert(place(route)) {
                self.routes.insert(route, name);
            }
        }
    }

    /// Adds the routes to networks behind several tunnels, before those that each tunnel has for itself: in the table of policies, which
    /// precedes all others, if one of the tunnels has such.
    fn add_shared(&mut self, netlink: &mut Netlink, sharing: &'a Sharing, wanted: &Wanted) {
        let has_policy = |name: &String, prefix: &IpNet| {
            wanted.get(name).is_some_and(|wants| wants.networks.behind.contains_key(prefix))
        };
        for (&prefix, shared) in sharing {
            let others = shared.members.iter().filter(|name| !has_policy(name, &prefix));
            self.indices.extend(others.filter_map(|name| Some(netlink.link(name).ok()?.index)));
            if has_policy(&shared.active, &prefix) {
                continue;
            }
            let has_table = shared.members.iter().any(|name| has_policy(name, &prefix));
            let table = if has_table { MARK } else { MAIN_TABLE };
            let link = netlink.link(&shared.active).ok().filter(|link| link.up);
            let way = Way::Link { index: link.map_or(0, |link| link.index), source: None, metric: 0 };
            let route = Route { prefix, table, way };
            // Nobody else leads there, also while the link is down.
            self.reserved.insert(place(route));
            if link.is_some() && self.places.insert(place(route)) {
                self.routes.insert(route, &shared.active);
            }
        }
    }

    /// Adds what depends on the addresses of this machine, and on the networks of `others` and of other tunnels that lead to the same.
    fn add_networks(
        &mut self,
        netlink: &mut Netlink,
        name: &'a str,
        wants: &Wants,
        addresses: &[IpNet],
        others: &BTreeSet<IpNet>,
        sharing: &Sharing,
    ) {
        let networks = &wants.networks;
        if networks.is_empty() {
            return;
        }
        let link = if networks.is_served { netlink.link(name).ok() } else { None };
        let index = link.filter(|link| link.up).map(|link| link.index);
        let is_elsewhere = |shared: &Shared| shared.active != name && shared.members.contains(name);
        let elsewhere = sharing.iter().filter(|(_, shared)| is_elsewhere(shared));
        let elsewhere = elsewhere.map(|(prefix, _)| *prefix).collect();
        let around = Surroundings { index, addresses, others, elsewhere };
        let routes = networks.routes(&around, |to| netlink.outside(to, MARK).ok()?.source);
        self.add_routes(name, routes);
        self.rules.extend(networks.rules(addresses).into_iter().map(|rule| (rule, name)));
    }
}

/// The table and the mark of a process for one interface: other routes without a link, and other rules, are those of other
/// processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// The table.
    pub table: u32,
    /// The mark.
    pub mark: u32,
}

impl Own {
    fn has_rule(self, rule: &Rule) -> bool {
        match rule {
            Rule::NotMarked { table, .. } => *table == self.table,
            Rule::MainBefore { mark, .. } => *mark == self.mark,
            _ => false,
        }
    }
}

/// Compares with what is there. What is not wanted is removed: of all that there is, or of what is a process's own.
pub(super) fn plan<'a>(
    wanted: &'a Wanted,
    sharing: &'a Sharing,
    kernel: &mut Kernel,
    own: Option<Own>,
) -> Result<Plan<'a>, NetlinkError> {
    let netlink = &mut kernel.netlink;
    let addresses = netlink.addresses(None)?;
    let mut collected = Collected::default();
    collected.add_shared(netlink, sharing, wanted);
    for (name, wants) in wanted {
        collected.add(netlink, name, wants)?;
    }
    let others = wanted.values().flat_map(|wants| &wants.closed).map(|(prefix, _)| *prefix);
    let others = others.filter(|prefix| prefix.prefix_len() > 0).collect();
    for (name, wants) in wanted {
        collected.add_networks(netlink, name, wants, &addresses, &others, sharing);
    }
    let Collected { rules, mut routes, places, missing_addresses, indices, .. } = collected;
    let present = kernel.routes()?;
    let is_ours = |route: &Route| match route.way {
        Way::Link { index, .. } => indices.contains(&index) || TABLES.contains(&route.table),
        Way::Nowhere | Way::Onward => own.is_none_or(|own| own.table == route.table),
    };
    let unwanted = |route: &Route| is_ours(route) && !places.contains(&place(*route));
    let unwanted_routes = present.iter().copied().filter(unwanted).collect();
    routes.retain(|route, _| !present.contains(route));
    let mut missing_routes: Vec<_> = routes.into_iter().collect();
    missing_routes.sort_by_key(|(route, _)| order(route.way));
    let present = kernel.netlink.rules()?;
    let missing_rules = rules.iter().filter(|(rule, _)| !present.contains(rule));
    let missing_rules = missing_rules.map(|(rule, name)| (*rule, *name)).collect();
    let is_ours = |rule: &Rule| own.is_none_or(|own| own.has_rule(rule));
    let unwanted = |rule: &Rule| is_ours(rule) && !rules.contains_key(rule);
    let unwanted_rules = present.into_iter().filter(unwanted).collect();
    Ok(Plan { rules, missing_rules, missing_routes, missing_addresses, unwanted_rules, unwanted_routes })
}

impl Plan<'_> {
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

/// Prefix, table, and the order that the way sets.
type Place = (IpNet, u32, u8);

/// Routes of the same place take the place of each other.
fn place(route: Route) -> Place {
    (route.prefix, route.table, order(route.way))
}
