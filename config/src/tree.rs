//! The configuration as a tree of words.

use crate::error::Location;
use crate::path::Path;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// A word, what follows it, and the values it holds, which may be secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tree {
    children: BTreeMap<Word, Tree>,
    values: Vec<(Zeroizing<String>, Place)>,
    place: Place,
}

/// Where something was set. All places are equal: a tree does not change when lines move.
#[derive(Clone, Copy, Debug, Default)]
struct Place(Location);

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Place {}

/// A word that sorts as people count: wg2 before wg10.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word(String);

impl Ord for Word {
    fn cmp(&self, other: &Self) -> Ordering {
        natural_order(&self.0, &other.0)
    }
}

impl PartialOrd for Word {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What a word is looked up by: a word, or text that is not copied for it.
trait Spelled {
    fn text(&self) -> &str;
}

impl Spelled for Word {
    fn text(&self) -> &str {
        &self.0
    }
}

/// Text that is looked up.
struct Sought<'a>(&'a str);

impl Spelled for Sought<'_> {
    fn text(&self) -> &str {
        self.0
    }
}

impl<'a> Borrow<dyn Spelled + 'a> for Word {
    fn borrow(&self) -> &(dyn Spelled + 'a) {
        self
    }
}

impl Ord for dyn Spelled + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        natural_order(self.text(), other.text())
    }
}

impl PartialOrd for dyn Spelled + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Spelled + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for dyn Spelled + '_ {}

/// The order in which people count: wg2 before wg10.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut rest, mut other) = (a, b);
    if a == b {
        return Ordering::Equal;
    }
    loop {
        match (part(&mut rest), part(&mut other)) {
            (None, None) => return a.cmp(b),
            (one, two) if one != two => return one.cmp(&two),
            _ => {}
        }
    }
}

/// The next part of a word: letters, and the number after them.
fn part<'a>(rest: &mut &'a str) -> Option<(&'a str, u64)> {
    if rest.is_empty() {
        return None;
    }
    let letters = rest.bytes().position(|byte| byte.is_ascii_digit()).unwrap_or(rest.len());
    let (before, after) = rest.split_at(letters);
    let digits = after.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(after.len());
    let (number, after) = after.split_at(digits);
    *rest = after;
    Some((before, number.parse().unwrap_or(u64::MAX)))
}

fn sought<'a>(text: &'a Sought<'_>) -> &'a (dyn Spelled + 'a) {
    text
}

impl Tree {
    /// The branch that `words` lead to.
    pub fn at(&self, words: &[&str]) -> Option<&Self> {
        words.iter().try_fold(self, |tree, word| tree.children.get(sought(&Sought(word))))
    }

    /// Whether the branch is there.
    pub fn has(&self, word: &str) -> bool {
        self.at(&[word]).is_some()
    }

    /// The only value of a branch.
    pub fn value(&self, word: &str) -> Option<&str> {
        self.at(&[word]).and_then(|tree| tree.values.last()).map(|(value, _)| value.as_str())
    }

    /// All values of a branch, in the order in which they were set.
    pub fn values(&self, word: &str) -> Vec<&str> {
        self.at(&[word]).map(Self::own_values).unwrap_or_default()
    }

    /// The values that this branch itself holds.
    pub fn own_values(&self) -> Vec<&str> {
        self.values.iter().map(|(value, _)| value.as_str()).collect()
    }

    /// The words that follow, in order.
    pub fn children(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.children.iter().map(|(word, tree)| (word.0.as_str(), tree))
    }

