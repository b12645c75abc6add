//! A WireGuard interface of `network`, and its peers: sections of type `wireguard_` and its name.

use super::network::of_netifd;
use super::{is_on, leave_rest, take_list};
use crate::import::network::with_length;
use crate::import::place::Origin;
use crate::import::report::Draft;
use crate::import::section::{Section, Setting};
use crate::import::wg_quick;
use crate::schema::{Cursor, key_of};
use std::collections::HashSet;

/// The port of a peer without `endpoint_port`, as OpenWrt has it.
const PORT: &str = "51820";
/// The longest name of a peer that is taken from a description. A key, which may stand in one too, is longer.
const LONGEST_NAME: usize = 32;

struct Interface {
    path: String,
    names: HashSet<String>,
    /// Peers that were seen.
    peers: usize,
    /// A peer that is to have all addresses, and no route to them.
    full: Option<Origin>,
}

/// Imports an interface; `is_own` says whether a protocol of ours serves it.
pub(super) fn import(
    name: String,
    mut section: Section,
    peers: Vec<Section>,
    is_own: bool,
    draft: &mut Draft,
) {
    let path = format!("interfaces wireguard {name}");
    draft.take(&section.origin, &[(path.clone(), None)]);
    let mut interface = Interface { path, names: HashSet::new(), peers: 0, full: None };
    interface.own(&mut section, draft);
    of_netifd(&mut section, Some(interface.path.as_str()).filter(|_| !is_own), draft);
    leave_rest(section, draft, "it is not an option of WireGuard");
    // Names that are set come before those that are made.
    let (named, others): (Vec<Section>, Vec<Section>) =
        peers.into_iter().partition(|peer| peer.value("name").is_some() || !peer.name.is_empty());
    for peer in named.into_iter().chain(others) {
        interface.peer(peer, draft);
    }
    if let Some(origin) = interface.full.take() {
        draft.imply(&origin, &format!("{} disable", interface.path), None);
        draft.leave_open(
            &origin,
            "Postern routes allowed-ips to the peer, and here that is every address: the interface is disabled",
            "name the prefixes behind the peer in allowed_ips, or set route_allowed_ips to 1",
        );
    }
}

impl Interface {
    fn own(&mut self, section: &mut Section, draft: &mut Draft) {
        let at = |word: &str| format!("{} {word}", self.path);
        for name in ["proto", "link"] {
            section.take(name).into_iter().for_each(|setting| draft.take(&setting.origin, &[]));
        }
        for (name, word) in [("listen_port", "port"), ("mtu", "mtu"), ("description", "description")] {
            if let Some(Setting { value, origin, .. }) = section.take(name) {
                draft.take(&origin, &[(at(word), Some(&value))]);
            }
        }
        match section.take("private_key") {
            Some(setting) if *setting.value == "generate" => {
                let fix = "postern generate pki wireguard key-pair prints a pair: set it as private_key";
                draft.leave(&setting.origin, "Postern makes no key by itself", fix);
            }
            Some(setting) => draft.take(&setting.origin, &[(at("private-key"), Some(&setting.value))]),
            None => {}
        }
        for Setting { value, origin, .. } in take_list(section, "addresses") {
            let sets = [(at("address"), Some(&*with_length(&value)))];
            if value.contains('/') {
                draft.take(&origin, &sets);
            } else {
                draft.translate(&origin, &sets, "an address without a prefix length is one address");
            }
        }
        if let Some(Setting { value, origin, .. }) = section.take("fwmark") {
            wg_quick::mark(at("fwmark"), &value, &origin, draft);
        }
        if let Some(setting) = section.take("disabled") {
            draft.take(&setting.origin, &[(at("disable"), None)][usize::from(!is_on(&setting))..]);
        }
    }

    fn peer(&mut self, mut section: Section, draft: &mut Draft) {
        self.peers += 1;
        let name = self.name(&mut section, draft);
        let path = format!("{} peer {name}", self.path);
        let at = |word: &str| format!("{path} {word}");
        for (option, word) in [("public_key", "public-key"), ("description", "description")] {
            if let Some(Setting { value, origin, .. }) = section.take(option) {
                draft.take(&origin, &[(at(word), Some(&value))]);
            }
        }
        match section.take("preshared_key") {
            // Of no effect, as wg shows it.
            Some(setting) if key_of(&setting.value).is_some_and(|key| *key == [0; 32]) => {
                draft.take(&setting.origin, &[]);
            }
            Some(setting) => draft.take(&setting.origin, &[(at("preshared-key"), Some(&setting.value))]),
            None => {}
        }
        match section.take("persistent_keepalive") {
            Some(setting) if *setting.value == "0" || &**setting.value == "off" => {
                draft.take(&setting.origin, &[]);
            }
            Some(setting) => {
                draft.take(&setting.origin, &[(at("persistent-keepalive"), Some(&setting.value))]);
            }
            None => {}
        }
        if let Some(setting) = section.take("private_key") {
            let why =
                "it is the key of the peer, from which LuCI makes a QR code: a gateway does not need it";
            draft.leave(&setting.origin, why, "keep it with the peer alone");
        }
        if let Some(setting) = section.take("disabled") {
            draft.take(&setting.origin, &[(at("disable"), None)][usize::from(!is_on(&setting))..]);
        }
        endpoint(&path, &mut section, draft);
        self.allowed_ips(&path, &mut section, draft);
        leave_rest(section, draft, "it is not an option of a peer");
    }

