//! ipsec.conf and ipsec.secrets, of strongSwan and of libreswan: turned into the sections of swanctl.conf, and imported as these.

mod convert;
mod secrets;
mod syntax;
mod words;

use super::Source;
use super::credentials::{Directories, Store};
use super::files::Files;
use super::place::{Origin, SyntaxError};
use super::report::Draft;
use super::section::{Section, Setting};
use super::swanctl::{self, Defaults};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use words::Dialect;

/// Imports files; those whose names end in `secrets` are ipsec.secrets. The one beside ipsec.conf is read if none is given.
/// `local` are addresses of this gateway: where `right` has one of them, it is this side.
pub(super) fn import(
    sources: &[Source],
    files: &dyn Files,
    local: &[IpAddr],
    draft: &mut Draft,
) -> Result<(), SyntaxError> {
    let is_secrets = |source: &&Source| source.name.ends_with("secrets");
    let mut parser = syntax::Parser::new(files);
    for source in sources.iter().filter(|source| !is_secrets(source)) {
        parser.file(&source.name, source.text()?)?;
    }
    let whole = parser.finish()?;
    let first = sources.iter().find(|source| !is_secrets(source)).map(|source| Path::new(&source.name));
    let folder = first.and_then(Path::parent).unwrap_or(Path::new(""));
    let mut secrets = secrets::Parser::new(files, sources.len() * 1000);
    if sources.iter().any(|source| is_secrets(&source)) {
        for source in sources.iter().filter(is_secrets) {
            secrets.file(&source.name, source.text()?)?;
        }
    } else {
        let beside = folder.join("ipsec.secrets");
        if let Ok(text) = files.read(&beside)
            && let Ok(text) = text.as_str()
        {
            secrets.file(&beside.display().to_string(), text)?;
        }
    }
    let mut store = Store::new(files, directories(folder));
    swanctl::secrets(secrets.section, &mut store, draft);
    for base in whole.inherited {
        draft.translate(&base.origin, &[], "other sections inherit it");
    }
    let dialect = Dialect::of(&whole.setup, &whole.connections);
    let strict = setup(whole.setup, draft);
    authorities(whole.authorities, &mut store, draft);
    let defaults = dialect.defaults();
    for connection in peers(whole.connections, dialect, local, strict.as_ref(), draft)? {
        let mut connections = Section::new("connections", connection.origin.clone());
        connections.sections.push(connection);
        swanctl::connections(connections, defaults, &mut store, draft);
    }
    Ok(())
}

/// The folders of both programs below the one of ipsec.conf.
fn directories(folder: &Path) -> Directories {
    let of = |name: &str| vec![folder.join("ipsec.d").join(name)];
    Directories {
        certificates: of("certs"),
        authorities: of("cacerts"),
        private: of("private"),
        public: of("certs"),
        lists: of("crls"),
    }
}

/// Reports `config setup`; returns what it says of revocation.
fn setup(sections: Vec<Section>, draft: &mut Draft) -> Option<Setting> {
    let mut strict = None;
    for mut section in sections {
        if let Some(mut setting) = section.take("strictcrlpolicy") {
            let value = match setting.value.as_str() {
                "yes" => "strict",
                "ifuri" => "ifuri",
                _ => "relaxed",
            };
            draft.translate(&setting.origin, &[], "it is a setting of each peer with certificates");
            setting.value = value.to_owned().into();
            strict = Some(setting);
        }
        if let Some(unique) = section.take("uniqueids") {
            let why = "a new connection of a peer replaces the one before";
            match unique.value.as_str() {
                "yes" | "replace" => draft.take(&unique.origin, &[]),
                _ => draft.leave(&unique.origin, why, "give each device an identity of its own"),
            }
        }
        if !section.settings.is_empty() {
            section.leave(draft, false, "it is for the other program itself", "nothing");
        }
    }
    strict
}

