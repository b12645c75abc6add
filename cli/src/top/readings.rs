//! Facts that are read again and again, as rows with rates and what came before.

use crate::output::printable;
use gateway::api::engine_of;
use gateway::api::model::CryptoCipher;
use gateway::bottleneck::{Processors, Shares};
use gateway::facts::model::{Facts, Protocol, State, Tunnel};
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

/// How many seconds a sparkline shows.
pub(super) const HISTORY: usize = 12;

/// What was read at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// The facts of each daemon, with its socket.
    pub(super) daemons: Vec<(PathBuf, Facts)>,
    /// The engine of each cipher.
    pub(super) ciphers: Vec<CryptoCipher>,
    pub(super) processors: Option<Processors>,
}

/// Whether a row is an interface with all of its peers, or one tunnel to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    #[default]
    Interface,
    Peer,
}

/// An interface, or a tunnel to a peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    /// Tells it from all others, also later.
    #[serde(skip)]
    pub(super) key: String,
    pub(super) kind: Kind,
    pub(super) interface: String,
    pub(super) protocol: Option<Protocol>,
    pub(super) peer: Option<String>,
    pub(super) tunnel: Option<u32>,
    pub(super) state: State,
    pub(super) engine: Option<String>,
    pub(super) received_bits_per_second: f64,
    pub(super) sent_bits_per_second: f64,
    /// Packets that were lost here: of an interface all that it dropped, of a peer those that were not sent.
    pub(super) lost_per_second: f64,
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
    /// Seconds since 1970.
    pub(super) last_handshake: Option<u64>,
    /// The round-trip time inside of a peer that is probed, and the part of the probes that was lost.
    pub(super) rtt_seconds: Option<f64>,
    pub(super) loss_ratio: Option<f64>,
    /// How many tunnels an interface has.
    pub(super) tunnels: usize,
    /// Bits a second, received and sent, the newest last.
    #[serde(skip)]
    pub(super) history: Vec<f64>,
    /// Lost so far.
    #[serde(skip)]
    pub(super) lost: u64,
}

/// How busy a thread is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Thread {
    pub(super) name: String,
    /// Of the time of one processor.
    pub(super) load: f64,
}

/// What is shown.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Moment {
    /// Seconds since 1970.
    pub(super) at: u64,
    /// Processors of this machine.
    pub(super) processors: Option<u64>,
    /// The part of their time that was not idle.
    pub(super) busy: Option<f64>,
    /// The part that a hypervisor took.
    pub(super) stolen: Option<f64>,
    /// Bytes of memory of the daemons.
    pub(super) resident_bytes: u64,
    /// The busiest first.
    pub(super) threads: Vec<Thread>,
    pub(super) rows: Vec<Row>,
    /// Daemons that began anew since the moment before.
    pub(super) restarted: Vec<PathBuf>,
    #[serde(skip)]
    pub(super) version: String,
    /// Seconds since 1970.
    #[serde(skip)]
    pub(super) started: u64,
    #[serde(skip)]
    pub(super) revision: Option<u64>,
}

/// What must be kept of a row to tell its rates later.
#[derive(Clone, Debug, Default)]
struct Past {
    bytes: [u64; 2],
    lost: u64,
    rates: [f64; 3],
    history: VecDeque<f64>,
}

/// The rates so far. Rows that are gone are forgotten.
#[derive(Debug, Default)]
pub(super) struct Readings {
    before: Option<Reading>,
    past: HashMap<String, Past>,
}

impl Readings {
    /// Adds what was read now.
    pub(super) fn add(&mut self, now: Reading) -> Moment {
        let before = self.before.take();
        let mut moment = Moment {
            at: now.daemons.iter().map(|(_, facts)| facts.at).max().unwrap_or_default(),
            resident_bytes: now.daemons.iter().filter_map(|(_, facts)| facts.process.resident_bytes).sum(),
            ..Moment::default()
        };
        let shares = |before: &Reading| -> Option<Shares> { now.processors?.since(before.processors?) };
        if let Some(shares) = before.as_ref().and_then(shares) {
            moment.processors = Some(shares.count);
            moment.busy = Some(1.0 - shares.idle);
            moment.stolen = Some(shares.stolen);
        }
        if let Some((_, facts)) = now.daemons.first() {
            (moment.version, moment.started) = (facts.daemon.version.clone(), facts.daemon.started);
            moment.revision = facts.daemon.revision;
        }
        let mut past = HashMap::with_capacity(self.past.len());
        for (socket, facts) in &now.daemons {
            let earlier = before.iter().flat_map(|it| &it.daemons).find(|(known, _)| known == socket);
            let earlier = earlier.map(|(_, facts)| facts);
            if earlier.is_some_and(|earlier| earlier.daemon.started != facts.daemon.started) {
                moment.restarted.push(socket.clone());
            }
            let earlier = earlier.filter(|earlier| earlier.daemon.started == facts.daemon.started);
            // The same snapshot: what was told of it still holds.
            let seconds = earlier.map(|it| facts.moment.saturating_sub(it.moment) as f64 / 1000.0);
            for mut row in rows(&socket.to_string_lossy(), facts, &now.ciphers) {
                let earlier = self.past.remove(&row.key).filter(|_| seconds.is_some());
                past.insert(row.key.clone(), with_rates(&mut row, earlier, seconds.unwrap_or_default()));
                moment.rows.push(row);
            }
            moment.threads.extend(earlier.map(|it| threads(it, facts)).unwrap_or_default());
        }
        moment.threads.sort_by(|a, b| b.load.total_cmp(&a.load).then_with(|| a.name.cmp(&b.name)));
        (self.before, self.past) = (Some(now), past);
        moment
    }
}

