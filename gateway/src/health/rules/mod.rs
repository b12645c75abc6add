//! The rules: a fact, what is wrong with it, how long before it is an alert, how bad it is, and what to do.
//!
//! ```text
//! facts.rs         the daemon: tunnels, drops, threads, engines, each second
//! accelerators.rs  QuickAssist devices, each half minute, as all below
//! machine.rs       processors, memory, counters of the kernel, the clock
//! configured.rs    what the configuration makes slow, and certificates
//! ```

mod accelerators;
mod configured;
mod facts;
mod machine;
mod tuned;

pub(crate) use facts::name;
pub(super) use tuned::tuned;

use super::model::Severity::{self, Critical, Warning};
use super::sight::{Seen, Sight};
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
    /// Names of devices and lines of the log may be of a machine that is not trusted: control characters are replaced.
    fn new(subject: impl Into<String>, sentence: String, remedy: impl Into<String>) -> Self {
        let plain = |text: String| {
            if text.contains(char::is_control) { text.replace(char::is_control, "?") } else { text }
        };
        Self { subject: plain(subject.into()), sentence: plain(sentence), remedy: plain(remedy.into()) }
    }
}

/// The verdict of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    Ok,
    Failing(Vec<Trouble>),
    /// The facts are missing, and why.
    Unknown(String),
    /// The configuration has switched it off.
    Disabled,
}

/// What is wrong, or why that is not known.
type Found = Result<Vec<Trouble>, String>;

