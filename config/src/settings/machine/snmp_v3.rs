//! `service snmp v3`, typed. A group is taken apart: each user has what its group allows.

use super::super::{Reader, set, set_or_default};
use super::Protocol;
use crate::tree::Tree;
use crypto::SecretBytes;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Version 3 of SNMP.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SnmpV3 {
    /// The number of this agent, in hexadecimal.
    pub engine_id: Option<String>,
    /// Who may ask.
    pub users: BTreeMap<String, SnmpUser>,
    /// What may be seen, by the names.
    pub views: BTreeMap<String, Vec<SnmpTree>>,
    /// Who is told of events.
    pub traps: BTreeMap<IpAddr, TrapSession>,
}

/// Who may ask, and what.
#[derive(Clone, PartialEq, Eq)]
pub struct SnmpUser {
    /// The keys.
    pub keys: UsmKeys,
    /// The minimum protection that a message must have.
    pub minimum: SecurityLevel,
    /// Whether the user may write.
    pub writes: bool,
    /// The name of what the user sees; none for all.
    pub view: Option<String>,
}

/// The keys of a user (RFC 3414).
#[derive(Clone, PartialEq, Eq)]
pub struct UsmKeys {
    /// What signs messages.
    pub auth: UsmKey,
    /// What encrypts them.
    pub privacy: Option<UsmKey>,
}

/// A key, and what it is used with.
#[derive(Clone, PartialEq, Eq)]
pub struct UsmKey {
    /// `md5`, `sha`, `des` or `aes`.
    pub algorithm: String,
    /// A password, or a key for the engine in hexadecimal.
    pub secret: SecretBytes,
    /// Whether it is such a key.
    pub is_localized: bool,
}

/// How a message is protected (RFC 3411, section 3.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecurityLevel {
    /// Not at all.
    NoAuthNoPriv,
    /// It is authenticated.
    AuthNoPriv,
    /// It is authenticated and encrypted.
    AuthPriv,
}

/// A tree of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnmpTree {
    /// Its number.
    pub oid: String,
    /// Whether it is not seen.
    pub is_excluded: bool,
    /// Which numbers of it count.
    pub mask: Option<String>,
}

/// Who is told of events.
#[derive(Clone, PartialEq, Eq)]
pub struct TrapSession {
    /// Who sends the message.
    pub user: String,
    /// The keys.
    pub keys: UsmKeys,
    /// The port.
    pub port: u16,
    /// The transport.
    pub protocol: Protocol,
    /// Whether the receiver confirms it.
    pub is_confirmed: bool,
}

impl SnmpV3 {
    /// The keys of the users and of the senders of traps, by name: snmpd has them in one file.
    pub fn keys(&self) -> BTreeMap<&str, &UsmKeys> {
        let senders = self.traps.values().filter(|target| !target.is_confirmed);
        let senders = senders.map(|target| (target.user.as_str(), &target.keys));
        senders.chain(self.users.iter().map(|(name, user)| (name.as_str(), &user.keys))).collect()
    }
}

const V3: &str = "service snmp v3";

/// What a group allows.
struct Group {
    minimum: SecurityLevel,
    writes: bool,
    view: Option<String>,
}

impl Reader {
    pub(super) fn snmp_v3(&mut self, tree: &Tree) -> SnmpV3 {
        let children = |word| tree.at(&[word]).into_iter().flat_map(Tree::children);
        let mut v3 = SnmpV3 { engine_id: tree.value("engineid").map(str::to_owned), ..SnmpV3::default() };
        for (name, view) in children("view") {
            v3.views.insert(name.to_owned(), trees(view));
        }
        let mut groups = BTreeMap::new();
        for (name, group) in children("group") {
            let group = self.snmp_group(name, group, &v3.views);
            groups.insert(name, group);
        }
        for (name, user) in children("user") {
            if let Some(user) = self.snmp_user(name, user, &groups, v3.engine_id.is_some()) {
                v3.users.insert(name.to_owned(), user);
            }
        }
        for (name, target) in children("trap-target") {
            if let (Some(session), Ok(address)) = (self.trap_session(name, target, &v3), name.parse()) {
                v3.traps.insert(address, session);
            }
        }
        v3
    }

