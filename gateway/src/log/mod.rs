//! The log of the daemon: which events are logged, by subsystem; the last lines, in memory; and traces of one peer.
//!
//! ```text
//! event ──> its subsystem's level ──> standard error or the journal ──> also kept, for the API
//!      └──> a trace of its peer   ──> kept for the client of the trace only
//! ```
//! The subsystem of an event is the module that has logged it. The program that has the log asks [`is_on`] and [`is_traced`].

pub mod kept;
pub mod limit;
pub mod service;

use config::settings::{Log, LogLevel};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{PoisonError, RwLock};
use tracing::{Level, Metadata};

/// A part of the daemon with a level of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subsystem {
    /// WireGuard's handshakes and interfaces.
    WireGuard,
    /// IKE and IPsec.
    Ipsec,
    /// OpenVPN's control channel and interfaces.
    OpenVpn,
    /// Gateways between Ethernet ports.
    Secgw,
    /// Links, addresses, routes, rules and translation.
    Network,
    /// The API and the servers of HTTPS.
    Api,
    /// Everything else.
    Daemon,
}

impl Subsystem {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::WireGuard, Self::Ipsec, Self::OpenVpn, Self::Secgw, Self::Network, Self::Api, Self::Daemon];

    /// Its name in the configuration, in commands and in the journal.
    pub fn name(self) -> &'static str {
        match self {
            Self::WireGuard => "wireguard",
            Self::Ipsec => "ipsec",
            Self::OpenVpn => "openvpn",
            Self::Secgw => "secgw",
            Self::Network => "network",
            Self::Api => "api",
            Self::Daemon => "daemon",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subsystem| subsystem.name() == name)
    }

    /// The one of a module: `gateway::ipsec::jobs`.
    pub fn of(module: &str) -> Self {
        let mut words = module.split("::");
        match (words.next(), words.next()) {
            (Some("gateway"), Some("wireguard")) => Self::WireGuard,
            (Some("gateway"), Some("ipsec")) => Self::Ipsec,
            (Some("gateway"), Some("openvpn")) => Self::OpenVpn,
            (Some("gateway"), Some("secgw")) => Self::Secgw,
            (Some("gateway"), Some("host" | "router" | "nat" | "tunnel_interface")) | (Some("port"), _) => {
                Self::Network
            }
            (Some("gateway"), Some("api" | "https")) | (Some("https"), _) => Self::Api,
            _ => Self::Daemon,
        }
    }
}

/// A level as a number: 0 is the most urgent.
fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 0,
        Level::WARN => 1,
        Level::INFO => 2,
        Level::DEBUG => 3,
        Level::TRACE => 4,
    }
}

/// The level of each subsystem.
static LEVELS: [AtomicU8; Subsystem::ALL.len()] = [const { AtomicU8::new(2) }; Subsystem::ALL.len()];
/// The level where the configuration has none.
static USUAL: AtomicU8 = AtomicU8::new(2);

/// Sets the level where the configuration has none: the one of the environment.
pub fn set_usual(level: Level) {
    USUAL.store(number(level), Ordering::Relaxed);
    apply(&Log::default());
}

/// Sets the levels that the configuration has, from now on.
pub fn apply(log: &Log) {
    let number = |level: &LogLevel| match level {
        LogLevel::Error => 0,
        LogLevel::Warning => 1,
        LogLevel::Info => 2,
        LogLevel::Debug => 3,
    };
    let all = log.level.as_ref().map_or_else(|| USUAL.load(Ordering::Relaxed), number);
    for (subsystem, level) in Subsystem::ALL.into_iter().zip(&LEVELS) {
        level.store(log.subsystems.get(subsystem.name()).map_or(all, number), Ordering::Relaxed);
    }
}

/// Whether events like this one are logged.
pub fn is_on(metadata: &Metadata<'_>) -> bool {
    is_on_at(*metadata.level(), Subsystem::of(metadata.target()))
}

fn is_on_at(level: Level, subsystem: Subsystem) -> bool {
    number(level) <= LEVELS[subsystem as usize].load(Ordering::Relaxed)
}

/// The traced peers, each with its subsystem. A client has one trace at most, and there are eight clients.
static TRACES: RwLock<Vec<(Subsystem, String)>> = RwLock::new(Vec::new());
/// Whether there is a trace: events need not take the lock without one.
static ARE_TRACES: AtomicBool = AtomicBool::new(false);

