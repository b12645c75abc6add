//! `service path-monitor`, typed: which tunnels are probed, at which address, and where probes of others are answered.
//!
//! ```text
//! target ── address, interface ──┐
//! interface ── its peers ────────┴──> which tunnel the address is behind ──> PathTarget
//! ```

use super::ipsec::{self, INTERFACE, Tunnel};
use super::{Reader, Settings, parsed, set, set_or_default};
use crate::tree::Tree;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Probes that measure the path of tunnels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathMonitor {
    /// What is probed, by name; at most [`MOST_TARGETS`].
    pub targets: BTreeMap<String, PathTarget>,
    /// Where probes of others are answered.
    pub reflector: Option<Reflector>,
}

/// An address in a tunnel that is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTarget {
    /// The address.
    pub address: IpAddr,
    /// The tunnel's interface.
    pub interface: String,
    /// Its peer, as facts name it.
    pub peer: String,
    /// The number of the tunnel, for IPsec.
    pub tunnel: Option<u32>,
    /// The MTU of the tunnel, where it has its own beside that of the interface.
    pub mtu: Option<u16>,
    /// Which command sets the MTU of the tunnel, without the number.
    pub mtu_command: String,
    /// How it is probed.
    pub protocol: PathProtocol,
    /// The source address; the kernel's choice if there is none.
    pub source: Option<IpAddr>,
    /// Seconds between two probes.
    pub interval: u32,
    /// Whether large probes are sent.
    pub searches_mtu: bool,
}

/// How a target is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathProtocol {
    /// ICMP echo.
    Icmp,
    /// STAMP, to a reflector at this UDP port.
    Stamp(u16),
}

/// Answers probes of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reflector {
    /// Addresses inside tunnels.
    pub listen: BTreeSet<SocketAddr>,
    /// Probes a second that are answered at most.
    pub rate: u32,
}

/// Tunnels that are probed at most.
pub const MOST_TARGETS: usize = 1000;
/// Addresses that a reflector listens on at most: each is a socket.
pub const MOST_LISTENING: usize = 16;

const PATH: &str = "service path-monitor";
/// The port of reflectors (RFC 8762 section 4.1).
const PORT: u16 = 862;

/// The tunnel that an address is behind.
struct Behind {
    peer: String,
    tunnel: Option<u32>,
    mtu: Option<u16>,
    mtu_command: String,
}

impl Reader {
    pub(super) fn path_monitor(&mut self, root: &Tree, settings: &Settings) -> Option<PathMonitor> {
        let tree = root.at(&["service", "path-monitor"])?;
        let mut monitor = PathMonitor { reflector: self.reflector(tree), ..PathMonitor::default() };
        for (name, target) in tree.at(&["target"]).into_iter().flat_map(Tree::children) {
            if let Some(read) = self.path_target(root, tree, name, target, settings) {
                monitor.targets.insert(name.to_owned(), read);
            }
        }
        if monitor.targets.len() > MOST_TARGETS {
            let count = monitor.targets.len();
            let reason = format!("{PATH}: {count} targets are more than the {MOST_TARGETS} that are probed");
            self.error(
                tree.location_of("target"),
                reason,
                format!("delete {PATH} target NAME, or disable some"),
            );
        }
        let warned = self.warnings.len();
        for interface in tree.values("interface") {
            self.peers_as_targets(tree, interface, settings, &mut monitor.targets);
        }
        // A warning about the peers of an interface says more.
        let is_explained = self.warnings.len() > warned;
        if monitor.targets.is_empty() && monitor.reflector.is_none() && !is_explained {
            self.warn(format!(
                "{PATH} probes nothing: set {PATH} target NAME address ADDRESS, or {PATH} interface wg0"
            ));
        }
        Some(monitor)
    }

