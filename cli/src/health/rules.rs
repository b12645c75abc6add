//! The rules: a fact, what is wrong with it, how long before it is an alert, how bad it is, and what to do.

// All rules have one type, also those whose facts are always known.
#![allow(clippy::unnecessary_wraps)]

use super::Sight;
use gateway::api::model::{EngineState, OffloadState};
use gateway::facts::model::{Facts, Protocol, State, Tunnel};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Severity {
    /// Traffic is slower than it could be, or soon in danger.
    Warning,
    /// Traffic is lost.
    Critical,
}

impl Severity {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is wrong with one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Trouble {
    /// The thing: a tunnel, an interface, a thread.
    pub(super) subject: String,
    pub(super) sentence: String,
    /// What to type.
    pub(super) remedy: String,
}

impl Trouble {
    fn new(subject: impl Into<String>, sentence: String, remedy: impl Into<String>) -> Self {
        Self { subject: subject.into(), sentence, remedy: remedy.into() }
    }
}

/// What a rule says of the facts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "detail")]
pub(super) enum Verdict {
    Ok,
    Failing(Vec<Trouble>),
    /// Why it cannot be told.
    Unknown(String),
}

/// What is wrong, or why that is not known.
type Found = Result<Vec<Trouble>, String>;

/// A rule.
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// What is so if it fails.
    pub(super) about: &'static str,
    pub(super) severity: Severity,
    /// How long it must fail before it is an alert.
    pub(super) lasts: Duration,
    find: fn(&Sight) -> Found,
}

const fn rule(
    name: &'static str,
    severity: Severity,
    seconds: u64,
    about: &'static str,
    find: fn(&Sight) -> Found,
) -> Rule {
    Rule { name, about, severity, lasts: Duration::from_secs(seconds), find }
}

use Severity::{Critical, Warning};

/// All rules about facts.
pub(super) static RULES: &[Rule] = &[
    rule("tunnel-down", Critical, 10, "tunnels that should be up and are not", tunnel_down),
    rule("peer-never-seen", Warning, 300, "peers that have never completed a handshake", never_seen),
    rule("configuration-refused", Critical, 10, "parts of the configuration that are not in force", refused),
    rule("drops-rising", Warning, 10, "interfaces that drop 10 packets a second or more", drops_rising),
    rule("thread-busy", Warning, 30, "threads that use 95% of a processor", thread_busy),
    rule("engine-failed", Warning, 0, "crypto engines that have failed", engine_failed),
    rule("offload-failed", Warning, 0, "offloads that the kernel stopped to take", offload_failed),
    rule("processor-stolen", Warning, 30, "a hypervisor that takes 10% of the processors", stolen),
    rule("memory-low", Critical, 10, "less than 5% of the memory available", memory_low),
    rule("files-low", Critical, 10, "nine tenths of the file descriptors in use", files_low),
];

/// No daemon answers.
pub(super) static SILENT: Rule =
    rule("daemon-silent", Critical, 5, "a daemon that does not answer", |_| Ok(Vec::new()));

impl Rule {
    pub(super) fn check(&self, sight: &Sight) -> Verdict {
        match (self.find)(sight) {
            Ok(troubles) if troubles.is_empty() => Verdict::Ok,
            Ok(troubles) => Verdict::Failing(troubles),
            Err(why) => Verdict::Unknown(why),
        }
    }
}

fn name(tunnel: &Tunnel) -> String {
    let number = tunnel.tunnel.map(|number| format!(" {number}")).unwrap_or_default();
    format!("{} {}{number}", tunnel.interface, tunnel.peer.replace(char::is_control, "?"))
}

fn explain(tunnel: &Tunnel) -> String {
    match tunnel.protocol {
        Protocol::WireGuard => {
            format!("postern explain interfaces wireguard {} peer {}", tunnel.interface, tunnel.peer)
        }
        Protocol::Ipsec => format!("postern explain vpn ipsec peer {}", tunnel.peer),
        Protocol::OpenVpn => format!("postern explain openvpn {}", tunnel.interface),
    }
}

/// One trouble a tunnel; if all of several tunnels of an interface are down, one for the interface.
fn tunnel_down(sight: &Sight) -> Found {
    let mut interfaces: BTreeMap<&str, (Vec<&Tunnel>, usize)> = BTreeMap::new();
    for tunnel in &sight.now.tunnels {
        let (down, others) = interfaces.entry(&tunnel.interface).or_default();
        if tunnel.state == State::Down { down.push(tunnel) } else { *others += 1 }
    }
    let mut found = Vec::new();
    for (interface, (down, others)) in interfaces {
        if others == 0 && down.len() > 1 {
            let sentence = format!("All {} tunnels of {interface} are down.", down.len());
            found.push(Trouble::new(interface, sentence, explain(down[0])));
            continue;
        }
        let one =
            |it: &&Tunnel| Trouble::new(name(it), format!("The tunnel {} is down.", name(it)), explain(it));
        found.extend(down.iter().map(one));
    }
    Ok(found)
}

