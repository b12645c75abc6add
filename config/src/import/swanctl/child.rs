//! The children of a connection: a tunnel for each, with an `esp-group`.

use super::peer::{Peer, rest};
use crate::import::network::{Selector, seconds, selector};
use crate::import::place::Origin;
use crate::import::proposal;
use crate::import::report::{Draft, Set};
use crate::import::section::{Section, Setting};
use ipnet::IpNet;
use std::collections::BTreeSet;

/// What a child says that its whole peer does here.
#[derive(Default)]
pub(super) struct Actions {
    pub(super) start: Option<Setting>,
    pub(super) dead: Option<Setting>,
    pub(super) closed: Option<Setting>,
}

/// Options without an equal here, which matter for what is protected.
const OPEN: &[(&str, &str, &str)] = &[
    (
        "updown",
        "Postern runs no scripts: rules of a firewall that the script sets are missing",
        "set the rules in nftables.conf",
    ),
    ("hostaccess", "Postern sets no rules of a firewall", "set the rules in nftables.conf"),
    ("interface", "policies are for all interfaces", "narrow the prefixes"),
    ("inactivity", "tunnels are not closed for inactivity", "nothing, or reset the tunnel by hand"),
    (
        "tfc_padding",
        "packets are not padded: their lengths show (RFC 4303, section 2.7)",
        "weigh whether that matters",
    ),
    ("policies_fwd_out", "Postern has no forward policies of the kernel", "nothing"),
    (
        "priority",
        "the order of policies is the one of their prefixes",
        "set priority of the tunnel if two are for the same packets",
    ),
];

/// Options without an equal here, which do not.
const CLOSED: &[(&str, &str, &str)] = &[
    (
        "sha256_96",
        "HMAC-SHA-256 with 96 bits is not supported: this side uses 128",
        "use 128 bits on both sides",
    ),
    ("reqid", "Postern does not use policies of the kernel", "nothing"),
    ("ipcomp", "packets are not compressed", "nothing: both sides then send them as they are"),
    ("hw_offload", "Postern encrypts itself; it uses accelerators with system acceleration qat", "nothing"),
    ("copy_df", "outer packets have no DF", "nothing"),
    ("copy_ecn", "ECN is always carried (RFC 6040)", "nothing"),
    ("copy_dscp", "the DS field is carried outside", "nothing"),
    ("rand_time", "rekeying is spread by itself", "nothing"),
    ("rand_bytes", "rekeying is spread by itself", "nothing"),
    ("rand_packets", "rekeying is spread by itself", "nothing"),
    ("per_cpu_sas", "a tunnel has one SA for each direction", "nothing"),
    ("label_mode", "Postern has no security labels", "nothing"),
];

/// Options that tie a policy to an interface or a mark.
const BOUND: [&str; 8] =
    ["if_id_in", "if_id_out", "mark_in", "mark_out", "set_mark_in", "set_mark_out", "mark_in_sa", "label"];

/// Values of options with which they are off.
pub(super) fn is_off(setting: &Setting) -> bool {
    matches!(setting.value.as_str(), "no" | "0" | "0s" | "none" | "" | "0/0x00000000")
}

/// Reports the options of a table that are set.
pub(super) fn leave_known(
    section: &mut Section,
    table: &[(&str, &str, &str)],
    security: bool,
    draft: &mut Draft,
) {
    for (name, why, fix) in table {
        let Some(setting) = section.take(name) else { continue };
        match (is_off(&setting), security) {
            (true, _) => draft.take(&setting.origin, &[]),
            (false, true) => draft.leave_open(&setting.origin, *why, *fix),
            (false, false) => draft.leave(&setting.origin, *why, *fix),
        }
    }
}

/// A tunnel that is imported.
struct Tunnel<'a> {
    /// `vpn ipsec site-to-site peer P tunnel N`
    path: String,
    /// `vpn ipsec esp-group G`
    group: String,
    draft: &'a mut Draft,
}

