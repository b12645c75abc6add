//! The configuration, in the words of VyOS.
//!
//! ```text
//! text ── parse ──> Tree ── settings ──> Settings, typed and checked as a whole
//!                    │ └── print ──> text again, in one canonical form
//!                    └──── diff ──> what changed
//! ```
//! What may be said is in one table, [`schema`]; all the others read it.
#![forbid(unsafe_code)]

pub mod diff;
pub mod error;
pub mod parse;
pub mod path;
pub mod print;
pub mod schema;
pub mod settings;
mod statement;
pub mod text;
pub mod tree;

pub use error::ConfigError;
pub use parse::parse;
pub use path::Path;
pub use settings::Settings;
pub use text::Text;
pub use tree::Tree;
