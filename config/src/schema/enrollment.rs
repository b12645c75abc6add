//! `service enrollment`: branches that join head office with a token.

use super::form::Form;
use super::value::Type;
use super::{Inner, Node, PORT, Tag, branch, flag, inner, tag, value, values};

const TIME: Type = Type::Number(1, 99_999_999_999);

pub(super) static INNER: &[Inner] = &[
    inner("service enrollment allow-client", "Clients that may connect"),
    inner("service enrollment branch", "Branches, which postern enroll adds and removes"),
    inner("service enrollment branch <branch> token", "Token with which it joins, once"),
];

pub(super) static TAGS: &[Tag] = &[tag(
    "service enrollment branch <branch>",
    Type::Form(Form::Task),
    "Name of the branch, and of its peer",
)
.begins("address ADDRESS")];

pub(super) static NODES: &[Node] = &[
    branch("service enrollment", "Branches that join with a token: postern enroll create"),
    values(
        "service enrollment address",
        Type::AddressNoName,
        "Address at which branches reach this gateway, for tokens and the tunnel",
    ),
    values(
        "service enrollment allow-client address",
        Type::Network,
        "Addresses and prefixes that may connect (default: all)",
    ),
    value("service enrollment branch <branch> address", Type::Address, "Its address inside the tunnel"),
    value("service enrollment branch <branch> joined", TIME, "When it joined, in seconds since 1970"),
    values("service enrollment branch <branch> network", Type::Prefix, "Network behind the branch"),
    value(
        "service enrollment branch <branch> token created",
        TIME,
        "When the token was made, in seconds since 1970",
    ),
    value(
        "service enrollment branch <branch> token expires",
        TIME,
        "When the token expires, in seconds since 1970",
    ),
    value("service enrollment branch <branch> token hash", Type::Key, "SHA-256 of its secret, in base64"),
    flag("service enrollment branch <branch> token revoked", "The token is not accepted"),
    value(
        "service enrollment host-name",
        Type::Form(Form::Domain),
        "Domain name at which branches reach this gateway, with or without addresses",
    ),
    value("service enrollment interface", Type::Interface("wg"), "WireGuard interface of the branches"),
    values(
        "service enrollment listen-address",
        Type::Address,
        "Address that is listened on for branches that join (default: all)",
    ),
    values("service enrollment network", Type::Prefix, "Network here that branches may reach"),
    value("service enrollment port", PORT, "TCP port for branches that join").or("9588"),
];
