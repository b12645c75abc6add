//! swanctl.conf: `connections`, `secrets`, and what else it has.

mod authentication;
mod child;
mod connection;
mod peer;
mod secrets;
mod syntax;

pub(super) use connection::Defaults;

use super::Source;
use super::credentials::{Directories, Store};
use super::files::Files;
use super::place::SyntaxError;
use super::report::Draft;
use super::section::Section;
use std::path::Path;

/// What strongSwan has where an option is missing.
const DEFAULTS: Defaults = Defaults { ike_seconds: 4 * 3600, child_seconds: 3600 };

/// Imports files, of which each extends the ones before.
pub(super) fn import(sources: &[Source], files: &dyn Files, draft: &mut Draft) -> Result<(), SyntaxError> {
    let mut parser = syntax::Parser::new(files);
    for source in sources {
        parser.file(&source.name, source.text()?)?;
    }
    let (mut whole, referred, empty) = parser.finish()?;
    for origin in empty {
        draft.translate(&origin, &[], "an empty value stands for the default");
    }
    let folder = sources.first().and_then(|source| Path::new(&source.name).parent());
    let mut store = Store::new(files, directories(folder.unwrap_or(Path::new(""))));
    for section in whole.take_sections("") {
        match section.name.as_str() {
            "secrets" => secrets::import(section, &mut store, draft),
            "connections" => whole.sections.push(section),
            name if referred.contains(name) => {
                draft.translate(&section.origin, &[], "other sections inherit it");
            }
            _ => other(section, draft),
        }
    }
    for section in whole.take_sections("connections") {
        connections(section, DEFAULTS, &mut store, draft);
    }
    whole.leave(draft, true, "it is in no section", "look it up in swanctl.conf(5)");
    Ok(())
}

/// The folders of strongSwan beside a configuration.
fn directories(folder: &Path) -> Directories {
    let of = |names: &[&str]| names.iter().map(|name| folder.join(name)).collect();
    Directories {
        certificates: of(&["x509"]),
        authorities: of(&["x509ca"]),
        private: of(&["private", "rsa", "ecdsa", "pkcs8"]),
        public: of(&["pubkey"]),
        lists: of(&["x509crl"]),
    }
}

/// Imports all connections; those of ipsec.conf come here as well.
pub(super) fn connections(section: Section, defaults: Defaults, store: &mut Store<'_>, draft: &mut Draft) {
    for setting in &section.settings {
        draft.leave_open(&setting.origin, "a connection is a section", "look it up in swanctl.conf(5)");
    }
    for connection in section.sections {
        connection::import(connection, defaults, store, draft);
    }
}

/// Imports secrets; those of ipsec.secrets come here as well.
pub(super) fn secrets(section: Section, store: &mut Store<'_>, draft: &mut Draft) {
    secrets::import(section, store, draft);
}

fn other(section: Section, draft: &mut Draft) {
    match section.name.as_str() {
        "pools" => {
            section.leave(draft, false, "virtual addresses are not supported", "keep strongSwan for clients");
        }
        "authorities" => {
            section.leave_authority(draft);
        }
        "charon" | "charon-systemd" | "charon-nm" | "libtls" | "libtnccs" | "swanctl" | "pki" | "starter"
        | "libimcv" | "libipsec" | "libstrongswan" | "charon-cmd" => {
            section.leave(draft, false, "it is for strongSwan itself", "nothing");
        }
        _ => {
            section.leave(
                draft,
                true,
                "it is not a section of swanctl.conf",
                "look it up in swanctl.conf(5)",
            );
        }
    }
}
