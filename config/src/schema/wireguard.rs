//! `interfaces wireguard`.

use super::form::Form;
use super::value::Type;
use super::{
    Inner, Node, PORT, PROCESSORS, RECEIVE_THREADS, THREADS, Tag, Unsupported, flag, inner, tag, unsupported,
    value, values,
};

/// Offloads that can be switched off, by their names in the ports.
pub const OFFLOADS: &[&str] = &["tun-tso", "tun-uso", "tun-gro", "udp-gso", "udp-gro"];

const MSS: &str = "Limit of the TCP MSS announced over IPv4";
const MSS_V6: &str = "Limit of the TCP MSS announced over IPv6";

pub(super) static INNER: &[Inner] = &[
    inner("interfaces", "Network interfaces"),
    inner("interfaces wireguard", "WireGuard interfaces"),
    inner("interfaces wireguard <interface> ip", "IPv4 settings"),
    inner("interfaces wireguard <interface> ipv6", "IPv6 settings"),
    inner("interfaces wireguard <interface> peer", "Peers of the interface"),
];

pub(super) static TAGS: &[Tag] = &[
    tag("interfaces wireguard <interface>", Type::Interface("wg"), "Name of the interface"),
    tag("interfaces wireguard <interface> peer <peer>", Type::Name, "Name of the peer"),
];

pub(super) static NODES: &[Node] = &[
    values(
        "interfaces wireguard <interface> address",
        Type::Host,
        "Address and prefix length of the interface",
    ),
    value("interfaces wireguard <interface> description", Type::Text(255), "Description"),
    flag("interfaces wireguard <interface> disable", "Set the interface down"),
    values(
        "interfaces wireguard <interface> disable-offload",
        Type::Word(OFFLOADS),
        "Offload that must not be used",
    ),
    value(
        "interfaces wireguard <interface> fwmark",
        Type::Number(0, u32::MAX as u64),
        "Firewall mark of encrypted packets, for policy routing; 0 sets none",
    )
    .or("0"),
    value("interfaces wireguard <interface> ip adjust-mss", Type::SegmentSize, MSS),
    value("interfaces wireguard <interface> ipv6 adjust-mss", Type::SegmentSize, MSS_V6),
    value(
        "interfaces wireguard <interface> mtu",
        Type::Number(68, 65_475),
        "MTU inside the tunnel, in bytes",
    )
    .or("1420"),
    flag("interfaces wireguard <interface> per-client-thread", "Ignored").note("is ignored"),
    value("interfaces wireguard <interface> port", PORT, "UDP port to listen on (default: any free port)"),
    value("interfaces wireguard <interface> private-key", Type::Key, "Private key of this gateway").secret(),
    value(
        "interfaces wireguard <interface> peer <peer> address",
        Type::AddressNoName,
        "Address of the peer (default: learned from its packets)",
    ),
    values(
        "interfaces wireguard <interface> peer <peer> allowed-ips",
        Type::Prefix,
        "Prefix routed to the peer, and accepted as its source addresses",
    ),
    values(
        "interfaces wireguard <interface> peer <peer> backup-address",
        Type::Endpoint,
        "Further address, called when those before it do not answer",
    ),
    value("interfaces wireguard <interface> peer <peer> description", Type::Text(255), "Description"),
    flag("interfaces wireguard <interface> peer <peer> disable", "Disable the peer"),
    value(
        "interfaces wireguard <interface> peer <peer> host-name",
        Type::Form(Form::Domain),
        "Domain name of the peer, instead of its address",
    ),
    value(
        "interfaces wireguard <interface> peer <peer> persistent-keepalive",
        Type::Number(1, 65_535),
        "Seconds between keepalives, which keep NAT mappings open",
    ),
    value("interfaces wireguard <interface> peer <peer> port", PORT, "UDP port of the peer"),
    value("interfaces wireguard <interface> peer <peer> preshared-key", Type::Key, "Pre-shared key").secret(),
    // VyOS 1.3 and before.
    value("interfaces wireguard <interface> peer <peer> pubkey", Type::Key, "VyOS 1.3 name of public-key")
        .note("was renamed in VyOS 1.4: use public-key"),
    value("interfaces wireguard <interface> peer <peer> public-key", Type::Key, "Public key of the peer"),
    value("interfaces wireguard <interface> processors", Type::Processors, PROCESSORS),
    value(
        "interfaces wireguard <interface> receive-threads",
        RECEIVE_THREADS,
        "Threads that receive, each way; auto: one for four processors",
    )
    .or("auto"),
    value(
        "interfaces wireguard <interface> threads",
        THREADS,
        "Threads that encrypt and decrypt; auto: one a processor",
    )
    .or("auto"),
];

pub(super) static UNSUPPORTED: &[Unsupported] = &[
    unsupported("interfaces wireguard <interface> ip arp-cache-timeout"),
    unsupported("interfaces wireguard <interface> ip disable-arp-filter"),
    unsupported("interfaces wireguard <interface> ip disable-forwarding"),
    unsupported("interfaces wireguard <interface> ip enable-arp-accept"),
    unsupported("interfaces wireguard <interface> ip enable-arp-announce"),
    unsupported("interfaces wireguard <interface> ip enable-arp-ignore"),
    unsupported("interfaces wireguard <interface> ip enable-directed-broadcast"),
    unsupported("interfaces wireguard <interface> ip enable-proxy-arp"),
    unsupported("interfaces wireguard <interface> ip proxy-arp-pvlan"),
    unsupported("interfaces wireguard <interface> ip source-validation"),
    unsupported("interfaces wireguard <interface> ipv6 accept-dad"),
    unsupported("interfaces wireguard <interface> ipv6 address"),
    unsupported("interfaces wireguard <interface> ipv6 base-reachable-time"),
    unsupported("interfaces wireguard <interface> ipv6 disable-forwarding"),
    unsupported("interfaces wireguard <interface> ipv6 dup-addr-detect-transmits"),
    unsupported("interfaces wireguard <interface> ipv6 source-validation"),
    unsupported("interfaces wireguard <interface> mirror"),
    unsupported("interfaces wireguard <interface> redirect"),
    unsupported("interfaces wireguard <interface> vrf"),
];