    fn snmp_group(&mut self, name: &str, group: &Tree, views: &BTreeMap<String, Vec<SnmpTree>>) -> Group {
        let path = format!("{V3} group {name}");
        let view = group.value("view").map(str::to_owned);
        let writes = group.value("mode") == Some("rw");
        if let Some(view) = view.as_ref().filter(|view| !views.contains_key(*view)) {
            let reason = format!("{path} names the view {view}, which is not there");
            self.error(group.location_of("view"), reason, format!("set {V3} view {view} oid OID"));
        }
        if writes && view.is_some() {
            let reason = format!("{path} has mode rw and a view: who may write sees what is safe to write");
            self.error(
                group.location_of("view"),
                reason,
                format!("delete {path} view, or set {path} mode ro"),
            );
        }
        let minimum = match group.value("seclevel") {
            Some("noauth") => {
                self.warn(format!("{path} asks for no password: set {path} seclevel auth"));
                SecurityLevel::NoAuthNoPriv
            }
            Some("priv") => SecurityLevel::AuthPriv,
            _ => SecurityLevel::AuthNoPriv,
        };
        Group { minimum, writes, view }
    }

    fn snmp_user(
        &mut self,
        name: &str,
        user: &Tree,
        groups: &BTreeMap<&str, Group>,
        has_engine: bool,
    ) -> Option<SnmpUser> {
        let path = format!("{V3} user {name}");
        let Some(auth) = self.usm_key(user, &path, "auth", "md5") else {
            let reason = format!("{path} has no password");
            self.error(user.location(), reason, format!("set {path} auth plaintext-password SECRET"));
            return None;
        };
        let privacy = self.usm_key(user, &path, "privacy", "des");
        let keys = UsmKeys { auth, privacy };
        if keys.is_localized() && !has_engine {
            let reason = format!("{path} has an encrypted-password, which is for one engineid");
            self.error(user.location(), reason, format!("set {V3} engineid HEX, or use plaintext-password"));
        }
        let writes = user.value("mode") == Some("rw");
        let Some(group) = user.value("group") else {
            return Some(SnmpUser { minimum: keys.level(), keys, writes, view: None });
        };
        let Some(allowed) = groups.get(group) else {
            let reason = format!("{path} names the group {group}, which is not there");
            self.error(user.location_of("group"), reason, format!("set {V3} group {group} mode ro"));
            return None;
        };
        if writes && !allowed.writes {
            self.warn(format!("{path} mode rw has no effect: set {V3} group {group} mode rw"));
        }
        if allowed.minimum > keys.level() {
            let reason = format!("{path} has no key to encrypt with, and its group {group} asks for it");
            self.error(user.location(), reason, format!("set {path} privacy plaintext-password SECRET"));
        }
        let Group { minimum, writes, view } = allowed;
        Some(SnmpUser { keys, minimum: *minimum, writes: *writes, view: view.clone() })
    }

    /// The key below a word; none if there is none.
    fn usm_key(&mut self, of: &Tree, path: &str, word: &str, default: &str) -> Option<UsmKey> {
        let tree = of.at(&[word])?;
        let (plain, localized) = (tree.value("plaintext-password"), tree.value("encrypted-password"));
        let algorithm = tree.value("type").unwrap_or(default).to_owned();
        if let (Some(_), Some(_)) = (plain, localized) {
            let reason = format!("{path} {word} has two passwords, and only one counts");
            let fix = format!("delete {path} {word} encrypted-password");
            self.error(tree.location_of("encrypted-password"), reason, fix);
        }
        let secret = SecretBytes::new(plain.or(localized)?.as_bytes().to_vec());
        if algorithm == default {
            let better = if word == "auth" { "sha" } else { "aes" };
            self.warn(format!("{path} uses {default}, which is weak: set {path} {word} type {better}"));
        }
        Some(UsmKey { algorithm, secret, is_localized: plain.is_none() })
    }

