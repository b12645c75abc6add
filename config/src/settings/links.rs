//! `interfaces ethernet`, `bridge`, `dummy`, `loopback`, and `protocols static`, typed.

use super::{Reader, Settings, parsed, set};
use crate::error::Location;
use crate::path::Path;
use crate::schema::DHCP;
use crate::tree::Tree;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A link of the machine beside the tunnels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// What it is.
    pub kind: LinkKind,
    /// Its addresses.
    pub addresses: BTreeSet<IpNet>,
    /// How it gets an address by DHCP, if it does.
    pub dhcp: Option<DhcpClient>,
    /// Its MTU; none for what it has.
    pub mtu: Option<u32>,
    /// Whether it is set down.
    pub is_disabled: bool,
    /// Where it is configured.
    pub path: Path,
}

/// What a DHCP client sends, and does with what it gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DhcpClient {
    /// The client identifier, if it is not of the MAC address.
    pub client_id: Option<String>,
    /// The name of this machine.
    pub host_name: Option<String>,
    /// The vendor class identifier.
    pub vendor_class_id: Option<String>,
    /// The distance of the default route; none for no default route.
    pub distance: Option<u8>,
}

/// What a link is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkKind {
    /// One that the machine has.
    Existing,
    /// A dummy interface.
    Dummy,
    /// A VLAN of another link.
    Vlan {
        /// The name of the other link.
        parent: String,
        /// Its VLAN ID.
        id: u16,
    },
    /// A bridge of these links.
    Bridge(BTreeSet<String>),
}

/// A route that the user sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StaticRoute {
    /// The addresses.
    pub prefix: IpNet,
    /// Of several routes to a prefix, the one with the lowest is used.
    pub distance: u8,
    /// Where it leads.
    pub next_hop: NextHop,
}

/// Where a static route leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NextHop {
    /// To another router, which may be said to be behind a link.
    Gateway(IpAddr, Option<String>),
    /// To an interface.
    Interface(String),
    /// The packets are dropped.
    Blackhole,
}

/// Bytes of the name of a link, without the zero that ends it (linux/if.h).
pub(super) const LONGEST_NAME: usize = 15;

impl Reader {
    /// Links by their names.
    pub(super) fn links(&mut self, root: &Tree) -> BTreeMap<String, Link> {
        let mut links = BTreeMap::new();
        for kind in ["bridge", "dummy", "ethernet", "loopback"] {
            for (name, tree) in root.at(&["interfaces", kind]).into_iter().flat_map(Tree::children) {
                let path = Path::new(["interfaces", kind, name]);
                let of = match kind {
                    "bridge" => LinkKind::Bridge(members(tree)),
                    "dummy" => LinkKind::Dummy,
                    _ => LinkKind::Existing,
                };
                for (number, vlan) in tree.at(&["vif"]).into_iter().flat_map(Tree::children) {
                    let path = Path::new(["interfaces", kind, name, "vif", number]);
                    let Ok(id) = number.parse() else { continue };
                    let whole = format!("{name}.{number}");
                    if whole.len() > LONGEST_NAME {
                        let reason =
                            format!("{path}: {whole} is longer than the {LONGEST_NAME} characters of a name");
                        self.error(vlan.location(), reason, "take an interface with a shorter name");
                    }
                    let of = LinkKind::Vlan { parent: name.to_owned(), id };
                    self.add_link(&mut links, whole, link(of, path, vlan), vlan);
                }
                self.add_link(&mut links, name.to_owned(), link(of, path, tree), tree);
            }
        }
        links
    }

    /// Adds a link, unless another part of the configuration is for it, too.
    fn add_link(&mut self, links: &mut BTreeMap<String, Link>, name: String, link: Link, tree: &Tree) {
        if link.dhcp.is_none() && tree.has("dhcp-options") {
            self.warn(format!(
                "{} dhcp-options has no effect without: {} address dhcp",
                link.path, link.path
            ));
        }
        let path = link.path.clone();
        if let Some(other) = links.insert(name, link) {
            let reason = format!("{path}: {} is the same interface", other.path);
            self.error(tree.location(), reason, format!("delete {path}"));
        }
    }

