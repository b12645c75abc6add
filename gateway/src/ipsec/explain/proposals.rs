//! No common algorithms: which lines make what the peer offers ours as well, if it is strong enough.

use super::Explained;
use crate::ipsec::connections::Names;
use config::settings::ipsec::{encryption_by_name, prf_by_name, weakness};
use crypto::cipher::Integrity;
use crypto::exchange;
use std::collections::BTreeSet;
use tunnel::ikev2::proposal::Algorithm;

pub(super) fn no_proposal(names: &Names, of: &str, ours: &[String], theirs: &[String]) -> Explained {
    let esp = names.esp_groups.iter().find(|(name, _)| name == of).map(|(_, group)| group);
    let (words, group) = match esp {
        Some(group) => ("esp-group", group),
        None => ("ike-group", &names.ike_group),
    };
    let set = format!("set vpn ipsec {words} {}", group.name);
    let accepted = if theirs.is_empty() {
        "the peer does not say what it accepts".to_owned()
    } else {
        format!("the peer offers {}", theirs.join(", "))
    };
    let wanted = theirs.iter().find_map(|text| Wanted::read(text, esp.is_none()));
    let fix = match &wanted {
        Some(wanted) if esp.is_some() => wanted.lines_for_esp(&set, group.free, ours),
        Some(wanted) => {
            let mut lines = wanted.lines_for_ike(&set, group.free);
            lines.extend(wanted.lines_for_pfs(names));
            lines
        }
        None if theirs.is_empty() => vec![format!(
            "{set} proposal {} encryption CIPHER, with one that the peer accepts; its configuration or log says which",
            group.free
        )],
        None => vec![format!(
            "what the peer offers is weak, or not supported here; have it offer {}",
            ours.join(", ")
        )],
    };
    (format!("no common proposal for {of}"), vec![format!("we accept {}", ours.join(", ")), accepted], fix)
}

/// The first algorithm of each kind of a proposal that can be advised, in the words of the configuration.
#[derive(Default)]
struct Wanted<'a> {
    encryption: &'a str,
    hash: Option<&'a str>,
    prf: Option<&'a str>,
    group: Option<u16>,
}

impl<'a> Wanted<'a> {
    /// Reads what [`describe`](tunnel::ikev2::proposal::describe) has written; `None` if we lack something that it needs, or
    /// if that is weak: the advice never weakens a connection. IKE needs a group and a function for keys, ESP may do without.
    fn read(text: &'a str, is_ike: bool) -> Option<Self> {
        let (mut wanted, mut has_weak_group) = (Self::default(), false);
        for word in text.split('-') {
            if let Some(group) = exchange::Group::ALL.iter().find(|group| group.name() == word) {
                has_weak_group |= group.is_weak();
                wanted.group = wanted.group.or(Some(group.id()).filter(|_| !group.is_weak()));
            } else if word == "sha1" || word == "prfsha1" {
                // Named only to be passed over.
            } else if word.starts_with("prf") && prf_by_name(word).is_some() {
                wanted.prf = wanted.prf.or(Some(word));
            } else if Integrity::ALL.iter().any(|mac| Algorithm::name(*mac) == word) {
                wanted.hash = wanted.hash.or(Some(word));
            } else if wanted.encryption.is_empty()
                && encryption_by_name(word).is_some_and(|cipher| weakness(cipher).is_none())
            {
                wanted.encryption = word;
            }
        }
        let authenticates = encryption_by_name(wanted.encryption)?.authenticates();
        let is_whole = if is_ike {
            wanted.prf.is_some() && wanted.group.is_some()
        } else {
            wanted.group.is_some() || !has_weak_group
        };
        (is_whole && (authenticates || wanted.hash.is_some())).then_some(wanted)
    }

    /// The lines without which new keys of the tunnels would need another group than the one that is advised for IKE: where an
    /// `esp-group` names one, it takes all of IKE's instead.
    fn lines_for_pfs(&self, names: &Names) -> Vec<String> {
        let groups = names.esp_groups.iter().map(|(_, group)| group);
        let other = groups.filter(|group| group.pfs.is_some() && group.pfs != self.group);
        let names: BTreeSet<&str> = other.map(|group| &*group.name).collect();
        names.into_iter().map(|name| format!("set vpn ipsec esp-group {name} pfs enable")).collect()
    }

    /// The cipher, and its MAC if it needs one.
    fn protection(&self, set: &str, number: u16) -> Vec<String> {
        let hash = self.hash.map(|hash| format!("{set} proposal {number} hash {hash}"));
        let encryption = format!("{set} proposal {number} encryption {}", self.encryption);
        [encryption].into_iter().chain(hash).collect()
    }

    fn lines_for_ike(&self, set: &str, number: u16) -> Vec<String> {
        let mut lines = self.protection(set, number);
        lines.extend(self.group.map(|group| format!("{set} proposal {number} dh-group {group}")));
        let of_hash = self.hash.map(|hash| format!("prf{hash}"));
        let prf = self.prf.filter(|prf| of_hash.as_deref() != Some(prf));
        lines.extend(prf.map(|prf| format!("{set} proposal {number} prf {prf}")));
        lines
    }

    /// Where only the groups differ, it is perfect forward secrecy that is to be changed.
    fn lines_for_esp(&self, set: &str, number: u16, ours: &[String]) -> Vec<String> {
        let groups_differ = |ours: &Wanted<'_>| {
            (ours.encryption, ours.hash) == (self.encryption, self.hash) && ours.group != self.group
        };
        if ours.iter().filter_map(|text| Wanted::read(text, false)).any(|ours| groups_differ(&ours)) {
            let pfs = self.group.map_or("disable".to_owned(), |group| format!("dh-group{group}"));
            return vec![format!("{set} pfs {pfs}")];
        }
        self.protection(set, number)
    }
}
