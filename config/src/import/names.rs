//! Names of the result. Two parts of a source get different names, also where they are called alike.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// The longest name that the grammar accepts, in characters.
const LONGEST: usize = 100;

/// The names that are in use, by kind.
#[derive(Default)]
pub(super) struct Names {
    used: HashSet<(&'static str, String)>,
    /// The next number behind a stem. A search from the first number would take the square of the time.
    next: HashMap<(&'static str, String), u32>,
    /// The names of files.
    files: HashMap<(&'static str, PathBuf), String>,
}

impl Names {
    /// The name of a part that is new: `wanted`, with a number if that is in use.
    pub(super) fn free(&mut self, kind: &'static str, wanted: &str) -> String {
        let wanted: String = wanted.chars().take(LONGEST).collect();
        if self.used.insert((kind, wanted.clone())) {
            return wanted;
        }
        self.numbered(kind, &format!("{wanted}-"), 2)
    }

    /// The name of a part that is new: `stem` and a number, from `first`.
    pub(super) fn numbered(&mut self, kind: &'static str, stem: &str, first: u32) -> String {
        let next = self.next.entry((kind, stem.to_owned())).or_insert(first);
        loop {
            let number = next.to_string();
            *next += 1;
            let kept = stem.chars().take(LONGEST - number.len());
            let name: String = kept.chain(number.chars()).collect();
            if self.used.insert((kind, name.clone())) {
                return name;
            }
        }
    }

    /// The name of a file, which it keeps: its own, with a number if another file has that.
    pub(super) fn of_file(&mut self, kind: &'static str, path: &Path) -> String {
        let key = (kind, path.to_owned());
        if let Some(known) = self.files.get(&key) {
            return known.clone();
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let kept = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
        let stem: String = stem.chars().map(kept).take(80).collect();
        let name = self.free(kind, &stem);
        self.files.insert(key, name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_use_gets_a_number() {
        let mut names = Names::default();
        assert_eq!(["a", "a-2", "a", "a"].map(|wanted| names.free("x", wanted)), ["a", "a-2", "a-3", "a-4"]);
        assert_eq!([1, 1].map(|first| names.numbered("x", "a-", first)), ["a-5", "a-6"]);
        assert_eq!(names.free("y", "a"), "a");
        assert_eq!([1, 1].map(|first| names.numbered("y", "n", first)), ["n1", "n2"]);
    }

    #[test]
    fn a_long_name_with_a_number_is_no_longer_than_the_grammar_accepts() {
        let (mut names, long) = (Names::default(), "ä".repeat(200));
        let found: Vec<String> = (0..20).map(|_| names.free("x", &long)).collect();
        assert!(found.iter().all(|name| name.chars().count() == LONGEST), "{found:?}");
        assert_eq!(found.iter().collect::<HashSet<_>>().len(), found.len());
    }

    #[test]
    fn a_file_keeps_its_name() {
        let mut names = Names::default();
        let mut of = |path: &str| names.of_file("ca", Path::new(path));
        assert_eq!([of("/a/ca.crt"), of("/b/ca.crt"), of("/a/ca.crt")], ["ca", "ca-2", "ca"]);
    }
}
