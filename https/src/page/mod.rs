//! The status page: HTML for browsers, which works without script.
//!
//! ```text
//! browser ──> Host ──> session, or login by token ──> view, at most one second old ──> HTML
//!                                                      └──> GET /v1/facts, and explanations of what is down
//! ```
//! The page only reads. It has no keys: neither the snapshot nor what is shown of explanations contains a secret.

mod html;
mod serve;
mod sessions;
mod view;

pub(crate) use serve::{Serving, StatusPage};

#[cfg(test)]
mod tests;
