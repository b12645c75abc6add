//! The configuration, typed, and checked as a whole: what VyOS checks at commit.

mod commit_archive;
pub mod enrollment;
pub mod failover;
pub mod firewall;
pub mod health;
mod hints;
pub mod https;
pub mod ipsec;
pub mod links;
mod log;
pub mod machine;
pub mod metrics;
pub mod nat;
pub mod openvpn;
pub mod packets;
pub mod page;
pub mod path_monitor;
mod pki;
mod processors;
mod reference;
pub mod secgw;
mod system;
mod threads;
pub mod watched;
mod wireguard;

pub use commit_archive::CommitArchive;
pub use enrollment::Enrollment;
pub use failover::{FailoverGroup, FailoverMember};
pub use firewall::Firewall;
pub use health::Health;
pub use https::Https;
pub use ipsec::IpSec;
pub(crate) use ipsec::is_served;
pub use links::{DhcpClient, Link, LinkKind, NextHop, StaticRoute};
pub use log::{Log, LogLevel};
pub use machine::Machine;
pub use metrics::{Metrics, MetricsPeers, MetricsTls};
pub use nat::Nat;
pub use openvpn::OpenVpn;
pub use page::Page;
pub use path_monitor::{PathMonitor, PathProtocol, PathTarget, Reflector};
pub use processors::Processors;
pub use secgw::Secgw;
pub use system::Crypto;
pub use threads::Threads;
pub use watched::Watched;
pub use wireguard::{Host, Mss, Peer, WireGuard};

use crate::error::{ConfigError, Location};
use crate::schema::{self, Cursor, Kind};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// Everything that is served.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// WireGuard interfaces by name.
    pub wireguard: BTreeMap<String, WireGuard>,
    /// OpenVPN interfaces by name.
    pub openvpn: BTreeMap<String, OpenVpn>,
    /// Gateways between Ethernet ports by name.
    pub secgw: BTreeMap<String, Secgw>,
    /// IPsec, site to site, but for the peers that policies of gateways between ports name.
    pub ipsec: IpSec,
    /// Which crypto engines are used.
    pub crypto: Crypto,
    /// How many revisions of the configuration are kept.
    pub commit_revisions: usize,
    /// What other programs of the machine are to do.
    pub machine: Machine,
    /// Links beside the tunnels, by name.
    pub links: BTreeMap<String, Link>,
    /// Routes that the user sets.
    pub routes: BTreeSet<StaticRoute>,
    /// Groups of tunnels that stand in for each other, by name.
    pub failover: BTreeMap<String, FailoverGroup>,
    /// Translation of addresses.
    pub nat: Nat,
    /// Which packets pass between zones.
    pub firewall: Firewall,
    /// The API for other machines, if there is one.
    pub https: Option<Https>,
    /// Counters and states for Prometheus, if they are served.
    pub metrics: Option<Metrics>,
    /// The status page for browsers, if it is served.
    pub page: Option<Page>,
    /// Probes that measure the path of tunnels, if there are any.
    pub path_monitor: Option<PathMonitor>,
    /// Branches that join with a token, if they may.
    pub enrollment: Option<Enrollment>,
    /// How much is logged.
    pub log: Log,
    /// What is different about rules of health, and who hears of alerts, if anything is said of them.
    pub health: Option<Health>,
    /// What rules of health look at in the configuration.
    pub watched: Watched,
    /// Whether it is meant that nothing is served.
    pub allows_empty: bool,
    /// Whether what tunnels protect is open once the gateway was stopped.
    pub open_at_exit: bool,
}

/// Settings, and what a person should know about them.
pub type Checked = (Settings, Vec<String>);

impl Settings {
    /// Whether nothing is served.
    pub fn is_empty(&self) -> bool {
        self.wireguard.is_empty()
            && self.openvpn.is_empty()
            && self.secgw.is_empty()
            && self.ipsec.peers.is_empty()
            && self.machine.is_empty()
            && self.links.is_empty()
            && self.routes.is_empty()
            && self.failover.is_empty()
            && self.nat == Nat::default()
            && self.firewall == Firewall::default()
            && self.https.is_none()
            && self.metrics.is_none()
            && self.page.is_none()
            && self.path_monitor.is_none()
            && self.enrollment.is_none()
            && self.health.is_none()
    }

