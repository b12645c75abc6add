//! The configuration in force.

use crate::service::{Refusal, Refused};
use config::{Path, Text, Tree};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The configuration in force. What it means is kept by the services, each its part. Clones share it.
///
/// Parts of it may be refused by the machine, as a port was taken at the start for example. They stay in it: so a commit about other
/// things keeps closed what they protect, and a saved file has them. A reload and a restart try them again, and a commit that changes
/// them.
#[derive(Clone)]
pub struct Running {
    tree: Tree,
    text: Arc<Text>,
    refused: Arc<BTreeMap<Path, String>>,
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
        let refused = lasting(refused).map(|(path, refusal)| (path.clone(), refusal.to_string()));
        Self { refused: Arc::new(refused.collect()), ..self }
    }

    /// What comes back of this, if `refused` was refused of it: a part that `now` has too is refused, and not in force in either. Of the
    /// others, `now` stays in force.
    #[must_use]
    pub fn back_from(&self, now: &Tree, refused: &Refused) -> Self {
        let (mut tree, mut left) = (self.tree(), BTreeMap::new());
        for (path, refusal) in lasting(refused) {
            if self.has_as(path, now) {
                left.insert(path.clone(), refusal.to_string());
            } else {
                tree.take_over(path, now);
            }
        }
        Self { refused: Arc::new(left), ..Self::new(&tree) }
    }

    /// The parts that are not in force as they are here, and why.
    pub fn refused(&self) -> &BTreeMap<Path, String> {
        &self.refused
    }

    /// Those of them that another configuration has too: it does not fail by them.
    pub fn refused_in(&self, new: &Tree) -> BTreeMap<Path, String> {
        let kept = self.refused.iter().filter(|(path, _)| self.has_as(path, new));
        kept.map(|(path, why)| (path.clone(), why.clone())).collect()
    }

    /// Whether another configuration has the same at this place.
    pub fn has_as(&self, path: &Path, other: &Tree) -> bool {
        self.tree.at(&path.words()) == other.at(&path.words())
    }
}

/// What is not tried again by itself.
fn lasting(refused: &Refused) -> impl Iterator<Item = (&Path, &Refusal)> {
    refused.iter().filter(|(_, refusal)| !refusal.is_temporary())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let places = |refused: &BTreeMap<Path, String>| refused.keys().cloned().collect::<Vec<_>>();
        assert_eq!(places(running.refused()), [path("wg1"), path("wg2")]);
        let other = running.refused_in(&read(&file.replace("wg0 mtu 1400", "wg0 mtu 1300")));
        assert_eq!(&other, running.refused());
        let changed = running.refused_in(&read(&file.replace("wg1 mtu 1400", "wg1 mtu 1300")));
        assert_eq!(places(&changed), [path("wg2")]);
        let gone = running.refused_in(&read("set interfaces wireguard wg1 mtu 1400"));
        assert_eq!(places(&gone), [path("wg1")]);
        // On the way back, what the commit had changed stays as it made it, and what it had not is no matter of it.
        let now = read(&file.replace("wg0 mtu 1400", "wg0 mtu 1300"));
        let fails = Refused::from([(path("wg0"), refusal(false)), (path("wg1"), refusal(false))]);
        let back = running.back_from(&now, &fails);
        assert_eq!(back.tree(), now);
        assert_eq!(places(back.refused()), [path("wg1")]);
    }
}
