//! The grammar as tables: one entry a node, in VyOS's words and with VyOS's ranges and defaults.
//!
//! A path names the words from the root. A word in angle brackets stands for a name that the user chooses.

mod algorithm;
mod ipsec;
mod pki;
mod spelling;
mod system;
mod value;
mod wireguard;

pub use algorithm::{DH_GROUPS, ENCRYPTIONS, HASHES, PRFS};
pub use system::ENGINES;
pub(crate) use value::FITTING;
pub use value::{Kind, Type};
pub use wireguard::OFFLOADS;

pub(crate) use spelling::meant;
pub(crate) use value::{ALL_PROTOCOLS, bytes_of, hundredths, key_of, protocol};

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A node that may be set.
#[derive(Debug)]
pub struct Node {
    /// The words from the root.
    pub path: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What holds when it is not set.
    pub default: Option<&'static str>,
    /// Whether its value must not be shown.
    pub secret: bool,
    /// A warning that is shown when the node is set; for [`Kind::FlagOr`], when it is set to a value.
    pub note: Option<&'static str>,
    /// What it is for.
    pub help: &'static str,
}

/// A name that the user chooses, by the path that ends in it.
#[derive(Debug)]
pub struct Tag {
    /// The path.
    pub path: &'static str,
    /// What the name must look like.
    pub kind: Type,
    /// What it names.
    pub help: &'static str,
    /// The words and the value with which a new branch of that name begins, for advice.
    pub begins: &'static str,
}

/// A node of VyOS that is not served here, so that a line with it is told from a misspelt one.
#[derive(Debug)]
pub struct NotServed {
    /// The path.
    pub path: &'static str,
    /// What to do instead.
    pub instead: &'static str,
}

const PORT: Type = Type::Number(1, 65_535);

impl Node {
    const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    const fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    const fn note(self, note: &'static str) -> Self {
        Self { note: Some(note), ..self }
    }
}

impl Tag {
    const fn begins(self, begins: &'static str) -> Self {
        Self { begins, ..self }
    }
}

impl NotServed {
    const fn instead(self, instead: &'static str) -> Self {
        Self { instead, ..self }
    }
}

const fn node(path: &'static str, kind: Kind, help: &'static str) -> Node {
    Node { path, kind, default: None, secret: false, note: None, help }
}

const fn flag(path: &'static str, help: &'static str) -> Node {
    node(path, Kind::Flag, help)
}

const fn flag_or(path: &'static str, kind: Type, help: &'static str) -> Node {
    node(path, Kind::FlagOr(kind), help)
}

const fn branch(path: &'static str, help: &'static str) -> Node {
    node(path, Kind::Branch, help)
}

const fn value(path: &'static str, kind: Type, help: &'static str) -> Node {
    node(path, Kind::Value(kind), help)
}

const fn values(path: &'static str, kind: Type, help: &'static str) -> Node {
    node(path, Kind::Values(kind), help)
}

const fn tag(path: &'static str, kind: Type, help: &'static str) -> Tag {
    Tag { path, kind, help, begins: "..." }
}

const fn not_served(path: &'static str) -> NotServed {
    NotServed { path, instead: "remove the line" }
}

/// Everything that may be set.
pub fn nodes() -> impl Iterator<Item = &'static Node> {
    let tables = [
        wireguard::NODES,
        system::NODES,
        system::CIPHER_PINS,
        pki::NODES,
        ipsec::GENERAL,
        ipsec::GROUPS,
        ipsec::PEERS,
        ipsec::TUNNELS,
    ];
    tables.into_iter().flatten().chain(system::PAIR_PINS.iter().flatten())
}

/// Every name that the user chooses.
pub fn tags() -> impl Iterator<Item = &'static Tag> {
    [wireguard::TAGS, pki::TAGS, ipsec::TAGS].into_iter().flatten()
}

/// Every node of VyOS that is known and refused.
pub fn not_served_here() -> impl Iterator<Item = &'static NotServed> {
    [wireguard::NOT_SERVED, system::NOT_SERVED, pki::NOT_SERVED, ipsec::NOT_SERVED].into_iter().flatten()
}

