//! `postern bench document-002`: its arguments.

use crate::bench_rfc2544::{scale, size};
use bench::document::{Kind, Options, Part, Report, quick, run};
use bench::rfc2544::{FrameSize, Plan};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Trials of 0.15 s, about 10 minutes; not RFC 2544 conformant; this is the default
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Lengths and repetitions of RFC 2544, 8219 and 9004, and all frame sizes in all parts: two weeks
    #[arg(long)]
    full: bool,
    /// With --full: all trials, pauses and bursts so many times as long, and as many of them
    #[arg(long, value_name = "FACTOR", value_parser = scale, requires = "full")]
    scale: Option<f64>,
    /// Seconds of all trials, instead of those of --quick
    #[arg(long, value_parser = crate::bench_rfc2544::seconds, conflicts_with = "full")]
    seconds: Option<f64>,
    /// Program to measure beside ours; may be given more than once
    #[arg(long, value_enum, default_values = ["strongswan", "ipsec-secgw"])]
    peer: Vec<Peer>,
    /// Directory for ipsec-secgw, which is built there from Debian's source package unless it is there
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/cache/postern/ipsec-secgw")]
    peer_directory: PathBuf,
    /// Part of the protocol, instead of all; may be given more than once
    #[arg(long, value_enum)]
    part: Vec<PartName>,
    /// Frame size in bytes, the frame check sequence included, or imix, instead of all; may be given more than once
    #[arg(long, value_parser = size, value_name = "BYTES")]
    size: Vec<FrameSize>,
    /// Core of the tester
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// Core of the devices, which are measured one after the other
    #[arg(long, default_value_t = 1)]
    device_core: usize,
    /// Draw the figures as SVG into this directory
    #[arg(long, value_name = "DIRECTORY")]
    chart: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// strongSwan with kernel-libipsec
    Strongswan,
    /// DPDK's example program, with `net_af_xdp` and `crypto_aesni_gcm`
    IpsecSecgw,
    /// Nothing
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PartName {
    /// Throughput, latency, frame loss and back-to-back frames of each size: TCP, bursts of 64, both directions
    FrameSizes,
    /// Bursts of 16, 256 and 1024
    Bursts,
    /// One direction
    Directions,
    /// UDP and ICMP
    Traffic,
    /// One encryptor, with the tester as the other
    Encryptor,
    /// Two of our encryptors in memory
    Memory,
    /// Frames per CPU second of one encryptor under overload, NAPI deferred, and of ours without encryption
    Overload,
}

impl From<PartName> for Part {
    fn from(name: PartName) -> Self {
        match name {
            PartName::FrameSizes => Self::FrameSizes,
            PartName::Bursts => Self::Bursts,
            PartName::Directions => Self::Directions,
            PartName::Traffic => Self::Traffic,
            PartName::Encryptor => Self::Encryptor,
            PartName::Memory => Self::Memory,
            PartName::Overload => Self::Overload,
        }
    }
}

/// Measures, and draws the figures.
pub(crate) fn measure(arguments: Arguments, program: PathBuf) -> bench::Outcome<Report> {
    let mut plan = if arguments.full { Plan::full() } else { quick() };
    if let Some(seconds) = arguments.seconds {
        plan = plan.with_seconds(seconds);
    }
    if let Some(scale) = arguments.scale {
        plan = plan.scaled(scale);
    }
    let peers = arguments.peer.iter().filter_map(|peer| match peer {
        Peer::Strongswan => Some(Kind::StrongSwan),
        Peer::IpsecSecgw => Some(Kind::IpsecSecgw),
        Peer::None => None,
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if arguments.core.max(arguments.device_core) >= cores {
        return Err(format!(
            "this machine has the cores 0 to {}\n  fix: --core and --device-core",
            cores - 1
        )
        .into());
    }
    let named: Vec<Part> = arguments.part.into_iter().map(Part::from).collect();
    let parts = if named.is_empty() { Part::ALL.to_vec() } else { named };
    let report = run(&Options {
        program,
        peers: peers.collect(),
        peer_directory: arguments.peer_directory,
        is_full: arguments.full,
        plan,
        sizes: if arguments.size.is_empty() { FrameSize::ALL.to_vec() } else { arguments.size },
        parts,
        tester_core: arguments.core,
        device_core: arguments.device_core,
    })?;
    if let Some(directory) = arguments.chart {
        report.draw(&directory)?;
    }
    Ok(report)
}
