//! A connection: a peer with an `ike-group`, how both sides authenticate, and its children.

use super::authentication;
use super::child::{self, Actions, is_off, leave_known, lifetime};
use super::peer::{Peer, rest};
use crate::import::credentials::Store;
use crate::import::network::{prefixes, seconds};
use crate::import::proposal;
use crate::import::report::{Draft, Set};
use crate::import::section::{Section, Setting};
use std::net::IpAddr;

/// What the format has where an option is missing.
#[derive(Clone, Copy)]
pub(in crate::import) struct Defaults {
    /// Seconds until an IKE SA is rekeyed.
    pub(in crate::import) ike_seconds: u64,
    /// Seconds until a Child SA is rekeyed.
    pub(in crate::import) child_seconds: u64,
}

const OPEN: &[(&str, &str, &str)] = &[
    (
        "ppk_id",
        "Postern has no post-quantum pre-shared keys (RFC 8784)",
        "weigh whether the tunnel may do without",
    ),
    ("local_port", "IKE uses ports 500 and 4500", "use these on both sides"),
    ("remote_port", "IKE uses ports 500 and 4500", "use these on both sides"),
];

const CLOSED: &[(&str, &str, &str)] = &[
    ("dscp", "IKE packets have no DSCP", "nothing"),
    (
        "keyingtries",
        "Postern goes on trying",
        "set vpn ipsec options retransmission attempts for the time of one try",
    ),
    ("childless", "the first tunnel is set up with the IKE SA", "nothing"),
    ("send_certreq", "certificates are always requested", "nothing"),
    ("send_cert", "the certificate is always sent", "nothing"),
    ("pull", "it is for IKEv1 only", "nothing"),
    ("over_time", "rekeying begins in time before the end of the IKE SA", "nothing"),
    ("rand_time", "rekeying is spread by itself", "nothing"),
    ("mediation", "Postern has no mediation", "nothing"),
    ("ocsp", "Postern asks OCSP servers itself", "nothing"),
];

/// Imports a connection.
pub(super) fn import(mut connection: Section, defaults: Defaults, store: &mut Store<'_>, draft: &mut Draft) {
    if let Some((why, fix)) = refusal(&connection) {
        let why = format!("the connection is left out, and its packets are not protected: {why}");
        return connection.refuse(draft, true, &why, fix);
    }
    let name: String =
        connection.name.chars().map(|c| if c.is_whitespace() { '-' } else { c }).take(80).collect();
    // Two names may have the same beginning, or differ in spaces alone.
    let name = draft.names.free("peer", &name);
    let mut children = connection.take_sections("children");
    let children = children.pop().map(|section| (section.settings, section.sections)).unwrap_or_default();
    let mut peer = Peer {
        path: format!("vpn ipsec site-to-site peer {name}"),
        local: None,
        remote: None,
        child_seconds: defaults.child_seconds,
        store,
        children: children.1.len(),
        name,
    };
    draft.take(&connection.origin, &[(peer.path.clone(), None)]);
    peer.addresses(&mut connection, draft);
    authentication::import(&mut peer, &mut connection, draft);
    let mut actions = Vec::new();
    for (child, number) in children.1.into_iter().zip(1..) {
        actions.push(child::import(child, number, &mut peer, draft));
    }
    for setting in children.0 {
        draft.leave_open(&setting.origin, "a child is a section", "look it up in swanctl.conf(5)");
    }
    peer.ike_group(&mut connection, defaults, draft);
    peer.dead_peer_detection(&mut connection, &mut actions, draft);
    peer.actions(&connection, actions, draft);
    peer.other(&mut connection, draft);
    rest(connection, draft);
}

/// Why a connection cannot be served, and what to do.
fn refusal(connection: &Section) -> Option<(String, &'static str)> {
    let is_on =
        |name: &str| connection.value(name).is_some_and(|value| matches!(value, "yes" | "true" | "1"));
    if connection.value("version") == Some("1") {
        let fix = "use IKEv2 on both sides, and import again";
        return Some(("IKEv1 is obsolete (RFC 9395) and not supported".to_owned(), fix));
    }
    if connection.value("pools").is_some() || connection.value("vips").is_some() {
        let why = "virtual addresses are not supported: Postern connects sites";
        return Some((why.to_owned(), "keep strongSwan for clients"));
    }
    if is_on("mediation") || connection.value("mediated_by").is_some() {
        return Some(("mediation is not supported".to_owned(), "have the peers connect to each other"));
    }
    if is_on("ppk_required") {
        let why = "post-quantum pre-shared keys (RFC 8784) are not supported, and it requires one";
        return Some((why.to_owned(), "weigh whether the tunnel may do without"));
    }
    child::bypass(connection).or_else(|| authentication::refusal(connection))
}