    /// Static routes, each once.
    pub(super) fn static_routes(&mut self, root: &Tree) -> BTreeSet<StaticRoute> {
        let mut routes = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for word in ["route", "route6"] {
            for (prefix, tree) in root.at(&["protocols", "static", word]).into_iter().flat_map(Tree::children)
            {
                let path = format!("protocols static {word} {prefix}");
                let Ok(prefix) = prefix.parse::<IpNet>() else { continue };
                if matches!(prefix, IpNet::V6(_)) != (word == "route6") {
                    let other = if word == "route" { "route6" } else { "route" };
                    self.error(
                        tree.location(),
                        format!("{path} is of the other version of IP"),
                        format!("set protocols static {other} {prefix}"),
                    );
                    continue;
                }
                let ways = self.next_hops(&path, prefix, tree);
                if ways.is_empty()
                    && !tree.children().any(|(word, _)| matches!(word, "next-hop" | "interface"))
                {
                    self.error(
                        tree.location(),
                        format!("{path} leads nowhere"),
                        format!("set {path} next-hop ADDRESS, or blackhole"),
                    );
                }
                for (next_hop, distance) in ways {
                    if !taken.insert((prefix, distance)) {
                        let reason = format!("{path} has two next hops of distance {distance}");
                        self.error(
                            tree.location(),
                            reason,
                            format!("set {path} next-hop ADDRESS distance {}", distance.saturating_add(1)),
                        );
                    }
                    routes.insert(StaticRoute { prefix, distance, next_hop });
                }
            }
        }
        routes
    }

    /// The next hops of a route, with their distances.
    fn next_hops(&mut self, path: &str, prefix: IpNet, tree: &Tree) -> Vec<(NextHop, u8)> {
        let distance = |tree: &Tree| set(tree, "distance").unwrap_or(1);
        let mut ways = Vec::new();
        for (address, tree) in tree.at(&["next-hop"]).into_iter().flat_map(Tree::children) {
            let Ok(gateway) = address.parse::<IpAddr>() else { continue };
            if gateway.is_ipv4() != prefix.addr().is_ipv4() {
                let reason = format!("{path} next-hop {address} is of the other version of IP");
                self.error(tree.location(), reason, "name an address of the same version as the prefix");
            } else if !tree.has("disable") {
                let link = tree.value("interface").map(str::to_owned);
                ways.push((NextHop::Gateway(gateway, link), distance(tree)));
            }
        }
        for (name, tree) in tree.at(&["interface"]).into_iter().flat_map(Tree::children) {
            if !tree.has("disable") {
                ways.push((NextHop::Interface(name.to_owned()), distance(tree)));
            }
        }
        ways.extend(tree.at(&["blackhole"]).map(|tree| (NextHop::Blackhole, distance(tree))));
        ways
    }

