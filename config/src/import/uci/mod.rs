//! UCI, the configuration of OpenWrt: `network` with WireGuard, `openvpn`, `ipsec` of strongSwan, and our own `postern`.
//!
//! ```text
//! text ── syntax ──> Package, of Blocks ──┬── network ── wireguard ──┐
//!                                         ├── openvpn ───────────────┼──> Draft
//!                                         ├── ipsec ── swanctl ──────┤
//!                                         └── own: lines of ours ────┘
//! ```
//! A daemon of OpenWrt serves the interfaces with protocols of ours, and what the package `postern` has: [`Wanted::Own`].

mod ipsec;
mod network;
mod openvpn;
mod own;
mod syntax;
mod wireguard;

use super::Source;
use super::files::Files;
use super::place::SyntaxError;
use super::report::Draft;
use super::section::{Section, Setting};
use std::path::Path;
use syntax::{Block, Package};

/// What is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All that is a tunnel, also what other programs serve now.
    All,
    /// What the daemon of this OpenWrt serves.
    Own,
}

/// The protocols of netifd that are ours; what follows the prefix is the protocol.
const PROTOCOLS: &str = "postern_";

/// Imports files, each of which is a package by its name, or has `package` lines.
pub(super) fn import(
    sources: &[Source],
    files: &dyn Files,
    wanted: Wanted,
    draft: &mut Draft,
) -> Result<(), SyntaxError> {
    let mut packages = Vec::new();
    for (order, source) in sources.iter().enumerate() {
        let name = Path::new(&source.name).file_stem().unwrap_or_default().to_string_lossy();
        packages.extend(syntax::read(order, &source.name, &name, source.text()?)?);
    }
    // The lines of ours first: an interface asks for what they set.
    packages.sort_by_key(|package| package.name != "postern");
    let mut comments = Vec::new();
    for Package { name, origin, blocks } in packages {
        match name.as_str() {
            "postern" => comments.extend(own::import(blocks, draft)),
            "network" => network::import(blocks, wanted, draft),
            "openvpn" if wanted == Wanted::All => openvpn::import(blocks, files, draft),
            "ipsec" | "swanctl" if wanted == Wanted::All => ipsec::import(blocks, files, draft),
            _ => draft.leave(&origin, "OpenWrt itself serves it, or another program", "nothing"),
        }
    }
    // What a comment is about is there now.
    for Setting { value, origin, .. } in comments {
        draft.comment(&origin, &value);
    }
    Ok(())
}

/// Takes all settings of one name out: the members of a list.
fn take_members(section: &mut Section, name: &str) -> Vec<Setting> {
    section.settings.extract_if(.., |setting| setting.name == name).collect()
}

/// The same, with the words of an option that stands for a list.
fn take_list(section: &mut Section, name: &str) -> Vec<Setting> {
    let found = take_members(section, name);
    let words = found.iter().flat_map(|setting| {
        setting.value.split_whitespace().map(|word| Setting {
            name: setting.name.clone(),
            value: word.to_owned().into(),
            origin: setting.origin.clone(),
        })
    });
    words.collect()
}

/// The words with which `config_get_bool` of OpenWrt sets an option, and those with which it clears it. For others it uses the default.
const ON: [&str; 5] = ["1", "on", "true", "yes", "enabled"];
const OFF: [&str; 5] = ["0", "off", "false", "no", "disabled"];

/// Whether an option is set that is not by default.
fn is_on(setting: &Setting) -> bool {
    ON.contains(&setting.value.as_str())
}

/// Whether an option is cleared that is set by default.
fn is_off(setting: &Setting) -> bool {
    OFF.contains(&setting.value.as_str())
}

/// Reports the options that are left in a section.
fn leave_rest(section: Section, draft: &mut Draft, why: &str) {
    section.leave(draft, true, why, "look it up, and remove it or set it by hand");
}

/// The name of an interface of this kind, if it is one.
fn interface_name<'a>(kind: &str, name: &'a str) -> Option<&'a str> {
    let cursor = crate::schema::Cursor::at(["interfaces", kind, name])?;
    cursor.tag()?.kind.check(name).ok()?;
    Some(name)
}
