//! All directives of OpenVPN 2.6 and 2.7: one row for each.

mod connection;
mod crypto;
mod network;
mod process;
mod refused;
mod server;
mod session;
mod system;

use super::row::{Row, Scope};
use super::verdict::Wrong;
use crate::schema::nearest;

const TABLES: [&[Row]; 8] = [
    connection::ROWS,
    network::ROWS,
    session::ROWS,
    crypto::ROWS,
    server::ROWS,
    process::ROWS,
    system::ROWS,
    refused::ROWS,
];

/// All rows.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    TABLES.into_iter().flatten()
}

/// The row of a directive.
pub fn find(name: &str) -> Option<&'static Row> {
    rows().find(|row| row.name == name)
}

/// The error for an unknown directive: names the nearest one.
pub(super) fn unknown(name: &str, scope: Scope) -> Wrong {
    let known: Vec<&str> = rows().filter(|row| row.scope.has(scope)).map(|row| row.name).collect();
    let fix = match nearest(name, &known) {
        Some(near) => format!("did you mean {near}? Otherwise delete the line"),
        None => format!("delete the line, or write before it: ignore-unknown-option {name}"),
    };
    Wrong::new("it is not a directive of OpenVPN 2.6 or 2.7", fix)
}

#[cfg(test)]
mod tests {
    use super::super::row::Fate;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_directive_has_one_row_with_a_text() {
        let mut names = BTreeSet::new();
        for row in rows() {
            assert!(names.insert(row.name), "{} has two rows", row.name);
            let texts = match row.fate {
                Fate::Served { into } => [into, into],
                Fate::Harmless { why } => [why, why],
                Fate::Refused { why, fix } => [why, fix],
            };
            assert!(texts.iter().all(|text| text.len() >= 3 && !text.ends_with('.')), "{}", row.name);
        }
    }
}