/// Writes its rates into a row; `seconds` have passed since `past`.
fn with_rates(row: &mut Row, past: Option<Past>, seconds: f64) -> Past {
    let known = past.is_some();
    let mut past = past.unwrap_or_default();
    let bytes = [row.received_bytes, row.sent_bytes];
    if known && seconds > 0.0 {
        // A peer that was removed and added counts anew.
        let rate = |now: u64, then: u64| now.checked_sub(then).unwrap_or(now) as f64 / seconds;
        let [received, sent] = [0, 1].map(|at| 8.0 * rate(bytes[at], past.bytes[at]));
        past.rates = [received, sent, rate(row.lost, past.lost)];
        past.history.push_back(received + sent);
        while past.history.len() > HISTORY {
            past.history.pop_front();
        }
    }
    if !known || seconds > 0.0 {
        (past.bytes, past.lost) = (bytes, row.lost);
    }
    [row.received_bits_per_second, row.sent_bits_per_second, row.lost_per_second] = past.rates;
    row.history = past.history.iter().copied().collect();
    past
}

/// The interfaces of a daemon and their tunnels, without rates.
fn rows(socket: &str, facts: &Facts, ciphers: &[CryptoCipher]) -> Vec<Row> {
    let mut interfaces: Vec<Row> = Vec::new();
    let mut at: HashMap<&str, usize> = HashMap::new();
    let mut of = |interfaces: &mut Vec<Row>, name| {
        *at.entry(name).or_insert_with(|| {
            let key = format!("{socket}\0{name}");
            interfaces.push(Row { key, interface: name.to_owned(), ..Row::default() });
            interfaces.len() - 1
        })
    };
    for worker in &facts.workers {
        of(&mut interfaces, &worker.interface);
    }
    let mut peers = Vec::with_capacity(facts.tunnels.len());
    let mut engines: HashMap<&str, Option<String>> = HashMap::new();
    for tunnel in &facts.tunnels {
        let suite = tunnel.suite.as_deref().unwrap_or_default();
        let engine = engines.entry(suite).or_insert_with(|| engine_of(suite, ciphers)).clone();
        let index = of(&mut interfaces, &tunnel.interface);
        add(&mut interfaces[index], tunnel, engine.as_ref());
        peers.push(peer(socket, tunnel, engine));
    }
    for drop in &facts.drops {
        let index = of(&mut interfaces, &drop.interface);
        interfaces[index].lost += drop.outbound + drop.inbound + drop.handshake;
    }
    interfaces.into_iter().chain(peers).collect()
}

fn peer(socket: &str, tunnel: &Tunnel, engine: Option<String>) -> Row {
    let number = tunnel.tunnel.map(|number| number.to_string()).unwrap_or_default();
    let key = [socket, &tunnel.interface, tunnel.protocol.name(), &tunnel.peer, &number].join("\0");
    Row {
        key,
        kind: Kind::Peer,
        interface: tunnel.interface.clone(),
        protocol: Some(tunnel.protocol),
        peer: Some(tunnel.peer.clone()),
        tunnel: tunnel.tunnel,
        state: tunnel.state,
        engine,
        received_bytes: tunnel.received_bytes,
        sent_bytes: tunnel.sent_bytes,
        last_handshake: tunnel.last_handshake,
        rtt_seconds: tunnel.path.as_ref().and_then(|path| path.rtt_seconds),
        loss_ratio: tunnel.path.as_ref().and_then(|path| path.loss_ratio),
        lost: tunnel.unsent_packets.unwrap_or_default(),
        ..Row::default()
    }
}

/// Counts a tunnel among those of its interface: one that is down is what its state tells, then one that is up.
fn add(interface: &mut Row, tunnel: &Tunnel, engine: Option<&String>) {
    interface.tunnels += 1;
    interface.protocol = Some(tunnel.protocol);
    interface.received_bytes += tunnel.received_bytes;
    interface.sent_bytes += tunnel.sent_bytes;
    interface.last_handshake = interface.last_handshake.max(tunnel.last_handshake);
    interface.engine = interface.engine.take().or(engine.cloned());
    interface.state = match (interface.state, tunnel.state) {
        (State::Down, _) | (_, State::Down) => State::Down,
        (State::Up, _) | (_, State::Up) => State::Up,
        _ => State::Waiting,
    };
}

fn threads(before: &Facts, now: &Facts) -> Vec<Thread> {
    let nanoseconds = now.moment.saturating_sub(before.moment) as f64 * 1e6;
    let known: HashMap<u32, u64> = before.threads.iter().map(|it| (it.id, it.nanoseconds)).collect();
    let load = |thread: &gateway::api::model::Thread| {
        let ran = thread.nanoseconds.saturating_sub(*known.get(&thread.id)?) as f64;
        Some(Thread {
            name: thread.name.clone(),
            load: if nanoseconds > 0.0 { ran / nanoseconds } else { 0.0 },
        })
    };
    now.threads.iter().filter_map(load).collect()
}

impl Row {
    /// Its name: of a peer the interface before it, and the number of its tunnel behind it.
    pub(super) fn name(&self) -> String {
        let mut name = self.interface.clone();
        if let Some(peer) = &self.peer {
            // A certificate may name a client with characters that a terminal obeys.
            name = name + " " + &printable(peer);
        }
        if let Some(tunnel) = self.tunnel {
            name = format!("{name} {tunnel}");
        }
        name
    }

    pub(super) fn protocol(&self) -> &'static str {
        self.protocol.map_or("", Protocol::name)
    }
}
