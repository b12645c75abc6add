//! The configuration, in the words of VyOS.
//!
//! ```text
//! text ── parse ──> Tree ── settings ──> Settings, typed and checked as a whole
//!                    ├──── print ──> text again, in one canonical form
//!                    ├──── diff, compare ──> what changed; edits ──> the lines that change it
//!                    ├──── merge ──> what two sessions changed
//!                    ├──── files ──> the files that it names
//!                    ├──── canonical ──> the same in newer words
//!                    ├──── export ──> the same in UCI of OpenWrt
//!                    └──── Level ──> what may follow, for a shell
//! ```
//! OpenVPN's own files are another language, with a table and settings of their own: [`openvpn`]. So are those of
//! DPDK's ipsec-secgw: [`secgw`].
//!
//! What may be set is in one table, [`schema`]; all the others read it.
#![forbid(unsafe_code)]

mod braces;
pub mod canonical;
mod comment;
pub mod compare;
pub mod diff;
pub mod edit;
pub mod edits;
pub mod error;
pub mod export;
pub mod files;
pub mod import;
pub mod level;
pub mod merge;
pub mod openvpn;
pub mod parse;
pub mod path;
pub mod print;
pub mod schema;
pub mod secgw;
pub mod settings;
mod statement;
pub mod text;
mod token;
pub mod tree;
mod walk;

pub use braces::is_in as is_in_braces;
pub use error::ConfigError;
pub use level::Level;
pub use parse::parse;
pub use path::Path;
pub use settings::Settings;
pub use text::Text;
pub use token::words;
pub use tree::Tree;
