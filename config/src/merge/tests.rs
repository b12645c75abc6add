//! Two sessions on one base.

use super::*;
use crate::edits::tests::{lines, with};
use crate::parse;
use proptest::prelude::*;

const BASE: &str = "set interfaces wireguard wg0 mtu 1400\nset interfaces wireguard wg0 address 10.0.0.1/8\n\
    set interfaces wireguard wg1 mtu 1400\nset vpn ipsec log level 1\n\
    set vpn ipsec authentication psk a secret 'Open Sesame'";

/// What becomes of the base if one session makes these changes, and then another those.
fn merged(theirs: &[&str], ours: &[&str]) -> Result<Tree, Vec<String>> {
    let base = parse(BASE).expect("right");
    let edited = |lines: &[&str]| {
        let mut tree = base.clone();
        let deleted = crate::edits::carry_out(lines.iter().copied(), &mut tree).expect("right");
        (tree, deleted)
    };
    let (ours, theirs) = (edited(ours), edited(theirs));
    let result =
        merge(&base, Side { tree: &ours.0, deleted: &ours.1 }, Side { tree: &theirs.0, deleted: &theirs.1 });
    let shown = |it: Conflict| format!("{}: {} or {}", it.path, it.ours, it.theirs);
    result.map_err(|conflicts| conflicts.into_iter().map(shown).collect())
}

fn conflicts(theirs: &[&str], ours: &[&str]) -> Vec<String> {
    let one = merged(theirs, ours).expect_err("a conflict");
    let other = merged(ours, theirs).expect_err("a conflict the other way round too");
    assert_eq!(one.len(), other.len());
    one
}

#[test]
fn comments_are_merged_and_two_on_one_place_are_a_conflict() {
    let mtu = "set interfaces wireguard wg0 mtu 1300";
    let comment = "comment interfaces wireguard wg0 'to the office'";
    let both = merged(&[mtu], &[comment]).expect("merged");
    assert_eq!(Ok(both), merged(&[], &[mtu, comment]));
    assert_eq!(
        conflicts(&["comment interfaces wireguard wg0 home"], &[comment]),
        ["interfaces wireguard wg0: /* to the office */ or /* home */"]
    );
    assert_eq!(
        merged(&[comment], &["delete interfaces wireguard wg0"]),
        merged(&[], &["delete interfaces wireguard wg0"])
    );
}

#[test]
fn independent_changes_are_all_kept() {
    for (theirs, ours, lines) in [
        (
            ["set interfaces wireguard wg0 mtu 1300"],
            ["set interfaces wireguard wg0 disable"],
            "set interfaces wireguard wg0 mtu 1300\nset interfaces wireguard wg0 disable",
        ),
        (
            ["delete interfaces wireguard wg1"],
            ["set interfaces wireguard wg2 mtu 1400"],
            "delete interfaces wireguard wg1\nset interfaces wireguard wg2 mtu 1400",
        ),
        (
            ["set interfaces wireguard wg0 address 10.0.0.9/8"],
            ["set interfaces wireguard wg0 address 10.0.0.10/8"],
            "set interfaces wireguard wg0 address 10.0.0.9/8\nset interfaces wireguard wg0 address 10.0.0.10/8",
        ),
        (
            ["delete interfaces wireguard wg0 address 10.0.0.1/8"],
            ["set interfaces wireguard wg0 address 10.0.0.2/8"],
            "delete interfaces wireguard wg0 address 10.0.0.1/8\nset interfaces wireguard wg0 address 10.0.0.2/8",
        ),
        (
            ["delete vpn ipsec log level"],
            ["set vpn ipsec log subsystem ike"],
            "delete vpn ipsec log level\nset vpn ipsec log subsystem ike",
        ),
        (
            ["delete interfaces wireguard wg1 mtu"],
            ["delete interfaces wireguard wg1"],
            "delete interfaces wireguard wg1",
        ),
        (
            ["set interfaces wireguard wg0 mtu 1300"],
            ["set interfaces wireguard wg0 mtu 1300"],
            "set interfaces wireguard wg0 mtu 1300",
        ),
    ] {
        let expected = Ok(parse(&format!("{BASE}\n{lines}")).expect("right"));
        assert_eq!(merged(&theirs, &ours), expected, "{theirs:?}, then {ours:?}");
        assert_eq!(merged(&ours, &theirs), expected, "{ours:?}, then {theirs:?}");
    }
}

