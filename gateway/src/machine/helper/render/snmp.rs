//! The file of snmpd. It has passwords: root alone may read it.

use super::word_of;
use config::settings::machine::{Community, SecurityLevel, Snmp, SnmpV3, TrapSession, UsmKey, UsmKeys};
use ipnet::IpNet;
use std::fmt::Write;
use std::net::IpAddr;
use zeroize::Zeroizing;

/// Bytes that a file is made in.
const USUAL_LENGTH: usize = 64 << 10;
/// The same of a session for traps.
const LONGEST_SESSION: usize = 4 << 10;

/// Where snmpd listens for sub-agents, and who may be one.
#[derive(Clone, Debug, Default)]
pub struct Agents {
    /// The sockets.
    pub sockets: Vec<String>,
    /// The group that may be a sub-agent beside root.
    pub group: u32,
}

impl Agents {
    /// The lines of snmpd. It refuses the number 0, and root is the group of new sockets.
    fn lines(&self) -> String {
        let group = if self.group == 0 { String::new() } else { format!(" -1 {}", self.group) };
        format!("master agentx\nagentXSocket {}\nagentXPerms 0660 0755{group}\n", self.sockets.join(","))
    }
}

/// The configuration of snmpd, on a machine with or without IPv6.
pub fn snmp(snmp: &Snmp, has_ipv6: bool, agents: &Agents) -> Zeroizing<String> {
    let protocol = word_of(snmp.protocol);
    let mut listen: Vec<String> =
        snmp.listen.iter().map(|(address, port)| endpoint(protocol, *address, *port)).collect();
    if listen.is_empty() {
        listen.push(format!("{protocol}:161"));
        listen.extend(has_ipv6.then(|| format!("{protocol}6:161")));
    }
    // Large enough not to grow, which would leave copies of it.
    let mut text = Zeroizing::new(String::with_capacity(USUAL_LENGTH));
    let _ = write!(text, "agentaddress {}\n{}", listen.join(","), agents.lines());
    let words =
        [("sysContact", &snmp.contact), ("sysLocation", &snmp.location), ("sysDescr", &snmp.description)];
    for (word, value) in words {
        if let Some(value) = value {
            let _ = writeln!(text, "{word} {value}");
        }
    }
    text.push_str("view postern included .1\nview postern excluded .1.3.6.1.4.1.8072.1.3.2\n");
    for tree in WRITERS_SEE {
        let _ = writeln!(text, "view postern-rw included {tree}");
    }
    for (name, Community { writes, from }) in &snmp.communities {
        let (word, view) = if *writes { ("rwcommunity", "postern-rw") } else { ("rocommunity", "postern") };
        let all = ["0.0.0.0/0", "::/0"].map(|net| net.parse().expect("literal"));
        for net in if from.is_empty() { &all[..] } else { from } {
            let version = if matches!(net, IpNet::V6(_)) { "6" } else { "" };
            let _ = writeln!(text, "{word}{version} {name} {net} -V {view}");
        }
    }
    for (address, target) in &snmp.traps {
        let _ = writeln!(text, "trap2sink {} {}", endpoint("udp", *address, target.port), target.community);
    }
    version_3(&mut text, &snmp.v3);
    if let Some(source) = snmp.trap_source {
        let _ = writeln!(text, "[snmp] clientaddr {source}");
    }
    text
}

/// What a community that may write can see: MIB-II without its events, the host, memory, disks, load. Elsewhere snmpd
/// loads libraries (dlmod), runs programs (nsExtendObjects), writes logs, and changes its own access, if it is told to.
const WRITERS_SEE: &[&str] = &[
    ".1.3.6.1.2.1.1",
    ".1.3.6.1.2.1.2",
    ".1.3.6.1.2.1.4",
    ".1.3.6.1.2.1.5",
    ".1.3.6.1.2.1.6",
    ".1.3.6.1.2.1.7",
    ".1.3.6.1.2.1.11",
    ".1.3.6.1.2.1.25",
    ".1.3.6.1.2.1.31",
    ".1.3.6.1.4.1.2021.4",
    ".1.3.6.1.4.1.2021.9",
    ".1.3.6.1.4.1.2021.10",
    ".1.3.6.1.4.1.2021.11",
    // Our own, where nothing can be changed.
    ".1.3.6.1.4.1.8072.9999.9999.7678",
];

