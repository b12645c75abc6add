//! The tables as a tree, and a place in it: from there one word leads to the next.

use super::{Inner, Node, Place, Tag, Type, last_word, nearest, places};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

/// The table as a tree, so that a word is found in a step and not in a search.
struct Grammar {
    words: BTreeMap<&'static str, Grammar>,
    place: Place,
}

/// All names that may be chosen at a place share one branch.
const CHOSEN: &str = "<";

static ROOT: Inner = Inner { path: "", help: "The configuration" };
static UNNAMED: Inner = Inner { path: "", help: "" };

impl Grammar {
    fn new(inner: &'static Inner) -> Self {
        Self { words: BTreeMap::new(), place: Place::Inner(inner) }
    }

    fn at(&mut self, path: &'static str) -> &mut Self {
        path.split(' ').fold(self, |grammar, word| {
            let word = if word.starts_with(CHOSEN) { CHOSEN } else { word };
            grammar.words.entry(word).or_insert_with(|| Self::new(&UNNAMED))
        })
    }
}

static GRAMMAR: LazyLock<Grammar> = LazyLock::new(|| {
    let mut root = Grammar::new(&ROOT);
    for place in places() {
        root.at(place.path()).place = place;
    }
    root
});

/// A place in the grammar, from which words lead on.
#[derive(Clone, Copy)]
pub struct Cursor(&'static Grammar);

impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Cursor {}

impl Hash for Cursor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self.0, state);
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({:?})", self.place().path())
    }
}

impl Cursor {
    /// Before the first word.
    pub fn root() -> Self {
        Self(&GRAMMAR)
    }

