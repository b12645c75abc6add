//! `service metrics`: counters and states for Prometheus.

use super::pki::{CA, CERTIFICATE};
use super::value::Type;
use super::{Inner, Node, PORT, branch, flag, inner, value, values};

const PEERS: &[&str] = &["all", "down-only", "off"];

pub(super) static INNER: &[Inner] = &[inner("service metrics allow-client", "Clients that may connect")];

pub(super) static NODES: &[Node] = &[
    branch("service metrics", "Counters and states for Prometheus, at /metrics"),
    values(
        "service metrics allow-client address",
        Type::Network,
        "Addresses and prefixes that may connect (default: all)",
    ),
    flag("service metrics disable-wireguard-names", "Leave out the wireguard_* names of other exporters"),
    values(
        "service metrics listen-address",
        Type::Address,
        "Address that is listened on (default: 127.0.0.1)",
    ),
    value("service metrics peers", Type::Word(PEERS), "Peers that have metrics of their own").or("all"),
    value("service metrics port", PORT, "TCP port").or("9586"),
    branch("service metrics tls", "Serve HTTPS only"),
    value(
        "service metrics tls ca-certificate",
        Type::Reference(CA),
        "Authority whose certificate is sent after that of the server",
    ),
    value(
        "service metrics tls certificate",
        Type::Reference(CERTIFICATE),
        "Certificate of the server (default: one that it signs itself, and keeps)",
    ),
    value(
        "service metrics token",
        Type::Secret(255),
        "Token that a client sends: Authorization: Bearer TOKEN",
    )
    .secret(),
];