/// The facts that a rule is about.
enum Find {
    /// Those of the daemon.
    Daemon(fn(&Sight<'_>, u32) -> Found),
    /// The machine and the configuration, which a copy of files has, too.
    Machine(fn(&Seen<'_>, u32) -> Found),
}

/// A rule.
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// What is wrong if it fails; `{}` stands for the threshold.
    about: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// How long it must fail before it is an alert.
    pub lasts: Duration,
    /// The number from which it fails, for a rule that has one.
    pub threshold: Option<u32>,
    find: Find,
}

const fn rule(name: &'static str, severity: Severity, seconds: u64, about: &'static str, find: Find) -> Rule {
    Rule { name, about, severity, lasts: Duration::from_secs(seconds), threshold: None, find }
}

impl Rule {
    const fn from(self, threshold: u32) -> Self {
        Self { threshold: Some(threshold), ..self }
    }

    /// What is wrong if it fails, with this threshold.
    pub fn about(&self, threshold: Option<u32>) -> String {
        self.about.replace("{}", &threshold.or(self.threshold).unwrap_or_default().to_string())
    }

    /// Whether it is about the machine, and not about the daemon.
    pub(super) fn is_of_machine(&self) -> bool {
        matches!(self.find, Machine(_))
    }

    pub(super) fn check(&self, sight: &Sight<'_>, threshold: Option<u32>) -> Verdict {
        match self.find {
            Daemon(find) => verdict(find(sight, self.number(threshold))),
            Machine(_) => self.check_machine(&sight.seen, threshold),
        }
    }

    /// The same without a daemon.
    pub(super) fn check_machine(&self, seen: &Seen<'_>, threshold: Option<u32>) -> Verdict {
        match self.find {
            Daemon(_) => Verdict::Unknown("no daemon was asked: only files were read".to_owned()),
            Machine(find) => verdict(find(seen, self.number(threshold))),
        }
    }

    fn number(&self, threshold: Option<u32>) -> u32 {
        threshold.or(self.threshold).unwrap_or_default()
    }
}

fn verdict(found: Found) -> Verdict {
    match found {
        Ok(troubles) if troubles.is_empty() => Verdict::Ok,
        Ok(troubles) => Verdict::Failing(troubles),
        Err(why) => Verdict::Unknown(why),
    }
}

/// A threshold in percent as a part of one.
fn part(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}

use Find::{Daemon, Machine};

/// All rules.
#[rustfmt::skip]
pub static RULES: &[Rule] = &[
    rule("tunnel-down", Critical, 10, "tunnels that should be up and are not", Daemon(facts::tunnel_down)),
    rule("peer-never-seen", Warning, 300, "peers that have never completed a handshake", Daemon(facts::never_seen)),
    rule("failover-down", Critical, 10, "groups of tunnels of which none is up", Daemon(facts::failover_down)),
    rule("failover-standby", Warning, 60, "groups of tunnels whose packets take another than the first", Daemon(facts::failover_standby)),
    rule("configuration-refused", Critical, 10, "parts of the configuration that are not in force", Daemon(facts::refused)),
    rule("drops-rising", Warning, 10, "interfaces that drop {} packets a second or more", Daemon(facts::drops_rising)).from(10),
    rule("thread-busy", Warning, 30, "threads that use {}% of a processor", Daemon(facts::thread_busy)).from(95),
    rule("path-loss", Warning, 30, "tunnels that lose {}% of their probes or more", Daemon(facts::path_loss)).from(10),
    rule("path-black-hole", Critical, 0, "tunnels that lose large packets only", Daemon(facts::black_hole)),
    rule("engine-failed", Warning, 0, "crypto engines that have failed", Daemon(facts::engine_failed)),
    rule("offload-failed", Warning, 0, "offloads that the kernel stopped to take", Daemon(facts::offload_failed)),
    rule("files-low", Critical, 10, "{}% of the file descriptors in use", Daemon(facts::files_low)).from(90),
    rule("processor-stolen", Warning, 30, "a hypervisor that takes {}% of the processors", Machine(machine::stolen)).from(10),
    rule("memory-low", Critical, 10, "less than {}% of the memory available", Machine(machine::memory_low)).from(5),
    rule("accelerator-absent", Warning, 60, "QuickAssist that is wanted, or that the processor has, and the bus does not show", Machine(accelerators::absent)),
    rule("accelerator-without-driver", Warning, 60, "QuickAssist devices without a driver", Machine(accelerators::without_driver)),
    rule("accelerator-without-firmware", Warning, 60, "QuickAssist devices whose firmware was not loaded", Machine(accelerators::without_firmware)),
    rule("accelerator-down", Warning, 60, "QuickAssist devices that are down", Machine(accelerators::down)),
    rule("accelerator-unused", Warning, 60, "QuickAssist that works, and that IPsec does not use", Machine(accelerators::unused)),
    rule("accelerator-heartbeat", Warning, 0, "QuickAssist devices whose firmware does not answer", Machine(accelerators::heartbeat)),
    rule("accelerator-overflow", Warning, 60, "QuickAssist devices that were asked for more than they have room for", Machine(accelerators::overflow)),
    rule("accelerator-error", Warning, 0, "QuickAssist devices with errors that cannot be corrected", Machine(accelerators::error)),
    rule("accelerator-memory", Warning, 60, "QuickAssist devices without memory", Machine(accelerators::memory)),
    rule("aes-missing", Warning, 60, "a processor without AES instructions", Machine(machine::aes_missing)),
    rule("processor-hot", Warning, 60, "temperatures at their limit", Machine(machine::hot)),
    rule("governor-slow", Warning, 60, "processors whose frequency stays low", Machine(machine::governor)),
    rule("backlog-drops", Warning, 60, "{} packets a second or more that found no room before a processor", Machine(machine::backlog)).from(10),
    rule("receive-buffer-full", Warning, 60, "{} datagrams a second or more that found no room in a socket", Machine(machine::receive_buffer)).from(10),
    rule("clock-unsynchronised", Warning, 300, "a clock that nothing keeps right", Machine(machine::clock)),
    rule("suite-slow", Warning, 60, "IPsec with CBC and a MAC where a device accelerates GCM", Machine(configured::suite_slow)),
    rule("detection-too-often", Warning, 60, "IPsec peers that are probed after less than {} seconds", Machine(configured::detection)).from(10),
    rule("mtu-too-large", Warning, 60, "tunnels whose packets are longer than the path", Machine(configured::mtu)),
    rule("offload-off", Warning, 60, "offloads that the configuration has switched off", Machine(configured::offloads)),
    rule("certificate-expiring", Warning, 60, "certificates that end within {} days", Machine(configured::certificates)).from(14),
];
