//! The grammar as tables: one entry a node, in VyOS's words and with VyOS's ranges and defaults.
//!
//! A path names the words from the root. A word in angle brackets stands for a name that the user chooses.

mod algorithm;
mod cursor;
mod enrollment;
mod failover;
mod firewall;
mod form;
mod health;
mod https;
mod ipsec;
mod lan;
mod links;
mod location;
mod log;
mod machine;
mod matching;
mod metrics;
mod nat;
mod openvpn;
mod page;
mod path_monitor;
mod pki;
mod schedule;
mod secgw;
mod snmp_v3;
mod spelling;
mod system;
mod value;
mod wireguard;

pub use algorithm::{DH_GROUPS, ENCRYPTIONS, ESP_PRESETS, HASHES, IKE_PRESETS, KEY_EXCHANGES, PRFS};
pub use cursor::Cursor;
pub use firewall::{Action, icmp_name, icmp_type};
pub use form::{Form, is_domain};
pub use health::HEALTH_RULES;
pub use location::Location;
pub use log::LOG_SUBSYSTEMS;
pub use matching::{MASQUERADE, Matching};
pub use nat::TCP_UDP;
pub use schedule::Times;
pub use spelling::nearest;
pub use system::ENGINES;
pub(crate) use value::FITTING;
pub use value::{Kind, Type};
pub use wireguard::OFFLOADS;

pub(crate) use form::words;
pub(crate) use spelling::{NEAR, meant};
pub(crate) use value::{
    ALL_PROTOCOLS, DHCP, bytes_of, endpoint_of, hundredths, key_of, protocol, protocol_name,
};

/// A node that may be set.
#[derive(Debug)]
pub struct Node {
    /// The words from the root.
    pub path: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What holds when it is not set.
    pub default: Option<&'static str>,
    /// Whether its value must not be shown.
    pub secret: bool,
    /// A warning that is shown when the node is set; for [`Kind::FlagOr`], when it is set to a value.
    pub note: Option<&'static str>,
    /// What it is for.
    pub help: &'static str,
}

/// A name that the user chooses, by the path that ends in it.
#[derive(Debug)]
pub struct Tag {
    /// The path.
    pub path: &'static str,
    /// What the name must look like.
    pub kind: Type,
    /// What it names.
    pub help: &'static str,
    /// The words and the value with which a new branch of that name begins, for advice.
    pub begins: &'static str,
}

/// A word that only leads to others.
#[derive(Debug)]
pub struct Inner {
    /// The words from the root.
    pub path: &'static str,
    /// What it leads to.
    pub help: &'static str,
}

/// A node of VyOS that is not supported here, so that a line with it is told from a misspelt one.
#[derive(Debug)]
pub struct Unsupported {
    /// The path.
    pub path: &'static str,
    /// What to do instead.
    pub instead: &'static str,
}

/// Threads that seal and open packets of an interface.
pub const THREADS: Type = Type::NumberOrAuto(1, 64);
/// Threads that receive packets of an interface, each way.
pub const RECEIVE_THREADS: Type = Type::NumberOrAuto(1, 16);
const PORT: Type = Type::Number(1, 65_535);
/// The help of `processors`.
const PROCESSORS: &str = "Processors that the threads stay on, one each (default: any)";

impl Node {
    /// Whether its value is shown in the configuration, and hidden in logs.
    pub(crate) fn is_private(&self) -> bool {
        self.kind.value_type().is_some_and(Type::is_private)
    }

    const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    const fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    const fn note(self, note: &'static str) -> Self {
        Self { note: Some(note), ..self }
    }
}

impl Tag {
    /// The words before the name.
    pub fn kind_path(&self) -> impl Iterator<Item = &'static str> {
        let (kind, _) = self.path.rsplit_once(' ').unwrap_or_default();
        kind.split(' ')
    }

    const fn begins(self, begins: &'static str) -> Self {
        Self { begins, ..self }
    }
}

impl Unsupported {
    const fn instead(self, instead: &'static str) -> Self {
        Self { instead, ..self }
    }
}

const fn node(path: &'static str, kind: Kind, help: &'static str) -> Node {
    Node { path, kind, default: None, secret: false, note: None, help }
}

const fn flag(path: &'static str, help: &'static str) -> Node {
    node(path, Kind::Flag, help)
}

const fn flag_or(path: &'static str, kind: Type, help: &'static str) -> Node {
    node(path, Kind::FlagOr(kind), help)
}

const fn branch(path: &'static str, help: &'static str) -> Node {
    node(path, Kind::Branch, help)
}

const fn value(path: &'static str, kind: Type, help: &'static str) -> Node {
    node(path, Kind::Value(kind), help)
}

const fn values(path: &'static str, kind: Type, help: &'static str) -> Node {
    node(path, Kind::Values(kind), help)
}

