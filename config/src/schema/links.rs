//! `interfaces ethernet`, `bridge`, `dummy`, `loopback`, and `protocols static`: what the machine has beside its tunnels.

use super::matching::Matching;
use super::value::Type;
use super::{Inner, Node, Tag, Unsupported, branch, flag, inner, tag, unsupported, value, values};

const LINK: Type = Type::Matching(Matching::Link);
const ADDRESS: &str = "Address and prefix length of the interface";
const DESCRIPTION: Type = Type::Text(200);
const DISABLE: &str = "Set the interface down";
const MTU: Type = Type::Number(68, 65_535);
const MTU_HELP: &str = "MTU, in bytes (default: what it has)";
const DISTANCE: Type = Type::Number(1, 255);
const DISTANCE_HELP: &str = "Administrative distance: the lowest is used";
/// Where a static route leads out without a gateway, or with one that is on that interface.
const BY: &str = "Interface that packets leave by";
const HOP: &str = "Address of the next router";
const NOWHERE: &str = "Drop the packets";

pub(super) static INNER: &[Inner] = &[
    inner("interfaces bridge", "Bridges, which this gateway makes"),
    inner("interfaces bridge <interface> member", "What belongs to the bridge"),
    inner("interfaces bridge <interface> member interface", "Interfaces of the bridge"),
    inner("interfaces dummy", "Interfaces without a network, for addresses of this machine"),
    inner("interfaces ethernet", "Ethernet interfaces of this machine"),
    inner("interfaces ethernet <interface> vif", "VLANs of the interface (IEEE 802.1Q)"),
    inner("interfaces loopback", "The loopback interface"),
    inner("protocols", "Routes"),
    inner("protocols static", "Static routes"),
    inner("protocols static route", "Routes of IPv4"),
    inner("protocols static route <prefix> interface", BY),
    inner("protocols static route <prefix> next-hop", HOP),
    inner("protocols static route6", "Routes of IPv6"),
    inner("protocols static route6 <prefix> interface", BY),
    inner("protocols static route6 <prefix> next-hop", HOP),
];

pub(super) static TAGS: &[Tag] = &[
    tag("interfaces bridge <interface>", Type::Interface("br"), "Name of the interface"),
    tag("interfaces bridge <interface> member interface <member>", LINK, "Interface of the bridge"),
    tag("interfaces dummy <interface>", Type::Interface("dum"), "Name of the interface"),
    tag("interfaces ethernet <interface>", LINK, "Name of the interface"),
    tag("interfaces ethernet <interface> vif <vlan>", Type::Number(0, 4094), "Number of the VLAN"),
    tag("interfaces loopback <interface>", Type::Word(&["lo"]), "Name of the interface"),
    tag("protocols static route <prefix>", Type::Prefix, "Prefix of IPv4"),
    tag("protocols static route <prefix> interface <interface>", LINK, BY),
    tag("protocols static route <prefix> next-hop <address>", Type::Address, HOP),
    tag("protocols static route6 <prefix>", Type::Prefix, "Prefix of IPv6"),
    tag("protocols static route6 <prefix> interface <interface>", LINK, BY),
    tag("protocols static route6 <prefix> next-hop <address>", Type::Address, HOP),
];

pub(super) static NODES: &[Node] = &[
    values("interfaces bridge <interface> address", Type::Host, ADDRESS),
    value("interfaces bridge <interface> description", DESCRIPTION, "Description"),
    flag("interfaces bridge <interface> disable", DISABLE),
    value("interfaces bridge <interface> mtu", MTU, MTU_HELP),
    values("interfaces dummy <interface> address", Type::Host, ADDRESS),
    value("interfaces dummy <interface> description", DESCRIPTION, "Description"),
    flag("interfaces dummy <interface> disable", DISABLE),
    value("interfaces dummy <interface> mtu", MTU, MTU_HELP),
    values("interfaces ethernet <interface> address", Type::Host, ADDRESS),
    value("interfaces ethernet <interface> description", DESCRIPTION, "Description"),
    flag("interfaces ethernet <interface> disable", DISABLE),
    value("interfaces ethernet <interface> mtu", MTU, MTU_HELP),
    values("interfaces ethernet <interface> vif <vlan> address", Type::Host, ADDRESS),
    value("interfaces ethernet <interface> vif <vlan> description", DESCRIPTION, "Description"),
    flag("interfaces ethernet <interface> vif <vlan> disable", DISABLE),
    value("interfaces ethernet <interface> vif <vlan> mtu", MTU, MTU_HELP),
    values("interfaces loopback <interface> address", Type::Host, ADDRESS),
    value("interfaces loopback <interface> description", DESCRIPTION, "Description"),
    branch("protocols static route <prefix> blackhole", NOWHERE),
    value("protocols static route <prefix> blackhole distance", DISTANCE, DISTANCE_HELP).or("1"),
    value("protocols static route <prefix> description", Type::Text(255), "Description"),
    flag("protocols static route <prefix> interface <interface> disable", "Disable the route"),
    value("protocols static route <prefix> interface <interface> distance", DISTANCE, DISTANCE_HELP).or("1"),
    flag("protocols static route <prefix> next-hop <address> disable", "Disable the route"),
    value("protocols static route <prefix> next-hop <address> distance", DISTANCE, DISTANCE_HELP).or("1"),
    value("protocols static route <prefix> next-hop <address> interface", LINK, BY),
    branch("protocols static route6 <prefix> blackhole", NOWHERE),
    value("protocols static route6 <prefix> blackhole distance", DISTANCE, DISTANCE_HELP).or("1"),
    value("protocols static route6 <prefix> description", Type::Text(255), "Description"),
    flag("protocols static route6 <prefix> interface <interface> disable", "Disable the route"),
    value("protocols static route6 <prefix> interface <interface> distance", DISTANCE, DISTANCE_HELP).or("1"),
    flag("protocols static route6 <prefix> next-hop <address> disable", "Disable the route"),
    value("protocols static route6 <prefix> next-hop <address> distance", DISTANCE, DISTANCE_HELP).or("1"),
    value("protocols static route6 <prefix> next-hop <address> interface", LINK, BY),
];

const SYSTEM: &str = "remove the line, and configure this with the operating system";

pub(super) static UNSUPPORTED: &[Unsupported] = &[
    unsupported("interfaces ethernet <interface> dhcp-options").instead(SYSTEM),
    unsupported("interfaces ethernet <interface> duplex").instead(SYSTEM),
    unsupported("interfaces ethernet <interface> hw-id")
        .instead("remove the line: interfaces have the names that the system gives them"),
    unsupported("interfaces ethernet <interface> ip").instead(SYSTEM),
    unsupported("interfaces ethernet <interface> ipv6").instead(SYSTEM),
    unsupported("interfaces ethernet <interface> mac").instead(SYSTEM),
    unsupported("interfaces ethernet <interface> offload").instead(SYSTEM),
    unsupported("interfaces ethernet <interface> ring-buffer").instead(SYSTEM),
    unsupported("interfaces ethernet <interface> speed").instead(SYSTEM),
    unsupported("interfaces ethernet <interface> vif-s").instead(SYSTEM),
    unsupported("interfaces ethernet <interface> vrf").instead(SYSTEM),
    unsupported("interfaces pppoe").instead(SYSTEM),
    unsupported("interfaces wireless").instead(SYSTEM),
    unsupported("protocols bgp").instead(SYSTEM),
    unsupported("protocols ospf").instead(SYSTEM),
    unsupported("protocols rip").instead(SYSTEM),
];
