//! The configuration in force.

use crate::service::Refused;
use config::{Path, Text, Tree};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The configuration in force. What it means is kept by the services, each its part. Clones share it.
///
/// Parts of it may be refused by the machine, as a port was taken at the start for example. They stay in it: so a commit about other
/// things keeps closed what they protect, a saved file has them, and they are tried again with each commit, reload and start.
#[derive(Clone)]
pub struct Running {
    tree: Tree,
    text: Arc<Text>,
    refused: Arc<BTreeSet<Path>>,
}

impl Running {
    /// All of a configuration.
    pub fn new(tree: &Tree) -> Self {
        Self::printed(tree.clone(), config::print::text(tree))
    }

    /// A configuration that was printed as these lines.
    pub fn printed(tree: Tree, text: Text) -> Self {
        Self { tree, text: Arc::new(text), refused: Arc::default() }
    }

    /// Its lines.
    pub fn text(&self) -> &Arc<Text> {
        &self.text
    }

    /// Its words.
    pub fn tree(&self) -> Tree {
        self.tree.clone()
    }

    /// The same, of which this was refused. What is tried again by itself does not count.
    #[must_use]
    pub fn but(self, refused: &Refused) -> Self {
        let refused = refused.iter().filter(|(_, refusal)| !refusal.is_temporary());
        Self { refused: Arc::new(refused.map(|(path, _)| path.clone()).collect()), ..self }
    }

    /// What comes back of this, if `refused` was refused of it: those parts are as in `now`, which is in force. What was refused before
    /// that too stays here.
    #[must_use]
    pub fn back_from(&self, now: &Tree, refused: &Refused) -> Self {
        let mut tree = self.tree();
        let new =
            refused.iter().filter(|(path, refusal)| !refusal.is_temporary() && !self.refused.contains(*path));
        for (path, _) in new {
            tree.take_over(path, now);
        }
        let refused = self.refused.iter().filter(|path| refused.contains_key(*path)).cloned().collect();
        Self { refused: Arc::new(refused), ..Self::new(&tree) }
    }

    /// The parts that are not in force as they are here.
    pub fn refused(&self) -> &BTreeSet<Path> {
        &self.refused
    }

    /// Those of them that another configuration has too: it does not fail by them.
    pub fn refused_in(&self, new: &Tree) -> BTreeSet<Path> {
        let is_same = |path: &&Path| self.tree.at(&path.words()) == new.at(&path.words());
        self.refused.iter().filter(is_same).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Refusal;

    #[test]
    fn a_part_that_was_refused_fails_nothing_until_it_is_changed() {
        let read = |text: &str| config::parse(text).expect("right");
        let file = "set interfaces wireguard wg0 mtu 1400\nset interfaces wireguard wg1 mtu 1400\n\
                    set interfaces wireguard wg2 mtu 1400\n";
        let path = |name| Path::new(["interfaces", "wireguard", name]);
        let refusal = |is_temporary| Refusal::new(std::io::Error::other("taken"), is_temporary);
        let refused =
            [(path("wg1"), refusal(false)), (path("wg2"), refusal(false)), (path("wg3"), refusal(true))];
        let running = Running::new(&read(file)).but(&Refused::from(refused));
        assert_eq!(running.tree(), read(file));
        let both = BTreeSet::from([path("wg1"), path("wg2")]);
        assert_eq!(running.refused(), &both);
        assert_eq!(running.refused_in(&read(&file.replace("wg0 mtu 1400", "wg0 mtu 1300"))), both);
        let changed = running.refused_in(&read(&file.replace("wg1 mtu 1400", "wg1 mtu 1300")));
        assert_eq!(changed, [path("wg2")].into());
        let now = read(&file.replace("1400", "1300"));
        let fails = Refused::from([(path("wg0"), refusal(false)), (path("wg1"), refusal(false))]);
        let back = running.back_from(&now, &fails);
        assert_eq!(back.tree(), read(&file.replace("wg0 mtu 1400", "wg0 mtu 1300")), "wg0 cannot go back");
        assert_eq!(back.refused(), &[path("wg1")].into());
        let gone = running.refused_in(&read("set interfaces wireguard wg1 mtu 1400"));
        assert_eq!(gone, [path("wg1")].into());
    }
}