impl Peer<'_, '_> {
    fn addresses(&mut self, connection: &mut Section, draft: &mut Draft) {
        let is_any =
            |text: &str| matches!(text, "%any" | "%any4" | "%any6" | "0.0.0.0" | "::" | "0.0.0.0/0" | "::/0");
        let local_path = format!("{} local-address", self.path);
        if let Some(setting) = connection.take("local_addrs") {
            let addresses: Vec<&str> = setting.list().filter(|text| !is_any(text)).collect();
            match (addresses[..].first().map(|first| first.parse::<IpAddr>()), addresses.len()) {
                (Some(Ok(address)), 1) => {
                    self.local = Some(address);
                    draft.take(&setting.origin, &[(local_path, Some(&address.to_string()))]);
                }
                (None, _) => draft.take(&setting.origin, &[(local_path, Some("any"))]),
                _ => {
                    let why = "one address can be set, and no name or range: any of this gateway is used";
                    draft.translate(&setting.origin, &[(local_path, Some("any"))], why);
                }
            }
        }
        let path = format!("{} remote-address", self.path);
        let Some(setting) = connection.take("remote_addrs").filter(|it| !it.list().all(is_any)) else {
            let why = "without an address, the peer must connect to us";
            return draft.translate(&connection.origin, &[(path, Some("any"))], why);
        };
        let is_range = |text: &str| text.parse::<IpAddr>().is_err() && prefixes(text).is_ok();
        if setting.list().any(|text| is_range(text) || is_any(text)) {
            draft.imply(&setting.origin, &path, Some("any"));
            let why = "the addresses from which a peer may connect cannot be restricted to a network: any is accepted";
            return draft.leave_open(
                &setting.origin,
                why,
                "restrict UDP ports 500 and 4500 in nftables.conf",
            );
        }
        self.remote = setting.list().find_map(|text| text.parse().ok());
        let sets: Vec<Set<'_>> = setting.list().map(|text| (path.clone(), Some(text))).collect();
        draft.take(&setting.origin, &sets);
    }

    fn ike_group(&mut self, connection: &mut Section, defaults: Defaults, draft: &mut Draft) {
        let group = format!("vpn ipsec ike-group {}", self.name);
        let (origin, path) = (connection.origin.clone(), self.path.clone());
        draft.imply(&origin, &format!("{path} ike-group"), Some(&self.name));
        draft.imply(&origin, &format!("{group} key-exchange"), Some("ikev2"));
        match connection.take("proposals") {
            Some(setting) if *setting.value != "default" => self.proposals(&group, &setting, draft),
            found => {
                let origin = found.map_or(origin, |setting| setting.origin);
                draft.translate(&origin, &[], "without proposals, those of Postern are offered");
            }
        }
        if let Some(version) = connection.take("version") {
            match version.value.as_str() {
                "2" => draft.take(&version.origin, &[]),
                _ => draft.translate(&version.origin, &[], "IKEv2 alone is accepted"),
            }
        }
        if let Some(aggressive) = connection.take("aggressive") {
            draft.translate(&aggressive.origin, &[], "it is for IKEv1 only");
        }
        ike_lifetime(&group, connection, defaults, draft);
        if let Some(mobike) = connection.take("mobike") {
            let why = "MOBIKE is not supported: a peer that changes its address sets up a new connection";
            if mobike.is_no() {
                draft.take(&mobike.origin, &[(format!("{group} disable-mobike"), None)]);
            } else {
                draft.leave(&mobike.origin, why, "nothing");
            }
        }
    }

