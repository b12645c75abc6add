//! Typed settings of other programs of the machine. The machine helper makes their files from these settings, and checks them
//! itself: it trusts no other process.
//!
//! A part of the configuration has one effect: a file, a group of settings. It is handed on as the lines that it is made of.

mod lan;
mod snmp;
mod snmp_v3;
mod syslog;
mod tasks;

pub use lan::{DhcpHost, DhcpServer, DhcpSubnet, DnsForwarding};
pub use snmp::{Community, Snmp, TrapTarget};
pub use snmp_v3::{SecurityLevel, SnmpTree, SnmpUser, SnmpV3, TrapSession, UsmKey, UsmKeys};
pub use syslog::{Archive, Protocol, Remote, Selector, Syslog};
pub use tasks::{Task, Tasks};

use super::Reader;
use crate::error::ConfigError;
use crate::path::Path;
use crate::print;
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::fmt;

/// What is configured of the machine.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// What it is tuned for.
    pub performance: Option<Profile>,
    /// `system ip forwarding` or `disable-forwarding`; none leaves what the kernel has.
    pub forwards_v4: Option<bool>,
    /// The same for IPv6.
    pub forwards_v6: Option<bool>,
    /// What is run at times.
    pub tasks: Tasks,
    /// What is logged where.
    pub syslog: Option<Syslog>,
    /// The agent of SNMP; boxed, as few have it and futures hold copies of all settings.
    pub snmp: Option<Box<Snmp>>,
    /// Addresses for devices of the site.
    pub dhcp: Option<Box<DhcpServer>>,
    /// Questions for names that are passed on.
    pub dns: Option<Box<DnsForwarding>>,
    /// The lines of each part that is configured.
    lines: BTreeMap<Part, String>,
}

/// What the machine is tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Many packets.
    Throughput,
    /// Packets that wait for little.
    Latency,
}

/// A part of the configuration with an effect of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// `system option performance`
    Performance,
    /// `system ip`
    Ip,
    /// `system ipv6`
    Ipv6,
    /// `system task-scheduler`
    Tasks,
    /// `system syslog`
    Syslog,
    /// `service snmp`
    Snmp,
    /// `service dhcp-server`
    DhcpServer,
    /// `service dns forwarding`
    DnsForwarding,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Performance,
        Self::Ip,
        Self::Ipv6,
        Self::Tasks,
        Self::Syslog,
        Self::Snmp,
        Self::DhcpServer,
        Self::DnsForwarding,
    ];

    /// The words that lead to it.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Self::Performance => &["system", "option", "performance"],
            Self::Ip => &["system", "ip"],
            Self::Ipv6 => &["system", "ipv6"],
            Self::Tasks => &["system", "task-scheduler"],
            Self::Syslog => &["system", "syslog"],
            Self::Snmp => &["service", "snmp"],
            Self::DhcpServer => &["service", "dhcp-server"],
            Self::DnsForwarding => &["service", "dns", "forwarding"],
        }
    }

    /// Where it is configured.
    pub fn path(self) -> Path {
        Path::new(self.words().iter().copied())
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join(" "))
    }
}

/// Communities and arguments are passwords: none of it is printed.
impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lines.keys()).finish()
    }
}

impl Machine {
    /// Whether nothing of it is configured.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The lines of a part; none if it is not configured.
    pub fn lines(&self, part: Part) -> &str {
        self.lines.get(&part).map_or("", String::as_str)
    }

    /// The lines of a part as others may read them: without what is a password.
    pub fn public_lines(&self, part: Part) -> Vec<String> {
        // We have printed them ourselves.
        crate::parse(self.lines(part)).map(|tree| print::public(&tree)).unwrap_or_default()
    }

    /// Reads the lines of one part, and nothing else.
    pub fn read(part: Part, lines: &str) -> Result<Self, Vec<ConfigError>> {
        let tree = crate::parse(lines)?;
        let mut reader = Reader::default();
        let machine = reader.machine(&tree);
        if print::commands(&tree, true) != machine.lines(part) {
            reader.error(tree.location(), format!("there is more than {part}"), "send one part at a time");
        }
        if reader.errors.is_empty() { Ok(machine) } else { Err(reader.errors) }
    }
}

