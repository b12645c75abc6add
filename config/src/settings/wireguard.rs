//! `interfaces wireguard`, typed and checked.

use super::{Processors, Reader, Settings, Threads, parsed, set, set_or_default};
use crate::schema::{FITTING, endpoint_of, key_of};
use crate::tree::Tree;
use crypto::{PrivateKey, PublicKey, Secret};
use ipnet::IpNet;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// Marks that are also numbers of routing tables: those of IPsec, and default, main and local of the kernel. A tunnel for
/// everything has its routes in the table of its mark.
const RESERVED_MARKS: [RangeInclusive<u32>; 2] = [220..=222, 253..=255];

/// A WireGuard interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireGuard {
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Description.
    pub description: Option<String>,
    /// Left down.
    pub disable: bool,
    /// Offloads not to be used.
    pub disabled_offloads: Vec<String>,
    /// UDP port; any if not set.
    pub port: Option<u16>,
    /// The MTU inside the tunnel.
    pub mtu: u32,
    /// The limit of the TCP MSS, over IPv4 and over IPv6.
    pub adjust_mss: [Option<Mss>; 2],
    /// Mark on outer packets; 0 for none.
    pub fwmark: u32,
    /// Threads that encrypt and decrypt.
    pub threads: Threads,
    /// Threads that receive, each way.
    pub receive_threads: Threads,
    /// Processors that the threads stay on, if there are any.
    pub processors: Processors,
    /// Our private key.
    pub private_key: Secret,
    /// Peers that are not disabled, by name.
    pub peers: BTreeMap<String, Peer>,
}

/// The largest TCP segment that may be announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mss {
    /// The largest that fits the MTU.
    Fitting,
    /// So many bytes.
    Bytes(u16),
}

/// A peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Description.
    pub description: Option<String>,
    /// Its key.
    pub public_key: PublicKey,
    /// The pre-shared key; zero for none.
    pub preshared_key: Secret,
    /// Prefixes routed to it, and accepted as its source addresses.
    pub allowed_ips: Vec<IpNet>,
    /// Its address and port, if they are configured.
    pub endpoint: Option<SocketAddr>,
    /// Its name and port, if it is found by name.
    pub host: Option<Host>,
    /// Where it is called when it does not answer there, in this order.
    pub backups: Vec<SocketAddr>,
    /// Seconds between keepalives; 0 for none.
    pub persistent_keepalive: u16,
}

/// Where a peer is whose address may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its domain name.
    pub name: String,
    /// Its UDP port.
    pub port: u16,
}

impl Reader {
    pub(super) fn wireguard(&mut self, name: &str, tree: &Tree) -> Option<WireGuard> {
        let path = format!("interfaces wireguard {name}");
        let peers = self.peers(&path, tree);
        let Some(private_key) = tree.value("private-key").and_then(secret) else {
            self.error(
                tree.location(),
                format!("{path}: private-key is not set"),
                format!(
                    "set {path} private-key KEY; generate one with: postern generate pki wireguard key-pair"
                ),
            );
            return None;
        };
        self.check_keys(&path, tree, &private_key, &peers);
        let fwmark = set_or_default(tree, "interfaces wireguard <interface>", "fwmark");
        if RESERVED_MARKS.iter().any(|range| range.contains(&fwmark)) {
            self.error(
                tree.location_of("fwmark"),
                format!(
                    "{path}: fwmark {fwmark} is reserved: IPsec or the kernel has a routing table of this number"
                ),
                format!("set {path} fwmark 51820"),
            );
            return None;
        }
        Some(WireGuard {
            addresses: parsed(tree.values("address")),
            description: tree.value("description").map(str::to_owned),
            disable: tree.has("disable"),
            disabled_offloads: tree.values("disable-offload").into_iter().map(str::to_owned).collect(),
            port: tree.value("port").and_then(|port| port.parse().ok()),
            mtu: set_or_default(tree, "interfaces wireguard <interface>", "mtu"),
            adjust_mss: ["ip", "ipv6"].map(|version| tree.at(&[version])?.value("adjust-mss").and_then(mss)),
            fwmark,
            threads: set_or_default(tree, "interfaces wireguard <interface>", "threads"),
            receive_threads: set_or_default(tree, "interfaces wireguard <interface>", "receive-threads"),
            processors: set(tree, "processors").unwrap_or_default(),
            private_key,
            peers,
        })
    }

