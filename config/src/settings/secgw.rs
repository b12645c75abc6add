//! `interfaces secgw`, typed and checked. Policies, SAs and routes have the types of the files of ipsec-secgw.

mod peers;
mod policies;
mod ports;

pub use ports::is_pci_address;

use super::ipsec::{Patience, Peer};
use super::{Reader, Settings, set, set_or_default};
use crate::secgw::Driver;
use crate::secgw::algorithm::{AEADS, CIPHERS, MACS, Protection, find};
use crate::secgw::settings::{Direction, Family, Limits, Mode, Offload, Policy, Route, Sa};
use crate::tree::Tree;
use crypto::SecretBytes;
use ipnet::IpNet;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

const PATH: &str = "interfaces secgw <interface>";
/// The longest IP packet in a frame of AF_XDP, which is in one page of memory.
pub const LONGEST_OF_AF_XDP: u32 = 3826;
/// The longest one of DPDK, where a buffer holds one frame.
pub const LONGEST_OF_DPDK: u32 = 1778;

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
    /// Of how many packets fragments are kept, to put them together.
    pub reassemble: Option<u32>,
    /// How many threads carry packets.
    pub threads: u32,
    /// The names of the peers of IKE, as policies count them.
    pub ike_peers: Vec<String>,
    /// These peers.
    pub ike: BTreeMap<String, Arc<Peer>>,
    /// How often and when IKE sends a request again.
    pub retransmission: Patience,
}

/// An Ethernet port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// How its frames are carried.
    pub driver: Driver,
    /// Its interface; of a port of DPDK, the name of its device.
    pub interface: String,
    /// The device of a port of DPDK, as EAL takes it: a name, and arguments behind commas.
    pub device: Option<String>,
    /// Whether its packets are in clear.
    pub is_protected: bool,
    /// Whether it takes frames for other stations.
    pub is_promiscuous: bool,
    /// The Ethernet address behind it.
    pub neighbour: [u8; 6],
    /// The addresses that it answers ARP and neighbour discovery for.
    pub addresses: Vec<IpAddr>,
    /// Whether the kernel takes received frames some at a time.
    pub defers_napi: bool,
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
        let mut ike_peers = Vec::new();
        let policies = self.policies(&path, tree, &sas, &mut ike_peers);
        if !ike_peers.is_empty() {
            self.check_answers(&path, tree, &ports);
        }
        let routes = self.routes(&path, tree, &ports);
        let mtu = set_or_default(tree, PATH, "mtu");
        self.check_mtu(&path, tree, mtu, &ports);
        Secgw {
            description: tree.value("description").map(str::to_owned),
            ports,
            policies,
            sas: sas.into_values().collect(),
            routes,
            window: set_or_default(tree, PATH, "replay-window"),
            extended_sequence: tree.has("extended-sequence"),
            mtu,
            reassemble: set(tree, "reassemble"),
            threads: set_or_default(tree, PATH, "threads"),
            ike_peers,
            ike: BTreeMap::new(),
            retransmission: Patience::default(),
        }
    }

    /// Refuses what would take ARP from the kernel, by which messages of IKE leave.
    fn check_answers(&mut self, path: &str, tree: &Tree, ports: &BTreeMap<u16, Port>) {
        let mut of_af_xdp = ports.iter().filter(|(_, port)| port.driver == Driver::AfXdp);
        if let Some((number, port)) = of_af_xdp.find(|(_, port)| !port.addresses.is_empty()) {
            let reason = format!(
                "{path}: port {number}: address would take ARP of {} from the kernel, which needs it for IKE",
                port.interface
            );
            let fix = format!(
                "give the address to the interface, whose kernel answers, and delete {path} port {number} address"
            );
            self.error(tree.location_of("port"), reason, fix);
        }
    }

    fn check_mtu(&mut self, path: &str, tree: &Tree, mtu: u32, ports: &BTreeMap<u16, Port>) {
        for (driver, name, most) in
            [(Driver::AfXdp, "af-xdp", LONGEST_OF_AF_XDP), (Driver::Dpdk, "dpdk", LONGEST_OF_DPDK)]
        {
            let of_driver = ports.iter().find(|(_, port)| port.driver == driver);
            if let Some((number, _)) = of_driver.filter(|_| mtu > most) {
                let reason = format!(
                    "{path}: mtu {mtu}: port {number} has driver {name}, which carries packets of at most {most} bytes"
                );
                let fix = format!("set {path} mtu {most}, or set {path} port {number} driver packet");
                self.error(tree.location_of("mtu"), reason, fix);
            }
        }
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
        let words = ["direction", "spi", "encryption", "key"];
        let values = words.map(|word| self.required(path, tree, word));
        let mode = values[0].and_then(|word| self.mode(path, tree, direction_of(word)));
        let ([Some(direction), Some(spi), Some(encryption), Some(key)], Some(mode)) = (values, mode) else {
            return None;
        };
        let direction = direction_of(direction);
        let udp_encapsulation = tree.has("udp-encapsulation");
        let protection = self.protection(path, tree, encryption)?;
        let is_v6 = matches!(mode, Mode::Tunnel { source: IpAddr::V6(_), .. });
        if udp_encapsulation && is_v6 && matches!(protection, Protection::Pair(..)) {
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
            mode,
            protection,
            keys,
            offload: Offload::None,
            port: None,
            queue: None,
            fallback: None,
            udp_encapsulation,
            mss: set(tree, "mss").unwrap_or(0),
            extended_sequence: 0,
            telemetry: false,
            reassembly: false,
            limits: Limits {
                seconds: set(tree, "lifetime").unwrap_or(0),
                bytes: set(tree, "life-bytes").unwrap_or(0),
                packets: set(tree, "life-packets").unwrap_or(0),
            },
        })
    }

    /// The mode of an SA, with the ends of its tunnel.
    fn mode(&mut self, path: &str, tree: &Tree, direction: Direction) -> Option<Mode> {
        if tree.value("mode") == Some("transport") {
            for word in ["local-address", "remote-address", "udp-encapsulation"] {
                if tree.has(word) {
                    let reason = format!("{path}: {word} is for mode tunnel");
                    self.error(tree.location_of(word), reason, format!("delete {path} {word}"));
                }
            }
            return Some(Mode::Transport);
        }
        let [local, remote] = ["local-address", "remote-address"].map(|word| self.required(path, tree, word));
        let (local, remote): (IpAddr, IpAddr) = (local?.parse().ok()?, remote?.parse().ok()?);
        if local.is_ipv4() != remote.is_ipv4() {
            let reason = format!("{path}: of local-address and remote-address, one is IPv4, one is IPv6");
            self.error(tree.location_of("remote-address"), reason, "set both to addresses of one family");
            return None;
        }
        let (source, destination) = match direction {
            Direction::Outbound => (local, remote),
            Direction::Inbound => (remote, local),
        };
        Some(Mode::Tunnel { source, destination })
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
        let mac = if hash == "aesxcbc" { "aes-xcbc-mac-96".to_owned() } else { format!("{hash}-hmac") };
        Some(Protection::Pair(find(CIPHERS, &name)?, find(MACS, &mac)?))
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

/// The name of a cipher in the files of ipsec-secgw: `aes-128-gcm` for `aes128gcm128`, `aes-256-cbc` for `aes256`.
fn in_files(encryption: &str) -> String {
    match encryption {
        "chacha20poly1305" => return "chacha20-poly1305".to_owned(),
        "3des" => return "3des-cbc".to_owned(),
        _ => {}
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