    /// The place that words lead to from the root.
    pub fn at<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        words.into_iter().try_fold(Self::root(), Self::down)
    }

    /// The place that a word leads to: a word of the grammar, or a name where one may be chosen.
    pub fn down(self, word: &str) -> Option<Self> {
        self.0.words.get(word).or_else(|| self.0.words.get(CHOSEN)).map(Self)
    }

    /// The place that a word leads to, or what only one word begins with.
    pub fn expand(self, text: &str) -> Option<Self> {
        self.down(text).or_else(|| match self.abbreviated(text)[..] {
            [only] if !text.is_empty() => self.down(only),
            _ => None,
        })
    }

    /// What is here.
    pub fn place(self) -> Place {
        self.0.place
    }

    /// The node that may be set here.
    pub fn node(self) -> Option<&'static Node> {
        match self.place() {
            Place::Node(node) => Some(node),
            _ => None,
        }
    }

    /// The name that was chosen here.
    pub fn tag(self) -> Option<&'static Tag> {
        match self.place() {
            Place::Tag(tag) => Some(tag),
            _ => None,
        }
    }

    /// The word that leads here; a name that may be chosen is shown as what it names: `<interface>`.
    pub fn word(self) -> &'static str {
        last_word(self.place().path())
    }

    /// What it is for, in one line.
    pub fn help(self) -> &'static str {
        match self.place() {
            Place::Node(node) => node.help,
            Place::Tag(tag) => tag.help,
            Place::Inner(inner) => inner.help,
            Place::Unsupported(known) => known.instead,
        }
    }

    /// The type of what is chosen or set here.
    pub fn value_type(self) -> Option<Type> {
        match self.place() {
            Place::Node(node) => node.kind.value_type(),
            Place::Tag(tag) => Some(tag.kind),
            Place::Inner(_) | Place::Unsupported(_) => None,
        }
    }

    /// The places that one more word leads to, in the order of the words.
    pub fn next(self) -> impl Iterator<Item = Self> {
        self.0.words.values().map(Self).filter(|next| !matches!(next.place(), Place::Unsupported(_)))
    }

    /// What the secrets look like whose names may follow.
    pub(crate) fn secrets(self) -> impl Iterator<Item = Type> {
        self.next().filter_map(|next| next.node().filter(|node| node.secret)?.kind.value_type())
    }

    /// The words that may follow; a name that may be chosen is shown as what it names.
    pub fn words(self) -> Vec<&'static str> {
        self.next().map(Self::word).collect()
    }

    /// The words that may follow and begin with `text`: one if that is enough to tell which is meant.
    pub fn abbreviated(self, text: &str) -> Vec<&'static str> {
        self.words().into_iter().filter(|word| !word.starts_with('<') && word.starts_with(text)).collect()
    }

    /// The word that `text` was probably meant to be.
    pub fn nearest(self, text: &str) -> Option<&'static str> {
        match self.abbreviated(text)[..] {
            [only] if !text.is_empty() => Some(only),
            _ => nearest(text, &self.words()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::nodes;

    /// Every place of the grammar, with the words that lead to it.
    fn all(cursor: Cursor, path: &str, found: &mut Vec<(String, Cursor)>) {
        for (word, grammar) in &cursor.0.words {
            let path = format!("{path} {word}");
            all(Cursor(grammar), &path, found);
            found.push((path, Cursor(grammar)));
        }
    }

    #[test]
    fn every_word_has_a_help_text_of_one_line() {
        let mut found = Vec::new();
        all(Cursor::root(), "", &mut found);
        assert!(found.len() > 200, "{}", found.len());
        for (path, cursor) in found {
            let help = cursor.help();
            assert!(!help.is_empty() && !help.contains('\n') && !help.ends_with('.'), "{path}: {help:?}");
            if !matches!(cursor.place(), Place::Unsupported(_)) {
                assert!(help.chars().count() <= 80, "{path}: {help:?} is too long for a list");
                assert!(
                    help.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit()),
                    "{path}: {help:?}"
                );
            }
        }
    }

    #[test]
    fn every_path_is_found_and_every_default_is_valid() {
        for node in nodes() {
            let found = Cursor::at(node.path.split(' ')).and_then(Cursor::node);
            assert!(found.is_some_and(|found| std::ptr::eq(found, node)), "{}", node.path);
            if let (Some(default), Some(kind)) = (node.default, node.kind.value_type()) {
                assert_eq!(kind.check(default), Ok(()), "{}", node.path);
            }
        }
    }

    #[test]
    fn every_name_that_may_be_chosen_is_a_tag_and_no_node() {
        for tag in crate::schema::tags() {
            let found = Cursor::at(tag.path.split(' ')).and_then(Cursor::tag);
            assert!(found.is_some_and(|found| std::ptr::eq(found, tag)), "{}", tag.path);
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
            let tag = Cursor::at(target.split(' ')).and_then(Cursor::tag);
            let tag = tag.unwrap_or_else(|| panic!("{path} names {target}"));
            assert!(tag.path == target && tag.kind_path().all(|word| !word.starts_with('<')), "{target}");
        }
    }

    fn words(path: &str) -> Vec<&'static str> {
        Cursor::at(path.split(' ')).map(Cursor::words).unwrap_or_default()
    }

    #[test]
    fn the_words_that_follow_complete_a_path() {
        assert_eq!(words("interfaces wireguard"), ["<interface>"]);
        assert!(words("interfaces wireguard wg0 peer a").contains(&"public-key"));
        assert!(words("interfaces bonding").is_empty());
        assert!(!words("vpn ipsec").contains(&"remote-access"));
    }

    #[test]
    fn a_word_may_be_abbreviated_as_long_as_one_is_meant() {
        let ipsec = Cursor::at(["vpn", "ipsec"]).expect("it is there");
        assert_eq!(ipsec.abbreviated("es"), ["esp-group"]);
        assert_eq!(ipsec.abbreviated("log"), ["log", "logging"]);
        assert_eq!(ipsec.nearest("si"), Some("site-to-site"));
        assert_eq!(ipsec.nearest("ike-grup"), Some("ike-group"));
        assert_eq!((ipsec.nearest("remote"), ipsec.nearest("")), (None, None));
        assert!(Cursor::at(["interfaces", "wireguard"]).expect("it is there").abbreviated("w").is_empty());
    }
}