fn endpoint(protocol: &str, address: IpAddr, port: u16) -> String {
    match address {
        IpAddr::V4(_) => format!("{protocol}:{address}:{port}"),
        IpAddr::V6(_) => format!("{protocol}6:[{address}]:{port}"),
    }
}

/// Users of version 3 with their keys, what they see, and receivers of their traps. snmpd takes up another key of a user that it knows,
/// and forgets users that are no longer there.
fn version_3(text: &mut String, v3: &SnmpV3) {
    if let Some(number) = &v3.engine_id {
        // Before the users: keys are made for this number.
        let _ = writeln!(text, "exactEngineID 0x{number}");
    }
    for (name, trees) in &v3.views {
        for tree in trees {
            let word = if tree.is_excluded { "excluded" } else { "included" };
            let mask = tree.mask.as_ref().map(|mask| format!(" {}", octets(mask))).unwrap_or_default();
            let _ = writeln!(text, "view view-{name} {word} .{}{mask}", tree.oid);
        }
    }
    for (name, UsmKeys { auth, privacy }) in v3.keys() {
        let _ = write!(text, "createUser {name} {}", *created(auth));
        if let Some(key) = privacy {
            let _ = write!(text, " {}", *created(key));
        }
        text.push('\n');
    }
    for (name, user) in &v3.users {
        let (word, usual) = if user.writes { ("rwuser", "postern-rw") } else { ("rouser", "postern") };
        let minimum = match user.minimum {
            SecurityLevel::NoAuthNoPriv => "noauth",
            SecurityLevel::AuthNoPriv => "auth",
            SecurityLevel::AuthPriv => "priv",
        };
        let view = user.view.as_ref().map_or_else(|| usual.to_owned(), |view| format!("view-{view}"));
        let _ = writeln!(text, "{word} {name} {minimum} -V {view}");
    }
    for (address, target) in &v3.traps {
        let _ = writeln!(text, "trapsess {}", *session(*address, target));
    }
}

/// A mask as snmpd reads it: its bytes with colons.
fn octets(mask: &str) -> String {
    let bytes: Vec<&str> = (0..mask.len()).step_by(2).filter_map(|at| mask.get(at..at + 2)).collect();
    bytes.join(":")
}

/// A key for `createUser`.
fn created(key: &UsmKey) -> Zeroizing<String> {
    let (algorithm, secret) = (key.algorithm.to_uppercase(), secret(key));
    Zeroizing::new(if key.is_localized {
        format!("{algorithm} -l {secret}")
    } else {
        format!("{algorithm} \"{secret}\"")
    })
}

fn secret(key: &UsmKey) -> &str {
    std::str::from_utf8(key.secret.expose()).expect("the configuration is UTF-8")
}

/// A session for traps. One that is not confirmed has the keys of a user that was created; for others snmpd asks the receiver for
/// its number first, and makes keys for that.
fn session(address: IpAddr, target: &TrapSession) -> Zeroizing<String> {
    let level = match target.keys.level() {
        SecurityLevel::AuthPriv => "authPriv",
        _ => "authNoPriv",
    };
    let mut text = Zeroizing::new(String::with_capacity(LONGEST_SESSION));
    let _ = write!(text, "-v 3 -u {} -l {level}", target.user);
    if target.is_confirmed {
        text.push_str(" -Ci");
        text.push_str(&given(&target.keys.auth, ["-a", "-A", "-3k"]));
        if let Some(key) = &target.keys.privacy {
            text.push_str(&given(key, ["-x", "-X", "-3K"]));
        }
    }
    let _ = write!(text, " {}", endpoint(word_of(target.protocol), address, target.port));
    text
}

