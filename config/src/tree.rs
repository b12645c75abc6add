//! The configuration as a tree of words.
//!
//! A clone shares all branches with its original, and a change copies only those on the way to it: a commit holds what is in force
//! and what is to be, of thousands of peers, and differs in one of them.

use crate::error::Location;
use crate::path::Path;
use crate::schema;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use zeroize::Zeroizing;

/// A word, what follows it, and the values it holds, which may be secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// In the order of their words; never empty. Two that share it are equal without being compared.
    children: Option<Arc<Vec<(Word, Tree)>>>,
    values: Vec<(Zeroizing<Box<str>>, Place)>,
    /// What the user has noted of it.
    comment: Option<String>,
    place: Place,
}

/// Where something was set, as a [`Location`] in half the room. All places are equal: a tree does not change when lines move.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    line: u32,
    column: u32,
    width: u32,
}

impl From<Location> for Place {
    fn from(Location { line, column, width }: Location) -> Self {
        let [line, column, width] = [line, column, width].map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        Self { line, column, width }
    }
}

impl From<Place> for Location {
    fn from(Place { line, column, width }: Place) -> Self {
        Self { line: line as usize, column: column as usize, width: width as usize }
    }
}

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Place {}

/// A word. Those of the grammar are in memory once, however many branches have them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Word(Arc<str>);

static GRAMMAR: LazyLock<HashMap<&'static str, Arc<str>>> =
    LazyLock::new(|| schema::all_words().map(|word| (word, Arc::from(word))).collect());

impl Word {
    fn new(text: &str) -> Self {
        Self(GRAMMAR.get(text).map_or_else(|| Arc::from(text), Arc::clone))
    }
}

/// Adds to a list that seldom grows: most branches have few words, and most words one value.
fn insert<T>(list: &mut Vec<T>, index: usize, item: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(1 + list.len() / 4);
    }
    list.insert(index, item);
}

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

impl Tree {
    fn list(&self) -> &[(Word, Self)] {
        self.children.as_deref().map_or(&[], Vec::as_slice)
    }

    /// Where a word is among those that follow, or would be.
    fn find(&self, word: &str) -> Result<usize, usize> {
        let list = self.list();
        // Most texts have their words in order.
        if list.last().is_some_and(|(last, _)| natural_order(&last.0, word).is_lt()) {
            return Err(list.len());
        }
        list.binary_search_by(|(known, _)| natural_order(&known.0, word))
    }

    fn child(&self, word: &str) -> Option<&Self> {
        self.find(word).ok().map(|index| &self.list()[index].1)
    }

    fn child_mut(&mut self, word: &str) -> Option<&mut Self> {
        let index = self.find(word).ok()?;
        Some(&mut Arc::make_mut(self.children.as_mut()?)[index].1)
    }

    fn remove_child(&mut self, word: &str) -> bool {
        let (Ok(index), Some(children)) = (self.find(word), &mut self.children) else { return false };
        Arc::make_mut(children).remove(index);
        self.children.take_if(|children| children.is_empty());
        true
    }

    /// The branch that `words` lead to.
    pub fn at(&self, words: &[&str]) -> Option<&Self> {
        words.iter().try_fold(self, |tree, word| tree.child(word))
    }

    /// Whether the branch is there.
    pub fn has(&self, word: &str) -> bool {
        self.child(word).is_some()
    }

    /// The only value of a branch.
    pub fn value(&self, word: &str) -> Option<&str> {
        self.child(word).and_then(|tree| tree.values.last()).map(|(value, _)| &***value)
    }

    /// All values of a branch, in the order in which they were set.
    pub fn values(&self, word: &str) -> Vec<&str> {
        self.child(word).map(Self::own_values).unwrap_or_default()
    }

    /// The values that this branch itself holds.
    pub fn own_values(&self) -> Vec<&str> {
        self.values.iter().map(|(value, _)| &***value).collect()
    }

    /// The words that follow, in order.
    pub fn children(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.list().iter().map(|(word, tree)| (&*word.0, tree))
    }