    /// Whether nothing follows, and it holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.children.is_empty() && self.values.is_empty()
    }

    /// Where it was first set.
    pub fn location(&self) -> Location {
        self.place.0
    }

    /// Where the value of a branch was set, or the branch itself.
    pub fn location_of(&self, word: &str) -> Location {
        let branch = self.at(&[word]).unwrap_or(self);
        branch.values.last().map_or(branch.place.0, |(_, place)| place.0)
    }

    /// The branch that `words` lead to, made if it is not there.
    pub(crate) fn make(&mut self, words: &[(&str, Location)]) -> &mut Self {
        words.iter().fold(self, |tree, (word, location)| {
            let fresh = || Self { place: Place(*location), ..Self::default() };
            tree.children.entry(Word((*word).to_owned())).or_insert_with(fresh)
        })
    }

    /// Sets a value: the only one, or one more.
    pub(crate) fn set(&mut self, value: &str, location: Location, several: bool) {
        if !several {
            self.values.clear();
        }
        if self.values.iter().all(|(known, _)| known.as_str() != value) {
            self.values.push((Zeroizing::new(value.to_owned()), Place(location)));
        }
    }

    /// Is there, without a value.
    pub(crate) fn unset(&mut self) {
        self.values.clear();
    }

    /// Has at `path` what `other` has there, which may be nothing.
    pub fn take_over(&mut self, path: &Path, other: &Self) {
        let words = path.words();
        match other.at(&words) {
            Some(branch) if !words.is_empty() => self.insert(&words, branch.clone()),
            _ => {
                self.remove(&words, None);
                // What only led there would be a line without its end.
                for length in (1..words.len()).rev() {
                    let above = &words[..length];
                    if other.at(above).is_none() && self.at(above).is_some_and(Self::is_empty) {
                        self.remove(above, None);
                    }
                }
            }
        }
    }

    /// Puts a branch at `words`, in the place of what is there.
    pub(crate) fn insert(&mut self, words: &[&str], branch: Self) {
        let words: Vec<(&str, Location)> = words.iter().map(|word| (*word, Location::default())).collect();
        *self.make(&words) = branch;
    }

    /// Replaces a value of the branch that `words` lead to.
    pub(crate) fn replace(&mut self, words: &[&str], old: &str, new: &str) {
        let values = self.branch(words).into_iter().flat_map(|branch| &mut branch.values);
        for (value, _) in values.filter(|(value, _)| value.as_str() == old) {
            *value = Zeroizing::new(new.to_owned());
        }
    }

    fn branch(&mut self, words: &[&str]) -> Option<&mut Self> {
        words.iter().try_fold(self, |tree, word| tree.children.get_mut(sought(&Sought(word))))
    }

    /// Removes the branch that `words` lead to, or one value of it; whether there was anything.
    pub(crate) fn remove(&mut self, words: &[&str], value: Option<&str>) -> bool {
        let Some((last, path)) = words.split_last() else { return false };
        let Some(parent) = self.branch(path) else { return false };
        let key = Sought(last);
        let Some(value) = value else { return parent.children.remove(sought(&key)).is_some() };
        let Some(leaf) = parent.children.get_mut(sought(&key)) else { return false };
        let before = leaf.values.len();
        leaf.values.retain(|(known, _)| known.as_str() != value);
        let removed = leaf.values.len() != before;
        if leaf.values.is_empty() {
            parent.children.remove(sought(&key));
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_taken_over_or_goes() {
        let read = |text: &str| crate::parse(text).expect("right");
        let mut tree = read("set interfaces wireguard wg0 mtu 1400\nset interfaces wireguard wg1 mtu 1400");
        let other = read("set interfaces wireguard wg0 mtu 1300\nset interfaces wireguard wg2 mtu 1300");
        for name in ["wg0", "wg1", "wg2"] {
            tree.take_over(&Path::new(["interfaces", "wireguard", name]), &other);
        }
        assert_eq!(tree, other);
    }

    #[test]
    fn nothing_is_left_of_a_branch_that_goes() {
        let mut tree = crate::parse("set interfaces wireguard wg0 mtu 1400").expect("right");
        tree.take_over(&Path::new(["interfaces", "wireguard", "wg0"]), &Tree::default());
        assert_eq!(tree, Tree::default());
    }

    #[test]
    fn words_sort_as_people_count() {
        let mut words: Vec<Word> =
            ["wg10", "wg2", "a", "wg02x", "wg2"].map(|word| Word(word.to_owned())).into();
        words.sort();
        let words: Vec<&str> = words.iter().map(|word| word.0.as_str()).collect();
        assert_eq!(words, ["a", "wg2", "wg2", "wg02x", "wg10"]);
    }
}