/// A key on the command line of a session: words for the algorithm, a password, and a key.
fn given(key: &UsmKey, [algorithm, password, localized]: [&str; 3]) -> Zeroizing<String> {
    let (name, secret) = (key.algorithm.to_uppercase(), secret(key));
    Zeroizing::new(if key.is_localized {
        format!(" {algorithm} {name} {localized} {secret}")
    } else {
        format!(" {algorithm} {name} {password} \"{secret}\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::settings::Machine;
    use config::settings::machine::Part;

    fn rendered(lines: &str, agents: &Agents) -> String {
        let lines: String = lines.lines().map(|line| format!("set service snmp {line}\n")).collect();
        let machine = Machine::read(Part::Snmp, &lines).unwrap_or_else(|errors| panic!("{errors:?}"));
        snmp(&machine.snmp.expect("set"), false, agents).to_string()
    }

    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|it| it == *line), "{line}: {text}");
        }
    }

    #[test]
    fn sub_agents_are_let_in_by_their_group_and_writers_see_our_objects() {
        let sockets = vec!["/run/a".to_owned(), "/var/b".to_owned()];
        let text = rendered("community w authorization rw", &Agents { sockets: sockets.clone(), group: 7 });
        has(
            &text,
            &[
                "master agentx",
                "agentXSocket /run/a,/var/b",
                "agentXPerms 0660 0755 -1 7",
                "view postern-rw included .1.3.6.1.4.1.8072.9999.9999.7678",
                "rwcommunity w 0.0.0.0/0 -V postern-rw",
            ],
        );
        has(&rendered("contact a", &Agents { sockets, group: 0 }), &["agentXPerms 0660 0755"]);
    }

    #[test]
    fn users_of_version_3_have_keys_a_level_and_a_view() {
        let key = format!("0x{}", "0a".repeat(20));
        let text = rendered(
            &format!(
                "v3 engineid 80001f8804706f737465726e\n\
                 v3 user a auth plaintext-password 'open sesame'\nv3 user a auth type sha\n\
                 v3 user a privacy plaintext-password 'open #barley'\nv3 user a privacy type aes\nv3 user a mode rw\n\
                 v3 user b auth encrypted-password {key}\nv3 user b group g\n\
                 v3 group g view v\nv3 view v oid 1.3.6 mask ffa0\nv3 view v oid 1.3.6.1 exclude"
            ),
            &Agents::default(),
        );
        has(
            &text,
            &[
                "exactEngineID 0x80001f8804706f737465726e",
                "view view-v included .1.3.6 ff:a0",
                "view view-v excluded .1.3.6.1",
                "createUser a SHA \"open sesame\" AES \"open #barley\"",
                &format!("createUser b MD5 -l {key}"),
                "rwuser a priv -V postern-rw",
                "rouser b auth -V view-v",
            ],
        );
    }

    #[test]
    fn traps_of_version_3_are_sent_by_a_user_who_may_ask_nothing() {
        let text = rendered(
            "v3 trap-target 192.0.2.1 user t\nv3 trap-target 192.0.2.1 auth plaintext-password open-sesame\n\
             v3 trap-target 192.0.2.1 type trap\nv3 trap-target 2001:db8::1 user u\n\
             v3 trap-target 2001:db8::1 auth plaintext-password open-sesame\nv3 trap-target 2001:db8::1 auth type sha\n\
             v3 trap-target 2001:db8::1 privacy plaintext-password open-barley\n\
             v3 trap-target 2001:db8::1 privacy type aes",
            &Agents::default(),
        );
        has(
            &text,
            &[
                "createUser t MD5 \"open-sesame\"",
                "trapsess -v 3 -u t -l authNoPriv udp:192.0.2.1:162",
                "trapsess -v 3 -u u -l authPriv -Ci -a SHA -A \"open-sesame\" -x AES -X \"open-barley\" udp6:[2001:db8::1]:162",
            ],
        );
        assert!(!text.contains("rouser") && !text.contains("createUser u"), "{text}");
    }
}
