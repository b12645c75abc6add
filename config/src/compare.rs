//! A configuration in braces beside another one, as `show` and `compare` of a session print them.
//!
//! ```text
//! [edit vpn ipsec]
//! +ike-group HOME {
//! +    lifetime 3600
//! +}
//! [edit vpn ipsec ike-group OFFICE]
//! >lifetime 7200
//! ```

use crate::braces;
use crate::path::Path;
use crate::schema::{Cursor, Kind};
use crate::tree::Tree;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Two configurations: what was, and what shall be.
#[derive(Clone, Copy)]
pub struct Comparison<'a> {
    /// What was.
    pub before: &'a Tree,
    /// What shall be.
    pub after: &'a Tree,
    /// Whether secrets are shown: then the caller must protect them.
    pub secrets: bool,
}

/// A branch of both, at a place in the grammar.
#[derive(Clone, Copy)]
struct Place<'a> {
    before: Option<&'a Tree>,
    after: Option<&'a Tree>,
    cursor: Cursor,
}

/// A part of a block.
enum Entry<'a> {
    /// A block with the words before its brace.
    Block(Vec<&'a str>, Place<'a>),
    /// A line, with its sign.
    Line(char, String),
}

const SAME: char = ' ';
const ADDED: char = '+';
const REMOVED: char = '-';
const CHANGED: char = '>';

impl<'a> Comparison<'a> {
    /// All that is at a level, each line with a sign: `+` is new, `-` is gone, `>` has another value.
    pub fn marked(self, level: &Path) -> String {
        let mut text = String::new();
        if let Some(place) = self.at(level) {
            let is_leaf = place.cursor.next().next().is_none();
            let entries = if is_leaf { self.lines(level.last(), place) } else { self.entries(place) };
            self.block(entries, 0, None, &mut text);
        }
        text
    }

    /// What differs below a level, under the path of its branch.
    pub fn changes(self, level: &Path) -> String {
        let mut text = String::new();
        if let Some(place) = self.at(level) {
            let mut words = level.words();
            self.changed(place, &mut words, &mut text);
        }
        text
    }

    fn at(self, level: &Path) -> Option<Place<'a>> {
        let words = level.words();
        let cursor = Cursor::at(words.iter().copied())?;
        Some(Place { before: self.before.at(&words), after: self.after.at(&words), cursor })
    }

    /// Writes the lines of a block, all with one sign if it is given.
    fn block(self, entries: Vec<Entry<'a>>, depth: usize, sign: Option<char>, text: &mut String) {
        let indent = "    ".repeat(depth);
        for entry in entries {
            match entry {
                Entry::Line(own, line) => _ = writeln!(text, "{}{indent}{line}", sign.unwrap_or(own)),
                Entry::Block(words, inner) => {
                    let sign = sign.or(inner.sign());
                    for (own, comment) in inner.comments() {
                        let _ = writeln!(text, "{}{indent}/* {comment} */", sign.unwrap_or(own));
                    }
                    let (mark, words) = (sign.unwrap_or(SAME), written(&words));
                    let _ = writeln!(text, "{mark}{indent}{words} {{");
                    self.block(self.entries(inner), depth + 1, sign, text);
                    let _ = writeln!(text, "{mark}{indent}}}");
                }
            }
        }
    }

    fn changed(self, place: Place<'a>, path: &mut Vec<&'a str>, text: &mut String) {
        let (mut own, mut common) = (String::new(), Vec::new());
        for (sign, comment) in place.comments().into_iter().filter(|(sign, _)| *sign != SAME) {
            let _ = writeln!(own, "{sign}/* {comment} */");
        }
        for entry in self.entries(place) {
            match entry {
                Entry::Line(SAME, _) => {}
                Entry::Line(sign, line) => _ = writeln!(own, "{sign}{line}"),
                Entry::Block(words, inner) => match inner.sign() {
                    Some(sign) => {
                        for (_, comment) in inner.comments() {
                            let _ = writeln!(own, "{sign}/* {comment} */");
                        }
                        let _ = writeln!(own, "{sign}{} {{", written(&words));
                        self.block(self.entries(inner), 1, Some(sign), &mut own);
                        let _ = writeln!(own, "{sign}}}");
                    }
                    None => common.push((words, inner)),
                },
            }
        }
        if !own.is_empty() {
            let separator = if path.is_empty() { "" } else { " " };
            let _ = write!(text, "[edit{separator}{}]\n{own}", path.join(" "));
        }
        for (words, inner) in common {
            let length = path.len();
            path.extend(words);
            self.changed(inner, path, text);
            path.truncate(length);
        }
    }

    fn entries(self, place: Place<'a>) -> Vec<Entry<'a>> {
        let mut found = Vec::new();
        for word in place.words() {
            let Some(next) = place.down(word) else { continue };
            if next.cursor.next().any(|after| after.tag().is_some()) {
                let names = next.words().into_iter();
                found.extend(names.filter_map(|name| Some(Entry::Block(vec![word, name], next.down(name)?))));
            } else if next.cursor.next().next().is_some() {
                found.push(Entry::Block(vec![word], next));
            } else {
                found.extend(self.lines(word, next));
            }
        }
        found
    }

    /// The lines of a leaf.
    fn lines(self, word: &str, place: Place<'a>) -> Vec<Entry<'a>> {
        let node = place.cursor.node();
        let is_list = node.is_some_and(|node| matches!(node.kind, Kind::Values(_)));
        let is_secret = node.is_none_or(|node| node.secret);
        let line = |value: Option<&str>| match value {
            None => word.to_owned(),
            Some(_) if is_secret && !self.secrets => format!("{word} {}", crate::print::HIDDEN),
            Some(value) => format!("{word} {}", braces::shortest(value)),
        };
        let [before, after] = [place.before, place.after].map(|side| side.map(values));
        let comments = place.comments();
        let is_noted_otherwise = comments.iter().any(|(sign, _)| *sign != SAME);
        let comments = comments.into_iter().map(|(sign, text)| Entry::Line(sign, format!("/* {text} */")));
        // So that a comparison shows what the comment is about.
        let same = if is_noted_otherwise && before.is_some() && after.is_some() { CHANGED } else { SAME };
        let lines: Vec<Entry<'a>> = match (before, after) {
            (Some(before), Some(after)) if !is_list => {
                let sign = if before == after { same } else { CHANGED };
                after.into_iter().map(|value| Entry::Line(sign, line(value))).collect()
            }
            (before, after) => {
                let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
                let gone = before.iter().filter(|value| !after.contains(value));
                let sign = |value| if before.contains(value) { same } else { ADDED };
                let lines = gone.map(|value| Entry::Line(REMOVED, line(*value)));
                lines.chain(after.iter().map(|value| Entry::Line(sign(value), line(*value)))).collect()
            }
        };
        comments.chain(lines).collect()
    }
}

