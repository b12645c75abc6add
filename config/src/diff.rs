//! The differences between two configurations.

use crate::path::Path;
use crate::schema::Cursor;
use crate::statement::{Statement, own_statements, statements_at};
use crate::tree::Tree;
use std::fmt;

/// One difference.
#[derive(Clone, PartialEq, Eq)]
pub enum Change<'a> {
    /// The statement is new.
    Added(Statement<'a>),
    /// The statement was removed.
    Removed(Statement<'a>),
    /// Something else is noted of the branch at a path, or nothing any more.
    Commented(Path, Option<&'a str>),
}

impl fmt::Display for Change<'_> {
    /// `+` or `-` and the line, as a log may have it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, statement) = match self {
            Self::Added(statement) => ("+ ", statement),
            Self::Removed(statement) => ("- ", statement),
            Self::Commented(path, Some(text)) => return write!(f, "+ /* {text} */ {path}"),
            Self::Commented(path, None) => return write!(f, "- /* */ {path}"),
        };
        f.write_str(sign)?;
        statement.write_public(f)
    }
}

/// The changes that make `after` out of `before`: removals first. What is equal is passed over.
pub fn diff<'a>(before: &'a Tree, after: &'a Tree) -> Vec<Change<'a>> {
    let mut found = Found::default();
    found.branch(Some(before), Some(after), &mut Vec::new(), Some(Cursor::root()));
    let removed = found.removed.into_iter().map(Change::Removed);
    let commented = commented(Some(before), after, &mut Vec::new());
    removed.chain(found.added.into_iter().map(Change::Added)).chain(commented).collect()
}

/// The branches of which something else is noted.
fn commented<'a>(before: Option<&'a Tree>, after: &'a Tree, path: &mut Vec<&'a str>) -> Vec<Change<'a>> {
    if before == Some(after) {
        return Vec::new();
    }
    let is_other = before.and_then(Tree::comment) != after.comment();
    let own = is_other.then(|| Change::Commented(Path::new(path.iter().copied()), after.comment()));
    let mut found: Vec<Change<'a>> = own.into_iter().collect();
    for (word, below) in after.children() {
        path.push(word);
        found.extend(commented(before.and_then(|before| before.at(&[word])), below, path));
        path.pop();
    }
    found
}

#[derive(Default)]
struct Found<'a> {
    removed: Vec<Statement<'a>>,
    added: Vec<Statement<'a>>,
}

impl<'a> Found<'a> {
    fn branch(
        &mut self,
        before: Option<&'a Tree>,
        after: Option<&'a Tree>,
        path: &mut Vec<&'a str>,
        place: Option<Cursor>,
    ) {
        let (before, after) = match (before, after) {
            (Some(before), Some(after)) if before == after => return,
            (Some(before), Some(after)) => (before, after),
            (before, after) => {
                let all = |tree: Option<&'a Tree>| tree.map(|tree| statements_at(tree, path, place));
                self.removed.extend(all(before).into_iter().flatten());
                self.added.extend(all(after).into_iter().flatten());
                return;
            }
        };
        let own = [before, after].map(|tree| own_statements(tree, path, place));
        let is_in = |one: &Statement<'a>, others: &[Statement<'a>]| others.contains(one);
        self.removed.extend(own[0].iter().filter(|one| !is_in(one, &own[1])).cloned());
        self.added.extend(own[1].iter().filter(|one| !is_in(one, &own[0])).cloned());
        for (word, [before, after]) in Tree::unequal(Some(before), Some(after)) {
            path.push(word);
            self.branch(before, after, path, place.and_then(|place| place.down(word)));
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn a_comment_is_a_difference() {
        let before =
            parse("set interfaces wireguard wg0\ncomment interfaces wireguard wg0 'a'").expect("right");
        let after =
            parse("set interfaces wireguard wg0\ncomment interfaces wireguard wg0 'b c'").expect("right");
        let shown =
            |one: &Tree, other: &Tree| diff(one, other).iter().map(Change::to_string).collect::<Vec<_>>();
        assert_eq!(shown(&before, &after), ["+ /* b c */ interfaces wireguard wg0"]);
        let none = parse("set interfaces wireguard wg0").expect("right");
        assert_eq!(shown(&before, &none), ["- /* */ interfaces wireguard wg0"]);
        assert_eq!(shown(&before, &Tree::default()), ["- interfaces wireguard wg0"]);
    }

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

    #[test]
    fn what_is_a_password_is_not_told() {
        let text = "set service snmp community OpenSesame network 10.0.0.0/8\n\
                    set service snmp trap-target 10.0.0.1 community OpenBarley\n\
                    set system task-scheduler task a executable arguments '--password OpenWheat'";
        let after = parse(text).expect("right");
        let shown: Vec<String> = diff(&Tree::default(), &after).iter().map(Change::to_string).collect();
        assert_eq!(
            shown,
            [
                "+ service snmp community ******** network 10.0.0.0/8",
                "+ service snmp trap-target 10.0.0.1 community ********",
                "+ system task-scheduler task a executable arguments ********",
            ]
        );
        assert!(crate::print::commands(&after, false).contains("community OpenSesame network"), "as in VyOS");
    }
}
