//! The parts of a view: an element with an ID each, which a browser with script replaces alone when it has changed.

use maud::{Markup, PreEscaped};

/// An element of a view.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    pub(crate) id: String,
    /// The whole element.
    pub(crate) html: String,
    /// Its children, if these are replaced alone as long as they are the same ones.
    pub(crate) rows: Vec<Part>,
}

impl Part {
    /// An element that is replaced as a whole.
    pub(super) fn new(id: impl Into<String>, element: Markup) -> Self {
        Self { id: id.into(), html: element.into_string(), rows: Vec::new() }
    }

    /// An element around others, which `around` makes of them.
    pub(super) fn around(id: &str, rows: Vec<Self>, around: impl FnOnce(Markup) -> Markup) -> Self {
        let inner: String = rows.iter().map(|row| &*row.html).collect();
        Self { id: id.to_owned(), html: around(PreEscaped(inner)).into_string(), rows }
    }

    pub(super) fn markup(&self) -> PreEscaped<&str> {
        PreEscaped(&self.html)
    }
}
