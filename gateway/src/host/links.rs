//! Links beside the tunnels, their addresses, and static routes: what a site's router has, as the user has set it.
//!
//! What is ours is marked in the kernel: addresses and routes with the number 217 (`ip address show`, `ip route show proto 217`),
//! and links that were made with their description. So a daemon finds what an earlier one has left, and leaves what others have
//! set. Nothing goes when the daemon ends: the site keeps its network.

use super::leases::{Lease, Leases, TunnelNetworks};
use super::netlink::{KernelRoute, LinkChange, Netlink, NetlinkError, NewLink, RouterLink};
use config::settings::{Link, LinkKind, NextHop, StaticRoute};
use ipnet::{IpNet, Ipv4Net};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

/// The description of a link that we have made.
const MADE: &str = "made by postern";

/// What is wanted of the machine beside the tunnels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Router {
    /// Links by name.
    pub links: BTreeMap<String, Link>,
    /// Static routes.
    pub routes: BTreeSet<StaticRoute>,
}

/// What a comparison with the kernel has found.
#[derive(Debug, Default)]
pub struct Compared {
    /// What went by itself, and is put back.
    pub(super) restored: Vec<String>,
    /// What the kernel refuses of links, by their names.
    pub links: BTreeMap<String, NetlinkError>,
    /// What it refuses of routes, by their prefixes and metrics.
    pub routes: BTreeMap<(IpNet, u32), NetlinkError>,
    /// What it refuses of the default routes of leases, by the names of their links.
    pub leases: BTreeMap<String, NetlinkError>,
}

/// Keeps what is wanted.
#[derive(Default)]
pub(super) struct Links {
    /// None before the first configuration: an earlier daemon may have left something.
    wanted: Option<Router>,
    /// What was wanted before, until the next comparison.
    former: Option<Router>,
    /// What would undo our changes of links of the machine.
    undo: BTreeMap<String, LinkChange>,
    /// What links have got by DHCP.
    leases: Leases,
    /// Addresses of leases that have ended. Linux before 5.18 does not say whose an address is.
    ended: Vec<(String, IpNet)>,
    /// Whether nothing is wanted, and nothing of ours was found.
    is_clean: bool,
}

impl Links {
    /// From now on, this is wanted: the next comparison makes it so.
    pub(super) fn want(&mut self, router: Router) {
        for name in self.leases.gone(&router) {
            let had = self.leases.forget(&name);
            self.ended.extend(had.map(|address| (name, address.into())));
        }
        self.former = self.wanted.replace(router);
        self.is_clean = false;
    }

    /// From now on, a link has this address and router by DHCP, or none: the next comparison makes it so.
    pub(super) fn lease(&mut self, name: &str, lease: Option<Lease>) {
        let ended = self.leases.set(name, lease);
        self.ended.extend(ended.map(|address| (name.to_owned(), address.into())));
        self.is_clean = false;
    }

    /// Whether a lease was refused, and is dropped.
    pub(super) fn lacks_lease(&self, name: &str) -> bool {
        self.leases.lacks(name)
    }

