//! The lists of a burst between its stages. Their memory is used again by each burst; what they hold is lent by the tables of one.

use crate::datapath::{Assigned, Fitted, Routed, SaBatch};

/// What the stages hand on.
#[derive(Default)]
pub struct Lists<'t> {
    /// Behind the outbound policies.
    pub routed: Vec<Routed<'t>>,
    /// Behind `fit`.
    pub fitted: Vec<Fitted<'t>>,
    /// Behind `assign`.
    pub assigned: Vec<Assigned<'t>>,
    /// Behind the inbound `classify`.
    pub sa_batches: Vec<SaBatch<'t>>,
}

impl Lists<'_> {
    /// Their memory, for a burst with other tables.
    pub fn emptied<'t>(self) -> Lists<'t> {
        Lists {
            routed: emptied(self.routed),
            fitted: emptied(self.fitted),
            assigned: emptied(self.assigned),
            sa_batches: emptied(self.sa_batches),
        }
    }
}

/// The memory of a list: the standard library collects in place where both elements have one layout.
#[inline]
fn emptied<T, U>(mut list: Vec<T>) -> Vec<U> {
    list.clear();
    list.into_iter().filter_map(|_| None).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_kept() {
        let lists = Lists { sa_batches: Vec::with_capacity(77), ..Lists::default() };
        let lists: Lists<'static> = lists.emptied();
        assert!(lists.sa_batches.capacity() >= 77, "no allocation for each burst");
        assert!(lists.sa_batches.is_empty());
    }
}
