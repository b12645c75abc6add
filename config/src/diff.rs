//! The differences between two configurations.

use crate::statement::{Statement, statements};
use crate::tree::Tree;
use std::collections::HashSet;
use std::fmt;

/// One difference.
#[derive(Clone, PartialEq, Eq)]
pub enum Change<'a> {
    /// The statement is new.
    Added(Statement<'a>),
    /// The statement was removed.
    Removed(Statement<'a>),
}

impl fmt::Display for Change<'_> {
    /// `+` or `-` and the line; secrets are hidden.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, statement) = match self {
            Self::Added(statement) => ("+ ", statement),
            Self::Removed(statement) => ("- ", statement),
        };
        f.write_str(sign)?;
        statement.write(false, f)
    }
}

/// The changes that make `after` out of `before`: removals first.
pub fn diff<'a>(before: &'a Tree, after: &'a Tree) -> Vec<Change<'a>> {
    let (before, after) = (statements(before), statements(after));
    let removed = missing_in(&before, &after).into_iter().map(Change::Removed);
    removed.chain(missing_in(&after, &before).into_iter().map(Change::Added)).collect()
}

fn missing_in<'a>(of: &[Statement<'a>], from: &[Statement<'a>]) -> Vec<Statement<'a>> {
    let known: HashSet<&Statement<'a>> = from.iter().collect();
    of.iter().filter(|statement| !known.contains(statement)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn only_what_differs_is_named() {
        let before =
            parse("set interfaces wireguard wg0 mtu 1400\nset interfaces wireguard wg0 address 10.0.0.1/8");
        let after =
            parse("set interfaces wireguard wg0 address 10.0.0.1/8\nset interfaces wireguard wg0 mtu 1300");
        let (before, after) = (before.expect("right"), after.expect("right"));
        let shown: Vec<String> = diff(&before, &after).iter().map(Change::to_string).collect();
        assert_eq!(shown, ["- interfaces wireguard wg0 mtu 1400", "+ interfaces wireguard wg0 mtu 1300"]);
        assert!(diff(&after, &after).is_empty());
    }
}
