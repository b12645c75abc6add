//! `postern bench peers`: a WireGuard gateway with ten thousand peers. Measures how fast it is configured, its memory
//! and CPU use at rest, and how much a transfer of another peer slows down while all peers start a handshake at once (a
//! storm).

use crate::Outcome;
use crate::crowd::{self, Crowd};
use crate::report::{Machine, median, short, table};
use crate::tunnel::progress_bar;
use crypto::PublicKey;
use lab::Lab;
use lab::postern::Postern;
use lab::traffic;
use lab::wireguard::{Daemon, Gateway, Plan, Tunnel};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What to measure.
pub struct Options {
    /// The program under test.
    pub program: PathBuf,
    /// Number of peers.
    pub peers: usize,
    /// Number of storms.
    pub rounds: u32,
    /// Time without load before the CPU use at rest is measured; the measurement takes half of it.
    pub rest: Duration,
    /// Whether to show progress.
    pub progress: bool,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Number of peers.
    pub peers: usize,
    /// Seconds to configure all peers over the UAPI socket.
    pub socket_seconds: f64,
    /// Seconds from the start of `postern run` with a file of all peers until the API socket exists.
    pub file_seconds: f64,
    /// MiB of resident memory with all peers configured.
    pub memory_configured: f64,
    /// MiB of resident memory with a session for each peer.
    pub memory_established: f64,
    /// CPU use at rest with a session for each peer, in percent of a core.
    pub idle_percent: f64,
    /// Seconds until every peer of a storm had a response.
    pub storm_seconds: Vec<f64>,
    /// Gbit/s of another peer's transfer before each storm.
    pub speed_before: Vec<f64>,
    /// Gbit/s of that transfer during each storm.
    pub speed_during: Vec<f64>,
}

/// Time limit of a storm.
const PATIENCE: Duration = Duration::from_secs(120);
/// Seconds of transfer; the storm starts after `CALM`.
const SECONDS: u32 = 40;
const CALM: f64 = 6.0;
/// Pause between a storm and establishing its sessions, which is not measured.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Measures everything.
pub fn run(options: &Options) -> Outcome<Report> {
    let progress = progress_bar(options.progress, 4 + u64::from(options.rounds));
    let mut lab = crowd::lab()?;
    progress.set_message("a configuration file");
    let file_seconds = start_from_file(&mut lab, options)?;
    progress.inc(1);
    progress.set_message("the configuration socket");
    let plan = Plan { name: "p", ..Plan::SITES };
    let tunnel = Tunnel::start(&mut lab, &Daemon::Postern(options.program.clone()), &plan)?;
    let gateway = &tunnel.gateways[0];
    let request = crowd::peers(options.peers);
    let started = Instant::now();
    gateway.set(&request)?;
    let socket_seconds = started.elapsed().as_secs_f64();
    let memory_configured = mebibytes(gateway)?;
    traffic::serve(&mut lab, "b")?;
    let public = public_key(gateway)?;
    let mut crowd =
        lab.enter("c", || Crowd::new(options.peers, ([192, 168, 78, 1], 51_820).into(), public))??;
    progress.inc(1);

    progress.set_message("a session for each peer");
    at_low_priority(&mut crowd)?;
    progress.inc(1);
    progress.set_message("at rest");
    // Timers of the handshakes, ten seconds and more, must expire first.
    std::thread::sleep(options.rest);
    let memory_established = mebibytes(gateway)?;
    let before = gateway.process.cpu_seconds()?;
    std::thread::sleep(options.rest / 2);
    let idle_percent = (gateway.process.cpu_seconds()? - before) * 200.0 / options.rest.as_secs_f64();
    progress.inc(1);

    let (mut storm_seconds, mut speed_before, mut speed_during) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        progress.set_message(format!("storm {} of {}", round + 1, options.rounds));
        let (seconds, before, during) = storm(&lab, &tunnel, &mut crowd)?;
        storm_seconds.push(seconds);
        speed_before.push(before);
        speed_during.push(during);
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(Report {
        machine: Machine::here(),
        peers: options.peers,
        socket_seconds,
        file_seconds,
        memory_configured,
        memory_established,
        idle_percent,
        storm_seconds,
        speed_before,
        speed_during,
    })
}

