//! `interfaces secgw`, typed and checked. Policies, SAs and routes have the types of the files of ipsec-secgw.

use super::{Reader, Settings, set, set_or_default};
use crate::error::Location;
use crate::schema::{ALL_PROTOCOLS, protocol};
use crate::secgw::Driver;
use crate::secgw::algorithm::{AEADS, CIPHERS, MACS, Protection, find};
use crate::secgw::settings::{Action, Direction, Family, Mode, Offload, Policy, Ports, Protocol, Route, Sa};
use crate::tree::Tree;
use crypto::SecretBytes;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// The highest priority of a policy.
const HIGHEST: i32 = (1 << 29) - 1;
/// The lowest.
const LOWEST: i32 = 1;
const PATH: &str = "interfaces secgw <interface>";

/// A gateway between Ethernet ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secgw {
    /// Description.
    pub description: Option<String>,
    /// Its ports, by number.
    pub ports: BTreeMap<u16, Port>,
    /// Its policies. Their lines are their numbers, and those without one drop what no other is for.
    pub policies: Vec<Policy>,
    /// Its SAs. Their lines are their places in natural order of their names.
    pub sas: Vec<Arc<Sa>>,
    /// Its routes.
    pub routes: Vec<Route>,
    /// The replay window in packets; 0 for none.
    pub window: u64,
    /// Whether sequence numbers have 64 bits.
    pub extended_sequence: bool,
    /// The longest IP packet that leaves.
    pub mtu: u32,
}

/// An Ethernet port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// How its frames are carried.
    pub driver: Driver,
    /// Its interface.
    pub interface: String,
    /// Whether its packets are in clear.
    pub is_protected: bool,
    /// Whether it takes frames for other stations.
    pub is_promiscuous: bool,
    /// The Ethernet address behind it.
    pub neighbour: [u8; 6],
}

impl Reader {
    /// All gateways that are not disabled.
    pub(super) fn secgws(&mut self, tree: &Tree, settings: &mut Settings) {
        let mut taken: HashMap<String, String> = HashMap::new();
        let gateways = tree.at(&["interfaces", "secgw"]).into_iter().flat_map(Tree::children);
        for (name, tree) in gateways.filter(|(_, tree)| !tree.has("disable")) {
            let errors = self.errors.len();
            let gateway = self.secgw(name, tree, &mut taken);
            if self.errors.len() == errors {
                settings.secgw.insert(name.to_owned(), gateway);
            }
        }
    }

    fn secgw(&mut self, name: &str, tree: &Tree, taken: &mut HashMap<String, String>) -> Secgw {
        let path = format!("interfaces secgw {name}");
        let ports = self.ports(&path, tree, taken);
        let sas = self.sas(&path, tree);
        let policies = self.policies(&path, tree, &sas);
        let routes = self.routes(&path, tree, &ports);
        Secgw {
            description: tree.value("description").map(str::to_owned),
            ports,
            policies,
            sas: sas.into_values().collect(),
            routes,
            window: set_or_default(tree, PATH, "replay-window"),
            extended_sequence: tree.has("extended-sequence"),
            mtu: set_or_default(tree, PATH, "mtu"),
        }
    }

    fn ports(&mut self, path: &str, tree: &Tree, taken: &mut HashMap<String, String>) -> BTreeMap<u16, Port> {
        let mut ports = BTreeMap::new();
        for (number, tree) in below(tree, "port") {
            let path = format!("{path} port {number}");
            let at = tree.location();
            let [interface, side, neighbour] =
                ["interface", "side", "neighbour"].map(|word| self.required(&path, tree, word));
            let (Some(interface), Some(side), Some(neighbour), Ok(number)) =
                (interface, side, neighbour, number.parse())
            else {
                continue;
            };
            let Some(neighbour) = ethernet(neighbour) else {
                let reason = format!("{path}: neighbour {neighbour} is no Ethernet address of a station");
                let fix = format!("set {path} neighbour 02:00:00:00:00:01, with six bytes of two digits");
                self.error(tree.location_of("neighbour"), reason, fix);
                continue;
            };
            if let Some(other) = taken.insert(interface.to_owned(), path.clone()) {
                let reason = format!("{path}: {other} has the interface {interface} already");
                self.error(tree.location_of("interface"), reason, "give each port an interface of its own");
            }
            if interface.is_empty() || interface.contains(['/', ' ']) {
                let reason = format!("{path}: {interface:?} is no name of an interface");
                self.error(at, reason, format!("set {path} interface NAME, such as eth1"));
            }
            let driver = match tree.value("driver") {
                Some("packet") => Driver::AfPacket,
                Some("tap") => Driver::Tap,
                _ => Driver::AfXdp,
            };
            let (interface, is_protected) = (interface.to_owned(), side == "protected");
            let is_promiscuous = tree.has("promiscuous");
            ports.insert(number, Port { driver, interface, is_protected, is_promiscuous, neighbour });
        }
        for (side, is_protected) in [("protected", true), ("unprotected", false)] {
            // A port with an error of its own may be that.
            if ports.len() == below(tree, "port").count()
                && !ports.values().any(|port| port.is_protected == is_protected)
            {
                let fix = format!("set {path} port NUMBER side {side}");
                self.error(tree.location(), format!("{path} has no {side} port"), fix);
            }
        }
        ports
    }

