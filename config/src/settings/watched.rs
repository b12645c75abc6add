//! What rules of health look at in a configuration. It is read from the tree, so that also one that cannot be served can be looked at.

use super::health::{Tuning, tunings};
use super::ipsec::{self, esp_with_preset, ike_with_preset};
use super::{branches, set};
use crate::schema::bytes_of;
use crate::tree::Tree;
use crypto::pki::Certificate;
use std::collections::{BTreeMap, BTreeSet};

/// What rules of health look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Whether accelerators on a bus may be used.
    pub accelerators: bool,
    /// The cipher and the MAC that each `esp-group` wants most; none of a group that leaves them to us.
    pub suites: BTreeMap<String, Suite>,
    /// Whether a peer of IPsec is configured.
    pub has_ipsec: bool,
    /// Seconds of silence after which each `ike-group` probes a peer.
    pub detections: BTreeMap<String, u32>,
    /// Offloads that are switched off, by interface.
    pub offloads: BTreeMap<String, Vec<String>>,
    /// Largest packets inside WireGuard and IPsec, by the path of the value. OpenVPN lowers the MSS instead.
    pub mtus: BTreeMap<String, Mtu>,
    /// When certificates end, in seconds since 1970, by the path of their branch.
    pub certificates: BTreeMap<String, u64>,
    /// Interfaces of tunnels whose packets must fit the path.
    pub tunnels: BTreeSet<String>,
    /// What is different about rules, by their names. A threshold that a rule has not is left out.
    pub tunings: BTreeMap<String, Tuning>,
}

/// What an `esp-group` wants most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suite {
    /// The word of the cipher.
    pub encryption: String,
    /// The word of the MAC, if one is set.
    pub hash: Option<String>,
}

/// The largest packet inside a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtu {
    /// Its bytes.
    pub bytes: u32,
    /// Bytes that the tunnel adds at least.
    pub overhead: u32,
}

/// Outer IPv4, UDP, and WireGuard's header and tag.
pub const WIREGUARD_OVERHEAD: u32 = 20 + 8 + 16 + 16;
/// Outer IPv4, ESP's header, an IV of eight bytes, the trailer, a tag of 16 bytes.
pub const ESP_OVERHEAD: u32 = 20 + 8 + 8 + 2 + 16;

impl Watched {
    /// What a configuration has of it.
    pub fn new(tree: &Tree) -> Self {
        let ipsec = |words: &[&str]| tree.at(&[&["vpn", "ipsec"], words].concat());
        let groups = |word: &str| {
            let groups = ipsec(&[word]).into_iter().flat_map(Tree::children);
            groups.map(|(name, group)| (name.to_owned(), group)).collect::<Vec<_>>()
        };
        let suite = |group: &Tree| {
            let group = esp_with_preset(group);
            let (_, first) = group.at(&["proposal"])?.children().next()?;
            let hash = first.value("hash").map(str::to_owned);
            Some(Suite { encryption: first.value("encryption").unwrap_or("aes128").to_owned(), hash })
        };
        let detection = |group: &Tree| {
            let group = ike_with_preset(group);
            let detection = group.at(&["dead-peer-detection"])?;
            Some(set(detection, "interval").unwrap_or(30))
        };
        Self {
            accelerators: tree.at(&["system", "acceleration", "qat"]).is_some(),
            suites: groups("esp-group")
                .into_iter()
                .filter_map(|(name, it)| Some((name, suite(it)?)))
                .collect(),
            has_ipsec: ipsec(&["site-to-site", "peer"]).is_some() || ipsec(&["esp-group"]).is_some(),
            detections: groups("ike-group")
                .into_iter()
                .filter_map(|(name, it)| Some((name, detection(it)?)))
                .collect(),
            offloads: offloads(tree),
            mtus: mtus(tree),
            certificates: certificates(tree),
            tunnels: tunnels(tree),
            tunings: tunings(tree),
        }
    }
}

fn offloads(tree: &Tree) -> BTreeMap<String, Vec<String>> {
    let of = |(name, interface): (&str, &Tree)| {
        let off: Vec<String> = interface.values("disable-offload").into_iter().map(str::to_owned).collect();
        (!off.is_empty()).then(|| (name.to_owned(), off))
    };
    branches(tree, &["interfaces", "wireguard"]).filter_map(of).collect()
}

