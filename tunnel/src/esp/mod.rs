//! ESP (RFC 4303): what a key exchange agrees on for it.

pub mod parameters;
pub mod selector;

pub use parameters::{ChildSa, Half, Mode, Transform};
pub use selector::TrafficSelector;
