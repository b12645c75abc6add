//! `system log`: how much the daemon logs.

use super::value::Type;
use super::{Inner, Node, Tag, inner, tag, value};

/// The parts of the daemon, by the names that `gateway` gives them.
pub const LOG_SUBSYSTEMS: &[&str] = &["wireguard", "ipsec", "openvpn", "secgw", "network", "api", "daemon"];

const LEVELS: &[&str] = &["error", "warning", "info", "debug"];

pub(super) static INNER: &[Inner] = &[
    inner("system log", "The log of the daemon"),
    inner("system log subsystem", "Parts of the daemon that log more or less than others"),
];

pub(super) static TAGS: &[Tag] =
    &[tag("system log subsystem <subsystem>", Type::Word(LOG_SUBSYSTEMS), "Part of the daemon")
        .begins("level debug")];

pub(super) static NODES: &[Node] = &[
    value(
        "system log level",
        Type::Word(LEVELS),
        "Least urgent level that is logged (default: LOG_LEVEL, or info)",
    ),
    value(
        "system log subsystem <subsystem> level",
        Type::Word(LEVELS),
        "The same for this part of the daemon",
    ),
];
