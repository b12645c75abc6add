//! Addresses and networks of branches: each has one owner, which is not this gateway.

use super::{Branch, Enrollment, PATH};
use crate::settings::{Reader, WireGuard};
use crate::tree::Tree;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Prefixes that no site has (RFC 6890), and what they are.
const RESERVED: [(IpNet, &str); 10] = [
    (v4(0, 0, 8), "unspecified"),
    (v4(127, 0, 8), "loopback"),
    (v4(169, 254, 16), "link-local"),
    (v4(224, 0, 4), "multicast"),
    (v4(240, 0, 4), "reserved"),
    (v6(Ipv6Addr::UNSPECIFIED, 128), "unspecified"),
    (v6(Ipv6Addr::LOCALHOST, 128), "loopback"),
    (v6(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96), "IPv4 in IPv6"),
    (v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10), "link-local"),
    (v6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8), "multicast"),
];
const FIX: &str = "give each site an address and networks of its own: postern enroll list shows them";

const fn v4(first: u8, second: u8, length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(first, second, 0, 0), length))
}

const fn v6(address: Ipv6Addr, length: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(address, length))
}

/// Whether two prefixes have an address in common.
pub fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// Why a prefix is no network of a site, if it is none.
pub fn reserved(prefix: &IpNet) -> Option<String> {
    if prefix.prefix_len() == 0 {
        return Some(format!("{prefix} is everything, and no network of a site"));
    }
    let (_, what) = RESERVED.iter().find(|(reserved, _)| overlap(reserved, prefix))?;
    Some(format!("{prefix} is no network of a site: it is {what}, or has a part that is"))
}

/// Why an address inside the tunnel is none of a branch, if it is none: it is ours, or that of the network itself.
pub fn own_or_of_network(interface: &WireGuard, address: IpAddr) -> Option<String> {
    interface.addresses.iter().find_map(|net| {
        let is_wide = net.prefix_len() + 1 < net.max_prefix_len();
        if net.addr() == address {
            Some(format!("{address} is the address of head office itself"))
        } else if is_wide && net.network() == address {
            // That of an IPv6 network is the address of its routers (RFC 4291, section 2.6.1).
            Some(format!("{address} is the address of the network {}", net.trunc()))
        } else if is_wide && address.is_ipv4() && net.broadcast() == address {
            Some(format!("{address} is the broadcast address of {}", net.trunc()))
        } else {
            None
        }
    })
}

/// A prefix of a branch, or of a peer that is no branch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim<'a> {
    prefix: IpNet,
    name: &'a str,
    is_branch: bool,
}

impl Claim<'_> {
    fn is_against(&self, other: &Self) -> bool {
        self.name != other.name && (self.is_branch || other.is_branch)
    }

    fn owner(&self) -> String {
        format!("{} {}", if self.is_branch { "branch" } else { "peer" }, self.name)
    }
}

impl Reader {
    /// No address or network of a branch has another owner, and a branch that has joined is the peer that it should be.
    pub(super) fn check_claims(
        &mut self,
        tree: &Tree,
        enrollment: &Enrollment,
        interface: Option<&WireGuard>,
    ) {
        for (name, branch) in &enrollment.branches {
            let why = unfit(enrollment, interface, branch).or_else(|| differs(enrollment, name, branch));
            if let Some((why, fix)) = why {
                self.refuse(tree, name, &why, &fix);
            }
        }
        for (claim, other) in contested(claims(enrollment)) {
            let (branch, other) = if claim.is_branch { (claim, other) } else { (other, claim) };
            let why = format!("{} overlaps {} of {}", branch.prefix, other.prefix, other.owner());
            self.refuse(tree, branch.name, &why, FIX);
        }
    }

    fn refuse(&mut self, tree: &Tree, name: &str, why: &str, fix: &str) {
        let location = tree.at(&["branch", name]).map(Tree::location).unwrap_or_default();
        self.error(location, format!("{PATH} branch {name}: {why}"), fix);
    }
}

/// What is wrong with a branch whatever others have, and the fix.
fn unfit(
    enrollment: &Enrollment,
    interface: Option<&WireGuard>,
    branch: &Branch,
) -> Option<(String, String)> {
    let outside = |prefix: &IpNet| enrollment.addresses.iter().find(|it| prefix.contains(*it)).copied();
    let tunnels = interface.map_or(&[][..], |it| &it.addresses);
    let of_any = branch.allowed_ips().find_map(|prefix| {
        let of_outside = |it| format!("{prefix} has the address {it}, at which branches reach this gateway");
        reserved(&prefix).or_else(|| outside(&prefix).map(of_outside))
    });
    let of_networks = branch.networks.iter().find_map(|network| {
        let tunnel = tunnels.iter().map(IpNet::trunc).find(|it| overlap(it, network))?;
        Some(format!("{network} overlaps {tunnel} of the tunnel interface {}", enrollment.interface))
    });
    let of_address = || own_or_of_network(interface?, branch.address);
    Some((of_any.or(of_networks).or_else(of_address)?, FIX.to_owned()))
}

