//! Overlaps between the tunnels of all peers: each packet must match one tunnel only.

use super::{Identity, Peer, Reader, Remote, Traffic, Tunnel};
use crate::tree::Tree;
use ipnet::IpNet;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// The packets of a tunnel, from one network to one network.
struct Selector<'a> {
    peer: &'a str,
    number: u32,
    tunnel: &'a Tunnel,
    local: IpNet,
    remote: IpNet,
}

/// Selectors whose prefixes are of the same lengths.
type Class = (bool, u8, u8);

impl<'a> Selector<'a> {
    /// Its peer and number.
    fn name(&self) -> (&'a str, u32) {
        (self.peer, self.number)
    }

    fn class(&self) -> Class {
        (matches!(self.local, IpNet::V4(_)), self.local.prefix_len(), self.remote.prefix_len())
    }

    /// The networks that have the lengths of both classes in common.
    fn cut_to(&self, (_, local, remote): Class) -> Option<(IpNet, IpNet)> {
        let cut = |prefix: &IpNet, length: u8| {
            IpNet::new(prefix.addr(), prefix.prefix_len().min(length)).ok().map(|prefix| prefix.trunc())
        };
        Some((cut(&self.local, local)?, cut(&self.remote, remote)?))
    }

    /// Whether both match the same packet, and neither takes precedence.
    fn conflicts_with(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.tunnel, other.tunnel);
        let is_other = self.name() != other.name();
        // A tunnel for one protocol or port takes precedence over one for all of them.
        let is_as_close = ours.protocol == theirs.protocol
            && ours.local.port == theirs.local.port
            && ours.remote.port == theirs.remote.port;
        is_other && is_as_close && ours.priority == theirs.priority
    }
}

/// Whether one of two classes lies within the other, so that its tunnels are the closer match wherever they meet.
fn is_nested((_, local, remote): Class, (_, other_local, other_remote): Class) -> bool {
    let is_within = local >= other_local && remote >= other_remote;
    let is_around = local <= other_local && remote <= other_remote;
    is_within != is_around
}

/// A network, or where there is none, the gateway's own address.
fn networks(traffic: &Traffic, own: &[IpAddr]) -> Vec<IpNet> {
    if traffic.prefixes.is_empty() {
        return own.iter().copied().map(IpNet::from).collect();
    }
    traffic.prefixes.clone()
}

fn selectors<'a>(name: &'a str, peer: &'a Peer) -> Vec<Selector<'a>> {
    let remote: Vec<IpAddr> = peer
        .remote_addresses
        .iter()
        .filter_map(|remote| match remote {
            Remote::Address(address) => Some(*address),
            Remote::Name(_) => None,
        })
        .collect();
    let local: Vec<IpAddr> = peer.local_address.into_iter().collect();
    let of_tunnel = |(number, tunnel): (u32, &'a Tunnel)| {
        let remotes = networks(&tunnel.remote, &remote);
        let pairs = networks(&tunnel.local, &local)
            .into_iter()
            .flat_map(move |local| remotes.clone().into_iter().map(move |remote| (local, remote)));
        let same_family =
            pairs.filter(|(local, remote)| matches!(local, IpNet::V4(_)) == matches!(remote, IpNet::V4(_)));
        same_family
            .map(|(local, remote)| Selector { peer: name, number, tunnel, local, remote })
            .collect::<Vec<_>>()
    };
    peer.tunnels.iter().map(|(&number, tunnel)| (number, &**tunnel)).flat_map(of_tunnel).collect()
}

impl Reader {
    /// No packet may be meant by two tunnels alike. Classes are compared, not all pairs: there may be 10,000 tunnels.
    pub(super) fn check_overlaps(&mut self, tree: &Tree, peers: &BTreeMap<String, Arc<Peer>>) {
        let mut classes: BTreeMap<Class, Vec<Selector<'_>>> = BTreeMap::new();
        for selector in peers.iter().flat_map(|(name, peer)| selectors(name, peer)) {
            classes.entry(selector.class()).or_default().push(selector);
        }
        let mut conflicts = BTreeMap::new();
        for (index, (&class, selectors)) in classes.iter().enumerate() {
            for (&other, others) in classes.iter().skip(index) {
                if class.0 == other.0 && !is_nested(class, other) {
                    collect_conflicts((class, selectors), (other, others), &mut conflicts);
                }
            }
        }
        for ((peer, number), other) in conflicts {
            self.report_conflict(tree, (peer, number), other);
        }
    }

    fn report_conflict(&mut self, tree: &Tree, (peer, number): (&str, u32), other: &Selector<'_>) {
        let path = format!("vpn ipsec site-to-site peer {peer} tunnel {number}");
        let words = ["site-to-site", "peer", peer, "tunnel", &number.to_string()];
        let location = tree.at(&words).map(Tree::location).unwrap_or_default();
        let reason = format!(
            "{path}: peer {} tunnel {} is for the same packets: {} to {}",
            other.peer, other.number, other.local, other.remote
        );
        let fix = format!("use different prefixes, or set which is used first: set {path} priority 2");
        self.error(location, reason, fix);
    }

    /// Two peers must differ in an address or identity: before authentication nothing else tells them apart.
    pub(super) fn check_peers(&mut self, tree: &Tree, peers: &BTreeMap<String, Arc<Peer>>) {
        type Seen<'a> = (Option<IpAddr>, Vec<&'a Remote>, &'a Option<Identity>, &'a Option<Identity>);
        let mut seen: HashMap<Seen<'_>, &str> = HashMap::new();
        for (name, peer) in peers {
            let mut remotes: Vec<&Remote> = peer.remote_addresses.iter().collect();
            remotes.sort();
            let key = (peer.local_address, remotes, &peer.local_id, &peer.remote_id);
            if let Some(other) = seen.insert(key, name) {
                let path = format!("vpn ipsec site-to-site peer {name}");
                let location =
                    tree.at(&["site-to-site", "peer", name]).map(Tree::location).unwrap_or_default();
                let reason = format!("{path}: peer {other} has the same addresses and identities");
                let fix = format!("set {path} authentication remote-id ID, or make them tunnels of one peer");
                self.error(location, reason, fix);
            }
        }
    }
}

/// Each tunnel of one class with the first tunnel of another that it conflicts with.
fn collect_conflicts<'a>(
    (class, selectors): (Class, &'a [Selector<'a>]),
    (other, others): (Class, &'a [Selector<'a>]),
    conflicts: &mut BTreeMap<(&'a str, u32), &'a Selector<'a>>,
) {
    let mut met: HashMap<(IpNet, IpNet), Vec<&Selector<'_>>> = HashMap::new();
    for selector in others {
        if let Some(key) = selector.cut_to(class) {
            met.entry(key).or_default().push(selector);
        }
    }
    for selector in selectors {
        let met = selector.cut_to(other).and_then(|key| met.get(&key)).into_iter().flatten();
        for &found in met.filter(|other| other.conflicts_with(selector)) {
            // Reported once, for the later of the two.
            let [first, second] =
                if found.name() < selector.name() { [found, selector] } else { [selector, found] };
            conflicts.entry(second.name()).or_insert(first);
        }
    }
}
