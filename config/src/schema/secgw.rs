//! `interfaces secgw`: a gateway of IPsec between Ethernet ports, with manual keys and IKE. VyOS has none; ciphers and MACs have its words.

use super::value::Type;
use super::{Inner, Node, Tag, flag, inner, tag, value, values};

/// Drivers of ports.
const DRIVERS: &[&str] = &["af-xdp", "dpdk", "packet", "tap"];
/// Ciphers of SAs.
const ENCRYPTIONS: &[&str] = &[
    "aes128gcm128",
    "aes192gcm128",
    "aes256gcm128",
    "chacha20poly1305",
    "aes128ccm128",
    "aes192ccm128",
    "aes256ccm128",
    "aes128",
    "aes192",
    "aes256",
    "aes128ctr",
    "aes192ctr",
    "aes256ctr",
    "3des",
];
/// MACs of SAs.
const HASHES: &[&str] = &["sha1", "sha256", "sha384", "sha512", "aesxcbc"];
/// The longest keys: 64 bytes in hexadecimal digits.
const KEY: Type = Type::Secret(128);
const DIRECTIONS: &[&str] = &["in", "out"];
const PEER: &str = "vpn ipsec site-to-site peer <peer>";

pub(super) static INNER: &[Inner] = &[
    inner("interfaces secgw", "IPsec gateways between Ethernet ports"),
    inner("interfaces secgw <interface> policy", "What happens to packets"),
    inner("interfaces secgw <interface> policy <policy> destination", "Where packets go"),
    inner("interfaces secgw <interface> policy <policy> source", "Where packets come from"),
    inner("interfaces secgw <interface> port", "Ethernet ports"),
    inner("interfaces secgw <interface> route", "Ports that packets leave by"),
    inner("interfaces secgw <interface> sa", "Security associations with manual keys"),
];

pub(super) static TAGS: &[Tag] = &[
    tag("interfaces secgw <interface>", Type::Interface("sgw"), "Name of the gateway"),
    tag(
        "interfaces secgw <interface> policy <policy>",
        Type::Number(1, 100_000),
        "Number; the lowest that matches counts",
    ),
    tag("interfaces secgw <interface> port <port>", Type::Number(0, 15), "Number of the port"),
    tag("interfaces secgw <interface> route <prefix>", Type::Prefix, "Prefix of the route"),
    tag("interfaces secgw <interface> sa <sa>", Type::Name, "Name of the security association"),
];

