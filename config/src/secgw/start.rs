//! What ipsec-secgw checks after it has read its words and its file: the errors at start, in its order.

use super::Context;
use super::application::{self, Application};
use super::cores::{self, Cores};
use super::eal::{self, Eal};
use super::finding::Finding;
use super::settings::{Action, Direction, Family, Policy, Route, Sa, Settings};
use std::collections::{BTreeMap, BTreeSet};

/// The priorities that `rte_acl` takes.
const PRIORITIES: std::ops::RangeInclusive<i32> = 1..=(1 << 29) - 1;
/// The most queues of an lcore.
const MOST_QUEUES: usize = 16;

/// A command line: the words of EAL, `--`, and those of ipsec-secgw.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// The words of EAL.
    pub eal: Eal,
    /// The words of ipsec-secgw.
    pub application: Application,
    /// Words that have no effect, or another one than they seem to have.
    pub findings: Vec<Finding>,
    /// The lcores: those of the words of EAL, or each processor.
    pub cores: Cores,
}

impl CommandLine {
    /// Reads the words behind the name of the program, on a machine with so many processors.
    ///
    /// # Errors
    /// The first word that ipsec-secgw refuses, or that needs what Postern does not have.
    pub fn read(words: &[String], processors: u32) -> Result<Self, Finding> {
        let end = words.iter().position(|word| word == "--");
        let (before, behind) = words.split_at(end.unwrap_or(words.len()));
        let mut findings = Vec::new();
        let eal = eal::read(before, &mut findings)?;
        let application = application::read(behind.get(1..).unwrap_or_default(), &mut findings)?;
        let cores = eal.cores.clone().unwrap_or_else(|| cores::each(0..processors.min(cores::MOST)));
        Ok(Self { eal, application, findings, cores })
    }

    /// What of it decides how lines of the file are read.
    pub fn context(&self, strict: bool) -> Context {
        let queues = self.application.queues.as_ref();
        let queues = queues.map(|queues| queues.iter().map(|entry| (entry.port, entry.queue)).collect());
        Context { library: Some(self.application.library), queues, strict }
    }

    /// Whether a port is one of `-p`.
    pub(super) fn has_port(&self, port: u16) -> bool {
        u32::from(port) < u32::BITS && self.application.ports >> port & 1 == 1
    }
}

/// All errors at start.
pub(super) fn check(settings: &Settings, command_line: Option<&CommandLine>, strict: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(command_line) = command_line {
        ports(settings, command_line, &mut findings);
        addresses(command_line, strict, &mut findings);
        queues(command_line, &mut findings);
    }
    findings.extend(settings.sas.iter().filter_map(hardware));
    if command_line.is_some_and(|command_line| command_line.application.library) {
        findings.extend(settings.sas.iter().filter_map(|sa| library(settings, sa)));
    }
    for family in Family::ALL {
        for direction in Direction::ALL {
            let policies = || settings.policies_of(family, direction);
            findings.extend(policies().filter_map(|policy| spi(settings, policy)));
            findings.extend(policies().filter_map(priority));
            findings.extend(policies().filter(|_| strict).filter_map(ike));
        }
        let routes = settings.routes.iter().filter(|route| route.family == family);
        findings.extend(routes.enumerate().filter_map(|(index, route)| prefix(index, route, strict)));
    }
    findings
}

fn ports(settings: &Settings, command_line: &CommandLine, findings: &mut Vec<Finding>) {
    let Application { ports, unprotected, single_sa, .. } = command_line.application;
    if unprotected & !ports != 0 {
        let message = format!("Invalid unprotected portmask {unprotected:#x}");
        findings.push(refuse(message, format!("-u names ports of -p, which is {ports:#x}")));
    }
    let has_inbound = settings.sas.iter().any(|sa| sa.direction == Direction::Inbound);
    if unprotected != 0 && !has_inbound && settings.ike_peers.is_empty() {
        let message = "Cannot use unprotected portmask without configured SA inbound";
        findings.push(refuse(message, "add a line sa in, or delete -u"));
    }
    let outbound = settings.sas.iter().filter(|sa| sa.direction == Direction::Outbound).count();
    if let Some(index) = single_sa.filter(|&index| index as usize >= outbound) {
        let message = format!("--single-sa {index}: the file has {outbound} outbound SAs");
        findings.push(refuse(
            message,
            "the index counts outbound SAs in the order of SPIs, from 0; ipsec-secgw reads foreign memory",
        ));
    }
}

fn addresses(command_line: &CommandLine, strict: bool, findings: &mut Vec<Finding>) {
    let addresses = &command_line.application.addresses;
    if strict && !addresses.is_empty() {
        let message = "unrecognized option '--address'";
        findings.push(refuse(message, "without --strict, Postern answers ARP for the addresses"));
    }
    if let Some((port, address)) = addresses.iter().find(|(port, _)| !command_line.has_port(*port)) {
        let message = format!("--address ({port},{address}): port {port} is not one of -p");
        findings.push(refuse(message, "name a port of -p"));
    }
}

