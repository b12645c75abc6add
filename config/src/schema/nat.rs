//! `nat`: addresses of packets that are forwarded are changed, for IPv4.

use super::matching::Matching;
use super::value::Type;
use super::{Inner, Node, Tag, Unsupported, flag, inner, tag, unsupported, value};

const LINKS: Type = Type::Matching(Matching::Links);
const ADDRESSES: Type = Type::Matching(Matching::Addresses);
const PORTS: Type = Type::Matching(Matching::Ports);
const RULE: Type = Type::Number(1, 999_999);
/// Both protocols that have ports.
pub const TCP_UDP: &str = "tcp_udp";
const PROTOCOLS: &[&str] = &["all", "tcp", "udp", TCP_UDP, "icmp", "esp", "ah", "gre", "sctp"];

pub(super) static INNER: &[Inner] = &[
    inner("nat", "Translation of IPv4 addresses"),
    inner("nat destination", "Destination NAT, as for a server inside"),
    inner("nat destination rule", "Rules, of which the first by number that matches decides"),
    inner("nat destination rule <rule> destination", "Where packets are sent to"),
    inner("nat destination rule <rule> inbound-interface", "Interface that packets arrive by"),
    inner("nat destination rule <rule> source", "Where packets come from"),
    inner("nat destination rule <rule> translation", "Translated address and port"),
    inner("nat source", "Source NAT, for packets that leave"),
    inner("nat source rule", "Rules, of which the first by number that matches decides"),
    inner("nat source rule <rule> destination", "Where packets are sent to"),
    inner("nat source rule <rule> outbound-interface", "Interface that packets leave by"),
    inner("nat source rule <rule> source", "Where packets come from"),
    inner("nat source rule <rule> translation", "Translated address and port"),
];

pub(super) static TAGS: &[Tag] = &[
    tag("nat destination rule <rule>", RULE, "Number of the rule"),
    tag("nat source rule <rule>", RULE, "Number of the rule"),
];

const LINK: &str = "Name of the interface (default: any)";
const FROM: &str = "Addresses that packets come from (default: any)";
const TO: &str = "Addresses that packets are sent to (default: any)";
const FROM_PORTS: &str = "Ports that packets come from, of TCP or UDP";
const TO_PORTS: &str = "Ports that packets are sent to, of TCP or UDP";

/// What rules of both kinds have.
macro_rules! rule {
    ($path:literal) => {
        [
            value(concat!($path, " description"), Type::Text(255), "Description"),
            value(concat!($path, " destination address"), ADDRESSES, TO),
            value(concat!($path, " destination port"), PORTS, TO_PORTS),
            flag(concat!($path, " disable"), "Disable the rule"),
            flag(concat!($path, " exclude"), "Leave packets that match as they are"),
            value(concat!($path, " protocol"), Type::Word(PROTOCOLS), "Protocol of the packets").or("all"),
            value(concat!($path, " source address"), ADDRESSES, FROM),
            value(concat!($path, " source port"), PORTS, FROM_PORTS),
        ]
    };
}

pub(super) static RULES: &[[Node; 8]] =
    &[rule!("nat destination rule <rule>"), rule!("nat source rule <rule>")];

pub(super) static NODES: &[Node] = &[
    value("nat destination rule <rule> inbound-interface name", LINKS, LINK),
    value(
        "nat destination rule <rule> translation address",
        Type::Matching(Matching::Range),
        "Addresses that packets are sent to instead",
    ),
    value(
        "nat destination rule <rule> translation port",
        Type::Matching(Matching::PortRange),
        "Ports that packets are sent to instead (default: the same)",
    ),
    value("nat source rule <rule> outbound-interface name", LINKS, LINK),
    value(
        "nat source rule <rule> translation address",
        Type::Matching(Matching::RangeOrMasquerade),
        "Addresses that packets come from; masquerade: that of the interface",
    ),
    value(
        "nat source rule <rule> translation port",
        Type::Matching(Matching::PortRange),
        "Ports that packets come from instead (default: the same, if it is free)",
    ),
];

const GROUPS: &str = "write the addresses into rules: there are no groups";
const HASHED: &str = "remove the line: the kernel chooses among the addresses of a range";

pub(super) static UNSUPPORTED: &[Unsupported] = &[
    unsupported("nat cgnat"),
    unsupported("nat static").instead("write a source and a destination rule"),
    unsupported("nat destination rule <rule> destination group").instead(GROUPS),
    unsupported("nat destination rule <rule> inbound-interface group").instead(GROUPS),
    unsupported("nat destination rule <rule> load-balance").instead(HASHED),
    unsupported("nat destination rule <rule> log"),
    unsupported("nat destination rule <rule> packet-type"),
    unsupported("nat destination rule <rule> source group").instead(GROUPS),
    unsupported("nat destination rule <rule> translation options").instead(HASHED),
    unsupported("nat destination rule <rule> translation redirect")
        .instead("set translation address to an address of this machine"),
    unsupported("nat source rule <rule> destination group").instead(GROUPS),
    unsupported("nat source rule <rule> load-balance").instead(HASHED),
    unsupported("nat source rule <rule> log"),
    unsupported("nat source rule <rule> outbound-interface group").instead(GROUPS),
    unsupported("nat source rule <rule> packet-type"),
    unsupported("nat source rule <rule> source group").instead(GROUPS),
    unsupported("nat source rule <rule> translation options").instead(HASHED),
];
