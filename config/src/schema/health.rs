//! `service health`: rules about the gateway, and who hears when one fails.

use super::form::Form;
use super::pki::CA;
use super::value::Type;
use super::{Inner, Node, Tag, branch, flag, inner, tag, value, values};

/// The rules that can be named, each with the threshold that it may have: the lowest and the highest.
pub const HEALTH_RULES: &[(&str, Option<(u32, u32)>)] = &[
    ("tunnel-down", None),
    ("peer-never-seen", None),
    ("failover-down", None),
    ("failover-standby", None),
    ("configuration-refused", None),
    ("drops-rising", Some((1, 10_000_000))),
    ("thread-busy", Some((1, 100))),
    ("path-loss", Some((1, 100))),
    ("path-black-hole", None),
    ("engine-failed", None),
    ("offload-failed", None),
    ("files-low", Some((1, 100))),
    ("processor-stolen", Some((1, 100))),
    ("memory-low", Some((1, 99))),
    ("accelerator-absent", None),
    ("accelerator-without-driver", None),
    ("accelerator-without-firmware", None),
    ("accelerator-down", None),
    ("accelerator-unused", None),
    ("accelerator-heartbeat", None),
    ("accelerator-overflow", None),
    ("accelerator-error", None),
    ("accelerator-memory", None),
    ("aes-missing", None),
    ("processor-hot", None),
    ("governor-slow", None),
    ("backlog-drops", Some((1, 10_000_000))),
    ("receive-buffer-full", Some((1, 10_000_000))),
    ("clock-unsynchronised", None),
    ("suite-slow", None),
    ("detection-too-often", Some((2, 86_400))),
    ("mtu-too-large", None),
    ("offload-off", None),
    ("certificate-expiring", Some((1, 365))),
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
        "Authority of the webhook or the mail server (default: those of the machine)",
    ),
    value(
        "service health alert <name> exec",
        Type::Form(Form::Program),
        "Program that is run, without a shell, with the alerts as its input",
    ),
    branch("service health alert <name> mail", "Send each alert as mail, by a mail server"),
    value(
        "service health alert <name> mail from",
        Type::Form(Form::Mailbox),
        "Address of the sender (default: postern@ and the name of the machine)",
    ),
    value("service health alert <name> mail password", Type::Secret(255), "Password at the mail server")
        .secret(),
    value(
        "service health alert <name> mail port",
        Type::Number(1, 65_535),
        "TCP port (default: 587; with tls implicit 465, none 25)",
    ),
    value(
        "service health alert <name> mail server",
        Type::Form(Form::Remote),
        "Mail server that takes the mail",
    ),
    value(
        "service health alert <name> mail tls",
        Type::Word(&["starttls", "implicit", "none"]),
        "How the conversation is protected; without it nothing is sent",
    )
    .or("starttls"),
    values("service health alert <name> mail to", Type::Form(Form::Mailbox), "Address of a recipient"),
    value("service health alert <name> mail user", Type::Form(Form::Line(255)), "User at the mail server"),
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
    value(
        "service health repeat",
        Type::Number(0, 8760),
        "Hours after which an alert that still fires is told again; 0 for never",
    )
    .or("24"),
    flag("service health rule <rule> disable", "Do not check it"),
    value(
        "service health rule <rule> duration",
        Type::Number(0, 86_400),
        "Seconds that it must fail before it is an alert",
    ),
    value(
        "service health rule <rule> threshold",
        Type::Number(1, 10_000_000),
        "Number from which it fails: packets a second, percent, seconds or days",
    ),
];