    fn reflector(&mut self, tree: &Tree) -> Option<Reflector> {
        let reflector = tree.at(&["reflector"])?;
        let path = format!("{PATH} reflector");
        let port = set_or_default(reflector, &path, "port");
        let addresses: BTreeSet<IpAddr> = parsed(reflector.values("listen-address")).into_iter().collect();
        let location = reflector.location_of("listen-address");
        if let Some(any) = addresses.iter().find(|address| address.is_unspecified() || address.is_multicast())
        {
            let reason =
                format!("{path} listen-address {any}: probes are answered at addresses inside tunnels only");
            self.error(
                location,
                reason,
                format!("set {path} listen-address to the address of wg0, or another tunnel"),
            );
        } else if addresses.len() > MOST_LISTENING {
            let reason = format!("{path}: {} addresses are more than {MOST_LISTENING}", addresses.len());
            self.error(location, reason, format!("delete {path} listen-address ADDRESS"));
        }
        if addresses.is_empty() {
            // So that its lines can be committed one after the other.
            self.warn(format!(
                "{path} answers nowhere: set {path} listen-address ADDRESS, the address of a tunnel here"
            ));
        }
        let listen = addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        Some(Reflector { listen, rate: set_or_default(reflector, &path, "rate") })
    }

    fn path_target(
        &mut self,
        root: &Tree,
        monitor: &Tree,
        name: &str,
        tree: &Tree,
        settings: &Settings,
    ) -> Option<PathTarget> {
        let path = format!("{PATH} target {name}");
        if tree.has("disable") {
            return None;
        }
        for (word, example) in [("address", "10.2.0.1"), ("interface", "wg0")] {
            if !tree.has(word) {
                self.error(
                    tree.location(),
                    format!("{path}: {word} is not set"),
                    format!("set {path} {word} {example}"),
                );
            }
        }
        let (address, interface): (IpAddr, _) = (set(tree, "address")?, tree.value("interface")?);
        if address.is_unspecified() || address.is_multicast() {
            let reason = format!("{path} address {address} is not the address of one machine");
            self.error(tree.location_of("address"), reason, format!("set {path} address 10.2.0.1"));
            return None;
        }
        let source: Option<IpAddr> = set(tree, "source-address");
        if source.is_some_and(|source| source.is_ipv4() != address.is_ipv4()) {
            let reason = format!("{path}: address and source-address are of different IP versions");
            self.error(tree.location_of("source-address"), reason, format!("delete {path} source-address"));
            return None;
        }
        let peer = tree.value("peer");
        if ["wireguard", "openvpn"].iter().any(|kind| is_disabled(root, &["interfaces", kind, interface])) {
            self.warn(format!("{path} is not probed: {interface} is disabled"));
            return None;
        }
        let found = behind(settings, interface, peer, address);
        let Behind { peer, tunnel, mtu, mtu_command } = match found {
            Ok(behind) => behind,
            // Disabling a peer must not need a change here.
            Err((why, _)) if has_disabled_peer(root, interface) => {
                self.warn(format!("{path} is not probed: {why}, or its tunnel is disabled"));
                return None;
            }
            Err((why, fix)) => {
                self.error(tree.location(), format!("{path}: {why}"), fix.replace("TARGET", &path));
                return None;
            }
        };
        let protocol = protocol(monitor, Some(tree));
        if tree.has("port") && protocol == PathProtocol::Icmp {
            self.warn(format!("{path} port has no effect without: {path} protocol stamp"));
        }
        Some(PathTarget {
            address,
            interface: interface.to_owned(),
            peer,
            tunnel,
            mtu,
            mtu_command,
            protocol,
            source,
            interval: set(tree, "interval").unwrap_or_else(|| set_or_default(monitor, PATH, "interval")),
            searches_mtu: !tree.has("disable-mtu-search") && !monitor.has("disable-mtu-search"),
        })
    }