fn never_seen(sight: &Sight) -> Found {
    let is_unseen = |tunnel: &&Tunnel| tunnel.last_handshake.is_none() && tunnel.state == State::Waiting;
    let one = |tunnel: &Tunnel| {
        let sentence = format!("{} has never completed a handshake.", name(tunnel));
        Trouble::new(name(tunnel), sentence, explain(tunnel))
    };
    Ok(sight.now.tunnels.iter().filter(is_unseen).map(one).collect())
}

fn refused(sight: &Sight) -> Found {
    let sentence = match sight.now.daemon.refused_parts {
        0 => return Ok(Vec::new()),
        1 => "One part of the configuration is not in force.".to_owned(),
        count => format!("{count} parts of the configuration are not in force."),
    };
    Ok(vec![Trouble::new("configuration", sentence, "postern status")])
}

/// Packets a second that an interface drops for one reason, from which it is a trouble.
const DROPS: f64 = 10.0;

fn drops_rising(sight: &Sight) -> Found {
    let seconds = sight.seconds().ok_or("the daemon told facts of one moment only")?;
    let count = |facts: &'_ Facts| -> HashMap<(String, String), u64> {
        let each = facts
            .drops
            .iter()
            .map(|it| ((it.interface.clone(), it.reason.clone()), it.outbound + it.inbound + it.handshake));
        each.collect()
    };
    let before = count(&sight.before);
    let mut found = Vec::new();
    for ((interface, reason), now) in count(&sight.now) {
        let key = (interface, reason);
        let rate = now.saturating_sub(before.get(&key).copied().unwrap_or(now)) as f64 / seconds;
        if rate >= DROPS {
            let (interface, reason) = key;
            let sentence = format!("{interface} drops {rate:.0} packets a second as {reason}.");
            found.push(Trouble::new(format!("{interface} {reason}"), sentence, "postern show drops"));
        }
    }
    found.sort_by(|a, b| a.subject.cmp(&b.subject));
    Ok(found)
}

/// The part of a processor from which a thread has no reserve.
const BUSY: f64 = 0.95;

fn thread_busy(sight: &Sight) -> Found {
    let seconds = sight.seconds().ok_or("the daemon told facts of one moment only")?;
    let before: HashMap<u32, u64> = sight.before.threads.iter().map(|it| (it.id, it.nanoseconds)).collect();
    let one = |thread: &gateway::api::model::Thread| {
        let ran = thread.nanoseconds.saturating_sub(*before.get(&thread.id)?) as f64 / 1e9 / seconds;
        let sentence = format!("The thread {} uses {:.0}% of a processor.", thread.name, 100.0 * ran);
        (ran >= BUSY).then(|| Trouble::new(thread.name.clone(), sentence, "postern show bottleneck"))
    };
    Ok(sight.now.threads.iter().filter_map(one).collect())
}

fn engine_failed(sight: &Sight) -> Found {
    let failed = sight.now.engines.iter().filter(|engine| engine.state == EngineState::Failed);
    let one = |engine: &gateway::api::model::CryptoEngine| {
        let why = engine.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let sentence = format!("The engine {} has failed {} times{why}.", engine.name, engine.failures);
        Trouble::new(engine.name.clone(), sentence, "postern show crypto")
    };
    Ok(failed.map(one).collect())
}

fn offload_failed(sight: &Sight) -> Found {
    let failed = sight.now.offloads.iter().filter(|offload| offload.state == OffloadState::Failed);
    let one = |it: &gateway::api::model::Offload| {
        let subject = format!("{} {}", it.interface, it.offload);
        let sentence = format!("The kernel refuses the offload {} of {}.", it.offload, it.interface);
        Trouble::new(subject, sentence, "postern show offloads")
    };
    Ok(failed.map(one).collect())
}

/// The part of the processors that a hypervisor may take.
const STOLEN: f64 = 0.1;

fn stolen(sight: &Sight) -> Found {
    let stolen = sight.shares.ok_or("/proc/stat has no times of processors")?.stolen;
    let sentence = format!("The hypervisor takes {:.0}% of the processor time.", 100.0 * stolen);
    Ok((stolen >= STOLEN)
        .then(|| Trouble::new("processors", sentence, "postern show bottleneck"))
        .into_iter()
        .collect())
}

/// The part of the memory that should be available.
const MEMORY: f64 = 0.05;

fn memory_low(sight: &Sight) -> Found {
    let available = sight.available.clone()?;
    let sentence = format!("Only {:.1}% of the memory is available.", 100.0 * available);
    let low = (available < MEMORY).then(|| Trouble::new("memory", sentence, "postern show system processes"));
    Ok(low.into_iter().collect())
}

fn files_low(sight: &Sight) -> Found {
    let process = &sight.now.process;
    let open = process.open_files.ok_or("the daemon cannot read its folder in /proc")?;
    // Without a limit there is no trouble.
    let Some(most) = process.most_files else { return Ok(Vec::new()) };
    let sentence = format!("The daemon has {open} of at most {most} files open.");
    let low = open * 10 >= most * 9;
    Ok(low
        .then(|| Trouble::new("files", sentence, "systemctl edit postern: LimitNOFILE="))
        .into_iter()
        .collect())
}
