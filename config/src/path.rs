//! Where something is in the configuration.

use std::fmt;

/// The words that lead to a branch of the configuration: `interfaces wireguard wg0`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(Vec<String>);

impl Path {
    /// The path of these words.
    pub fn new<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        Self(words.into_iter().map(str::to_owned).collect())
    }

    /// The last of its words, which names what is there.
    pub fn last(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    /// Its words, in order.
    pub fn words(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}
