//! `firewall`: which packets pass between zones of interfaces, and reach this machine.

use super::form::Form;
use super::matching::Matching;
use super::nat::TCP_UDP;
use super::value::Type;
use super::{Inner, Node, Tag, Unsupported, flag, inner, tag, unsupported, value, values};

const NAME: Type = Type::Form(Form::Task);
const LINKS: Type = Type::Matching(Matching::Links);
const PORTS: Type = Type::Matching(Matching::Ports);
const RULE: Type = Type::Number(1, 999_999);
const DESCRIPTION: Type = Type::Text(255);
const ACTION: Type = Type::Word(&["accept", "drop", "reject"]);
const STATES: Type = Type::Word(&["established", "invalid", "new", "related"]);

const PROTOCOLS_V4: Type = Type::Word(&[
    "all", "tcp", "udp", TCP_UDP, "icmp", "igmp", "esp", "ah", "gre", "ipip", "ospf", "sctp", "vrrp",
]);
const PROTOCOLS_V6: Type = Type::Word(&[
    "all",
    "tcp",
    "udp",
    TCP_UDP,
    "ipv6-icmp",
    "icmpv6",
    "esp",
    "ah",
    "gre",
    "ospf",
    "sctp",
    "vrrp",
]);

/// What a rule, a rule set or a zone does with packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// They pass.
    Accept,
    /// They are dropped.
    #[default]
    Drop,
    /// They are dropped, and the sender gets an error: a TCP reset, or ICMP port unreachable.
    Reject,
}

impl Action {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
            Self::Reject => "reject",
        }
    }

    /// That of a word which the schema has checked.
    pub(crate) fn of(word: &str) -> Option<Self> {
        [Self::Accept, Self::Drop, Self::Reject].into_iter().find(|it| it.word() == word)
    }
}

/// Types of ICMP messages (RFC 792).
const ICMP: [(&str, u8); 11] = [
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
];
/// Types of ICMPv6 messages (RFC 4443, RFC 4861, RFC 2710).
const ICMP_V6: [(&str, u8); 14] = [
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("mld-listener-query", 130),
    ("mld-listener-report", 131),
    ("mld-listener-reduction", 132),
    ("nd-router-solicit", 133),
    ("nd-router-advert", 134),
    ("nd-neighbor-solicit", 135),
    ("nd-neighbor-advert", 136),
    ("nd-redirect", 137),
];

const fn names<const N: usize>(types: [(&'static str, u8); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = types[at].0;
        at += 1;
    }
    names
}

const ICMP_NAMES: &[&str] = &names(ICMP);
const ICMP_V6_NAMES: &[&str] = &names(ICMP_V6);

fn types(v6: bool) -> &'static [(&'static str, u8)] {
    if v6 { &ICMP_V6 } else { &ICMP }
}

