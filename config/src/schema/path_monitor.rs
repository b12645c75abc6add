//! `service path-monitor`: round-trip time, loss and MTU of tunnels.

use super::value::Type;
use super::{Inner, Node, PORT, Tag, branch, flag, inner, tag, value, values};

const PROTOCOLS: &[&str] = &["icmp", "stamp"];
const INTERVAL: Type = Type::Number(1, 3600);

pub(super) static INNER: &[Inner] =
    &[inner("service path-monitor target", "Addresses in tunnels that are probed")];

pub(super) static TAGS: &[Tag] =
    &[tag("service path-monitor target <target>", Type::Name, "Name of the target")
        .begins("address 10.2.0.1")];

pub(super) static NODES: &[Node] = &[
    branch("service path-monitor", "Probes that measure round-trip time, loss and MTU of tunnels"),
    flag("service path-monitor disable-mtu-search", "Send no large probes"),
    values(
        "service path-monitor interface",
        Type::Interface("wg"),
        "WireGuard interface whose peers are all probed, at an address of each",
    ),
    value("service path-monitor interval", INTERVAL, "Seconds between two probes of a tunnel").or("1"),
    value(
        "service path-monitor protocol",
        Type::Word(PROTOCOLS),
        "ICMP echo, or STAMP (RFC 8762) to a reflector",
    )
    .or("icmp"),
    branch("service path-monitor reflector", "Answer STAMP probes of others (RFC 8762)"),
    values(
        "service path-monitor reflector listen-address",
        Type::Address,
        "Address of this gateway inside a tunnel, which probes are sent to",
    ),
    value("service path-monitor reflector port", PORT, "UDP port").or("862"),
    value(
        "service path-monitor reflector rate",
        Type::Number(1, 100_000),
        "Probes a second that are answered at most",
    )
    .or("2000"),
    value("service path-monitor target <target> address", Type::Address, "Address inside the tunnel"),
    flag("service path-monitor target <target> disable", "Do not probe it"),
    flag("service path-monitor target <target> disable-mtu-search", "Send no large probes"),
    value(
        "service path-monitor target <target> interface",
        Type::Text(15),
        "Interface of the tunnel: wg0, ipsec0, vtun0",
    ),
    value(
        "service path-monitor target <target> interval",
        INTERVAL,
        "Seconds between two probes (default: that of path-monitor)",
    ),
    value(
        "service path-monitor target <target> peer",
        Type::Name,
        "Peer at the other end (default: the one that the address leads to)",
    ),
    value(
        "service path-monitor target <target> port",
        PORT,
        "UDP port of the reflector, with protocol stamp (default: 862)",
    ),
    value(
        "service path-monitor target <target> protocol",
        Type::Word(PROTOCOLS),
        "ICMP echo, or STAMP (default: that of path-monitor)",
    ),
    value(
        "service path-monitor target <target> source-address",
        Type::Address,
        "Source address of probes (default: the kernel's choice for the interface)",
    ),
];
