//! The package `ipsec`, which scripts of OpenWrt write as swanctl.conf: `remote` is a connection, `tunnel` and `transport` are its
//! children, `crypto_proposal` its proposals.

use super::{Block, is_on, take_list};
use crate::import::credentials::{Directories, Store};
use crate::import::files::Files;
use crate::import::report::Draft;
use crate::import::section::{Section, Setting};
use crate::import::swanctl::{self, Defaults};
use std::path::Path;
use zeroize::Zeroizing;

/// What strongSwan has where an option is missing.
const DEFAULTS: Defaults = Defaults { ike_seconds: 4 * 3600, child_seconds: 3600 };

/// Where strongSwan has its files.
const FOLDER: &str = "/etc/swanctl";

/// Options of a remote, and their names in swanctl.conf.
const CONNECTION: &[(&str, &str)] = &[
    ("encap", "encap"),
    ("fragmentation", "fragmentation"),
    ("inactivity", "inactivity"),
    ("keyingtries", "keyingtries"),
    ("overtime", "over_time"),
    ("rekeytime", "rekey_time"),
    ("ikelifetime", "rekey_time"),
    ("send_cert", "send_cert"),
    ("send_certreq", "send_certreq"),
];
/// Options of a tunnel, and their names in swanctl.conf.
const CHILD: &[(&str, &str)] = &[
    ("hw_offload", "hw_offload"),
    ("if_id", "if_id_in"),
    ("inactivity", "inactivity"),
    ("interface", "interface"),
    ("ipcomp", "ipcomp"),
    ("lifebytes", "life_bytes"),
    ("lifepackets", "life_packets"),
    ("lifetime", "life_time"),
    ("mark", "mark_in"),
    ("priority", "priority"),
    ("rekeybytes", "rekey_bytes"),
    ("rekeypackets", "rekey_packets"),
    ("rekeytime", "rekey_time"),
    ("replay_window", "replay_window"),
    ("reqid", "reqid"),
    ("updown", "updown"),
    ("local_updown", "updown"),
];

/// Imports all remotes that are enabled.
pub(super) fn import(blocks: Vec<Block>, files: &dyn Files, draft: &mut Draft) {
    let of = |name: &str| vec![Path::new(FOLDER).join(name)];
    let directories = Directories {
        certificates: of("x509"),
        authorities: of("x509ca"),
        private: of("private"),
        public: of("pubkey"),
        lists: of("x509crl"),
    };
    let mut store = Store::new(files, directories);
    let mut remotes = Vec::new();
    let mut parts = Vec::new();
    for Block { kind, section } in blocks {
        match kind.as_str() {
            "remote" => remotes.push(section),
            "tunnel" | "transport" | "child" | "crypto_proposal" => parts.push((kind, section)),
            "ipsec" => section.leave(draft, false, "it is for strongSwan itself", "nothing"),
            _ => section.refuse(
                draft,
                false,
                "Postern connects sites: it has no pools and no EAP",
                "keep strongSwan for clients",
            ),
        }
    }
    let mut used: Vec<String> = Vec::new();
    for mut remote in remotes {
        if remote.name.is_empty() {
            remote.name = draft.names.numbered("remote", "peer", 1);
        }
        connection(remote, &parts, &mut used, &mut store, draft);
    }
    for (_, part) in parts.into_iter().filter(|(_, part)| !used.contains(&part.name)) {
        part.refuse(draft, false, "no remote that is imported names it", "nothing");
    }
}

fn renamed(setting: Setting, name: &str) -> Setting {
    Setting { name: name.to_owned(), ..setting }
}

/// A setting that follows from another one, or from its absence.
fn implied(section: &Section, name: &str, value: &str) -> Setting {
    Setting { name: name.to_owned(), value: value.to_owned().into(), origin: section.origin.clone() }
}

/// The members of a list as one value, with the place of the first.
fn joined(section: &mut Section, name: &str, renames: &str) -> Option<Setting> {
    let found = take_list(section, name);
    let values: Vec<&str> = found.iter().map(|setting| setting.value.as_str()).collect();
    let value = Zeroizing::new(values.join(","));
    Some(Setting { name: renames.to_owned(), value, origin: found.first()?.origin.clone() })
}

