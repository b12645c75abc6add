//! `system syslog`, typed. Both words of VyOS are read: `local` and `remote`, and `global` and `host` of versions before 1.5.

use super::super::{Reader, set, set_or_default};
use crate::tree::Tree;
use std::collections::BTreeMap;

/// What is logged where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Syslog {
    /// In `/var/log/messages`.
    pub local: Vec<Selector>,
    /// The rotation of that file.
    pub local_archive: Archive,
    /// On the console.
    pub console: Vec<Selector>,
    /// In files, by their names.
    pub files: BTreeMap<String, (Vec<Selector>, Archive)>,
    /// On the screens of users.
    pub users: BTreeMap<String, Vec<Selector>>,
    /// On other machines, by their addresses or names.
    pub remotes: BTreeMap<String, Remote>,
    /// Seconds between messages that say that logging works.
    pub marker_seconds: Option<u32>,
    /// Whether whole names of machines are kept.
    pub whole_names: bool,
}

/// Messages of a facility, from a level on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The facility in the words of syslog(3); none for all.
    pub facility: Option<String>,
    /// The level; none for all.
    pub level: Option<String>,
}

/// The rotation of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Archive {
    /// Old files that are kept.
    pub files: u32,
    /// The size from which it is rotated.
    pub kilobytes: u32,
}

impl Default for Archive {
    fn default() -> Self {
        Self { files: 5, kilobytes: 256 }
    }
}

/// Another machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// What is sent to it.
    pub selectors: Vec<Selector>,
    /// Its port.
    pub port: u16,
    /// How.
    pub protocol: Protocol,
    /// Whether each message has its length before it.
    pub octet_counted: bool,
    /// Whether times have their offset from UTC.
    pub with_timezone: bool,
}

/// A transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Datagrams.
    Udp,
    /// A connection.
    Tcp,
}

impl Protocol {
    pub(super) fn new(word: &str) -> Self {
        if word == "tcp" { Self::Tcp } else { Self::Udp }
    }
}

impl Reader {
    pub(super) fn syslog(&mut self, tree: &Tree) -> Syslog {
        let mut syslog = Syslog { whole_names: tree.has("preserve-fqdn"), ..Syslog::default() };
        for word in ["global", "local"] {
            let Some(local) = tree.at(&[word]) else { continue };
            syslog.local.extend(selectors(local));
            syslog.whole_names |= local.has("preserve-fqdn");
            if let Some(archive) = local.at(&["archive"]) {
                syslog.local_archive = archived(archive);
            }
            syslog.marker_seconds = local.at(&["marker"]).map(marker);
        }
        if let Some(set) = tree.at(&["marker"]) {
            syslog.marker_seconds = (!set.has("disable")).then(|| marker(set));
        }
        syslog.console = tree.at(&["console"]).map(selectors).unwrap_or_default();
        for (name, file) in tree.at(&["file"]).into_iter().flat_map(Tree::children) {
            let archive = file.at(&["archive"]).map_or_else(Archive::default, archived);
            syslog.files.insert(name.to_owned(), (selectors(file), archive));
        }
        for (name, user) in tree.at(&["user"]).into_iter().flat_map(Tree::children) {
            syslog.users.insert(name.to_owned(), selectors(user));
        }
        for word in ["host", "remote"] {
            for (name, remote) in tree.at(&[word]).into_iter().flat_map(Tree::children) {
                if word == "remote" && syslog.remotes.contains_key(name) {
                    let reason = format!("system syslog remote {name} is there twice: host is its old name");
                    let fix = format!("delete system syslog host {name}");
                    self.error(remote.location(), reason, fix);
                }
                let read = self.remote(&format!("system syslog {word} {name}"), remote);
                syslog.remotes.insert(name.to_owned(), read);
            }
        }
        syslog
    }