/// A peer of a branch that carries something else than the branch has.
fn differs(enrollment: &Enrollment, name: &str, branch: &Branch) -> Option<(String, String)> {
    let carried: BTreeSet<IpNet> = enrollment.peers.get(name)?.allowed_ips.iter().copied().collect();
    let own: BTreeSet<IpNet> = branch.allowed_ips().collect();
    let (missing, more) = (own.difference(&carried).next(), carried.difference(&own).next());
    let path = format!("interfaces wireguard {} peer {name}", enrollment.interface);
    let (what, fix) = match (missing, more) {
        (Some(prefix), _) => (format!("lacks {prefix}"), format!("set {path} allowed-ips {prefix}")),
        (None, Some(prefix)) => (format!("has also {prefix}"), format!("delete {path} allowed-ips {prefix}")),
        (None, None) => return None,
    };
    let why = format!("its peer {what} in allowed-ips");
    Some((why, format!("{fix}; networks of a branch change by: postern enroll move {name}")))
}

/// What branches have, and peers that are none.
fn claims(enrollment: &Enrollment) -> Vec<Claim<'_>> {
    let branches = enrollment.branches.iter().flat_map(|(name, branch)| {
        branch.allowed_ips().map(move |prefix| Claim { prefix, name, is_branch: true })
    });
    let peers = enrollment.peers.iter().filter(|(name, peer)| {
        // One that is disabled carries nothing.
        !peer.is_disabled && !enrollment.branches.contains_key(*name)
    });
    let peers = peers.flat_map(|(name, peer)| {
        // A peer for everything has the rest.
        let narrow = peer.allowed_ips.iter().filter(|prefix| prefix.prefix_len() > 0);
        narrow.map(move |prefix| Claim { prefix: *prefix, name, is_branch: false })
    });
    branches.chain(peers).collect()
}

