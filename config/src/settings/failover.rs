//! `protocols failover`, typed: tunnels that lead to the same networks, in the order in which they are used.

use super::ipsec::{INTERFACE, Peer, Remote};
use super::path_monitor::{has_disabled_peer, is_disabled};
use super::{Reader, Settings, branches, parsed, set_or_default};
use crate::tree::Tree;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Tunnels that stand in for each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailoverGroup {
    /// The networks behind all of them.
    pub prefixes: BTreeSet<IpNet>,
    /// The tunnels, the preferred one first.
    pub members: Vec<FailoverMember>,
    /// How long a tunnel is up before packets go back to it.
    pub hold: Duration,
}

/// A tunnel of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverMember {
    /// Its number in the group.
    pub number: u32,
    /// Its interface.
    pub interface: String,
    /// Its peer, as facts name it.
    pub peer: String,
    /// For IPsec, the tunnels of the peer that the prefixes are behind.
    pub tunnels: BTreeSet<u32>,
}

const PATH: &str = "protocols failover group";

/// What is wrong with a member, and what to do, where MEMBER stands for its path.
struct Wrong {
    why: String,
    fix: String,
}

impl Reader {
    pub(super) fn failover(&mut self, root: &Tree, settings: &Settings) -> BTreeMap<String, FailoverGroup> {
        let mut groups = BTreeMap::new();
        let mut owners: BTreeMap<IpNet, String> = BTreeMap::new();
        for (name, tree) in branches(root, &["protocols", "failover", "group"]) {
            let path = format!("{PATH} {name}");
            let prefixes: BTreeSet<IpNet> = parsed(tree.values("prefix")).into_iter().collect();
            self.failover_prefixes(tree, &path, &prefixes, &mut owners);
            let members = self.failover_members(root, tree, &path, &prefixes, settings);
            self.failover_conflicts(root, tree, &path, &prefixes, &members, settings);
            let hold = Duration::from_secs(set_or_default(tree, &format!("{PATH} <group>"), "hold-time"));
            groups.insert(name.to_owned(), FailoverGroup { prefixes, members, hold });
        }
        groups
    }

    fn failover_prefixes(
        &mut self,
        tree: &Tree,
        path: &str,
        prefixes: &BTreeSet<IpNet>,
        owners: &mut BTreeMap<IpNet, String>,
    ) {
        if prefixes.is_empty() {
            let reason = format!("{path}: prefix is not set");
            self.error(tree.location(), reason, format!("set {path} prefix 10.1.0.0/16"));
        }
        for prefix in prefixes {
            let at = tree.location_of("prefix");
            let fix = format!("delete {path} prefix {prefix}");
            if prefix.prefix_len() == 0 {
                let reason = format!(
                    "{path} prefix {prefix}: tunnels for everything have routing tables of their own, and cannot be in a group"
                );
                self.error(at, reason, fix);
            } else if let Some(other) = owners.insert(*prefix, path.to_owned()) {
                self.error(at, format!("{path} prefix {prefix}: {other} has it, too"), fix);
            }
        }
    }

