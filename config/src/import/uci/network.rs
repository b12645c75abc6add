//! The package `network`: interfaces with protocols of tunnels, and the sections of their peers.

use super::{Block, PROTOCOLS, Wanted, interface_name, is_on, leave_rest, wireguard};
use crate::import::report::Draft;
use crate::import::section::{Section, Setting};
use std::collections::HashSet;

const PEERS: &str = "wireguard_";

/// Options of any interface, which netifd carries out.
const OF_NETIFD: &[&str] = &[
    "auto",
    "defaultroute",
    "delegate",
    "dns",
    "dns_metric",
    "dns_search",
    "force_link",
    "ip4table",
    "ip6assign",
    "ip6class",
    "ip6hint",
    "ip6ifaceid",
    "ip6prefix",
    "ip6table",
    "ip6weight",
    "metric",
    "multipath",
    "nohostroute",
    "peerdns",
    "tunlink",
    "zone",
];

/// Imports all interfaces that are tunnels; what else is there stays with OpenWrt.
pub(super) fn import(blocks: Vec<Block>, wanted: Wanted, draft: &mut Draft) {
    let (peers, others): (Vec<Block>, Vec<Block>) =
        blocks.into_iter().partition(|block| block.kind.starts_with(PEERS));
    let mut peers: Vec<(String, Section)> =
        peers.into_iter().map(|block| (block.kind[PEERS.len()..].to_owned(), block.section)).collect();
    let mut taken: HashSet<String> =
        others.iter().filter_map(|block| link(&block.section, "wireguard")).collect();
    // Interfaces that are here, and those that another program serves.
    let (mut served, mut foreign) = (HashSet::new(), HashSet::new());
    for Block { kind, mut section } in others {
        let proto = section.value("proto").unwrap_or_default().to_owned();
        let own = proto.strip_prefix(PROTOCOLS);
        match (kind.as_str(), own, proto.as_str()) {
            ("interface", Some("wireguard"), _) => match link(&section, "wireguard") {
                Some(name) => tunnel(name, section, &mut peers, &mut served, true, draft),
                None => no_link(section, "wireguard", "wg0", draft),
            },
            ("interface", None, "wireguard") if wanted == Wanted::All => {
                let name = free(&section.name, &mut taken, &section, draft);
                tunnel(name, section, &mut peers, &mut served, false, draft);
            }
            ("interface", Some(kind @ ("openvpn" | "ipsec")), _) => shown(kind, section, draft),
            ("interface", Some(_), _) => {
                let fix = "option proto 'postern_wireguard', 'postern_ipsec' or 'postern_openvpn'";
                section.refuse(draft, true, "Postern has no such protocol", fix);
            }
            _ => {
                foreign.insert(section.name.clone());
                section.settings.clear();
                let why = match proto.as_str() {
                    "wireguard" => "the kernel serves it",
                    _ => "it is no tunnel that Postern serves",
                };
                draft.leave(&section.origin, why, "nothing: OpenWrt serves it");
            }
        }
    }
    for (interface, section) in peers {
        let why = format!("the interface {interface} is not imported");
        if wanted == Wanted::Own && foreign.contains(&interface) {
            draft.leave(&section.origin, why, "nothing: OpenWrt serves the interface");
        } else {
            let fix = "name the section of the interface, which is not its link, or remove the peer";
            section.refuse(draft, true, &why, fix);
        }
    }
}

/// Imports an interface of WireGuard with its peers; a second one of a name is refused with them.
fn tunnel(
    name: String,
    section: Section,
    peers: &mut Vec<(String, Section)>,
    served: &mut HashSet<String>,
    is_own: bool,
    draft: &mut Draft,
) {
    let peers = peers.extract_if(.., |(of, _)| *of == section.name).map(|(_, peer)| peer);
    let peers: Vec<Section> = peers.collect();
    if served.insert(name.clone()) {
        return wireguard::import(name, section, peers, is_own, draft);
    }
    let why = format!("another section is {name}, too");
    for one in peers.into_iter().chain([section]) {
        one.refuse(draft, true, &why, "give each interface its own name or link");
    }
}

/// The interface of ours that a section is about: its option `link`, or its name.
fn link(section: &Section, kind: &str) -> Option<String> {
    let name = section.value("link").unwrap_or(&section.name);
    interface_name(kind, name).map(str::to_owned)
}

