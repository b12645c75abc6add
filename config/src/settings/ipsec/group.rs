//! `vpn ipsec ike-group` and `esp-group`.
//!
//! A proposal with something that is not supported is left out with a warning, as long as another remains: the peers of a
//! configuration that was taken over still find each other.

use super::algorithm::{
    self, ENCRYPTIONS, GROUPS, INTEGRITY, PRFS, encryption_by_name, group_by_number, group_weakness,
    prf_by_name, weakness,
};
use super::{
    Action, DeadPeerDetection, Encryption, Esp, EspProposal, Ike, IkeProposal, Mode, Pfs, Prf, Reader,
    branches, preset,
};
use crate::error::Location;
use crate::settings::{set, set_or_default};
use crate::tree::Tree;
use crypto::cipher::Integrity;
use std::sync::Arc;

const IKE: &str = "vpn ipsec ike-group <ike-group>";
const ESP: &str = "vpn ipsec esp-group <esp-group>";

/// What a proposal names that is not supported: the word, its value, and where the value stands.
struct Unsupported(&'static str, String, Location);

impl Unsupported {
    /// A value of the same word that is served, and common.
    fn instead(&self) -> &'static str {
        match self.0 {
            "dh-group" => "19",
            "hash" => "sha256",
            "prf" => "prfsha256",
            _ => "aes256gcm128",
        }
    }
}

impl Reader {
    pub(super) fn ike_group(&mut self, name: &str, tree: &Tree) -> Option<Arc<Ike>> {
        let path = format!("vpn ipsec ike-group {name}");
        let tree = &preset::ike(tree);
        if tree.value("key-exchange") == Some("ikev1") {
            self.error(
                tree.location_of("key-exchange"),
                format!("{path}: key-exchange ikev1 is not supported: IKEv1 is obsolete (RFC 9395)"),
                format!("set {path} key-exchange ikev2, here and at the peer"),
            );
        }
        let proposals = self.proposals(&path, tree, ike_proposal, default_ike_proposals)?;
        self.warn_of_weak_ike(&path, tree, &proposals);
        let lifetime_seconds: u32 = set_or_default(tree, IKE, "lifetime");
        Some(Arc::new(Ike {
            proposals,
            lifetime_seconds: (lifetime_seconds != 0).then_some(lifetime_seconds),
            dead_peer_detection: tree
                .at(&["dead-peer-detection"])
                .map(|it| self.dead_peer_detection(&path, it)),
            close_action: self.close_action(&path, tree),
            reauthenticate: tree.has("ikev2-reauth") && tree.value("ikev2-reauth") != Some("no"),
        }))
    }

    fn dead_peer_detection(&mut self, path: &str, tree: &Tree) -> DeadPeerDetection {
        let parent = format!("{IKE} dead-peer-detection");
        let action: String = set_or_default(tree, &parent, "action");
        let found = DeadPeerDetection {
            action: match &*action {
                "restart" => Action::Restart,
                "trap" | "hold" => Action::Trap,
                _ => Action::Clear,
            },
            interval_seconds: set_or_default(tree, &parent, "interval"),
            timeout_seconds: set_or_default(tree, &parent, "timeout"),
        };
        if action == "hold" {
            self.warn(format!("{path} dead-peer-detection action hold was renamed in VyOS 1.4: use trap"));
        }
        if found.timeout_seconds <= found.interval_seconds {
            self.warn(format!(
                "{path} dead-peer-detection: timeout {} is not longer than interval {}: a single lost packet drops the peer",
                found.timeout_seconds, found.interval_seconds
            ));
        }
        found
    }

    fn close_action(&mut self, path: &str, tree: &Tree) -> Action {
        let text: String = set_or_default(tree, IKE, "close-action");
        let (action, newer) = match &*text {
            "trap" => (Action::Trap, None),
            "start" => (Action::Restart, None),
            "hold" => (Action::Trap, Some("trap")),
            "restart" => (Action::Restart, Some("start")),
            "clear" => (Action::Clear, Some("none")),
            _ => (Action::Clear, None),
        };
        if let Some(newer) = newer {
            self.warn(format!("{path} close-action {text} was renamed in VyOS 1.4: use {newer}"));
        }
        action
    }