    fn remote(&mut self, path: &str, tree: &Tree) -> Remote {
        let parent = "system syslog remote <address>";
        // VyOS 1.3 has it at each facility, and a machine has one.
        let of_facility = |facility: &Tree| facility.value("protocol").map(Protocol::new);
        let mut old = tree.at(&["facility"]).into_iter().flat_map(Tree::children);
        let old = old.find_map(|(_, facility)| of_facility(facility));
        let protocol = tree.value("protocol").map(Protocol::new).or(old).unwrap_or(Protocol::Udp);
        let octet_counted = tree.at(&["format"]).is_some_and(|format| format.has("octet-counted"));
        if octet_counted && protocol == Protocol::Udp {
            self.warn(format!("{path} format octet-counted has no effect with udp: set {path} protocol tcp"));
        }
        Remote {
            selectors: selectors(tree),
            port: set_or_default(tree, parent, "port"),
            protocol,
            octet_counted: octet_counted && protocol == Protocol::Tcp,
            with_timezone: tree.at(&["format"]).is_some_and(|format| format.has("include-timezone")),
        }
    }
}

fn marker(tree: &Tree) -> u32 {
    set_or_default(tree, "system syslog marker", "interval")
}

fn archived(tree: &Tree) -> Archive {
    let default = Archive::default();
    Archive {
        files: set(tree, "file").unwrap_or(default.files),
        kilobytes: set(tree, "size").unwrap_or(default.kilobytes),
    }
}

/// The selectors below a branch: all facilities first, so that one facility can differ from them.
fn selectors(tree: &Tree) -> Vec<Selector> {
    let facilities = tree.at(&["facility"]).into_iter().flat_map(Tree::children);
    let mut selectors: Vec<Selector> = facilities
        .map(|(facility, branch)| Selector {
            facility: match facility {
                "all" => None,
                // Its old name,
                "security" => Some("auth".to_owned()),
                // and what routing protocols log as in VyOS.
                "protocols" => Some("local7".to_owned()),
                other => Some(other.to_owned()),
            },
            level: match branch.value("level").unwrap_or("err") {
                "all" => None,
                other => Some(other.to_owned()),
            },
        })
        .collect();
    selectors.sort_by(|a, b| a.facility.cmp(&b.facility));
    selectors
}

#[cfg(test)]
mod tests {
    use super::super::tests::read;
    use super::*;

    fn said(selectors: &[Selector]) -> Vec<String> {
        let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "*".to_owned());
        selectors.iter().map(|it| format!("{}.{}", word(&it.facility), word(&it.level))).collect()
    }

    #[test]
    fn old_and_new_words_mean_the_same() {
        let old = "set system syslog global facility all level info\n\
                   set system syslog global facility security level warning\n\
                   set system syslog host 10.0.0.1 facility protocols level all\n\
                   set system syslog host 10.0.0.1 facility protocols protocol tcp\n\
                   set system syslog host 10.0.0.1 port 1514";
        let new = "set system syslog local facility auth level warning\n\
                   set system syslog local facility all level info\n\
                   set system syslog remote 10.0.0.1 facility local7 level all\n\
                   set system syslog remote 10.0.0.1 protocol tcp\n\
                   set system syslog remote 10.0.0.1 port 1514";
        let [old, new] = [old, new].map(|text| read(text).expect("right").syslog.expect("set"));
        assert_eq!(old, new);
        assert_eq!(said(&new.local), ["*.info", "auth.warning"]);
        assert_eq!(said(&new.remotes["10.0.0.1"].selectors), ["local7.*"]);
    }

    #[test]
    fn a_machine_with_both_names_is_refused() {
        let text =
            "set system syslog host 10.0.0.1 facility all\nset system syslog remote 10.0.0.1 facility all";
        let errors = read(text).expect_err("twice");
        assert_eq!(errors[0].fix.as_deref(), Some("delete system syslog host 10.0.0.1"));
    }

    #[test]
    fn markers_and_archives_have_the_defaults_of_vyos() {
        let text = "set system syslog global marker\nset system syslog file a.log facility all\n\
                    set system syslog file a.log archive size 1024";
        // A word that leads on is no line of its own.
        assert!(read(text).is_err());
        let syslog = read(&text.replace("marker", "marker interval 60")).expect("right").syslog.expect("set");
        assert_eq!(syslog.marker_seconds, Some(60));
        let (selectors, archive) = &syslog.files["a.log"];
        assert_eq!(
            (said(selectors), *archive),
            (vec!["*.err".to_owned()], Archive { files: 5, kilobytes: 1024 })
        );
    }
}