    fn failover_members(
        &mut self,
        root: &Tree,
        tree: &Tree,
        path: &str,
        prefixes: &BTreeSet<IpNet>,
        settings: &Settings,
    ) -> Vec<FailoverMember> {
        let mut members: Vec<FailoverMember> = Vec::new();
        let mut configured = 0;
        for (number, tree) in branches(tree, &["member"]) {
            configured += 1;
            let path = format!("{path} member {number}");
            let Some(interface) = tree.value("interface") else {
                let reason = format!("{path}: interface is not set");
                self.error(tree.location(), reason, format!("set {path} interface wg0"));
                continue;
            };
            if ["wireguard", "openvpn"].iter().any(|kind| is_disabled(root, &["interfaces", kind, interface]))
            {
                self.warn(format!("{path} is not used: {interface} is disabled"));
                continue;
            }
            if let Some(other) = members.iter().find(|other| other.interface == interface) {
                let reason =
                    format!("{path} interface {interface}: member {} has that interface, too", other.number);
                self.error(tree.location_of("interface"), reason, format!("delete {path}"));
                continue;
            }
            match member(settings, interface, tree.value("peer"), prefixes) {
                Ok((peer, tunnels)) => {
                    let number = number.parse().expect("the schema has checked it");
                    members.push(FailoverMember { number, interface: interface.to_owned(), peer, tunnels });
                }
                // The interface has errors of its own, which are reported already.
                Err(_)
                    if ["wireguard", "openvpn"]
                        .iter()
                        .any(|kind| !is_read(settings, root, kind, interface)) => {}
                // Disabling a peer must not need a change here.
                Err(Wrong { why, .. }) if has_disabled_peer(root, interface) => {
                    self.warn(format!("{path} is not used: {why}, or its tunnel is disabled"));
                }
                Err(Wrong { why, fix }) => {
                    let reason = format!("{path}: {why}");
                    self.error(tree.location(), reason, fix.replace("MEMBER", &path));
                }
            }
        }
        if configured < 2 {
            let reason = format!("{path}: there must be two members or more");
            self.error(tree.location(), reason, format!("set {path} member 20 interface ipsec0"));
        }
        members.sort_by_key(|member| member.number);
        for member in &members {
            self.failover_hints(path, member, settings);
        }
        members
    }

    /// Refuses prefixes whose packets would go elsewhere than to the tunnel that is used.
    fn failover_conflicts(
        &mut self,
        root: &Tree,
        tree: &Tree,
        path: &str,
        prefixes: &BTreeSet<IpNet>,
        members: &[FailoverMember],
        settings: &Settings,
    ) {
        for prefix in prefixes {
            let found = outer_conflict(root, prefix, members, settings)
                .or_else(|| network_conflict(prefix, settings))
                .or_else(|| closer_conflict(prefix, prefixes, members, settings));
            if let Some(Wrong { why, fix }) = found {
                let reason = format!("{path} prefix {prefix}: {why}");
                self.error(tree.location_of("prefix"), reason, fix.replace("GROUP", path));
            }
        }
    }

    /// Warns of a tunnel of which nobody would know that it works again.
    fn failover_hints(&mut self, path: &str, member: &FailoverMember, settings: &Settings) {
        let FailoverMember { number, interface, peer, .. } = member;
        let Some(wireguard) = settings.wireguard.get(interface).and_then(|it| it.peers.get(peer)) else {
            return;
        };
        let is_probed = settings.path_monitor.as_ref().is_some_and(|monitor| {
            monitor.targets.values().any(|target| target.interface == *interface && target.peer == *peer)
        });
        if wireguard.persistent_keepalive == 0 && !is_probed {
            self.warn(format!(
                "{path} member {number}: WireGuard is silent without packets, so nothing tells whether it is up; set interfaces wireguard \
                 {interface} peer {peer} persistent-keepalive 5, or better: set service path-monitor target NAME interface {interface}"
            ));
        }
    }
}

/// Whether an interface is in the settings, if it is in the configuration at all.
fn is_read(settings: &Settings, root: &Tree, kind: &str, interface: &str) -> bool {
    root.at(&["interfaces", kind, interface]).is_none()
        || settings.wireguard.contains_key(interface)
        || settings.openvpn.contains_key(interface)
}

/// The peer of a member and, for IPsec, its tunnels that the prefixes are behind.
fn member(
    settings: &Settings,
    interface: &str,
    peer: Option<&str>,
    prefixes: &BTreeSet<IpNet>,
) -> Result<(String, BTreeSet<u32>), Wrong> {
    if settings.wireguard.contains_key(interface) {
        return Ok((behind_wireguard(settings, interface, peer, prefixes)?, BTreeSet::new()));
    }
    if interface == INTERFACE {
        return behind_ipsec(settings, peer, prefixes);
    }
    let Some(openvpn) = settings.openvpn.get(interface) else {
        return Err(Wrong {
            why: format!("there is no tunnel with the interface {interface}"),
            fix: "set MEMBER interface to wg0, vtun0 or ipsec0, as postern show interfaces has it".to_owned(),
        });
    };
    let peer = openvpn.mode.peer(peer).ok_or_else(|| Wrong {
        why: format!("{interface} is a server, and has many peers"),
        fix: "set MEMBER peer to the common name of the client".to_owned(),
    })?;
    Ok((peer.to_owned(), BTreeSet::new()))
}

