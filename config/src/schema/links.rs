//! `interfaces ethernet`, `bridge`, `dummy`, `loopback`, and `protocols static`: what the machine has beside its tunnels.

use super::form::Form;
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
const OPTIONS: &str = "What the DHCP client sends, and does with what it gets";
const DISABLE_ROUTE: &str = "Disable the route";

pub(super) static INNER: &[Inner] = &[
    inner("interfaces bridge", "Bridges, which this gateway makes"),
    inner("interfaces bridge <interface> dhcp-options", OPTIONS),
    inner("interfaces ethernet <interface> dhcp-options", OPTIONS),
    inner("interfaces ethernet <interface> vif <vlan> dhcp-options", OPTIONS),
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

/// What every link has.
macro_rules! link {
    ($path:literal, $address:expr) => {
        [
            values(concat!($path, " address"), $address, ADDRESS),
            value(concat!($path, " description"), DESCRIPTION, "Description"),
            flag(concat!($path, " disable"), DISABLE),
            value(concat!($path, " mtu"), MTU, MTU_HELP),
        ]
    };
}

/// The ways of a route.
macro_rules! route {
    ($path:literal) => {
        [
            branch(concat!($path, " blackhole"), NOWHERE),
            value(concat!($path, " blackhole distance"), DISTANCE, DISTANCE_HELP).or("1"),
            value(concat!($path, " description"), Type::Text(255), "Description"),
            flag(concat!($path, " interface <interface> disable"), DISABLE_ROUTE),
            value(concat!($path, " interface <interface> distance"), DISTANCE, DISTANCE_HELP).or("1"),
            flag(concat!($path, " next-hop <address> disable"), DISABLE_ROUTE),
            value(concat!($path, " next-hop <address> distance"), DISTANCE, DISTANCE_HELP).or("1"),
            value(concat!($path, " next-hop <address> interface"), LINK, BY),
        ]
    };
}

pub(super) static LINKS: &[[Node; 4]] = &[
    link!("interfaces bridge <interface>", Type::HostOrDhcp),
    link!("interfaces dummy <interface>", Type::Host),
    link!("interfaces ethernet <interface>", Type::HostOrDhcp),
    link!("interfaces ethernet <interface> vif <vlan>", Type::HostOrDhcp),
];

/// What the DHCP client sends, and does with what it gets.
macro_rules! dhcp_options {
    ($path:literal) => {
        [
            value(
                concat!($path, " dhcp-options client-id"),
                Type::Form(Form::Line(64)),
                "Client identifier (default: of the MAC address)",
            ),
            value(
                concat!($path, " dhcp-options default-route-distance"),
                DISTANCE,
                "Administrative distance of the default route",
            )
            .or("210"),
            value(
                concat!($path, " dhcp-options host-name"),
                Type::Form(Form::Domain),
                "Name of this machine",
            ),
            flag(concat!($path, " dhcp-options no-default-route"), "Use no default route of the server"),
            value(
                concat!($path, " dhcp-options vendor-class-id"),
                Type::Form(Form::Line(64)),
                "Vendor class identifier",
            ),
        ]
    };
}

pub(super) static DHCP_OPTIONS: &[[Node; 5]] = &[
    dhcp_options!("interfaces bridge <interface>"),
    dhcp_options!("interfaces ethernet <interface>"),
    dhcp_options!("interfaces ethernet <interface> vif <vlan>"),
];

pub(super) static NODES: &[Node] = &[
    values("interfaces loopback <interface> address", Type::Host, ADDRESS),
    value("interfaces loopback <interface> description", DESCRIPTION, "Description"),
];

pub(super) static ROUTES: &[[Node; 8]] =
    &[route!("protocols static route <prefix>"), route!("protocols static route6 <prefix>")];

const FIRST_OFFER: &str = "remove the line: udhcpc takes the first offer; keep other servers off the network";
const SYSTEM: &str = "remove the line, and configure this with the operating system";

pub(super) static UNSUPPORTED: &[Unsupported] = &[
    unsupported("interfaces bridge <interface> dhcp-options mtu").instead("set mtu of the interface"),
    unsupported("interfaces bridge <interface> dhcp-options reject").instead(FIRST_OFFER),
    unsupported("interfaces bridge <interface> dhcp-options user-class"),
    unsupported("interfaces ethernet <interface> dhcp-options mtu").instead("set mtu of the interface"),
    unsupported("interfaces ethernet <interface> dhcp-options reject").instead(FIRST_OFFER),
    unsupported("interfaces ethernet <interface> dhcp-options user-class"),
    unsupported("interfaces ethernet <interface> dhcpv6-options").instead(SYSTEM),
    unsupported("interfaces ethernet <interface> vif <vlan> dhcp-options mtu")
        .instead("set mtu of the interface"),
    unsupported("interfaces ethernet <interface> vif <vlan> dhcp-options reject").instead(FIRST_OFFER),
    unsupported("interfaces ethernet <interface> vif <vlan> dhcp-options user-class"),
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
