//! What the workers count: by port, by SA, by policy, and by the reason of a drop.

use super::policies::Policies;
use super::tables::{Installed, SecgwTables};
use super::worker::Worker;
use super::{lifetimes, model};
use crate::clock::Clock;
use arc_swap::ArcSwap;
use config::secgw::settings::{Action, Direction};
use packet::{Batch, DropCounters, DropReason};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tunnel::Time;

/// What DPDK counts for all queues of a port: each queue says the same.
const OF_THE_PORT: [&str; 4] = ["rx_errors", "rx_missed", "rx_no_buffer", "tx_errors"];

/// The frames of a port, counted by the workers.
pub struct PortCounters {
    number: u16,
    name: String,
    is_protected: bool,
    received: [AtomicU64; 2],
    sent: [AtomicU64; 2],
    /// What the driver and the kernel count, as it was at the last look.
    driver: Mutex<Vec<(&'static str, u64)>>,
}

impl PortCounters {
    /// No frames.
    pub fn new(number: u16, name: &str, is_protected: bool) -> Self {
        let (received, sent, driver) = Default::default();
        Self { number, name: name.to_owned(), is_protected, received, sent, driver }
    }

    /// Counts received frames.
    pub fn received(&self, batch: &Batch) {
        let bytes: usize = batch.live(0..batch.len()).map(|index| batch.packet(index).len()).sum();
        self.received[0].fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.received[1].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts all frames of a batch that were sent.
    pub fn sent_all(&self, batch: &Batch) {
        let lengths = batch.live(0..batch.len()).map(|index| batch.packet(index).len());
        let (frames, bytes) = lengths.fold((0, 0), |(frames, bytes), length| (frames + 1, bytes + length));
        self.sent(frames, bytes);
    }

    /// Notes what the driver counts.
    pub fn note(&self, counters: Vec<(&'static str, u64)>) {
        *self.driver.lock().unwrap_or_else(PoisonError::into_inner) = counters;
    }

    /// Counts sent frames.
    pub fn sent(&self, frames: usize, bytes: usize) {
        self.sent[0].fetch_add(frames as u64, Ordering::Relaxed);
        self.sent[1].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The port, as all workers count it.
    fn show(&self, all: &[&Self]) -> model::Port {
        let sum = |of: fn(&Self) -> &AtomicU64| all.iter().map(|it| of(it).load(Ordering::Relaxed)).sum();
        let (received, received_bytes) = (sum(|it| &it.received[0]), sum(|it| &it.received[1]));
        let (sent, sent_bytes) = (sum(|it| &it.sent[0]), sum(|it| &it.sent[1]));
        let mut driver = BTreeMap::<String, u64>::new();
        for port in all {
            for &(name, count) in &*port.driver.lock().unwrap_or_else(PoisonError::into_inner) {
                let sum = driver.entry(name.to_owned()).or_default();
                *sum = if OF_THE_PORT.contains(&name) { count.max(*sum) } else { *sum + count };
            }
        }
        let (number, interface, is_protected) = (self.number, self.name.clone(), self.is_protected);
        model::Port { number, interface, is_protected, received, received_bytes, sent, sent_bytes, driver }
    }
}

/// The file in force, and how often it was read again.
#[derive(Clone, Default)]
pub(super) struct Origin {
    pub(super) file: String,
    pub(super) reloads: u64,
}

/// What one worker counts: no other thread writes to it.
pub(super) struct WorkerCounters {
    /// The lcore of the worker.
    pub(super) lcore: u32,
    /// Drops of packets that belong to no SA.
    pub(super) drops: Arc<DropCounters>,
    /// The frames of its ports.
    pub(super) ports: Vec<PortCounters>,
    /// Packets that it put together from fragments.
    pub(super) reassembled: AtomicU64,
}

/// The counters of a gateway; they are printed as tables.
pub struct Statistics {
    pub(super) tables: Arc<ArcSwap<SecgwTables>>,
    workers: Vec<Arc<WorkerCounters>>,
    /// Drops of SAs that are no longer there.
    pub(super) gone: DropCounters,
    /// Held while counters move from tables to those that take their place.
    pub(super) origin: Mutex<Origin>,
}

impl Statistics {
    /// What the workers of a gateway count, for another thread.
    ///
    /// # Panics
    /// There is no worker.
    pub fn of(workers: &[Worker]) -> Self {
        Self {
            tables: workers[0].shared_tables(),
            workers: workers.iter().map(Worker::counters).collect(),
            gone: DropCounters::default(),
            origin: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Origin> {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packets dropped for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        let by_sas: u64 = self.tables.load().sas.iter().map(|sa| sa.drops.read(reason)).sum();
        let by_workers: u64 = self.workers.iter().map(|worker| worker.drops.read(reason)).sum();
        by_workers + self.gone.read(reason) + by_sas
    }

    /// What is new about the ends of SAs, as sentences for the log: each is said once.
    pub fn news(&self) -> Vec<String> {
        lifetimes::news(&self.tables.load_full())
    }

    /// The ports, each with the counters of all workers.
    fn ports(&self) -> impl Iterator<Item = (&PortCounters, Vec<&PortCounters>)> {
        let of_all = |place: usize| self.workers.iter().map(|worker| &worker.ports[place]).collect();
        self.workers[0].ports.iter().enumerate().map(move |(place, port)| (port, of_all(place)))
    }

    /// All counters.
    pub fn show(&self) -> model::Secgw {
        let (origin, now) = (self.lock(), Clock.monotonic());
        let tables = self.tables.load_full();
        let mut sas: Vec<&Installed> = tables.sas.iter().collect();
        sas.sort_by_key(|sa| sa.line);
        let neighbour = |(port, address): (&PortCounters, &[u8; 6])| model::Neighbour {
            port: port.number,
            interface: port.name.clone(),
            address: address.map(|byte| format!("{byte:02x}")).join(":"),
        };
        model::Secgw {
            file: origin.file.clone(),
            reloads: origin.reloads,
            ports: self.ports().map(|(port, all)| port.show(&all)).collect(),
            lcores: self.workers.iter().map(|worker| lcore(worker)).collect(),
            reassembled: self.workers.iter().map(|it| it.reassembled.load(Ordering::Relaxed)).sum(),
            sas: sas.into_iter().map(|installed| sa(installed, now)).collect(),
            rules: [("out", &tables.policies_out), ("in", &tables.policies_in)]
                .into_iter()
                .flat_map(|(direction, policies)| rules(direction, policies, &tables.ike_peers))
                .collect(),
            drops: drops(|reason| self.dropped(reason)),
            neighbours: self.workers[0].ports.iter().zip(&tables.neighbours).map(neighbour).collect(),
            ike: Vec::new(),
        }
    }
}

fn lcore(worker: &WorkerCounters) -> model::Lcore {
    let sum = |of: fn(&PortCounters) -> &AtomicU64| {
        worker.ports.iter().map(|port| of(port).load(Ordering::Relaxed)).sum()
    };
    model::Lcore { number: worker.lcore, received: sum(|it| &it.received[0]), sent: sum(|it| &it.sent[0]) }
}

fn sa(sa: &Installed, now: Time) -> model::Sa {
    let traffic = match sa.direction {
        Direction::Outbound => &sa.peer.sent,
        Direction::Inbound => &sa.peer.received,
    };
    model::Sa {
        direction: sa.direction.word().to_owned(),
        spi: sa.spi,
        algorithms: sa.algorithms.clone(),
        line: sa.line,
        packets: traffic.packets(),
        bytes: traffic.bytes(),
        drops: drops(|reason| sa.drops.read(reason)),
        lifetime: sa.ends.left(&sa.numbers, now),
    }
}

fn rules(direction: &str, policies: &Policies, ike_peers: &[String]) -> Vec<model::Rule> {
    let rule = |line, action: String, (packets, bytes)| {
        let direction = direction.to_owned();
        model::Rule { direction, line, action, packets, bytes }
    };
    let mut rules: Vec<model::Rule> = policies
        .counts()
        .map(|(line, action, traffic)| {
            let action = match action {
                Action::Protect(spi) => format!("protect {spi}"),
                Action::Ike(peer) => format!("ike {}", ike_peers[usize::from(peer)]),
                Action::Bypass => "bypass".to_owned(),
                Action::Discard => "discard".to_owned(),
            };
            rule(Some(line), action, traffic)
        })
        .collect();
    let unmatched = policies.unmatched();
    if unmatched != (0, 0) {
        rules.push(rule(None, "no match".to_owned(), unmatched));
    }
    rules
}

fn drops(read: impl Fn(DropReason) -> u64) -> Vec<model::Drop> {
    let drops = DropReason::ALL.iter().map(|&reason| model::Drop {
        reason: reason.name().to_owned(),
        meaning: reason.sentence().to_owned(),
        packets: read(reason),
    });
    drops.filter(|drop| drop.packets > 0).collect()
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.show();
        for port in &shown.ports {
            let model::Port { number, interface, received, received_bytes, sent, sent_bytes, .. } = port;
            writeln!(
                f,
                "port {number} {interface}: received {received} frames, {received_bytes} bytes; sent {sent} frames, {sent_bytes} bytes"
            )?;
            for (name, count, meaning) in port.counted() {
                writeln!(f, "port {number} {interface}: {name} {count} ({meaning})")?;
            }
        }
        if let lcores @ [_, _, ..] = &shown.lcores[..] {
            for model::Lcore { number, received, sent } in lcores {
                writeln!(f, "lcore {number}: received {received} frames; sent {sent} frames")?;
            }
        }
        if shown.reassembled > 0 {
            writeln!(f, "{}", shown.reassembled_text())?;
        }
        for sa in &shown.sas {
            let model::Sa { direction, spi, algorithms, packets, bytes, .. } = sa;
            write!(f, "sa {direction} {spi} {algorithms}: {packets} packets, {bytes} bytes")?;
            for drop in &sa.drops {
                write!(f, "; {} {}", drop.packets, drop.reason)?;
            }
            if let Some(left) = &sa.lifetime {
                write!(f, "; {}", if left.has_ended { "ended".to_owned() } else { left.text() + " left" })?;
            }
            writeln!(f)?;
        }
        for model::Rule { direction, line, action, packets, bytes } in &shown.rules {
            let line = line.map(|line| format!("line {line}, ")).unwrap_or_default();
            writeln!(f, "sp {direction}, {line}{action}: {packets} packets, {bytes} bytes")?;
        }
        for drop in &shown.drops {
            writeln!(f, "dropped {}: {} ({})", drop.reason, drop.packets, drop.meaning)?;
        }
        Ok(())
    }
}
