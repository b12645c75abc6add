//! What must be done to an interface to make it what the configuration says: only what differs, so that every session
//! that is not concerned goes on.

use super::names::Known;
use super::update::{AllowedIpUpdate, PeerUpdate, Update};
use crate::host::netlink::{MAIN_TABLE, Rule};
use crate::host::wants::Wants;
use config::settings::{Peer, WireGuard};
use crypto::PublicKey;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The mark, and the routing table, of a tunnel for all traffic that was given no mark.
const FULL_TUNNEL_MARK: u32 = 51_820;

/// What the kernel is to know for these settings.
///
/// A tunnel for all traffic must not carry its own datagrams: they are marked, and everything without the mark
/// uses a table of its own, after the more specific routes of the main table.
pub fn wants(settings: &WireGuard) -> Wants {
    let addresses: BTreeSet<IpNet> = settings.addresses.iter().copied().collect();
    let mut wants = Wants { addresses, ..Wants::default() };
    if settings.disable {
        return wants;
    }
    let mark = mark(settings);
    for prefix in settings.peers.values().flat_map(|peer| &peer.allowed_ips) {
        let v6 = matches!(prefix, IpNet::V6(_));
        if prefix.prefix_len() == 0 {
            wants.routes.insert((*prefix, mark));
            wants.closed.insert((*prefix, mark));
            wants.rules.extend([Rule::NotMarked { v6, mark, table: mark }, Rule::MainFirst { v6 }]);
        } else if let Some(address) = wants.addresses.iter().find(|it| it.trunc().contains(prefix)) {
            // What lies in the interface's own network is routed already, by the kernel, as a whole.
            wants.closed.insert((address.trunc(), MAIN_TABLE));
        } else {
            wants.routes.insert((*prefix, MAIN_TABLE));
            wants.closed.insert((*prefix, MAIN_TABLE));
        }
    }
    wants
}

/// The mark on outer packets.
fn mark(settings: &WireGuard) -> u32 {
    let carries_all =
        || settings.peers.values().flat_map(|peer| &peer.allowed_ips).any(|p| p.prefix_len() == 0);
    match settings.fwmark {
        0 if carries_all() => FULL_TUNNEL_MARK,
        mark => mark,
    }
}

/// The update of keys and peers from `before` to `after`; `None` for an interface of which nothing is known. Peers that are found by name are
/// called where it was last.
pub fn update(before: Option<&WireGuard>, after: &WireGuard, known: &Known) -> Update {
    let before_mark = before.map(mark);
    let old: BTreeMap<PublicKey, &Peer> = peers(before).collect();
    let new: BTreeMap<PublicKey, &Peer> = peers(Some(after)).collect();
    // An endpoint cannot be taken from a peer: it goes and comes back without it, and calls when it has something to say.
    let is_called = |peer: &Peer| peer.endpoint.is_some() || peer.host.is_some();
    let is_silenced = |key: &PublicKey, before: &Peer| {
        new.get(key).is_some_and(|after| is_called(before) && !is_called(after))
    };
    let goes = |(key, peer): &(PublicKey, &Peer)| !new.contains_key(key) || is_silenced(key, peer);
    let removed = peers(before).filter(goes).map(|(key, _)| {
        let mut update = PeerUpdate::new(key);
        update.remove = true;
        update
    });
    // First what goes, then what comes: a prefix may move from one peer to another.
    let changed = peers(Some(after)).filter_map(|(key, peer)| {
        let before = old.get(&key).copied().filter(|before| !is_silenced(&key, before));
        peer_update(key, before, peer, known)
    });
    Update {
        private_key: before
            .is_none_or(|before| before.private_key != after.private_key)
            .then(|| after.private_key.clone()),
        listen_port: before.is_none_or(|before| before.port != after.port).then(|| after.port.unwrap_or(0)),
        fwmark: (before_mark != Some(mark(after))).then(|| mark(after)),
        names: (before.map(names) != Some(names(after))).then(|| names(after)),
        eager: before.is_none().then_some(true),
        replace_peers: before.is_none(),
        peers: removed.chain(changed).collect(),
    }
}