    fn peers(&mut self, path: &str, tree: &Tree) -> BTreeMap<String, Peer> {
        let Some(peers) = tree.at(&["peer"]) else { return BTreeMap::new() };
        let enabled = peers.children().filter(|(_, peer)| !peer.has("disable"));
        enabled.filter_map(|(name, peer)| Some((name.to_owned(), self.peer(path, name, peer)?))).collect()
    }

    fn peer(&mut self, path: &str, name: &str, tree: &Tree) -> Option<Peer> {
        let path = format!("{path} peer {name}");
        let (endpoint, host) = self.place(&path, tree);
        let backups = self.backups(&path, tree, endpoint, host.as_ref());
        let allowed_ips: Vec<IpNet> = parsed(tree.values("allowed-ips"));
        if allowed_ips.is_empty() {
            let fix = format!("set {path} allowed-ips PREFIX, the network behind the peer");
            self.error(tree.location(), format!("{path}: allowed-ips is not set"), fix);
        }
        let Some(public_key) = tree.value("public-key").or(tree.value("pubkey")).and_then(key_of) else {
            let fix = format!("set {path} public-key KEY, the public key of the peer");
            self.error(tree.location(), format!("{path}: public-key is not set"), fix);
            return None;
        };
        Some(Peer {
            description: tree.value("description").map(str::to_owned),
            public_key: PublicKey(*public_key),
            preshared_key: tree.value("preshared-key").and_then(secret).unwrap_or_else(Secret::zero),
            allowed_ips,
            endpoint,
            host,
            backups,
            persistent_keepalive: tree
                .value("persistent-keepalive")
                .and_then(|n| n.parse().ok())
                .unwrap_or(0),
        })
    }

    /// Where a peer is: its address, or its name, with its port.
    fn place(&mut self, path: &str, tree: &Tree) -> (Option<SocketAddr>, Option<Host>) {
        let (address, name, port) = (tree.value("address"), tree.value("host-name"), tree.value("port"));
        let wrong = match (address, name, port) {
            (Some(address), None, Some(port)) => {
                let endpoint =
                    address.parse().ok().zip(port.parse().ok()).map(|it: (IpAddr, u16)| SocketAddr::from(it));
                return (endpoint, None);
            }
            (None, Some(name), Some(port)) => {
                let host = port.parse().ok().map(|port| Host { name: name.to_owned(), port });
                return (None, host);
            }
            (None, None, None) => return (None, None),
            (Some(address), Some(_), _) => (
                "address and host-name are both set".to_owned(),
                format!(
                    "delete {path} address; it may be a backup-address: set {path} backup-address {address}"
                ),
            ),
            (None, None, Some(_)) => {
                ("port is set without address".to_owned(), missing(path, "port", "address"))
            }
            (Some(_), None, None) => {
                ("address is set without port".to_owned(), missing(path, "address", "port"))
            }
            (None, Some(_), None) => {
                ("host-name is set without port".to_owned(), missing(path, "host-name", "port"))
            }
        };
        let (reason, fix) = wrong;
        self.error(tree.location(), format!("{path}: {reason}"), fix);
        (None, None)
    }

    /// The further addresses of a peer, which have its port unless they have one of their own.
    fn backups(
        &mut self,
        path: &str,
        tree: &Tree,
        first: Option<SocketAddr>,
        host: Option<&Host>,
    ) -> Vec<SocketAddr> {
        let words = tree.values("backup-address");
        let Some(port_of_peer) = first.map(|first| first.port()).or(host.map(|host| host.port)) else {
            if !words.is_empty() {
                let reason = format!("{path}: backup-address is set without address");
                let fix = format!("set {path} address {0}, and delete {path} backup-address {0}", words[0]);
                self.error(tree.location_of("backup-address"), reason, fix);
            }
            return Vec::new();
        };
        let mut backups = Vec::new();
        for word in words {
            let Some((address, port)) = endpoint_of(word) else { continue };
            let backup = SocketAddr::new(address, port.unwrap_or(port_of_peer));
            if first == Some(backup) || backups.contains(&backup) {
                let reason = format!("{path}: backup-address {word} is {backup}, which the peer has already");
                let fix = format!("delete {path} backup-address {word}");
                self.error(tree.location_of("backup-address"), reason, fix);
            }
            backups.push(backup);
        }
        backups
    }