/// A place in the grammar: the node, the tag, or the inner word that some words lead to.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// It may be set.
    Node(&'static Node),
    /// A chosen name.
    Tag(&'static Tag),
    /// More words follow.
    Inner,
    /// VyOS has it, we do not serve it.
    NotServed(&'static NotServed),
}

/// The table as a tree, so that a word is found in a step and not in a search.
#[derive(Default)]
struct Grammar {
    words: BTreeMap<&'static str, Grammar>,
    place: Option<Place>,
}

impl Grammar {
    fn at(&mut self, path: &'static str) -> &mut Self {
        // All names that may be chosen at a place share one branch.
        path.split(' ').fold(self, |grammar, word| {
            let word = if word.starts_with('<') { "<" } else { word };
            grammar.words.entry(word).or_default()
        })
    }

    fn find(&self, words: &[&str]) -> Option<&Self> {
        words
            .iter()
            .try_fold(self, |grammar, word| grammar.words.get::<str>(word).or_else(|| grammar.words.get("<")))
    }
}

static GRAMMAR: LazyLock<Grammar> = LazyLock::new(|| {
    let mut root = Grammar::default();
    for node in nodes() {
        root.at(node.path).place = Some(Place::Node(node));
    }
    for tag in tags() {
        root.at(tag.path).place = Some(Place::Tag(tag));
    }
    for known in not_served_here() {
        root.at(known.path).place = Some(Place::NotServed(known));
    }
    root
});

/// The place that words lead to.
pub fn find(words: &[&str]) -> Option<Place> {
    GRAMMAR.find(words).map(|found| found.place.unwrap_or(Place::Inner))
}

/// The words that may follow `words`; a name that may be chosen is shown as what it names.
pub fn following(words: &[&str]) -> Vec<&'static str> {
    let Some(found) = GRAMMAR.find(words) else { return Vec::new() };
    let served =
        found.words.iter().filter(|(_, grammar)| !matches!(grammar.place, Some(Place::NotServed(_))));
    let shown = served.map(|(word, grammar)| match grammar.place {
        Some(Place::Tag(tag)) => last_word(tag.path),
        _ => *word,
    });
    shown.collect()
}

/// What the secrets look like whose names may follow `words`.
pub(crate) fn secrets_behind(words: &[&str]) -> Vec<Type> {
    let following = GRAMMAR.find(words).into_iter().flat_map(|found| found.words.values());
    let secrets = following.filter_map(|grammar| match grammar.place {
        Some(Place::Node(node)) if node.secret => node.kind.value_type(),
        _ => None,
    });
    secrets.collect()
}

/// The node of a path, in which names that the user chooses stand in angle brackets.
pub(crate) fn of_path(path: &str) -> Option<&'static Node> {
    match find(&path.split(' ').collect::<Vec<_>>())? {
        Place::Node(node) => Some(node),
        _ => None,
    }
}

/// The tag of a path, in which names that the user chooses stand in angle brackets.
pub(crate) fn tag_of(path: &str) -> Option<&'static Tag> {
    match find(&path.split(' ').collect::<Vec<_>>())? {
        Place::Tag(tag) => Some(tag),
        _ => None,
    }
}

/// The names of all nodes whose values must not be shown.
pub fn secrets() -> impl Iterator<Item = &'static str> {
    nodes().filter(|node| node.secret).map(|node| last_word(node.path))
}

fn last_word(path: &'static str) -> &'static str {
    path.rsplit(' ').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_found_and_every_default_is_valid() {
        for node in nodes() {
            let words: Vec<&str> = node.path.split(' ').collect();
            assert!(
                matches!(find(&words), Some(Place::Node(found)) if std::ptr::eq(found, node)),
                "{}",
                node.path
            );
            if let (Some(default), Some(kind)) = (node.default, node.kind.value_type()) {
                assert_eq!(kind.check(default), Ok(()), "{}", node.path);
            }
        }
    }

    #[test]
    fn every_reference_leads_to_a_tag() {
        let targets = nodes().filter_map(|node| match node.kind.value_type() {
            Some(Type::Reference(target)) => Some((node.path, target)),
            _ => None,
        });
        let targets: Vec<_> = targets.collect();
        assert!(targets.len() >= 7, "{targets:?}");
        for (path, target) in targets {
            assert!(tag_of(target).is_some_and(|tag| tag.path == target), "{path} names {target}");
        }
    }

    #[test]
    fn following_words_complete_a_path() {
        assert_eq!(following(&["interfaces", "wireguard"]), ["<interface>"]);
        assert!(following(&["interfaces", "wireguard", "wg0", "peer", "a"]).contains(&"public-key"));
        assert!(following(&["interfaces", "bonding"]).is_empty());
        assert!(!following(&["vpn", "ipsec"]).contains(&"remote-access"));
    }
}
