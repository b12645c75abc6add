//! Changes of a configuration at a level, as a shell asks for them.

use crate::error::{ConfigError, Location};
use crate::path::Path;
use crate::schema::{Cursor, Kind, Matching, Tag, Type};
use crate::statement::{comments_at, statements};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// Gives the branch at `path`, which ends in a name that the user has chosen, another name. What refers to it follows.
pub fn rename(tree: &mut Tree, path: &Path, new: &str) -> Result<(), ConfigError> {
    let (tag, old) = copied(tree, path, new)?;
    let words = path.words();
    tree.remove(&words, None);
    let referring: Vec<Path> = statements(tree)
        .iter()
        .filter(|it| {
            it.value() == Some(old)
                && it.node().and_then(|node| node.kind.value_type()).is_some_and(|kind| refers(kind, tag))
        })
        .map(|it| Path::new(it.path().iter().copied()))
        .collect();
    for path in referring {
        tree.replace(&path.words(), old, new);
    }
    for branch in referring_branches(tree, tag, old) {
        let words = branch.words();
        let to: Vec<&str> = words[..words.len() - 1].iter().copied().chain([new]).collect();
        if let Some(moved) = tree.at(&words).cloned() {
            tree.remove(&words, None);
            tree.insert(&to, moved);
        }
    }
    Ok(())
}

/// Whether values or names of this type are names of what the tag names. All interfaces share their names.
fn refers(kind: Type, tag: &Tag) -> bool {
    let is_interface = tag.path.starts_with("interfaces ") && tag.path.split(' ').count() == 3;
    match kind {
        Type::Reference(target) => target == tag.path,
        Type::Matching(Matching::Link | Matching::Links) | Type::Interface(_) => is_interface,
        _ => false,
    }
}

/// Branches whose name is that name, as those of `firewall zone LAN from OLD`.
fn referring_branches(tree: &Tree, tag: &Tag, old: &str) -> BTreeSet<Path> {
    let mut branches = BTreeSet::new();
    for statement in statements(tree) {
        let words = statement.path();
        for end in 1..=words.len() {
            let named = || Cursor::at(words[..end].iter().copied()).and_then(Cursor::tag);
            if words[end - 1] == old && named().is_some_and(|it| it.path != tag.path && refers(it.kind, tag))
            {
                branches.insert(Path::new(words[..end].iter().copied()));
            }
        }
    }
    branches
}

/// Sets under another name what is set at `path`, which ends in a name that the user has chosen.
pub fn copy(tree: &mut Tree, path: &Path, new: &str) -> Result<(), ConfigError> {
    copied(tree, path, new).map(|_| ())
}

/// Sets all that another configuration has.
pub fn merge(tree: &mut Tree, other: &Tree) {
    for statement in statements(other) {
        let words: Vec<(&str, Location)> =
            statement.path().iter().map(|word| (*word, Location::default())).collect();
        let is_list = statement.node().is_some_and(|node| matches!(node.kind, Kind::Values(_)));
        match (statement.value(), statement.node()) {
            (Some(value), _) => tree.make(&words).set(value, Location::default(), is_list),
            (None, Some(_)) => tree.make(&words).unset(),
            (None, None) => _ = tree.make(&words),
        }
    }
    for comment in comments_at(other, &[]) {
        if let Some(branch) = tree.branch(&comment.path) {
            branch.note(Some(comment.text.to_owned()));
        }
    }
}