    /// No key twice, and none our own; no prefix twice.
    fn check_keys(&mut self, path: &str, tree: &Tree, private: &Secret, peers: &BTreeMap<String, Peer>) {
        let ours = PrivateKey::new(private.clone()).public();
        let (mut keys, mut prefixes) = (HashMap::new(), HashMap::new());
        for (name, peer) in peers {
            let location = tree.at(&["peer", name]).map(Tree::location).unwrap_or_default();
            if peer.public_key == ours {
                let reason = format!("{path} peer {name}: public-key is our own");
                let fix =
                    format!("set {path} peer {name} public-key KEY, with the public key of the other side");
                self.error(location, reason, fix);
            }
            if let Some(other) = keys.insert(peer.public_key, name) {
                let reason = format!("{path} peer {name}: peer {other} has the same public-key");
                self.error(
                    location,
                    reason,
                    format!("delete one of them, or add disable to it: set {path} peer {other} disable"),
                );
            }
            for prefix in &peer.allowed_ips {
                if let Some(other) = prefixes.insert(*prefix, name) {
                    let reason = format!("{path} peer {name}: peer {other} has allowed-ips {prefix} too");
                    self.error(location, reason, format!("delete {path} peer {other} allowed-ips {prefix}"));
                }
            }
        }
    }

    /// Two interfaces cannot listen on one port.
    pub(super) fn check_ports(&mut self, tree: &Tree, settings: &Settings) {
        let mut ports = HashMap::new();
        for (name, interface) in settings.wireguard.iter().filter(|(_, interface)| !interface.disable) {
            let Some(port) = interface.port else { continue };
            if let Some(other) = ports.insert(port, name) {
                let location =
                    tree.at(&["interfaces", "wireguard", name]).map(Tree::location).unwrap_or_default();
                let reason = format!("interfaces wireguard {name}: {other} has port {port} too");
                self.error(location, reason, format!("set interfaces wireguard {name} port to another one"));
            }
        }
    }
}

/// What to type where one of two lines is missing.
fn missing(path: &str, there: &str, missing: &str) -> String {
    format!("set {path} {missing} ..., or delete {path} {there}")
}

fn mss(text: &str) -> Option<Mss> {
    if text == FITTING { Some(Mss::Fitting) } else { text.parse().ok().map(Mss::Bytes) }
}