    /// Refuses links that two parts of the configuration are to have, and routes into the clear for what a tunnel protects.
    pub(super) fn check_links(&mut self, root: &Tree, settings: &Settings) {
        let location = |path: &Path| root.at(&path.words()).map(Tree::location).unwrap_or_default();
        let mut owners: BTreeMap<IpAddr, &str> = BTreeMap::new();
        let mut bridges: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, link) in &settings.links {
            let path = &link.path;
            let is_ethernet = path.words().get(1) == Some(&"ethernet");
            if is_of_tunnel(name) || is_ethernet && name == "lo" {
                let reason =
                    format!("{path}: {name} is no Ethernet interface, but that of a tunnel or the loopback");
                self.error(location(path), reason, format!("delete {path}"));
            }
            let LinkKind::Bridge(members) = &link.kind else { continue };
            for member in members {
                if is_of_tunnel(member) {
                    let reason =
                        format!("{path} member interface {member}: a tunnel carries no Ethernet frames");
                    self.error(location(path), reason, format!("delete {path} member interface {member}"));
                }
                if member == name
                    || settings.links.get(member).is_some_and(|it| matches!(it.kind, LinkKind::Bridge(_)))
                {
                    let reason =
                        format!("{path} member interface {member}: a bridge is no member of a bridge");
                    self.error(location(path), reason, format!("delete {path} member interface {member}"));
                }
                if let Some(other) = bridges.insert(member, name) {
                    let reason = format!("{path} member interface {member}: {other} has it, too");
                    self.error(location(path), reason, format!("delete {path} member interface {member}"));
                }
                if settings
                    .links
                    .get(member)
                    .is_some_and(|member| !member.addresses.is_empty() || member.dhcp.is_some())
                {
                    let reason =
                        format!("{path} member interface {member}: a member has no address of its own");
                    self.error(
                        location(path),
                        reason,
                        format!("set {path} address, and delete that of {member}"),
                    );
                }
            }
        }
        for (name, link) in &settings.links {
            for address in link.addresses.iter().map(IpNet::addr) {
                if let Some(other) = owners.insert(address, name) {
                    let reason = format!("{} address {address}: {other} has it, too", link.path);
                    self.error(location(&link.path), reason, format!("delete {} address", link.path));
                }
            }
        }
        self.check_routes(root, settings);
    }

    /// Refuses routes, and networks of links, that lead around a tunnel when that is down; warns of those for a part of what it is for.
    fn check_routes(&mut self, root: &Tree, settings: &Settings) {
        let protected = protected(settings);
        let is_tunnel = |name: &String| settings.wireguard.contains_key(name);
        for StaticRoute { prefix, next_hop, .. } in &settings.routes {
            let leads_in = match next_hop {
                NextHop::Interface(name) | NextHop::Gateway(_, Some(name)) => is_tunnel(name),
                NextHop::Gateway(_, None) => false,
                NextHop::Blackhole => true,
            };
            if !leads_in {
                let word = if prefix.addr().is_ipv4() { "route" } else { "route6" };
                let at = root.at(&["protocols", "static", word]).map(Tree::location).unwrap_or_default();
                self.check_around(&format!("protocols static {word} {prefix}"), *prefix, at, &protected);
            }
        }
        for link in settings.links.values() {
            let at = root.at(&link.path.words()).map(Tree::location).unwrap_or_default();
            for address in &link.addresses {
                self.check_around(
                    &format!("{} address {address}", link.path),
                    address.trunc(),
                    at,
                    &protected,
                );
            }
        }
    }

    fn check_around(&mut self, path: &str, prefix: IpNet, at: Location, protected: &[(IpNet, String)]) {
        let mut around = protected.iter().filter(|(it, _)| it.contains(&prefix));
        if prefix.prefix_len() == 0 {
            return;
        }
        // The closest: of a tunnel for everything, networks of this site are no part that is missed.
        let Some((network, place)) = around.by_ref().max_by_key(|(it, _)| it.prefix_len()) else { return };
        if *network == prefix {
            let reason =
                format!("{path}: {place} protects {network}, and packets to it would go around the tunnel");
            self.error(at, reason, format!("delete {path}"));
        } else if network.prefix_len() > 0 || path.starts_with("protocols") {
            self.warn(format!(
                "{path} leads around {place}, which is for {network}: packets to it are not encrypted"
            ));
        }
    }
}

/// What tunnels are for, with their places.
fn protected(settings: &Settings) -> Vec<(IpNet, String)> {
    let mut protected: Vec<(IpNet, String)> = Vec::new();
    for (name, tunnel) in settings.wireguard.iter().filter(|(_, tunnel)| !tunnel.disable) {
        for (peer, settings) in &tunnel.peers {
            let place = format!("interfaces wireguard {name} peer {peer}");
            protected.extend(settings.allowed_ips.iter().map(|prefix| (*prefix, place.clone())));
        }
    }
    for (name, peer) in &settings.ipsec.peers {
        for (number, tunnel) in &peer.tunnels {
            let place = format!("vpn ipsec site-to-site peer {name} tunnel {number}");
            protected.extend(tunnel.remote.prefixes.iter().map(|prefix| (*prefix, place.clone())));
        }
    }
    protected
}

