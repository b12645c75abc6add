//! `postern bench openvpn-storm`: all clients of an OpenVPN server connect at once while another client transfers data.
//!
//! The clients cost the machine as much as the server does. The same storm at a second server, in a namespace of its own, shows
//! the share of the loss that the machine itself causes.

mod clients;
mod scene;

use crate::Outcome;
use crate::report::{Machine, median, short, table};
use crate::tunnel::{progress_bar, quartiles};
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
    /// What the server's storm costs the transfer, in percent: the median of the rounds, each compared with its own storm at the other
    /// server.
    pub lost_percent: f64,
    /// Between which two the middle half of the rounds lies.
    pub lost_spread: [f64; 2],
    /// The rounds: Gbit/s without a storm, with one at the other server, and with one at the transfer's server.
    pub transfers: Vec<[f64; 3]>,
}

/// What storms at the transfer's server cost it, in percent, by round.
fn lost(transfers: &[[f64; 3]]) -> Vec<f64> {
    transfers.iter().map(|[_, elsewhere, here]| (1.0 - here / elsewhere) * 100.0).collect()
}

/// Between storms: clients that have ended are gone, and the server begins sessions again.
const PAUSE: Duration = Duration::from_secs(3);

/// Measures everything.
pub fn run(options: &Options) -> Outcome<Report> {
    let progress = progress_bar(options.progress, u64::from(options.rounds));
    let scene = Scene::new(&options.program, options.clients)?;
    let (mut storms, mut cpu) = (Vec::new(), Vec::new());
    let (mut transfers, mut busy) = (Vec::new(), Vec::new());
    let mut grown = None;
    for round in 0..options.rounds {
        let before = (scene.cpu()?, scene.memory()?);
        let (seconds, connected) = scene.storm(scene::MEASURED)?;
        storms.push(seconds);
        cpu.push((scene.cpu()? - before.0) * 1e3 / options.clients as f64);
        let memory = scene.memory()?.saturating_sub(before.1) as f64 / f64::from(1 << 20);
        grown.get_or_insert(memory);
        scene.end(connected)?;
        std::thread::sleep(PAUSE);
        let mut speeds = [scene.transfer(options.seconds)?, 0.0, 0.0];
        let mut servers = [(1, scene::OTHER), (2, scene::MEASURED)];
        // Every second round backwards.
        servers.rotate_left(round as usize % 2);
        for (place, server) in servers {
            let (speed, seconds) = scene.transfer_in_storm(server, options.seconds)?;
            speeds[place] = speed;
            if server == scene::MEASURED {
                busy.push(seconds);
            }
            std::thread::sleep(PAUSE);
        }
        transfers.push(speeds);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let speed = |place: usize| median(&transfers.iter().map(|speeds| speeds[place]).collect::<Vec<f64>>());
    let lost = lost(&transfers);
    Ok(Report {
        machine: Machine::here(),
        clients: options.clients,
        storm_seconds: median(&storms),
        cpu_ms: median(&cpu),
        grown: grown.unwrap_or(f64::NAN),
        speed_without: speed(0),
        speed_elsewhere: speed(1),
        speed: speed(2),
        busy_seconds: median(&busy),
        lost_percent: median(&lost),
        lost_spread: quartiles(lost),
        transfers,
    })
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let head = ["storm s", "CPU ms a client", "grown MiB"];
        let row = [self.storm_seconds, self.cpu_ms, self.grown].map(short).to_vec();
        let transfer_head =
            ["Gbit/s, no storm", "at another server", "here", "lost %", "half of the rounds", "storm s"];
        let [low, high] = self.lost_spread;
        let transfer_row = vec![
            short(self.speed_without),
            short(self.speed_elsewhere),
            short(self.speed),
            format!("{:.1}", self.lost_percent),
            format!("{low:.1} to {high:.1}"),
            short(self.busy_seconds),
        ];
        format!(
            "{}{} clients connect at once\n\n{}\nDuring the transfer of another client\n\n{}",
            self.machine.head(),
            self.clients,
            table(&head, &[row]),
            table(&transfer_head, &[transfer_row])
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_compared_with_the_storm_at_the_other_server_of_its_round() {
        assert_eq!(lost(&[[9.0, 4.0, 3.0], [9.0, 2.0, 2.0], [9.0, 2.0, 3.0]]), [25.0, 0.0, -50.0]);
    }
}