    /// The words that follow in one of two branches or in both, in order, with what each has there. What both share is left out.
    pub(crate) fn unequal<'a>(
        before: Option<&'a Self>,
        after: Option<&'a Self>,
    ) -> impl Iterator<Item = (&'a str, [Option<&'a Self>; 2])> {
        let [mut before, mut after] = [before, after].map(|tree| tree.map_or(&[][..], Self::list));
        let next = move || {
            let order = match (before.first(), after.first()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((one, _)), Some((other, _))) => natural_order(&one.0, &other.0),
            };
            let old = if order.is_le() { before.split_off_first() } else { None };
            let new = if order.is_ge() { after.split_off_first() } else { None };
            let (word, _) = old.or(new)?;
            Some((&*word.0, [old, new].map(|found| found.map(|(_, tree)| tree))))
        };
        std::iter::from_fn(next).filter(|(_, [old, new])| old != new)
    }

    /// What the user has noted of it.
    pub fn comment(&self) -> Option<&str> {
        self.comment.as_deref()
    }

    /// Notes something of it, in the place of what was noted before.
    pub(crate) fn note(&mut self, comment: Option<String>) {
        self.comment = comment;
    }

    /// Whether nothing follows, and it holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.children.is_none() && self.values.is_empty()
    }

    /// Where it was first set.
    pub fn location(&self) -> Location {
        self.place.into()
    }

    /// Where the value of a branch was set, or the branch itself.
    pub fn location_of(&self, word: &str) -> Location {
        let branch = self.child(word).unwrap_or(self);
        branch.values.last().map_or(branch.place, |(_, place)| *place).into()
    }

    /// The branch that `words` lead to, made if it is not there.
    pub(crate) fn make(&mut self, words: &[(&str, Location)]) -> &mut Self {
        words.iter().fold(self, |tree, (word, location)| {
            let found = tree.find(word);
            let children = Arc::make_mut(tree.children.get_or_insert_default());
            if let Err(index) = found {
                let fresh = Self { place: (*location).into(), ..Self::default() };
                insert(children, index, (Word::new(word), fresh));
            }
            let (Ok(index) | Err(index)) = found;
            &mut children[index].1
        })
    }

    /// Sets a value: the only one, or one more.
    pub(crate) fn set(&mut self, value: &str, location: Location, several: bool) {
        if !several {
            self.values.clear();
        }
        if self.values.iter().all(|(known, _)| &***known != value) {
            let index = self.values.len();
            insert(&mut self.values, index, (Zeroizing::new(value.into()), location.into()));
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
        for (value, _) in values.filter(|(value, _)| &***value == old) {
            *value = Zeroizing::new(new.into());
        }
    }

    pub(crate) fn branch(&mut self, words: &[&str]) -> Option<&mut Self> {
        words.iter().try_fold(self, |tree, word| tree.child_mut(word))
    }

    /// Removes the branch that `words` lead to, or one value of it; whether there was anything.
    pub(crate) fn remove(&mut self, words: &[&str], value: Option<&str>) -> bool {
        let Some((last, path)) = words.split_last() else { return false };
        let Some(parent) = self.branch(path) else { return false };
        let Some(value) = value else { return parent.remove_child(last) };
        let Some(leaf) = parent.child_mut(last) else { return false };
        let before = leaf.values.len();
        leaf.values.retain(|(known, _)| &***known != value);
        let removed = leaf.values.len() != before;
        if leaf.values.is_empty() {
            parent.remove_child(last);
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
        let mut tree = Tree::default();
        for word in ["wg10", "wg2", "a", "wg02x", "wg2"] {
            tree.make(&[(word, Location::default())]);
        }
        let words: Vec<&str> = tree.children().map(|(word, _)| word).collect();
        assert_eq!(words, ["a", "wg2", "wg02x", "wg10"]);
    }

    #[test]
    fn a_clone_shares_all_but_the_branches_on_the_way_to_a_change() {
        let read = |text: &str| crate::parse(text).expect("right");
        let before = read(
            "set interfaces wireguard wg0 mtu 1400\nset interfaces wireguard wg1 mtu 1400\nset system allow-empty",
        );
        let mut after = before.clone();
        let wg0 = ["interfaces", "wireguard", "wg0"];
        after.make(&wg0.map(|word| (word, Location::default()))).insert(&["disable"], Tree::default());
        assert!(before.at(&wg0).is_some_and(|it| !it.has("disable")), "the original is what it was");
        let is_shared = |words: &[&str]| {
            let [one, other] =
                [&before, &after].map(|tree| tree.at(words).and_then(|branch| branch.children.clone()));
            one.zip(other).map(|(one, other)| Arc::ptr_eq(&one, &other))
        };
        assert_eq!(is_shared(&["interfaces", "wireguard", "wg1"]), Some(true));
        assert_eq!(is_shared(&["system"]), Some(true));
        assert_eq!(is_shared(&["interfaces", "wireguard"]), Some(false));
    }

    #[test]
    fn what_differs_is_found_in_order() {
        let read = |text: &str| crate::parse(text).expect("right");
        let interfaces = |names: &[(&str, u32)]| {
            let line = |(name, mtu): &(&str, u32)| format!("set interfaces wireguard {name} mtu {mtu}\n");
            read(&names.iter().map(line).collect::<String>())
        };
        let before = interfaces(&[("wg1", 1400), ("wg2", 1400), ("wg9", 1400)]);
        let after = interfaces(&[("wg0", 1400), ("wg2", 1400), ("wg9", 1300), ("wg10", 1400)]);
        let [before, after] = [&before, &after].map(|tree| tree.at(&["interfaces", "wireguard"]));
        let found: Vec<_> = Tree::unequal(before, after)
            .map(|(word, [old, new])| (word, old.is_some(), new.is_some()))
            .collect();
        let expected =
            [("wg0", false, true), ("wg1", true, false), ("wg9", true, true), ("wg10", false, true)];
        assert_eq!(found, expected);
    }
}