    pub(super) fn esp_group(&mut self, name: &str, tree: &Tree) -> Option<Arc<Esp>> {
        let path = format!("vpn ipsec esp-group {name}");
        let tree = &preset::esp(tree);
        if tree.has("compression") && tree.value("compression") != Some("disable") {
            // RFC 7296 section 2.22: packets are compressed only if both sides announce it.
            self.warn(format!("{path} compression is ignored: Postern does not support IP compression"));
        }
        let proposals = self.proposals(&path, tree, esp_proposal, default_esp_proposals)?;
        self.warn_of_weak_esp(&path, tree, &proposals);
        Some(Arc::new(Esp {
            proposals,
            mode: if tree.value("mode") == Some("transport") { Mode::Transport } else { Mode::Tunnel },
            pfs: self.pfs(&path, tree)?,
            lifetime_seconds: set_or_default(tree, ESP, "lifetime"),
            life_bytes: set(tree, "life-bytes"),
            life_packets: set(tree, "life-packets"),
            rekey: !tree.has("disable-rekey"),
            extended_sequence: !tree.has("disable-esn"),
        }))
    }

    fn pfs(&mut self, path: &str, tree: &Tree) -> Option<Pfs> {
        let text: String = set_or_default(tree, ESP, "pfs");
        let Some(number) = text.strip_prefix("dh-group") else {
            return Some(if text == "disable" { Pfs::Off } else { Pfs::AsIke });
        };
        let Some(group) = group_by_number(number) else {
            let reason = format!("{path}: pfs {text} is not supported");
            let fix = format!("set {path} pfs dh-group14, or dh-group19, here and at the peer");
            self.error(tree.location_of("pfs"), reason, fix);
            return None;
        };
        if let Some(weakness) = group_weakness(group) {
            self.warn(format!(
                "{path} pfs {text} {weakness}: set {path} pfs dh-group14, or dh-group19, here and at the peer"
            ));
        }
        Some(Pfs::Group(group))
    }

    /// The proposals of a group that are served, in the order of their numbers.
    fn proposals<T>(
        &mut self,
        path: &str,
        tree: &Tree,
        read: impl Fn(u16, &Tree) -> Result<T, Unsupported>,
        default: impl Fn() -> Vec<T>,
    ) -> Option<Vec<T>> {
        let mut served = Vec::new();
        let mut left_out = Vec::new();
        for (number, tree) in branches(tree, &["proposal"]) {
            match read(number.parse().unwrap_or(0), tree) {
                Ok(proposal) => served.push(proposal),
                Err(unsupported) => left_out.push((number, unsupported)),
            }
        }
        if left_out.is_empty() && served.is_empty() {
            return Some(default());
        }
        let none_is_served = served.is_empty();
        for (number, unsupported) in left_out {
            let Unsupported(word, value, location) = &unsupported;
            let what = format!("proposal {number} {word} {value} is not supported");
            if none_is_served {
                let instead = unsupported.instead();
                let fix = format!("set {path} proposal {number} {word} {instead}, here and at the peer");
                self.error(*location, format!("{path}: {what}"), fix);
            } else {
                self.warn(format!("{path} {what}: the proposal is left out"));
            }
        }
        (!none_is_served).then_some(served)
    }

    /// Warns of weak algorithms in a configured proposal.
    fn warn_of_weak(&mut self, path: &str, tree: &Tree, encryption: Encryption, integrity: &[Integrity]) {
        if let Some(weakness) = weakness(encryption) {
            let text = tree.value("encryption").unwrap_or_default();
            self.warn(format!(
                "{path} encryption {text} {weakness}: set {path} encryption aes256gcm128, here and at the peer"
            ));
        }
        if integrity == [Integrity::HmacSha1] {
            self.warn(format!("{path} hash sha1 is weak: set {path} hash sha256, here and at the peer"));
        }
        if !tree.has("hash") && !encryption.authenticates() {
            self.warn(format!(
                "{path} has no hash: SHA-2 is offered, where VyOS offers sha1; set {path} hash sha256"
            ));
        }
    }

