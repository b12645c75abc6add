//! The sections `local` and `remote` of a connection: who both sides are, and how they prove it.

use super::peer::{Peer, rest};
use crate::import::place::Origin;
use crate::import::report::{Draft, Set};
use crate::import::section::{Section, Setting};

/// How a side authenticates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    Secret,
    /// With a certificate or a key.
    Key,
}

/// The method of a side; `None` if Postern does not have it.
fn method(auth: &str) -> Option<Method> {
    let auth = auth.strip_prefix("ike:").unwrap_or(auth);
    let kind = auth.split(['-', '/', ':']).next().unwrap_or_default();
    match kind {
        "psk" => Some(Method::Secret),
        "pubkey" | "rsa" | "ecdsa" | "ed25519" => Some(Method::Key),
        _ => None,
    }
}

fn sides<'a>(connection: &'a Section, side: &str) -> Vec<&'a Section> {
    connection.sections.iter().filter(|section| section.name.starts_with(side)).collect()
}

/// Why both sides cannot authenticate as they should, and what to do.
pub(super) fn refusal(connection: &Section) -> Option<(String, &'static str)> {
    let mut methods = Vec::new();
    for side in ["local", "remote"] {
        let sections = sides(connection, side);
        if sections.len() > 1 {
            let why = format!("{side} has several rounds of authentication");
            return Some((why, "keep strongSwan for this connection, or authenticate once"));
        }
        let auth = sections.first().and_then(|section| section.value("auth")).unwrap_or("pubkey");
        let Some(found) = method(auth) else {
            return Some((
                format!("authentication by {auth} is not supported"),
                "authenticate both sides by keys, or both by a pre-shared secret",
            ));
        };
        methods.push(found);
    }
    if methods.first() != methods.last() {
        let why = "the sides authenticate in different ways".to_owned();
        return Some((why, "authenticate both sides by keys"));
    }
    let has_keys = |side: &str, name: &str| sides(connection, side).iter().any(|it| it.value(name).is_some());
    if has_keys("remote", "pubkeys") && has_keys("local", "certs") {
        let why = "one side has a certificate and the other a key alone".to_owned();
        return Some((why, "use certificates on both sides"));
    }
    None
}

pub(super) fn import(peer: &mut Peer<'_, '_>, connection: &mut Section, draft: &mut Draft) {
    let origin = connection.origin.clone();
    let mut take = |name: &str| {
        let mut found = connection.take_sections(name);
        found.pop().unwrap_or_else(|| Section::new(name, origin.clone()))
    };
    let (mut local, mut remote) = (take("local"), take("remote"));
    let path = format!("{} authentication", peer.path);
    let is_secret = local.value("auth").and_then(method) == Some(Method::Secret);
    let is_raw = remote.value("pubkeys").is_some() || local.value("pubkeys").is_some();
    let mode = match (is_secret, is_raw) {
        (true, _) => "pre-shared-secret",
        (_, true) => "rsa",
        _ => "x509",
    };
    draft.imply(&local.origin, &format!("{path} mode"), Some(mode));
    auth(peer, &mut local, mode, false, draft);
    auth(peer, &mut remote, mode, true, draft);
    identity(&path, "local-id", &mut local, draft);
    identity(&path, "remote-id", &mut remote, draft);
    match mode {
        "x509" => {
            own_certificate(peer, &path, &mut local, draft);
            authorities(peer, &path, &mut remote, draft);
        }
        "rsa" => keys(peer, &path, &mut local, &mut remote, draft),
        _ => {}
    }
    constraints(peer, &path, &mut remote, draft);
    for mut section in [local, remote] {
        for name in ["round", "eap_id", "aaa_id", "xauth_id"] {
            if let Some(setting) = section.take(name) {
                draft.translate(&setting.origin, &[], "it has no effect with this method");
            }
        }
        rest(section, draft);
    }
}

/// The method of a side. Which keys and signatures a peer may use cannot be restricted.
fn auth(peer: &Peer<'_, '_>, section: &mut Section, mode: &str, is_remote: bool, draft: &mut Draft) {
    let Some(setting) = section.take("auth") else { return };
    let path = format!("{} authentication mode", peer.path);
    let sets = [(path, Some(mode))];
    match (&**setting.value, is_remote) {
        ("psk" | "pubkey", _) => draft.take(&setting.origin, &sets),
        (_, false) => {
            draft.translate(&setting.origin, &sets, "how to sign is chosen by the key and the peer");
        }
        (_, true) => {
            let why = "the keys and signatures of a peer cannot be restricted to these";
            peer.hold(&setting.origin, why, "have the authority sign such keys alone", draft);
        }
    }
}

/// An identity, of which both programs have the same spelling.
fn identity(path: &str, word: &str, section: &mut Section, draft: &mut Draft) {
    let Some(setting) = section.take("id") else { return };
    let path = format!("{path} {word}");
    let text = setting.value.as_str();
    let sets = [(path.clone(), Some(text))];
    if text.contains('*') && !text.starts_with("keyid:") || text.starts_with("@~") {
        let fix = format!("set {path} to the identity of one peer, and make a peer for each");
        draft.take(&setting.origin, &sets);
        draft.leave_open(
            &setting.origin,
            "patterns are not supported: it is an identity like others, which no peer has",
            fix,
        );
    } else {
        draft.take(&setting.origin, &sets);
    }
}