    /// Adds the peers of a WireGuard interface that no target names, each at the first single address of its prefixes.
    fn peers_as_targets(
        &mut self,
        tree: &Tree,
        interface: &str,
        settings: &Settings,
        targets: &mut BTreeMap<String, PathTarget>,
    ) {
        let Some(wireguard) = settings.wireguard.get(interface) else {
            let fix = format!("delete {PATH} interface {interface}");
            let reason =
                format!("{PATH} interface {interface}: there is no interfaces wireguard {interface}");
            return self.error(tree.location_of("interface"), reason, fix);
        };
        let named: BTreeSet<String> = targets
            .values()
            .filter(|target| target.interface == interface)
            .map(|target| target.peer.clone())
            .collect();
        let (mut left_out, mut without_address) = (0, Vec::new());
        for (name, peer) in wireguard.peers.iter().filter(|(name, _)| !named.contains(*name)) {
            let Some(address) = peer.allowed_ips.iter().find(|it| it.prefix_len() == it.max_prefix_len())
            else {
                without_address.push(name.as_str());
                continue;
            };
            if targets.len() >= MOST_TARGETS {
                left_out += 1;
                continue;
            }
            let target = PathTarget {
                address: address.addr(),
                interface: interface.to_owned(),
                peer: name.clone(),
                tunnel: None,
                mtu: None,
                mtu_command: format!("set interfaces wireguard {interface} mtu"),
                protocol: protocol(tree, None),
                source: None,
                interval: set_or_default(tree, PATH, "interval"),
                searches_mtu: !tree.has("disable-mtu-search"),
            };
            targets.insert(format!("{interface}/{name}"), target);
        }
        if let Some(first) = without_address.first() {
            let others = match without_address.len() - 1 {
                0 => String::new(),
                count => format!(", and {count} others"),
            };
            self.warn(format!(
                "{PATH} interface {interface}: peer {first} is not probed, as none of its allowed-ips is a single address{others}\n  \
                 fix: set {PATH} target {first} address ADDRESS, and set {PATH} target {first} interface {interface}"
            ));
        }
        if left_out > 0 {
            self.warn(format!(
                "{PATH} interface {interface}: {left_out} peers are not probed, as {MOST_TARGETS} targets are the most"
            ));
        }
    }
}

fn protocol(monitor: &Tree, target: Option<&Tree>) -> PathProtocol {
    let word = target.and_then(|target| target.value("protocol")).or_else(|| monitor.value("protocol"));
    match word {
        Some("stamp") => PathProtocol::Stamp(target.and_then(|it| set(it, "port")).unwrap_or(PORT)),
        _ => PathProtocol::Icmp,
    }
}

/// Whether a place of the configuration is disabled.
pub(super) fn is_disabled(root: &Tree, place: &[&str]) -> bool {
    root.at(place).is_some_and(|tree| tree.has("disable"))
}

/// Whether a peer of an interface is disabled, or a tunnel of a peer.
pub(super) fn has_disabled_peer(root: &Tree, interface: &str) -> bool {
    let wireguard = ["interfaces", "wireguard", interface, "peer"];
    let peers =
        root.at(if interface == INTERFACE { &["vpn", "ipsec", "site-to-site", "peer"] } else { &wireguard });
    let is_off = |tree: &Tree| tree.has("disable");
    peers.into_iter().flat_map(Tree::children).any(|(_, peer)| {
        let mut tunnels = peer.at(&["tunnel"]).into_iter().flat_map(Tree::children);
        is_off(peer) || tunnels.any(|(_, tunnel)| is_off(tunnel))
    })
}

