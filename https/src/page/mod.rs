//! The status page: HTML for browsers, which works without script.
//!
//! ```text
//! browser ──> Host ──> session, or login by token ──> view, at most one second old ──> HTML, whole, or what changed of it
//!                                                      └──> GET /v1/facts, and explanations of what is down
//! ```
//! The page only reads. It has no keys: neither the snapshot nor what is shown of explanations contains a secret.

mod asked;
mod assets;
mod changes;
mod fresh;
mod health;
mod html;
mod performance;
mod rates;
mod reasons;
mod serve;
mod serving;
mod sessions;
mod stream;
mod view;

/// Why the page is refused: it is not, in this program.
pub(crate) const REFUSED: Option<&str> = None;

pub use asked::place;
pub(crate) use serve::StatusPage;
pub(crate) use serving::Serving;

#[cfg(test)]
mod tests;