fn secret(text: &str) -> Option<Secret> {
    key_of(text).map(|bytes| Secret::new(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Checked;
    use crate::{ConfigError, parse};

    const OURS: &str = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";
    const THEIRS: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";

    fn lines(extra: &str) -> String {
        format!(
            "set interfaces wireguard wg0 address 10.1.0.1/30\n\
             set interfaces wireguard wg0 private-key {OURS}\n\
             set interfaces wireguard wg0 peer b public-key {THEIRS}\n\
             set interfaces wireguard wg0 peer b allowed-ips 10.2.0.0/24\n{extra}"
        )
    }

    fn check(extra: &str) -> Result<Checked, Vec<ConfigError>> {
        Settings::new(&parse(&lines(extra)).expect("right"))
    }

    fn reason(extra: &str) -> String {
        check(extra).expect_err("wrong").remove(0).reason
    }

    #[test]
    fn defaults_hold_where_nothing_is_set() {
        let (settings, warnings) = check("").expect("right");
        let wg0 = &settings.wireguard["wg0"];
        assert_eq!((wg0.mtu, wg0.fwmark, wg0.port, wg0.disable), (1420, 0, None, false));
        assert_eq!((wg0.peers["b"].endpoint, warnings.len()), (None, 0));
    }

    #[test]
    fn lines_of_older_and_newer_vyos_are_taken() {
        let older = format!(
            "delete interfaces wireguard wg0 peer b public-key\nset interfaces wireguard wg0 peer b pubkey {THEIRS}"
        );
        let (settings, warnings) = check(&older).expect("right");
        assert_eq!(settings.wireguard["wg0"].peers["b"].public_key.to_string(), THEIRS);
        assert_eq!(
            warnings,
            ["interfaces wireguard wg0 peer b pubkey was renamed in VyOS 1.4: use public-key"]
        );
    }

    #[test]
    fn segments_are_clamped_for_each_ip_version() {
        let of = |lines: &str| {
            let (settings, warnings) = check(lines).expect("right");
            assert!(warnings.is_empty(), "{warnings:?}");
            settings.wireguard["wg0"].adjust_mss
        };
        assert_eq!(of(""), [None, None]);
        assert_eq!(of("set interfaces wireguard wg0 ip adjust-mss 1380"), [Some(Mss::Bytes(1380)), None]);
        let both = "set interfaces wireguard wg0 ip adjust-mss clamp-mss-to-pmtu\n\
                    set interfaces wireguard wg0 ipv6 adjust-mss 65535";
        assert_eq!(of(both), [Some(Mss::Fitting), Some(Mss::Bytes(65_535))]);
    }

    #[test]
    fn backup_addresses_keep_their_order_and_have_the_port_of_the_peer_unless_they_have_their_own() {
        let peer = "set interfaces wireguard wg0 peer b";
        let set = |words: &[&str]| words.iter().map(|words| format!("{peer} {words}\n")).collect::<String>();
        let first = ["address 192.0.2.9", "port 5"];
        let backups =
            ["backup-address 192.0.2.3", "backup-address 192.0.2.2:6", "backup-address 2001:db8::1"];
        let (settings, _) = check(&set(&[&first[..], &backups].concat())).expect("right");
        let read: Vec<String> =
            settings.wireguard["wg0"].peers["b"].backups.iter().map(SocketAddr::to_string).collect();
        assert_eq!(read, ["192.0.2.3:5", "192.0.2.2:6", "[2001:db8::1]:5"]);
        assert!(reason(&set(&backups[..1])).contains("backup-address is set without address"));
        let twice = reason(&set(&[first[0], first[1], "backup-address 192.0.2.9:5"]));
        assert!(twice.contains("is 192.0.2.9:5, which the peer has already"), "{twice}");
    }

    #[test]
    fn a_peer_has_an_address_or_a_name_and_a_port_with_either() {
        let peer = "set interfaces wireguard wg0 peer b";
        let set = |words: &[&str]| words.iter().map(|words| format!("{peer} {words}\n")).collect::<String>();
        let named = ["host-name vpn.example.org", "port 5", "backup-address 192.0.2.3"];
        let (settings, _) = check(&set(&named)).expect("right");
        let read = &settings.wireguard["wg0"].peers["b"];
        let host = Host { name: "vpn.example.org".to_owned(), port: 5 };
        assert_eq!((read.host.as_ref(), read.endpoint), (Some(&host), None));
        assert_eq!(read.backups, ["192.0.2.3:5".parse().expect("literal")]);
        assert!(reason(&set(&named[..1])).contains("host-name is set without port"));
        let both = check(&set(&["address 192.0.2.3", named[0], named[1]])).expect_err("wrong").remove(0);
        assert!(both.reason.contains("address and host-name are both set"), "{}", both.reason);
        let fix = both.fix.unwrap_or_default();
        assert!(fix.contains("backup-address 192.0.2.3"), "{fix}");
    }

    #[test]
    fn a_disabled_peer_is_not_there() {
        let (settings, warnings) = check("set interfaces wireguard wg0 peer b disable").expect("right");
        assert!(settings.wireguard["wg0"].peers.is_empty());
        assert_eq!(warnings, ["interfaces wireguard wg0 has no peer"]);
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_its_place() {
        assert!(
            reason("set interfaces wireguard wg0 peer b address 192.0.2.1")
                .contains("address is set without port")
        );
        assert!(reason("set interfaces wireguard wg0 peer b port 5").contains("port is set without address"));
        assert!(
            reason("set interfaces wireguard wg0 peer c allowed-ips 10.3.0.0/24")
                .contains("c: public-key is not")
        );
        let same = format!(
            "set interfaces wireguard wg0 peer c public-key {THEIRS}\n\
             set interfaces wireguard wg0 peer c allowed-ips 10.3.0.0/24"
        );
        assert!(reason(&same).contains("peer c: peer b has the same public-key"));
        let own = PrivateKey::new(secret(OURS).expect("a key")).public();
        assert!(reason(&format!("set interfaces wireguard wg0 peer b public-key {own}")).contains("our own"));
        let errors = check("set interfaces wireguard wg1").expect_err("no key");
        assert_eq!((errors[0].location.line, errors[0].location.column), (5, 26));
        assert!(errors[0].reason.contains("wg1: private-key is not set"));
    }

    #[test]
    fn a_port_or_prefix_is_not_given_twice() {
        let other = format!(
            "set interfaces wireguard wg0 port 5\nset interfaces wireguard wg1 port 5\n\
             set interfaces wireguard wg1 private-key {OURS}"
        );
        assert!(reason(&other).contains("wg1: wg0 has port 5 too"));
        assert!(check(&format!("{other}\nset interfaces wireguard wg1 disable")).is_ok());
        let other = format!(
            "set interfaces wireguard wg0 peer c public-key {OURS}\n\
             set interfaces wireguard wg0 peer c allowed-ips 10.2.0.0/24"
        );
        assert!(reason(&other).contains("b has allowed-ips 10.2.0.0/24 too"));
    }
}