    fn trap_session(&mut self, name: &str, target: &Tree, v3: &SnmpV3) -> Option<TrapSession> {
        let path = format!("{V3} trap-target {name}");
        let Some(user) = target.value("user") else {
            let reason = format!("{path} does not say who sends the traps");
            self.error(target.location(), reason, format!("set {path} user NAME"));
            return None;
        };
        let is_confirmed = target.value("type") != Some("trap");
        let keys = self.trap_keys(&path, target, user, is_confirmed, v3)?;
        Some(TrapSession {
            user: user.to_owned(),
            keys,
            port: set_or_default(target, "service snmp v3 trap-target <address>", "port"),
            protocol: Protocol::new(target.value("protocol").unwrap_or("udp")),
            is_confirmed,
        })
    }

    /// The keys of a target, or those of its user. A trap that is not confirmed is sent with the keys that the user has here.
    fn trap_keys(
        &mut self,
        path: &str,
        target: &Tree,
        user: &str,
        is_confirmed: bool,
        v3: &SnmpV3,
    ) -> Option<UsmKeys> {
        let auth = self.usm_key(target, path, "auth", "md5");
        let privacy = self.usm_key(target, path, "privacy", "des");
        let own = auth.map(|auth| UsmKeys { auth, privacy });
        let (reason, fix) = match (own, v3.users.get(user).map(|user| &user.keys)) {
            (None, None) => (
                format!("{path} has no password, and there is no user {user}"),
                format!("set {path} auth plaintext-password SECRET"),
            ),
            (None, Some(known)) if known.is_localized() && is_confirmed => (
                format!("{path} has its traps confirmed, and the key of {user} is not for the receiver"),
                format!("set {path} type trap, or set {path} auth plaintext-password SECRET"),
            ),
            (None, Some(known)) => return Some(known.clone()),
            (Some(own), Some(known)) if !is_confirmed && own != *known => (
                format!("{path} has other keys than the user {user}, whose keys traps are sent with"),
                format!("delete {path} auth, or set {path} type inform"),
            ),
            (Some(own), _) if !is_confirmed && own.is_localized() && v3.engine_id.is_none() => (
                format!("{path} has an encrypted-password, which is for one engineid"),
                format!("set {V3} engineid HEX, or use plaintext-password"),
            ),
            (Some(own), _) => return Some(own),
        };
        self.error(target.location(), reason, fix);
        None
    }
}

impl UsmKeys {
    /// The most protection that there are keys for.
    pub fn level(&self) -> SecurityLevel {
        if self.privacy.is_some() { SecurityLevel::AuthPriv } else { SecurityLevel::AuthNoPriv }
    }

    fn is_localized(&self) -> bool {
        self.auth.is_localized || self.privacy.as_ref().is_some_and(|key| key.is_localized)
    }
}