    fn proposals(&mut self, group: &str, setting: &Setting, draft: &mut Draft) {
        let mut lines: Vec<(String, String)> = Vec::new();
        let mut number = 1;
        for text in setting.list() {
            let suites = match proposal::ike(text) {
                Ok(suites) => suites,
                Err(why) => {
                    let why = format!("the proposal {text} is left out: {why}");
                    draft.leave(&setting.origin, why, "offer one of the others on both sides");
                    continue;
                }
            };
            for suite in suites {
                let at = format!("{group} proposal {number}");
                lines.push((format!("{at} encryption"), suite.encryption));
                for (word, value) in [("hash", suite.hash), ("prf", suite.prf), ("dh-group", suite.group)] {
                    lines.extend(value.map(|value| (format!("{at} {word}"), value.to_owned())));
                }
                number += 1;
            }
        }
        if lines.is_empty() {
            let fix = format!(
                "set {group} proposal 1 encryption aes256gcm128, with prf and dh-group, on both sides"
            );
            return self.hold(&setting.origin, "none of its proposals can be offered", &fix, draft);
        }
        let sets: Vec<Set<'_>> = lines.iter().map(|(path, value)| (path.clone(), Some(&**value))).collect();
        draft.translate(&setting.origin, &sets, "a proposal is a list of settings here");
    }

    fn dead_peer_detection(&mut self, connection: &mut Section, actions: &mut [Actions], draft: &mut Draft) {
        let path = format!("vpn ipsec ike-group {} dead-peer-detection", self.name);
        let (delay, timeout) = (connection.take("dpd_delay"), connection.take("dpd_timeout"));
        let chosen = strongest(
            actions.iter_mut().filter_map(|it| it.dead.take()).collect(),
            &["clear", "none", "trap", "hold", "restart", "start"],
        );
        let interval = delay.as_ref().and_then(|setting| seconds(&setting.value)).unwrap_or(0);
        let off = "without dpd_delay, nothing looks for dead peers";
        if interval == 0 {
            for setting in delay.into_iter().chain(timeout) {
                draft.take(&setting.origin, &[]);
            }
            chosen.into_iter().flatten().for_each(|setting| draft.translate(&setting.origin, &[], off));
            return;
        }
        let Some(delay) = delay else { return };
        let interval = interval.max(2);
        let value = interval.to_string();
        let every = (format!("{path} interval"), Some(&*value));
        let given =
            timeout.as_ref().and_then(|setting| seconds(&setting.value)).filter(|found| *found > interval);
        // strongSwan gives up after five retransmissions, which take 165 seconds.
        let limit = given.unwrap_or(interval + 165).min(86_400).to_string();
        let after = (format!("{path} timeout"), Some(&*limit));
        if let Some(timeout) = timeout {
            draft.take(&delay.origin, &[every]);
            draft.translate(&timeout.origin, &[after], "seconds after which the peer is given up");
        } else {
            let why = "the source gives a peer up after its retransmissions";
            draft.translate(&delay.origin, &[every, after], why);
        }
        let mut all = chosen.into_iter().flatten();
        if let Some(setting) = all.next() {
            let action = match setting.value.as_str() {
                "restart" | "start" => "restart",
                "trap" | "hold" => "trap",
                _ => "clear",
            };
            draft.take(&setting.origin, &[(format!("{path} action"), Some(action))]);
        }
        all.for_each(|setting| draft.translate(&setting.origin, &[], SHARED));
    }

    /// What all tunnels of a peer do alike here.
    fn actions(&mut self, connection: &Section, mut actions: Vec<Actions>, draft: &mut Draft) {
        let closed = actions.iter_mut().filter_map(|it| it.closed.take()).collect();
        let mut closed =
            strongest(closed, &["none", "clear", "trap", "hold", "start", "restart"]).into_iter().flatten();
        if let Some(setting) = closed.next() {
            let action = match setting.value.as_str() {
                "start" | "restart" => "start",
                "trap" | "hold" => "trap",
                _ => "none",
            };
            let path = format!("vpn ipsec ike-group {} close-action", self.name);
            draft.take(&setting.origin, &[(path, Some(action))]);
        }
        closed.for_each(|setting| draft.translate(&setting.origin, &[], SHARED));
        let path = format!("{} connection-type", self.path);
        let starts: Vec<Setting> = actions.into_iter().filter_map(|it| it.start).collect();
        let mut starts = strongest(starts, &["none", "trap", "start", "trap|start"]).into_iter().flatten();
        if let Some(setting) = starts.next() {
            let kind = match setting.value.as_str() {
                "none" => "none",
                "trap" => "trap",
                _ => "initiate",
            };
            draft.take(&setting.origin, &[(path, Some(kind))]);
        } else {
            let why = "the default of the source: the peer connects, or swanctl --initiate";
            draft.translate(&connection.origin, &[(path, Some("none"))], why);
        }
        starts.for_each(|setting| draft.translate(&setting.origin, &[], SHARED));
    }