/// Imports a child as the tunnel of a number; what it says of the whole peer is returned.
pub(super) fn import(mut child: Section, number: u32, peer: &mut Peer<'_, '_>, draft: &mut Draft) -> Actions {
    if let Some((why, fix)) = refusal(&child) {
        child.refuse(draft, true, &why, fix);
        return Actions::default();
    }
    let group = peer.group_of(&child.name, &mut draft.names);
    let path = format!("{} tunnel {number}", peer.path);
    let shown = format!("children have numbers here: it is tunnel {number}");
    draft.translate(&child.origin, &[(format!("{path} esp-group"), Some(&group))], shown);
    let mut tunnel = Tunnel { path, group: format!("vpn ipsec esp-group {group}"), draft };
    tunnel.traffic(&mut child, peer);
    tunnel.proposals(&mut child, peer);
    tunnel.lifetimes(&mut child, peer.child_seconds);
    if let Some(mode) = child.take("mode") {
        let path = format!("{} mode", tunnel.group);
        tunnel.draft.take(&mode.origin, &[(path, Some(&mode.value))]);
    }
    if let Some(window) = child.take("replay_window") {
        match window.value.as_str() {
            "-1" => tunnel.draft.take(&window.origin, &[]),
            value => {
                let path = format!("{} replay-window", peer.path);
                tunnel.draft.translate(
                    &window.origin,
                    &[(path, Some(value))],
                    "it is for all tunnels of the peer",
                );
            }
        }
    }
    for name in BOUND {
        if let Some(setting) = child.take(name) {
            if is_off(&setting) {
                draft.take(&setting.origin, &[]);
            } else {
                let why = "policies are not bound to interfaces, marks or labels: with these prefixes more would enter the tunnel";
                peer.hold(&setting.origin, why, "name the prefixes of the tunnel", draft);
            }
        }
    }
    leave_known(&mut child, OPEN, true, draft);
    leave_known(&mut child, CLOSED, false, draft);
    let actions = Actions {
        start: child.take("start_action"),
        dead: child.take("dpd_action"),
        closed: child.take("close_action"),
    };
    if let Some(policies) = child.take("policies") {
        if policies.is_yes() {
            draft.take(&policies.origin, &[]);
        } else {
            let why = "a tunnel always has policies: with these prefixes more would enter it";
            peer.hold(&policies.origin, why, "name the prefixes of the tunnel", draft);
        }
    }
    rest(child, draft);
    actions
}

/// Why a connection is none: all that it has are bypasses, or packets to drop.
pub(super) fn bypass(connection: &Section) -> Option<(String, &'static str)> {
    let sections = connection.sections.iter().filter(|section| section.name.starts_with("children"));
    let mut children = sections.flat_map(|section| &section.sections);
    let first = children.next()?;
    let is_none = |child: &Section| matches!(child.value("mode"), Some("pass" | "drop"));
    if is_none(first) && children.all(is_none) { refusal(first) } else { None }
}

/// Why a child cannot be served, and what to do.
fn refusal(child: &Section) -> Option<(String, &'static str)> {
    if child.value("ah_proposals").is_some() {
        let why = "AH is not supported: the packets of this tunnel are not protected";
        return Some((why.to_owned(), "use ESP with esp_proposals, on both sides"));
    }
    match child.value("mode").unwrap_or("tunnel") {
        "tunnel" | "transport" => None,
        "pass" => Some((
            "it is a bypass: which packets may leave unencrypted is not decided by an importer".to_owned(),
            "if they are within a remote prefix: set vpn ipsec passthrough PREFIX",
        )),
        "drop" => Some((
            "Postern drops only what its tunnels protect: these packets are not dropped".to_owned(),
            "drop them in nftables.conf",
        )),
        mode => Some((
            format!("mode {mode} is not supported: the packets of this tunnel are not protected"),
            "use mode tunnel, on both sides",
        )),
    }
}

