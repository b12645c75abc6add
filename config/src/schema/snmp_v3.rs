//! `service snmp v3`: users with keys of their own, in the words of VyOS.

use super::form::Form;
use super::machine::PROTOCOLS;
use super::value::Type;
use super::{Inner, Node, PORT, Tag, flag, inner, tag, value};

const NAME: Type = Type::Form(Form::SnmpName(24));
const USER: Type = Type::Form(Form::SnmpName(32));
const OID: Type = Type::Form(Form::Oid);
const PASSWORD: Type = Type::Form(Form::Passphrase);
const KEY: Type = Type::Form(Form::UsmKey);
const MODES: Type = Type::Word(&["ro", "rw"]);
const MODE_HELP: &str = "Whether they may only read, or write too";
const AUTH: Type = Type::Word(&["md5", "sha"]);
const PRIVACY: Type = Type::Word(&["des", "aes"]);
const AUTH_HELP: &str = "Hash that signs messages; sha is stronger";
const PRIVACY_HELP: &str = "Cipher of messages; aes is stronger";
const PASSWORD_HELP: &str = "Password; its key is made by snmpd";
const KEY_HELP: &str = "Key for the engineid, in hexadecimal";

pub(super) static INNER: &[Inner] = &[
    inner("service snmp v3", "Version 3: users with keys"),
    inner("service snmp v3 group", "What the users of a group may do"),
    inner("service snmp v3 trap-target", "Receivers of traps"),
    inner("service snmp v3 trap-target <address> auth", "Key of the user at the receiver (default: here)"),
    inner("service snmp v3 trap-target <address> privacy", "The same for the encryption"),
    inner("service snmp v3 user", "Users that may ask"),
    inner("service snmp v3 user <user> auth", "Authentication"),
    inner("service snmp v3 user <user> privacy", "How messages of the user are encrypted"),
    inner("service snmp v3 view", "Objects that the users of a group see"),
    inner("service snmp v3 view <view> oid", "Trees of objects"),
];

pub(super) static TAGS: &[Tag] = &[
    tag("service snmp v3 group <group>", NAME, "Name of the group"),
    tag("service snmp v3 trap-target <address>", Type::Address, "Address of the receiver"),
    tag("service snmp v3 user <user>", USER, "Name of the user"),
    tag("service snmp v3 view <view>", NAME, "Name of the view"),
    tag("service snmp v3 view <view> oid <oid>", OID, "Number of a tree, such as 1.3.6.1.2.1"),
];

pub(super) static NODES: &[Node] = &[
    value("service snmp v3 engineid", Type::Form(Form::EngineId), "Engine ID, in hexadecimal"),
    value("service snmp v3 group <group> mode", MODES, MODE_HELP).or("ro"),
    value(
        "service snmp v3 group <group> seclevel",
        Type::Word(&["noauth", "auth", "priv"]),
        "Least protection that messages must have",
    )
    .or("auth"),
    value("service snmp v3 group <group> view", NAME, "What is seen (default: all)"),
    value("service snmp v3 trap-target <address> auth encrypted-password", KEY, KEY_HELP).secret(),
    value("service snmp v3 trap-target <address> auth plaintext-password", PASSWORD, PASSWORD_HELP).secret(),
    value("service snmp v3 trap-target <address> auth type", AUTH, AUTH_HELP).or("md5"),
    value("service snmp v3 trap-target <address> port", PORT, "Port").or("162"),
    value("service snmp v3 trap-target <address> privacy encrypted-password", KEY, KEY_HELP).secret(),
    value("service snmp v3 trap-target <address> privacy plaintext-password", PASSWORD, PASSWORD_HELP)
        .secret(),
    value("service snmp v3 trap-target <address> privacy type", PRIVACY, PRIVACY_HELP).or("des"),
    value("service snmp v3 trap-target <address> protocol", Type::Word(PROTOCOLS), "Transport").or("udp"),
    value(
        "service snmp v3 trap-target <address> type",
        Type::Word(&["inform", "trap"]),
        "Inform, which the receiver confirms, or trap",
    )
    .or("inform"),
    value("service snmp v3 trap-target <address> user", USER, "User that sends them"),
    value("service snmp v3 user <user> auth encrypted-password", KEY, KEY_HELP).secret(),
    value("service snmp v3 user <user> auth plaintext-password", PASSWORD, PASSWORD_HELP).secret(),
    value("service snmp v3 user <user> auth type", AUTH, AUTH_HELP).or("md5"),
    value("service snmp v3 user <user> group", NAME, "Group, which says what the user may do"),
    value("service snmp v3 user <user> mode", MODES, MODE_HELP).or("ro"),
    value("service snmp v3 user <user> privacy encrypted-password", KEY, KEY_HELP).secret(),
    value("service snmp v3 user <user> privacy plaintext-password", PASSWORD, PASSWORD_HELP).secret(),
    value("service snmp v3 user <user> privacy type", PRIVACY, PRIVACY_HELP).or("des"),
    flag("service snmp v3 view <view> oid <oid> exclude", "The tree is not seen"),
    value(
        "service snmp v3 view <view> oid <oid> mask",
        Type::Form(Form::Mask),
        "View mask (RFC 3415), in hexadecimal",
    ),
];