fn behind_wireguard(
    settings: &Settings,
    interface: &str,
    peer: Option<&str>,
    prefixes: &BTreeSet<IpNet>,
) -> Result<String, Wrong> {
    let path = format!("interfaces wireguard {interface} peer");
    let mut found: Option<&str> = peer;
    for prefix in prefixes {
        let all = settings.wireguard[interface].peers.iter();
        let allowed = all.flat_map(|(name, it)| it.allowed_ips.iter().map(move |net| (name.as_str(), net)));
        let around = allowed.filter(|(_, net)| net.contains(prefix));
        let owner = around.max_by_key(|(_, net)| net.prefix_len()).map(|(name, _)| name);
        let Some(owner) = owner else {
            return Err(Wrong {
                why: format!("prefix {prefix} is in no allowed-ips of {interface}"),
                fix: format!("set {path} {} allowed-ips {prefix}", peer.unwrap_or("NAME")),
            });
        };
        if let Some(other) = found.filter(|other| *other != owner) {
            return Err(Wrong {
                why: format!("prefix {prefix} is behind peer {owner} of {interface}, and not behind {other}"),
                fix: "make a group for each peer, and set MEMBER peer NAME".to_owned(),
            });
        }
        found = Some(owner);
    }
    found.map(str::to_owned).ok_or_else(|| Wrong {
        why: "it has no prefix".to_owned(),
        fix: format!("set {path} NAME allowed-ips 10.1.0.0/16"),
    })
}

fn behind_ipsec(
    settings: &Settings,
    peer: Option<&str>,
    prefixes: &BTreeSet<IpNet>,
) -> Result<(String, BTreeSet<u32>), Wrong> {
    if settings.ipsec.disable_route_autoinstall {
        return Err(Wrong {
            why: "routes to ipsec0 are left to others (disable-route-autoinstall)".to_owned(),
            fix: "delete vpn ipsec options disable-route-autoinstall".to_owned(),
        });
    }
    let path = "vpn ipsec site-to-site peer";
    let with = |peer: &Peer, prefix: &IpNet| -> Vec<u32> {
        let tunnels = peer.tunnels.iter().filter(|(_, tunnel)| tunnel.remote.prefixes.contains(prefix));
        tunnels.map(|(number, _)| *number).collect()
    };
    let candidates =
        || settings.ipsec.peers.iter().filter(|(name, _)| peer.is_none_or(|it| it == name.as_str()));
    let has_all =
        |it: &Peer| !prefixes.is_empty() && prefixes.iter().all(|prefix| !with(it, prefix).is_empty());
    if let Some((name, found)) = candidates().find(|(_, it)| has_all(it)) {
        return Ok((name.clone(), prefixes.iter().flat_map(|prefix| with(found, prefix)).collect()));
    }
    let missing = prefixes.iter().find(|prefix| !candidates().any(|(_, it)| !with(it, prefix).is_empty()));
    let of = peer.map_or_else(|| "any peer".to_owned(), |peer| format!("{path} {peer}"));
    let name = peer.unwrap_or("NAME");
    Err(match (missing, prefixes.first()) {
        (Some(prefix), _) => Wrong {
            why: format!("prefix {prefix} is no remote prefix of {of}"),
            fix: format!("set {path} {name} tunnel 1 remote prefix {prefix}"),
        },
        (None, Some(_)) => Wrong {
            why: "its prefixes are behind several peers".to_owned(),
            fix: "make a group for each peer".to_owned(),
        },
        (None, None) => Wrong {
            why: "it has no prefix".to_owned(),
            fix: format!("set {path} {name} tunnel 1 remote prefix 10.1.0.0/16"),
        },
    })
}

