//! `service page`: the status page for browsers.

use super::pki::{CA, CERTIFICATE};
use super::value::Type;
use super::{Inner, Node, PORT, branch, inner, value, values};

pub(super) static INNER: &[Inner] = &[inner("service page allow-client", "Clients that may connect")];

pub(super) static NODES: &[Node] = &[
    branch("service page", "Status page for browsers: tunnels, and the cause and the fix of what is down"),
    values(
        "service page allow-client address",
        Type::Network,
        "Addresses and prefixes that may connect (default: all)",
    ),
    values(
        "service page host-name",
        Type::Text(253),
        "Name by which browsers reach the page, beside localhost and addresses",
    ),
    values("service page listen-address", Type::Address, "Address that is listened on (default: 127.0.0.1)"),
    value("service page port", PORT, "TCP port").or("9587"),
    branch("service page tls", "Serve HTTPS only"),
    value(
        "service page tls ca-certificate",
        Type::Reference(CA),
        "Authority whose certificate is sent after that of the server",
    ),
    value(
        "service page tls certificate",
        Type::Reference(CERTIFICATE),
        "Certificate of the server (default: one that it signs itself, and keeps)",
    ),
    value("service page token", Type::Secret(255), "Token to log in with").secret(),
];