/// The tunnel that an address is behind; or why there is none, and what to do, where TARGET stands for the target.
fn behind(
    settings: &Settings,
    interface: &str,
    peer: Option<&str>,
    address: IpAddr,
) -> Result<Behind, (String, String)> {
    if let Some(wireguard) = settings.wireguard.get(interface) {
        let prefixes =
            wireguard.peers.iter().flat_map(|(name, it)| it.allowed_ips.iter().map(move |net| (net, name)));
        let found = longest(prefixes, address);
        let path = format!("interfaces wireguard {interface} peer");
        if let Some(peer) = peer.filter(|peer| found != Some(&(*peer).to_owned())) {
            let found = found.map_or(String::new(), |other| format!(", but in that of {other}"));
            return Err((
                format!("{address} is not in the allowed-ips of {path} {peer}{found}"),
                format!("set TARGET address to one of peer {peer}"),
            ));
        }
        let name = found.ok_or_else(|| {
            (
                format!("{address} is in no allowed-ips of {interface}"),
                format!("set {path} NAME allowed-ips {address}/{}", if address.is_ipv4() { 32 } else { 128 }),
            )
        })?;
        return Ok(Behind {
            peer: name.clone(),
            tunnel: None,
            mtu: None,
            mtu_command: format!("set interfaces wireguard {interface} mtu"),
        });
    }
    if interface == INTERFACE {
        return behind_ipsec(settings, peer, address);
    }
    let Some(openvpn) = settings.openvpn.get(interface) else {
        return Err((
            format!("there is no tunnel with the interface {interface}"),
            "set TARGET interface to wg0, vtun0 or ipsec0, as postern show interfaces has it".to_owned(),
        ));
    };
    let peer = openvpn.mode.peer(peer).ok_or_else(|| {
        (
            format!("{interface} is a server, and its clients have addresses of no fixed prefix"),
            "set TARGET peer to the common name of the client".to_owned(),
        )
    })?;
    let mtu_command = format!("set interfaces openvpn {interface} mtu");
    Ok(Behind { peer: peer.to_owned(), tunnel: None, mtu: None, mtu_command })
}

fn behind_ipsec(
    settings: &Settings,
    peer: Option<&str>,
    address: IpAddr,
) -> Result<Behind, (String, String)> {
    let peers = settings.ipsec.peers.iter().filter(|(name, _)| peer.is_none_or(|peer| peer == name.as_str()));
    let tunnels =
        peers.flat_map(|(name, it)| it.tunnels.iter().map(move |(number, tunnel)| (name, number, &**tunnel)));
    let prefixes = tunnels.flat_map(|(name, number, tunnel): (_, _, &Tunnel)| {
        tunnel.remote.prefixes.iter().map(move |net| (net, (name, number, tunnel.mtu)))
    });
    let path = "vpn ipsec site-to-site peer";
    let (name, number, mtu) = longest(prefixes, address).ok_or_else(|| {
        let of = peer.map_or_else(|| "any peer".to_owned(), |peer| format!("{path} {peer}"));
        let fix = format!("set TARGET address to one in a remote prefix: show configuration {path}");
        (format!("{address} is in no remote prefix of {of}"), fix)
    })?;
    let mtu_command = format!("set {path} {name} tunnel {number} mtu");
    // That of the interface may be larger, for another tunnel.
    Ok(Behind { peer: name.clone(), tunnel: Some(*number), mtu: mtu.or(Some(ipsec::MTU)), mtu_command })
}

/// What the longest prefix with an address leads to.
fn longest<'a, T>(prefixes: impl Iterator<Item = (&'a IpNet, T)>, address: IpAddr) -> Option<T> {
    let with = prefixes.filter(|(prefix, _)| prefix.contains(&address));
    with.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(_, it)| it)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIREGUARD: &str = "set interfaces wireguard wg0 address 10.1.0.1/24