/// A trace of one peer, which ends when this is dropped.
pub struct Trace(Subsystem, String);

impl Trace {
    /// From now on, all events of this peer are kept.
    pub fn begin(subsystem: Subsystem, peer: &str) -> Self {
        let mut traces = TRACES.write().unwrap_or_else(PoisonError::into_inner);
        traces.push((subsystem, peer.to_owned()));
        ARE_TRACES.store(true, Ordering::Relaxed);
        Self(subsystem, peer.to_owned())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let mut traces = TRACES.write().unwrap_or_else(PoisonError::into_inner);
        // Another client may trace the same.
        if let Some(place) = traces.iter().position(|(of, peer)| (*of, peer) == (self.0, &self.1)) {
            traces.swap_remove(place);
        }
        ARE_TRACES.store(!traces.is_empty(), Ordering::Relaxed);
    }
}

/// Whether an event like this one may belong to a trace; its peer decides.
pub fn may_be_traced(metadata: &Metadata<'_>) -> bool {
    ARE_TRACES.load(Ordering::Relaxed) && *metadata.level() <= Level::DEBUG && {
        let subsystem = Subsystem::of(metadata.target());
        let traces = TRACES.read().unwrap_or_else(PoisonError::into_inner);
        traces.iter().any(|(of, _)| *of == subsystem)
    }
}

/// Whether events of this peer are traced.
pub fn is_traced(subsystem: Subsystem, peer: &str) -> bool {
    ARE_TRACES.load(Ordering::Relaxed) && {
        let traces = TRACES.read().unwrap_or_else(PoisonError::into_inner);
        traces.iter().any(|(of, traced)| *of == subsystem && traced == peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_belongs_to_one_subsystem() {
        for (module, name) in [
            ("gateway::ipsec::ike_thread::report", "ipsec"),
            ("gateway::wireguard::served", "wireguard"),
            ("gateway::openvpn", "openvpn"),
            ("gateway::host::watch", "network"),
            ("port::tun", "network"),
            ("https::listen", "api"),
            ("gateway::ipsecx", "daemon"),
            ("postern::run", "daemon"),
            ("", "daemon"),
        ] {
            assert_eq!(Subsystem::of(module).name(), name, "{module}");
        }
        assert!(Subsystem::ALL.into_iter().all(|it| Subsystem::named(it.name()) == Some(it)));
        assert_eq!(Subsystem::ALL.map(Subsystem::name), config::schema::LOG_SUBSYSTEMS);
    }

    /// Both change what the whole process has: in one test.
    #[test]
    fn levels_and_traces_are_of_one_subsystem_and_end() {
        let debug = |subsystem| is_on_at(Level::DEBUG, subsystem);
        let mut log = Log::default();
        log.subsystems.insert("ipsec".to_owned(), LogLevel::Debug);
        log.subsystems.insert("openvpn".to_owned(), LogLevel::Error);
        apply(&log);
        assert!(debug(Subsystem::Ipsec) && !debug(Subsystem::WireGuard));
        assert!(!is_on_at(Level::WARN, Subsystem::OpenVpn) && is_on_at(Level::ERROR, Subsystem::OpenVpn));
        log.level = Some(LogLevel::Warning);
        apply(&log);
        assert!(!is_on_at(Level::INFO, Subsystem::Daemon) && debug(Subsystem::Ipsec));
        apply(&Log::default());
        assert!(!debug(Subsystem::Ipsec) && is_on_at(Level::INFO, Subsystem::Daemon));

        let first = Trace::begin(Subsystem::Ipsec, "berlin");
        let second = Trace::begin(Subsystem::Ipsec, "berlin");
        assert!(is_traced(Subsystem::Ipsec, "berlin") && !is_traced(Subsystem::Ipsec, "rome"));
        assert!(!is_traced(Subsystem::WireGuard, "berlin"));
        drop(first);
        assert!(is_traced(Subsystem::Ipsec, "berlin"), "another client traces it still");
        drop(second);
        assert!(!is_traced(Subsystem::Ipsec, "berlin") && !ARE_TRACES.load(Ordering::Relaxed));
    }
}