/// Copies a branch; returns what its name is a name of, and the name.
fn copied<'a>(tree: &mut Tree, path: &'a Path, new: &str) -> Result<(&'static Tag, &'a str), ConfigError> {
    let error = |reason: String| ConfigError::new(Location::default(), reason);
    let words = path.words();
    let tag = Cursor::at(words.iter().copied()).and_then(Cursor::tag);
    let (Some(tag), Some((old, kind))) = (tag, words.split_last()) else {
        return Err(error(format!("{path} does not end in a name that you chose"))
            .fix("name a branch such as interfaces wireguard wg0"));
    };
    tag.kind.check(new).map_err(error)?;
    let to: Vec<&str> = kind.iter().copied().chain([new]).collect();
    if tree.at(&to).is_some() {
        let to = to.join(" ");
        return Err(error(format!("{to} is set already")).fix(format!("choose another name, or delete {to}")));
    }
    let branch = tree.at(&words).cloned().ok_or_else(|| error(format!("{path} is not set")))?;
    tree.insert(&to, branch);
    Ok((tag, old))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const BEFORE: &str = "set vpn ipsec ike-group OFFICE lifetime 3600\n\
        set vpn ipsec esp-group OFFICE lifetime 600\n\
        set vpn ipsec site-to-site peer berlin ike-group OFFICE\n\
        set vpn ipsec site-to-site peer berlin default-esp-group OFFICE";

    fn group() -> Path {
        Path::new(["vpn", "ipsec", "ike-group", "OFFICE"])
    }

    #[test]
    fn what_refers_to_a_name_follows_when_it_changes() {
        let mut tree = parse(BEFORE).expect("right");
        rename(&mut tree, &group(), "SITES").expect("renamed");
        let after = BEFORE.replace("ike-group OFFICE", "ike-group SITES");
        assert_eq!(tree, parse(&after).expect("right"), "and the esp-group of the same name does not");
    }

    #[test]
    fn zones_rules_and_routes_follow_an_interface_and_zones_follow_a_zone() {
        let before = "set interfaces wireguard wg0 mtu 1400\n\
            set firewall zone VPN member interface wg0\n\
            set firewall zone LAN from VPN firewall name IN\n\
            set nat source rule 1 outbound-interface name wg0\n\
            set service path-monitor interface wg0\n\
            set protocols static route 192.0.2.0/24 interface wg0 distance 2\n\
            set firewall ipv4 name wg0 default-action drop";
        let mut tree = parse(before).expect("right");
        rename(&mut tree, &Path::new(["interfaces", "wireguard", "wg0"]), "wg9").expect("renamed");
        let after = before.replace("wg0", "wg9").replace("ipv4 name wg9", "ipv4 name wg0");
        assert_eq!(tree, parse(&after).expect("right"), "a rule set is no interface");
        rename(&mut tree, &Path::new(["firewall", "zone", "VPN"]), "TUNNELS").expect("renamed");
        assert_eq!(tree, parse(&after.replace("VPN", "TUNNELS")).expect("right"));
    }

    #[test]
    fn what_another_configuration_has_is_added_or_replaces() {
        let mut tree = parse(
            "set interfaces wireguard wg0 mtu 1400\nset interfaces wireguard wg0 address 10.0.0.1/8\n\
            set vpn ipsec ike-group A ikev2-reauth no",
        )
        .expect("right");
        let other = parse(
            "set interfaces wireguard wg0 mtu 1300\nset interfaces wireguard wg0 address 10.0.0.2/8\n\
            set vpn ipsec ike-group A ikev2-reauth\nset interfaces wireguard wg1\ncomment interfaces wireguard wg1 new",
        )
        .expect("right");
        merge(&mut tree, &other);
        let both = parse(
            "set interfaces wireguard wg0 mtu 1300\nset interfaces wireguard wg0 address 10.0.0.1/8\n\
            set interfaces wireguard wg0 address 10.0.0.2/8\nset interfaces wireguard wg1\n\
            set vpn ipsec ike-group A ikev2-reauth\ncomment interfaces wireguard wg1 new",
        )
        .expect("right");
        assert_eq!(tree, both);
    }

    #[test]
    fn a_copy_has_all_of_the_original() {
        let mut tree = parse(BEFORE).expect("right");
        copy(&mut tree, &group(), "SITES").expect("copied");
        let after = format!("{BEFORE}\nset vpn ipsec ike-group SITES lifetime 3600");
        assert_eq!(tree, parse(&after).expect("right"));
    }

    #[test]
    fn only_a_chosen_name_is_changed_to_a_valid_and_free_one() {
        let mut tree = parse(BEFORE).expect("right");
        let mut reason = |words: &[&str], new: &str| {
            rename(&mut tree, &Path::new(words.iter().copied()), new).expect_err("refused").reason
        };
        assert!(reason(&["vpn", "ipsec"], "a").contains("a name that you chose"));
        assert!(reason(&["vpn", "ipsec", "ike-group", "HOME"], "a").contains("is not set"));
        assert!(reason(&["vpn", "ipsec", "ike-group", "OFFICE"], "a b").contains("without spaces"));
        assert!(reason(&["vpn", "ipsec", "ike-group", "OFFICE"], "OFFICE").contains("is set already"));
        assert_eq!(tree, parse(BEFORE).expect("right"));
    }
}