/// Claims with one that has them in it, or is the same.
fn contested(mut claims: Vec<Claim<'_>>) -> Vec<(Claim<'_>, Claim<'_>)> {
    // Of two prefixes that overlap, the wider one comes first.
    claims.sort_unstable();
    let (mut around, mut found): (Vec<Claim<'_>>, Vec<_>) = (Vec::new(), Vec::new());
    for claim in claims {
        while around.pop_if(|wider| !wider.prefix.contains(&claim.prefix)).is_some() {}
        found.extend(around.iter().rev().find(|wider| wider.is_against(&claim)).map(|wider| (claim, *wider)));
        around.push(claim);
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::Settings;

    const KEY: &str = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";
    const THEIRS: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";

    /// What is wrong if branches have these, and with further lines; empty if nothing is.
    fn wrong(branches: &[(&str, &str, &str)], more: &[&str]) -> String {
        let branches = branches.iter().flat_map(|(name, address, networks)| {
            let path = format!("set service enrollment branch {name}");
            let networks = networks.split_whitespace().map(|it| format!("{path} network {it}\n"));
            std::iter::once(format!("{path} address {address}\n")).chain(networks).collect::<Vec<_>>()
        });
        let more = more.iter().map(|line| format!("set interfaces wireguard wg0 peer {line}\n"));
        let text = format!(
            "set interfaces wireguard wg0 address 10.255.0.1/24\n\
             set interfaces wireguard wg0 address fd00::1/64\n\
             set interfaces wireguard wg0 port 51820\n\
             set interfaces wireguard wg0 private-key {KEY}\n\
             set service enrollment address 198.51.100.1\n\
             set service enrollment interface wg0\n{}",
            branches.chain(more).collect::<String>()
        );
        let checked = crate::parse(&text).and_then(|tree| Settings::new(&tree));
        let errors = checked.map_or_else(|errors| errors, |_| Vec::new());
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn two_branches_have_nothing_in_common() {
        let berlin = ("berlin", "10.255.0.2", "10.2.0.0/16 fd02::/48");
        let with = |address, networks| wrong(&[berlin, ("lyon", address, networks)], &[]);
        assert_eq!(with("10.255.0.3", "10.3.0.0/16 fd03::/48"), "");
        assert_eq!(with("fd00::3", ""), "");
        let said = with("10.255.0.2", "");
        assert!(said.contains("overlaps 10.255.0.2/32 of branch berlin") && said.contains("fix: "), "{said}");
        assert!(
            with("10.255.0.3", "10.2.7.0/24").contains("lyon: 10.2.7.0/24 overlaps 10.2.0.0/16 of branch")
        );
        assert!(
            with("10.255.0.3", "10.0.0.0/8").contains("berlin: 10.2.0.0/16 overlaps 10.0.0.0/8 of branch")
        );
        assert!(with("10.255.0.3", "fd02:0:0:1::/64").contains("of branch berlin"));
        assert!(with("10.2.0.7", "").contains("overlaps 10.2.0.0/16 of branch berlin"), "inside its network");
        // Networks between two that overlap hide nothing.
        let three = [("a", "10.255.0.2", "10.0.0.0/8"), ("b", "10.255.0.3", "10.2.0.0/16 10.2.3.0/24")];
        let three = [three[0], three[1], ("c", "10.255.0.4", "10.2.3.0/25")];
        assert_eq!(wrong(&three, &[]).matches(" overlaps ").count(), 6, "{}", wrong(&three, &[]));
    }

    #[test]
    fn a_branch_has_nothing_of_head_office_and_nothing_that_no_site_has() {
        let refused = |address: &str, networks: &str| {
            let said = wrong(&[("berlin", address, networks)], &[]);
            assert!(said.contains("service enrollment branch berlin: ") && said.contains("fix: "), "{said}");
            said
        };
        for address in ["10.255.0.1", "fd00::1"] {
            assert!(refused(address, "").contains("of head office itself"));
        }
        assert!(refused("10.255.0.0", "").contains("address of the network"));
        assert!(refused("10.255.0.255", "").contains("broadcast"));
        assert!(refused("fd00::", "").contains("address of the network"));
        assert!(refused("198.51.100.1", "").contains("at which branches reach"));
        for address in ["0.0.0.0", "127.0.0.1", "169.254.1.1", "224.0.0.1", "255.255.255.255", "::", "::1"] {
            assert!(refused(address, "").contains("no network of a site"), "{address}");
        }
        for address in ["fe80::1", "ff02::1", "::ffff:10.2.0.1"] {
            assert!(refused(address, "").contains("no network of a site"), "{address}");
        }
        for network in ["0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1", "127.0.0.0/8", "169.254.0.0/16"] {
            assert!(refused("10.255.0.2", network).contains("no network of a site"), "{network}");
        }
        for network in ["224.0.0.0/4", "fe80::/64", "ff00::/8", "8000::/1"] {
            assert!(refused("10.255.0.2", network).contains("no network of a site"), "{network}");
        }
        assert!(refused("10.255.0.2", "10.255.0.0/25").contains("of the tunnel interface wg0"));
        assert!(refused("10.255.0.2", "198.51.100.0/24").contains("at which branches reach"));
    }

    #[test]
    fn a_branch_has_nothing_of_another_peer_and_all_of_its_own() {
        let key = |name: &str| format!("{name} public-key {THEIRS}");
        let berlin = [("berlin", "10.255.0.2", "10.2.0.0/24")];
        let with = |name: &str, lines: &[&str]| wrong(&berlin, &[&[&*key(name)], lines].concat());
        assert!(
            with("old", &["old allowed-ips 10.2.0.0/16"])
                .contains("10.2.0.0/24 overlaps 10.2.0.0/16 of peer old")
        );
        assert!(
            with("old", &["old allowed-ips 10.2.0.9/32"])
                .contains("10.2.0.0/24 overlaps 10.2.0.9/32 of peer old")
        );
        assert_eq!(with("old", &["old allowed-ips 0.0.0.0/0"]), "", "it has the rest");
        assert_eq!(with("old", &["old allowed-ips 10.2.0.0/16", "old disable"]), "");
        let own = ["berlin allowed-ips 10.255.0.2/32", "berlin allowed-ips 10.2.0.0/24"];
        assert_eq!(with("berlin", &own), "");
        let other = [own[0], "berlin allowed-ips 10.3.0.0/24"];
        let said = with("berlin", &other);
        assert!(said.contains("its peer lacks 10.2.0.0/24") && said.contains("enroll move berlin"), "{said}");
        assert!(with("berlin", &[own[0], own[1], other[1]]).contains("has also 10.3.0.0/24"));
        assert!(with("berlin", &[other[0], other[1], "berlin disable"]).contains("its peer lacks"));
    }
}
