//! What is done by other programs of the machine: `system option`, `system syslog`, `system task-scheduler`, `service`.

use super::form::Form;
use super::value::Type;
use super::{Inner, Node, PORT, Tag, Unsupported, flag, inner, tag, unsupported, value, values};

/// Facilities of syslog(3), and the words of VyOS for `auth` and `local7`.
pub const FACILITIES: &[&str] = &[
    "auth",
    "authpriv",
    "cron",
    "daemon",
    "kern",
    "lpr",
    "mail",
    "mark",
    "news",
    "protocols",
    "security",
    "syslog",
    "user",
    "uucp",
    "local0",
    "local1",
    "local2",
    "local3",
    "local4",
    "local5",
    "local6",
    "local7",
    "all",
];
/// Levels of syslog(3), the most urgent first.
pub const LEVELS: &[&str] = &["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug", "all"];
/// What the machine is tuned for.
pub const PROFILES: &[&str] = &["throughput", "latency"];
pub(super) const PROTOCOLS: &[&str] = &["udp", "tcp"];
const TEXT: Type = Type::Form(Form::Line(255));
const LEVEL: Type = Type::Word(LEVELS);
const LEVEL_HELP: &str = "Least urgent level that is logged";
const ONLY_WITH: &str = "was renamed after VyOS 1.4";

pub(super) static INNER: &[Inner] = &[
    inner("service", "Services for other machines"),
    inner("service snmp", "Network management by SNMP (snmpd)"),
    inner("service snmp community", "Communities that may ask"),
    inner("service snmp listen-address", "Addresses that are listened on (default: all)"),
    inner("service snmp trap-target", "Receivers of traps"),
    inner("system option", "Options of the machine"),
    inner("system syslog", "Logging by rsyslog or journald"),
    inner("system syslog console", "Messages on the console"),
    inner("system syslog console facility", "What is logged there"),
    inner("system syslog file", "Log files below /var/log"),
    inner("system syslog file <file> archive", "Rotation of the file"),
    inner("system syslog file <file> facility", "What is logged there"),
    inner("system syslog global", "VyOS 1.4 name of local"),
    inner("system syslog global archive", "Rotation of /var/log/messages"),
    inner("system syslog global facility", "What is logged there"),
    inner("system syslog global marker", "VyOS 1.4 name of: system syslog marker"),
    inner("system syslog host", "VyOS 1.4 name of remote"),
    inner("system syslog host <address> facility", "What is sent there"),
    inner("system syslog host <address> format", "Format of messages"),
    inner("system syslog local", "Messages in /var/log/messages"),
    inner("system syslog local facility", "What is logged there"),
    inner("system syslog marker", "Regular messages that say that logging works"),
    inner("system syslog remote", "Machines that messages are sent to"),
    inner("system syslog remote <address> facility", "What is sent there"),
    inner("system syslog remote <address> format", "Format of messages"),
    inner("system syslog user", "Users that messages are shown to"),
    inner("system syslog user <user> facility", "What is shown to the user"),
    inner("system task-scheduler", "Programs that are run at times (cron, or timers of systemd)"),
    inner("system task-scheduler task", "Tasks"),
    inner("system task-scheduler task <task> executable", "What is run"),
];

const FACILITY: Type = Type::Word(FACILITIES);
const FACILITY_HELP: &str = "Facility, or all";
const REMOTE: Type = Type::Form(Form::Remote);
const REMOTE_HELP: &str = "Address or name of the machine";

pub(super) static TAGS: &[Tag] = &[
    tag("service snmp community <community>", Type::Form(Form::Community), "Community, which is a password"),
    tag("service snmp listen-address <address>", Type::Address, "Address of this machine"),
    tag("service snmp trap-target <address>", Type::Address, "Address of the receiver"),
    tag("system syslog console facility <facility>", FACILITY, FACILITY_HELP),
    tag("system syslog file <file>", Type::Form(Form::FileName), "Name of the file"),
    tag("system syslog file <file> facility <facility>", FACILITY, FACILITY_HELP),
    tag("system syslog global facility <facility>", FACILITY, FACILITY_HELP),
    tag("system syslog host <address>", REMOTE, REMOTE_HELP),
    tag("system syslog host <address> facility <facility>", FACILITY, FACILITY_HELP),
    tag("system syslog local facility <facility>", FACILITY, FACILITY_HELP),
    tag("system syslog remote <address>", REMOTE, REMOTE_HELP),
    tag("system syslog remote <address> facility <facility>", FACILITY, FACILITY_HELP),
    tag("system syslog user <user>", Type::Form(Form::User), "Name of the user"),
    tag("system syslog user <user> facility <facility>", FACILITY, FACILITY_HELP),
    tag("system task-scheduler task <task>", Type::Form(Form::Task), "Name of the task"),
];

