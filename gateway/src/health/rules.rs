//! The rules: a fact, what is wrong with it, how long before it is an alert, how bad it is, and what to do.

// All rules have one type, also those whose facts are always known.
#![allow(clippy::unnecessary_wraps)]

use super::model::Severity::{self, Critical, Warning};
use super::sight::{Sight, drops};
use crate::api::model::{CryptoEngine, EngineState, Offload, OffloadState, Thread};
use crate::facts::model::{Protocol, State, Tunnel};
use crate::path::model::{Mtu, Path, State as Reach};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is wrong with one thing.
#[derive(Clone, Debug, PartialEq)]
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
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    Ok,
    Failing(Vec<Trouble>),
    /// Why it cannot be told.
    Unknown(String),
    /// The configuration has switched it off.
    Disabled,
}

/// What is wrong, or why that is not known.
type Found = Result<Vec<Trouble>, String>;

/// A rule.
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// What is so if it fails; `{}` stands for the threshold.
    about: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// How long it must fail before it is an alert.
    pub lasts: Duration,
    /// The number from which it fails, for a rule that has one.
    pub threshold: Option<u32>,
    find: fn(&Sight<'_>, u32) -> Found,
}

const fn rule(
    name: &'static str,
    severity: Severity,
    seconds: u64,
    about: &'static str,
    find: fn(&Sight<'_>, u32) -> Found,
) -> Rule {
    Rule { name, about, severity, lasts: Duration::from_secs(seconds), threshold: None, find }
}

impl Rule {
    const fn from(self, threshold: u32) -> Self {
        Self { threshold: Some(threshold), ..self }
    }

    /// What is so if it fails from this threshold on.
    pub fn about(&self, threshold: Option<u32>) -> String {
        self.about.replace("{}", &threshold.or(self.threshold).unwrap_or_default().to_string())
    }

    pub(super) fn check(&self, sight: &Sight<'_>, threshold: Option<u32>) -> Verdict {
        match (self.find)(sight, threshold.or(self.threshold).unwrap_or_default()) {
            Ok(troubles) if troubles.is_empty() => Verdict::Ok,
            Ok(troubles) => Verdict::Failing(troubles),
            Err(why) => Verdict::Unknown(why),
        }
    }
}

/// All rules.
pub static RULES: &[Rule] = &[
    rule("tunnel-down", Critical, 10, "tunnels that should be up and are not", tunnel_down),
    rule("peer-never-seen", Warning, 300, "peers that have never completed a handshake", never_seen),
    rule("configuration-refused", Critical, 10, "parts of the configuration that are not in force", refused),
    rule("drops-rising", Warning, 10, "interfaces that drop {} packets a second or more", drops_rising)
        .from(10),
    rule("thread-busy", Warning, 30, "threads that use {}% of a processor", thread_busy).from(95),
    rule("path-loss", Warning, 30, "tunnels that lose {}% of their probes or more", path_loss).from(10),
    rule("path-black-hole", Critical, 0, "tunnels that lose large packets only", black_hole),
    rule("engine-failed", Warning, 0, "crypto engines that have failed", engine_failed),
    rule("offload-failed", Warning, 0, "offloads that the kernel stopped to take", offload_failed),
    rule("processor-stolen", Warning, 30, "a hypervisor that takes {}% of the processors", stolen).from(10),
    rule("memory-low", Critical, 10, "less than {}% of the memory available", memory_low).from(5),
    rule("files-low", Critical, 10, "{}% of the file descriptors in use", files_low).from(90),
];

/// The tunnel as alerts name it.
pub(crate) fn name(tunnel: &Tunnel) -> String {
    let number = tunnel.tunnel.map(|number| format!(" {number}")).unwrap_or_default();
    format!("{} {}{number}", tunnel.interface, tunnel.peer.replace(char::is_control, "?"))
}

fn explain(tunnel: &Tunnel) -> String {
    let peer = tunnel.peer.replace(char::is_control, "?");
    match tunnel.protocol {
        Protocol::WireGuard => {
            format!("postern explain interfaces wireguard {} peer {peer}", tunnel.interface)
        }
        Protocol::Ipsec => format!("postern explain vpn ipsec peer {peer}"),
        Protocol::OpenVpn => format!("postern explain openvpn {}", tunnel.interface),
    }
}

/// One trouble a tunnel; if all of several tunnels of an interface are down, one for the interface.
fn tunnel_down(sight: &Sight<'_>, _: u32) -> Found {
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

fn never_seen(sight: &Sight<'_>, _: u32) -> Found {
    let is_unseen = |tunnel: &&Tunnel| tunnel.last_handshake.is_none() && tunnel.state == State::Waiting;
    let one = |tunnel: &Tunnel| {
        let sentence = format!("{} has never completed a handshake.", name(tunnel));
        Trouble::new(name(tunnel), sentence, explain(tunnel))
    };
    Ok(sight.now.tunnels.iter().filter(is_unseen).map(one).collect())
}

fn refused(sight: &Sight<'_>, _: u32) -> Found {
    let sentence = match sight.now.daemon.refused_parts {
        0 => return Ok(Vec::new()),
        1 => "One part of the configuration is not in force.".to_owned(),
        count => format!("{count} parts of the configuration are not in force."),
    };
    Ok(vec![Trouble::new("configuration", sentence, "postern status")])
}

fn drops_rising(sight: &Sight<'_>, most: u32) -> Found {
    let (before, seconds) = sight.since()?;
    let mut found = Vec::new();
    for (key, now) in drops(sight.now) {
        let rate = now.saturating_sub(before.drops.get(&key).copied().unwrap_or(now)) as f64 / seconds;
        if rate >= f64::from(most) {
            let (interface, reason) = key;
            let sentence = format!("{interface} drops {rate:.0} packets a second as {reason}.");
            found.push(Trouble::new(format!("{interface} {reason}"), sentence, "postern show drops"));
        }
    }
    found.sort_by(|a, b| a.subject.cmp(&b.subject));
    Ok(found)
}

/// The part that a threshold in percent stands for.
fn part(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}

fn thread_busy(sight: &Sight<'_>, percent: u32) -> Found {
    let (before, seconds) = sight.since()?;
    let one = |thread: &Thread| {
        let before = before.threads.get(&thread.id)?;
        let ran = thread.nanoseconds.saturating_sub(*before) as f64 / 1e9 / seconds;
        let sentence = format!("The thread {} uses {:.0}% of a processor.", thread.name, 100.0 * ran);
        (ran >= part(percent)).then(|| Trouble::new(thread.name.clone(), sentence, "postern show bottleneck"))
    };
    Ok(sight.now.threads.iter().filter_map(one).collect())
}

/// Tunnels that are up and probed. One that is down is an alert of its own, and one that waits may be a traveller's.
fn probed<'a>(sight: &'a Sight<'_>) -> impl Iterator<Item = (&'a Tunnel, &'a Path)> {
    let up = sight.now.tunnels.iter().filter(|tunnel| tunnel.state == State::Up);
    up.filter_map(|tunnel| Some((tunnel, tunnel.path.as_deref()?)))
}

fn path_loss(sight: &Sight<'_>, percent: u32) -> Found {
    let one = |(tunnel, path): (&Tunnel, &Path)| {
        let loss = path.loss_ratio.filter(|loss| *loss >= part(percent))?;
        let name = name(tunnel);
        let sentence = if path.state == Reach::Silent {
            format!("{} does not answer through the tunnel {name}.", path.address)
        } else {
            format!("The tunnel {name} lost {:.0}% of its last probes.", 100.0 * loss)
        };
        Some(Trouble::new(name, sentence, "postern show path"))
    };
    Ok(probed(sight).filter_map(one).collect())
}

fn black_hole(sight: &Sight<'_>, _: u32) -> Found {
    let holes = probed(sight).filter(|(_, path)| path.mtu == Mtu::BlackHole);
    let one = |(tunnel, path): (&Tunnel, &Path)| {
        let sentence = match path.path_mtu_bytes {
            Some(size) => {
                format!(
                    "The tunnel {} loses packets of more than {size} bytes without an ICMP error.",
                    name(tunnel)
                )
            }
            None => format!("The tunnel {} loses all large packets without an ICMP error.", name(tunnel)),
        };
        let remedy = path.mtu_remedy.as_deref().unwrap_or("postern show path");
        Trouble::new(name(tunnel), sentence, remedy)
    };
    Ok(holes.map(one).collect())
}

fn engine_failed(sight: &Sight<'_>, _: u32) -> Found {
    let failed = sight.now.engines.iter().filter(|engine| engine.state == EngineState::Failed);
    let one = |engine: &CryptoEngine| {
        let why = engine.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        let sentence = format!("The engine {} has failed {} times{why}.", engine.name, engine.failures);
        Trouble::new(engine.name.clone(), sentence, "postern show crypto")
    };
    Ok(failed.map(one).collect())
}

fn offload_failed(sight: &Sight<'_>, _: u32) -> Found {
    let failed = sight.now.offloads.iter().filter(|offload| offload.state == OffloadState::Failed);
    let one = |it: &Offload| {
        let subject = format!("{} {}", it.interface, it.offload);
        let sentence = format!("The kernel refuses the offload {} of {}.", it.offload, it.interface);
        Trouble::new(subject, sentence, "postern show offloads")
    };
    Ok(failed.map(one).collect())
}

fn stolen(sight: &Sight<'_>, percent: u32) -> Found {
    let stolen = sight.shares.ok_or("/proc/stat has no times of processors yet")?.stolen;
    let sentence = format!("The hypervisor takes {:.0}% of the processor time.", 100.0 * stolen);
    let taken =
        (stolen >= part(percent)).then(|| Trouble::new("processors", sentence, "postern show bottleneck"));
    Ok(taken.into_iter().collect())
}

fn memory_low(sight: &Sight<'_>, percent: u32) -> Found {
    let available = sight.available.clone()?;
    let sentence = format!("Only {:.1}% of the memory is available.", 100.0 * available);
    let low = available < part(percent);
    Ok(low.then(|| Trouble::new("memory", sentence, "postern show system processes")).into_iter().collect())
}

fn files_low(sight: &Sight<'_>, percent: u32) -> Found {
    let process = &sight.now.process;
    let open = process.open_files.ok_or("the daemon cannot read its folder in /proc")?;
    // Without a limit there is no trouble.
    let Some(most) = process.most_files else { return Ok(Vec::new()) };
    let sentence = format!("The daemon has {open} of at most {most} files open.");
    let low = open as f64 >= most as f64 * part(percent);
    Ok(low
        .then(|| Trouble::new("files", sentence, "systemctl edit postern: LimitNOFILE="))
        .into_iter()
        .collect())
}