    fn sas(&mut self, path: &str, tree: &Tree) -> BTreeMap<String, Arc<Sa>> {
        let mut sas: BTreeMap<String, Arc<Sa>> = BTreeMap::new();
        for (line, (name, tree)) in (1..).zip(below(tree, "sa")) {
            let path = format!("{path} sa {name}");
            let Some(sa) = self.sa(&path, tree, line) else { continue };
            for (other, before) in &sas {
                if (before.direction, before.spi) == (sa.direction, sa.spi) {
                    let reason = format!("{path}: sa {other} has the SPI {} in the same direction", sa.spi);
                    self.error(
                        tree.location_of("spi"),
                        reason,
                        format!("set {path} spi NUMBER, another one"),
                    );
                }
                if before.keys == sa.keys && sa.protection.counts() {
                    let reason =
                        format!("{path}: sa {other} has the same key: who records both can decrypt them");
                    self.error(tree.location_of("key"), reason, format!("set {path} key HEX, of its own"));
                }
            }
            sas.insert(name.to_owned(), Arc::new(sa));
        }
        sas
    }

    fn sa(&mut self, path: &str, tree: &Tree, line: u32) -> Option<Sa> {
        let words = ["direction", "spi", "encryption", "key", "local-address", "remote-address"];
        let values = words.map(|word| self.required(path, tree, word));
        let [Some(direction), Some(spi), Some(encryption), Some(key), Some(local), Some(remote)] = values
        else {
            return None;
        };
        let (local, remote): (IpAddr, IpAddr) = (local.parse().ok()?, remote.parse().ok()?);
        if local.is_ipv4() != remote.is_ipv4() {
            let reason = format!("{path}: of local-address and remote-address, one is IPv4, one is IPv6");
            self.error(tree.location_of("remote-address"), reason, "set both to addresses of one family");
            return None;
        }
        let direction = direction_of(direction);
        let (source, destination) = match direction {
            Direction::Outbound => (local, remote),
            Direction::Inbound => (remote, local),
        };
        let udp_encapsulation = tree.has("udp-encapsulation");
        let protection = self.protection(path, tree, encryption)?;
        if udp_encapsulation && local.is_ipv6() && matches!(protection, Protection::Pair(..)) {
            let reason = format!("{path}: udp-encapsulation over IPv6 needs a cipher with authentication");
            let fix = format!("set {path} encryption aes256gcm128");
            self.error(tree.location_of("udp-encapsulation"), reason, fix);
        }
        let (cipher_length, hash_length) = match protection {
            Protection::Aead(cipher) => (cipher.key_length, 0),
            Protection::Pair(cipher, mac) => (cipher.key_length, mac.key_length),
        };
        let mut keys = self.key(path, tree, "key", key, cipher_length)?;
        if hash_length > 0 {
            let key = self.required(path, tree, "hash-key")?;
            let hash_key = self.key(path, tree, "hash-key", key, hash_length)?;
            keys = SecretBytes::new([keys.expose(), hash_key.expose()].concat());
        }
        Some(Sa {
            line,
            direction,
            spi: spi.parse().ok()?,
            mode: Mode::Tunnel { source, destination },
            protection,
            keys,
            offload: Offload::None,
            port: None,
            queue: None,
            fallback: None,
            udp_encapsulation,
            mss: 0,
            extended_sequence: 0,
            telemetry: false,
            reassembly: false,
        })
    }