set interfaces wireguard wg0 private-key ALwVFjYR4hLXbVtHpYGJm3lFMBYBRwOfyAYZlNV5BnU=
set interfaces wireguard wg0 peer berlin public-key xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
set interfaces wireguard wg0 peer berlin allowed-ips 10.2.0.1/32
set interfaces wireguard wg0 peer berlin allowed-ips 10.2.1.0/24
set interfaces wireguard wg0 peer paris public-key TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=
set interfaces wireguard wg0 peer paris allowed-ips 10.2.0.0/16
";

    fn checked(lines: &[&str]) -> Result<(PathMonitor, Vec<String>), String> {
        let lines: String = lines.iter().map(|line| format!("set service path-monitor {line}\n")).collect();
        let checked = crate::parse(&format!("{WIREGUARD}{lines}")).and_then(|tree| Settings::new(&tree));
        let (settings, warnings) = checked
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        Ok((settings.path_monitor.expect("it is configured"), warnings))
    }

    #[test]
    fn a_target_belongs_to_the_peer_that_its_address_leads_to() {
        let (monitor, warnings) = checked(&[
            "target b address 10.2.0.1",
            "target b interface wg0",
            "target b protocol stamp",
            "target p address 10.2.7.1",
            "target p interface wg0",
            "target p peer paris",
            "target p interval 10",
            "target p disable-mtu-search",
        ])
        .expect("right");
        assert_eq!(warnings, [""; 0]);
        let b = &monitor.targets["b"];
        assert_eq!((&*b.peer, b.protocol, b.interval), ("berlin", PathProtocol::Stamp(862), 1));
        assert_eq!(b.mtu_command, "set interfaces wireguard wg0 mtu");
        let p = &monitor.targets["p"];
        assert_eq!((&*p.peer, p.protocol, p.interval), ("paris", PathProtocol::Icmp, 10));
        assert!(b.searches_mtu && !p.searches_mtu && monitor.reflector.is_none());
    }

    #[test]
    fn all_peers_with_a_single_address_are_probed_but_those_that_have_a_target() {
        let (monitor, warnings) = checked(&["interface wg0", "interval 5"]).expect("right");
        assert!(warnings.len() == 1 && warnings[0].contains("peer paris is not probed"), "{warnings:?}");
        assert_eq!(monitor.targets.keys().collect::<Vec<_>>(), ["wg0/berlin"], "paris has only a network");
        assert_eq!(monitor.targets["wg0/berlin"].interval, 5);
        let (monitor, _) = checked(&["interface wg0", "target b address 10.2.1.9", "target b interface wg0"])
            .expect("right");
        assert_eq!(monitor.targets.keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_reflector_listens_at_addresses_of_tunnels() {
        let (monitor, warnings) =
            checked(&["reflector listen-address 10.1.0.1", "reflector rate 20"]).expect("right");
        let reflector = monitor.reflector.expect("one");
        assert_eq!((reflector.rate, warnings.len()), (20, 0));
        assert_eq!(reflector.listen.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.1.0.1:862"]);
        assert!(checked(&["reflector"]).expect("right").1[0].contains("answers nowhere"));
        assert!(checked(&[""]).expect("right").1[0].contains("probes nothing"));
    }

    #[test]
    fn what_cannot_be_probed_is_refused_with_what_to_type() {
        for (lines, said) in [
            (&["target b address 10.2.0.1"][..], "set service path-monitor target b interface wg0"),
            (&["target b interface wg0"], "target b: address is not set"),
            (&["target b address 10.9.0.1", "target b interface wg0"], "in no allowed-ips of wg0"),
            (&["target b address 10.2.0.1", "target b interface wg7"], "no tunnel with the interface wg7"),
            (&["target b address 10.2.0.1", "target b interface ipsec0"], "in no remote prefix of any peer"),
            (
                &["target b address 10.2.0.1", "target b interface wg0", "target b peer paris"],
                "not in the allowed-ips of interfaces wireguard wg0 peer paris, but in that of berlin",
            ),
            (&["target b address 224.0.0.1", "target b interface wg0"], "not the address of one machine"),
            (
                &["target b address 10.2.0.1", "target b interface wg0", "target b source-address ::1"],
                "different IP versions",
            ),
            (&["interface wg3"], "there is no interfaces wireguard wg3"),
            (&["reflector listen-address 0.0.0.0"], "addresses inside tunnels only"),
            (&["interval 0"], "from 1 to 3600"),
        ] {
            let no = checked(lines).expect_err(lines[0]);
            assert!(no.contains(said), "{lines:?}: {no}");
        }
    }

    #[test]
    fn a_disabled_tunnel_is_not_probed_and_does_not_keep_a_commit_back() {
        for disabled in ["wg0 peer berlin", "wg0"] {
            let text = format!(
                "{WIREGUARD}set interfaces wireguard {disabled} disable
set service path-monitor target b address 10.2.0.1
set service path-monitor target b interface wg0
set service path-monitor target b peer berlin
"
            );
            let (settings, warnings) = Settings::new(&crate::parse(&text).expect("right")).expect("right");
            assert!(settings.path_monitor.expect("it is configured").targets.is_empty());
            assert!(warnings.iter().any(|it| it.contains("is disabled")), "{warnings:?}");
        }
    }
}
