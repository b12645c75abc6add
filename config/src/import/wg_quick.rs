//! Files of wg-quick: `[Interface]` and `[Peer]` sections of `Key = value` lines. The name of the file is that of the interface.

use super::place::{Origin, Place, Reader, SyntaxError};
use super::report::{Draft, Set};
use super::{Source, network};
use crate::schema::{Cursor, is_domain, key_of};
use ipnet::IpNet;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The longest name of a peer that is taken from a comment. A key, which may stand in one too, is longer.
const LONGEST_NAME: usize = 32;

/// An option of a section.
struct Setting {
    key: String,
    value: Zeroizing<String>,
    origin: Origin,
}

/// A section, and a comment at its beginning that may be a name.
struct Section {
    is_peer: bool,
    origin: Origin,
    name: Option<String>,
    settings: Vec<Setting>,
}

/// Imports files, each of which is an interface.
pub(super) fn import(sources: &[Source], draft: &mut Draft) -> Result<(), SyntaxError> {
    let named = |source: &Source| interface_name(&source.name);
    let mut taken: HashSet<String> = sources.iter().filter_map(named).collect();
    for (order, source) in sources.iter().enumerate() {
        let sections = read(order, source)?;
        let name = interface_name(&source.name).unwrap_or_else(|| {
            // One more than are taken.
            let mut names = (0..=taken.len()).map(|number| format!("wg{number}"));
            let free = names.find(|name| !taken.contains(name));
            free.unwrap_or_default()
        });
        let stem = Path::new(&source.name).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(first) = sections.first().filter(|_| stem != name) {
            let why = format!("the interface {stem} is {name} here: names are wg and a number");
            draft.translate(&first.origin, &[(format!("interfaces wireguard {name}"), None)], why);
        }
        taken.insert(name.clone());
        Interface { name, full: None, prefixes: HashMap::new(), names: HashSet::new(), peers: 0 }
            .import(sections, draft);
    }
    Ok(())
}

/// The name of an interface that a file is named after, if it is one here.
fn interface_name(file: &str) -> Option<String> {
    let stem = Path::new(file).file_stem()?.to_str()?;
    Cursor::at(["interfaces", "wireguard", stem])?.tag()?.kind.check(stem).ok()?;
    Some(stem.to_owned())
}

fn read(order: usize, source: &Source) -> Result<Vec<Section>, SyntaxError> {
    let file: Arc<str> = source.name.as_str().into();
    let mut reader = Reader::new(order, &file, source.text()?);
    let mut sections: Vec<Section> = Vec::new();
    let mut comment: Option<(usize, String)> = None;
    loop {
        reader.pass(char::is_whitespace);
        let place = reader.place();
        match reader.peek() {
            None => return Ok(sections),
            Some('#' | ';') => {
                let text = Zeroizing::new(reader.pass(|c| c != '\n').to_owned());
                let name = name_in(&text);
                let section = sections.last_mut().filter(|section| section.settings.is_empty());
                match (section, &name) {
                    (Some(section), Some(name)) if section.is_peer && section.name.is_none() => {
                        section.name = Some(name.clone());
                    }
                    _ => comment = name.map(|name| (place.line, name)),
                }
            }
            Some('[') => {
                let line = reader.pass(|c| c != '\n' && c != '#');
                let is_peer = match line.trim().to_lowercase().as_str() {
                    "[interface]" => false,
                    "[peer]" => true,
                    _ => return Err(at(place, "unknown section", "write [Interface] or [Peer]")),
                };
                // A comment on the line before is the name of the peer.
                let name = comment.take().filter(|(line, _)| is_peer && line + 1 == place.line);
                let option = if is_peer { "[Peer]" } else { "[Interface]" }.to_owned();
                let (origin, name) = (Origin { place, option }, name.map(|(_, name)| name));
                sections.push(Section { is_peer, origin, name, settings: Vec::new() });
            }
            Some(_) => {
                let line = Zeroizing::new(reader.pass(|c| c != '\n').to_owned());
                let Some(section) = sections.last_mut() else {
                    return Err(at(place, "no section before this line", "write [Interface] before it"));
                };
                section.settings.push(setting(&line, place, section.is_peer)?);
            }
        }
    }
}

fn at(place: Place, reason: &str, fix: &str) -> SyntaxError {
    SyntaxError { place, reason: reason.to_owned(), fix: fix.to_owned() }
}

fn setting(line: &str, place: Place, is_peer: bool) -> Result<Setting, SyntaxError> {
    let line = line.split('#').next().unwrap_or_default();
    let Some((key, value)) = line.split_once('=') else {
        return Err(at(place, "no = in this line", "write Key = value"));
    };
    let key = key.trim();
    // What is no word may be a part of a secret, and is not repeated.
    let is_word = !key.is_empty() && key.len() <= 40 && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_word {
        return Err(at(place, "no name of an option before =", "write Key = value"));
    }
    let option = format!("{} {key}", if is_peer { "Peer" } else { "Interface" });
    let value = Zeroizing::new(value.trim().to_owned());
    Ok(Setting { key: key.to_lowercase(), value, origin: Origin { place, option } })
}

