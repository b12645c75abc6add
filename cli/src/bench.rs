//! `postern bench`: measurements.

use crate::{Outcome, wireguard};
use ::bench::gateway_under_test::Daemon;
use ::bench::{pipeline, tunnel};
use clap::{Args, Subcommand, ValueEnum};
use crypto::engine::{Engine, aws_lc::AwsLc, none};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Two gateways with real traffic through them, beside another daemon (needs root)
    Tunnel(Tunnel),
    /// The data path alone, from memory to memory, stage by stage
    Pipeline(Pipeline),
    /// A gateway that does not encrypt, for `--cipher none`
    #[command(hide = true)]
    GatewayWithoutCipher {
        /// Name of the interface
        interface: String,
    },
}

#[derive(Args)]
struct Tunnel {
    /// With what to compare
    #[arg(long, value_enum, default_value = "wireguard-go")]
    peer: Peer,
    /// Where that program is
    #[arg(long, value_name = "FILE")]
    peer_path: Option<PathBuf>,
    /// Which cipher our gateways use; none shows what the path costs
    #[arg(long, value_enum, default_value = "chacha20-poly1305")]
    cipher: Cipher,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// How often each is made
    #[arg(long, default_value_t = 3)]
    rounds: u32,
}

#[derive(Args)]
struct Pipeline {
    /// Which cipher
    #[arg(long, value_enum, default_value = "chacha20-poly1305")]
    cipher: Cipher,
    /// Packets in a burst
    #[arg(long, default_value_t = 64)]
    burst: usize,
    /// Seconds for each size
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Also the sizes of the packets in a capture file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// The newest wireguard-go that is here
    WireguardGo,
    /// This program, with its cipher
    Postern,
    /// Nothing
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Cipher {
    #[value(name = "chacha20-poly1305")]
    ChaCha20Poly1305,
    None,
}

impl Cipher {
    fn engine(self) -> Arc<dyn Engine> {
        match self {
            Self::ChaCha20Poly1305 => Arc::new(AwsLc),
            Self::None => Arc::new(none::None),
        }
    }
}

pub(crate) fn run(arguments: Arguments) -> Outcome {
    match arguments.what {
        What::Tunnel(tunnel) => {
            let report = measure_tunnel(tunnel, !arguments.json)?;
            print(arguments.json, &report, &report.text())
        }
        What::Pipeline(pipeline) => {
            let report = measure_pipeline(pipeline)?;
            print(arguments.json, &report, &report.text())
        }
        What::GatewayWithoutCipher { interface } => wireguard::serve_without_cipher(interface),
    }
}

fn print(json: bool, value: &impl Serialize, text: &str) -> Outcome {
    if json {
        println!("{}", serde_json::to_string_pretty(value)?);
    } else {
        print!("{text}");
    }
    Ok(())
}

fn measure_tunnel(arguments: Tunnel, progress: bool) -> ::bench::Outcome<tunnel::Report> {
    let program = std::env::current_exe()?;
    let ours = match arguments.cipher {
        Cipher::ChaCha20Poly1305 => Daemon::Postern(program.clone()),
        Cipher::None => Daemon::PosternWithoutCipher(program.clone()),
    };
    let peer = match arguments.peer {
        Peer::WireguardGo => Some(Daemon::find_wireguard_go(arguments.peer_path)?),
        Peer::Postern => Some(Daemon::Postern(program)),
        Peer::None => None,
    };
    let daemons = [ours].into_iter().chain(peer).collect();
    let progress = progress && std::io::stderr().is_terminal();
    tunnel::run(&tunnel::Options { daemons, seconds: arguments.seconds, rounds: arguments.rounds, progress })
}

fn measure_pipeline(arguments: Pipeline) -> ::bench::Outcome<pipeline::Report> {
    let mut loads: Vec<(String, Vec<usize>)> =
        [64, 512, 1400].iter().map(|&size| (format!("{size} bytes"), vec![size])).collect();
    loads.push(("IMIX".to_owned(), pipeline::imix()));
    if let Some(path) = &arguments.pcap {
        let sizes: Vec<usize> =
            port::pcap::read(path)?.iter().map(Vec::len).filter(|&size| size <= 1420).collect();
        if sizes.is_empty() {
            return Err(format!("{}: no packet of at most 1420 bytes", path.display()).into());
        }
        loads.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), sizes));
    }
    let time = Duration::from_secs_f64(arguments.seconds.clamp(0.01, 3600.0));
    let burst = arguments.burst.clamp(1, 256);
    pipeline::run(&pipeline::Options { engine: arguments.cipher.engine(), loads, burst, time })
}
