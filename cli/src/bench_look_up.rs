//! `postern bench look-up`.

use bench::look_up;
use clap::Args;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Seed of the rules, routes and packets
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Number of times that each measurement is made
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

pub(crate) fn measure(arguments: Arguments) -> bench::Outcome<look_up::Report> {
    let Arguments { seed, seconds, rounds } = arguments;
    let time = Duration::from_secs_f64(seconds.clamp(0.0, 3600.0));
    look_up::run(&look_up::Options { seed, rounds, time })
}