    /// The name of a peer: its option, the name of its section, its description, or a number.
    fn name(&mut self, section: &mut Section, draft: &mut Draft) -> String {
        let is_free = |name: &&str| {
            let cursor = Cursor::at(self.path.split(' ').chain(["peer", name]));
            let is_name = cursor.and_then(Cursor::tag).is_some_and(|tag| tag.kind.check(name).is_ok());
            // The name stands in a path without quotes.
            is_name && !name.contains(['\'', '"', '#']) && !self.names.contains(*name)
        };
        let option = section.take("name");
        let described = section.value("description").filter(|text| {
            text.len() <= LONGEST_NAME
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte))
        });
        let given = option.as_ref().map(|setting| setting.value.as_str());
        let (name, why) = if let Some(name) = given.filter(is_free) {
            (name.to_owned(), None)
        } else if let Some(name) = Some(section.name.as_str()).filter(|name| !name.is_empty()).filter(is_free)
        {
            (name.to_owned(), Some("its name is that of the section"))
        } else if let Some(name) = described.filter(is_free) {
            (name.to_owned(), Some("its name is that of the description"))
        } else {
            let mut numbers =
                (self.peers..=self.peers + self.names.len()).map(|number| format!("peer{number}"));
            let found = numbers.find(|name| !self.names.contains(name)).unwrap_or_default();
            (found, Some("peers have names here: rename it as you like"))
        };
        self.names.insert(name.clone());
        let sets = [(format!("{} peer {name}", self.path), None)];
        match (why, option) {
            (None, _) => draft.take(&section.origin, &sets),
            (Some(why), None) => draft.translate(&section.origin, &sets, why),
            (Some(why), Some(option)) => {
                draft.translate(&section.origin, &sets, why);
                draft.leave(
                    &option.origin,
                    "the name is taken, or is none",
                    "give each peer a name of its own",
                );
            }
        }
        name
    }

    fn allowed_ips(&mut self, path: &str, section: &mut Section, draft: &mut Draft) {
        let route = section.take("route_allowed_ips");
        let is_routed = route.as_ref().is_some_and(is_on);
        let prefixes = take_list(section, "allowed_ips");
        let path = format!("{path} allowed-ips");
        for Setting { value, origin, .. } in &prefixes {
            let full = with_length(value);
            let (prefix, is_cut) = match full.parse::<ipnet::IpNet>() {
                Ok(prefix) => (prefix.trunc().to_string(), prefix.trunc() != prefix),
                // The grammar says what is wrong.
                Err(_) => (full, false),
            };
            if prefix.ends_with("/0") && !is_routed {
                self.full.get_or_insert_with(|| origin.clone());
            }
            let sets = [(path.clone(), Some(&*prefix))];
            if is_cut {
                draft.translate(origin, &sets, "a prefix has no host bits here");
            } else {
                draft.take(origin, &sets);
            }
        }
        let origin = route.as_ref().map(|setting| setting.origin.clone());
        match origin {
            Some(origin) if is_routed => draft.take(&origin, &[]),
            _ if prefixes.is_empty() => origin.into_iter().for_each(|origin| draft.take(&origin, &[])),
            origin => {
                let origin = origin.unwrap_or_else(|| Origin {
                    option: format!("{}.route_allowed_ips", section.origin.option),
                    ..section.origin.clone()
                });
                let why = "Postern always routes allowed-ips to the peer, in the main table";
                draft.leave(
                    &origin,
                    why,
                    "set route_allowed_ips to 1, or name in allowed_ips what the peer is to get",
                );
            }
        }
    }
}

/// The address and port of a peer.
fn endpoint(path: &str, section: &mut Section, draft: &mut Draft) {
    let port = section.take("endpoint_port");
    let Some(Setting { value, origin, .. }) = section.take("endpoint_host") else {
        let why = "without endpoint_host, the peer must connect to us";
        return port
            .into_iter()
            .for_each(|port| draft.leave(&port.origin, why, "nothing, or set endpoint_host"));
    };
    let address = value.trim_start_matches('[').trim_end_matches(']');
    let number = port.as_ref().map_or(PORT, |port| port.value.as_str());
    let before = format!("{path} ");
    let value =
        if address.contains(':') { format!("[{address}]:{number}") } else { format!("{address}:{number}") };
    wg_quick::endpoint(&before, &value, &origin, draft);
    if let Some(port) = port {
        draft.take(&port.origin, &[]);
    }
}