/// Packets of a tunnel itself would be led into a tunnel.
fn outer_conflict(
    root: &Tree,
    prefix: &IpNet,
    members: &[FailoverMember],
    settings: &Settings,
) -> Option<Wrong> {
    members.iter().find_map(|FailoverMember { interface, peer, .. }| {
        let wireguard = settings.wireguard.get(interface).and_then(|it| it.peers.get(peer));
        let of_wireguard = wireguard.into_iter().flat_map(|it| it.endpoint.iter().chain(&it.backups));
        let ipsec = settings.ipsec.peers.get(peer).filter(|_| interface == INTERFACE);
        let of_ipsec = ipsec.into_iter().flat_map(|it| &it.remote_addresses).filter_map(|remote| match remote {
            Remote::Address(address) => Some(*address),
            Remote::Name(_) => None,
        });
        let openvpn = root.at(&["interfaces", "openvpn", interface]);
        let of_openvpn = openvpn.into_iter().flat_map(|tree| parsed(tree.values("remote-host")));
        let mut all = of_wireguard.map(std::net::SocketAddr::ip).chain(of_ipsec).chain(of_openvpn);
        let address = all.find(|address| prefix.contains(address))?;
        Some(Wrong {
            why: format!(
                "it has {address}, where {interface} reaches its peer: the packets of the tunnel would be led into a tunnel"
            ),
            fix: format!("delete GROUP prefix {prefix}, and set smaller ones without {address}"),
        })
    })
}

/// The kernel has a route of its own to the network of an address.
fn network_conflict(prefix: &IpNet, settings: &Settings) -> Option<Wrong> {
    let tunnels = settings.wireguard.iter().map(|(name, it)| (name, &it.addresses));
    let tunnels = tunnels.flat_map(|(name, all)| all.iter().map(move |address| (name, *address)));
    let links = settings.links.iter().flat_map(|(name, it)| it.addresses.iter().map(move |it| (name, *it)));
    let mut networks = tunnels.chain(links).filter(|(_, it)| it.prefix_len() < it.max_prefix_len());
    let overlaps = |network: IpNet| prefix.contains(&network) || network.contains(prefix);
    let (name, address) = networks.find(|(_, address)| overlaps(address.trunc()))?;
    Some(Wrong {
        why: format!("{name} has {address}, and the kernel routes that network to it"),
        fix: format!("delete GROUP prefix {prefix}, or give {name} an address of another network"),
    })
}