    /// Puts back what is missing, and takes away what is ours and not wanted. What is `protected` by tunnels gets no route.
    pub(super) fn restore(
        &mut self,
        protected: impl FnOnce() -> TunnelNetworks,
        netlink: &mut Netlink,
    ) -> Result<Compared, NetlinkError> {
        let mut compared = Compared::default();
        let Some(wanted) = self.wanted.as_ref().filter(|_| !self.is_clean) else { return Ok(compared) };
        let protected = protected_of(wanted, protected);
        let merged = self.leases.merge(wanted, &protected, &mut compared);
        let (wanted, unknown) = (&merged.router, &merged.unknown);
        let mut links = netlink.router_links()?;
        for found in links.iter().filter(|it| is_made(it) && !wanted.links.contains_key(&it.name)) {
            compared.note_link(&found.name, netlink.delete_link(found.link.index));
        }
        // Members and parents first: bridges and VLANs need them.
        let mut ordered: Vec<(&String, &Link)> = wanted.links.iter().collect();
        ordered.sort_by_key(|(_, link)| &link.kind);
        for (name, link) in ordered {
            let undo = self.undo.entry(name.clone()).or_default();
            let outcome = set_link(name, link, &mut links, undo, netlink, &mut compared.restored);
            compared.note_link(name, outcome);
        }
        for (name, address) in restore_addresses(wanted, unknown, &links, netlink, &mut compared)? {
            self.leases.keep(&name, address);
        }
        for (name, address) in std::mem::take(&mut self.ended) {
            let found = links.iter().find(|it| it.name == name).filter(|_| !keeps_owners());
            if let Some(found) = found.filter(|_| !has_address(wanted, &name, &address)) {
                compared.note_link(&name, netlink.remove_address(found.link.index, address));
            }
        }
        let unknown: BTreeSet<u32> =
            links.iter().filter(|it| unknown.contains(&it.name)).map(|it| it.link.index).collect();
        restore_routes(&wanted.routes, &unknown, &protected, netlink, &mut compared)?;
        compared.part_leases(&merged.routes);
        self.is_clean =
            *wanted == Router::default() && compared.links.is_empty() && compared.routes.is_empty();
        self.undo(&links, netlink, &mut compared);
        Ok(compared)
    }

    /// Undoes what was changed of links and is not wanted any more. A link that was down stays up: it may be in use now.
    fn undo(&mut self, links: &[RouterLink], netlink: &mut Netlink, compared: &mut Compared) {
        let (Some(wanted), former) = (&self.wanted, self.former.take()) else { return };
        for found in links {
            let now = wanted.links.get(&found.name);
            if let Some(undo) = self.undo.get_mut(&found.name) {
                let mtu = undo.mtu.take_if(|_| now.is_none_or(|now| now.mtu.is_none()));
                let up = undo.up.take_if(|up| *up && now.is_none());
                if mtu.is_some() || up.is_some() {
                    let change = LinkChange { up, mtu, ..LinkChange::default() };
                    compared.note_link(&found.name, netlink.set_link(found.link.index, change));
                }
            }
            // Linux before 5.18 does not say whose an address is: there it is removed by its value.
            let before = former.as_ref().and_then(|former| former.links.get(&found.name));
            for address in before.filter(|_| !keeps_owners()).iter().flat_map(|before| &before.addresses) {
                if !now.is_some_and(|now| now.addresses.contains(address)) {
                    let outcome = netlink.remove_address(found.link.index, *address);
                    compared.note_link(&found.name, outcome);
                }
            }
        }
        self.undo.retain(|name, _| wanted.links.contains_key(name));
    }
}

impl Compared {
    pub(super) fn note_link(&mut self, name: &str, outcome: Result<(), NetlinkError>) {
        self.links.extend(outcome.err().map(|error| (name.to_owned(), error)));
    }

    /// Tells what is refused of leases from what is refused of static routes.
    fn part_leases(&mut self, of_leases: &BTreeMap<(IpNet, u32), String>) {
        for (place, name) in of_leases {
            self.leases.extend(self.routes.remove(place).map(|error| (name.clone(), error)));
        }
    }
}

/// Whether a link gets an address by DHCP.
pub(super) fn gets_address(link: &Link) -> bool {
    link.dhcp.is_some() && !link.is_disabled
}

fn has_address(wanted: &Router, name: &str, address: &IpNet) -> bool {
    wanted.links.get(name).is_some_and(|link| link.addresses.contains(address))
}

/// What tunnels protect, where it matters: of thousands of peers it is large.
fn protected_of(wanted: &Router, protected: impl FnOnce() -> TunnelNetworks) -> TunnelNetworks {
    let matters = !wanted.routes.is_empty() || wanted.links.values().any(gets_address);
    if matters { protected() } else { TunnelNetworks::default() }
}

