//! Changes of a configuration at a level, as a shell asks for them.

use crate::error::{ConfigError, Location};
use crate::path::Path;
use crate::schema::{Cursor, Kind, Matching, Tag, Type};
use crate::statement::{comments_at, statements};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// Gives the branch at `path`, which ends in a name that the user has chosen, another name. What refers to it follows.
pub fn rename(tree: &mut Tree, path: &Path, new: &str) -> Result<(), ConfigError> {
    let mut renamed = tree.clone();
    let (tag, old) = copied(&mut renamed, path, new)?;
    let words = path.words();
    renamed.remove(&words, None);
    let branch = tree.at(&words);
    for (old, new) in names(tag, &words, branch, (old, new)) {
        follow(&mut renamed, tag, &old, &new)?;
    }
    *tree = renamed;
    Ok(())
}

/// The names that change with that of a branch: an interface has its VLANs, such as eth0.7, and is excluded as !eth0.
fn names(tag: &Tag, path: &[&str], branch: Option<&Tree>, (old, new): (&str, &str)) -> Vec<(String, String)> {
    if is_vlan(tag) {
        let parent = path.iter().rev().nth(2).copied().unwrap_or_default();
        return with_exclusion(format!("{parent}.{old}"), format!("{parent}.{new}")).into();
    }
    if !is_interface(tag) {
        return vec![(old.to_owned(), new.to_owned())];
    }
    let vlans = branch.and_then(|branch| branch.at(&["vif"])).into_iter().flat_map(Tree::children);
    let vlans = vlans.map(|(id, _)| (format!("{old}.{id}"), format!("{new}.{id}")));
    let all = [(old.to_owned(), new.to_owned())].into_iter().chain(vlans);
    all.flat_map(|(old, new)| with_exclusion(old, new)).collect()
}

fn with_exclusion(old: String, new: String) -> [(String, String); 2] {
    let excluded = (format!("!{old}"), format!("!{new}"));
    [(old, new), excluded]
}

/// Changes a name in all values and branches that refer to what the tag names.
fn follow(tree: &mut Tree, tag: &Tag, old: &str, new: &str) -> Result<(), ConfigError> {
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
        if tree.at(&to).is_some() {
            return Err(is_set(&to));
        }
        if let Some(moved) = tree.at(&words).cloned() {
            tree.remove(&words, None);
            tree.insert(&to, moved);
        }
    }
    Ok(())
}

fn is_interface(tag: &Tag) -> bool {
    tag.path.starts_with("interfaces ") && tag.path.split(' ').count() == 3
}

fn is_vlan(tag: &Tag) -> bool {
    tag.path.ends_with(" vif <vlan>")
}

/// Whether values or names of this type are names of what the tag names. All interfaces share their names.
fn refers(kind: Type, tag: &Tag) -> bool {
    match kind {
        Type::Reference(target) => target == tag.path,
        Type::Matching(Matching::Link | Matching::Links) | Type::Interface(_) => {
            is_interface(tag) || is_vlan(tag)
        }
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

fn is_set(path: &[&str]) -> ConfigError {
    let path = path.join(" ");
    ConfigError::new(Location::default(), format!("{path} is set already"))
        .fix(format!("choose another name, or delete {path}"))
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
        return Err(is_set(&to));
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
    fn exclusions_and_vlans_follow_their_interface_and_nothing_is_overwritten() {
        let before = "set interfaces ethernet eth0 vif 7 address 10.7.0.1/24\n\
            set firewall zone LAN member interface eth0.7\n\
            set nat source rule 1 outbound-interface name !eth0\n\
            set nat source rule 2 outbound-interface name !eth0.7\n\
            set nat source rule 3 outbound-interface name eth0*\n\
            set protocols static route 192.0.2.0/24 interface eth0.7";
        let eth0 = Path::new(["interfaces", "ethernet", "eth0"]);
        let mut tree = parse(before).expect("right");
        rename(&mut tree, &eth0, "eth1").expect("renamed");
        let after = before.replace("eth0", "eth1").replace("eth1*", "eth0*");
        assert_eq!(tree, parse(&after).expect("right"));
        let vlan = Path::new(["interfaces", "ethernet", "eth1", "vif", "7"]);
        rename(&mut tree, &vlan, "8").expect("renamed");
        let after = after.replace("vif 7", "vif 8").replace("eth1.7", "eth1.8");
        assert_eq!(tree, parse(&after).expect("right"));
        tree = parse(&(after.clone() + "\nset protocols static route 192.0.2.0/24 interface eth1.9"))
            .expect("right");
        let kept = tree.clone();
        let vlan = Path::new(["interfaces", "ethernet", "eth1", "vif", "8"]);
        let error = rename(&mut tree, &vlan, "9").expect_err("the route is there").to_string();
        assert!(error.contains("interface eth1.9 is set already"), "{error}");
        assert_eq!(tree, kept);
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
