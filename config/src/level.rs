//! A level of a configuration: a place in the grammar, what is set there, and what may follow.

use crate::schema::{Cursor, Tag, Type};
use crate::settings::is_served;
use crate::tree::Tree;

/// A place in the grammar and in a configuration.
#[derive(Clone, Copy)]
pub struct Level<'a> {
    root: &'a Tree,
    branch: Option<&'a Tree>,
    cursor: Cursor,
}

/// What may follow at a level: a word, a name, a value, or any text of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// The text; `None` if it is free within its type.
    pub text: Option<&'a str>,
    /// The type of a name or value; `None` for a word of the grammar.
    pub kind: Option<Type>,
    /// What it is for.
    pub help: &'static str,
    /// Whether it is set.
    pub is_set: bool,
}

impl<'a> Level<'a> {
    /// The level of a whole configuration.
    pub fn root(root: &'a Tree) -> Self {
        Self { root, branch: Some(root), cursor: Cursor::root() }
    }

    /// The level that a word leads to, which need not be set; `None` if the grammar has no such word. An abbreviation
    /// that only one word begins with stands for that word.
    pub fn down(self, word: &str) -> Option<Self> {
        let cursor = self.cursor.expand(word)?;
        let word = cursor.tag().map_or(cursor.word(), |_| word);
        Some(Self { branch: self.branch.and_then(|branch| branch.at(&[word])), cursor, ..self })
    }

    /// The place in the grammar.
    pub fn cursor(self) -> Cursor {
        self.cursor
    }

    /// What is set here.
    pub fn branch(self) -> Option<&'a Tree> {
        self.branch
    }

    /// The names that the user has chosen for the next word.
    pub fn names(self) -> impl Iterator<Item = &'a str> {
        let words = self.branch.into_iter().flat_map(Tree::children).map(|(word, _)| word);
        words.filter(move |word| self.cursor.down(word).is_some_and(|next| next.tag().is_some()))
    }

    /// All that may follow, in the order of the grammar: first what is set, then what may be.
    pub fn completions(self) -> Vec<Completion<'a>> {
        let mut found = Vec::new();
        for next in self.cursor.next() {
            if let Some(tag) = next.tag() {
                let name =
                    |text| Completion { text, kind: Some(tag.kind), help: tag.help, is_set: text.is_some() };
                found.extend(self.names().map(|text| name(Some(text))));
                found.push(name(None));
            } else {
                let is_set = self.branch.is_some_and(|branch| branch.has(next.word()));
                found.push(Completion { text: Some(next.word()), kind: None, help: next.help(), is_set });
            }
        }
        found.extend(self.values());
        found
    }

    /// The values that may be set here. One that must not be shown is not among them.
    fn values(self) -> Vec<Completion<'a>> {
        let Some(node) = self.cursor.node() else { return Vec::new() };
        let Some(kind) = node.kind.value_type() else { return Vec::new() };
        let mut texts = match self.branch {
            Some(branch) if !node.secret => branch.own_values(),
            _ => Vec::new(),
        };
        let set = texts.len();
        let known: Vec<&str> = match kind {
            Type::Word(words) => words.iter().copied().filter(|word| is_served(words, word)).collect(),
            Type::Reference(target) => {
                let tag = Cursor::at(target.split(' ')).and_then(Cursor::tag);
                tag.into_iter().flat_map(|tag| named(self.root, tag)).map(|(name, _)| name).collect()
            }
            _ => Vec::new(),
        };
        for text in known {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let value = |text, is_set| Completion { text, kind: Some(kind), help: node.help, is_set };
        let known = texts.iter().enumerate().map(|(index, text)| value(Some(*text), index < set));
        let free = (!matches!(kind, Type::Word(_))).then(|| value(None, false));
        known.chain(free).collect()
    }
}

