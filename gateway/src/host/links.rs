//! Links beside the tunnels, their addresses, and static routes: what a site's router has, as the user has set it.
//!
//! What is ours is marked in the kernel: addresses and routes with the number 217 (`ip address show`, `ip route show proto 217`),
//! and links that were made with their description. So a daemon finds what an earlier one has left, and leaves what others have
//! set. Nothing goes when the daemon ends: the site keeps its network.

use super::netlink::{KernelRoute, LinkChange, Netlink, NetlinkError, NewLink, RouterLink};
use super::restore::Outcome;
use config::settings::{Link, LinkKind, NextHop, StaticRoute};
use ipnet::IpNet;
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
#[derive(Default)]
pub struct Compared {
    /// What went by itself, and is put back.
    pub(super) restored: Vec<String>,
    /// What the kernel refuses of links, by their names.
    pub links: BTreeMap<String, NetlinkError>,
    /// What it refuses of routes.
    pub routes: Vec<(StaticRoute, NetlinkError)>,
}

impl Compared {
    /// Tells what was put back, and what was refused. What a link that is away or down explains is not told again and again.
    pub(super) fn add_to(self, outcome: &mut Outcome) {
        let is_told = |error: &NetlinkError| {
            !matches!(error.error, Errno::NODEV | Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN)
        };
        outcome.restored.extend(self.restored);
        outcome.errors.extend(self.links.into_iter().filter(|(_, error)| is_told(error)));
        let routes = self.routes.into_iter().filter(|(_, error)| is_told(error));
        outcome.errors.extend(routes.map(|(route, error)| (format!("route {}", route.prefix), error)));
    }
}

/// The MTU of a link, and whether it was up.
type Before = (u32, bool);

/// Keeps what is wanted.
#[derive(Default)]
pub(super) struct Links {
    /// None before the first configuration: an earlier daemon may have left something.
    wanted: Option<Router>,
    /// What links of the machine were before they were changed.
    before: BTreeMap<String, Before>,
}

impl Links {
    /// Makes all of it so, and takes away what is ours and not wanted. What is `protected` by tunnels gets no route.
    pub(super) fn set(
        &mut self,
        router: Router,
        protected: &BTreeSet<IpNet>,
        netlink: &mut Netlink,
    ) -> Result<Compared, NetlinkError> {
        let before = self.wanted.replace(router).unwrap_or_default();
        let compared = self.restore(protected, netlink)?;
        // Linux before 5.18 does not say whose an address is: there it is removed by its value.
        if !keeps_owners(rustix::system::uname().release().to_str().unwrap_or_default()) {
            self.forget_addresses(&before, netlink)?;
        }
        self.put_back(netlink)?;
        Ok(compared)
    }

    /// Puts back what is missing, and takes away what is ours and not wanted.
    pub(super) fn restore(
        &mut self,
        protected: &BTreeSet<IpNet>,
        netlink: &mut Netlink,
    ) -> Result<Compared, NetlinkError> {
        let mut compared = Compared::default();
        let Some(wanted) = &self.wanted else { return Ok(compared) };
        let mut links = netlink.router_links()?;
        for found in &links {
            if is_made(found) && !wanted.links.contains_key(&found.name) {
                netlink.delete_link(found.link.index)?;
            }
        }
        // Members and parents first: bridges and VLANs need them.
        let mut ordered: Vec<(&String, &Link)> = wanted.links.iter().collect();
        ordered.sort_by_key(|(_, link)| &link.kind);
        for (name, link) in ordered {
            let found = links.iter().find(|found| found.name == *name && !is_made(found));
            if let Some(found) = found {
                self.before.entry(name.clone()).or_insert((found.link.mtu, found.link.up));
            }
            if let Err(error) = set_link(name, link, &mut links, netlink, &mut compared.restored) {
                compared.links.insert(name.clone(), error);
            }
        }
        restore_addresses(wanted, &links, netlink, &mut compared)?;
        restore_routes(&wanted.routes, protected, netlink, &mut compared)?;
        Ok(compared)
    }