    /// The algorithms of an SA.
    fn protection(&mut self, path: &str, tree: &Tree, encryption: &str) -> Option<Protection> {
        let name = in_files(encryption);
        let hash = tree.value("hash");
        if let Some(aead) = find(AEADS, &name) {
            if hash.is_some() || tree.has("hash-key") {
                let reason = format!("{path}: {encryption} authenticates packets itself");
                self.error(
                    tree.location_of("encryption"),
                    reason,
                    format!("delete {path} hash, and hash-key"),
                );
            }
            return Some(Protection::Aead(aead));
        }
        let Some(hash) = hash else {
            let reason = format!("{path}: {encryption} alone does not authenticate packets");
            let fix = format!("set {path} hash sha256, or set {path} encryption aes256gcm128");
            self.error(tree.location_of("encryption"), reason, fix);
            return None;
        };
        Some(Protection::Pair(find(CIPHERS, &name)?, find(MACS, &format!("{hash}-hmac"))?))
    }

    /// A key of so many bytes. Its digits are in no message.
    fn key(
        &mut self,
        path: &str,
        tree: &Tree,
        word: &str,
        digits: &str,
        length: usize,
    ) -> Option<SecretBytes> {
        let bytes = hexadecimal(digits).filter(|bytes| bytes.len() == length);
        if bytes.is_none() {
            let reason =
                format!("{path}: {word} must have {length} bytes, in {} hexadecimal digits", 2 * length);
            self.error(
                tree.location_of(word),
                reason,
                format!("openssl rand -hex {length} prints a new one"),
            );
        }
        bytes.map(SecretBytes::new)
    }

    fn policies(&mut self, path: &str, tree: &Tree, sas: &BTreeMap<String, Arc<Sa>>) -> Vec<Policy> {
        let mut policies = Vec::new();
        for (number, tree) in below(tree, "policy") {
            let path = format!("{path} policy {number}");
            let Ok(line) = number.parse() else { continue };
            policies.extend(self.policy(&path, tree, line, sas).into_iter().flatten());
        }
        // In ipsec-secgw a family without a policy passes in clear. Here it does not.
        for direction in Direction::ALL {
            for family in Family::ALL {
                let any = any(family);
                policies.push(Policy {
                    line: 0,
                    family,
                    direction,
                    action: Action::Discard,
                    priority: LOWEST,
                    source: any,
                    destination: any,
                    protocol: Protocol::default(),
                    source_ports: Ports::ALL,
                    destination_ports: Ports::ALL,
                });
            }
        }
        policies
    }

    fn policy(
        &mut self,
        path: &str,
        tree: &Tree,
        line: u32,
        sas: &BTreeMap<String, Arc<Sa>>,
    ) -> Option<Vec<Policy>> {
        let [direction, action] = ["direction", "action"].map(|word| self.required(path, tree, word));
        let (direction, action) = (direction_of(direction?), action?);
        let action = match action {
            "protect" => Action::Protect(self.spi(path, tree, direction, sas)?),
            "bypass" => Action::Bypass,
            _ => Action::Discard,
        };
        let prefix = |word| -> Option<IpNet> { set(tree.at(&[word])?, "prefix") };
        let (source, destination) = (prefix("source"), prefix("destination"));
        if let (Some(source), Some(destination)) = (source, destination)
            && Family::of(source.addr()) != Family::of(destination.addr())
        {
            let reason = format!("{path}: of source and destination, one is IPv4, one is IPv6");
            self.error(tree.location(), reason, "write a policy for each family");
            return None;
        }
        let family = source.or(destination).map(|prefix| Family::of(prefix.addr()));
        let [source_ports, destination_ports] =
            ["source", "destination"].map(|word| self.port_range(path, tree, word));
        let (source_ports, destination_ports) = (source_ports?, destination_ports?);
        let protocol = tree.value("protocol").filter(|name| *name != ALL_PROTOCOLS).and_then(protocol);
        let protocol = protocol.map_or_else(Protocol::default, |value| Protocol { value, mask: u8::MAX });
        let families = Family::ALL.into_iter().filter(|it| family.is_none_or(|family| family == *it));
        let policy = |family| Policy {
            line,
            family,
            direction,
            action,
            priority: HIGHEST - line as i32,
            source: source.unwrap_or_else(|| any(family)),
            destination: destination.unwrap_or_else(|| any(family)),
            protocol,
            source_ports,
            destination_ports,
        };
        Some(families.map(policy).collect())
    }

