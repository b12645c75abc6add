//! `interfaces wireguard`.

use super::value::Type;
use super::{Node, NotServed, PORT, Tag, flag, not_served, tag, value, values};

/// Offloads that can be switched off, by their names in the ports.
pub const OFFLOADS: &[&str] = &["tun-tso", "tun-uso", "tun-gro", "udp-gso", "udp-gro"];

const MSS: &str = "Largest TCP segment that is announced to the other side, over IPv4";
const MSS_V6: &str = "Largest TCP segment that is announced to the other side, over IPv6";

pub(super) static TAGS: &[Tag] = &[
    tag("interfaces wireguard <interface>", Type::Interface("wg"), "WireGuard interface"),
    tag("interfaces wireguard <interface> peer <peer>", Type::Name, "Name of the peer"),
];

pub(super) static NODES: &[Node] = &[
    values("interfaces wireguard <interface> address", Type::Host, "Address of the interface"),
    value("interfaces wireguard <interface> description", Type::Text(255), "What it is for"),
    flag("interfaces wireguard <interface> disable", "Leave the interface down"),
    values(
        "interfaces wireguard <interface> disable-offload",
        Type::Word(OFFLOADS),
        "An offload not to be used",
    ),
    value(
        "interfaces wireguard <interface> fwmark",
        Type::Number(0, u32::MAX as u64),
        "Mark on outgoing datagrams, for policy routing; 0 for none",
    )
    .or("0"),
    value("interfaces wireguard <interface> ip adjust-mss", Type::SegmentSize, MSS),
    value("interfaces wireguard <interface> ipv6 adjust-mss", Type::SegmentSize, MSS_V6),
    value(
        "interfaces wireguard <interface> mtu",
        Type::Number(68, 65_475),
        "Largest packet inside the tunnel",
    )
    .or("1420"),
    flag("interfaces wireguard <interface> per-client-thread", "Accepted; has no effect")
        .note("has no effect"),
    value("interfaces wireguard <interface> port", PORT, "UDP port to listen on; any free one if not set"),
    value("interfaces wireguard <interface> private-key", Type::Key, "Our private key").secret(),
    value(
        "interfaces wireguard <interface> peer <peer> address",
        Type::Address,
        "Address of the peer; it may call us from anywhere if not set",
    ),
    values(
        "interfaces wireguard <interface> peer <peer> allowed-ips",
        Type::Prefix,
        "What is reached through the peer, and what it may send from",
    ),
    value("interfaces wireguard <interface> peer <peer> description", Type::Text(255), "Who it is"),
    flag("interfaces wireguard <interface> peer <peer> disable", "As if the peer were not there"),
    value(
        "interfaces wireguard <interface> peer <peer> persistent-keepalive",
        Type::Number(1, 65_535),
        "Seconds between packets that keep the path open",
    ),
    value("interfaces wireguard <interface> peer <peer> port", PORT, "UDP port of the peer"),
    value(
        "interfaces wireguard <interface> peer <peer> preshared-key",
        Type::Key,
        "Key that both sides share beforehand",
    )
    .secret(),
    // VyOS 1.3 and before.
    value("interfaces wireguard <interface> peer <peer> pubkey", Type::Key, "Older spelling of public-key")
        .note("is since VyOS 1.4: public-key"),
    value("interfaces wireguard <interface> peer <peer> public-key", Type::Key, "Public key of the peer"),
];

pub(super) static NOT_SERVED: &[NotServed] = &[
    not_served("interfaces wireguard <interface> ip arp-cache-timeout"),
    not_served("interfaces wireguard <interface> ip disable-arp-filter"),
    not_served("interfaces wireguard <interface> ip disable-forwarding"),
    not_served("interfaces wireguard <interface> ip enable-arp-accept"),
    not_served("interfaces wireguard <interface> ip enable-arp-announce"),
    not_served("interfaces wireguard <interface> ip enable-arp-ignore"),
    not_served("interfaces wireguard <interface> ip enable-directed-broadcast"),
    not_served("interfaces wireguard <interface> ip enable-proxy-arp"),
    not_served("interfaces wireguard <interface> ip proxy-arp-pvlan"),
    not_served("interfaces wireguard <interface> ip source-validation"),
    not_served("interfaces wireguard <interface> ipv6 accept-dad"),
    not_served("interfaces wireguard <interface> ipv6 address"),
    not_served("interfaces wireguard <interface> ipv6 base-reachable-time"),
    not_served("interfaces wireguard <interface> ipv6 disable-forwarding"),
    not_served("interfaces wireguard <interface> ipv6 dup-addr-detect-transmits"),
    not_served("interfaces wireguard <interface> ipv6 source-validation"),
    not_served("interfaces wireguard <interface> mirror"),
    not_served("interfaces wireguard <interface> redirect"),
    not_served("interfaces wireguard <interface> vrf"),
];