#[test]
fn a_value_that_both_set_is_a_conflict() {
    let found =
        conflicts(&["set interfaces wireguard wg0 mtu 1300"], &["set interfaces wireguard wg0 mtu 1350"]);
    assert_eq!(found, ["interfaces wireguard wg0 mtu: 1350 or 1300"]);
    let secret = "set vpn ipsec authentication psk a secret";
    let found = conflicts(&[&format!("{secret} one")], &[&format!("{secret} two")]);
    assert_eq!(found, ["vpn ipsec authentication psk a secret: ******** or ********"]);
    let found = conflicts(&["set vpn ipsec log level 2"], &["delete vpn ipsec log level"]);
    assert_eq!(found, ["vpn ipsec log level: deleted or 2"]);
}

#[test]
fn a_branch_that_one_deletes_and_in_which_the_other_sets_something_is_a_conflict() {
    let inside = "set interfaces wireguard wg1 disable";
    let found = conflicts(&["delete interfaces wireguard wg1"], &[inside]);
    assert_eq!(found, ["interfaces wireguard wg1: changed or deleted"]);
    let found = conflicts(&["delete interfaces wireguard"], &["set interfaces wireguard wg2 mtu 1400"]);
    assert_eq!(
        found,
        ["interfaces wireguard: changed or deleted"],
        "also where the word only leads to others"
    );
    let found = conflicts(
        &["delete interfaces wireguard wg0 address"],
        &["set interfaces wireguard wg0 address 10.0.0.2/8"],
    );
    assert_eq!(found, ["interfaces wireguard wg0 address: 10.0.0.1/8, 10.0.0.2/8 or deleted"]);
}

#[test]
fn a_value_that_one_deletes_and_the_other_moves_is_deleted() {
    let address = "interfaces wireguard wg0 address";
    let moved = [
        format!("delete {address} 10.0.0.1/8"),
        format!("set {address} 10.0.0.2/8"),
        format!("set {address} 10.0.0.1/8"),
    ];
    let moved: Vec<&str> = moved.iter().map(String::as_str).collect();
    let deleted = format!("delete {address} 10.0.0.1/8");
    let tree = merged(&moved, &[&deleted]).expect("no conflict");
    let words = address.split(' ').collect::<Vec<_>>();
    assert_eq!(tree.at(&words).map(Tree::own_values), Some(vec!["10.0.0.2/8"]));
}

#[test]
fn all_conflicts_are_named() {
    let theirs = ["set interfaces wireguard wg0 mtu 1300", "delete interfaces wireguard wg1"];
    let ours = ["set interfaces wireguard wg0 mtu 1350", "set interfaces wireguard wg1 mtu 1350"];
    assert_eq!(conflicts(&theirs, &ours).len(), 2);
}

proptest! {
    #[test]
    fn two_sessions_make_the_same_in_either_order(base in lines(), one in lines(), other in lines()) {
        let base = with(&Tree::default(), &base).0;
        let (one, other) = (with(&base, &one), with(&base, &other));
        let side = |(tree, deleted): &(Tree, Vec<Path>)| (tree.clone(), deleted.clone());
        let ((one, one_deleted), (other, other_deleted)) = (side(&one), side(&other));
        let (one, other) =
            (Side { tree: &one, deleted: &one_deleted }, Side { tree: &other, deleted: &other_deleted });
        match (merge(&base, one, other), merge(&base, other, one)) {
            (Ok(merged), Ok(reverse)) => {
                prop_assert_eq!(&merged, &reverse);
                let lines = crate::edits::between(&base, &merged);
                let mut made = base.clone();
                crate::edits::carry_out(lines.iter().map(|line| line.as_str()), &mut made).expect("right");
                prop_assert_eq!(&made, &merged, "it is a configuration that can be written");
                for side in [one, other] {
                    prop_assert!(!adds_lost(&base, side.tree, &merged), "{:?} lost of {:?}", merged, side.tree);
                }
            }
            (Err(conflicts), Err(reverse)) => prop_assert_eq!(conflicts.len(), reverse.len()),
            (one, other) => prop_assert!(false, "{:?} but {:?}", one, other),
        }
    }
}

/// Whether something that a side added is not in the result.
fn adds_lost(base: &Tree, side: &Tree, merged: &Tree) -> bool {
    let lines = crate::edits::between(base, side);
    let mut with_all = merged.clone();
    // A value of the base that only has another place now was not added.
    let is_new = |line: &&str| {
        let mut after = base.clone();
        crate::edits::carry_out([*line], &mut after).expect("right");
        after != *base
    };
    let set = lines.iter().map(|line| line.as_str()).filter(|line| line.starts_with("set ")).filter(is_new);
    crate::edits::carry_out(set, &mut with_all).expect("right");
    crate::diff::diff(merged, &with_all).iter().any(|change| !change.to_string().is_empty())
}
