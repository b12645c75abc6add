//! Which parts of a view have changed since a browser got them.

use super::html::Part;
use serde::Serialize;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A part that a browser gets: the element with this ID is replaced.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Change<'a> {
    pub(super) id: &'a str,
    pub(super) html: &'a str,
}

/// What a browser has, as hashes.
#[derive(Default)]
pub(super) struct Sent(HashMap<String, u64>);

impl Sent {
    /// The parts that differ from what was sent before. From now on they are sent.
    pub(super) fn changes<'a>(&mut self, parts: &'a [Part]) -> Vec<Change<'a>> {
        let mut now = HashMap::with_capacity(self.0.len());
        let mut changes = Vec::new();
        for part in parts {
            let change = |part: &'a Part| Change { id: &part.id, html: &part.html };
            let is_new = self.is_new(&mut now, &part.id, shape(part));
            if is_new {
                changes.push(change(part));
            }
            for row in &part.rows {
                // A row that is sent with all others is not sent alone.
                if self.is_new(&mut now, &row.id, shape(row)) && !is_new {
                    changes.push(change(row));
                }
            }
        }
        self.0 = now;
        changes
    }

    fn is_new(&self, now: &mut HashMap<String, u64>, id: &str, hash: u64) -> bool {
        now.insert(id.to_owned(), hash);
        self.0.get(id) != Some(&hash)
    }
}

/// Changes when the element must be replaced as a whole: of one with rows, when they are others.
fn shape(part: &Part) -> u64 {
    let mut hasher = DefaultHasher::new();
    if part.rows.is_empty() {
        part.html.hash(&mut hasher);
    }
    part.rows.iter().for_each(|row| row.id.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(id: &str, html: &str, rows: Vec<Part>) -> Part {
        Part { id: id.to_owned(), html: html.to_owned(), rows }
    }

    fn table(rows: &[(&str, &str)]) -> Vec<Part> {
        let rows: Vec<Part> = rows.iter().map(|(id, html)| part(id, html, Vec::new())).collect();
        vec![part("head", "one", Vec::new()), part("table", &format!("{rows:?}"), rows)]
    }

    #[test]
    fn only_what_changed_is_sent_and_a_table_whole_if_its_rows_are_others() {
        let mut sent = Sent::default();
        let mut ids = |parts: Vec<Part>| -> Vec<String> {
            sent.changes(&parts).iter().map(|change| change.id.to_owned()).collect()
        };
        assert_eq!(ids(table(&[("a", "1"), ("b", "1")])), ["head", "table"]);
        assert!(ids(table(&[("a", "1"), ("b", "1")])).is_empty());
        assert_eq!(ids(table(&[("a", "1"), ("b", "2")])), ["b"]);
        assert_eq!(ids(table(&[("b", "2"), ("a", "1")])), ["table"], "another order");
        assert_eq!(ids(table(&[])), ["table"]);
        assert_eq!(ids(table(&[("a", "1")])), ["table"]);
    }
}
