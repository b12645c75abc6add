//! `service health`: rules about the gateway, and who hears when one fails.

use super::form::Form;
use super::pki::CA;
use super::value::Type;
use super::{Inner, Node, Tag, branch, flag, inner, tag, value};

/// The rules that can be named, each with the threshold that it may have: the lowest and the highest.
pub const HEALTH_RULES: &[(&str, Option<(u32, u32)>)] = &[
    ("tunnel-down", None),
    ("peer-never-seen", None),
    ("configuration-refused", None),
    ("drops-rising", Some((1, 10_000_000))),
    ("thread-busy", Some((1, 100))),
    ("path-loss", Some((1, 100))),
    ("path-black-hole", None),
    ("engine-failed", None),
    ("offload-failed", None),
    ("processor-stolen", Some((1, 100))),
    ("memory-low", Some((1, 99))),
    ("files-low", Some((1, 100))),
];

/// The names of the rules.
const NAMES: &[&str; HEALTH_RULES.len()] = &names();

const fn names() -> [&'static str; HEALTH_RULES.len()] {
    let mut names = [""; HEALTH_RULES.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = HEALTH_RULES[index].0;
        index += 1;
    }
    names
}

const SEVERITIES: &[&str] = &["warning", "critical"];

pub(super) static INNER: &[Inner] = &[
    inner("service health alert", "Receivers of alerts"),
    inner("service health rule", "Rules, as `postern show health` lists them"),
];

pub(super) static TAGS: &[Tag] = &[
    tag("service health alert <name>", Type::Form(Form::Task), "Name of the receiver")
        .begins("webhook https://alerts.example.net/postern"),
    tag("service health rule <rule>", Type::Word(NAMES), "The rule").begins("disable"),
];

pub(super) static NODES: &[Node] = &[
    branch("service health", "Alerts when something is wrong, and a log of them"),
    value(
        "service health alert <name> ca-certificate",
        Type::Reference(CA),
        "Authority of the webhook (default: those of the machine)",
    ),
    value(
        "service health alert <name> exec",
        Type::Form(Form::Program),
        "Program that is run, without a shell, with the alerts as its input",
    ),
    value(
        "service health alert <name> severity",
        Type::Word(SEVERITIES),
        "The lowest severity that it hears of",
    )
    .or("warning"),
    flag("service health alert <name> syslog", "Log each alert to the syslog of the machine"),
    value(
        "service health alert <name> token",
        Type::Secret(255),
        "Token for the webhook: Authorization: Bearer TOKEN",
    )
    .secret(),
    value(
        "service health alert <name> webhook",
        Type::Secret(1024),
        "URL that gets a POST, in the form of Alertmanager",
    )
    .secret(),
    branch("service health log", "A file for each day in the state folder"),
    value("service health log days", Type::Number(1, 3650), "Files that are kept").or("14"),
    value("service health log size", Type::Number(16, 1_048_576), "Kilobytes of a file at most").or("1024"),
    flag("service health rule <rule> disable", "Do not check it"),
    value(
        "service health rule <rule> duration",
        Type::Number(0, 86_400),
        "Seconds that it must fail before it is an alert",
    ),
    value(
        "service health rule <rule> threshold",
        Type::Number(1, 10_000_000),
        "Number from which it fails: packets a second, or percent",
    ),
];
