//! The configuration in force.

use crate::service::Refused;
use config::{Text, Tree};
use std::sync::Arc;

/// The configuration in force, without what was refused. What it means is kept by the services, each its part. Clones share it.
#[derive(Clone)]
pub struct Running {
    tree: Tree,
    text: Arc<Text>,
}

impl Running {
    /// All of a configuration.
    pub fn new(tree: &Tree) -> Self {
        Self::printed(tree.clone(), config::print::text(tree))
    }

    /// A configuration that was printed as these lines.
    pub fn printed(tree: Tree, text: Text) -> Self {
        Self { tree, text: Arc::new(text) }
    }

    /// Its lines.
    pub fn text(&self) -> &Arc<Text> {
        &self.text
    }

    /// Its words.
    pub fn tree(&self) -> Tree {
        self.tree.clone()
    }

    /// Takes a new one over. What was refused of it is as in the one before, which is `old`.
    pub fn take_over(&mut self, mut new: Tree, refused: &Refused, old: &Tree) {
        for path in refused.keys() {
            new.take_over(path, old);
        }
        *self = Self::new(&new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Refusal;
    use config::Path;

    #[test]
    fn what_was_refused_is_what_it_was() {
        let read = |text: &str| config::parse(text).expect("right");
        let old = read("set interfaces wireguard wg0 mtu 1400\nset interfaces wireguard wg1 mtu 1400");
        let mut running = Running::new(&old);
        assert_eq!(running.tree(), old);
        let path = |name| Path::new(["interfaces", "wireguard", name]);
        let refusal = || Refusal::new(std::io::Error::other("taken"), false);
        let refused = Refused::from([(path("wg1"), refusal()), (path("wg2"), refusal())]);
        let new = "set interfaces wireguard wg0 mtu 1300\nset interfaces wireguard wg1 mtu 1300\n\
                   set interfaces wireguard wg2 mtu 1300";
        running.take_over(read(new), &refused, &old);
        assert_eq!(
            running.tree(),
            read("set interfaces wireguard wg0 mtu 1300\nset interfaces wireguard wg1 mtu 1400")
        );
    }
}
