//! Names that stand elsewhere in the configuration: a value of type [`Type::Reference`] leads to a branch of the tag that the
//! schema names.

use super::Reader;
use crate::error::Location;
use crate::parse::nearest;
use crate::schema::{self, Place, Type};
use crate::tree::Tree;

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
        let kind: Vec<&str> =
            tag.path.rsplit_once(' ').map_or(tag.path, |(kind, _)| kind).split(' ').collect();
        let all = root.at(&kind);
        if let Some(found) = all.and_then(|all| all.at(&[name])) {
            return Some(found);
        }
        let known: Vec<&str> = all.into_iter().flat_map(Tree::children).map(|(name, _)| name).collect();
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
fn target(path: &str) -> Option<&'static schema::Tag> {
    let Some(Place::Node(node)) = schema::find(&path.split(' ').collect::<Vec<_>>()) else { return None };
    match node.kind.value_type()? {
        Type::Reference(target) => schema::tag_of(target),
        _ => None,
    }
}