impl Tunnel<'_> {
    /// Keeps a tunnel from being served as long as something is not decided.
    fn hold(&mut self, origin: &Origin, why: &str, fix: &str) {
        let path = &self.path;
        self.draft.imply(origin, &format!("{path} disable"), None);
        let why = format!("{why}; the tunnel is disabled, and its packets are not protected");
        self.draft.leave_open(origin, why, format!("{fix}; then: delete {path} disable"));
    }

    fn traffic(&mut self, child: &mut Section, peer: &Peer<'_, '_>) {
        let mut protocols = BTreeSet::new();
        let mut ports = Vec::new();
        for (option, side, address) in
            [("local_ts", "local", &peer.local), ("remote_ts", "remote", &peer.remote)]
        {
            let Some(setting) = child.take(option) else { continue };
            let read: Result<Vec<Selector>, String> = setting.list().map(selector).collect();
            let selectors = match read {
                Ok(selectors) => selectors,
                Err(why) => {
                    self.hold(&setting.origin, &why, "set the prefixes of the tunnel");
                    continue;
                }
            };
            let of_side: BTreeSet<_> = selectors.iter().map(|it| (it.protocol, it.port)).collect();
            if of_side.len() > 1 {
                let why = "a tunnel has one protocol and port";
                self.hold(&setting.origin, why, "make a tunnel for each");
                continue;
            }
            self.prefixes(&setting, side, &selectors, *address);
            for (protocol, port) in of_side {
                protocols.extend(protocol);
                if let Some(port) = port {
                    ports.push((side, port, setting.origin.clone()));
                }
                if protocols.len() > 1 {
                    self.hold(&setting.origin, "the protocols of both sides differ", "use one");
                }
            }
        }
        if let Some(protocol) = protocols.first() {
            let path = format!("{} protocol", self.path);
            self.draft.imply(&child.origin, &path, Some(&protocol.to_string()));
        }
        for (side, port, origin) in ports {
            self.draft.imply(&origin, &format!("{} {side} port", self.path), Some(&port.to_string()));
        }
    }

    /// The prefixes of a side. Its own address is what a side without a prefix has.
    fn prefixes(
        &mut self,
        setting: &Setting,
        side: &str,
        selectors: &[Selector],
        address: Option<std::net::IpAddr>,
    ) {
        let mut prefixes: Vec<IpNet> = selectors.iter().flat_map(|it| it.prefixes.clone()).collect();
        let is_dynamic = selectors.iter().any(|it| it.prefixes.is_empty());
        let own = address.map(IpNet::from);
        if is_dynamic && !prefixes.is_empty() {
            let Some(own) = own else {
                let why = "a tunnel has prefixes, or the address of the gateway, which is not known here";
                return self.hold(&setting.origin, why, "set the prefixes of the tunnel");
            };
            prefixes.push(own);
        }
        let texts: Vec<String> = prefixes.iter().map(IpNet::to_string).collect();
        let path = format!("{} {side} prefix", self.path);
        let sets: Vec<Set<'_>> = texts.iter().map(|text| (path.clone(), Some(&**text))).collect();
        if setting.list().eq(texts.iter().map(String::as_str))
            || texts.is_empty() && setting.list().count() == 1
        {
            self.draft.take(&setting.origin, &sets);
        } else {
            let why = "protocols and ports are settings of the tunnel, and ranges are prefixes";
            self.draft.translate(&setting.origin, &sets, why);
        }
    }

    fn proposals(&mut self, child: &mut Section, peer: &mut Peer<'_, '_>) {
        let pfs = format!("{} pfs", self.group);
        // libreswan has PFS without a group: with that of IKE.
        let wanted = child.take("pfs");
        let without = if wanted.as_ref().is_some_and(Setting::is_yes) { "enable" } else { "disable" };
        if let Some(wanted) = wanted {
            self.draft.translate(&wanted.origin, &[], "PFS is a setting of the esp-group");
        }
        let Some(setting) = child.take("esp_proposals").filter(|setting| setting.value.as_str() != "default")
        else {
            let why = "without proposals, those of Postern are offered, with PFS as in the source";
            self.draft.translate(&child.origin, &[(pfs, Some(without))], why);
            return;
        };
        let mut read = Vec::new();
        for text in setting.list() {
            match proposal::esp(text) {
                Ok(found) => read.push((text, found)),
                Err(why) => self.left_out(&setting.origin, text, &why),
            }
        }
        let group = read.iter().find_map(|(_, found)| found.groups.first().copied());
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut number = 1;
        for (text, found) in &read {
            if group.is_some_and(|group| !found.groups.contains(&group)) {
                let why = "a tunnel has one group for PFS, and this proposal has another one or none";
                self.left_out(&setting.origin, text, why);
                continue;
            }
            for suite in &found.suites {
                let at = format!("{} proposal {number}", self.group);
                lines.push((format!("{at} encryption"), suite.encryption.clone()));
                lines.extend(suite.hash.map(|hash| (format!("{at} hash"), hash.to_owned())));
                number += 1;
            }
        }
        if lines.is_empty() {
            let fix = format!("set {} proposal 1 encryption aes256gcm128, on both sides", self.group);
            return peer.hold(&setting.origin, "none of its proposals can be offered", &fix, self.draft);
        }
        let group = group.map_or(without.to_owned(), |group| format!("dh-group{group}"));
        lines.push((pfs, group));
        let never = read.iter().all(|(_, found)| found.extended == [false]);
        let mut sets: Vec<Set<'_>> =
            lines.iter().map(|(path, value)| (path.clone(), Some(&**value))).collect();
        if never {
            sets.push((format!("{} disable-esn", self.group), None));
        }
        self.draft.translate(&setting.origin, &sets, "a proposal is a list of settings here");
    }

    fn left_out(&mut self, origin: &Origin, text: &str, why: &str) {
        let why = format!("the proposal {text} is left out: {why}");
        self.draft.leave(origin, why, "offer one of the others on both sides");
    }

    fn lifetimes(&mut self, child: &mut Section, default: u64) {
        let (rekey, life) = (child.take("rekey_time"), child.take("life_time"));
        let path = format!("{} lifetime", self.group);
        let is_never = rekey.as_ref().is_some_and(|setting| seconds(&setting.value) == Some(0));
        if let Some(setting) = rekey.as_ref().filter(|_| is_never) {
            let path = format!("{} disable-rekey", self.group);
            self.draft.translate(&setting.origin, &[(path, None)], "SAs are not rekeyed");
        }
        if let Some(setting) = life.or(rekey.clone().filter(|_| !is_never)) {
            lifetime(&setting, path, 30, self.draft);
            if let Some(rekey) = rekey.filter(|rekey| rekey.name != setting.name && !is_never) {
                let why = "rekeying begins in time before the end of the SA";
                self.draft.translate(&rekey.origin, &[], why);
            }
        } else {
            let why = "the default of the source";
            self.draft.translate(&child.origin, &[(path, Some(&default.to_string()))], why);
        }
        for (own, hard, word) in
            [("rekey_bytes", "life_bytes", "life-bytes"), ("rekey_packets", "life_packets", "life-packets")]
        {
            let (soft, hard) = (child.take(own), child.take(hard));
            for setting in soft.into_iter().chain(hard) {
                if is_off(&setting) {
                    self.draft.take(&setting.origin, &[]);
                } else {
                    let path = format!("{} {word}", self.group);
                    self.draft.take(&setting.origin, &[(path, Some(&setting.value))]);
                }
            }
        }
    }
}

/// A lifetime in seconds, of at most a day.
pub(super) fn lifetime(setting: &Setting, path: String, least: u64, draft: &mut Draft) {
    let Some(found) = seconds(&setting.value) else {
        return draft.leave(&setting.origin, "it is not a time", format!("set {path} SECONDS"));
    };
    let bounded = found.clamp(least, 86_400);
    let text = bounded.to_string();
    let why = if bounded == found {
        "seconds after which the keys end; rekeying begins before"
    } else {
        "as near as the limits allow: keys live a day at most"
    };
    draft.translate(&setting.origin, &[(path, Some(&text))], why);
}
