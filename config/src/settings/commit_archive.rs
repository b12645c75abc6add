//! `system config-management commit-archive`, typed.

use crate::schema::Location;
use crate::tree::Tree;
use std::net::IpAddr;

/// Where a copy of each revision goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitArchive {
    /// The folders.
    pub locations: Vec<Location>,
    /// The address that copies are sent from.
    pub source_address: Option<IpAddr>,
}

impl CommitArchive {
    /// Reads it out of a tree that the schema has checked.
    pub fn new(tree: &Tree) -> Self {
        let Some(branch) = tree.at(&["system", "config-management", "commit-archive"]) else {
            return Self::default();
        };
        let locations = branch.values("location").into_iter().filter_map(|text| Location::parse(text).ok());
        Self {
            locations: locations.collect(),
            source_address: branch.value("source-address").and_then(|text| text.parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &str = "set system config-management commit-archive";

    #[test]
    fn copies_go_to_several_locations() {
        let text = format!("{SET} location scp://a@b/c\n{SET} location /d\n{SET} source-address 192.0.2.1");
        let read = CommitArchive::new(&crate::parse(&text).expect("right"));
        let locations: Vec<String> = read.locations.iter().map(ToString::to_string).collect();
        assert_eq!(locations, ["scp://a@b/c", "/d"]);
        assert_eq!(read.source_address, "192.0.2.1".parse().ok());
        assert_eq!(CommitArchive::new(&Tree::default()), CommitArchive::default());
    }

    #[test]
    fn a_password_is_refused_with_another_way_and_never_repeated() {
        let text = format!("{SET} location scp://vyos:hunter2@host/a");
        let errors = crate::parse(&text).expect_err("refused");
        let said = errors[0].in_text("a.conf", &text).to_string();
        assert!(said.contains("fix: for scp use a key") && !said.contains("hunter2"), "{said}");
    }
}