/// The words before a brace. What `show` prints is read again, so names are in quotes where values are.
fn written(words: &[&str]) -> String {
    words.iter().map(|word| braces::shortest(word)).collect::<Vec<_>>().join(" ")
}

/// The values of a leaf; one that has none is a line too.
fn values(leaf: &Tree) -> Vec<Option<&str>> {
    let values = leaf.own_values();
    if values.is_empty() { vec![None] } else { values.into_iter().map(Some).collect() }
}

impl<'a> Place<'a> {
    /// The words that follow on one of the sides, in order.
    fn words(self) -> Vec<&'a str> {
        let sides = self.before.into_iter().chain(self.after);
        let found: BTreeSet<Natural<'a>> =
            sides.flat_map(|side| side.children().map(|(word, _)| Natural(word))).collect();
        found.into_iter().map(|word| word.0).collect()
    }

    fn down(self, word: &str) -> Option<Self> {
        let below = |side: Option<&'a Tree>| side.and_then(|side| side.at(&[word]));
        let cursor = self.cursor.down(word)?;
        Some(Self { before: below(self.before), after: below(self.after), cursor })
    }

    /// What is noted of it, with a sign: the same on both sides, or what is gone and what is new.
    fn comments(self) -> Vec<(char, &'a str)> {
        let [before, after] = [self.before, self.after].map(|side| side.and_then(Tree::comment));
        if before == after {
            return before.map(|text| (SAME, text)).into_iter().collect();
        }
        let gone = before.map(|text| (REMOVED, text));
        gone.into_iter().chain(after.map(|text| (ADDED, text))).collect()
    }

    /// The sign of all its lines, if it is on one side only.
    fn sign(self) -> Option<char> {
        match (self.before, self.after) {
            (None, Some(_)) => Some(ADDED),
            (Some(_), None) => Some(REMOVED),
            _ => None,
        }
    }
}

/// A word that sorts as people count.
#[derive(PartialEq, Eq)]
struct Natural<'a>(&'a str);

impl Ord for Natural<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        crate::tree::natural_order(self.0, other.0)
    }
}