/// IPsec has one interface for all peers.
fn tunnels(tree: &Tree) -> BTreeSet<String> {
    let wireguard = branches(tree, &["interfaces", "wireguard"]).map(|(name, _)| name.to_owned());
    let has_ipsec = branches(tree, &["vpn", "ipsec", "site-to-site", "peer"]).next().is_some();
    wireguard.chain(has_ipsec.then(|| ipsec::INTERFACE.to_owned())).collect()
}

fn mtus(tree: &Tree) -> BTreeMap<String, Mtu> {
    let mut mtus = BTreeMap::new();
    for (name, interface) in branches(tree, &["interfaces", "wireguard"]) {
        if let Some(bytes) = set(interface, "mtu") {
            let overhead = WIREGUARD_OVERHEAD;
            mtus.insert(format!("interfaces wireguard {name} mtu"), Mtu { bytes, overhead });
        }
    }
    for (peer, branch) in branches(tree, &["vpn", "ipsec", "site-to-site", "peer"]) {
        for (number, tunnel) in branches(branch, &["tunnel"]) {
            if let Some(bytes) = set(tunnel, "mtu") {
                let path = format!("vpn ipsec site-to-site peer {peer} tunnel {number} mtu");
                mtus.insert(path, Mtu { bytes, overhead: ESP_OVERHEAD });
            }
        }
    }
    mtus
}

/// Those that are revoked are not in use.
fn certificates(tree: &Tree) -> BTreeMap<String, u64> {
    let mut ends = BTreeMap::new();
    for kind in ["certificate", "ca"] {
        for (name, branch) in branches(tree, &["pki", kind]).filter(|(_, it)| !it.has("revoke")) {
            let der = branch.value("certificate").and_then(bytes_of);
            if let Some(read) = der.and_then(|der| Certificate::from_der(&der).ok()) {
                ends.insert(format!("pki {kind} {name}"), read.not_after().as_secs());
            }
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn what_rules_look_at_is_read_also_of_a_configuration_that_is_not_complete() {
        let tree = parse(
            "set system acceleration qat\n\
             set vpn ipsec esp-group A proposal 1 encryption aes256\n\
             set vpn ipsec esp-group A proposal 1 hash sha256\n\
             set vpn ipsec esp-group A proposal 2 encryption aes256gcm128\n\
             set vpn ipsec esp-group B preset bulk\n\
             set vpn ipsec esp-group C lifetime 3600\n\
             set vpn ipsec ike-group A dead-peer-detection interval 5\n\
             set vpn ipsec ike-group B dead-peer-detection action restart\n\
             set vpn ipsec ike-group C lifetime 3600\n\
             set vpn ipsec site-to-site peer b tunnel 1 mtu 1500\n\
             set service health rule backlog-drops threshold 50\n\
             set service health rule clock-unsynchronised disable\n\
             set interfaces wireguard wg0 mtu 1500\n\
             set interfaces wireguard wg0 disable-offload udp-gso\n",
        )
        .expect("right");
        let watched = Watched::new(&tree);
        assert!(watched.accelerators && watched.has_ipsec);
        let suites: Vec<_> = watched.suites.iter().map(|(name, it)| (&**name, &*it.encryption)).collect();
        assert_eq!(suites, [("A", "aes256"), ("B", "aes128gcm128")]);
        assert_eq!(watched.suites["A"].hash.as_deref(), Some("sha256"));
        let detections: Vec<_> = watched.detections.iter().map(|(name, it)| (&**name, *it)).collect();
        assert_eq!(detections, [("A", 5), ("B", 30)]);
        assert_eq!(watched.offloads["wg0"], ["udp-gso"]);
        assert_eq!(watched.mtus.len(), 2);
        assert_eq!(watched.tunnels, ["ipsec0", "wg0"].map(str::to_owned).into());
        assert!(watched.tunings["clock-unsynchronised"].is_disabled);
        assert_eq!(watched.tunings["backlog-drops"].threshold, Some(50));
        assert_eq!(Watched::new(&Tree::default()), Watched::default());
    }
}
