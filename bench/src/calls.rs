//! What the workers of two gateways ask of the kernel while packets pass from one to the other.

use crate::api::asked;
use crate::ceiling::counts_of;
use crate::report::{short, table};
use gateway::api::model::{Crypto, Worker, Workers};
use lab::Lab;
use lab::wireguard::{Gateway, Tunnel};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The calls of one worker in all rounds of a measurement.
#[derive(Debug, Serialize)]
pub struct Calls {
    /// The measurement.
    pub measurement: String,
    /// The daemon.
    pub daemon: String,
    /// The worker: `sender, out` or `receiver, in`.
    pub worker: &'static str,
    /// The engines that seal and open, and their versions, if the daemon tells them.
    pub engines: Vec<String>,
    /// Packets that it received; those that are segmented in the kernel or beyond it count as one each.
    pub packets: u64,
    /// Calls for each packet: those that receive, send and wait.
    pub calls_a_packet: f64,
    /// Bytes that a call received which found something.
    pub bytes_a_receive: f64,
    /// Bytes that a call sent.
    pub bytes_a_send: f64,
    /// Waits that ended, for a thousand packets.
    pub wake_ups: f64,
    /// Calls that found nothing (EAGAIN), for a thousand packets.
    pub empty: f64,
    /// Bursts by size: the most packets of a class, none for the last, and which part of all bursts are of it.
    pub bursts: Vec<(Option<u64>, f64)>,
}

/// Workers before a measurement: that of the sender, and that of the receiver.
pub(crate) struct Watch {
    sender: usize,
    before: [Worker; 2],
}

/// What the workers did in each round.
#[derive(Default)]
pub(crate) struct Counts {
    rounds: Vec<[Worker; 2]>,
    engines: Vec<String>,
}

/// The worker of each end, sender first.
const WORKERS: [(&str, &str); 2] = [("out", "sender, out"), ("in", "receiver, in")];

impl Watch {
    /// Reads the counters, if the daemon has some.
    pub(crate) fn start(lab: &Lab, tunnel: &Tunnel, sender: usize) -> Option<Self> {
        Some(Self { sender, before: read(lab, tunnel, sender)? })
    }

    /// What was counted since, and the engines.
    pub(crate) fn end(self, lab: &Lab, tunnel: &Tunnel) -> Option<([Worker; 2], Vec<String>)> {
        let mut after = read(lab, tunnel, self.sender)?;
        after.iter_mut().zip(&self.before).for_each(|(after, before)| take_off(after, before));
        Some((after, engines(&tunnel.gateways[self.sender]).unwrap_or_default()))
    }
}

impl Extend<([Worker; 2], Vec<String>)> for Counts {
    fn extend<T: IntoIterator<Item = ([Worker; 2], Vec<String>)>>(&mut self, rounds: T) {
        for (workers, engines) in rounds {
            self.rounds.push(workers);
            self.engines = engines;
        }
    }
}

impl Counts {
    /// The calls of both workers; none if the daemon counts nothing.
    pub(crate) fn finish(self, measurement: &str, daemon: &str) -> Vec<Calls> {
        let Self { rounds, engines } = self;
        let sum = |end: usize| {
            rounds.iter().map(|round| round[end].clone()).reduce(|mut sum, round| {
                add(&mut sum, &round);
                sum
            })
        };
        let ends = WORKERS.iter().enumerate();
        ends.filter_map(|(end, (_, worker))| Some(calls(&sum(end)?, worker, measurement, daemon, &engines)))
            .collect()
    }
}

fn calls(sum: &Worker, worker: &'static str, measurement: &str, daemon: &str, engines: &[String]) -> Calls {
    let of = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let bursts: u64 = sum.bursts.iter().map(|class| class.bursts).sum();
    Calls {
        measurement: measurement.to_owned(),
        daemon: daemon.to_owned(),
        worker,
        engines: engines.to_vec(),
        packets: sum.received_packets,
        calls_a_packet: of(sum.calls(), sum.received_packets),
        bytes_a_receive: of(sum.received_bytes, sum.receives - sum.empty_receives.min(sum.receives)),
        bytes_a_send: of(sum.sent_bytes, sum.sends),
        wake_ups: 1000.0 * of(sum.wake_ups, sum.received_packets),
        empty: 1000.0 * of(sum.empty_receives, sum.received_packets),
        bursts: sum.bursts.iter().map(|class| (class.packets, of(class.bursts, bursts))).collect(),
    }
}

/// The workers that carry packets from the gateway `sender` to the other one.
fn read(lab: &Lab, tunnel: &Tunnel, sender: usize) -> Option<[Worker; 2]> {
    let worker = |gateway: &Gateway, name: &str| {
        let all = workers(lab, gateway)?.workers.into_iter();
        // Those of further receiving threads have a number behind the name.
        let is_of =
            |it: &Worker| it.worker.split(' ').next() == Some(name) && it.interface == gateway.interface;
        all.filter(is_of).reduce(|mut sum, more| {
            add(&mut sum, &more);
            sum
        })
    };
    let [(out, _), (inbound, _)] = WORKERS;
    Some([worker(&tunnel.gateways[sender], out)?, worker(&tunnel.gateways[1 - sender], inbound)?])
}

