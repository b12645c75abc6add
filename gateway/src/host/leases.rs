//! Leases of DHCP. A lease is checked when it arrives: a connected network is more specific than many routes, so a server could
//! otherwise lead packets of a tunnel, or of another link, to itself. A lease in force is kept when a tunnel is configured later.

use super::links::{Compared, Router, gets_address};
use super::netlink::NetlinkError;
use super::restore::Wanted;
use config::settings::{NextHop, StaticRoute};
use ipnet::{IpNet, Ipv4Net};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// An address, and the router of its network.
pub(super) type Lease = (Ipv4Net, Option<Ipv4Addr>);

/// Why a lease is not in force, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The address is that of a tunnel or of another link; it is not tried again.
    #[error("{0}")]
    Refused(NetlinkError),
    /// The link does not have the address.
    #[error("{0}")]
    Address(NetlinkError),
    /// It has the address, but not the default route.
    #[error("{0}")]
    Route(NetlinkError),
}

/// The networks behind tunnels, and the addresses of tunnel interfaces.
#[derive(Default)]
pub(super) struct TunnelNetworks {
    /// For each interface: prefixes that it protects, and the networks that it excepts.
    tunnels: Vec<(BTreeSet<IpNet>, BTreeSet<IpNet>)>,
    /// With the names of their interfaces.
    addresses: Vec<(String, IpNet)>,
}

impl TunnelNetworks {
    pub(super) fn of(wanted: &Wanted) -> Self {
        let tunnels = wanted.values().map(|wants| (wants.prefixes().collect(), wants.networks.exceptions()));
        let addresses =
            wanted.iter().flat_map(|(name, wants)| wants.addresses.iter().map(|it| (name.clone(), *it)));
        Self { tunnels: tunnels.collect(), addresses: addresses.collect() }
    }

    /// Whether a tunnel protects this prefix.
    pub(super) fn contains(&self, prefix: &IpNet) -> bool {
        self.tunnels.iter().any(|(prefixes, _)| prefixes.contains(prefix))
    }

    /// The prefix of a tunnel that has the address: packets to the network of the lease would go around the tunnel, or a remote
    /// host would lose its address to this machine. Networks that are excepted bypass the tunnel anyway.
    fn conflict(&self, lease: Ipv4Net) -> Option<IpNet> {
        let (network, address) = (IpNet::from(lease.trunc()), IpNet::from(Ipv4Net::from(lease.addr())));
        let checked =
            self.tunnels.iter().filter(|(_, excepted)| !excepted.iter().any(|it| it.contains(&network)));
        let mut prefixes = checked.flat_map(|(prefixes, _)| prefixes);
        prefixes.find(|prefix| prefix.prefix_len() > 0 && prefix.contains(&address)).copied()
    }
}

/// What links have got.
#[derive(Default)]
pub(super) struct Leases {
    /// One that is not named has an address that an earlier daemon has left, if it has one: it stays until more is known.
    by_link: BTreeMap<String, Option<Lease>>,
    /// Addresses that were accepted.
    accepted: BTreeMap<String, Ipv4Net>,
    /// Conflicts that the log has reported.
    reported: BTreeSet<(String, String)>,
}

/// The configuration together with the leases.
pub(super) struct Merged {
    pub(super) router: Router,
    /// Links of which nothing is known yet.
    pub(super) unknown: BTreeSet<String>,
    /// Default routes of leases, by prefix and metric, with the names of their links.
    pub(super) routes: BTreeMap<(IpNet, u32), String>,
}

impl Leases {
    /// Forgets the links that do not get their addresses by DHCP any more; their names.
    pub(super) fn gone(&self, router: &Router) -> Vec<String> {
        let is_by_dhcp = |name: &String| router.links.get(name).is_some_and(gets_address);
        self.by_link.keys().filter(|name| !is_by_dhcp(name)).cloned().collect()
    }

    /// Forgets a link; the address that it had.
    pub(super) fn forget(&mut self, name: &str) -> Option<Ipv4Net> {
        let had = self.set(name, None);
        self.by_link.remove(name);
        had
    }

    /// Sets what a link has got; the address that it has not any more.
    pub(super) fn set(&mut self, name: &str, lease: Option<Lease>) -> Option<Ipv4Net> {
        let before = self.by_link.insert(name.to_owned(), lease).flatten();
        let now = lease.map(|(address, _)| address);
        if let Some(accepted) = self.accepted.get(name)
            && now != Some(*accepted)
        {
            self.accepted.remove(name);
            self.reported.retain(|(link, _)| link != name);
        }
        before.map(|(address, _)| address).filter(|before| now != Some(*before))
    }

    /// Whether nothing is known to be in force for a link: it has got nothing, or that was refused.
    pub(super) fn lacks(&self, name: &str) -> bool {
        self.by_link.get(name).is_none_or(Option::is_none)
    }