/// Sets addresses; those that an earlier daemon has left, and stay until more is known.
fn restore_addresses(
    wanted: &Router,
    unknown: &BTreeSet<String>,
    links: &[RouterLink],
    netlink: &mut Netlink,
    compared: &mut Compared,
) -> Result<Vec<(String, Ipv4Net)>, NetlinkError> {
    let mut left = Vec::new();
    let present = netlink.router_addresses()?;
    let names: BTreeMap<u32, &str> = links.iter().map(|it| (it.link.index, it.name.as_str())).collect();
    for &(index, address, is_ours) in &present {
        let Some(name) = names.get(&index) else { continue };
        let link = wanted.links.get(*name);
        let is_left = unknown.contains(*name) && address.addr().is_ipv4();
        if let IpNet::V4(address) = address
            && is_ours
            && is_left
        {
            left.push(((*name).to_owned(), address));
        }
        if is_ours && !is_left && !link.is_some_and(|link| link.addresses.contains(&address)) {
            compared.note_link(name, netlink.remove_address(index, address));
        }
    }
    let present: BTreeSet<(u32, IpNet)> = present.into_iter().map(|(index, net, _)| (index, net)).collect();
    for (index, name) in names {
        let link = wanted.links.get(name).filter(|link| !link.is_disabled);
        for address in link.iter().flat_map(|link| &link.addresses) {
            if present.contains(&(index, *address)) {
                continue;
            }
            let added = netlink.add_router_address(index, *address);
            if added.is_ok() {
                compared.restored.push(format!("the address {address} of {name}"));
            }
            compared.note_link(name, added);
        }
    }
    Ok(left)
}

/// Whether this kernel keeps who has set an address (`IFA_PROTO`).
fn keeps_owners() -> bool {
    let system = rustix::system::uname();
    is_since_5_18(system.release().to_str().unwrap_or_default())
}

fn is_since_5_18(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (5, 18)
}

fn is_made(found: &RouterLink) -> bool {
    found.alias.as_deref() == Some(MADE)
}

/// Makes a link what it is to be, but for its addresses.
fn set_link(
    name: &str,
    wanted: &Link,
    links: &mut Vec<RouterLink>,
    undo: &mut LinkChange,
    netlink: &mut Netlink,
    restored: &mut Vec<String>,
) -> Result<(), NetlinkError> {
    let index_of = |name: &str| {
        let found = links.iter().find(|found| found.name == name);
        found.map(|found| found.link.index).ok_or_else(|| absent(name))
    };
    let new = match &wanted.kind {
        LinkKind::Existing => None,
        LinkKind::Dummy => Some(NewLink::Dummy),
        LinkKind::Bridge(_) => Some(NewLink::Bridge),
        LinkKind::Vlan { parent, id } => Some(NewLink::Vlan(index_of(parent)?, *id)),
    };
    let found = links.iter().find(|found| found.name == name);
    let link = match (found, new) {
        (Some(found), Some(_)) if !is_made(found) => return Err(of_another(name)),
        (Some(found), _) => found.link,
        (None, None) => return Err(absent(name)),
        (None, Some(new)) => {
            let link = netlink.add_link(name, &new, MADE).map_err(|error| unsupported(error, &new))?;
            restored.push(format!("the interface {name}"));
            links.push(RouterLink { link, name: name.to_owned(), bridge: 0, alias: Some(MADE.to_owned()) });
            link
        }
    };
    if let Some(mtu) = wanted.mtu.filter(|mtu| *mtu != link.mtu) {
        undo.mtu.get_or_insert(link.mtu);
        netlink.set_link(link.index, LinkChange { mtu: Some(mtu), ..LinkChange::default() })?;
    }
    if link.up == wanted.is_disabled {
        undo.up.get_or_insert(link.up);
        netlink
            .set_link(link.index, LinkChange { up: Some(!wanted.is_disabled), ..LinkChange::default() })?;
    }
    let LinkKind::Bridge(members) = &wanted.kind else { return Ok(()) };
    for found in links.iter().filter(|it| it.bridge == link.index && !members.contains(&it.name)) {
        netlink.set_link(found.link.index, LinkChange { bridge: Some(0), ..LinkChange::default() })?;
    }
    for member in members {
        let found = links.iter().find(|found| found.name == *member).ok_or_else(|| absent(member))?;
        if found.bridge != link.index {
            let change = LinkChange { bridge: Some(link.index), up: Some(true), ..LinkChange::default() };
            netlink.set_link(found.link.index, change)?;
        }
    }
    Ok(())
}

