//! Names that stand elsewhere in the configuration: a value of type [`Type::Reference`] leads to a branch of the tag that the
//! schema names.

use super::Reader;
use crate::error::Location;
use crate::level::named;
use crate::schema::{Cursor, Tag, Type, nearest};
use crate::tree::Tree;
use std::collections::BTreeMap;

impl Reader {
    /// The branch that `name`, the value of the node at `path`, refers to. If there is none, the error names one with a similar
    /// name, or the line that begins one.
    pub(super) fn follow<'a>(
        &mut self,
        root: &'a Tree,
        path: &str,
        name: &str,
        location: Location,
    ) -> Option<&'a Tree> {
        let tag = target(path).expect("the schema has a reference at this path");
        let known: BTreeMap<&str, &Tree> = named(root, tag).collect();
        if let Some(found) = known.get(name) {
            return Some(found);
        }
        let known: Vec<&str> = known.into_keys().collect();
        let kind: Vec<&str> = tag.kind_path().collect();
        let fix = match nearest(name, &known) {
            Some(near) => format!("did you mean {near}? set {path} {near}"),
            None => format!("set {} {name} {}, or name another", kind.join(" "), tag.begins),
        };
        let words = kind.iter().zip(path.split(' ')).take_while(|(a, b)| *a == b).count();
        self.error(location, format!("{path}: there is no {} {name}", kind[words..].join(" ")), fix);
        None
    }
}

/// The tag that the node at a path refers to.
fn target(path: &str) -> Option<&'static Tag> {
    match Cursor::at(path.split(' '))?.value_type()? {
        Type::Reference(target) => Cursor::at(target.split(' '))?.tag(),
        _ => None,
    }
}
