//! `threads`: how many threads encrypt and decrypt the packets of an interface.

use std::str::FromStr;

/// Threads that encrypt and decrypt at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// As many as there are processors.
    #[default]
    Auto,
    /// At most so many.
    Count(u8),
}

impl FromStr for Threads {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::Count) }
    }
}
