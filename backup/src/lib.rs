//! The configuration of a machine, with all that it names, in one file.
//!
//! ```text
//! configuration ── files that it names ──┐
//! scripts, revisions ────────────────────┴─> Backup ── pack ──> tar ── age ──> file
//!
//! file ── age ──> tar ── unpack, all checked ──> Backup ── plan ──> what would be written ── carry_out ──> disk
//! ```
//!
//! The tar file begins with `manifest.json`, which lists all others with their sizes, hashes, modes and owners. They are below
//! `files/`, by their paths, and `revisions/`. Nothing is written before all of it was read and checked.
#![forbid(unsafe_code)]

pub mod collect;
pub mod entry;
pub mod error;
pub mod manifest;
pub mod owner;
pub mod pack;
pub mod restore;

pub use collect::Collected;
pub use entry::{Content, Entry};
pub use error::UnpackError;
pub use pack::{pack, unpack};

/// What a backup has.
#[derive(Debug, PartialEq, Eq)]
pub struct Backup {
    /// The version of Postern that made it.
    pub version: String,
    /// When it was made, in UTC (RFC 3339).
    pub time: String,
    /// The name of the machine.
    pub host: String,
    /// The path of the configuration file, which is among the entries.
    pub configuration: String,
    /// The files and the revisions.
    pub entries: Vec<Entry>,
}

impl Backup {
    /// The entry of the configuration file.
    pub fn configuration(&self) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.place.path() == Some(self.configuration.as_str()))
    }
}
