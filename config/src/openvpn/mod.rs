//! OpenVPN's own configuration: its files and its command line, as OpenVPN 2.6 and 2.7 define them.
//!
//! ```text
//! command line, files ── lexer ──> words ── source ──> Directive ── table ──> Draft ── finish ──> OpenVpn
//!                                                                     └──> Remark, Refusal
//! ```
//! [`rows`] has one row for each directive. A row names its arguments, the places where it may stand, and its fate: served
//! into a setting, harmless, or refused. Files that a directive names are read here; nothing else is.

mod builder;
mod client_file;
mod directive;
mod draft;
mod finish;
mod given;
mod helper;
mod lexer;
mod pushed;
mod row;
pub mod settings;
mod source;
mod table;
mod verdict;

pub use client_file::client_file;
pub use directive::Position;
pub use pushed::{Pushed, pushed};
pub use row::{Fate, For, Row, Scope};
pub use settings::{ClientFile, OpenVpn};
pub use table::{find, rows};
pub use verdict::{Refusal, Remark};

use crate::import::Files;
use builder::Builder;
use std::collections::BTreeMap;

/// Settings, and what became of directives that have no effect, or another effect than in OpenVPN.
#[derive(Debug)]
pub struct Loaded {
    /// The settings.
    pub settings: OpenVpn,
    /// Directives without an effect, and warnings.
    pub remarks: Vec<Remark>,
    /// The last place of each directive that was given, by its name in [`rows`].
    pub given: BTreeMap<&'static str, Position>,
}

/// Reads a command line without the name of the program, and all files that it names.
///
/// # Errors
/// All errors at once, in the order of the files.
pub fn load(arguments: &[String], files: &dyn Files) -> Result<Loaded, Vec<Refusal>> {
    let (loaded, refusals) = read(arguments, files);
    if refusals.is_empty() { Ok(loaded) } else { Err(refusals) }
}

/// The same with all that can be read, although some of it is refused; and what is refused, in the order of the files.
pub fn read(arguments: &[String], files: &dyn Files) -> (Loaded, Vec<Refusal>) {
    let mut source = source::Source::new(files);
    source.command_line(arguments);
    let source::Read { directives, folder, verdict } = source.finish();
    let chroot = directives.iter().rfind(|directive| directive.name == "chroot");
    let root =
        chroot.and_then(|directive| directive.arguments.first()).map(|root| folder.join(root.as_str()));
    let mut builder = Builder::new(files, folder, root, verdict);
    for directive in &directives {
        builder.apply(directive);
    }
    finish::finish(builder)
}