const ARCHIVED: Type = Type::Number(1, 1000);
const KILOBYTES: Type = Type::Number(1, 1_048_576);
const ARCHIVED_HELP: &str = "Old files that are kept";
const KILOBYTES_HELP: &str = "Size in KiB from which the file is rotated";

pub(super) static NODES: &[Node] = &[
    value(
        "service snmp community <community> authorization",
        Type::Word(&["ro", "rw"]),
        "Whether the community may only read, or write too",
    )
    .or("ro"),
    values("service snmp community <community> client", Type::Address, "Address that may ask"),
    values("service snmp community <community> network", Type::Prefix, "Network that may ask (default: all)"),
    value("service snmp contact", TEXT, "Who is responsible for the machine"),
    value("service snmp description", TEXT, "What the machine is"),
    value("service snmp listen-address <address> port", PORT, "Port").or("161"),
    value("service snmp location", TEXT, "Where the machine is"),
    value("service snmp protocol", Type::Word(PROTOCOLS), "Transport").or("udp"),
    value("service snmp trap-source", Type::Address, "Address that traps are sent from"),
    value(
        "service snmp trap-target <address> community",
        Type::Form(Form::Community),
        "Community of the traps",
    )
    .or("public"),
    value("service snmp trap-target <address> port", PORT, "Port").or("162"),
    value(
        "system option performance",
        Type::Word(PROFILES),
        "What kernel, processors and data path are tuned for",
    ),
    value("system syslog console facility <facility> level", LEVEL, LEVEL_HELP).or("err"),
    value("system syslog file <file> archive file", ARCHIVED, ARCHIVED_HELP).or("5"),
    value("system syslog file <file> archive size", KILOBYTES, KILOBYTES_HELP).or("256"),
    value("system syslog file <file> facility <facility> level", LEVEL, LEVEL_HELP).or("err"),
    value("system syslog global archive file", ARCHIVED, ARCHIVED_HELP).or("5"),
    value("system syslog global archive size", KILOBYTES, KILOBYTES_HELP).or("256"),
    value("system syslog global facility <facility> level", LEVEL, LEVEL_HELP).or("err"),
    value("system syslog global marker interval", Type::Number(1, 86_400), "Seconds between them").or("1200"),
    flag("system syslog global preserve-fqdn", "VyOS 1.4 name of: system syslog preserve-fqdn"),
    value("system syslog host <address> facility <facility> level", LEVEL, LEVEL_HELP).or("err"),
    value(
        "system syslog host <address> facility <facility> protocol",
        Type::Word(PROTOCOLS),
        "VyOS 1.3 place of: remote NAME protocol",
    )
    .note(ONLY_WITH),
    flag("system syslog host <address> format include-timezone", "Times with their offset from UTC"),
    flag("system syslog host <address> format octet-counted", "Messages with their lengths (RFC 6587)"),
    value("system syslog host <address> port", PORT, "Port").or("514"),
    value("system syslog host <address> protocol", Type::Word(PROTOCOLS), "Transport").or("udp"),
    value("system syslog local facility <facility> level", LEVEL, LEVEL_HELP).or("err"),
    flag("system syslog marker disable", "No such messages"),
    value("system syslog marker interval", Type::Number(1, 86_400), "Seconds between them").or("1200"),
    flag("system syslog preserve-fqdn", "Keep the whole names of machines that messages come from"),
    value("system syslog remote <address> facility <facility> level", LEVEL, LEVEL_HELP).or("err"),
    flag("system syslog remote <address> format include-timezone", "Times with their offset from UTC"),
    flag("system syslog remote <address> format octet-counted", "Messages with their lengths (RFC 6587)"),
    value("system syslog remote <address> port", PORT, "Port").or("514"),
    value("system syslog remote <address> protocol", Type::Word(PROTOCOLS), "Transport").or("udp"),
    value("system syslog user <user> facility <facility> level", LEVEL, LEVEL_HELP).or("err"),
    value(
        "system task-scheduler task <task> crontab-spec",
        Type::Form(Form::Crontab),
        "When it is run, as crontab(5) says it",
    ),
    value(
        "system task-scheduler task <task> executable arguments",
        Type::Form(Form::Arguments),
        "Words that the program is given; no shell reads them",
    ),
    value(
        "system task-scheduler task <task> executable path",
        Type::Form(Form::Program),
        "Program, run by root",
    ),
    value("system task-scheduler task <task> interval", Type::Form(Form::Interval), "How often it is run"),
];

