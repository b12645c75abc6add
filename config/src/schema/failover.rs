//! `protocols failover`: tunnels that stand in for each other. VyOS has the branch for routes to gateways; here it is about tunnels.

use super::value::Type;
use super::{Inner, Node, Tag, Unsupported, inner, tag, unsupported, value, values};

pub(super) static INNER: &[Inner] = &[
    inner("protocols failover", "Tunnels that stand in for each other"),
    inner("protocols failover group", "Groups of tunnels that lead to the same networks"),
    inner(
        "protocols failover group <group> member",
        "Tunnels, of which the first by number that is up is used",
    ),
];

pub(super) static TAGS: &[Tag] = &[
    tag("protocols failover group <group>", Type::Name, "Name of the group"),
    tag("protocols failover group <group> member <member>", Type::Number(1, 255), "Number of the tunnel")
        .begins("interface wg0"),
];

pub(super) static NODES: &[Node] = &[
    value("protocols failover group <group> description", Type::Text(255), "Description"),
    value(
        "protocols failover group <group> hold-time",
        Type::Number(0, 3600),
        "Seconds for which a tunnel is up before packets go back to it",
    )
    .or("10"),
    values(
        "protocols failover group <group> prefix",
        Type::Prefix,
        "Network behind all tunnels of the group",
    ),
    value(
        "protocols failover group <group> member <member> interface",
        Type::Text(15),
        "Interface of the tunnel: wg0, ipsec0, vtun0",
    ),
    value(
        "protocols failover group <group> member <member> peer",
        Type::Name,
        "Peer at the other end (default: the one that the prefixes lead to)",
    ),
];

pub(super) static UNSUPPORTED: &[Unsupported] =
    &[unsupported("protocols failover route").instead("make a group of tunnels: protocols failover group")];