impl PartialOrd for Natural<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const BEFORE: &str = "set interfaces wireguard wg0 address 10.0.0.1/8\n\
        set interfaces wireguard wg0 address 10.0.0.2/8\n\
        set interfaces wireguard wg0 mtu 1400\n\
        set interfaces wireguard wg2 disable\n\
        set vpn ipsec ike-group A lifetime 3600\n\
        set vpn ipsec authentication psk a secret OpenSesame";
    const AFTER: &str = "set interfaces wireguard wg0 address 10.0.0.2/8\n\
        set interfaces wireguard wg0 description 'a b'\n\
        set interfaces wireguard wg0 mtu 1300\n\
        set interfaces wireguard wg10 disable\n\
        set vpn ipsec ike-group A lifetime 3600\n\
        set vpn ipsec authentication psk a secret OpenBarley";

    fn changes(level: &[&str]) -> String {
        let (before, after) = (parse(BEFORE).expect("right"), parse(AFTER).expect("right"));
        let comparison = Comparison { before: &before, after: &after, secrets: false };
        comparison.changes(&Path::new(level.iter().copied()))
    }

    fn marked(level: &[&str]) -> String {
        let (before, after) = (parse(BEFORE).expect("right"), parse(AFTER).expect("right"));
        let comparison = Comparison { before: &before, after: &after, secrets: true };
        comparison.marked(&Path::new(level.iter().copied()))
    }

    #[test]
    fn what_differs_stands_under_its_path() {
        assert_eq!(
            changes(&[]),
            "[edit interfaces]\n-wireguard wg2 {\n-    disable\n-}\n+wireguard wg10 {\n+    disable\n+}\n\
             [edit interfaces wireguard wg0]\n-address 10.0.0.1/8\n+description \"a b\"\n>mtu 1300\n\
             [edit vpn ipsec authentication psk a]\n>secret ********\n"
        );
        let shown = changes(&["interfaces", "wireguard", "wg0"]);
        assert!(shown.starts_with("[edit interfaces wireguard wg0]\n") && !shown.contains("wg2"), "{shown}");
        assert_eq!(changes(&["vpn", "ipsec", "ike-group"]), "");
    }

    #[test]
    fn all_lines_are_shown_with_their_signs() {
        assert_eq!(
            marked(&["interfaces"]),
            " wireguard wg0 {\n-    address 10.0.0.1/8\n     address 10.0.0.2/8\n+    description \"a b\"\n\
             >    mtu 1300\n }\n-wireguard wg2 {\n-    disable\n-}\n+wireguard wg10 {\n+    disable\n+}\n"
        );
        assert_eq!(marked(&["interfaces", "wireguard", "wg0", "mtu"]), ">mtu 1300\n");
        let shown = marked(&["vpn"]);
        assert!(shown.contains(">            secret OpenBarley\n"), "{shown}");
    }

    #[test]
    fn names_that_need_quotes_are_in_quotes() {
        let text = "set interfaces wireguard wg0 peer \"o'brien\" port 7\nset interfaces wireguard wg0 peer '{' port 8\n";
        let (before, after) = (parse("").expect("right"), parse(text).expect("right"));
        let same = Comparison { before: &after, after: &after, secrets: true };
        let shown: String =
            same.marked(&Path::default()).lines().map(|line| format!("{}\n", &line[1..])).collect();
        assert_eq!(parse(&shown).expect("right"), after, "{shown}");
        let new = Comparison { before: &before, after: &after, secrets: true }.changes(&Path::default());
        assert!(new.contains("+        peer \"o'brien\" {\n"), "{new}");
    }

    #[test]
    fn a_comment_stands_before_what_it_is_about() {
        let text = "set interfaces wireguard wg0 mtu 1400\ncomment interfaces wireguard wg0 'the office'\n";
        let (before, after) = (
            parse(text).expect("right"),
            parse(&format!(
                "{text}comment interfaces wireguard wg0 home\ncomment interfaces wireguard wg0 mtu small"
            ))
            .expect("right"),
        );
        let comparison = Comparison { before: &before, after: &after, secrets: true };
        assert_eq!(
            comparison.changes(&Path::default()),
            "[edit interfaces wireguard wg0]\n-/* the office */\n+/* home */\n+/* small */\n>mtu 1400\n"
        );
        let same = Comparison { before: &before, after: &before, secrets: true };
        assert_eq!(
            same.marked(&Path::new(["interfaces"])),
            " /* the office */\n wireguard wg0 {\n     mtu 1400\n }\n"
        );
    }

    #[test]
    fn without_a_difference_nothing_is_said() {
        let tree = parse(BEFORE).expect("right");
        let same = Comparison { before: &tree, after: &tree, secrets: true };
        assert_eq!(same.changes(&Path::default()), "");
        assert!(same.marked(&Path::default()).lines().all(|line| line.starts_with(' ')));
    }
}