    fn warn_of_weak_ike(&mut self, path: &str, tree: &Tree, proposals: &[IkeProposal]) {
        for proposal in proposals {
            let Some(tree) = tree.at(&["proposal", &proposal.number.to_string()]) else { continue };
            let path = format!("{path} proposal {}", proposal.number);
            self.warn_of_weak(&path, tree, proposal.encryption, &proposal.integrity);
            let weakness = proposal.groups.first().copied().and_then(group_weakness);
            match tree.value("dh-group") {
                Some(group) => {
                    self.warnings.extend(weakness.map(|it| {
                        format!("{path} dh-group {group} {it}: set {path} dh-group 14, or 19, here and at the peer")
                    }));
                }
                None => self.warn(format!(
                    "{path} has no dh-group: {} are offered, where VyOS offers 2; set {path} dh-group 14",
                    GROUPS.iter().map(|group| group.id().to_string()).collect::<Vec<_>>().join(", ")
                )),
            }
        }
    }

    fn warn_of_weak_esp(&mut self, path: &str, tree: &Tree, proposals: &[EspProposal]) {
        for proposal in proposals {
            let Some(tree) = tree.at(&["proposal", &proposal.number.to_string()]) else { continue };
            let path = format!("{path} proposal {}", proposal.number);
            self.warn_of_weak(&path, tree, proposal.encryption, &proposal.integrity);
        }
    }
}

/// The cipher of a proposal.
fn encryption(tree: &Tree, parent: &str) -> Result<Encryption, Unsupported> {
    let text: String = set_or_default(tree, &format!("{parent} proposal <number>"), "encryption");
    encryption_by_name(&text).ok_or_else(|| Unsupported("encryption", text, tree.location_of("encryption")))
}

/// What a word of a proposal names, or what is offered if it is not there.
fn named<T: Copy>(
    tree: &Tree,
    word: &'static str,
    by_name: impl Fn(&str) -> Option<T>,
    default: &[T],
) -> Result<Vec<T>, Unsupported> {
    match tree.value(word) {
        None => Ok(default.to_vec()),
        Some(text) => match by_name(text) {
            Some(found) => Ok(vec![found]),
            None => Err(Unsupported(word, text.to_owned(), tree.location_of(word))),
        },
    }
}

/// The MACs that go with a cipher: none with one that authenticates, whatever is named beside it.
fn integrity(tree: &Tree, encryption: Encryption) -> Result<Vec<Integrity>, Unsupported> {
    if encryption.authenticates() {
        return Ok(Vec::new());
    }
    named(tree, "hash", algorithm::integrity, INTEGRITY)
}

fn esp_proposal(number: u16, tree: &Tree) -> Result<EspProposal, Unsupported> {
    let encryption = encryption(tree, ESP)?;
    Ok(EspProposal { number, encryption, integrity: integrity(tree, encryption)? })
}

fn ike_proposal(number: u16, tree: &Tree) -> Result<IkeProposal, Unsupported> {
    let encryption = encryption(tree, IKE)?;
    if !encryption.hides() {
        let text = tree.value("encryption").unwrap_or_default().to_owned();
        return Err(Unsupported("encryption", text, tree.location_of("encryption")));
    }
    // Beside a cipher that authenticates, the hash only says which pseudorandom function is meant.
    let prfs = match tree.value("prf") {
        Some(_) => named(tree, "prf", prf_by_name, PRFS)?,
        None if encryption.authenticates() => named(tree, "hash", prf_by_name, PRFS)?,
        None => named(tree, "hash", prf_by_name, without_sha1())?,
    };
    let groups = named(tree, "dh-group", group_by_number, GROUPS)?;
    Ok(IkeProposal { number, encryption, integrity: integrity(tree, encryption)?, prfs, groups })
}

/// The pseudorandom functions where a MAC has to be named as well, so that VyOS's `sha1` cannot be meant.
fn without_sha1() -> &'static [Prf] {
    PRFS.split_last().map_or(PRFS, |(_, others)| others)
}

fn default_ike_proposals() -> Vec<IkeProposal> {
    let proposal = |&encryption: &Encryption| IkeProposal {
        number: 0,
        encryption,
        integrity: if encryption.authenticates() { Vec::new() } else { INTEGRITY.to_vec() },
        prfs: without_sha1().to_vec(),
        groups: GROUPS.to_vec(),
    };
    ENCRYPTIONS.iter().map(proposal).collect()
}

fn default_esp_proposals() -> Vec<EspProposal> {
    let proposal = |&encryption: &Encryption| EspProposal {
        number: 0,
        encryption,
        integrity: if encryption.authenticates() { Vec::new() } else { INTEGRITY.to_vec() },
    };
    ENCRYPTIONS.iter().map(proposal).collect()
}