const fn tag(path: &'static str, kind: Type, help: &'static str) -> Tag {
    Tag { path, kind, help, begins: "..." }
}

const fn inner(path: &'static str, help: &'static str) -> Inner {
    Inner { path, help }
}

const fn unsupported(path: &'static str) -> Unsupported {
    Unsupported { path, instead: "remove the line" }
}

/// Everything that may be set.
pub fn nodes() -> impl Iterator<Item = &'static Node> {
    let tables = [
        wireguard::NODES,
        openvpn::NODES,
        secgw::NODES,
        system::NODES,
        system::CIPHER_PINS,
        machine::NODES,
        lan::NODES,
        links::NODES,
        failover::NODES,
        nat::NODES,
        firewall::NODES,
        snmp_v3::NODES,
        https::NODES,
        health::NODES,
        log::NODES,
        metrics::NODES,
        page::NODES,
        path_monitor::NODES,
        enrollment::NODES,
        pki::NODES,
        ipsec::GENERAL,
        ipsec::GROUPS,
        ipsec::PEERS,
        ipsec::TUNNELS,
    ];
    let alike = system::PAIR_PINS.iter().flatten().chain(links::LINKS.iter().flatten());
    let alike = alike.chain(links::ROUTES.iter().flatten()).chain(nat::RULES.iter().flatten());
    let alike = alike.chain(firewall::SETS.iter().flatten());
    let alike = alike.chain(links::DHCP_OPTIONS.iter().flatten());
    tables.into_iter().flatten().chain(alike)
}

/// Every name that the user chooses.
pub fn tags() -> impl Iterator<Item = &'static Tag> {
    let tables = [
        wireguard::TAGS,
        openvpn::TAGS,
        secgw::TAGS,
        pki::TAGS,
        ipsec::TAGS,
        machine::TAGS,
        lan::TAGS,
        links::TAGS,
        failover::TAGS,
        nat::TAGS,
        firewall::TAGS,
        snmp_v3::TAGS,
        https::TAGS,
        health::TAGS,
        path_monitor::TAGS,
        log::TAGS,
        enrollment::TAGS,
    ];
    tables.into_iter().flatten()
}

/// Every node of VyOS that is known and refused.
pub fn unsupported_nodes() -> impl Iterator<Item = &'static Unsupported> {
    let tables = [
        wireguard::UNSUPPORTED,
        openvpn::UNSUPPORTED,
        machine::UNSUPPORTED,
        lan::UNSUPPORTED,
        links::UNSUPPORTED,
        failover::UNSUPPORTED,
        nat::UNSUPPORTED,
        firewall::UNSUPPORTED,
        https::UNSUPPORTED,
        pki::UNSUPPORTED,
        ipsec::UNSUPPORTED,
    ];
    tables.into_iter().flatten().chain(firewall::NOT_IN_SETS.iter().flatten())
}

/// A place in the grammar.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// It may be set.
    Node(&'static Node),
    /// A chosen name.
    Tag(&'static Tag),
    /// More words follow.
    Inner(&'static Inner),
    /// VyOS has it, we do not serve it.
    Unsupported(&'static Unsupported),
}

/// Every place in the grammar with a help text.
fn places() -> impl Iterator<Item = Place> {
    let inner = [
        wireguard::INNER,
        openvpn::INNER,
        secgw::INNER,
        system::INNER,
        machine::INNER,
        lan::INNER,
        links::INNER,
        failover::INNER,
        nat::INNER,
        firewall::INNER,
        snmp_v3::INNER,
        https::INNER,
        health::INNER,
        log::INNER,
        metrics::INNER,
        page::INNER,
        path_monitor::INNER,
        enrollment::INNER,
        pki::INNER,
        ipsec::INNER,
    ]
    .into_iter()
    .flatten();
    let served = inner.map(Place::Inner).chain(tags().map(Place::Tag)).chain(nodes().map(Place::Node));
    served.chain(unsupported_nodes().map(Place::Unsupported))
}

impl Place {
    fn path(self) -> &'static str {
        match self {
            Self::Node(node) => node.path,
            Self::Tag(tag) => tag.path,
            Self::Inner(inner) => inner.path,
            Self::Unsupported(known) => known.path,
        }
    }
}

/// All words of the grammar; a name that may be chosen is shown as what it names.
pub(crate) fn all_words() -> impl Iterator<Item = &'static str> {
    places().flat_map(|place| place.path().split(' '))
}

/// The node of a path, in which names that the user chooses stand in angle brackets.
pub(crate) fn of_path(path: &str) -> Option<&'static Node> {
    Cursor::at(path.split(' '))?.node()
}

/// The names of all nodes whose values must not be shown.
pub fn secrets() -> impl Iterator<Item = &'static str> {
    nodes().filter(|node| node.secret).map(|node| last_word(node.path))
}

fn last_word(path: &'static str) -> &'static str {
    path.rsplit(' ').next().unwrap_or(path)
}