fn connection(
    mut remote: Section,
    parts: &[(String, Section)],
    used: &mut Vec<String>,
    store: &mut Store<'_>,
    draft: &mut Draft,
) {
    match remote.take("enabled") {
        Some(enabled) if is_on(&enabled) => draft.take(&enabled.origin, &[]),
        _ => return remote.refuse(draft, false, "it is not enabled", "option enabled '1', and import again"),
    }
    let mut connection = Section::new(remote.name.clone(), remote.origin.clone());
    let [mut local, mut other] = ["local", "remote"].map(|name| Section::new(name, remote.origin.clone()));
    let method = remote.take("authentication_method");
    for side in [&mut local, &mut other] {
        side.settings.extend(method.clone().map(|setting| renamed(setting, "auth")));
    }
    for (names, renames) in
        [(["local_addrs", "local_gateway"], "local_addrs"), (["remote_addrs", "gateway"], "remote_addrs")]
    {
        let found = names.into_iter().find_map(|name| joined(&mut remote, name, renames));
        connection.settings.extend(found.map(|mut setting| {
            if *setting.value == "any" {
                setting.value = "%any".to_owned().into();
            }
            setting
        }));
    }
    identities(&mut remote, [&mut local, &mut other], store, draft);
    certificates(&mut remote, [&mut local, &mut other], store, draft);
    let children = children(&mut remote, parts, used, &mut connection, draft);
    proposals(&mut remote, "proposals", parts, used, &mut connection, draft);
    version(&mut remote, &mut connection);
    for (name, renames) in CONNECTION {
        connection.settings.extend(remote.take(name).map(|setting| renamed(setting, renames)));
    }
    for (name, renames) in [("vips", "vips"), ("pools", "pools")] {
        connection.settings.extend(joined(&mut remote, name, renames));
    }
    // Without a word of it, strongSwan has MOBIKE.
    let mobike = remote.take("mobike").map(|setting| {
        if is_on(&setting) {
            renamed(setting, "mobike")
        } else {
            Setting { value: "no".to_owned().into(), ..setting }
        }
    });
    connection.settings.extend(mobike);
    if connection.value("dpd_delay").is_none() {
        let delay = remote.take("dpddelay").map(|setting| renamed(setting, "dpd_delay"));
        connection.settings.push(delay.unwrap_or_else(|| implied(&remote, "dpd_delay", "30s")));
    }
    connection.sections = vec![local, other, children];
    // Settings that no step above has taken are reported with the connection.
    connection.settings.append(&mut remote.settings);
    let mut connections = Section::new("connections", connection.origin.clone());
    connections.sections.push(connection);
    swanctl::connections(connections, DEFAULTS, store, draft);
}

/// Sets the identities of both sides, and a secret that is bound to them.
fn identities(remote: &mut Section, sides: [&mut Section; 2], store: &mut Store<'_>, draft: &mut Draft) {
    let ids = [remote.take("local_identifier"), remote.take("remote_identifier")];
    let secret = remote.take("pre_shared_key");
    if let Some(secret) = secret {
        let mut section = Section::new(format!("ike-{}", remote.name), secret.origin.clone());
        section.settings.push(renamed(secret, "secret"));
        // OpenWrt binds a secret to the identities if our own is known.
        let ids = ids.iter().zip(["id1", "id2"]).map_while(|(id, name)| Some(renamed(id.clone()?, name)));
        section.settings.extend(ids);
        let mut secrets = Section::new("secrets", remote.origin.clone());
        secrets.sections.push(section);
        swanctl::secrets(secrets, store, draft);
    }
    for (side, id) in sides.into_iter().zip(ids) {
        side.settings.extend(id.map(|id| renamed(id, "id")));
    }
}

/// Sets the certificates of both sides, with our key and the authority that is trusted.
fn certificates(
    remote: &mut Section,
    [local, other]: [&mut Section; 2],
    store: &mut Store<'_>,
    draft: &mut Draft,
) {
    if let Some(key) = remote.take("local_key")
        && let Err(why) = store.add_named_private(&key.value)
    {
        draft.leave_open(
            &key.origin,
            why,
            "import the files of the machine: --root DIR names the directory that is its root",
        );
    }
    local.settings.extend(joined(remote, "local_cert", "certs"));
    other.settings.extend(joined(remote, "remote_ca_certs", "cacerts"));
    if let Some(authority) = remote.take("ca_cert") {
        store.trust(&authority.value);
        draft.translate(&authority.origin, &[], "peers with certificates trust it");
    }
}

/// The children that a remote names, with what they set of the connection.
fn children(
    remote: &mut Section,
    parts: &[(String, Section)],
    used: &mut Vec<String>,
    connection: &mut Section,
    draft: &mut Draft,
) -> Section {
    let mut children = Section::new("children", remote.origin.clone());
    for kind in ["tunnel", "transport", "child"] {
        for name in take_list(remote, kind) {
            match parts.iter().find(|(of, part)| of == kind && part.name == *name.value) {
                Some((_, part)) => {
                    used.push(part.name.clone());
                    draft.take(&name.origin, &[]);
                    children.sections.push(child(part.clone(), kind, parts, used, connection, draft));
                }
                None => {
                    draft.leave_open(&name.origin, "there is no section of this name", "correct the name");
                }
            }
        }
    }
    children
}