/// All workers of a gateway: from its API, or from a ceiling.
pub(crate) fn workers(lab: &Lab, gateway: &Gateway) -> Option<Workers> {
    if let Ok(workers) = asked(Path::new(&socket(gateway)), "GET", "workers", "") {
        return serde_json::from_value(workers).ok();
    }
    let address = counts_of(&gateway.interface).ok()?;
    let mut ceiling = lab.enter(&gateway.namespace, || UnixStream::connect_addr(&address)).ok()?.ok()?;
    let mut text = String::new();
    ceiling.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// The engines that a gateway has chosen for its cipher, with their versions.
fn engines(gateway: &Gateway) -> Option<Vec<String>> {
    let crypto = asked(Path::new(&socket(gateway)), "GET", "crypto", "").ok()?;
    let crypto: Crypto = serde_json::from_value(crypto).ok()?;
    let places = crypto.ciphers.iter().flat_map(|cipher| &cipher.places);
    let chosen: BTreeSet<&String> = places.map(|place| &place.chosen).collect();
    let version = |name: &String| {
        let engine = crypto.engines.iter().find(|engine| engine.name == *name);
        engine
            .and_then(|engine| engine.version.clone())
            .map_or(String::new(), |version| format!(" ({version})"))
    };
    Some(chosen.into_iter().map(|name| format!("{name}{}", version(name))).collect())
}

fn socket(gateway: &Gateway) -> String {
    format!("{}/{}.sock", gateway::api::DIRECTORY, gateway.interface)
}

/// The counters of a worker, in one order.
fn counters(worker: &mut Worker) -> Vec<&mut u64> {
    let Worker {
        wake_ups,
        receives,
        empty_receives,
        received_packets,
        received_bytes,
        sends,
        sent_bytes,
        ..
    } = worker;
    let own = [wake_ups, receives, empty_receives, received_packets, received_bytes, sends, sent_bytes];
    own.into_iter().chain(worker.bursts.iter_mut().map(|class| &mut class.bursts)).collect()
}

fn take_off(after: &mut Worker, before: &Worker) {
    for (after, before) in counters(after).into_iter().zip(counters(&mut before.clone())) {
        *after = after.saturating_sub(*before);
    }
}

fn add(sum: &mut Worker, other: &Worker) {
    counters(sum).into_iter().zip(counters(&mut other.clone())).for_each(|(sum, other)| *sum += *other);
}

/// The calls as a table, and which engines the daemons had; empty if no daemon counts.
pub(crate) fn text(all: &[Calls]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let head = [
        "",
        "daemon",
        "worker",
        "calls/packet",
        "bytes/receive",
        "bytes/send",
        "wake-ups/1000",
        "EAGAIN/1000",
        "bursts of 1, 2, 4, 8, 16, 32, 64, more: %",
    ];
    let row = |calls: &Calls| {
        let bursts: Vec<String> =
            calls.bursts.iter().map(|(_, part)| format!("{:.0}", 100.0 * part)).collect();
        let figures =
            [calls.calls_a_packet, calls.bytes_a_receive, calls.bytes_a_send, calls.wake_ups, calls.empty];
        let words = [calls.measurement.clone(), calls.daemon.clone(), calls.worker.to_owned()];
        [&words[..], &figures.map(short), &[bursts.join(" ")]].concat()
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let mut engines: Vec<String> = all
        .iter()
        .filter(|calls| !calls.engines.is_empty())
        .map(|calls| format!("{} seals and opens with {}\n", calls.daemon, calls.engines.join(", ")))
        .collect();
    engines.sort();
    engines.dedup();
    format!("\n{}\n{}", table(&head, &rows), engines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::api::model::Bursts;

    fn worker(packets: u64) -> Worker {
        Worker {
            interface: "wg0".to_owned(),
            worker: "out".to_owned(),
            wake_ups: 1,
            receives: 3,
            empty_receives: 1,
            received_packets: packets,
            received_bytes: 100 * packets,
            sends: 2,
            sent_bytes: 150 * packets,
            bursts: vec![
                Bursts { packets: Some(1), bursts: packets },
                Bursts { packets: None, bursts: 3 * packets },
            ],
        }
    }

    #[test]
    fn calls_are_those_of_all_rounds() {
        let mut after = worker(30);
        take_off(&mut after, &worker(10));
        assert_eq!((after.wake_ups, after.received_packets, after.bursts[1].bursts), (0, 20, 60));
        let mut counts = Counts::default();
        counts
            .extend([([worker(4), worker(8)], Vec::new()), ([worker(6), worker(12)], vec!["x".to_owned()])]);
        let [sender, receiver] = &counts.finish("TCP", "postern")[..] else { panic!("two workers") };
        assert_eq!((sender.packets, receiver.packets, sender.worker), (10, 20, "sender, out"));
        let figures = [sender.calls_a_packet, sender.bytes_a_receive, sender.bytes_a_send, sender.wake_ups];
        assert_eq!(figures.map(short), [1.2, 250.0, 375.0, 200.0].map(short));
        assert_eq!(vec![sender.bursts[1]], [(None, 0.75)]);
        assert!(text(&[]).is_empty());
        assert!(Counts::default().finish("TCP", "other").is_empty());
    }
}