fn trees(view: &Tree) -> Vec<SnmpTree> {
    let trees = view.at(&["oid"]).into_iter().flat_map(Tree::children);
    trees
        .map(|(oid, tree)| SnmpTree {
            oid: oid.to_owned(),
            is_excluded: tree.has("exclude"),
            mask: set(tree, "mask"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    const USER: &str = "set service snmp v3 user a auth plaintext-password open-sesame\n\
                        set service snmp v3 user a auth type sha\n";
    const PRIVACY: &str = "set service snmp v3 user a privacy plaintext-password open-barley\n\
                           set service snmp v3 user a privacy type aes\n";

    fn v3(text: &str) -> SnmpV3 {
        let machine = read(text).unwrap_or_else(|errors| panic!("{errors:?}"));
        machine.snmp.expect("set").v3
    }

    #[test]
    fn a_user_has_the_level_of_its_keys_or_what_its_group_allows() {
        let user = |text: &str| v3(text).users["a"].clone();
        let alone = user(USER);
        assert_eq!((alone.minimum, alone.writes, alone.view), (SecurityLevel::AuthNoPriv, false, None));
        assert_eq!(user(&format!("{USER}{PRIVACY}")).minimum, SecurityLevel::AuthPriv);
        assert!(user(&format!("{USER}set service snmp v3 user a mode rw")).writes);
        let group = "set service snmp v3 user a group g\nset service snmp v3 group g seclevel priv\n\
                     set service snmp v3 group g view v\nset service snmp v3 view v oid 1.3.6.1 mask f0\n\
                     set service snmp v3 view v oid 1.3.6.1.2 exclude";
        let text = format!("{USER}{PRIVACY}{group}");
        let member = user(&text);
        assert_eq!(member.minimum, SecurityLevel::AuthPriv);
        assert_eq!(member.view.as_deref(), Some("v"));
        let tree = |oid: &str, is_excluded, mask: Option<&str>| SnmpTree {
            oid: oid.to_owned(),
            is_excluded,
            mask: mask.map(str::to_owned),
        };
        assert_eq!(v3(&text).views["v"], [tree("1.3.6.1", false, Some("f0")), tree("1.3.6.1.2", true, None)]);
    }

    #[test]
    fn a_trap_target_has_the_keys_of_its_user_or_its_own() {
        let target = "set service snmp v3 trap-target 192.0.2.1 user a\n";
        let session = v3(&format!("{USER}{target}")).traps.into_values().next().expect("one");
        assert!(session.is_confirmed && session.port == 162 && session.keys.privacy.is_none());
        assert_eq!(session.keys.auth.secret.expose(), b"open-sesame");
        let sender = "set service snmp v3 trap-target 192.0.2.1 user b\n";
        let own = "set service snmp v3 trap-target 192.0.2.1 auth plaintext-password open-barley\n\
                   set service snmp v3 trap-target 192.0.2.1 type trap\n";
        let with_sender = v3(&format!("{USER}{sender}{own}"));
        assert_eq!(with_sender.keys().into_keys().collect::<Vec<_>>(), ["a", "b"]);
        let session = with_sender.traps.into_values().next().expect("one");
        assert_eq!((session.is_confirmed, session.keys.auth.algorithm.as_str()), (false, "md5"));
        assert_eq!(session.keys.auth.secret.expose(), b"open-barley");
    }

    #[test]
    fn what_could_not_work_is_refused_with_what_to_type() {
        let key = format!("0x{}", "ab".repeat(20));
        for (lines, reason, fix) in [
            (
                "user a mode ro",
                "has no password",
                "set service snmp v3 user a auth plaintext-password SECRET",
            ),
            (
                &format!("user a auth encrypted-password {key}"),
                "is for one engineid",
                "set service snmp v3 engineid HEX",
            ),
            (
                "user a auth plaintext-password open-sesame\nuser a group g",
                "names the group g, which is not there",
                "set service snmp v3 group g mode ro",
            ),
            (
                "user a auth plaintext-password open-sesame\nuser a group g\ngroup g seclevel priv",
                "has no key to encrypt with",
                "set service snmp v3 user a privacy plaintext-password SECRET",
            ),
            ("group g view v", "names the view v", "set service snmp v3 view v oid OID"),
            (
                "group g view v\nview v oid 1.3\ngroup g mode rw",
                "has mode rw and a view",
                "delete service snmp v3 group g view",
            ),
            (
                &format!(
                    "engineid 8000000001\nuser a auth plaintext-password open-sesame\nuser a auth encrypted-password {key}"
                ),
                "two passwords",
                "delete service snmp v3 user a auth encrypted-password",
            ),
            ("trap-target 192.0.2.1 port 162", "who sends", "set service snmp v3 trap-target 192.0.2.1 user"),
            (
                "user a auth plaintext-password open-sesame\ntrap-target 192.0.2.1 user a\n\
                 trap-target 192.0.2.1 type trap\ntrap-target 192.0.2.1 auth plaintext-password open-barley",
                "has other keys than the user a",
                "delete service snmp v3 trap-target 192.0.2.1 auth",
            ),
            (
                "trap-target 192.0.2.1 user b",
                "there is no user b",
                "set service snmp v3 trap-target 192.0.2.1 auth plaintext-password SECRET",
            ),
            (
                &format!(
                    "engineid 8000000001020304\nuser a auth encrypted-password {key}\ntrap-target 192.0.2.1 user a"
                ),
                "is not for the receiver",
                "set service snmp v3 trap-target 192.0.2.1 type trap",
            ),
        ] {
            let text: String = lines.lines().map(|line| format!("set service snmp v3 {line}\n")).collect();
            let errors = read(&text).expect_err("it is refused");
            let said = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            assert!(said.contains(reason) && said.contains(fix), "{lines}: {said}");
            assert!(!said.contains("open-sesame") && !said.contains(&key), "{said}");
        }
    }
}