impl Reader {
    pub(super) fn machine(&mut self, tree: &Tree) -> Machine {
        let mut machine = Machine::default();
        for part in Part::ALL {
            let Some(branch) = tree.at(part.words()) else { continue };
            let mut only = Tree::default();
            only.take_over(&part.path(), tree);
            machine.lines.insert(part, print::commands(&only, true));
            match part {
                Part::Performance => {
                    let is_latency = branch.own_values() == ["latency"];
                    machine.performance =
                        Some(if is_latency { Profile::Latency } else { Profile::Throughput });
                }
                Part::Ip => machine.forwards_v4 = self.forwarding(part, branch),
                Part::Ipv6 => machine.forwards_v6 = self.forwarding(part, branch),
                Part::Tasks => machine.tasks = self.tasks(branch),
                Part::Syslog => machine.syslog = Some(self.syslog(branch)),
                Part::Snmp => machine.snmp = Some(Box::new(self.snmp(branch))),
                Part::DhcpServer => machine.dhcp = Some(Box::new(self.dhcp_server(branch))),
                Part::DnsForwarding => machine.dns = Some(Box::new(self.dns_forwarding(branch))),
            }
        }
        machine
    }

    fn forwarding(&mut self, part: Part, tree: &Tree) -> Option<bool> {
        let (is_on, is_off) = (tree.has("forwarding"), tree.has("disable-forwarding"));
        if is_on && is_off {
            let reason = format!("{part} has both forwarding and disable-forwarding");
            self.error(tree.location_of("forwarding"), reason, format!("delete {part} disable-forwarding"));
        }
        (is_on || is_off).then_some(is_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    pub(super) fn read(text: &str) -> Result<Machine, Vec<ConfigError>> {
        crate::parse(text).and_then(|tree| Settings::new(&tree)).map(|(settings, _)| settings.machine)
    }

    const TEXT: &str = "set service snmp community public authorization ro\n\
        set service snmp community public network 10.0.0.0/8\n\
        set system ip forwarding\n\
        set system ipv6 disable-forwarding\n\
        set system option performance latency\n\
        set system syslog global facility all level info\n\
        set system task-scheduler task a executable path /config/scripts/a.sh\n\
        set system task-scheduler task a interval 1d\n";

    #[test]
    fn each_part_is_handed_on_as_its_lines() {
        let machine = read(TEXT).expect("right");
        assert!(!machine.is_empty());
        assert_eq!(machine.performance, Some(Profile::Latency));
        assert_eq!((machine.forwards_v4, machine.forwards_v6), (Some(true), Some(false)));
        let all: String = [Part::Snmp, Part::Ip, Part::Ipv6, Part::Performance, Part::Syslog, Part::Tasks]
            .map(|part| machine.lines(part).to_owned())
            .concat();
        assert_eq!(all, TEXT);
        for part in Part::ALL {
            let again = Machine::read(part, machine.lines(part)).expect("right");
            assert_eq!(again.lines(part), machine.lines(part));
            assert!(Machine::read(part, "").expect("nothing is right too").is_empty());
        }
    }

    #[test]
    fn lines_of_another_part_are_refused() {
        for (part, lines) in [
            (Part::Syslog, "set system option performance latency"),
            (Part::Snmp, "set service snmp contact a\nset interfaces wireguard wg0 mtu 1400"),
            (Part::Performance, "set system option performance fast"),
            (Part::Ip, "set system ipv6 forwarding"),
            (Part::Ip, "set system ip forwarding\nset system ip disable-forwarding"),
        ] {
            assert!(Machine::read(part, lines).is_err(), "{lines}");
        }
    }

    #[test]
    fn a_configuration_of_the_machine_alone_is_not_empty() {
        let tree = crate::parse("set system option performance latency").expect("right");
        assert!(!Settings::new(&tree).expect("right").0.is_empty());
    }
}
