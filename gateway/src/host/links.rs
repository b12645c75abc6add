//! Links beside the tunnels, their addresses, and static routes: what a site's router has, as the user has set it.
//!
//! What is ours is marked in the kernel: addresses and routes with the number 217 (`ip address show`, `ip route show proto 217`),
//! and links that were made with their description. So a daemon finds what an earlier one has left, and leaves what others have
//! set. Nothing goes when the daemon ends: the site keeps its network.

use super::netlink::{KernelRoute, LinkChange, Netlink, NetlinkError, NewLink, RouterLink};
use config::settings::{Link, LinkKind, StaticRoute, StaticWay};
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

/// Keeps what is wanted.
#[derive(Default)]
pub(super) struct Links {
    /// None before the first configuration: an earlier daemon may have left something.
    wanted: Option<Router>,
}

impl Links {
    /// Makes all of it so, and takes away what is ours and not wanted.
    pub(super) fn set(&mut self, router: Router, netlink: &mut Netlink) -> Result<Compared, NetlinkError> {
        let before = self.wanted.replace(router).unwrap_or_default();
        let compared = self.restore(netlink)?;
        // A kernel that does not keep whose an address is.
        self.forget_addresses(&before, netlink)?;
        Ok(compared)
    }

    /// Puts back what is missing, and takes away what is ours and not wanted.
    pub(super) fn restore(&self, netlink: &mut Netlink) -> Result<Compared, NetlinkError> {
        let mut compared = Compared::default();
        let Some(wanted) = &self.wanted else { return Ok(compared) };
        for found in netlink.router_links()? {
            if is_made(&found) && !wanted.links.contains_key(&found.name) {
                netlink.delete_link(found.link.index)?;
            }
        }
        // Bridges and VLANs are of other links.
        let mut links: Vec<(&String, &Link)> = wanted.links.iter().collect();
        links.sort_by_key(|(_, link)| &link.kind);
        for (name, link) in links {
            if let Err(error) = set_link(name, link, netlink, &mut compared.restored) {
                compared.links.insert(name.clone(), error);
            }
        }
        restore_addresses(wanted, netlink, &mut compared)?;
        restore_routes(&wanted.routes, netlink, &mut compared)?;
        Ok(compared)
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
    netlink: &mut Netlink,
    compared: &mut Compared,
) -> Result<(), NetlinkError> {
    let names: BTreeMap<u32, String> =
        netlink.router_links()?.into_iter().map(|found| (found.link.index, found.name)).collect();
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
            compared.restored.push(format!("the address {address} of {name}"));
            if let Err(error) = netlink.add_router_address(*index, *address) {
                compared.links.insert(name.clone(), error);
            }
        }
    }
    Ok(())
}

fn is_made(found: &RouterLink) -> bool {
    found.alias.as_deref() == Some(MADE)
}

/// Makes a link what it is to be, but for its addresses.
fn set_link(
    name: &str,
    wanted: &Link,
    netlink: &mut Netlink,
    restored: &mut Vec<String>,
) -> Result<(), NetlinkError> {
    let links = netlink.router_links()?;
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
            netlink.link(name)?
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
    netlink: &mut Netlink,
    compared: &mut Compared,
) -> Result<(), NetlinkError> {
    let mut routes = Vec::new();
    for route in wanted {
        match in_kernel(route, netlink) {
            Ok(of_kernel) => routes.push((route, of_kernel)),
            Err(error) => compared.routes.push((route.clone(), error)),
        }
    }
    let present = netlink.static_routes()?;
    for found in present.iter().filter(|found| !routes.iter().any(|(_, wanted)| wanted.is(found))) {
        netlink.remove_static_route(*found)?;
    }
    for (route, of_kernel) in routes {
        if present.iter().any(|found| of_kernel.is(found)) {
            continue;
        }
        match netlink.add_static_route(of_kernel) {
            Ok(()) => compared.restored.push(format!("the route {}", route.prefix)),
            Err(error) => compared.routes.push((route.clone(), error)),
        }
    }
    Ok(())
}

fn in_kernel(route: &StaticRoute, netlink: &mut Netlink) -> Result<KernelRoute, NetlinkError> {
    let mut index = |name: &String| netlink.link(name).map(|link| link.index).map_err(|_| absent(name));
    let (gateway, index) = match &route.way {
        StaticWay::Gateway(address, None) => (Some(*address), None),
        StaticWay::Gateway(address, Some(name)) => (Some(*address), Some(index(name)?)),
        StaticWay::Link(name) => (None, Some(index(name)?)),
        StaticWay::Nowhere => (None, None),
    };
    Ok(KernelRoute { prefix: route.prefix, gateway, index, metric: route.distance.into() })
}