    /// Gives links that are no longer configured the MTU that they had, and sets them up if they were.
    fn put_back(&mut self, netlink: &mut Netlink) -> Result<(), NetlinkError> {
        let Some(wanted) = &self.wanted else { return Ok(()) };
        for (name, (mtu, up)) in &self.before {
            let now = wanted.links.get(name);
            let Ok(link) = netlink.link(name) else { continue };
            let mtu = Some(*mtu).filter(|mtu| now.is_none_or(|now| now.mtu.is_none()) && *mtu != link.mtu);
            let up = Some(*up).filter(|up| now.is_none() && *up && !link.up);
            if mtu.is_some() || up.is_some() {
                netlink.set_link(link.index, LinkChange { up, mtu, ..LinkChange::default() })?;
            }
        }
        self.before.retain(|name, _| wanted.links.contains_key(name));
        Ok(())
    }

    fn forget_addresses(&self, before: &Router, netlink: &mut Netlink) -> Result<(), NetlinkError> {
        let Some(wanted) = &self.wanted else { return Ok(()) };
        for (name, link) in &before.links {
            let now = wanted.links.get(name);
            let Ok(index) = netlink.link(name).map(|link| link.index) else { continue };
            let is_gone = |address: &&IpNet| !now.is_some_and(|now| now.addresses.contains(*address));
            for address in link.addresses.iter().filter(is_gone) {
                netlink.remove_address(index, *address)?;
            }
        }
        Ok(())
    }
}

fn restore_addresses(
    wanted: &Router,
    links: &[RouterLink],
    netlink: &mut Netlink,
    compared: &mut Compared,
) -> Result<(), NetlinkError> {
    let names: BTreeMap<u32, String> =
        links.iter().map(|found| (found.link.index, found.name.clone())).collect();
    let present = netlink.router_addresses()?;
    for &(index, address, is_ours) in &present {
        let link = names.get(&index).and_then(|name| wanted.links.get(name));
        if is_ours && !link.is_some_and(|link| link.addresses.contains(&address)) {
            netlink.remove_address(index, address)?;
        }
    }
    for (index, name) in &names {
        let Some(link) = wanted.links.get(name).filter(|link| !link.is_disabled) else { continue };
        let has = |address: &IpNet| present.iter().any(|(of, it, _)| of == index && it == address);
        for address in link.addresses.iter().filter(|address| !has(address)) {
            match netlink.add_router_address(*index, *address) {
                Ok(()) => compared.restored.push(format!("the address {address} of {name}")),
                Err(error) => _ = compared.links.insert(name.clone(), error),
            }
        }
    }
    Ok(())
}

/// Whether a kernel of this release keeps who has set an address (`IFA_PROTO`).
fn keeps_owners(release: &str) -> bool {
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
            netlink.add_link(name, &new, MADE).map_err(|error| unsupported(error, &new))?;
            restored.push(format!("the interface {name}"));
            let link = netlink.link(name)?;
            links.push(RouterLink { link, name: name.to_owned(), bridge: 0, alias: Some(MADE.to_owned()) });
            link
        }
    };
    if let Some(mtu) = wanted.mtu.filter(|mtu| *mtu != link.mtu) {
        netlink.set_link(link.index, LinkChange { mtu: Some(mtu), ..LinkChange::default() })?;
    }
    if link.up == wanted.is_disabled {
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

fn restore_routes(
    wanted: &BTreeSet<StaticRoute>,
    protected: &BTreeSet<IpNet>,
    netlink: &mut Netlink,
    compared: &mut Compared,
) -> Result<(), NetlinkError> {
    let mut routes = Vec::new();
    for route in wanted {
        // Also what a server pushes: while its tunnel is down, packets would leave in clear.
        if protected.contains(&route.prefix)
            && route.prefix.prefix_len() > 0
            && route.next_hop != NextHop::Blackhole
        {
            compared.routes.push((route.clone(), around_a_tunnel(route)));
            continue;
        }
        match in_kernel(route, netlink) {
            Ok(of_kernel) => routes.push((route, of_kernel)),
            Err(error) => compared.routes.push((route.clone(), error)),
        }
    }
    let present = netlink.static_routes()?;
    for found in present.iter().filter(|found| !routes.iter().any(|(_, wanted)| wanted.matches(found))) {
        netlink.remove_static_route(*found)?;
    }
    for (route, of_kernel) in routes {
        if present.iter().any(|found| of_kernel.matches(found)) {
            continue;
        }
        match netlink.add_static_route(of_kernel) {
            Ok(()) => compared.restored.push(format!("the route {}", route.prefix)),
            Err(error) => compared.routes.push((route.clone(), error)),
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
            assert_eq!(keeps_owners(release), keeps, "{release}");
        }
    }
}