    fn other(&mut self, connection: &mut Section, draft: &mut Draft) {
        if let Some(encap) = connection.take("encap") {
            if encap.is_yes() {
                draft.take(&encap.origin, &[]);
            } else {
                let why = "ESP is sent in UDP where the peer knows how, as that is faster here";
                let fix = format!("to send it without: set {} force-encapsulation disable", self.path);
                draft.leave(&encap.origin, why, fix);
            }
        }
        if let Some(fragmentation) = connection.take("fragmentation") {
            match fragmentation.value.as_str() {
                "yes" | "accept" => draft.take(&fragmentation.origin, &[]),
                _ => draft.leave(
                    &fragmentation.origin,
                    "IKE fragments what is too long for a packet",
                    "nothing",
                ),
            }
        }
        for name in ["if_id_in", "if_id_out"] {
            let Some(setting) = connection.take(name) else { continue };
            if is_off(&setting) || setting.value.starts_with('%') && self.children == 0 {
                draft.take(&setting.origin, &[]);
            } else {
                let why =
                    "policies are not bound to interfaces: with these prefixes more would enter the tunnel";
                self.hold(&setting.origin, why, "name the prefixes of the tunnel", draft);
            }
        }
        if let Some(setting) = connection.take("ppk_required") {
            draft.take(&setting.origin, &[]);
        }
        if let Some(unique) = connection.take("unique") {
            let why = "a new connection of a peer replaces the one before";
            match unique.value.as_str() {
                "replace" => draft.take(&unique.origin, &[]),
                _ => draft.leave(&unique.origin, why, "give each device an identity of its own"),
            }
        }
        leave_known(connection, OPEN, true, draft);
        leave_known(connection, CLOSED, false, draft);
    }
}

/// Reauthentication takes the place of rekeying where its time is the only one.
fn ike_lifetime(group: &str, connection: &mut Section, defaults: Defaults, draft: &mut Draft) {
    let path = format!("{group} lifetime");
    let (rekey, again) = (connection.take("rekey_time"), connection.take("reauth_time"));
    let is_on = |setting: &&Setting| seconds(&setting.value).is_some_and(|found| found > 0);
    if let Some(again) = again.as_ref().filter(is_on) {
        let reauth = format!("{group} ikev2-reauth");
        draft.translate(&again.origin, &[(reauth, None)], "the IKE SA is replaced by a new one");
    } else if let Some(again) = &again {
        draft.take(&again.origin, &[]);
    }
    let again = again.filter(|setting| is_on(&setting));
    match (rekey, again) {
        (Some(setting), None) if !is_on(&&setting) => {
            draft.translate(&setting.origin, &[(path, Some("0"))], "the IKE SA is not rekeyed");
        }
        (Some(setting), None) => lifetime(&setting, path, 30, draft),
        (rekey, Some(again)) => {
            lifetime(&again, path, 30, draft);
            if let Some(rekey) = rekey {
                draft.translate(&rekey.origin, &[], "reauthentication rekeys too");
            }
        }
        (None, None) => {
            let value = defaults.ike_seconds.to_string();
            draft.translate(&connection.origin, &[(path, Some(&value))], "the default of the source");
        }
    }
}

const SHARED: &str = "it is for all tunnels of the peer here: the one that does most counts";

/// The settings, with the one first whose value comes last in `order`.
fn strongest(mut settings: Vec<Setting>, order: &[&str]) -> Option<Vec<Setting>> {
    let rank = |setting: &Setting| order.iter().position(|value| *value == &**setting.value);
    settings.sort_by_key(|setting| std::cmp::Reverse(rank(setting)));
    (!settings.is_empty()).then_some(settings)
}