/// What the log calls peers.
fn names(settings: &WireGuard) -> BTreeMap<PublicKey, String> {
    settings.peers.iter().map(|(name, peer)| (peer.public_key, name.clone())).collect()
}

/// The peers in the order of their names.
fn peers(settings: Option<&WireGuard>) -> impl Iterator<Item = (PublicKey, &Peer)> {
    settings.into_iter().flat_map(|settings| settings.peers.values()).map(|peer| (peer.public_key, peer))
}

fn peer_update(key: PublicKey, before: Option<&Peer>, after: &Peer, known: &Known) -> Option<PeerUpdate> {
    if before == Some(after) {
        return None;
    }
    let mut update = PeerUpdate::new(key);
    if before.is_none_or(|before| before.preshared_key != after.preshared_key) {
        update.preshared = Some(after.preshared_key.clone());
    }
    let addresses = |peer: &Peer| -> Vec<SocketAddr> {
        let named = peer.host.as_ref().map(|host| known.addresses(host)).unwrap_or_default();
        peer.endpoint.into_iter().chain(named).chain(peer.backups.iter().copied()).collect()
    };
    let is_elsewhere =
        before.is_none_or(|before| (before.endpoint, &before.host) != (after.endpoint, &after.host));
    // A peer that has moved stays where it is, unless the configuration itself says something new.
    if is_elsewhere {
        update.endpoint = addresses(after).first().copied();
    }
    if is_elsewhere || before.is_none_or(|before| addresses(before) != addresses(after)) {
        update.addresses = Some(addresses(after));
    }
    if before.is_none_or(|before| before.persistent_keepalive != after.persistent_keepalive) {
        update.persistent_keepalive = Some(after.persistent_keepalive);
    }
    if before.is_none_or(|before| before.allowed_ips != after.allowed_ips) {
        update.replace_allowed_ips = true;
        update.allowed_ips =
            after.allowed_ips.iter().map(|&prefix| AllowedIpUpdate { remove: false, prefix }).collect();
    }
    Some(update)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wireguard::sample;
    use crate::wireguard::sample::C;

    fn update(before: Option<&WireGuard>, after: &WireGuard) -> Update {
        super::update(before, after, &Known::default())
    }

    fn settings(extra: &[&str]) -> WireGuard {
        let allowed = ["peer b allowed-ips 10.1.0.2/32", "peer b allowed-ips 10.2.0.0/24"];
        let mut settings = sample::wireguard(&[&allowed[..], extra].concat());
        settings.wireguard.remove("wg0").expect("it is set")
    }

    #[test]
    fn nothing_changed_is_nothing_done() {
        assert_eq!(update(Some(&settings(&[])), &settings(&[])), Update::default());
        let described = settings(&["description x", "peer b description y"]);
        let update = update(Some(&settings(&[])), &described);
        assert!(update.private_key.is_none() && update.listen_port.is_none());
        assert!(update.peers.iter().all(|peer| peer.allowed_ips.is_empty() && peer.endpoint.is_none()));
    }

    #[test]
    fn only_the_peer_that_changed_is_touched() {
        let before = settings(&[&format!("peer c public-key {C}"), "peer c allowed-ips 10.3.0.0/24"]);
        let after = settings(&[
            &format!("peer c public-key {C}"),
            "peer c allowed-ips 10.3.0.0/24",
            "peer c persistent-keepalive 25",
        ]);
        let change = update(Some(&before), &after);
        assert_eq!((change.peers.len(), change.peers[0].persistent_keepalive), (1, Some(25)));
        let change = update(Some(&after), &settings(&[]));
        assert!(change.peers.len() == 1 && change.peers[0].remove);
    }

    #[test]
    fn a_peer_whose_endpoint_is_deleted_has_none() {
        let before = settings(&["peer b address 192.0.2.1", "peer b port 5"]);
        let change = update(Some(&before), &settings(&[]));
        let [gone, back] = &change.peers[..] else { panic!("{change:?}") };
        assert!(gone.remove && !back.remove && back.public == gone.public);
        assert!(back.endpoint.is_none() && back.allowed_ips.len() == 2);
        let moved = settings(&["peer b address 192.0.2.2", "peer b port 5"]);
        assert_eq!(update(Some(&before), &moved).peers.len(), 1);
    }

    #[test]
    fn a_peer_that_is_found_by_name_is_called_where_it_was_last() {
        let address = settings(&["peer b address 192.0.2.1", "peer b port 5"]);
        let named =
            settings(&["peer b host-name b.example", "peer b port 5", "peer b backup-address 192.0.2.9"]);
        let socket = |text: &str| text.parse::<SocketAddr>().expect("literal");
        let change = update(Some(&address), &named);
        let [peer] = &change.peers[..] else { panic!("{change:?}") };
        assert!(!peer.remove, "its session goes on");
        assert_eq!(peer.endpoint, Some(socket("192.0.2.9:5")), "until the name is known");
        let known = Known::default();
        known.note("b.example", Ok(vec!["192.0.2.3".parse().expect("literal")]));
        let change = super::update(Some(&address), &named, &known);
        let all = ["192.0.2.3:5", "192.0.2.9:5"].map(socket);
        assert_eq!(
            (change.peers[0].endpoint, change.peers[0].addresses.as_deref()),
            (Some(all[0]), Some(&all[..]))
        );
        let back = update(Some(&named), &address);
        assert_eq!(back.peers[0].endpoint, Some(socket("192.0.2.1:5")));
        assert!(update(Some(&named), &settings(&[])).peers[0].remove, "it is not called any more");
    }

    #[test]
    fn a_backup_address_that_comes_does_not_move_the_peer() {
        let first = ["peer b address 192.0.2.1", "peer b port 5"];
        let backup = ["peer b backup-address 192.0.2.2", "peer b backup-address 192.0.2.3:6"];
        let change = update(Some(&settings(&first)), &settings(&[first, backup].concat()));
        let [peer] = &change.peers[..] else { panic!("{change:?}") };
        let all = ["192.0.2.1:5", "192.0.2.2:5", "192.0.2.3:6"].map(|text| text.parse().expect("literal"));
        assert_eq!((peer.endpoint, peer.addresses.as_deref()), (None, Some(&all[..])));
    }

    #[test]
    fn a_new_interface_gets_everything() {
        let all = update(None, &settings(&["port 5"]));
        assert_eq!((all.listen_port, all.fwmark, all.peers.len()), (Some(5), Some(0), 1));
        assert!(all.private_key.is_some());
    }

    #[test]
    fn prefixes_are_routed_unless_the_interface_has_them_already() {
        let wants = wants(&settings(&[]));
        let route = ("10.2.0.0/24".parse().expect("literal"), MAIN_TABLE);
        assert_eq!((&wants.routes, wants.rules.len()), (&BTreeSet::from([route]), 0));
        let own = ("10.1.0.0/24".parse().expect("literal"), MAIN_TABLE);
        assert_eq!(wants.closed, BTreeSet::from([own, route]));
        assert!(super::wants(&settings(&["disable"])).routes.is_empty());
    }

    #[test]
    fn a_tunnel_for_everything_gets_a_table_and_a_mark() {
        let all = settings(&["peer b allowed-ips 0.0.0.0/0"]);
        let wants = wants(&all);
        assert!(wants.routes.contains(&("0.0.0.0/0".parse().expect("literal"), 51_820)));
        let rules =
            [Rule::NotMarked { v6: false, mark: 51_820, table: 51_820 }, Rule::MainFirst { v6: false }];
        assert_eq!(wants.rules, BTreeSet::from(rules));
        assert_eq!(update(Some(&settings(&[])), &all).fwmark, Some(51_820));
        assert_eq!(update(None, &settings(&["peer b allowed-ips ::/0", "fwmark 7"])).fwmark, Some(7));
    }
}
