//! `postern bench openvpn` and `postern bench openvpn-storm`: their arguments.

use bench::openvpn::{Options, PAIRS, Report, run};
use bench::storm;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Measure this pair only; may be given more than once
    #[arg(long, value_name = "NAME", value_parser = PAIRS.to_vec())]
    pair: Vec<String>,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 4)]
    seconds: u32,
    /// Number of times that each measurement is made
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Only measurements whose name contains this, such as UDP or TCP
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Draw the CPU time of one TCP stream as SVG
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Storm {
    /// Clients that connect at once
    #[arg(long, default_value_t = 1000)]
    clients: usize,
    /// Seconds of each transfer
    #[arg(long, default_value_t = 6)]
    seconds: u32,
    /// Number of times that each measurement is made
    #[arg(long, default_value_t = 3)]
    rounds: u32,
}

/// Measures, and draws the chart.
pub(crate) fn measure(arguments: Arguments, program: PathBuf, progress: bool) -> bench::Outcome<Report> {
    let Arguments { pair: pairs, seconds, rounds, only, chart } = arguments;
    let report = run(&Options { program, seconds, rounds, only, pairs, progress })?;
    if let Some(path) = chart {
        report.draw(&path)?;
    }
    Ok(report)
}

/// Measures a storm of clients.
pub(crate) fn storm(arguments: Storm, program: PathBuf, progress: bool) -> bench::Outcome<storm::Report> {
    let Storm { clients, seconds, rounds } = arguments;
    storm::run(&storm::Options { program, clients, seconds, rounds, progress })
}