/// A name in a comment: `# berlin`, `# Name = berlin`.
fn name_in(comment: &str) -> Option<String> {
    let text = comment.trim_start_matches(['#', ';']).trim();
    let text = text.split_once('=').map_or(Some(text), |(key, value)| {
        let key = key.trim().to_lowercase();
        matches!(&*key, "name" | "friendly_name" | "peer").then(|| value.trim())
    })?;
    let is_name = (1..=LONGEST_NAME).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte));
    is_name.then(|| text.to_owned())
}

/// An interface that is imported.
struct Interface {
    name: String,
    /// The line `Table = off`, with which wg-quick sets no routes.
    full: Option<Origin>,
    /// Who has each prefix.
    prefixes: HashMap<IpNet, String>,
    names: HashSet<String>,
    peers: usize,
}

/// The parts of a list between commas.
fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty())
}

const SCRIPT: &str =
    "Postern runs no commands: an nftables rule or a route that the tunnel needs must come from the system";

impl Interface {
    fn path(&self, word: &str) -> String {
        format!("interfaces wireguard {} {word}", self.name)
    }

    fn import(mut self, sections: Vec<Section>, draft: &mut Draft) {
        let owners = owners(&sections);
        for section in sections {
            if section.is_peer {
                self.peer(section, &owners, draft);
            } else {
                for setting in &section.settings {
                    self.setting(setting, draft);
                }
            }
        }
        if let Some(origin) = self.full.take() {
            self.without_routes(&origin, draft);
        }
    }

    /// Reports that the peers get routes all the same; for all addresses, the interface is disabled.
    fn without_routes(&self, origin: &Origin, draft: &mut Draft) {
        if self.prefixes.keys().all(|prefix| prefix.prefix_len() > 0) {
            let why = "Postern routes allowed-ips to the peer, in the main table";
            return draft.leave(origin, why, "name in allowed-ips what the peer is to get");
        }
        draft.imply(origin, &self.path("disable"), None);
        let name = &self.name;
        draft.leave_open(
            origin,
            "Postern routes allowed-ips to the peer, and here that is every address: the interface is disabled",
            format!("name the prefixes behind the peer in allowed-ips, then: delete interfaces wireguard {name} disable"),
        );
    }

    fn setting(&mut self, setting: &Setting, draft: &mut Draft) {
        let Setting { key, value, origin } = setting;
        match key.as_str() {
            "privatekey" => draft.take(origin, &[(self.path("private-key"), Some(value))]),
            "listenport" => draft.take(origin, &[(self.path("port"), Some(value))]),
            "mtu" => draft.take(origin, &[(self.path("mtu"), Some(value))]),
            "address" => self.addresses(value, origin, draft),
            "fwmark" => mark(self.path("fwmark"), value, origin, draft),
            "table" if value.eq_ignore_ascii_case("auto") => draft.take(origin, &[]),
            "table" if value.eq_ignore_ascii_case("off") => {
                if let Some(before) = self.full.replace(origin.clone()) {
                    draft.translate(&before, &[], "a later line says the same");
                }
            }
            "table" => {
                let why = "Postern routes allowed-ips in the main table, or in one of its own for a prefix of length 0";
                draft.leave_open(origin, why, "use fwmark and policy routing of the system");
            }
            "saveconfig" if value.eq_ignore_ascii_case("false") => draft.take(origin, &[]),
            "saveconfig" => {
                draft.leave(origin, "the file is never overwritten", "nothing");
            }
            "dns" => {
                let why = "Postern does not set name servers: queries go to those of the system";
                let fix = format!("set them for {} in systemd-resolved or resolvconf", self.name);
                draft.leave_open(origin, why, fix);
            }
            "preup" | "postup" | "predown" | "postdown" => {
                draft.leave_open(
                    origin,
                    SCRIPT,
                    "put it into nftables.conf, systemd-networkd or a unit of your own",
                );
            }
            _ => draft.leave_open(origin, "it is not an option of wg-quick", "look it up, and remove it"),
        }
    }

    fn addresses(&self, value: &str, origin: &Origin, draft: &mut Draft) {
        let hosts: Vec<String> = list(value).map(network::with_length).collect();
        let sets: Vec<Set<'_>> = hosts.iter().map(|host| (self.path("address"), Some(&**host))).collect();
        if list(value).all(|text| text.contains('/')) {
            draft.take(origin, &sets);
        } else {
            draft.translate(origin, &sets, "an address without a prefix length is one address");
        }
    }

