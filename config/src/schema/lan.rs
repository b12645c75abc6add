//! `service dhcp-server` and `service dns forwarding`: what devices of the site are told by dnsmasq.

use super::form::Form;
use super::value::Type;
use super::{Inner, Node, PORT, Tag, Unsupported, flag, inner, tag, unsupported, value, values};

const NAME: Type = Type::Form(Form::Task);
const DOMAIN: Type = Type::Form(Form::Domain);
const ADDRESS: Type = Type::Address;

pub(super) static INNER: &[Inner] = &[
    inner("service dhcp-server", "Addresses for devices of the site, by DHCP (dnsmasq)"),
    inner("service dhcp-server shared-network-name", "Networks that devices are in"),
    inner("service dhcp-server shared-network-name <name> subnet", "Subnets"),
    inner("service dhcp-server shared-network-name <name> subnet <prefix> option", "DHCP options"),
    inner("service dhcp-server shared-network-name <name> subnet <prefix> range", "Addresses that are given"),
    inner(
        "service dhcp-server shared-network-name <name> subnet <prefix> static-mapping",
        "Devices with an address of their own",
    ),
    inner("service dns", "Names for devices of the site"),
    inner("service dns forwarding", "DNS forwarder (dnsmasq)"),
    inner("service dns forwarding domain", "Domains with name servers of their own"),
    inner("service dns forwarding domain <domain> name-server", "Name servers of the domain"),
    inner("service dns forwarding name-server", "Name servers that are asked"),
];

pub(super) static TAGS: &[Tag] = &[
    tag("service dhcp-server shared-network-name <name>", NAME, "Name of the network"),
    tag("service dhcp-server shared-network-name <name> subnet <prefix>", Type::Prefix, "Prefix of IPv4"),
    tag(
        "service dhcp-server shared-network-name <name> subnet <prefix> range <range>",
        NAME,
        "Name or number of the range",
    ),
    tag(
        "service dhcp-server shared-network-name <name> subnet <prefix> static-mapping <host>",
        DOMAIN,
        "Name of the device",
    ),
    tag("service dns forwarding domain <domain>", DOMAIN, "Domain, with all below it"),
    tag(
        "service dns forwarding domain <domain> name-server <address>",
        ADDRESS,
        "Address of the name server",
    ),
    tag("service dns forwarding name-server <address>", ADDRESS, "Address of the name server"),
];

pub(super) static NODES: &[Node] = &[
    flag("service dhcp-server disable", "Give no addresses"),
    flag(
        "service dhcp-server shared-network-name <name> authoritative",
        "Refuse leases of other servers, in all subnets",
    ),
    value(
        "service dhcp-server shared-network-name <name> description",
        Type::Form(Form::Line(255)),
        "Description",
    ),
    flag("service dhcp-server shared-network-name <name> disable", "Give no addresses there"),
    value(
        "service dhcp-server shared-network-name <name> subnet <prefix> lease",
        Type::Number(120, 4_294_967),
        "Lease time, in seconds",
    )
    .or("86400"),
    value(
        "service dhcp-server shared-network-name <name> subnet <prefix> option default-router",
        ADDRESS,
        "Router of the devices",
    ),
    value(
        "service dhcp-server shared-network-name <name> subnet <prefix> option domain-name",
        DOMAIN,
        "Domain of the devices",
    ),
    values(
        "service dhcp-server shared-network-name <name> subnet <prefix> option name-server",
        ADDRESS,
        "Name server of the devices",
    ),
    values(
        "service dhcp-server shared-network-name <name> subnet <prefix> option ntp-server",
        ADDRESS,
        "Time server of the devices",
    ),
    value(
        "service dhcp-server shared-network-name <name> subnet <prefix> range <range> start",
        ADDRESS,
        "First address",
    ),
    value(
        "service dhcp-server shared-network-name <name> subnet <prefix> range <range> stop",
        ADDRESS,
        "Last address",
    ),
    flag(
        "service dhcp-server shared-network-name <name> subnet <prefix> static-mapping <host> disable",
        "As if it were not there",
    ),
    value(
        "service dhcp-server shared-network-name <name> subnet <prefix> static-mapping <host> ip-address",
        ADDRESS,
        "Its address",
    ),
    value(
        "service dhcp-server shared-network-name <name> subnet <prefix> static-mapping <host> mac",
        Type::Form(Form::HardwareAddress),
        "MAC address",
    ),
    value(
        "service dhcp-server shared-network-name <name> subnet <prefix> subnet-id",
        Type::Number(1, u32::MAX as u64),
        "Ignored",
    )
    .note("is ignored"),
    value("service dns forwarding cache-size", Type::Number(0, 10_000), "Cached names").or("1000"),
    values("service dns forwarding listen-address", ADDRESS, "Address of this machine that devices ask"),
    value("service dns forwarding domain <domain> name-server <address> port", PORT, "Port").or("53"),
    value("service dns forwarding name-server <address> port", PORT, "Port").or("53"),
    flag("service dns forwarding system", "Ask the name servers of this machine, too"),
];

const OPTION: &str = "VyOS 1.5 has it behind: option";

pub(super) static UNSUPPORTED: &[Unsupported] = &[
    unsupported("service dhcp-server dynamic-dns-update"),
    unsupported("service dhcp-server global-parameters"),
    unsupported("service dhcp-server high-availability"),
    unsupported("service dhcp-server hostfile-update"),
    unsupported("service dhcp-server listen-address")
        .instead("remove the line: subnets say where addresses are given"),
    unsupported("service dhcp-server shared-network-name <name> option").instead("set it for the subnet"),
    unsupported("service dhcp-server shared-network-name <name> subnet <prefix> default-router")
        .instead(OPTION),
    unsupported("service dhcp-server shared-network-name <name> subnet <prefix> dns-server").instead(OPTION),
    unsupported("service dhcp-server shared-network-name <name> subnet <prefix> domain-name").instead(OPTION),
    unsupported("service dhcp-server shared-network-name <name> subnet <prefix> exclude")
        .instead("make two ranges of the one"),
    unsupported("service dhcp-server shared-network-name <name> subnet <prefix> name-server").instead(OPTION),
    unsupported(
        "service dhcp-server shared-network-name <name> subnet <prefix> static-mapping <host> mac-address",
    )
    .instead("VyOS 1.5 calls it: mac"),
    unsupported("service dns dynamic"),
    unsupported("service dns forwarding allow-from")
        .instead("remove the line: who reaches a listen-address is answered"),
    unsupported("service dns forwarding authoritative-domain"),
    unsupported("service dns forwarding dhcp").instead("set service dns forwarding system"),
    unsupported("service dns forwarding dnssec"),
    unsupported("service dns forwarding ignore-hosts-file"),
    unsupported("service dns forwarding negative-ttl"),
    unsupported("service dns forwarding no-serve-rfc1918"),
    unsupported("service dns forwarding source-address"),
];
