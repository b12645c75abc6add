//! The files that a configuration names, as the schema knows them.

use crate::schema::Type;
use crate::statement::statements;
use crate::tree::Tree;

/// A file that a configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The path of the node.
    pub node: String,
    /// The path of the file.
    pub file: String,
}

/// All files that a configuration names, in its order; one that is named twice is there twice.
pub fn named(tree: &Tree) -> Vec<Named> {
    let found = statements(tree).into_iter().filter_map(|statement| {
        let kind = statement.node()?.kind.value_type().filter(|kind| Type::names_a_file(*kind));
        let file = kind.and(statement.value())?.to_owned();
        Some(Named { node: statement.path().join(" "), file })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_a_file_is_found_and_nothing_else() {
        let tree = crate::parse(
            "set pki ca home crl-file /etc/postern/home.crl\n\
             set pki ca home crl-file /etc/postern/more.crl\n\
             set pki ca home description /not/a/file\n\
             set system task-scheduler task a executable path /config/scripts/a.sh\n\
             set system task-scheduler task a executable arguments /not/a/file",
        );
        let named = named(&tree.expect("right"));
        let files: Vec<&str> = named.iter().map(|named| named.file.as_str()).collect();
        assert_eq!(files, ["/etc/postern/home.crl", "/etc/postern/more.crl", "/config/scripts/a.sh"]);
        assert_eq!(named[0].node, "pki ca home crl-file");
    }
}