/// Whether a name is one that interfaces of tunnels have.
fn is_of_tunnel(name: &str) -> bool {
    ["wg", "vtun", "ipsec"].iter().any(|letters| {
        let digits = name.strip_prefix(letters).unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn members(tree: &Tree) -> BTreeSet<String> {
    let members = tree.at(&["member", "interface"]).into_iter().flat_map(Tree::children);
    members.map(|(name, _)| name.to_owned()).collect()
}

/// The distance of a default route by DHCP where none is set, as in VyOS.
const DHCP_DISTANCE: u8 = 210;

fn dhcp_client(tree: &Tree) -> DhcpClient {
    let Some(options) = tree.at(&["dhcp-options"]) else {
        return DhcpClient { distance: Some(DHCP_DISTANCE), ..DhcpClient::default() };
    };
    let text = |word| options.value(word).map(str::to_owned);
    let distance = set(options, "default-route-distance").unwrap_or(DHCP_DISTANCE);
    DhcpClient {
        client_id: text("client-id"),
        host_name: text("host-name"),
        vendor_class_id: text("vendor-class-id"),
        distance: Some(distance).filter(|_| !options.has("no-default-route")),
    }
}

fn link(kind: LinkKind, path: Path, tree: &Tree) -> Link {
    Link {
        kind,
        addresses: parsed(tree.values("address")).into_iter().collect(),
        dhcp: tree.values("address").contains(&DHCP).then(|| dhcp_client(tree)),
        mtu: set(tree, "mtu"),
        is_disabled: tree.has("disable"),
        path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Result<(Settings, Vec<String>), String> {
        let text: String = lines.iter().map(|line| format!("set {line}\n")).collect();
        let read = crate::parse(&text).and_then(|tree| Settings::new(&tree));
        read.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    const WG: [&str; 3] = [
        "interfaces wireguard wg0 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=",
        "interfaces wireguard wg0 peer b public-key xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
        "interfaces wireguard wg0 peer b allowed-ips 10.1.0.0/16",
    ];

    #[test]
    fn links_and_routes_are_read() {
        let (settings, warnings) = read(&[
            "interfaces ethernet enp1s0 address 192.0.2.1/24",
            "interfaces ethernet enp1s0 address 2001:db8::1/64",
            "interfaces ethernet enp1s0 mtu 1492",
            "interfaces ethernet eth1 vif 7 address 10.7.0.1/24",
            "interfaces ethernet eth1 vif 7 disable",
            "interfaces bridge br0 member interface eth2",
            "interfaces bridge br0 member interface eth3",
            "interfaces bridge br0 address 10.2.0.1/24",
            "interfaces dummy dum0",
            "interfaces loopback lo address 10.255.0.1/32",
            "protocols static route 0.0.0.0/0 next-hop 192.0.2.9",
            "protocols static route 0.0.0.0/0 next-hop 10.7.0.9 distance 10",
            "protocols static route 10.9.0.0/16 blackhole",
            "protocols static route6 ::/0 next-hop fe80::1 interface enp1s0",
        ])
        .expect("right");
        assert!(warnings.is_empty(), "{warnings:?}");
        let link = |name: &str| &settings.links[name];
        assert_eq!((link("enp1s0").addresses.len(), link("enp1s0").mtu), (2, Some(1492)));
        assert_eq!(link("eth1.7").kind, LinkKind::Vlan { parent: "eth1".to_owned(), id: 7 });
        assert!(link("eth1.7").is_disabled && !link("eth1").is_disabled);
        assert_eq!(link("eth1.7").path.to_string(), "interfaces ethernet eth1 vif 7");
        assert_eq!(link("br0").kind, LinkKind::Bridge(["eth2", "eth3"].map(str::to_owned).into()));
        assert_eq!(settings.links.len(), 6);
        assert_eq!(settings.routes.len(), 4);
        let last = settings.routes.last().expect("routes");
        let gateway = NextHop::Gateway("fe80::1".parse().expect("literal"), Some("enp1s0".to_owned()));
        assert_eq!((&last.next_hop, last.distance), (&gateway, 1));
        assert!(!settings.is_empty());
    }

    #[test]
    fn addresses_by_dhcp_have_their_options() {
        let (settings, warnings) = read(&[
            "interfaces ethernet eth0 address dhcp",
            "interfaces ethernet eth0 address 10.0.0.1/24",
            "interfaces ethernet eth0 vif 7 address dhcp",
            "interfaces ethernet eth0 vif 7 dhcp-options client-id site-7",
            "interfaces ethernet eth0 vif 7 dhcp-options host-name router.example",
            "interfaces ethernet eth0 vif 7 dhcp-options vendor-class-id 'a box'",
            "interfaces ethernet eth0 vif 7 dhcp-options default-route-distance 9",
            "interfaces bridge br0 address dhcp",
            "interfaces bridge br0 dhcp-options no-default-route",
            "interfaces ethernet eth1 dhcp-options no-default-route",
        ])
        .expect("right");
        let dhcp = |name: &str| settings.links[name].dhcp.clone().expect("by DHCP");
        assert_eq!(dhcp("eth0"), DhcpClient { distance: Some(210), ..DhcpClient::default() });
        assert_eq!(settings.links["eth0"].addresses.len(), 1);
        let vlan = dhcp("eth0.7");
        assert_eq!((vlan.distance, vlan.client_id.as_deref()), (Some(9), Some("site-7")));
        assert_eq!(vlan.host_name.as_deref(), Some("router.example"));
        assert_eq!(vlan.vendor_class_id.as_deref(), Some("a box"));
        assert_eq!(dhcp("br0").distance, None);
        let said = "interfaces ethernet eth1 dhcp-options has no effect without: interfaces ethernet eth1 address dhcp";
        assert_eq!(warnings, [said]);
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_fix() {
        let wg = |more: &[&'static str]| [&WG[..], more].concat();
        for (lines, said) in [
            (vec!["interfaces ethernet eth0 address dhcpv6"], "let the operating system get it by DHCPv6"),
            (vec!["interfaces dummy dum0 address dhcp"], "interfaces ethernet and bridge get theirs by DHCP"),
            (vec!["interfaces ethernet eth0 dhcp-options reject 192.0.2.1"], "udhcpc takes the first offer"),
            (vec!["interfaces ethernet eth0 dhcp-options host-name a_b$c"], "a domain name"),
            (
                vec!["interfaces bridge br0 member interface eth1", "interfaces ethernet eth1 address dhcp"],
                "a member has no address of its own",
            ),
            (vec!["interfaces bridge br0 member interface br0"], "a bridge is no member of a bridge"),
            (
                vec!["interfaces bridge br0 member interface br1", "interfaces bridge br1"],
                "a bridge is no member of a bridge",
            ),
            (vec!["interfaces ethernet eth0 address 10.1.0.1"], "10.1.0.1/24"),
            (vec!["interfaces ethernet 0123456789abc vif 100 disable"], "longer than the 15 characters"),
            (wg(&["interfaces ethernet wg0 mtu 1400"]), "that of a tunnel"),
            (vec!["interfaces ethernet ipsec0 disable"], "that of a tunnel"),
            (vec!["interfaces ethernet lo disable"], "the loopback"),
            (vec!["interfaces bridge br0 member interface wg0"], "no Ethernet frames"),
            (wg(&["interfaces ethernet eth0 address 10.1.0.1/16"]), "would go around the tunnel"),
            (
                vec![
                    "interfaces bridge br0 member interface eth1",
                    "interfaces ethernet eth1 address 10.1.0.1/24",
                ],
                "a member has no address of its own",
            ),
            (
                vec![
                    "interfaces ethernet eth0 address 10.1.0.1/24",
                    "interfaces ethernet eth1 address 10.1.0.1/16",
                ],
                "eth0 has it, too",
            ),
            (
                vec![
                    "interfaces bridge br0 member interface eth1",
                    "interfaces bridge br1 member interface eth1",
                ],
                "br0 has it, too",
            ),
            (
                vec!["interfaces bridge br0 address 10.1.0.1/24", "interfaces ethernet br0 mtu 1400"],
                "is the same interface",
            ),
            (
                vec!["interfaces ethernet eth1.7 mtu 1400", "interfaces ethernet eth1 vif 7 mtu 1300"],
                "is the same interface",
            ),
            (vec!["protocols static route ::/0 next-hop fe80::1"], "set protocols static route6 ::/0"),
            (vec!["protocols static route 10.0.0.0/8 next-hop ::1"], "of the other version of IP"),
            (vec!["protocols static route 10.0.0.0/8 description a"], "leads nowhere"),
            (
                vec![
                    "protocols static route 10.0.0.0/8 next-hop 192.0.2.1",
                    "protocols static route 10.0.0.0/8 next-hop 192.0.2.2",
                ],
                "two next hops of distance 1",
            ),
            (wg(&["protocols static route 10.1.0.0/16 next-hop 192.0.2.1"]), "would go around the tunnel"),
        ] {
            let refused = read(&lines).expect_err("refused");
            assert!(refused.contains(said), "{lines:?}: {refused}");
        }
        let (_, warnings) =
            read(&wg(&["protocols static route 10.1.5.0/24 next-hop 192.0.2.1"])).expect("right");
        assert!(warnings.iter().any(|it| it.contains("packets to it are not encrypted")), "{warnings:?}");
        let all = [
            "interfaces wireguard wg0 peer b allowed-ips 0.0.0.0/0",
            "protocols static route 128.0.0.0/1 next-hop 192.0.2.1",
        ];
        let (_, warnings) = read(&wg(&all)).expect("right");
        assert!(warnings.iter().any(|it| it.contains("which is for 0.0.0.0/0")), "{warnings:?}");
        let inside = "protocols static route 10.1.0.0/16 next-hop 10.1.0.9 interface wg0";
        assert!(read(&wg(&[inside])).is_ok(), "it leads into the tunnel");
        let (_, warnings) = read(&wg(&["protocols static route 10.1.5.0/24 interface wg0"])).expect("right");
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}