pub(super) static NODES: &[Node] = &[
    value("interfaces secgw <interface> description", Type::Text(255), "Description"),
    flag("interfaces secgw <interface> disable", "Do not open the ports"),
    flag(
        "interfaces secgw <interface> extended-sequence",
        "64-bit sequence numbers, as both ends must have them",
    ),
    value(
        "interfaces secgw <interface> mtu",
        Type::Number(576, 65_521),
        "Longest IP packet that leaves, in bytes; with driver af-xdp at most 3826",
    )
    .or("1500"),
    value(
        "interfaces secgw <interface> policy <policy> action",
        Type::Word(&["bypass", "discard", "protect"]),
        "Packets pass in clear, are dropped, or need an SA",
    ),
    value("interfaces secgw <interface> policy <policy> description", Type::Text(255), "Description"),
    value(
        "interfaces secgw <interface> policy <policy> destination port",
        Type::Text(11),
        "Port, or range of ports such as 1024-2047",
    ),
    value(
        "interfaces secgw <interface> policy <policy> destination prefix",
        Type::Prefix,
        "Prefix of the destination",
    ),
    value(
        "interfaces secgw <interface> policy <policy> direction",
        Type::Word(DIRECTIONS),
        "From protected ports (out) or from unprotected ones (in)",
    ),
    value(
        "interfaces secgw <interface> policy <policy> ike",
        Type::Reference(PEER),
        "Peer of vpn ipsec whose SAs protect packets, in place of sa",
    ),
    value("interfaces secgw <interface> policy <policy> protocol", Type::Protocol, "Protocol (default: all)"),
    value(
        "interfaces secgw <interface> policy <policy> sa",
        Type::Name,
        "SA of the same direction, for protect",
    ),
    value(
        "interfaces secgw <interface> policy <policy> source port",
        Type::Text(11),
        "Port, or range of ports such as 1024-2047",
    ),
    value("interfaces secgw <interface> policy <policy> source prefix", Type::Prefix, "Prefix of the source"),
    values(
        "interfaces secgw <interface> port <port> address",
        Type::Address,
        "Address that the port answers ARP and neighbour discovery for",
    ),
    flag(
        "interfaces secgw <interface> port <port> defer-napi",
        "Take received frames some at a time: fewer interrupts, up to 20 us later",
    ),
    value(
        "interfaces secgw <interface> port <port> device",
        Type::Text(250),
        "Device of a dpdk port: a PCI address, or net_memif0,role=server",
    ),
    value("interfaces secgw <interface> port <port> driver", Type::Word(DRIVERS), "How frames are carried")
        .or("af-xdp"),
    value(
        "interfaces secgw <interface> port <port> interface",
        Type::Text(15),
        "Interface of this machine; of a tap port, the one that is made",
    ),
    value(
        "interfaces secgw <interface> port <port> neighbour",
        Type::Text(17),
        "Ethernet address of the station behind the port: 02:00:00:00:00:01",
    ),
    flag("interfaces secgw <interface> port <port> promiscuous", "Take frames for other stations too"),
    value(
        "interfaces secgw <interface> port <port> side",
        Type::Word(&["protected", "unprotected"]),
        "Whether packets are in clear behind it, or ESP",
    ),
    value(
        "interfaces secgw <interface> reassemble",
        Type::Number(1, 65_536),
        "Put fragments together, of so many packets at once; without it they stay",
    ),
    value(
        "interfaces secgw <interface> replay-window",
        Type::Number(0, 1_048_576),
        "Packets; 0 for no check of replayed packets",
    )
    .or("128"),
    value(
        "interfaces secgw <interface> route <prefix> port",
        Type::Number(0, 15),
        "Port that packets leave by",
    ),
    value("interfaces secgw <interface> sa <sa> description", Type::Text(255), "Description"),
    value(
        "interfaces secgw <interface> sa <sa> direction",
        Type::Word(DIRECTIONS),
        "For packets that leave (out) or arrive (in)",
    ),
    value("interfaces secgw <interface> sa <sa> encryption", Type::Word(ENCRYPTIONS), "Cipher"),
    value("interfaces secgw <interface> sa <sa> hash", Type::Word(HASHES), "MAC, for a cipher that has none"),
    value("interfaces secgw <interface> sa <sa> hash-key", KEY, "Key of the MAC, in hexadecimal digits")
        .secret(),
    value(
        "interfaces secgw <interface> sa <sa> key",
        KEY,
        "Key of the cipher in hexadecimal digits, with the salt behind it",
    )
    .secret(),
    value(
        "interfaces secgw <interface> sa <sa> life-bytes",
        Type::Number(1_024, 9_007_199_254_740_992),
        "Bytes after which the SA is used no more",
    ),
    value(
        "interfaces secgw <interface> sa <sa> life-packets",
        Type::Number(1, 9_007_199_254_740_992),
        "Packets after which the SA is used no more",
    ),
    value(
        "interfaces secgw <interface> sa <sa> lifetime",
        Type::Number(1, 315_360_000),
        "Seconds after which the SA is used no more",
    ),
    value("interfaces secgw <interface> sa <sa> local-address", Type::Address, "Our end of the tunnel"),
    value(
        "interfaces secgw <interface> sa <sa> mode",
        Type::Word(&["transport", "tunnel"]),
        "Whole packets in a tunnel, or what is behind their header",
    )
    .or("tunnel"),
    value(
        "interfaces secgw <interface> sa <sa> mss",
        Type::Number(88, 65_495),
        "The greatest segment size that SYN segments under the SA may announce",
    ),
    value(
        "interfaces secgw <interface> sa <sa> remote-address",
        Type::Address,
        "The other end of the tunnel",
    ),
    value(
        "interfaces secgw <interface> sa <sa> spi",
        Type::Number(1, 4_294_967_295),
        "Security parameters index",
    ),
    flag("interfaces secgw <interface> sa <sa> udp-encapsulation", "ESP in UDP, from port 4500 to port 4500"),
    value(
        "interfaces secgw <interface> threads",
        Type::Number(1, 64),
        "Threads that carry packets; the queues of ports are spread over them",
    )
    .or("1"),
];
