//! `postern bench openvpn-storm`: all clients of an OpenVPN server connect at once while another client transfers data.
//!
//! The clients cost the machine as much as the server does. The same storm at a second server, in a namespace of its own, shows
//! the share of the loss that the machine itself causes.

mod clients;
mod scene;

use crate::Outcome;
use crate::report::{Machine, median, short, table};
use crate::tunnel::progress_bar;
use clients::Clients;
use scene::Scene;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// What to measure.
pub struct Options {
    /// The program under test.
    pub program: PathBuf,
    /// Clients that connect at once.
    pub clients: usize,
    /// Seconds of each transfer.
    pub seconds: u32,
    /// Number of measurements of each kind.
    pub rounds: u32,
    /// Whether to show progress.
    pub progress: bool,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Clients that connected at once.
    pub clients: usize,
    /// Seconds until all were connected, without a transfer.
    pub storm_seconds: f64,
    /// Milliseconds of processor time of the server for each of them.
    pub cpu_ms: f64,
    /// Growth of the server's resident memory in MiB, when all were connected for the first time.
    pub grown: f64,
    /// Gbit/s of the transfer without a storm.
    pub speed_without: f64,
    /// Gbit/s of the transfer during a storm at the other server.
    pub speed_elsewhere: f64,
    /// Gbit/s of the transfer during a storm at its server.
    pub speed: f64,
    /// Seconds until all were connected, during the transfer.
    pub busy_seconds: f64,
}

/// Between storms: clients that have ended are gone, and the server begins sessions again.
const PAUSE: Duration = Duration::from_secs(3);

/// Measures everything.
pub fn run(options: &Options) -> Outcome<Report> {
    let progress = progress_bar(options.progress, u64::from(options.rounds));
    let scene = Scene::new(&options.program, options.clients)?;
    let (mut storms, mut cpu) = (Vec::new(), Vec::new());
    let (mut without, mut elsewhere, mut here, mut busy) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut grown = None;
    for _ in 0..options.rounds {
        let before = (scene.cpu()?, scene.memory()?);
        let (seconds, connected) = scene.storm(scene::MEASURED)?;
        storms.push(seconds);
        cpu.push((scene.cpu()? - before.0) * 1e3 / options.clients as f64);
        let memory = scene.memory()?.saturating_sub(before.1) as f64 / f64::from(1 << 20);
        grown.get_or_insert(memory);
        scene.end(connected)?;
        std::thread::sleep(PAUSE);
        without.push(scene.transfer(options.seconds)?);
        for (server, speeds) in [(scene::OTHER, &mut elsewhere), (scene::MEASURED, &mut here)] {
            let (speed, seconds) = scene.transfer_in_storm(server, options.seconds)?;
            speeds.push(speed);
            if server == scene::MEASURED {
                busy.push(seconds);
            }
            std::thread::sleep(PAUSE);
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(Report {
        machine: Machine::here(),
        clients: options.clients,
        storm_seconds: median(&storms),
        cpu_ms: median(&cpu),
        grown: grown.unwrap_or(f64::NAN),
        speed_without: median(&without),
        speed_elsewhere: median(&elsewhere),
        speed: median(&here),
        busy_seconds: median(&busy),
    })
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let loss = (1.0 - self.speed / self.speed_elsewhere) * 100.0;
        let head = ["storm s", "CPU ms a client", "grown MiB"];
        let row = [self.storm_seconds, self.cpu_ms, self.grown].map(short).to_vec();
        let transfer_head = ["Gbit/s, no storm", "at another server", "here", "lost %", "storm s"];
        let transfer_row = [self.speed_without, self.speed_elsewhere, self.speed, loss, self.busy_seconds]
            .map(short)
            .to_vec();
        format!(
            "{}{} clients connect at once\n\n{}\nDuring the transfer of another client\n\n{}",
            self.machine.head(),
            self.clients,
            table(&head, &[row]),
            table(&transfer_head, &[transfer_row])
        )
    }
}
