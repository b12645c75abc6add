//! Writes a configuration in the words of another program: UCI of OpenWrt.
//!
//! ```text
//! Tree ── lines ──┬── of WireGuard, with a word in UCI ──> package network, as its stock protocol has them
//!                 └── all others ──> package postern: list set '...'
//! ```
//! Nothing is lost: what is written is imported again, and must be the same configuration.

use crate::import::{Format, NoFiles, Outcome, Source, Wanted, import};
use crate::schema::key_of;
use crate::token::words;
use crate::{Text, Tree, parse, print};
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use zeroize::Zeroizing;

/// A configuration as UCI.
#[derive(Debug)]
pub struct Exported {
    /// The package of interfaces and peers, with secrets, for `uci -m import network`.
    pub network: Text,
    /// The package of all other lines, with secrets.
    pub postern: Text,
    /// How many lines became options of UCI.
    pub options: usize,
    /// Branches without words in UCI, and how many lines they have: these are in the package `postern` as they are.
    pub as_lines: BTreeMap<String, usize>,
}

/// A WireGuard interface: the part that UCI has words for.
#[derive(Default)]
struct Interface {
    own: Vec<(&'static str, Zeroizing<String>)>,
    peers: BTreeMap<String, Vec<(&'static str, Zeroizing<String>)>>,
}

/// The names of UCI for our words, and whether they are lists.
const INTERFACE: &[(&str, &str)] = &[
    ("address", "addresses"),
    ("description", "description"),
    ("disable", "disabled"),
    ("fwmark", "fwmark"),
    ("mtu", "mtu"),
    ("port", "listen_port"),
    ("private-key", "private_key"),
];
const PEER: &[(&str, &str)] = &[
    ("address", "endpoint_host"),
    ("allowed-ips", "allowed_ips"),
    ("description", "description"),
    ("disable", "disabled"),
    ("host-name", "endpoint_host"),
    ("persistent-keepalive", "persistent_keepalive"),
    ("port", "endpoint_port"),
    ("preshared-key", "preshared_key"),
    ("public-key", "public_key"),
];
const LISTS: &[&str] = &["addresses", "allowed_ips"];

/// A configuration as UCI.
///
/// # Errors
/// What was written is not read as the same configuration: why.
pub fn uci(tree: &Tree) -> Result<Exported, String> {
    let mut interfaces: BTreeMap<String, Interface> = BTreeMap::new();
    let mut lines: Vec<(&str, Zeroizing<String>)> = Vec::new();
    let (mut options, mut as_lines) = (0, BTreeMap::new());
    let mut shown: Vec<(String, &str)> = Vec::new();
    let all = print::text(tree);
    for line in all.as_str().unwrap_or_default().lines() {
        let words = words(line).map_err(|error| error.reason)?;
        let words: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
        match words[..] {
            ["set", "interfaces", "openvpn", name, ..] => show(&mut shown, name, "openvpn"),
            ["set", "vpn", "ipsec", "site-to-site", ..] => show(&mut shown, "ipsec0", "ipsec"),
            _ => {}
        }
        if take(tree, &words, &mut interfaces) {
            options += 1;
            continue;
        }
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        lines.push((if verb == "comment" { "comment" } else { "set" }, Zeroizing::new(rest.to_owned())));
        let branch = words.get(1..words.len().min(3)).unwrap_or_default().join(" ");
        *as_lines.entry(branch).or_insert(0) += 1;
    }
    let (mut network, mut postern) = (Text::default(), Text::default());
    // They grow as they must.
    let _ = write_network(&interfaces, &shown, &mut network);
    let _ = write_lines(&lines, &mut postern);
    let exported = Exported { network, postern, options, as_lines };
    same(tree, &exported)?;
    Ok(exported)
}

fn show<'a>(shown: &mut Vec<(String, &'a str)>, name: &str, kind: &'a str) {
    if !shown.iter().any(|(known, _)| known == name) {
        shown.push((name.to_owned(), kind));
    }
}

