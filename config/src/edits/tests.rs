//! Lines between two configurations, and arbitrary ones.

use super::*;
use crate::parse;
use proptest::prelude::*;

/// Places of every kind: names, nodes with one and with several values, flags, flags with a value, branches.
const PLACES: &[&str] = &[
    "interfaces wireguard wg0",
    "interfaces wireguard wg0 mtu 1400",
    "interfaces wireguard wg0 mtu 1300",
    "interfaces wireguard wg0 address 10.0.0.1/8",
    "interfaces wireguard wg0 address 10.0.0.2/8",
    "interfaces wireguard wg0 address 10.0.0.10/8",
    "interfaces wireguard wg0 disable",
    "interfaces wireguard wg0 peer a description 'a b'",
    "interfaces wireguard wg1 description \"it's\"",
    "interfaces wireguard wg1 address 10.0.0.1/8",
    "vpn ipsec log level 1",
    "vpn ipsec log level 2",
    "vpn ipsec log subsystem ike",
    "vpn ipsec ike-group A ikev2-reauth",
    "vpn ipsec ike-group A ikev2-reauth no",
    "vpn ipsec ike-group A dead-peer-detection",
    "vpn ipsec ike-group A dead-peer-detection interval 9",
    "system allow-empty",
];

/// What is deleted besides these places.
const BRANCHES: &[&str] = &[
    "interfaces",
    "interfaces wireguard",
    "interfaces wireguard wg0 address",
    "interfaces wireguard wg0 peer a",
    "interfaces wireguard wg1",
    "vpn",
    "vpn ipsec log",
    "vpn ipsec ike-group A",
];

/// Arbitrary lines.
pub(crate) fn lines() -> impl Strategy<Value = Vec<String>> {
    let set = prop::sample::select(PLACES).prop_map(|place| format!("set {place}"));
    let places = [PLACES, BRANCHES].concat();
    let delete = prop::sample::select(places).prop_map(|place| format!("delete {place}"));
    prop::collection::vec(prop_oneof![3 => set, 1 => delete], 0..12)
}

/// A configuration with those of the lines that are possible, and the branches that they delete.
pub(crate) fn with(tree: &Tree, lines: &[String]) -> (Tree, Vec<Path>) {
    let (mut tree, mut deleted) = (tree.clone(), Vec::new());
    for line in lines {
        // What is not there cannot be deleted.
        deleted.extend(carry_out([line.as_str()], &mut tree).unwrap_or_default());
    }
    (tree, deleted)
}

fn texts(lines: &[Zeroizing<String>]) -> Vec<&str> {
    lines.iter().map(|line| line.as_str()).collect()
}

#[test]
fn every_place_and_branch_is_in_the_grammar() {
    let mut tree = Tree::default();
    let lines: Vec<String> = PLACES.iter().map(|place| format!("set {place}")).collect();
    carry_out(lines.iter().map(String::as_str), &mut tree).expect("right");
    for branch in PLACES.iter().chain(BRANCHES) {
        assert!(!branch.ends_with(|c: char| c.is_ascii_digit()) || tree != Tree::default());
        let mut tree = tree.clone();
        let single = ["mtu 1400", "level 1", "reauth"].iter().any(|value| branch.ends_with(value));
        let deleted = carry_out([format!("delete {branch}").as_str()], &mut tree);
        assert!(deleted.is_ok() || single, "{branch}: {deleted:?}");
    }
}

#[test]
fn the_lines_between_two_configurations_name_only_what_differs() {
    let before = "set interfaces wireguard wg0 mtu 1400\nset interfaces wireguard wg0 address 10.0.0.1/8\n\
        set interfaces wireguard wg0 address 10.0.0.2/8\nset interfaces wireguard wg1 mtu 1400";
    let after = "set interfaces wireguard wg0 mtu 1300\nset interfaces wireguard wg0 address 10.0.0.2/8\n\
        set interfaces wireguard wg0 address 10.0.0.3/8\nset system allow-empty";
    let (before, after) = (parse(before).expect("right"), parse(after).expect("right"));
    let lines = between(&before, &after);
    let expected = [
        "delete interfaces wireguard wg1",
        "delete interfaces wireguard wg0 address 10.0.0.1/8",
        "set interfaces wireguard wg0 address 10.0.0.3/8",
        "set interfaces wireguard wg0 mtu 1300",
        "set system allow-empty",
    ];
    assert_eq!(texts(&lines), expected);
    assert!(between(&after, &after).is_empty());
}

#[test]
fn comments_are_carried_to_the_other_configuration() {
    const WG0: &str =
        "set interfaces wireguard wg0 address 10.0.0.1/8\nset interfaces wireguard wg0 address 10.0.0.2/8\n";
    let texts = [
        String::new(),
        WG0.to_owned(),
        format!("{WG0}comment interfaces wireguard wg0 'a b'\ncomment interfaces wireguard wg0 address c\n"),
        format!("{WG0}comment interfaces wireguard wg0 b\n"),
        "set interfaces wireguard wg0 address 10.0.0.3/8\nset interfaces wireguard wg0 address 10.0.0.2/8\n\
         comment interfaces wireguard wg0 address c\ncomment interfaces home"
            .to_owned(),
        "set vpn ipsec log level 1\ncomment vpn a\ncomment vpn ipsec log level b".to_owned(),
        "set vpn ipsec ike-group A\ncomment vpn a".to_owned(),
    ];
    let trees = texts.map(|text| parse(&text).expect("right"));
    for (before, after) in trees.iter().flat_map(|before| trees.iter().map(move |after| (before, after))) {
        let mut made = before.clone();
        let lines = between(before, after);
        carry_out(lines.iter().map(|line| line.as_str()), &mut made).expect("right");
        assert_eq!(&made, after, "{:?}", lines.iter().map(|line| line.to_string()).collect::<Vec<_>>());
    }
    assert_eq!(between(&trees[2], &trees[3]).len(), 2, "only what differs");
}

#[test]
fn every_wrong_edit_is_told_with_its_path() {
    let mut tree = Tree::default();
    let edits = [
        "set interfaces wireguard wg0 mtu 12",
        "set interfaces wireguard wg0 mtu 1400",
        "save",
        "delete vpn",
    ];
    let errors = carry_out(edits, &mut tree).expect_err("three are wrong");
    let told: Vec<(usize, String)> = errors
        .iter()
        .map(|error| {
            (error.location.line, path_to(edits[error.location.line - 1], error.location).to_string())
        })
        .collect();
    assert_eq!(
        told,
        [(1, "interfaces wireguard wg0 mtu".to_owned()), (3, String::new()), (4, "vpn".to_owned())]
    );
}

#[test]
fn a_path_ends_at_its_location_and_has_no_value() {
    let line = "set interfaces wireguard wg0 peer 'a b' preshared-key secret";
    let at = |column| path_to(line, Location { line: 1, column, width: 1 }).to_string();
    assert_eq!(at(26), "interfaces wireguard wg0");
    assert_eq!(at(usize::MAX), "interfaces wireguard wg0 peer a b preshared-key");
}

proptest! {
    #[test]
    fn the_lines_between_two_configurations_make_one_of_the_other(before in lines(), after in lines()) {
        let (before, after) = (with(&Tree::default(), &before).0, with(&Tree::default(), &after).0);
        let mut made = before.clone();
        let lines = between(&before, &after);
        carry_out(texts(&lines), &mut made).expect("they are right");
        prop_assert_eq!(&made, &after, "{:?}", texts(&lines));
    }
}
