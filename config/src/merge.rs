//! Merges what two sessions changed since a common base. Where both changed the same place, that is a conflict, and is named.
//!
//! Values of a node that holds several are merged one by one. A word that only leads to others is not deleted by itself: what is
//! below it is, unless a session deleted it by its name.

use crate::path::Path;
use crate::print::HIDDEN;
use crate::schema::{Cursor, Kind, Node, Place};
use crate::tree::{Tree, natural_order};
use std::collections::BTreeMap;

/// What one session made of the base.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The base with its changes.
    pub tree: &'a Tree,
    /// The branches that it deleted by their names.
    pub deleted: &'a [Path],
}

/// A place that both sides changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The place.
    pub path: Path,
    /// What our side has there, without secrets.
    pub ours: String,
    /// What the other has there, without secrets.
    pub theirs: String,
}

/// What `base` becomes with the changes of both sides, in whichever order they are made.
pub fn merge(base: &Tree, ours: Side<'_>, theirs: Side<'_>) -> Result<Tree, Vec<Conflict>> {
    let mut merge = Merge { path: Vec::new(), conflicts: BTreeMap::new() };
    merge.find_deleted(base, ours, theirs, false);
    merge.find_deleted(base, theirs, ours, true);
    let merged = merge.branch([Some(base), Some(ours.tree), Some(theirs.tree)], Some(Cursor::root()));
    if merge.conflicts.is_empty() {
        return Ok(merged.unwrap_or_default());
    }
    Err(merge.conflicts.into_values().collect())
}

struct Merge<'a> {
    /// The words that lead to the place.
    path: Vec<&'a str>,
    conflicts: BTreeMap<Path, Conflict>,
}

impl<'a> Merge<'a> {
    /// Finds the branches that one side deleted by their names, and in which the other set something.
    fn find_deleted(&mut self, base: &Tree, side: Side<'_>, other: Side<'_>, is_theirs: bool) {
        for path in side.deleted {
            let words = path.words();
            let [before, after, others] = [base, side.tree, other.tree].map(|tree| tree.at(&words));
            let (Some(before), Some(others)) = (before, others) else { continue };
            if after != Some(others) && adds(Some(before), others) {
                let node = Cursor::at(words.iter().copied()).and_then(Cursor::node);
                let sides = if is_theirs { [Some(others), after] } else { [after, Some(others)] };
                self.conflict(path.clone(), node, sides);
            }
        }
    }

    /// Merges a branch that is in the base, with us and with them.
    fn branch(&mut self, [base, ours, theirs]: [Option<&'a Tree>; 3], place: Option<Cursor>) -> Option<Tree> {
        if base == ours || ours == theirs {
            return theirs.cloned();
        }
        if base == theirs {
            return ours.cloned();
        }
        let node = place.and_then(Cursor::node);
        let is_inner = matches!(place.map(Cursor::place), None | Some(Place::Inner(_)));
        let holds_several = node.is_some_and(|node| matches!(node.kind, Kind::Values(_)));
        if base.is_some()
            && !is_inner
            && !holds_several
            && let (None, Some(kept)) | (Some(kept), None) = (ours, theirs)
        {
            if adds(base, kept) {
                self.conflict(Path::new(self.path.iter().copied()), node, [ours, theirs]);
            }
            return None;
        }
        let mut merged = Tree::default();
        for value in self.values([base, ours, theirs], node, holds_several) {
            merged.set(value, merged.location(), true);
        }
        merged.note(self.comment([base, ours, theirs]));
        for word in words([base, ours, theirs]) {
            self.path.push(word);
            let below = [base, ours, theirs].map(|tree| tree.and_then(|tree| tree.at(&[word])));
            if let Some(branch) = self.branch(below, place.and_then(|place| place.down(word))) {
                merged.insert(&[word], branch);
            }
            self.path.pop();
        }
        (!merged.is_empty() || !is_inner && !holds_several).then_some(merged)
    }

    fn comment(&mut self, sides: [Option<&'a Tree>; 3]) -> Option<String> {
        let [base, ours, theirs] = sides.map(|tree| tree.and_then(Tree::comment));
        if base != ours && base != theirs && ours != theirs {
            let path = Path::new(self.path.iter().copied());
            let [ours, theirs] = [ours, theirs]
                .map(|text| text.map_or("no comment".to_owned(), |text| format!("/* {text} */")));
            self.conflicts.entry(path.clone()).or_insert(Conflict { path, ours, theirs });
        }
        let merged = if base == theirs { ours } else { theirs };
        merged.map(str::to_owned)
    }

    fn values(
        &mut self,
        sides: [Option<&'a Tree>; 3],
        node: Option<&'static Node>,
        holds_several: bool,
    ) -> Vec<&'a str> {
        // A flag that is set without a value is something else than one that is not set.
        let [base, ours, theirs] = sides.map(|tree| tree.map(Tree::own_values));
        if base == ours || ours == theirs {
            return theirs.unwrap_or_default();
        }
        if base == theirs {
            return ours.unwrap_or_default();
        }
        let [base, ours, theirs] = [base, ours, theirs].map(Option::unwrap_or_default);
        if !holds_several {
            self.conflict(Path::new(self.path.iter().copied()), node, [sides[1], sides[2]]);
            return theirs;
        }
        let mut new: Vec<&str> = ours.iter().chain(&theirs).copied().collect();
        new.retain(|value| !base.contains(value));
        // Neither side comes first, whichever was committed first.
        new.sort_by(|a, b| natural_order(a, b));
        new.dedup();
        let kept = base.into_iter().filter(|value| ours.contains(value) && theirs.contains(value));
        kept.chain(new).collect()
    }

    fn conflict(&mut self, path: Path, node: Option<&'static Node>, sides: [Option<&Tree>; 2]) {
        let [ours, theirs] = sides.map(|side| shown(side, node));
        self.conflicts.entry(path.clone()).or_insert(Conflict { path, ours, theirs });
    }
}

/// All words that follow in one of the trees.
fn words(trees: [Option<&Tree>; 3]) -> Vec<&str> {
    let mut words: Vec<&str> =
        trees.into_iter().flatten().flat_map(Tree::children).map(|(word, _)| word).collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// Whether a side has something that the base has not.
fn adds(base: Option<&Tree>, side: &Tree) -> bool {
    let Some(base) = base else { return true };
    let (known, values) = (base.own_values(), side.own_values());
    // A flag that had a value, and has none now, was set again.
    values.iter().any(|value| !known.contains(value))
        || values.is_empty() && !known.is_empty()
        || side.children().any(|(word, child)| adds(base.at(&[word]), child))
}

/// What a side has at a place, in a few words.
fn shown(side: Option<&Tree>, node: Option<&'static Node>) -> String {
    let Some(tree) = side else { return "deleted".to_owned() };
    let values = tree.own_values();
    match node {
        Some(node) if node.secret => HIDDEN.to_owned(),
        _ if !values.is_empty() => values.join(", "),
        Some(_) if tree.is_empty() => "set".to_owned(),
        _ => "changed".to_owned(),
    }
}

#[cfg(test)]
#[path = "merge/tests.rs"]
mod tests;
