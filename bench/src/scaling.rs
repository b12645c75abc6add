//! `postern bench scaling`: how fast one tunnel is with more processors: what the serial stages take alone, and so the prediction; and as
//! far as this machine has processors, the measured speed.
//!
//! Sequence numbers, the replay window and the order of packets stay with one thread a direction. What that thread takes for a packet,
//! without the cipher, is measured on real interfaces: the gateways run with a cipher that does nothing, and the kernel says how long
//! each thread ran. Many tunnels are spread over several such threads, with a socket and a queue of TUN each.

mod many;

use crate::Outcome;
use crate::pipeline::{self, Protection};
use crate::report::{Machine, short, table};
use crate::tunnel::progress_bar;
use crypto::Cipher;
use crypto::choice::Choice;
use crypto::engine::Engine;
use gateway::datapath::handoff::{CryptoThreads, CryptoThreadsSlot, Line, Way, Work};
use gateway::datapath::{Observer, Stage, encrypt};
use lab::traffic::{self, Transfer};
use lab::wireguard::{Daemon, Gateway, Plan, Tunnel};
use lab::{Lab, ipsec};
use port::Wake;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tunnel::Time;
use tunnel::esp::Transform;

/// Processors that are predicted for.
const CORES: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Packets of a burst, for the price of a hand-off: what one super-packet of TCP has.
const BURST: usize = 44;
/// Bursts that are handed off for its measurement.
const HANDOFFS: u32 = 20_000;

/// What to measure.
pub struct Options {
    /// This program.
    pub program: PathBuf,
    /// All engines, and the choice between them.
    pub choice: Arc<Choice>,
    /// Seconds for each measurement.
    pub seconds: u32,
    /// Whether to show progress.
    pub progress: bool,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Nanoseconds of a worker for each packet that it hands off and gets back.
    pub handoff: f64,
    /// By protocol, load and direction.
    pub rows: Vec<Row>,
    /// One tunnel and many, with packets of the Internet mix.
    pub many: Vec<many::Row>,
    /// Gbit/s of TCP with one stream between two WireGuard gateways here, by their threads.
    pub measured: Vec<(usize, f64)>,
}

/// One direction of a tunnel.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The protocol and the cipher.
    pub protection: String,
    /// What it carries.
    pub load: String,
    /// Outbound or inbound.
    pub way: &'static str,
    /// Mean size of the inner packets in bytes.
    pub bytes: f64,
    /// Nanoseconds a packet of the thread of this direction, cipher excluded.
    pub serial: f64,
    /// Nanoseconds a packet of the cipher.
    pub cipher: f64,
    /// Predicted Gbit/s inside, for each of the processors.
    pub predicted: Vec<(usize, f64)>,
}

/// What a tunnel carries.
#[derive(Clone, Copy)]
enum Load {
    /// TCP, whose segments reach the gateway as super-packets.
    Tcp,
    /// UDP packets of so many bytes.
    Udp(usize),
}

/// All loads: the smallest packets, the middle and the largest of the Internet mix, and what TCP makes of a transfer.
const LOADS: [Load; 4] = [Load::Udp(64), Load::Udp(594), Load::Udp(1400), Load::Tcp];
/// IPv4 and UDP headers, and IPv4 and TCP headers with a timestamp.
const UDP_HEADERS: usize = 28;
const TCP_HEADERS: usize = 52;
/// The tunnels' MTU.
const MTU: usize = 1400;

impl Load {
    fn name(self) -> String {
        match self {
            Self::Tcp => "TCP, packets of 1400 bytes".to_owned(),
            Self::Udp(bytes) => format!("UDP, packets of {bytes} bytes"),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Tcp => MTU,
            Self::Udp(bytes) => bytes,
        }
    }

    fn carry(self, lab: &Lab, from: &str, to: &str, seconds: u32) -> Outcome<Transfer> {
        match self {
            Self::Tcp => traffic::tcp(lab, from, to, 1, false, seconds),
            Self::Udp(bytes) => traffic::udp(lab, from, to, (bytes - UDP_HEADERS) as u32, seconds),
        }
    }