/// The number of a type of ICMP messages, or with `v6` of ICMPv6.
pub fn icmp_type(name: &str, v6: bool) -> Option<u8> {
    types(v6).iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// The name of a type of messages.
pub fn icmp_name(number: u8, v6: bool) -> Option<&'static str> {
    types(v6).iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

const POLICY: &str = "Packets of connections in this state";
const DECIDES: &str = "Rules, of which the first by number that matches decides";
const FROM: &str = "Where packets come from";
const TO: &str = "Where packets are sent to";

pub(super) static INNER: &[Inner] = &[
    inner("firewall", "Which packets pass between zones"),
    inner("firewall global-options", "What is for all packets"),
    inner("firewall global-options state-policy", "Packets by the state of their connection"),
    inner("firewall global-options state-policy established", POLICY),
    inner("firewall global-options state-policy invalid", POLICY),
    inner("firewall global-options state-policy related", POLICY),
    inner("firewall ipv4", "Rules for IPv4"),
    inner("firewall ipv4 name", "Rule sets, which zones name"),
    inner("firewall ipv4 name <name> rule", DECIDES),
    inner("firewall ipv4 name <name> rule <rule> destination", TO),
    inner("firewall ipv4 name <name> rule <rule> icmp", "ICMP"),
    inner("firewall ipv4 name <name> rule <rule> inbound-interface", "Interface that packets arrive by"),
    inner("firewall ipv4 name <name> rule <rule> outbound-interface", "Interface that packets leave by"),
    inner("firewall ipv4 name <name> rule <rule> source", FROM),
    inner("firewall ipv6", "Rules for IPv6"),
    inner("firewall ipv6 name", "Rule sets, which zones name"),
    inner("firewall ipv6 name <name> rule", DECIDES),
    inner("firewall ipv6 name <name> rule <rule> destination", TO),
    inner("firewall ipv6 name <name> rule <rule> icmpv6", "ICMPv6"),
    inner("firewall ipv6 name <name> rule <rule> inbound-interface", "Interface that packets arrive by"),
    inner("firewall ipv6 name <name> rule <rule> outbound-interface", "Interface that packets leave by"),
    inner("firewall ipv6 name <name> rule <rule> source", FROM),
    inner("firewall zone", "Zones: interfaces with the same policy"),
    inner("firewall zone <zone> from", "Packets into this zone, by the zone that they come from"),
    inner("firewall zone <zone> from <other> firewall", "Rule sets for them"),
    inner("firewall zone <zone> intra-zone-filtering", "Packets between interfaces of the zone"),
    inner("firewall zone <zone> member", "What belongs to the zone"),
];

pub(super) static TAGS: &[Tag] = &[
    tag("firewall ipv4 name <name>", NAME, "Name of the rule set"),
    tag("firewall ipv4 name <name> rule <rule>", RULE, "Number of the rule"),
    tag("firewall ipv6 name <name>", NAME, "Name of the rule set"),
    tag("firewall ipv6 name <name> rule <rule>", RULE, "Number of the rule"),
    tag("firewall zone <zone>", NAME, "Name of the zone"),
    tag(
        "firewall zone <zone> from <other>",
        Type::Reference("firewall zone <zone>"),
        "Zone that packets come from",
    ),
];

/// What rule sets of both versions of IP have.
macro_rules! set {
    ($path:literal, $addresses:expr, $protocols:expr, $icmp:literal, $types:expr) => {
        [
            value(concat!($path, " default-action"), ACTION, "What becomes of packets that no rule matches")
                .or("drop"),
            flag(concat!($path, " default-log"), "Log packets that no rule matches"),
            value(concat!($path, " description"), DESCRIPTION, "Description"),
            value(concat!($path, " rule <rule> action"), ACTION, "What becomes of packets that match"),
            value(concat!($path, " rule <rule> description"), DESCRIPTION, "Description"),
            value(
                concat!($path, " rule <rule> destination address"),
                Type::Matching($addresses),
                "Addresses that packets are sent to (default: any)",
            ),
            value(concat!($path, " rule <rule> destination port"), PORTS, "Ports that packets are sent to"),
            flag(concat!($path, " rule <rule> disable"), "Disable the rule"),
            value(
                concat!($path, " rule <rule> ", $icmp, " type-name"),
                Type::Word($types),
                "Type of the messages",
            ),
            value(
                concat!($path, " rule <rule> inbound-interface name"),
                LINKS,
                "Name of the interface (default: any)",
            ),
            flag(concat!($path, " rule <rule> log"), "Log packets that match, to the log of the kernel"),
            value(
                concat!($path, " rule <rule> outbound-interface name"),
                LINKS,
                "Name of the interface (default: any)",
            ),
            value(concat!($path, " rule <rule> protocol"), $protocols, "Protocol of the packets").or("all"),
            value(
                concat!($path, " rule <rule> source address"),
                Type::Matching($addresses),
                "Addresses that packets come from (default: any)",
            ),
            value(concat!($path, " rule <rule> source port"), PORTS, "Ports that packets come from"),
            values(concat!($path, " rule <rule> state"), STATES, "State of the connection (default: any)"),
        ]
    };
}

pub(super) static SETS: &[[Node; 16]] = &[
    set!("firewall ipv4 name <name>", Matching::Addresses, PROTOCOLS_V4, "icmp", ICMP_NAMES),
    set!("firewall ipv6 name <name>", Matching::AddressesV6, PROTOCOLS_V6, "icmpv6", ICMP_V6_NAMES),
];

pub(super) static NODES: &[Node] = &[
    value("firewall global-options state-policy established action", ACTION, "What becomes of them"),
    value("firewall global-options state-policy invalid action", ACTION, "What becomes of them"),
    value("firewall global-options state-policy related action", ACTION, "What becomes of them"),
    value(
        "firewall zone <zone> default-action",
        Type::Word(&["drop", "reject"]),
        "What becomes of packets into the zone that no rule set is for",
    )
    .or("drop"),
    flag("firewall zone <zone> default-log", "Log packets that no rule set is for"),
    value("firewall zone <zone> description", DESCRIPTION, "Description"),
    value(
        "firewall zone <zone> from <other> firewall ipv6-name",
        Type::Reference("firewall ipv6 name <name>"),
        "Rule set for IPv6",
    ),
    value(
        "firewall zone <zone> from <other> firewall name",
        Type::Reference("firewall ipv4 name <name>"),
        "Rule set for IPv4",
    ),
    value(
        "firewall zone <zone> intra-zone-filtering action",
        Type::Word(&["accept", "drop"]),
        "What becomes of them",
    )
    .or("accept"),
    flag("firewall zone <zone> local-zone", "The zone is this machine itself"),
    values(
        "firewall zone <zone> member interface",
        Type::Matching(Matching::Link),
        "Interface of the zone, also that of a tunnel",
    ),
];

const ZONES: &str = "make zones: set firewall zone NAME member interface IF";
const GROUPS: &str = "write the addresses and ports into rules: there are no groups";
const SYSCTL: &str = "remove the line: values of the kernel are those of the operating system (sysctl)";

/// Words of VyOS that rule sets of both versions of IP do not have.
macro_rules! not_in_sets {
    ($path:literal, $icmp:literal) => {
        [
            unsupported(concat!($path, " default-jump-target")),
            unsupported(concat!($path, " rule <rule> destination fqdn"))
                .instead("write addresses, not names"),
            unsupported(concat!($path, " rule <rule> destination geoip")).instead(GROUPS),
            unsupported(concat!($path, " rule <rule> destination group")).instead(GROUPS),
            unsupported(concat!($path, " rule <rule> ", $icmp, " code")),
            unsupported(concat!($path, " rule <rule> ", $icmp, " type")).instead(concat!(
                "name it: ",
                $icmp,
                " type-name"
            )),
            unsupported(concat!($path, " rule <rule> inbound-interface group")).instead(GROUPS),
            unsupported(concat!($path, " rule <rule> ipsec"))
                .instead("give the interface of the tunnels a zone: ipsec0"),
            unsupported(concat!($path, " rule <rule> jump-target")),
            unsupported(concat!($path, " rule <rule> limit")),
            unsupported(concat!($path, " rule <rule> log-options")).instead("set the flag: log"),
            unsupported(concat!($path, " rule <rule> outbound-interface group")).instead(GROUPS),
            unsupported(concat!($path, " rule <rule> recent")),
            unsupported(concat!($path, " rule <rule> source fqdn")).instead("write addresses, not names"),
            unsupported(concat!($path, " rule <rule> source geoip")).instead(GROUPS),
            unsupported(concat!($path, " rule <rule> source group")).instead(GROUPS),
            unsupported(concat!($path, " rule <rule> source mac-address")),
            unsupported(concat!($path, " rule <rule> tcp")),
            unsupported(concat!($path, " rule <rule> time")),
        ]
    };
}

pub(super) static NOT_IN_SETS: &[[Unsupported; 19]] =
    &[not_in_sets!("firewall ipv4 name <name>", "icmp"), not_in_sets!("firewall ipv6 name <name>", "icmpv6")];

pub(super) static UNSUPPORTED: &[Unsupported] = &[
    unsupported("firewall all-ping").instead("write a rule: icmp type-name echo-request"),
    unsupported("firewall bridge").instead("remove the line: frames between members of a bridge pass"),
    unsupported("firewall config-trap"),
    unsupported("firewall flowtable").instead("remove the line: packets are not offloaded"),
    unsupported("firewall global-options all-ping").instead("write a rule: icmp type-name echo-request"),
    unsupported("firewall global-options apply-to-bridged-traffic"),
    unsupported("firewall global-options broadcast-ping").instead(SYSCTL),
    unsupported("firewall global-options directed-broadcast").instead(SYSCTL),
    unsupported("firewall global-options ip-src-route").instead(SYSCTL),
    unsupported("firewall global-options ipv6-receive-redirects").instead(SYSCTL),
    unsupported("firewall global-options ipv6-source-validation").instead(SYSCTL),
    unsupported("firewall global-options ipv6-src-route").instead(SYSCTL),
    unsupported("firewall global-options log-martians").instead(SYSCTL),
    unsupported("firewall global-options receive-redirects").instead(SYSCTL),
    unsupported("firewall global-options resolver-cache").instead("write addresses, not names"),
    unsupported("firewall global-options resolver-interval").instead("write addresses, not names"),
    unsupported("firewall global-options send-redirects").instead(SYSCTL),
    unsupported("firewall global-options source-validation").instead(SYSCTL),
    unsupported("firewall global-options syn-cookies").instead(SYSCTL),
    unsupported("firewall global-options timeout").instead(SYSCTL),
    unsupported("firewall global-options twa-hazards-protection").instead(SYSCTL),
    unsupported("firewall group").instead(GROUPS),
    unsupported("firewall interface").instead(ZONES),
    unsupported("firewall ipv4 forward").instead(ZONES),
    unsupported("firewall ipv4 input").instead("make a zone with: local-zone"),
    unsupported("firewall ipv4 output").instead("make a zone with: local-zone"),
    unsupported("firewall ipv4 prerouting").instead(ZONES),
    unsupported("firewall ipv6 forward").instead(ZONES),
    unsupported("firewall ipv6 input").instead("make a zone with: local-zone"),
    unsupported("firewall ipv6 output").instead("make a zone with: local-zone"),
    unsupported("firewall ipv6 prerouting").instead(ZONES),
    unsupported("firewall ipv6-name").instead("VyOS 1.4 and later write: set firewall ipv6 name NAME"),
    unsupported("firewall name").instead("VyOS 1.4 and later write: set firewall ipv4 name NAME"),
    unsupported("firewall state-policy")
        .instead("VyOS 1.4 and later write: set firewall global-options state-policy"),
    unsupported("firewall zone <zone> default-firewall")
        .instead("name a rule set for each zone: from ZONE firewall"),
    unsupported("firewall zone <zone> interface").instead("VyOS 1.5 writes: member interface IF"),
    unsupported("firewall zone <zone> intra-zone-filtering firewall")
        .instead("set intra-zone-filtering action"),
    unsupported("firewall zone <zone> member vrf"),
    unsupported("zone-policy").instead("VyOS 1.4 and later write: set firewall zone NAME"),
];