    /// The SPI of the SA that a policy names.
    fn spi(
        &mut self,
        path: &str,
        tree: &Tree,
        direction: Direction,
        sas: &BTreeMap<String, Arc<Sa>>,
    ) -> Option<u32> {
        let name = self.required(path, tree, "sa")?;
        let at = tree.location_of("sa");
        let Some(sa) = sas.get(name) else {
            let known: Vec<&str> = sas.keys().map(String::as_str).collect();
            let reason = format!("{path}: there is no sa {name}, or it has an error of its own");
            self.error(at, reason, format!("one of: {}", known.join(", ")));
            return None;
        };
        if sa.direction != direction {
            let reason = format!("{path}: sa {name} is for the other direction");
            self.error(at, reason, format!("name an SA with direction {}", direction.word()));
            return None;
        }
        Some(sa.spi)
    }

    fn port_range(&mut self, path: &str, tree: &Tree, side: &str) -> Option<Ports> {
        let Some(text) = tree.at(&[side]).and_then(|tree| tree.value("port")) else {
            return Some(Ports::ALL);
        };
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let ports = low.parse().ok().zip(high.parse().ok()).map(|(low, high)| Ports { low, high });
        let ports = ports.filter(|ports| ports.low <= ports.high);
        if ports.is_none() {
            let reason = format!("{path}: {side} port {text} is no port and no range of ports");
            let at = tree.at(&[side]).map_or(Location::default(), |tree| tree.location_of("port"));
            self.error(at, reason, format!("set {path} {side} port 1024-2047"));
        }
        ports
    }

    fn routes(&mut self, path: &str, tree: &Tree, ports: &BTreeMap<u16, Port>) -> Vec<Route> {
        let mut routes = Vec::new();
        for (prefix, tree) in below(tree, "route") {
            let path = format!("{path} route {prefix}");
            let Some(port) = self.required(&path, tree, "port").and_then(|port| port.parse::<u8>().ok())
            else {
                continue;
            };
            if !ports.contains_key(&port.into()) {
                let reason = format!("{path}: there is no port {port}");
                self.error(
                    tree.location_of("port"),
                    reason,
                    format!("set {path} port NUMBER, of a port of it"),
                );
            }
            let Ok(prefix) = prefix.parse::<IpNet>() else { continue };
            routes.push(Route {
                line: routes.len() as u32 + 1,
                family: Family::of(prefix.addr()),
                address: prefix.addr(),
                length: Some(prefix.prefix_len()),
                port,
            });
        }
        routes
    }

    /// A value that must be set.
    fn required<'a>(&mut self, path: &str, tree: &'a Tree, word: &str) -> Option<&'a str> {
        let value = tree.value(word);
        if value.is_none() {
            let reason = format!("{path}: {word} is not set");
            self.error(tree.location(), reason, format!("set {path} {word} ..."));
        }
        value
    }
}

/// The branches below a word, in natural order.
fn below<'a>(tree: &'a Tree, word: &str) -> impl Iterator<Item = (&'a str, &'a Tree)> {
    tree.at(&[word]).into_iter().flat_map(Tree::children)
}

fn direction_of(word: &str) -> Direction {
    if word == "out" { Direction::Outbound } else { Direction::Inbound }
}

/// All addresses of a family.
fn any(family: Family) -> IpNet {
    match family {
        Family::V4 => Ipv4Net::default().into(),
        Family::V6 => Ipv6Net::default().into(),
    }
}

/// The name of a cipher in the files of ipsec-secgw: `aes-128-gcm` for `aes128gcm128`, `aes-256-cbc` for `aes256`.
fn in_files(encryption: &str) -> String {
    if encryption == "chacha20poly1305" {
        return "chacha20-poly1305".to_owned();
    }
    let (bits, mode) = encryption["aes".len()..].split_at(3);
    format!("aes-{bits}-{}", mode.get(..3).unwrap_or("cbc"))
}

/// An Ethernet address of one station.
fn ethernet(text: &str) -> Option<[u8; 6]> {
    let bytes: Vec<u8> =
        text.split(':').map(|byte| hexadecimal(byte)?.first().copied()).collect::<Option<_>>()?;
    let address: [u8; 6] = bytes.try_into().ok()?;
    (address != [0; 6] && address[0] & 1 == 0).then_some(address)
}

fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let byte = |at: usize| {
        let pair = &digits[at..at + 2];
        pair.bytes()
            .all(|digit| digit.is_ascii_hexdigit())
            .then(|| u8::from_str_radix(pair, 16).ok())
            .flatten()
    };
    (0..digits.len()).step_by(2).map(byte).collect()
}

#[cfg(test)]
mod tests;
