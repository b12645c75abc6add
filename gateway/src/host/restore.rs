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
use std::collections::btree_map::Entry;
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

    /// Whether something was refused that may be accepted later. What a link that is away or down explains comes back with the link.
    pub(super) fn is_refused(&self) -> bool {
        let Compared { links, routes, leases, .. } = &self.router;
        let errors = links.values().chain(routes.values()).chain(leases.values());
        !self.errors.is_empty() || errors.into_iter().any(is_told)
    }

    /// Tells of links and static routes as of the rest. What a link that is away or down explains is not told again and again.
    pub(super) fn tell_router(&mut self) {
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

    /// Something that must always be there was put back, or was not.
    fn note_restored(&mut self, owner: &str, what: String, outcome: Result<(), NetlinkError>) {
        self.restored.extend(outcome.is_ok().then_some(what));
        self.note(owner, outcome);
    }

    fn note(&mut self, owner: &str, outcome: Result<(), NetlinkError>) {
        self.errors.extend(outcome.err().map(|error| (owner.to_owned(), error)));
    }
}

fn is_told(error: &NetlinkError) -> bool {
    !matches!(error.error, Errno::NODEV | Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN)
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
    /// Those of the routes, with their metrics.
    places: BTreeMap<Place, Option<u32>>,
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
            if !self.reserved.contains(&place(route)) {
                self.add_route(name, route);
            }
        }
    }

    fn add_route(&mut self, name: &'a str, route: Route) {
        if let Entry::Vacant(vacant) = self.places.entry(place(route)) {
            vacant.insert(route.way.metric());
            self.routes.insert(route, name);
        }
    }

    /// Whether a route has a place that is not wanted, or is beside the route that is wanted there: the kernel replaces a route by one
    /// of the same metric only.
    fn is_unwanted(&self, route: Route) -> bool {
        self.places.get(&place(route)) != Some(&route.way.metric())
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
            if link.is_some() {
                self.add_route(&shared.active, route);
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
    let present = kernel.routes()?;
    let is_ours = |route: &Route| match route.way {
        Way::Link { index, .. } => collected.indices.contains(&index) || TABLES.contains(&route.table),
        Way::Nowhere | Way::Onward => own.is_none_or(|own| own.table == route.table),
    };
    let unwanted = |route: &Route| is_ours(route) && collected.is_unwanted(*route);
    let unwanted_routes = present.iter().copied().filter(unwanted).collect();
    let Collected { rules, mut routes, missing_addresses, .. } = collected;
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
            let what = format!("the route {} of table {}", route.prefix, route.table);
            outcome.note_restored(owner, what, netlink.add_route(*route));
        }
        for (rule, owner) in &self.missing_rules {
            let what = format!("the rule {}", rule.priority());
            outcome.note_restored(owner, what, netlink.add_rule(*rule));
        }
    }

    /// Adds addresses and the routes into tunnels, and removes what is not wanted.
    pub(super) fn open(&self, netlink: &mut Netlink, outcome: &mut Outcome) {
        for (index, address, owner) in &self.missing_addresses {
            outcome.note(owner, netlink.add_address(*index, *address));
        }
        let mut refused = BTreeSet::new();
        for (route, owner) in self.missing_routes.iter().filter(|(route, _)| is_open(route)) {
            let added = netlink.add_route(*route);
            refused.extend(added.is_err().then(|| place(*route)));
            outcome.note(owner, added);
        }
        for rule in &self.unwanted_rules {
            outcome.note("", netlink.remove_rule(*rule));
        }
        // The route of another metric stays until the one that is wanted takes its place.
        for route in self.unwanted_routes.iter().filter(|route| !refused.contains(&place(**route))) {
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

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;
    use lab::Lab;
    use std::process::Command;

    /// A namespace with a link that is called `tunnel`.
    fn lab() -> Option<Lab> {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("NO_SKIP").is_none(), "needs root to make network namespaces");
            eprintln!("SKIPPED: needs root to make network namespaces");
            return None;
        }
        let lab = Lab::new(&["metrics", "far"]).expect("root can make namespaces");
        let (near, far) = (("metrics", "tunnel", "192.0.2.1/24"), ("far", "outside", "192.0.2.9/24"));
        lab.connect(near, far).expect("veth exists");
        Some(lab)
    }

    fn ip(arguments: &str) -> String {
        let done = Command::new("ip").args(arguments.split(' ')).output().expect("ip is there");
        assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("text")
    }

    /// What leads to `prefix` by the link `tunnel`, once this metric is wanted.
    fn routes_with(state: &mut State, prefix: &str, metric: u32) -> Vec<String> {
        let prefix: IpNet = prefix.parse().expect("literal");
        let key = (prefix, MAIN_TABLE);
        let wants = Wants { routes: [key].into(), metrics: [(key, metric)].into(), ..Wants::default() };
        state.want("tunnel", wants);
        state.restore_all().expect("nothing is refused");
        let family = if prefix.addr().is_ipv4() { "-4" } else { "-6" };
        let shown = ip(&format!("{family} route show {prefix} dev tunnel"));
        shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn a_route_with_a_new_metric_takes_the_place_of_the_former_one() {
        let Some(lab) = lab() else { return };
        lab.enter("metrics", || {
            let mut state = State::default();
            for prefix in ["10.0.0.0/8", "fd00:1::/32"] {
                let has = if prefix.starts_with("10.") { "" } else { " metric 1024" };
                for metric in [10, 200, 0, 10, 0, 200] {
                    let shown = routes_with(&mut state, prefix, metric);
                    let has = if metric == 0 { has.to_owned() } else { format!(" metric {metric}") };
                    assert_eq!(shown.len(), 1, "metric {metric}: {shown:?}");
                    assert!(
                        format!("{} ", shown[0]).contains(&format!("{has} ")),
                        "metric {metric}: {shown:?}"
                    );
                }
            }
        })
        .expect("the namespace is there");
    }

    #[test]
    fn a_route_stays_while_its_new_metric_is_refused() {
        let Some(lab) = lab() else { return };
        lab.enter("metrics", || {
            let mut state = State::default();
            let (prefix, place) = ("10.0.0.0/8", "10.0.0.0/8 metric 200");
            assert_eq!(routes_with(&mut state, prefix, 10).len(), 1);
            ip(&format!("route add unreachable {place}"));
            let wanted = state.wanted.get_mut("tunnel").expect("it was wanted");
            wanted.metrics.values_mut().for_each(|metric| *metric = 200);
            state.restore_all().expect_err("another program has the place");
            assert!(ip("route show 10.0.0.0/8 dev tunnel").contains("metric 10 "));
            ip(&format!("route delete unreachable {place}"));
            assert_eq!(routes_with(&mut state, prefix, 200).len(), 1);
        })
        .expect("the namespace is there");
    }
}