    /// A link has an address that an earlier daemon has accepted.
    pub(super) fn keep(&mut self, name: &str, address: Ipv4Net) {
        self.accepted.insert(name.to_owned(), address);
    }

    /// What is wanted with the leases. One that is refused is dropped.
    pub(super) fn merge(
        &mut self,
        wanted: &Router,
        tunnels: &TunnelNetworks,
        compared: &mut Compared,
    ) -> Merged {
        let mut merged = Merged { router: wanted.clone(), unknown: BTreeSet::new(), routes: BTreeMap::new() };
        for (name, link) in wanted.links.iter().filter(|(_, link)| gets_address(link)) {
            let Some(lease) = self.by_link.get(name) else {
                merged.unknown.insert(name.clone());
                continue;
            };
            let Some((address, router)) = *lease else { continue };
            if let Some(conflict) = conflict(name, address, wanted, tunnels) {
                if self.accepted.get(name) != Some(&address) {
                    self.by_link.insert(name.clone(), None);
                    compared.note_link(name, Err(refusal(address, &conflict)));
                    continue;
                }
                self.report(name, address, &conflict);
            }
            self.accepted.insert(name.clone(), address);
            if let Some(link) = merged.router.links.get_mut(name) {
                link.addresses.insert(address.into());
            }
            let distance = link.dhcp.as_ref().and_then(|it| it.distance);
            if let (Some(router), Some(distance)) = (router, distance) {
                merged.add_route(name, router, distance);
            }
        }
        merged
    }

    /// Without the address the machine would lose its way to the network, and the tunnel with it.
    fn report(&mut self, name: &str, address: Ipv4Net, conflict: &str) {
        if self.reported.insert((name.to_owned(), conflict.to_owned())) {
            tracing::warn!(
                "interface {name} keeps {address} by DHCP, although {conflict}\n  fix: except the network (vpn ipsec \
                 passthrough), ask who runs the DHCP server for another network, or give the other side another one"
            );
        }
    }
}

impl Merged {
    fn add_route(&mut self, name: &str, router: Ipv4Addr, distance: u8) {
        let prefix = IpNet::from(Ipv4Net::default());
        // The kernel has one route of a metric.
        let is_free =
            |it: &u8| !self.router.routes.iter().any(|route| (route.prefix, route.distance) == (prefix, *it));
        let distance = (distance..=u8::MAX).find(is_free).unwrap_or(distance);
        let next_hop = NextHop::Gateway(router.into(), Some(name.to_owned()));
        self.router.routes.insert(StaticRoute { prefix, distance, next_hop });
        self.routes.insert((prefix, distance.into()), name.to_owned());
    }
}

/// What a lease conflicts with: the network of a tunnel, or that of an address of another link.
fn conflict(name: &str, lease: Ipv4Net, wanted: &Router, tunnels: &TunnelNetworks) -> Option<String> {
    if let Some(prefix) = tunnels.conflict(lease) {
        return Some(format!("a tunnel protects {prefix}: packets would go around the tunnel"));
    }
    let others = wanted.links.iter().filter(|(other, link)| *other != name && !link.is_disabled);
    let of_links = others.flat_map(|(other, link)| link.addresses.iter().map(move |it| (other, it)));
    let of_tunnels = tunnels.addresses.iter().map(|(other, it)| (other, it));
    let mut all = of_links.chain(of_tunnels);
    let (other, address) = all.find(|(_, address)| overlaps(lease, address))?;
    Some(format!("interface {other} has {address}: its packets would go to the network of the lease"))
}

/// Whether networks overlap. A host address has no network: only the same address is in conflict.
fn overlaps(lease: Ipv4Net, other: &IpNet) -> bool {
    let IpNet::V4(other) = other else { return false };
    if other.prefix_len() == 32 {
        return lease.addr() == other.addr();
    }
    lease.contains(&other.network()) || other.contains(&lease.network())
}