/// Closer prefixes of tunnels do not move with a group; and policies of IPsec precede routes.
fn closer_conflict(
    prefix: &IpNet,
    prefixes: &BTreeSet<IpNet>,
    members: &[FailoverMember],
    settings: &Settings,
) -> Option<Wrong> {
    let wireguard = settings.wireguard.iter().flat_map(|(name, it)| {
        let all = it.peers.values().flat_map(|peer| &peer.allowed_ips);
        all.map(move |closer| (name.as_str(), *closer))
    });
    let tunnels = settings.ipsec.peers.values().flat_map(|peer| peer.tunnels.values());
    let remote: Vec<IpNet> = tunnels.flat_map(|tunnel| tunnel.remote.prefixes.iter().copied()).collect();
    let is_closer = |it: &IpNet| prefix.contains(it) && it != prefix && !prefixes.contains(it);
    let mut all = wireguard.chain(remote.iter().map(|it| (INTERFACE, *it)));
    if let Some((name, closer)) = all.find(|(_, it)| is_closer(it)) {
        return Some(Wrong {
            why: format!("{closer} of {name} is closer, and does not move with the group"),
            fix: format!("set GROUP prefix {closer}, or delete it at {name}"),
        });
    }
    let has_ipsec = members.iter().any(|member| member.interface == INTERFACE);
    (!has_ipsec && remote.contains(prefix)).then(|| Wrong {
        why: "it is also a remote prefix of IPsec, whose policies precede the group".to_owned(),
        fix: format!("set GROUP member 99 interface {INTERFACE}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TUNNELS: &str = "set interfaces wireguard wg0 address 10.99.0.2/24
set interfaces wireguard wg0 private-key ALwVFjYR4hLXbVtHpYGJm3lFMBYBRwOfyAYZlNV5BnU=
set interfaces wireguard wg0 peer hq public-key xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
set interfaces wireguard wg0 peer hq allowed-ips 10.1.0.0/16
set interfaces wireguard wg0 peer paris public-key TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=
set interfaces wireguard wg0 peer paris allowed-ips 10.3.0.0/16
set vpn ipsec esp-group E proposal 1 encryption aes256gcm128
set vpn ipsec ike-group I proposal 1 encryption aes256gcm128
set vpn ipsec ike-group I proposal 1 dh-group 19
set vpn ipsec ike-group I proposal 1 hash sha256
set vpn ipsec authentication psk P id 192.0.2.1
set vpn ipsec authentication psk P secret secret
set vpn ipsec site-to-site peer HQ authentication mode pre-shared-secret
set vpn ipsec site-to-site peer HQ ike-group I
set vpn ipsec site-to-site peer HQ default-esp-group E
set vpn ipsec site-to-site peer HQ local-address 192.0.2.2
set vpn ipsec site-to-site peer HQ remote-address 192.0.2.1
set vpn ipsec site-to-site peer HQ tunnel 4 local prefix 10.2.0.0/16
set vpn ipsec site-to-site peer HQ tunnel 4 remote prefix 10.1.0.0/16
";

    fn checked(lines: &[&str]) -> Result<(BTreeMap<String, FailoverGroup>, Vec<String>), String> {
        let lines: String = lines.iter().map(|line| format!("set {PATH} {line}\n")).collect();
        let checked = crate::parse(&format!("{TUNNELS}{lines}")).and_then(|tree| Settings::new(&tree));
        let (settings, warnings) = checked
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        Ok((settings.failover, warnings))
    }

    #[test]
    fn members_are_the_tunnels_that_the_prefixes_are_behind() {
        let (groups, warnings) = checked(&[
            "hq prefix 10.1.0.0/16",
            "hq member 20 interface ipsec0",
            "hq member 10 interface wg0",
            "hq hold-time 3",
        ])
        .expect("right");
        let group = &groups["hq"];
        assert_eq!(group.hold, Duration::from_secs(3));
        let found: Vec<_> = group.members.iter().map(|it| (it.number, &*it.interface, &*it.peer)).collect();
        assert_eq!(found, [(10, "wg0", "hq"), (20, "ipsec0", "HQ")]);
        assert_eq!(group.members[1].tunnels, [4].into());
        assert!(warnings.iter().any(|it| it.contains("peer hq persistent-keepalive 5")), "{warnings:?}");
    }

    #[test]
    fn what_cannot_stand_in_is_refused_with_what_to_type() {
        let both = ["hq member 10 interface wg0", "hq member 20 interface ipsec0"];
        let with = |lines: &[&'static str]| [&both[..], lines].concat();
        for (lines, said) in [
            (both.to_vec(), "set protocols failover group hq prefix 10.1.0.0/16"),
            (vec!["hq prefix 10.1.0.0/16", "hq member 10 interface wg0"], "two members or more"),
            (with(&["hq prefix 0.0.0.0/0"]), "tunnels for everything"),
            (with(&["hq prefix 10.4.0.0/16"]), "is in no allowed-ips of wg0"),
            (with(&["hq prefix 10.3.0.0/16"]), "is no remote prefix of any peer"),
            (with(&["hq prefix 10.1.0.0/16", "hq prefix 10.3.0.0/16"]), "behind peer paris of wg0"),
            (with(&["hq prefix 10.1.0.0/16", "hq member 10 peer paris"]), "and not behind paris"),
            (with(&["hq prefix 10.1.0.0/16", "hq member 30 interface wg0"]), "member 10 has that interface"),
            (
                with(&["hq prefix 10.1.0.0/16", "hq member 30 interface wg9"]),
                "no tunnel with the interface wg9",
            ),
            (with(&["hq prefix 10.1.0.0/16", "hq member 30"]), "interface is not set"),
            (
                vec!["hq prefix 10.99.0.0/16", "hq member 10 interface wg0", "hq member 20 interface ipsec0"],
                "wg0 has 10.99.0.2/24",
            ),
            (
                with(&["hq prefix 10.1.0.0/16", "b prefix 10.1.0.0/16", "b member 1 interface wg0"]),
                "has it, too",
            ),
        ] {
            let no = checked(&lines).expect_err(lines[0]);
            assert!(no.contains(said), "{lines:?}: {no}");
        }
    }
}