/// Takes a line for which UCI has a word; says whether it has.
fn take(tree: &Tree, words: &[&str], interfaces: &mut BTreeMap<String, Interface>) -> bool {
    let ["set", "interfaces", "wireguard", name, rest @ ..] = words else { return false };
    // The import gives such a peer another name.
    if matches!(rest, ["peer", peer, ..] if peer.contains(['\'', '"', '#'])) {
        return false;
    }
    let interface = interfaces.entry((*name).to_owned()).or_default();
    match rest {
        [] => true,
        ["peer", peer] => {
            interface.peers.entry((*peer).to_owned()).or_default();
            true
        }
        ["peer", peer, word, value @ ..] => {
            let of_peer = tree.at(&["interfaces", "wireguard", name, "peer", peer]);
            let has = |word: &str| of_peer.is_some_and(|peer| peer.has(word));
            let is_read_otherwise = match *word {
                // An endpoint has a port, and an address or a name.
                "address" | "host-name" | "port" => !has("port") || has("address") == has("host-name"),
                "preshared-key" => {
                    value.first().and_then(|key| key_of(key)).is_some_and(|key| *key == [0; 32])
                }
                _ => false,
            };
            let Some(option) = named(PEER, word).filter(|_| !is_read_otherwise) else { return false };
            let options = interface.peers.entry((*peer).to_owned()).or_default();
            options.push((option, Zeroizing::new(value.first().unwrap_or(&"1").to_string())));
            true
        }
        ["fwmark", "0"] => false,
        [word, value @ ..] if value.len() < 2 => {
            let Some(option) = named(INTERFACE, word) else { return false };
            interface.own.push((option, Zeroizing::new(value.first().unwrap_or(&"1").to_string())));
            true
        }
        _ => false,
    }
}

fn named(table: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == word).map(|(_, option)| *option)
}

fn write_network(
    interfaces: &BTreeMap<String, Interface>,
    shown: &[(String, &str)],
    text: &mut Text,
) -> std::fmt::Result {
    // Names of sections are those of the whole package.
    let mut used: HashSet<String> =
        interfaces.keys().chain(shown.iter().map(|(name, _)| name)).cloned().collect();
    for (name, interface) in interfaces {
        write!(text, "\nconfig interface '{name}'\n\toption proto 'postern_wireguard'\n")?;
        options(&interface.own, text)?;
        for (peer, own) in &interface.peers {
            let kept = peer.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
            let section = format!("{name}_{}", kept.collect::<String>());
            write!(text, "\nconfig wireguard_{name}")?;
            if used.insert(section.clone()) {
                write!(text, " '{section}'")?;
            }
            write!(text, "\n\toption name {}\n", &*quoted(peer))?;
            options(own, text)?;
            if own.iter().any(|(name, _)| *name == "allowed_ips") {
                writeln!(text, "\toption route_allowed_ips '1'")?;
            }
        }
    }
    for (name, kind) in shown {
        write!(text, "\nconfig interface '{name}'\n\toption proto 'postern_{kind}'\n")?;
    }
    Ok(())
}

fn write_lines(lines: &[(&str, Zeroizing<String>)], text: &mut Text) -> std::fmt::Result {
    if !lines.is_empty() {
        write!(text, "\nconfig lines 'main'\n")?;
    }
    for (verb, line) in lines {
        writeln!(text, "\tlist {verb} {}", &*quoted(line))?;
    }
    Ok(())
}

fn options(own: &[(&'static str, Zeroizing<String>)], text: &mut Text) -> std::fmt::Result {
    for (name, value) in own {
        let kind = if LISTS.contains(name) { "list" } else { "option" };
        writeln!(text, "\t{kind} {name} {}", &*quoted(value))?;
    }
    Ok(())
}

/// A value in single quotes, as UCI writes it.
fn quoted(value: &str) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(value.len() * 4 + 2));
    text.push('\'');
    for part in value.split_inclusive('\'') {
        match part.strip_suffix('\'') {
            Some(before) => {
                text.push_str(before);
                text.push_str(r"'\''");
            }
            None => text.push_str(part),
        }
    }
    text.push('\'');
    text
}

/// Reads what was written, and compares.
fn same(tree: &Tree, exported: &Exported) -> Result<(), String> {
    let source = |name: &str, text: &Text| {
        let mut copy = Text::default();
        // It grows as it must.
        let _ = copy.write_str(text.as_str().unwrap_or_default());
        Source { name: name.to_owned(), text: copy }
    };
    let sources = [source("network", &exported.network), source("postern", &exported.postern)];
    let imported =
        import(Format::Uci(Wanted::Own), &sources, &NoFiles, &[]).map_err(|error| error.to_string())?;
    let read = parse(imported.text.as_str().unwrap_or_default());
    if read.is_ok_and(|read| read == *tree) {
        return Ok(());
    }
    let left = imported.entries.iter().find(|entry| matches!(entry.outcome, Outcome::Left { .. }));
    let what = left.map(|entry| format!(": {} is not read again", entry.option)).unwrap_or_default();
    Err(format!("UCI cannot say this configuration{what}"))
}