fn refusal(address: Ipv4Net, conflict: &str) -> NetlinkError {
    NetlinkError {
        what: format!("{address} by DHCP is refused: {conflict}"),
        error: Errno::EXIST,
        fix: "\n  fix: ask who runs the DHCP server for another network, except the network from the tunnel (vpn ipsec \
              passthrough), or give the other side another one"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::networks::Networks;
    use super::super::wants::Wants;
    use super::*;
    use config::Settings;

    fn router(lines: &[&str]) -> Router {
        let text: String = lines.iter().map(|line| format!("set interfaces ethernet {line}\n")).collect();
        let (settings, _) = config::parse(&text).and_then(|tree| Settings::new(&tree)).expect("right");
        Router { links: settings.links, routes: settings.routes }
    }

    fn net(text: &str) -> IpNet {
        text.parse().expect("literal")
    }

    fn lease(text: &str) -> Lease {
        (text.parse().expect("literal"), None)
    }

    /// Tunnels to prefixes, with what is excepted.
    fn tunnels(prefixes: &[&str], excepted: &[&str]) -> TunnelNetworks {
        let networks = Networks {
            behind: prefixes.iter().map(|prefix| (net(prefix), BTreeSet::new())).collect(),
            excepted: excepted.iter().map(|it| net(it)).collect(),
            ..Networks::default()
        };
        let addresses = [net("10.9.0.1/24")].into();
        let wants = Wants { addresses, networks, ..Wants::default() };
        TunnelNetworks::of(&[("ipsec0".to_owned(), wants)].into())
    }

    /// Merges a new lease; the error is the reason of its refusal.
    fn taken(text: &str, tunnels: &TunnelNetworks) -> Result<(), String> {
        let wanted = router(&["wan0 address dhcp", "lan0 address 10.2.0.1/24", "lan1 address 10.3.0.1/32"]);
        let (mut leases, mut compared) = (Leases::default(), Compared::default());
        leases.set("wan0", Some(lease(text)));
        let merged = leases.merge(&wanted, tunnels, &mut compared);
        let has_it = merged.router.links["wan0"].addresses.contains(&net(text));
        let said = compared.links.remove("wan0").map(|error| error.to_string());
        assert_eq!(has_it, said.is_none());
        said.map_or(Ok(()), Err)
    }

    #[test]
    fn a_lease_takes_no_packets_of_tunnels_and_other_links() {
        let around = tunnels(&["10.1.0.0/16", "0.0.0.0/0"], &[]);
        for (refused, why) in [
            ("10.1.5.7/24", "protects 10.1.0.0/16"),
            ("10.1.5.7/8", "protects 10.1.0.0/16"),
            ("10.2.0.5/25", "lan0 has 10.2.0.1/24"),
            ("10.2.0.200/32", "lan0 has 10.2.0.1/24"),
            ("10.2.7.5/16", "lan0 has 10.2.0.1/24"),
            ("10.3.0.1/24", "lan1 has 10.3.0.1/32"),
            ("10.9.0.5/25", "ipsec0 has 10.9.0.1/24"),
        ] {
            let said = taken(refused, &around).expect_err(refused);
            assert!(said.contains(why), "{refused}: {said}");
        }
        for accepted in ["192.0.2.5/24", "10.3.0.7/24", "10.2.1.5/24", "10.0.0.5/24"] {
            taken(accepted, &around).expect(accepted);
        }
    }

    #[test]
    fn what_the_user_excepts_from_a_tunnel_may_be_leased() {
        taken("10.0.0.5/24", &tunnels(&["10.0.0.0/8"], &["10.0.0.0/24"])).expect("it is excepted");
        taken("10.0.0.5/16", &tunnels(&["10.0.0.0/8"], &["10.0.0.0/24"])).expect_err("only a part is");
        taken("10.0.0.5/24", &tunnels(&["10.0.0.0/8"], &["10.0.1.0/24"])).expect_err("another is");
    }

    #[test]
    fn a_lease_in_force_stays_when_a_tunnel_comes_and_a_new_one_is_checked() {
        let wanted = router(&["wan0 address dhcp"]);
        let (mut leases, mut compared) = (Leases::default(), Compared::default());
        let mut has = |leases: &mut Leases, tunnels: &TunnelNetworks, text| {
            let merged = leases.merge(&wanted, tunnels, &mut compared);
            merged.router.links["wan0"].addresses.contains(&net(text))
        };
        let tunnel = tunnels(&["10.0.0.0/8"], &[]);
        leases.set("wan0", Some(lease("10.0.0.5/24")));
        assert!(has(&mut leases, &TunnelNetworks::default(), "10.0.0.5/24"));
        assert!(has(&mut leases, &tunnel, "10.0.0.5/24"), "without it the tunnel could not come up");
        leases.set("wan0", Some(lease("10.0.0.5/24")));
        assert!(has(&mut leases, &tunnel, "10.0.0.5/24"), "it is renewed");
        leases.set("wan0", Some(lease("10.0.7.5/24")));
        assert!(!has(&mut leases, &tunnel, "10.0.7.5/24"), "it is another one");
        leases.set("wan0", Some(lease("10.0.0.5/24")));
        assert!(!has(&mut leases, &tunnel, "10.0.0.5/24"), "it was given up");
        // An earlier daemon has accepted it.
        leases.keep("wan0", "10.0.0.5/24".parse().expect("literal"));
        leases.set("wan0", Some(lease("10.0.0.5/24")));
        assert!(has(&mut leases, &tunnel, "10.0.0.5/24"));
    }
}