fn version(remote: &mut Section, connection: &mut Section) {
    let value = |text: &str| match text {
        "ikev1" => "1",
        "ikev2" => "2",
        _ => "0",
    };
    let found = remote.take("keyexchange").map(|setting| {
        let value = Zeroizing::new(value(&setting.value).to_owned());
        Setting { name: "version".to_owned(), value, ..setting }
    });
    connection.settings.push(found.unwrap_or_else(|| implied(remote, "version", "2")));
}

/// Proposals by their names, as strongSwan writes them: `aes128-sha256-modp2048`.
fn proposals(
    section: &mut Section,
    renames: &str,
    parts: &[(String, Section)],
    used: &mut Vec<String>,
    to: &mut Section,
    draft: &mut Draft,
) {
    let mut found: Vec<String> = Vec::new();
    let names = take_list(section, "crypto_proposal");
    for name in &names {
        let part = parts.iter().find(|(kind, part)| kind == "crypto_proposal" && part.name == *name.value);
        let Some((_, part)) = part else {
            draft.leave_open(&name.origin, "there is no section of this name", "correct the name");
            continue;
        };
        let of = |name: &str| part.value(name).map(str::to_owned);
        let words = ["encryption_algorithm", "hash_algorithm", "prf_algorithm", "dh_group"];
        // prf is of IKE alone.
        let words = words.iter().filter(|word| renames == "proposals" || **word != "prf_algorithm");
        found.push(words.filter_map(|word| of(word)).collect::<Vec<_>>().join("-"));
        if !used.contains(&part.name) {
            used.push(part.name.clone());
            draft.translate(&part.origin, &[], "its algorithms are in the groups of the peers that name it");
            let known = |name: &str| words_of_proposal().contains(&name);
            for setting in part.settings.iter().filter(|setting| !known(&setting.name)) {
                draft.leave_open(
                    &setting.origin,
                    "it is not an option of a proposal",
                    "look it up, and remove it",
                );
            }
        }
    }
    if let Some(first) = names.first() {
        let value = Zeroizing::new(found.join(","));
        to.settings.push(Setting { name: renames.to_owned(), value, origin: first.origin.clone() });
    }
    if let Some(force) = section.take("force_crypto_proposal") {
        draft.translate(&force.origin, &[], "only what is listed is offered");
    }
}

fn words_of_proposal() -> [&'static str; 5] {
    ["encryption_algorithm", "hash_algorithm", "prf_algorithm", "dh_group", "is_esp"]
}

/// A child, with what it sets of the connection.
fn child(
    mut part: Section,
    kind: &str,
    parts: &[(String, Section)],
    used: &mut Vec<String>,
    connection: &mut Section,
    draft: &mut Draft,
) -> Section {
    let mut child = Section::new(part.name.clone(), part.origin.clone());
    let mode = part.take("mode");
    // In older versions `mode` is how a tunnel is started.
    let is_start = mode
        .as_ref()
        .is_some_and(|mode| matches!(mode.value.as_str(), "add" | "route" | "start" | "trap" | "none"));
    let (mode, old) = if is_start { (None, mode) } else { (mode, None) };
    child.settings.push(
        mode.unwrap_or_else(|| implied(&part, "mode", if kind == "transport" { kind } else { "tunnel" })),
    );
    let start = part.take("startaction").or(old).unwrap_or_else(|| implied(&part, "start_action", "trap"));
    child.settings.push(action(start, "start_action"));
    let closed = part.take("closeaction");
    child.settings.extend(closed.map(|setting| action(setting, "close_action")));
    match part.take("dpdaction") {
        Some(setting) if *setting.value != "none" => child.settings.push(action(setting, "dpd_action")),
        found => {
            // Then dead peers are not looked for.
            let origin = found.map_or_else(|| part.origin.clone(), |setting| setting.origin);
            connection.settings.extend(match connection.value("dpd_delay") {
                Some(_) => None,
                None => Some(Setting { name: "dpd_delay".to_owned(), value: "0s".to_owned().into(), origin }),
            });
        }
    }
    for (name, renames) in
        [("local_nat", "local_ts"), ("local_subnet", "local_ts"), ("remote_subnet", "remote_ts")]
    {
        let found = joined(&mut part, name, renames);
        if child.value(renames).is_none() {
            child.settings.extend(found);
        }
    }
    proposals(&mut part, "esp_proposals", parts, used, &mut child, draft);
    for (name, renames) in CHILD {
        child.settings.extend(part.take(name).map(|setting| renamed(setting, renames)));
    }
    child.settings.append(&mut part.settings);
    child
}

/// An action in the words of swanctl.conf.
fn action(setting: Setting, name: &str) -> Setting {
    let value = match (name, setting.value.as_str()) {
        ("start_action", "add") | ("close_action", "clear") => "none",
        (_, "route" | "hold") => "trap",
        ("close_action", "restart") => "start",
        (_, other) => other,
    };
    let value = Zeroizing::new(value.to_owned());
    Setting { name: name.to_owned(), value, ..setting }
}