/// Runs a storm during a transfer; returns its duration, and the speed before and during it.
fn storm(lab: &Lab, tunnel: &Tunnel, crowd: &mut Crowd) -> Outcome<(f64, f64, f64)> {
    std::thread::scope(|scope| {
        let transfer = scope.spawn(|| traffic::tcp_by_interval(lab, "a", &tunnel.inside[1], SECONDS));
        std::thread::sleep(Duration::from_secs_f64(CALM));
        let taken = at_low_priority(crowd)?;
        let speeds = transfer.join().map_err(|_| "the transfer failed")??;
        let at = |seconds: f64| ((seconds / 0.2) as usize).min(speeds.len());
        // Skip TCP's slow start in the first second.
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
        let before = mean(&speeds[at(1.0)..at(CALM)]);
        let during = mean(&speeds[at(CALM)..at(CALM + taken.max(1.0))]);
        Ok((taken, before, during))
    })
}

/// Runs a storm. The simulated peers run at low priority, because they share the machine with the gateway.
fn at_low_priority(crowd: &mut Crowd) -> Outcome<f64> {
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19);
            let taken = crowd.storm(PATIENCE);
            std::thread::sleep(AFTERWARDS);
            crowd.establish();
            taken
        });
        Ok(calling.join().map_err(|_| "the simulated peers panicked")??.as_secs_f64())
    })
}

fn mebibytes(gateway: &Gateway) -> Outcome<f64> {
    Ok(gateway.process.memory()? as f64 / f64::from(1 << 20))
}

/// The public key of a gateway, computed from the private key of its [`Plan`].
fn public_key(gateway: &Gateway) -> Outcome<PublicKey> {
    let private = gateway.value("private_key")?.ok_or("the gateway has no private key")?;
    let mut bytes = [0; 32];
    base16ct::lower::decode(private, &mut bytes).map_err(|error| error.to_string())?;
    Ok(crypto::PrivateKey::new(crypto::Secret::new(bytes)).public())
}

/// Starts `postern run` with a file of all peers, and stops it; returns the seconds until the API socket exists.
fn start_from_file(lab: &mut Lab, options: &Options) -> Outcome<f64> {
    let interface = "wg9";
    let mut gateway = Postern::new(lab, "c", &options.program)?;
    let private = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";
    let head = format!("set interfaces wireguard {interface} private-key {private}\n");
    gateway.write(&(head + &crowd::peer_lines(interface, options.peers)));
    let started = Instant::now();
    let process = gateway.start(lab, "error", Duration::from_secs(60))?;
    let seconds = started.elapsed().as_secs_f64();
    lab.kill(process, rustix::process::Signal::TERM);
    Ok(seconds)
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let loss: Vec<f64> = self
            .speed_before
            .iter()
            .zip(&self.speed_during)
            .map(|(before, during)| 1.0 - during / before)
            .collect();
        let row = |name: &str, value: f64, unit: &str| vec![name.to_owned(), short(value), unit.to_owned()];
        let rows = [
            row("configured over the socket", self.socket_seconds, "s"),
            row("postern run with a file of all peers", self.file_seconds, "s"),
            row("memory, configured", self.memory_configured, "MiB"),
            row("memory, all peers with a session", self.memory_established, "MiB"),
            row("CPU at rest", self.idle_percent, "% of a core"),
            row("storm: all peers served within", median(&self.storm_seconds), "s"),
            row("another peer's transfer, before", median(&self.speed_before), "Gbit/s"),
            row("another peer's transfer, during", median(&self.speed_during), "Gbit/s"),
            row("lost during the storm", median(&loss) * 100.0, "%"),
        ];
        format!(
            "{}{} peers, medians of {} storms\n\n{}",
            self.machine.head(),
            self.peers,
            self.storm_seconds.len(),
            table(&["", "", "unit"], &rows)
        )
    }
}