    /// Reads the settings out of a tree.
    pub fn new(tree: &Tree) -> Result<Checked, Vec<ConfigError>> {
        let mut reader = Reader::default();
        let allows_empty = tree.at(&["system", "allow-empty"]).is_some();
        let open_at_exit = tree.at(&["system", "open-at-exit"]).is_some();
        let mut settings = Self {
            crypto: Crypto::new(tree),
            commit_revisions: system::commit_revisions(tree),
            log: Log::new(tree),
            allows_empty,
            open_at_exit,
            ..Self::default()
        };
        if let Some(interfaces) = tree.at(&["interfaces", "wireguard"]) {
            for (name, interface) in interfaces.children() {
                if let Some(read) = reader.wireguard(name, interface) {
                    settings.wireguard.insert(name.to_owned(), read);
                }
            }
        }
        reader.check_ports(tree, &settings);
        settings.openvpn = reader.openvpn(tree);
        reader.check_openvpn_ports(tree, &settings);
        reader.secgws(tree, &mut settings);
        settings.ipsec = reader.ipsec(tree);
        reader.peers_of_secgws(tree, &mut settings);
        settings.machine = reader.machine(tree);
        settings.links = reader.links(tree);
        settings.routes = reader.static_routes(tree);
        settings.nat = reader.nat(tree);
        settings.firewall = reader.firewall(tree, &settings);
        settings.https = reader.https(tree);
        settings.metrics = reader.metrics(tree);
        settings.page = reader.page(tree);
        settings.path_monitor = reader.path_monitor(tree, &settings);
        settings.failover = reader.failover(tree, &settings);
        settings.enrollment = reader.enrollment(tree, &settings);
        settings.health = reader.health(tree);
        settings.watched = Watched::new(tree);
        reader.check_links(tree, &settings);
        reader.hints(&settings);
        reader.notes(tree);
        if reader.errors.is_empty() { Ok((settings, reader.warnings)) } else { Err(reader.errors) }
    }
}

/// Collects all that is wrong, and what a person should know.
#[derive(Default)]
struct Reader {
    errors: Vec<ConfigError>,
    warnings: Vec<String>,
}

impl Reader {
    fn error(&mut self, location: Location, reason: impl Into<String>, fix: impl Into<String>) {
        self.errors.push(ConfigError::new(location, reason).fix(fix));
    }

    fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// What the grammar has to say of what is set: one warning a node, however often it is used.
    fn notes(&mut self, tree: &Tree) {
        let mut found = Vec::new();
        find_notes(tree, Cursor::root(), &mut Vec::new(), &mut found);
        self.warnings.extend(found.into_iter().map(|(node, path, count)| {
            let more = if count == 1 { String::new() } else { format!(", and {} more like it,", count - 1) };
            format!("{path}{more} {}", node.note.unwrap_or_default())
        }));
    }
}

/// A node with a note, where it is set first, and how often it is set.
type Noted = (&'static schema::Node, String, usize);

fn find_notes<'a>(tree: &'a Tree, place: Cursor, path: &mut Vec<&'a str>, found: &mut Vec<Noted>) {
    if let Some(node) = place.node().filter(|node| node.note.is_some()) {
        let is_flag_or = matches!(node.kind, Kind::FlagOr(_));
        let values = tree.own_values().len();
        let count = if tree.is_empty() && !is_flag_or { 1 } else { values };
        match found.iter_mut().find(|(known, ..)| std::ptr::eq(*known, node)) {
            Some((_, _, counted)) => *counted += count,
            None if count > 0 => found.push((node, path.join(" "), count)),
            None => {}
        }
    }
    for (word, child) in tree.children() {
        let Some(below) = place.down(word) else { continue };
        path.push(word);
        find_notes(child, below, path, found);
        path.pop();
    }
}

/// The branches that a path leads to, by their names.
fn branches<'a>(tree: &'a Tree, path: &[&str]) -> impl Iterator<Item = (&'a str, &'a Tree)> + use<'a> {
    tree.at(path).into_iter().flat_map(Tree::children)
}

/// Values that the schema has checked.
fn parsed<T: FromStr>(values: Vec<&str>) -> Vec<T> {
    values.into_iter().filter_map(|value| value.parse().ok()).collect()
}

/// A value that the schema has checked.
fn set<T: FromStr>(tree: &Tree, word: &str) -> Option<T> {
    tree.value(word).and_then(|text| text.parse().ok())
}

/// A value that the schema has checked, or its default there.
fn set_or_default<T: FromStr>(tree: &Tree, parent: &str, word: &str) -> T {
    let default = || schema::of_path(&format!("{parent} {word}")).and_then(|node| node.default)?.parse().ok();
    set(tree, word).or_else(default).expect("the schema has checked it or has a default for it")
}
