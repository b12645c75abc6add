//! The last entries of states, of the log and of `echo`.

use std::collections::VecDeque;

/// The last entries, at most as many as it was made for.
pub(super) struct History {
    entries: VecDeque<String>,
    most: usize,
}

impl History {
    pub(super) fn new(most: usize) -> Self {
        Self { entries: VecDeque::new(), most }
    }

    pub(super) fn add(&mut self, entry: String) {
        if self.entries.len() >= self.most {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// The last `count` entries, as lines.
    pub(super) fn last(&self, count: usize) -> String {
        let skipped = self.entries.len().saturating_sub(count);
        self.entries.iter().skip(skipped).map(|entry| format!("{entry}\n")).collect()
    }
}
