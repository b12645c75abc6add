//! `service https`: the API for other machines, with the words of VyOS 1.3 to 1.5.

use super::form::Form;
use super::pki::{CA, CERTIFICATE};
use super::value::Type;
use super::{Inner, Node, PORT, Tag, Unsupported, branch, flag, inner, tag, unsupported, value, values};

const KEY: Type = Type::Secret(255);
const CLIENTS: &str = "Addresses and prefixes that may connect (default: all)";
const ADDRESS: &str = "Address that is listened on (default: all)";
const VERSIONS: &[&str] = &["1.2", "1.3"];
const INTERNAL: &str = "has no effect: the API has no internal port or socket";
const DEBUG: &str = "has no effect: set LOG_LEVEL in the environment instead";

pub(super) static INNER: &[Inner] = &[
    inner("service https allow-client", "Clients that may connect"),
    inner("service https api keys", "Keys of clients"),
    inner("service https api keys id", "Keys of clients"),
    inner("service https api-restrict", "VyOS 1.3: restrict the API"),
    inner("service https certificates", "Certificate of the server"),
    inner("service https virtual-host", "VyOS 1.3: addresses that are listened on"),
    inner("service https virtual-host <name> allow-client", "Clients that may connect"),
];

pub(super) static TAGS: &[Tag] = &[
    tag("service https api keys id <id>", Type::Form(Form::User), "Name of the key, for logs and revisions")
        .begins("key SECRET"),
    tag("service https virtual-host <name>", Type::Name, "Name of the virtual host"),
];

pub(super) static NODES: &[Node] = &[
    branch("service https", "API for other machines, over HTTPS"),
    values("service https allow-client address", Type::Network, CLIENTS),
    branch("service https api", "Requests as VyOS has them, and JSON"),
    flag("service https api debug", "Log more").note(DEBUG),
    value("service https api keys id <id> key", KEY, "Key that a client sends").secret(),
    value("service https api port", PORT, "VyOS 1.3: internal port").note(INTERNAL),
    branch("service https api rest", "Requests as VyOS 1.5 has them; always on with the API"),
    flag("service https api rest debug", "Log more").note(DEBUG),
    flag("service https api rest strict", "Refuse to delete what does not exist"),
    flag("service https api socket", "VyOS 1.3: internal socket").note(INTERNAL),
    flag("service https api strict", "Refuse to delete what does not exist"),
    values("service https api-restrict virtual-host", Type::Name, "Listen for this virtual host only"),
    value(
        "service https certificates ca-certificate",
        Type::Reference(CA),
        "Authority whose certificate is sent after that of the server",
    ),
    value(
        "service https certificates certificate",
        Type::Reference(CERTIFICATE),
        "Certificate of the server (default: one that it signs itself, and keeps)",
    ),
    value("service https certificates dh-params", Type::Name, "Parameters of Diffie-Hellman key exchanges")
        .note("has no effect: all key exchanges are on elliptic curves, or with ML-KEM"),
    branch(
        "service https certificates system-generated-certificate",
        "A certificate that the server signs itself; the default",
    ),
    value(
        "service https certificates system-generated-certificate lifetime",
        Type::Number(1, 36_500),
        "Days for which a new one is valid",
    )
    .or("365"),
    values("service https listen-address", Type::Address, ADDRESS),
    value("service https port", PORT, "TCP port").or("443"),
    values(
        "service https tls-version",
        Type::Word(VERSIONS),
        "TLS versions that are accepted (default: both)",
    ),
    values("service https virtual-host <name> allow-client address", Type::Network, CLIENTS),
    values("service https virtual-host <name> listen-address", Type::Address, ADDRESS),
    value("service https virtual-host <name> listen-port", PORT, "TCP port").or("443"),
    values(
        "service https virtual-host <name> server-name",
        Type::Form(Form::Remote),
        "Name of this machine in a certificate that the server signs itself",
    ),
];

pub(super) static UNSUPPORTED: &[Unsupported] = &[
    unsupported("service https api cors")
        .instead("remove the line: browsers may not use the API from other sites"),
    unsupported("service https api gql").instead("remove the line: requests are REST and JSON, not GraphQL"),
    unsupported("service https api graphql")
        .instead("remove the line: requests are REST and JSON, not GraphQL"),
    unsupported("service https api rest authentication")
        .instead("remove the line, and send a key with each request"),
    unsupported("service https certificates certbot")
        .instead("set service https certificates certificate NAME, one of: pki certificate"),
    unsupported("service https certificates verify-client")
        .instead("remove the line, and limit clients: set service https allow-client address PREFIX"),
    unsupported("service https enable-http-redirect").instead("remove the line: port 80 is not opened"),
    unsupported("service https request-body-size-limit")
        .instead("remove the line: a configuration of up to 16 MiB is accepted"),
    unsupported("service https vrf"),
];
