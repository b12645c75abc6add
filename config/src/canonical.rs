//! A configuration in one dialect: the words of newer VyOS in the place of those of older ones. What has no effect is left out.

use crate::error::Location;
use crate::schema::{Cursor, Kind};
use crate::statement::statements;
use crate::tree::Tree;
use std::net::IpAddr;

/// A path and a value.
type Setting<'a> = (Vec<&'a str>, Option<&'a str>);

/// The same configuration in the newer words.
pub fn canonical(tree: &Tree) -> Tree {
    let mut made = Tree::default();
    for statement in statements(tree) {
        let setting = newer(statement.path().to_vec(), statement.value());
        for (path, value) in setting.into_iter().flat_map(|setting| with_shared_secret(setting, tree)) {
            put(&mut made, &path, value);
        }
    }
    for (name, peer) in peers(tree) {
        let is_address = name.parse::<IpAddr>().is_ok() && peer.values("remote-address").is_empty();
        if is_address {
            put(&mut made, &["vpn", "ipsec", "site-to-site", "peer", name, "remote-address"], Some(name));
        }
    }
    made
}

fn peers(tree: &Tree) -> impl Iterator<Item = (&str, &Tree)> {
    tree.at(&["vpn", "ipsec", "site-to-site", "peer"]).into_iter().flat_map(Tree::children)
}

fn put(tree: &mut Tree, path: &[&str], value: Option<&str>) {
    let words: Vec<(&str, Location)> = path.iter().map(|word| (*word, Location::default())).collect();
    let node = Cursor::at(path.iter().copied()).and_then(Cursor::node);
    let branch = tree.make(&words);
    if let Some(value) = value {
        branch.set(value, Location::default(), node.is_some_and(|node| matches!(node.kind, Kind::Values(_))));
    }
}

/// A setting in the newer words; none if it says what holds anyway, or has no effect.
fn newer<'a>(path: Vec<&'a str>, value: Option<&'a str>) -> Option<Setting<'a>> {
    let renamed =
        |count: usize, words: &[&'a str], value| Some(([&path[..path.len() - count], words].concat(), value));
    match (&path[..], value) {
        ([.., "peer", _, "pubkey"], _) => renamed(1, &["public-key"], value),
        (["vpn", "ipsec", "ike-group" | "esp-group", _, "ikev2-reauth" | "compression"], Some(word)) => {
            matches!(word, "yes" | "enable").then(|| (path.clone(), None))
        }
        (["vpn", "ipsec", "ike-group", _, "mobike"], Some("disable")) => {
            renamed(1, &["disable-mobike"], None)
        }
        ([.., "dead-peer-detection", "action"] | [.., "close-action"], Some("hold")) => {
            Some((path, Some("trap")))
        }
        ([.., "close-action"], Some("restart")) => Some((path, Some("start"))),
        ([.., "close-action"], Some("clear")) => Some((path, Some("none"))),
        ([.., "peer", _, "authentication", "id"], _) => renamed(1, &["local-id"], value),
        ([.., "peer", _, "force-encapsulation"], Some("enable")) => {
            renamed(1, &["force-udp-encapsulation"], None)
        }
        (["vpn", "ipsec", "ipsec-interfaces", "interface"], _) => renamed(2, &["interface"], value),
        (["vpn", "ipsec", "logging", "log-level"], _) => renamed(2, &["log", "level"], value),
        (["vpn", "ipsec", "logging", "log-modes"], _) => renamed(2, &["log", "subsystem"], value),
        (
            ["vpn", "ipsec", "ike-group", _, "mobike"]
            | [.., "force-encapsulation" | "allow-nat-networks" | "allow-public-networks"]
            | [
                "vpn",
                "ipsec",
                "auto-update"
                | "nat-traversal"
                | "nat-networks"
                | "include-ipsec-conf"
                | "include-ipsec-secrets",
                ..,
            ],
            _,
        ) => None,
        _ => Some((path, value)),
    }
}

/// The secret of a peer as one that is named, with the identities that it is for.
fn with_shared_secret<'a>((path, value): Setting<'a>, tree: &'a Tree) -> Vec<Setting<'a>> {
    let ["vpn", "ipsec", "site-to-site", "peer", name, "authentication", "pre-shared-secret"] = path[..]
    else {
        return vec![(path, value)];
    };
    let Some(peer) = tree.at(&path[..5]) else { return vec![(path, value)] };
    let said = |words: &[&str], last: &str| peer.at(words).and_then(|branch| branch.value(last));
    let usable = |text: &&str| !matches!(*text, "any" | "%any");
    let named = |words: &[&str]| words.iter().find_map(|word| said(&["authentication"], word));
    let ours = named(&["local-id", "id"]).or_else(|| said(&[], "local-address")).filter(usable);
    let address = name.parse::<IpAddr>().is_ok() || name.starts_with('@');
    let theirs = named(&["remote-id"]).or_else(|| said(&[], "remote-address")).or(address.then_some(name));
    let theirs = theirs.filter(usable);
    let Some(theirs) = theirs else { return vec![(path, value)] };
    let psk = |word| vec!["vpn", "ipsec", "authentication", "psk", name, word];
    let ids = ours.into_iter().chain([theirs]).map(|id| (psk("id"), Some(id)));
    [(psk("secret"), value)].into_iter().chain(ids).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{parse, print};

    fn converted(text: &str) -> String {
        print::commands(&canonical(&parse(text).expect("right")), true)
    }

    #[test]
    fn older_words_become_newer_ones() {
        let text = "set interfaces wireguard wg0 peer a pubkey xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
            set vpn ipsec ike-group A ikev2-reauth no\n\
            set vpn ipsec ike-group B ikev2-reauth yes\n\
            set vpn ipsec ike-group B mobike disable\n\
            set vpn ipsec ike-group B dead-peer-detection action hold\n\
            set vpn ipsec ike-group B close-action restart\n\
            set vpn ipsec ipsec-interfaces interface eth0\n\
            set vpn ipsec nat-traversal enable\n";
        assert_eq!(
            converted(text),
            "set interfaces wireguard wg0 peer a public-key xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
             set vpn ipsec ike-group B close-action start\n\
             set vpn ipsec ike-group B dead-peer-detection action trap\n\
             set vpn ipsec ike-group B disable-mobike\n\
             set vpn ipsec ike-group B ikev2-reauth\n\
             set vpn ipsec interface eth0\n"
        );
    }

    #[test]
    fn the_secret_of_a_peer_gets_a_name_and_the_identities_it_is_for() {
        let peer = "set vpn ipsec site-to-site peer 203.0.113.10";
        let text = format!(
            "{peer} authentication pre-shared-secret Open\n{peer} authentication mode pre-shared-secret\n\
             {peer} local-address 198.51.100.10\n"
        );
        let shown = converted(&text);
        assert_eq!(
            shown,
            format!(
                "set vpn ipsec authentication psk 203.0.113.10 id 198.51.100.10\n\
                 set vpn ipsec authentication psk 203.0.113.10 id 203.0.113.10\n\
                 set vpn ipsec authentication psk 203.0.113.10 secret Open\n\
                 {peer} authentication mode pre-shared-secret\n\
                 {peer} local-address 198.51.100.10\n{peer} remote-address 203.0.113.10\n"
            )
        );
        assert_eq!(converted(&shown), shown, "and stays so");
    }
}