/// Reports an interface whose name is none here.
fn no_link(section: Section, kind: &str, example: &str, draft: &mut Draft) {
    let why = format!("its name is none of interfaces {kind}");
    section.refuse(draft, true, &why, &format!("option link '{example}'"));
}

/// The name of a stock interface: its own, or the next that is free.
fn free(name: &str, taken: &mut HashSet<String>, section: &Section, draft: &mut Draft) -> String {
    if let Some(name) = interface_name("wireguard", name) {
        return name.to_owned();
    }
    // One more than are taken.
    let mut names = (0..=taken.len()).map(|number| format!("wg{number}"));
    let found = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(found.clone());
    let why = format!("the interface {name} is {found} here: names are wg and a number");
    draft.translate(&section.origin, &[(format!("interfaces wireguard {found}"), None)], why);
    found
}

/// An interface that netifd shows; lines of ours configure it.
fn shown(kind: &str, mut section: Section, draft: &mut Draft) {
    section.take("proto").into_iter().for_each(|proto| draft.take(&proto.origin, &[]));
    of_netifd(&mut section, None, draft);
    let disabled = section.take("disabled");
    let (name, words) = match kind {
        "openvpn" => (link(&section, "openvpn"), "interfaces openvpn"),
        _ => (Some("ipsec0".to_owned()), "vpn ipsec site-to-site peer"),
    };
    let Some(name) = name else { return no_link(section, "openvpn", "vtun0", draft) };
    if kind == "ipsec" && section.value("link").unwrap_or(&section.name) != "ipsec0" {
        return no_link(section, "of IPsec", "ipsec0", draft);
    }
    if let Some(link) = section.take("link") {
        draft.take(&link.origin, &[]);
    }
    let path = if kind == "openvpn" { format!("{words} {name}") } else { words.to_owned() };
    if draft.has(&format!("set {path}")) {
        draft.take(&section.origin, &[]);
    } else {
        let fix = format!("add it to a section of type lines in /etc/config/postern: list set '{path} ...'");
        draft.leave(&section.origin, "no line configures it", fix);
    }
    if let Some(disabled) = disabled {
        match (kind, is_on(&disabled)) {
            (_, false) => draft.take(&disabled.origin, &[]),
            ("openvpn", true) => draft.take(&disabled.origin, &[(format!("{path} disable"), None)]),
            _ => draft.leave(
                &disabled.origin,
                "netifd does not show it; the peers of IPsec go on",
                "list set 'vpn ipsec site-to-site peer NAME disable'",
            ),
        }
    }
    leave_rest(section, draft, "it is not an option of this protocol");
}

/// Takes out the options that netifd carries out. `stock` is the path of an interface that netifd does not go on with.
pub(super) fn of_netifd(section: &mut Section, stock: Option<&str>, draft: &mut Draft) {
    let found: Vec<Setting> =
        section.settings.extract_if(.., |setting| OF_NETIFD.contains(&setting.name.as_str())).collect();
    for setting in found {
        let origin = &setting.origin;
        match (setting.name.as_str(), stock) {
            (
                "auto" | "delegate" | "dns" | "dns_metric" | "dns_search" | "force_link" | "peerdns" | "zone",
                None,
            ) => {
                draft.translate(origin, &[], "netifd carries it out");
            }
            (_, None) => draft.leave(origin, OWN_ROUTES, "name in allowed_ips what the peer is to get"),
            ("auto", Some(_)) if is_on(&setting) => draft.take(origin, &[]),
            ("auto", Some(path)) => {
                let why = "it is brought up by hand: delete this line then";
                draft.translate(origin, &[(format!("{path} disable"), None)], why);
            }
            ("delegate" | "dns_metric" | "force_link" | "multipath" | "peerdns", Some(_)) => {
                draft.leave(origin, "it is for netifd", "nothing");
            }
            ("dns" | "dns_search", Some(_)) => {
                let why = "Postern does not set name servers: queries go to those of the system";
                draft.leave_open(origin, why, "set them in the system");
            }
            ("zone", Some(_)) => {
                draft.leave_open(origin, "it is for the firewall of OpenWrt", "see the zones of the router");
            }
            _ => draft.leave_open(origin, OWN_ROUTES, "name in allowed-ips what the peer is to get"),
        }
    }
}

const OWN_ROUTES: &str = "Postern sets routes and addresses itself, in the main table";