fn queues(command_line: &CommandLine, findings: &mut Vec<Finding>) {
    let Some(queues) = &command_line.application.queues else {
        findings.push(refuse(
            "Error: No port/queue/core mappings",
            "write --config (port,queue,lcore) for each queue",
        ));
        return;
    };
    let present = command_line.eal.ports().count();
    let mut taken: BTreeMap<u32, usize> = BTreeMap::new();
    let mut told = BTreeSet::new();
    for entry in queues {
        let (port, core) = (entry.port, entry.core);
        let error = if !command_line.cores.contains_key(&core) {
            Some((
                format!("error: lcore {core} is not enabled in lcore mask"),
                "name an lcore of -l, -c or --lcores",
            ))
        } else if !command_line.has_port(port) {
            Some((format!("port {port} is not enabled in port mask"), "name a port of -p"))
        } else if usize::from(port) >= present && command_line.eal.dpdk.is_none() {
            let fix = "ports are counted in the order of --vdev, such as --vdev net_af_xdp0,iface=NAME";
            Some((format!("port {port} is not present on the board"), fix))
        } else {
            None
        };
        if let Some((message, fix)) = error
            && told.insert(message.clone())
        {
            findings.push(refuse(message, fix));
        }
        let count = taken.entry(core).or_default();
        *count += 1;
        if *count == MOST_QUEUES + 1 {
            let message = format!("error: too many queues ({count}) for lcore: {core}");
            findings.push(refuse(message, format!("an lcore takes at most {MOST_QUEUES} queues")));
        }
    }
}

/// An SA that is for hardware that Postern does not have.
fn hardware(sa: &Sa) -> Option<Finding> {
    (!sa.offload.is_software()).then(|| {
        let text =
            format!("type {} needs hardware that does IPsec, which Postern does not have", sa.offload.word());
        Finding::error(
            sa.line,
            "hardware",
            text,
            "write type no-offload, or delete type and port_id: Postern encrypts in software",
        )
    })
}

/// With `-l` each SA takes its next header from its policies, which are of one family therefore.
fn library(settings: &Settings, sa: &Sa) -> Option<Finding> {
    let has = |family| {
        settings.policies_of(family, sa.direction).any(|policy| policy.action == Action::Protect(sa.spi))
    };
    let (spi, word) = (sa.spi, sa.direction.word());
    let (message, fix) = match (has(Family::V4), has(Family::V6)) {
        (true, true) => (
            format!("SPI {spi} used simultaneously by IPv4 and IPv6 SP rules"),
            "give each family an SA of its own, or delete -l and what implies it".to_owned(),
        ),
        (false, false) => (
            format!("SPI {spi} is not used by any SP rule"),
            format!(
                "add a line sp {word} with protect {spi}, delete the SA, or delete -l and what implies it"
            ),
        ),
        _ if !sa.protection.is_in_library() => (
            format!("failed to init SAs: librte_ipsec has no {}", sa.protection.name()),
            "choose another algorithm".to_owned(),
        ),
        _ => return None,
    };
    Some(Finding::error(sa.line, "library-mode", message, fix))
}

fn spi(settings: &Settings, policy: &Policy) -> Option<Finding> {
    let Action::Protect(spi) = policy.action else { return None };
    if settings.sas_with(policy.direction, spi).next().is_some() {
        return None;
    }
    let word = policy.direction.word();
    let fix = format!("add a line sa {word} {spi}, or correct the SPI");
    Some(Finding::error(policy.line, "spi-missing", format!("SPI {spi} is not present in SAD"), fix))
}

/// With `--strict`, what only Postern takes.
fn ike(policy: &Policy) -> Option<Finding> {
    let Action::Ike(_) = policy.action else { return None };
    let message = "unrecognizable input \"ike\"";
    Some(Finding::error(
        policy.line,
        "ike",
        message,
        "write esp protect SPI; without --strict, Postern takes ike",
    ))
}

fn priority(policy: &Policy) -> Option<Finding> {
    if PRIORITIES.contains(&policy.priority) {
        return None;
    }
    let message = format!("add rules failed: pri is {}", policy.priority as u32);
    let fix = format!("write pri with a number from 1 to {}; the larger one wins", PRIORITIES.end());
    Some(Finding::error(policy.line, "priority", message, fix))
}

/// A route that the table of routes refuses.
fn prefix(index: usize, route: &Route, strict: bool) -> Option<Finding> {
    let bits = route.family.bits();
    if route.is_default() && !strict {
        let text = "a default route: ipsec-secgw refuses it, Postern takes it";
        return Some(Finding::note(route.line, "default-route", text, ""));
    }
    if (1..=bits).contains(&route.length.unwrap_or(0)) {
        return None;
    }
    let table = if route.family == Family::V4 { "rt_ip4_0" } else { "rt_ip6_0" };
    let message = format!("Fail to add entry num {index} to {table} LPM table on socket 0");
    let fix = match route.length {
        None => format!("write the destination with its prefix length, such as dst {}/{bits}", route.address),
        Some(_) if route.address.is_unspecified() => {
            format!("a prefix length is 1 to {bits}; without --strict, Postern takes a default route")
        }
        Some(_) => format!("a prefix length is 1 to {bits}"),
    };
    Some(Finding::error(route.line, "route-prefix", message, fix))
}

fn refuse(message: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding::error(None, "command-line", message, fix)
}