/// The branches that a tag names, by the names that the user has chosen.
pub(crate) fn named<'a>(root: &'a Tree, tag: &Tag) -> impl Iterator<Item = (&'a str, &'a Tree)> + use<'a> {
    let kind: Vec<&str> = tag.kind_path().collect();
    root.at(&kind).into_iter().flat_map(Tree::children)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "set vpn ipsec ike-group OFFICE lifetime 3600\nset vpn ipsec ike-group HOME\n\
        set vpn ipsec site-to-site peer berlin ike-group OFFICE\n\
        set vpn ipsec site-to-site peer berlin authentication pre-shared-secret OpenSesame";

    /// What may follow these words: `*` before what is set, and the type of what is free.
    fn following(words: &str) -> Vec<String> {
        let tree = crate::parse(TEXT).expect("right");
        let level = words.split_whitespace().try_fold(Level::root(&tree), Level::down).expect("it is there");
        let shown = level.completions().into_iter().map(|found| {
            let text = found.text.map_or_else(|| found.kind.expect("a type").to_string(), str::to_owned);
            format!("{}{text}", if found.is_set { "*" } else { "" })
        });
        shown.collect()
    }

    #[test]
    fn the_words_of_a_level_tell_which_are_set() {
        assert_eq!(
            following(""),
            ["firewall", "interfaces", "nat", "pki", "protocols", "service", "system", "*vpn"]
        );
        let words = following("vpn ipsec ike-group OFFICE");
        assert!(words.contains(&"*lifetime".to_owned()) && words.contains(&"mode".to_owned()), "{words:?}");
        assert_eq!(following("vpn ipsec ike-group OFFICE dead-peer-detection interval"), ["<2-86400>"]);
    }

    #[test]
    fn names_that_exist_come_before_a_new_one() {
        assert_eq!(following("vpn ipsec ike-group"), ["*HOME", "*OFFICE", "<name>"]);
        assert_eq!(following("interfaces wireguard"), ["<wgN>"]);
    }

    #[test]
    fn a_reference_is_completed_with_the_names_it_may_lead_to() {
        let peer = "vpn ipsec site-to-site peer berlin";
        assert_eq!(following(&format!("{peer} ike-group")), ["*OFFICE", "HOME", "<name>"]);
        assert_eq!(following(&format!("{peer} default-esp-group")), ["<name>"]);
    }

    #[test]
    fn a_value_is_one_of_its_words_and_a_secret_is_not_shown() {
        let peer = "vpn ipsec site-to-site peer berlin";
        assert_eq!(following(&format!("{peer} ikev2-reauth")), ["yes", "no", "inherit"]);
        assert_eq!(following(&format!("{peer} authentication pre-shared-secret")), ["<secret>"]);
    }

    #[test]
    fn only_what_is_served_is_offered() {
        let ciphers = following("vpn ipsec esp-group A proposal 1 encryption");
        assert!(ciphers.contains(&"aes256gcm128".to_owned()) && !ciphers.contains(&"twofish256".to_owned()));
        let hashes = following("vpn ipsec ike-group A proposal 1 hash");
        assert!(hashes.contains(&"sha256".to_owned()) && !hashes.contains(&"md5".to_owned()), "{hashes:?}");
        let groups = following("vpn ipsec ike-group A proposal 1 dh-group");
        assert!(groups.contains(&"14".to_owned()) && !groups.contains(&"25".to_owned()), "{groups:?}");
        assert_eq!(following("vpn ipsec ike-group A key-exchange"), ["ikev2"]);
        let pfs = following("vpn ipsec esp-group A pfs");
        assert!(pfs.contains(&"disable".to_owned()) && !pfs.contains(&"dh-group32".to_owned()), "{pfs:?}");
    }

    #[test]
    fn a_word_may_be_abbreviated_and_a_name_not() {
        let tree = crate::parse(TEXT).expect("right");
        let down = |words: &str| words.split(' ').try_fold(Level::root(&tree), Level::down);
        let office = down("v ips ike OFFICE").expect("one word begins so");
        assert_eq!(office.branch().and_then(|branch| branch.value("lifetime")), Some("3600"));
        assert!(down("vpn ipsec ike-group OFF").is_some_and(|new| new.branch().is_none()), "another name");
        assert!(down("vpn ipsec log").is_some() && down("vpn ipsec lo").is_none(), "log and logging");
    }
}