    fn peer(&mut self, section: Section, owners: &HashMap<IpNet, usize>, draft: &mut Draft) {
        self.peers += 1;
        let name = section.name.filter(|name| !self.names.contains(name));
        let why = match &name {
            Some(_) => "its name is that of the comment",
            None => "peers have names here: rename it as you like",
        };
        let numbers = (self.peers..).map(|number| format!("peer{number}"));
        let name = name.or_else(|| numbers.into_iter().find(|name| !self.names.contains(name)));
        let name = name.unwrap_or_default();
        self.names.insert(name.clone());
        let path = self.path(&format!("peer {name}"));
        draft.translate(&section.origin, &[(path.clone(), None)], why);
        let last_endpoint = section.settings.iter().rposition(|setting| setting.key == "endpoint");
        for (at, Setting { key, value, origin }) in section.settings.iter().enumerate() {
            let path = |word: &str| format!("{path} {word}");
            match key.as_str() {
                "publickey" => draft.take(origin, &[(path("public-key"), Some(value))]),
                // Of no effect, as wg shows it.
                "presharedkey" if key_of(value).is_some_and(|key| *key == [0; 32]) => draft.take(origin, &[]),
                "presharedkey" => draft.take(origin, &[(path("preshared-key"), Some(value))]),
                "persistentkeepalive" if value.eq_ignore_ascii_case("off") || **value == "0" => {
                    draft.take(origin, &[]);
                }
                "persistentkeepalive" => {
                    draft.take(origin, &[(path("persistent-keepalive"), Some(value))]);
                }
                // The last one counts: an address before a name would be left beside it.
                "endpoint" if Some(at) != last_endpoint => draft.take(origin, &[]),
                "endpoint" => endpoint(&path(""), value, origin, draft),
                "allowedips" => self.allowed_ips(&name, value, origin, owners, draft),
                _ => draft.leave_open(origin, "it is not an option of a peer", "look it up, and remove it"),
            }
        }
    }

    fn allowed_ips(
        &mut self,
        peer: &str,
        value: &str,
        origin: &Origin,
        owners: &HashMap<IpNet, usize>,
        draft: &mut Draft,
    ) {
        let (mut prefixes, mut is_said_otherwise) = (Vec::new(), false);
        for text in list(value) {
            let full = network::with_length(text);
            let Ok(prefix) = full.parse::<IpNet>() else {
                // The grammar says what is wrong.
                prefixes.push(full);
                continue;
            };
            let prefix = prefix.trunc();
            if owners.get(&prefix).is_some_and(|owner| *owner != self.peers) {
                let why = format!(
                    "another peer of the file has {prefix} too, and WireGuard gives it to the last one"
                );
                draft.leave(origin, why, "nothing");
                continue;
            }
            is_said_otherwise |= prefix.to_string() != text;
            self.prefixes.insert(prefix, peer.to_owned());
            prefixes.push(prefix.to_string());
        }
        let path = self.path(&format!("peer {peer} allowed-ips"));
        let sets: Vec<Set<'_>> = prefixes.iter().map(|prefix| (path.clone(), Some(&**prefix))).collect();
        match (sets.is_empty(), is_said_otherwise) {
            (true, _) if list(value).next().is_none() => draft.take(origin, &[]),
            // Each of its prefixes was reported.
            (true, _) => {}
            (_, true) => draft.translate(origin, &sets, "prefixes have a length, and no host bits, here"),
            (_, false) => draft.take(origin, &sets),
        }
    }
}

/// The number of the last peer that has each prefix, which gets the packets.
fn owners(sections: &[Section]) -> HashMap<IpNet, usize> {
    let peers = sections.iter().filter(|section| section.is_peer).zip(1..);
    let prefixes = peers.flat_map(|(section, number)| {
        let lists = section.settings.iter().filter(|setting| setting.key == "allowedips");
        let texts = lists.flat_map(|setting| list(&setting.value));
        texts
            .filter_map(move |text| Some((network::with_length(text).parse::<IpNet>().ok()?.trunc(), number)))
    });
    prefixes.collect()
}

/// The mark of encrypted packets.
pub(super) fn mark(path: String, value: &str, origin: &Origin, draft: &mut Draft) {
    if value.eq_ignore_ascii_case("off") || value == "0" {
        return draft.take(origin, &[]);
    }
    match value.strip_prefix("0x").map(|digits| u32::from_str_radix(digits, 16)) {
        Some(Ok(mark)) => {
            draft.translate(origin, &[(path, Some(&mark.to_string()))], "marks are decimal here");
        }
        _ => draft.take(origin, &[(path, Some(value))]),
    }
}

/// The address and port of a peer; `path` ends in a space.
pub(super) fn endpoint(path: &str, value: &str, origin: &Origin, draft: &mut Draft) {
    let (host, port) = value.rsplit_once(':').unwrap_or((value, ""));
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let word = if address.parse::<std::net::IpAddr>().is_ok() {
        "address"
    } else if is_domain(address) {
        "host-name"
    } else {
        let why = "it is neither an address nor a domain name: until it has one, the peer must connect to us";
        return draft.leave(origin, why, format!("set {path}address ADDRESS and set {path}port PORT"));
    };
    let sets = [(format!("{path}{word}"), Some(address)), (format!("{path}port"), Some(port))];
    draft.take(origin, &sets);
}