fn absent(name: &str) -> NetlinkError {
    NetlinkError {
        what: format!("interface {name}"),
        error: Errno::NODEV,
        fix: "\n  fix: ip -brief link shows the interfaces of this machine; it is served when it is there"
            .to_owned(),
    }
}

/// A kernel without a kind of links says only that it does not support it.
fn unsupported(error: NetlinkError, new: &NewLink) -> NetlinkError {
    if error.error != Errno::OPNOTSUPP {
        return error;
    }
    let module = match new {
        NewLink::Dummy => "dummy",
        NewLink::Bridge => "bridge",
        NewLink::Vlan(..) => "8021q",
    };
    NetlinkError { fix: format!("\n  fix: modprobe {module}, and reload; or a kernel that has it"), ..error }
}

fn of_another(name: &str) -> NetlinkError {
    NetlinkError {
        what: format!("interface {name} is there already, of another program"),
        error: Errno::EXIST,
        fix: format!("\n  fix: ip link delete {name} and reload, or take another name"),
    }
}

/// There is one route for a prefix and a metric.
type Place = (IpNet, u32);

fn restore_routes(
    wanted: &BTreeSet<StaticRoute>,
    unknown: &BTreeSet<u32>,
    protected: &TunnelNetworks,
    netlink: &mut Netlink,
    compared: &mut Compared,
) -> Result<(), NetlinkError> {
    let mut routes: BTreeMap<Place, KernelRoute> = BTreeMap::new();
    for route in wanted {
        // Also what a server pushes: while its tunnel is down, packets would leave in clear.
        let leads_around = protected.contains(&route.prefix)
            && route.prefix.prefix_len() > 0
            && route.next_hop != NextHop::Blackhole;
        let of_kernel = if leads_around { Err(around_a_tunnel(route)) } else { in_kernel(route, netlink) };
        match of_kernel {
            Ok(of_kernel) => _ = routes.insert((route.prefix, of_kernel.metric), of_kernel),
            Err(error) => _ = compared.routes.insert((route.prefix, route.distance.into()), error),
        }
    }
    for found in netlink.static_routes()? {
        let place = (found.prefix, found.metric);
        let outcome = match routes.get(&place) {
            Some(wanted) if wanted.matches(&found) => {
                routes.remove(&place);
                Ok(())
            }
            // The default route of a lease that an earlier daemon has left.
            None if found.prefix.prefix_len() == 0 && found.index.is_some_and(|it| unknown.contains(&it)) => {
                Ok(())
            }
            _ => netlink.remove_static_route(found),
        };
        compared.routes.extend(outcome.err().map(|error| (place, error)));
    }
    for route in routes.into_values() {
        match netlink.add_static_route(route) {
            Ok(()) => compared.restored.push(format!("the route {}", route.prefix)),
            Err(error) => _ = compared.routes.insert((route.prefix, route.metric), error),
        }
    }
    Ok(())
}

fn around_a_tunnel(route: &StaticRoute) -> NetlinkError {
    NetlinkError {
        what: format!("route {}: a tunnel protects it, and packets would go around the tunnel", route.prefix),
        error: Errno::EXIST,
        fix: "\n  fix: take the static route out of the configuration".to_owned(),
    }
}

fn in_kernel(route: &StaticRoute, netlink: &mut Netlink) -> Result<KernelRoute, NetlinkError> {
    let mut index = |name: &String| netlink.link(name).map(|link| link.index).map_err(|_| absent(name));
    let (gateway, index) = match &route.next_hop {
        NextHop::Gateway(address, None) => (Some(*address), None),
        NextHop::Gateway(address, Some(name)) => (Some(*address), Some(index(name)?)),
        NextHop::Interface(name) => (None, Some(index(name)?)),
        NextHop::Blackhole => (None, None),
    };
    Ok(KernelRoute { prefix: route.prefix, gateway, index, metric: route.distance.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_of_addresses_are_kept_since_linux_5_18() {
        for (release, keeps) in
            [("6.1.0-18-amd64", true), ("5.18", true), ("5.17.9-rc1", false), ("4.19.0", false), ("", false)]
        {
            assert_eq!(is_since_5_18(release), keeps, "{release}");
        }
    }
}