const LEFT: &str = "remove the line, and configure this with the operating system";
const WITH_SNMPD: &str = "remove the line: of SNMP, communities, users of version 3 and traps are supported";

pub(super) static UNSUPPORTED: &[Unsupported] = &[
    unsupported("service broadcast-relay").instead(LEFT),
    unsupported("service config-sync").instead(LEFT),
    unsupported("service conntrack-sync").instead(LEFT),
    unsupported("service console-server").instead(LEFT),
    unsupported("service dhcp-relay").instead(LEFT),
    unsupported("service dhcpv6-relay").instead(LEFT),
    unsupported("service dhcpv6-server").instead(LEFT),
    unsupported("service event-handler").instead(LEFT),
    unsupported("service haproxy").instead(LEFT),
    unsupported("service ids").instead(LEFT),
    unsupported("service ipoe-server").instead(LEFT),
    unsupported("service lldp").instead(LEFT),
    unsupported("service mdns").instead(LEFT),
    unsupported("service monitoring").instead(LEFT),
    unsupported("service ndp-proxy").instead(LEFT),
    unsupported("service ntp").instead(LEFT),
    unsupported("service pppoe-server").instead(LEFT),
    unsupported("service router-advert").instead(LEFT),
    unsupported("service salt-minion").instead(LEFT),
    unsupported("service sla").instead(LEFT),
    unsupported("service ssh").instead(LEFT),
    unsupported("service stunnel").instead(LEFT),
    unsupported("service suricata").instead(LEFT),
    unsupported("service tftp-server").instead(LEFT),
    unsupported("service webproxy").instead(LEFT),
    unsupported("service snmp mib").instead(WITH_SNMPD),
    unsupported("service snmp oid-enable").instead(WITH_SNMPD),
    unsupported("service snmp script-extensions").instead(WITH_SNMPD),
    unsupported("service snmp smux-peer").instead(WITH_SNMPD),
    unsupported("service snmp v3 trap-target <address> engineid").instead(WITH_SNMPD),
    unsupported("service snmp v3 user <user> engineid").instead(WITH_SNMPD),
    unsupported("service snmp v3 tsm").instead(WITH_SNMPD),
    unsupported("service snmp vrf").instead(WITH_SNMPD),
    unsupported("system option ctrl-alt-delete").instead(LEFT),
    unsupported("system option disable-usb-autosuspend").instead(LEFT),
    unsupported("system option http-client").instead(LEFT),
    unsupported("system option kernel").instead(LEFT),
    unsupported("system option keyboard-layout").instead(LEFT),
    unsupported("system option reboot-on-panic").instead(LEFT),
    unsupported("system option root-partition-auto-resize").instead(LEFT),
    unsupported("system option ssh-client").instead(LEFT),
    unsupported("system option startup-beep").instead(LEFT),
    unsupported("system option time-format").instead(LEFT),
    unsupported("system syslog remote <address> source-address").instead(LEFT),
    unsupported("system syslog remote <address> tls").instead(LEFT),
    unsupported("system syslog remote <address> vrf").instead(LEFT),
    unsupported("system syslog vrf").instead(LEFT),
];
