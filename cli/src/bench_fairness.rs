//! `postern bench fairness`: its arguments.

use bench::{Outcome, fairness};
use clap::{Args, value_parser};
use lab::wireguard::Daemon;
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The link to the slow peer, in Mbit/s
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..))]
    link: u32,
    /// What is sent to it, in Mbit/s
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(1..))]
    flood: u32,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..))]
    seconds: u32,
    /// Measurements of each kind
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measure wireguard-go, too
    #[arg(long)]
    wireguard_go: bool,
    /// Path of wireguard-go
    #[arg(long, requires = "wireguard_go")]
    peer_path: Option<PathBuf>,
}

/// Measures.
pub(crate) fn measure(arguments: Arguments, program: PathBuf, progress: bool) -> Outcome<fairness::Report> {
    let Arguments { link, flood, seconds, rounds, wireguard_go, peer_path } = arguments;
    let peer = wireguard_go.then(|| Daemon::find_wireguard_go(peer_path)).transpose()?;
    let daemons = [Daemon::Postern(program)].into_iter().chain(peer).collect();
    fairness::run(&fairness::Options { daemons, link, flood, seconds, rounds, progress })
}