/// The files that a section names: in a list, or in sections.
fn files(section: &mut Section, list: &str, single: &str) -> Vec<(String, Origin)> {
    let of_list = |setting: &Setting| {
        setting.list().map(|file| (file.to_owned(), setting.origin.clone())).collect::<Vec<_>>()
    };
    let mut found = section.take(list).as_ref().map(of_list).unwrap_or_default();
    for part in &mut section.sections {
        if part.name.starts_with(single) {
            found.extend(part.take("file").map(|file| (file.value.to_string(), file.origin)));
        }
    }
    section.sections.retain(|part| !part.settings.is_empty() || !part.name.starts_with(single));
    found
}

fn own_certificate(peer: &mut Peer<'_, '_>, path: &str, local: &mut Section, draft: &mut Draft) {
    let mut files = files(local, "certs", "cert");
    let mut why = None;
    if files.is_empty() {
        let own = peer.store.own_certificates();
        if let [only] = &own[..] {
            files.push((only.clone(), local.origin.clone()));
            why = Some("it is the only certificate with a private key");
        }
    }
    let mut files = files.into_iter();
    if let Some((file, origin)) = files.next() {
        match peer.store.certificate(&file, &origin, draft) {
            Ok(name) => {
                let why = why.unwrap_or("the certificate and its key are part of the configuration here");
                draft.translate(&origin, &[(format!("{path} x509 certificate"), Some(&name))], why);
            }
            Err(why) => {
                let fix = format!("set pki certificate NAME, and set {path} x509 certificate NAME");
                draft.leave(&origin, why, fix);
            }
        }
    }
    for (_, origin) in files {
        draft.leave(
            &origin,
            "a peer is shown one certificate, the first",
            "nothing, if the peer accepts that",
        );
    }
}

fn authorities(peer: &mut Peer<'_, '_>, path: &str, remote: &mut Section, draft: &mut Draft) {
    let mut named = files(remote, "cacerts", "cacert");
    let is_named = !named.is_empty();
    if !is_named {
        let all = peer.store.authorities();
        named = all.into_iter().map(|file| (file, remote.origin.clone())).collect();
    }
    for (file, origin) in named {
        match peer.store.authority(&file, &origin, draft) {
            Ok(name) => {
                let why = if is_named {
                    "the certificate is part of the configuration here"
                } else {
                    "without cacerts, all authorities in the folder are trusted"
                };
                draft.translate(&origin, &[(format!("{path} x509 ca-certificate"), Some(&name))], why);
            }
            Err(why) => {
                let fix = format!("set pki ca NAME, and set {path} x509 ca-certificate NAME");
                draft.leave(&origin, why, fix);
            }
        }
    }
}

fn keys(peer: &mut Peer<'_, '_>, path: &str, local: &mut Section, remote: &mut Section, draft: &mut Draft) {
    let sides = [
        (files(local, "pubkeys", "pubkey"), "local-key", &local.origin),
        (files(remote, "pubkeys", "pubkey"), "remote-key", &remote.origin),
    ];
    for (files, word, of_side) in sides {
        let mut files = files.into_iter();
        let found = match files.next() {
            Some((file, origin)) => peer.store.key_pair(&file, &origin, draft).map(|name| (name, origin)),
            None if word == "local-key" => {
                peer.store.only_key_pair(of_side, draft).map(|name| (name, of_side.clone()))
            }
            None => continue,
        };
        let path = format!("{path} rsa {word}");
        match found {
            Ok((name, origin)) => {
                let why = "the key is part of the configuration here";
                draft.translate(&origin, &[(path, Some(&name))], why);
            }
            Err(why) => draft.leave(of_side, why, format!("set pki key-pair NAME, and set {path} NAME")),
        }
        for (_, origin) in files {
            draft.leave(&origin, "a side has one key, the first", "make a peer for each key");
        }
    }
}

/// What the certificate of the peer must be like.
fn constraints(peer: &Peer<'_, '_>, path: &str, remote: &mut Section, draft: &mut Draft) {
    if let Some(setting) = remote.take("revocation") {
        let sets: [Set<'_>; 1] = [(format!("{path} x509 revocation"), Some(&setting.value))];
        draft.take(&setting.origin, &sets);
    }
    for (file, origin) in files(remote, "certs", "cert") {
        let why = format!("the peer cannot be restricted to the certificate {file}");
        let fix = format!(
            "set {path} remote-id to its subject, if its authority is trusted to give that to nobody else"
        );
        peer.hold(&origin, &why, &fix, draft);
    }
    for name in ["groups", "cert_policy", "ca_id"] {
        if let Some(setting) = remote.take(name) {
            let why = "the certificate of a peer cannot be restricted by this";
            peer.hold(&setting.origin, why, "restrict the peer by its remote-id", draft);
        }
    }
}