fn authorities(sections: Vec<Section>, store: &mut Store<'_>, draft: &mut Draft) {
    for mut section in sections {
        if let Some(file) = section.take("cacert") {
            store.trust(&file.value);
            draft.translate(&file.origin, &[], "peers with certificates trust it");
        }
        section.take("auto").into_iter().for_each(|auto| draft.take(&auto.origin, &[]));
        if !section.settings.is_empty() {
            section.leave_authority(draft);
        }
    }
}

/// Connections as swanctl.conf has them; those to the same peer are its children.
fn peers(
    sections: Vec<Section>,
    dialect: Dialect,
    local: &[IpAddr],
    strict: Option<&Setting>,
    draft: &mut Draft,
) -> Result<Vec<Section>, SyntaxError> {
    let mut found: Vec<Section> = Vec::new();
    let mut known: BTreeMap<Vec<Option<String>>, usize> = BTreeMap::new();
    for section in sections {
        let Some(mut connection) = convert::connection(section, dialect, local, draft)? else { continue };
        if let Some(strict) = strict {
            let remote = connection.sections.iter_mut().find(|section| section.name == "remote");
            let setting = Setting { name: "revocation".to_owned(), ..strict.clone() };
            if let Some(remote) = remote.filter(|remote| remote.value("auth") == Some("pubkey")) {
                remote.put(setting);
            }
        }
        let key = identity(&connection);
        if let Some(first) = known.get(&key).and_then(|index| found.get_mut(*index)) {
            merge(first, connection, draft);
        } else {
            known.insert(key, found.len());
            found.push(connection);
        }
    }
    Ok(found)
}

/// What tells a peer from others.
fn identity(connection: &Section) -> Vec<Option<String>> {
    let own =
        ["version", "local_addrs", "remote_addrs"].map(|name| connection.value(name).map(str::to_owned));
    let mut key: Vec<Option<String>> = own.into();
    for side in ["local", "remote"] {
        let section = connection.sections.iter().find(|section| section.name == side);
        let values = ["id", "auth", "certs", "pubkeys"].map(|name| section?.value(name).map(str::to_owned));
        key.extend(values);
    }
    key
}

/// Adds the child of a connection to another connection to the same peer.
fn merge(first: &mut Section, mut other: Section, draft: &mut Draft) {
    let why = format!("the connection {} has the same peer, and both are tunnels of it", first.name);
    let children = other.take_sections("children").into_iter().flat_map(|section| section.sections);
    if let Some(known) = first.sections.iter_mut().find(|section| section.name == "children") {
        known.sections.extend(children);
    }
    for part in &other.sections {
        let same = first.sections.iter().find(|known| known.name == part.name);
        for setting in &part.settings {
            told(setting, same.and_then(|same| same.value(&setting.name)), &why, draft);
        }
    }
    for setting in &other.settings {
        told(setting, first.value(&setting.name), &why, draft);
    }
}

/// Reports a setting that another connection to the same peer has too, or has not.
fn told(setting: &Setting, first: Option<&str>, why: &str, draft: &mut Draft) {
    let Setting { value, origin, .. } = setting;
    if first == Some(value.as_str()) {
        draft.translate(origin, &[], why);
    } else {
        let why = format!("{why}: what it says of IKE counts");
        draft.leave_open(origin, why, "make both the same, or give the peers different identities");
    }
}

/// A setting under another name.
fn renamed(setting: Setting, name: &str) -> Setting {
    Setting { name: name.to_owned(), ..setting }
}

/// A setting that a default stands for.
fn implied(origin: &Origin, name: &str, value: &str) -> Setting {
    Setting { name: name.to_owned(), value: value.to_owned().into(), origin: origin.clone() }
}

impl Dialect {
    fn defaults(self) -> Defaults {
        match self {
            Self::StrongSwan => Defaults { ike_seconds: 3 * 3600, child_seconds: 3600 },
            Self::Libreswan => Defaults { ike_seconds: 8 * 3600, child_seconds: 8 * 3600 },
        }
    }
}