    fn packets(self, transfer: &Transfer) -> f64 {
        match self {
            // All but the last of a super-packet are full.
            Self::Tcp => transfer.bytes / (MTU - TCP_HEADERS) as f64,
            Self::Udp(_) => transfer.packets,
        }
    }
}

/// Measures everything.
pub fn run(options: &Options) -> Outcome<Report> {
    let steps = 2 * LOADS.len() + many::STEPS + cores_here().len();
    let progress = progress_bar(options.progress, steps as u64);
    let mut rows = Vec::new();
    let handoff = handoff_cost()? / BURST as f64;
    let aes = Transform::Aead(Cipher::Aes256Gcm, 16);
    for protection in [Protection::WireGuard, Protection::Esp(aes)] {
        let costs = cipher_costs(options, protection)?;
        let gateways = Gateways::without_cipher(options, protection)?;
        for load in LOADS {
            progress.set_message(format!("{}, {}", protection.name(), load.name()));
            let serial = serial_costs(&gateways.lab, gateways.tunnel(), load, options.seconds)?;
            let cipher = costs[&load.bytes()];
            for (way, (serial, cipher)) in
                ["outbound", "inbound"].into_iter().zip(serial.into_iter().zip(cipher))
            {
                rows.push(Row::new(&protection.name(), load, way, serial, cipher, handoff));
            }
            progress.inc(1);
        }
    }
    let many = many::measure(options, handoff, &progress)?;
    let mut measured = Vec::new();
    for threads in cores_here() {
        progress.set_message(format!("WireGuard with {threads} threads"));
        measured.push((threads, measured_here(options, threads)?));
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(Report { machine: Machine::here(), handoff, rows, many, measured })
}

/// The numbers of processors that this machine has too; of one, two threads share it.
fn cores_here() -> Vec<usize> {
    let here = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    CORES.into_iter().filter(|&cores| cores > 1 && cores <= here).collect()
}

impl Row {
    fn new(protection: &str, load: Load, way: &'static str, serial: f64, cipher: f64, handoff: f64) -> Self {
        let bits = load.bytes() as f64 * 8.0;
        let predicted = CORES.map(|cores| (cores, bits / nanoseconds(cores, serial, cipher, handoff)));
        Self {
            protection: protection.to_owned(),
            load: load.name(),
            way,
            bytes: load.bytes() as f64,
            serial,
            cipher,
            predicted: predicted.to_vec(),
        }
    }
}

/// Nanoseconds a packet with so many processors for one direction: one for the serial stages, which has time left to seal or open until
/// it is busy with them alone, and the others for the cipher.
fn nanoseconds(cores: usize, serial: f64, cipher: f64, handoff: f64) -> f64 {
    let alone = serial + cipher;
    if cores == 1 {
        return alone;
    }
    // A worker that hands nothing off is as fast as without other processors.
    let serial = serial + handoff;
    ((serial + cipher) / cores as f64).max(serial).min(alone)
}

/// The price of the cipher for packets of the sizes of all loads: sealing and opening.
fn cipher_costs(options: &Options, protection: Protection) -> Outcome<BTreeMap<usize, [f64; 2]>> {
    let sizes: BTreeSet<usize> = LOADS.into_iter().map(Load::bytes).collect();
    let loads = sizes.iter().map(|&size| (size.to_string(), vec![size])).collect();
    let engine: Arc<dyn Engine> = Arc::<Choice>::clone(&options.choice);
    let measured = pipeline::run(&pipeline::Options {
        protection,
        engine,
        choice: Some(Arc::clone(&options.choice)),
        loads,
        burst: BURST,
        time: Duration::from_millis(200),
    })?;
    Ok(sizes
        .into_iter()
        .zip(measured.loads.iter().map(|load| [load.outbound.bare, load.inbound.bare]))
        .collect())
}

/// Two gateways between namespaces `a` and `b`.
struct Gateways {
    lab: Lab,
    tunnel: Tunnels,
}

/// Of either protocol.
enum Tunnels {
    WireGuard(Tunnel),
    Ipsec(ipsec::Pair),
}

impl Gateways {
    /// Gateways that do not encrypt.
    fn without_cipher(options: &Options, protection: Protection) -> Outcome<Self> {
        let program = options.program.clone();
        match protection {
            Protection::WireGuard => Self::wireguard(&Daemon::PosternWithoutCipher(program)),
            Protection::Esp(_) => {
                let mut lab = Self::lab()?;
                let pair = ipsec::Daemon::PosternWithoutCipher(program).join(&mut lab, ["a", "b"], 81)?;
                Ok(Self { lab, tunnel: Tunnels::Ipsec(pair) })
            }
        }
    }

    fn wireguard(daemon: &Daemon) -> Outcome<Self> {
        let mut lab = Self::lab()?;
        let tunnel = Tunnel::start(&mut lab, daemon, &Plan { mtu: MTU as u32, ..Plan::SITES })?;
        Ok(Self { lab, tunnel: Tunnels::WireGuard(tunnel) })
    }

    fn lab() -> Outcome<Lab> {
        let mut lab = Lab::new(&["a", "b"])?;
        lab.connect(("a", "outside", "192.168.77.1/24"), ("b", "outside", "192.168.77.2/24"))?;
        traffic::serve(&mut lab, "b")?;
        Ok(lab)
    }

    fn tunnel(&self) -> &Tunnel {
        match &self.tunnel {
            Tunnels::WireGuard(tunnel) => tunnel,
            Tunnels::Ipsec(pair) => &pair.tunnel,
        }
    }
}

/// Gbit/s of one TCP stream between two gateways that have so many threads.
fn measured_here(options: &Options, threads: usize) -> Outcome<f64> {
    let daemon = Daemon::PosternWithThreads(options.program.clone(), threads as u8);
    let gateways = Gateways::wireguard(&daemon)?;
    let tunnel = gateways.tunnel();
    let transfer = Load::Tcp.carry(&gateways.lab, "a", &tunnel.inside[1], options.seconds)?;
    Ok(transfer.gigabits())
}

/// A burst that is no work.
struct Nothing;

impl Work for Nothing {
    const STAGE: &'static Stage = &encrypt::STAGE;

    fn work(&mut self) {}

    fn packets(&self) -> usize {
        BURST
    }

    fn now(&self) -> Time {
        Time::from_nanoseconds(1)
    }
}

/// A way that always has a burst, and ends when so many have come to its end.
struct Endless {
    finished: u32,
    stop: Arc<AtomicBool>,
}

impl Way<Nothing> for Endless {
    fn begin(
        &mut self,
        _: &mut Nothing,
        _: &mut Line<Nothing>,
        _: &mut impl Observer,
    ) -> std::io::Result<bool> {
        Ok(true)
    }

    fn finish(&mut self, _: &mut Nothing, _: &mut impl Observer) {
        self.finished += 1;
        self.stop.store(self.finished >= HANDOFFS, Ordering::Relaxed);
    }

    fn wait(&mut self, wake: &Wake) -> std::io::Result<()> {
        wake.wait([]).map(|[]| ())
    }
}

/// Nanoseconds that a worker takes for a burst that it hands off and gets back.
fn handoff_cost() -> Outcome<f64> {
    let (threads, bodies) = CryptoThreads::new(2, None);
    let (slot, wake, stop) = (CryptoThreadsSlot::default(), Arc::new(Wake::new()?), Arc::default());
    slot.store(Some(threads));
    let mut line = Line::alone(|| Nothing).with_threads(Arc::clone(&slot), Arc::clone(&wake));
    let handles: Vec<_> = bodies.into_iter().map(|body| std::thread::spawn(move || body.serve())).collect();
    let begun = Instant::now();
    line.serve(&mut Endless { finished: 0, stop: Arc::clone(&stop) }, &stop, &wake)?;
    let spent = begun.elapsed();
    drop(line);
    slot.store(None);
    for handle in handles {
        handle.join().map_err(|_| "a crypto thread panicked")?;
    }
    Ok(spent.as_nanos() as f64 / f64::from(HANDOFFS))
}

/// Nanoseconds that the thread of each direction ran for a packet.
fn serial_costs(lab: &Lab, tunnel: &Tunnel, load: Load, seconds: u32) -> Outcome<[f64; 2]> {
    let [near, far] = &tunnel.gateways;
    let ran = || -> Outcome<[f64; 2]> { Ok([ran(near, &["out"])?, ran(far, &["in", "raw"])?]) };
    let (before, read_before) = (ran()?, read_from(lab, near)?);
    let transfer = load.carry(lab, &near.namespace, &tunnel.inside[1], seconds)?;
    let (after, read_after) = (ran()?, read_from(lab, near)?);
    let arrived = load.packets(&transfer);
    // Under UDP a gateway sends more than the other one can receive. The interface counts a super-packet of TCP as one packet.
    let sent = match load {
        Load::Udp(_) => (read_after - read_before) as f64,
        Load::Tcp => arrived,
    };
    if arrived < 1.0 {
        return Err(format!("{}: no packet arrived", load.name()).into());
    }
    Ok([(0, sent), (1, arrived)].map(|(way, packets)| (after[way] - before[way]) / packets))
}

/// Packets that a gateway has read from its interface.
fn read_from(lab: &Lab, gateway: &Gateway) -> Outcome<u64> {
    // That of IPsec has one name on all machines.
    let interface = if gateway.interface.is_empty() { gateway::ipsec::NAME } else { &gateway.interface };
    let text = lab.ip(&gateway.namespace, &format!("-j -s link show dev {interface}"))?;
    let links: serde_json::Value = serde_json::from_str(&text)?;
    let packets = links[0]["stats64"]["tx"]["packets"].as_u64();
    packets.ok_or_else(|| format!("{interface}: ip says nothing of its packets").into())
}

/// Nanoseconds that the threads of these roles have run.
fn ran(gateway: &Gateway, roles: &[&str]) -> Outcome<f64> {
    let (names, seconds) = (gateway.process.threads()?, gateway.process.cpu_of_threads()?);
    let has_role = |id: &String| {
        let name = names.get(id).map(|(name, _)| name);
        name.is_some_and(|name| roles.iter().any(|role| name.ends_with(&format!(" {role}"))))
    };
    Ok(seconds.iter().filter(|(id, _)| has_role(id)).map(|(_, seconds)| seconds * 1e9).sum())
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let ones = |row: &Row| {
            let words = vec![row.protection.clone(), row.load.clone(), row.way.to_owned()];
            let numbers = [row.serial, row.cipher].map(short).to_vec();
            let predicted = row.predicted.iter().map(|&(_, gigabits)| short(gigabits)).collect();
            [words, numbers, predicted].concat()
        };
        let heads = CORES.map(|cores| cores.to_string());
        let mut head = vec!["one tunnel", "", "way", "serial ns", "cipher ns"];
        head.extend(heads.iter().map(String::as_str));
        let rows: Vec<Vec<String>> = self.rows.iter().map(ones).collect();
        let measured: Vec<Vec<String>> = self
            .measured
            .iter()
            .map(|&(threads, gigabits)| vec![threads.to_string(), short(gigabits)])
            .collect();
        format!(
            "{}predicted Gbit/s inside one direction of one tunnel, with so many processors for it; a packet costs {} ns \
             more to hand off\nserial: what the thread of the direction ran for a packet without cipher, the kernel's work \
             in its calls included\n\n{}\n{}\nmeasured here with both gateways and iperf3 on all processors: TCP, one stream\n\n{}",
            self.machine.head(),
            short(self.handoff),
            table(&head, &rows),
            many::text(&self.many),
            table(&["threads", "Gbit/s"], &measured)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_processors_help_until_the_serial_stages_are_busy() {
        assert!((nanoseconds(1, 100.0, 300.0, 5.0) - 400.0).abs() < 1e-9);
        assert!((nanoseconds(2, 100.0, 300.0, 5.0) - 202.5).abs() < 1e-9);
        assert!((nanoseconds(16, 100.0, 300.0, 5.0) - 105.0).abs() < 1e-9);
        assert!(
            (nanoseconds(16, 100.0, 1.0, 5.0) - 101.0).abs() < 1e-9,
            "it does not hand off what is not worth it"
        );
    }

    #[test]
    fn a_hand_off_costs_something() {
        assert!(handoff_cost().expect("threads start") > 0.0);
    }
}
