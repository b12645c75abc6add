//! `postern bench`: measurements.

use crate::{
    Outcome, bench_crypto, bench_document, bench_fairness, bench_look_up, bench_openvpn, bench_rfc2544,
    bench_secgw, engines, openvpn, run, version, wireguard,
};
use ::bench::report::Build;
use ::bench::sites::Suite;
use ::bench::{ceiling, commit, crypto::worker, flood, ike, peers, pipeline, scaling, system, tunnel};
use clap::{Args, Subcommand, ValueEnum};
use crypto::choice::Choice;
use crypto::engine::{Engine, none};
use lab::wireguard::Daemon;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// An engine that does not encrypt, alone: for what the path costs without.
pub(crate) fn without_cipher() -> Arc<Choice> {
    Arc::new(Choice::among(vec![Arc::new(none::None)]))
}

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Also write JSON to a file
    #[arg(long, global = true, value_name = "FILE")]
    save: Option<PathBuf>,
}

#[derive(Subcommand)]
enum What {
    /// Measure a WireGuard tunnel between two gateways with real traffic, beside another daemon (needs root)
    Tunnel(Tunnel),
    /// Measure an IPsec tunnel with AES-256-GCM, beside strongSwan and OpenVPN (needs root)
    Ipsec(Ipsec),
    /// Measure OpenVPN: ours, OpenVPN itself and one of each, with their CPU by mode and thread, and with less protection (needs root)
    Openvpn(bench_openvpn::Arguments),
    /// Measure IKE set-ups on one core, beside strongSwan's charon, and the memory of ten thousand tunnels (needs root)
    Ike(Ike),
    /// Measure the data path alone, from memory to memory, stage by stage
    Pipeline(Pipeline),
    /// Measure what one thread must do for each packet of a tunnel, and predict its speed with more processors (needs root)
    Scaling(Scaling),
    /// Measure access rules and routes alone: 1 to 10,000 rules, and full tables of routes
    LookUp(bench_look_up::Arguments),
    /// Measure a device between two ports that carry Ethernet frames: throughput, latency, frame loss, back-to-back frames
    Rfc2544(Box<bench_rfc2544::Arguments>),
    /// Repeat the protocol of document 002: RFC 2544 through two encryptors, ours beside strongSwan and ipsec-secgw (needs root)
    #[command(name = "document-002")]
    Document002(Box<bench_document::Arguments>),
    /// Measure the gateway between Ethernet ports in memory, beside DPDK's ipsec-secgw, and with many rules
    Secgw(bench_secgw::Arguments),
    /// Measure ciphers, hashes and handshakes with every engine, with and without special processor instructions
    Crypto(bench_crypto::Crypto),
    /// Check by a second measurement that the engine chosen for each cipher is the fastest
    Choice(bench_crypto::Choice),
    /// Measure memory and processor with the tests that router firmware is compared by
    System,
    /// Measure ten thousand peers: configuration, memory at rest, and simultaneous handshakes (needs root)
    Peers(Hub),
    /// Measure commits of one peer among a thousand of either protocol, and loading them (needs root)
    Commit(Commits),
    /// Measure what a peer has while another one, behind a slow link, is flooded (needs root)
    Fairness(bench_fairness::Arguments),
    /// Measure a tunnel under a flood of datagrams from unauthenticated sources (needs root)
    Flood(Flood),
    /// Measure a thousand clients that connect to an OpenVPN server at once, beside a transfer (needs root)
    OpenvpnStorm(bench_openvpn::Storm),
    /// Run the measurements that are requested on standard input, for `bench crypto`
    #[command(hide = true)]
    CryptoWorker,
    /// A gateway that does not encrypt, for `--cipher none`
    #[command(hide = true)]
    GatewayWithoutCipher {
        /// Name of the interface
        interface: String,
    },
    /// TUN to UDP and back with nothing but the cipher, for `--peer ceiling`
    #[command(hide = true)]
    Ceiling {
        /// Name of the interface
        interface: String,
        /// Do not encrypt
        #[arg(long)]
        without_cipher: bool,
    },
    /// `postern openvpn` that does not encrypt, for `bench openvpn`
    #[command(hide = true)]
    OpenvpnWithoutCipher {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        directives: Vec<String>,
    },
    /// `postern run` that does not encrypt, for `ipsec --peer postern-without-cipher`
    #[command(hide = true)]
    RunWithoutCipher {
        /// The configuration
        #[arg(long)]
        config: PathBuf,
        /// Where the API listens
        #[arg(long)]
        api: PathBuf,
    },
}

impl What {
    /// Whether this is a child process of another measurement.
    fn is_measured(&self) -> bool {
        matches!(
            self,
            Self::CryptoWorker
                | Self::GatewayWithoutCipher { .. }
                | Self::Ceiling { .. }
                | Self::OpenvpnWithoutCipher { .. }
                | Self::RunWithoutCipher { .. }
        )
    }
}

#[derive(Args)]
struct Scaling {
    /// Seconds for each measurement
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
}

#[derive(Args)]
struct Tunnel {
    /// Daemon to compare with
    #[arg(long, value_enum, default_value = "wireguard-go")]
    peer: Peer,
    /// Path of that program; with `--peer postern`, another build of this program
    #[arg(long, value_name = "FILE")]
    peer_path: Option<PathBuf>,
    /// With `--peer postern`: the crypto engine of the other gateways, instead of the fastest
    #[arg(long, value_name = "ENGINE", value_parser = config::schema::ENGINES.to_vec())]
    peer_engine: Option<String>,
    /// With `--peer postern`: threads that encrypt and decrypt in the other gateways
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=64), conflicts_with = "peer_engine")]
    peer_threads: Option<u8>,
    /// Cipher of our gateways; `none` shows the cost of the data path without encryption
    #[arg(long, value_enum, default_value = "chacha20-poly1305")]
    cipher: Cipher,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Number of times that each measurement is made
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Only measurements whose name contains this, such as UDP or "1 stream"
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

#[derive(Args)]
struct Ipsec {
    /// Daemon to compare with; may be given more than once
    #[arg(long, value_enum, default_values = ["strongswan", "openvpn"])]
    peer: Vec<IpsecPeer>,
    /// With `--peer postern`: another build of this program
    #[arg(long, value_name = "FILE")]
    peer_path: Option<PathBuf>,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Number of times that each measurement is made
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Only measurements whose name contains this, such as UDP or "1 stream"
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IpsecPeer {
    /// strongSwan with its ESP in user space
    Strongswan,
    /// OpenVPN
    Openvpn,
    /// This program, or another build of it
    Postern,
    /// This program without encryption, which shows the cost of the data path
    PosternWithoutCipher,
    /// Nothing
    None,
}

#[derive(Args)]
struct Ike {
    /// Daemon to compare with
    #[arg(long, value_enum, default_value = "charon")]
    peer: IkePeer,
    /// IKE proposal to test; may be given more than once
    #[arg(long, value_parser = suite, default_values = Suite::ALL.map(Suite::name))]
    suite: Vec<Suite>,
    /// Set-ups in each round; with many, list look-ups in kernel-libipsec dominate the cost of charon
    #[arg(long, default_value_t = 1000)]
    setups: usize,
    /// Number of times that each measurement is made
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Number of tunnels for the measurement of memory; 0 skips it
    #[arg(long, default_value_t = 10_000)]
    tunnels: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IkePeer {
    /// strongSwan's charon, with its ESP in user space
    Charon,
    /// Nothing
    None,
}

/// Parses a number of seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds from 0.1 to 3600".to_owned())
}

/// A suite by its name.
fn suite(name: &str) -> Result<Suite, String> {
    let names = Suite::ALL.map(Suite::name).join(", ");
    Suite::ALL.into_iter().find(|suite| suite.name() == name).ok_or(format!("one of {names}"))
}

#[derive(Args)]
struct Pipeline {
    /// Tunnel protocol
    #[arg(long, value_enum, default_value = "wireguard")]
    protocol: Protocol,
    /// Cipher; for ESP a name from `bench crypto`, such as aes-256-gcm; `none` shows the cost of the data path without encryption
    #[arg(long)]
    cipher: Option<String>,
    /// Packets in a burst
    #[arg(long, default_value_t = 64)]
    burst: usize,
    /// Seconds for each size
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Also measure the packet sizes of a capture file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

#[derive(Args)]
struct Hub {
    /// Number of peers
    #[arg(long, default_value_t = 10_000)]
    peers: usize,
    /// Number of rounds in which all peers start a handshake at once
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds to wait before the processor time of idle peers is measured
    #[arg(long, default_value_t = 20.0, value_parser = seconds)]
    rest: f64,
}

#[derive(Args)]
struct Flood {
    /// Protocol of the flooded port
    #[arg(long, value_enum, default_value = "wireguard")]
    protocol: Flooded,
    /// Datagrams per second
    #[arg(long, default_value_t = 50_000)]
    rate: u32,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 4)]
    seconds: u32,
    /// Number of times that each measurement is made
    #[arg(long, default_value_t = 3)]
    rounds: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Flooded {
    #[value(name = "wireguard")]
    WireGuard,
    /// IKE, and ESP in UDP
    Ike,
}

impl From<Flooded> for flood::Protocol {
    fn from(protocol: Flooded) -> Self {
        match protocol {
            Flooded::WireGuard => Self::WireGuard,
            Flooded::Ike => Self::Ike,
        }
    }
}

#[derive(Args)]
struct Commits {
    /// Peers of each protocol
    #[arg(long, default_value_t = 1000)]
    peers: usize,
    /// Commits of each protocol
    #[arg(long, default_value_t = 20)]
    rounds: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// The newest wireguard-go on this machine
    WireguardGo,
    /// This program, with its cipher
    Postern,
    /// The least that carries packets with our ports and the cipher of our gateways: what is possible
    Ceiling,
    /// Nothing
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Cipher {
    #[value(name = "chacha20-poly1305")]
    ChaCha20Poly1305,
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    Wireguard,
    Esp,
}

impl Protocol {
    /// The cipher, and how its engine is chosen; no engine for the cipher `none`.
    fn protection(
        self,
        cipher: Option<&str>,
    ) -> ::bench::Outcome<(pipeline::Protection, Option<Arc<Choice>>)> {
        let unknown = |name: &str| format!("{name}: no cipher of this protocol\n  fix: see --help").into();
        let default = match self {
            Self::Wireguard => crypto::Cipher::ChaCha20Poly1305,
            Self::Esp => crypto::Cipher::Aes128Gcm,
        };
        let name = cipher.filter(|&name| name != "none").unwrap_or(default.name());
        let transform = pipeline::Transform::by_name(name).ok_or_else(|| unknown(name))?;
        let protection = match self {
            Self::Wireguard if name != default.name() => return Err(unknown(name)),
            Self::Wireguard => pipeline::Protection::WireGuard,
            Self::Esp => pipeline::Protection::Esp(transform),
        };
        let choice = match (cipher, transform) {
            (Some("none"), _) => return Ok((protection, None)),
            (_, pipeline::Transform::Aead(cipher, _) | pipeline::Transform::Gmac(cipher)) => {
                Choice::here(None).prepared_for(&[cipher.into()])
            }
            // Measured when the key is loaded.
            (_, pipeline::Transform::Pair(_) | pipeline::Transform::Null) => Choice::here(None),
        };
        Ok((protection, Some(Arc::new(choice))))
    }
}

/// Sets the build that all reports name.
pub(crate) fn note_build() {
    Build::note(version::COMMIT, version::TARGET);
}

/// Makes SIGTERM and SIGINT remove what the measurement has made, and put settings back, before it ends.
pub(crate) fn clean_up_when_told_to_end() -> Result<(), std::io::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut terminate, mut interrupt) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let wait = move || {
        let number = runtime.block_on(async {
            tokio::select! { _ = terminate.recv() => 15, _ = interrupt.recv() => 2 }
        });
        port::xdp::put_back_deferrals();
        let _none_is_made = lab::clean_up();
        std::process::exit(128 + number)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
    Ok(())
}

pub(crate) fn run(arguments: Arguments) -> Outcome {
    note_build();
    // A measured process keeps its default signal handling.
    if !arguments.what.is_measured() {
        clean_up_when_told_to_end()?;
    }
    measure(arguments)
}

/// Carries out one benchmark, and shows its report.
fn measure(arguments: Arguments) -> Outcome {
    let progress = !arguments.json && std::io::stderr().is_terminal();
    let program = std::env::current_exe;
    let say =
        |value: &serde_json::Value, text: &str| say(arguments.json, arguments.save.as_deref(), value, text);
    // Reports have nothing in common but that they can be serialized, and `text`.
    macro_rules! show {
        ($report:expr) => {{
            let report = $report;
            say(&serde_json::to_value(&report)?, &report.text())
        }};
    }
    match arguments.what {
        What::Tunnel(tunnel) => show!(measure_tunnel(tunnel, program()?, progress)?),
        What::Ipsec(ipsec) => show!(measure_ipsec(ipsec, program()?, progress)?),
        What::Openvpn(arguments) => show!(bench_openvpn::measure(arguments, program()?, progress)?),
        What::Ike(Ike { peer, suite: suites, setups, rounds, tunnels }) => {
            let (program, with_charon) = (program()?, peer == IkePeer::Charon);
            let options = ike::Options { program, with_charon, suites, setups, rounds, tunnels, progress };
            show!(ike::run(&options)?)
        }
        What::Pipeline(pipeline) => show!(measure_pipeline(pipeline)?),
        What::Scaling(Scaling { seconds }) => {
            let ciphers = [crypto::Cipher::ChaCha20Poly1305, crypto::Cipher::Aes256Gcm].map(Into::into);
            let choice = Arc::new(Choice::here(None).prepared_for(&ciphers));
            show!(scaling::run(&scaling::Options { program: program()?, choice, seconds, progress })?)
        }
        What::LookUp(arguments) => show!(bench_look_up::measure(arguments)?),
        What::Rfc2544(arguments) => show!(bench_rfc2544::measure(*arguments, progress)?),
        What::Document002(arguments) => show!(bench_document::measure(*arguments, program()?)?),
        What::Secgw(arguments) => show!(bench_secgw::measure(arguments, program()?)?),
        What::Crypto(crypto) => {
            let (report, text) = bench_crypto::measure(crypto, program()?, progress)?;
            say(&serde_json::to_value(&report)?, &text)
        }
        What::Choice(choice) => show!(bench_crypto::check(choice, progress)?),
        What::System => show!(system::run()?),
        What::CryptoWorker => worker::serve(),
        What::Peers(Hub { peers, rounds, rest }) => {
            let rest = Duration::from_secs_f64(rest);
            show!(peers::run(&peers::Options { program: program()?, peers, rounds, rest, progress })?)
        }
        What::Commit(Commits { peers, rounds }) => {
            show!(commit::run(&commit::Options { program: program()?, peers, rounds, progress })?)
        }
        What::Fairness(arguments) => show!(bench_fairness::measure(arguments, program()?, progress)?),
        What::Flood(Flood { protocol, rate, seconds, rounds }) => {
            let (program, protocol) = (program()?, protocol.into());
            show!(flood::run(&flood::Options { program, protocol, rate, seconds, rounds, progress })?)
        }
        What::OpenvpnStorm(arguments) => show!(bench_openvpn::storm(arguments, program()?, progress)?),
        What::GatewayWithoutCipher { interface } => wireguard::serve_without_cipher(interface),
        What::Ceiling { interface, without_cipher } => serve_ceiling(&interface, without_cipher),
        What::OpenvpnWithoutCipher { directives } => openvpn::run_without_cipher(directives),
        What::RunWithoutCipher { config, api } => run::run_without_cipher(config, api),
    }
}

fn serve_ceiling(interface: &str, without_cipher: bool) -> Outcome {
    if without_cipher {
        return ceiling::serve(interface, &none::None);
    }
    ceiling::serve(interface, &*engines::choice(&[crypto::Cipher::ChaCha20Poly1305.into()]))
}

fn say(json: bool, save: Option<&Path>, value: &serde_json::Value, text: &str) -> Outcome {
    let pretty = serde_json::to_string_pretty(value)? + "\n";
    if let Some(path) = save {
        std::fs::write(path, &pretty).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    print!("{}", if json { &pretty } else { text });
    Ok(())
}

fn measure_tunnel(arguments: Tunnel, program: PathBuf, progress: bool) -> ::bench::Outcome<tunnel::Report> {
    let ours = match arguments.cipher {
        Cipher::ChaCha20Poly1305 => Daemon::Postern(program.clone()),
        Cipher::None => Daemon::PosternWithoutCipher(program.clone()),
    };
    let peer = match arguments.peer {
        Peer::WireguardGo => Some(Daemon::find_wireguard_go(arguments.peer_path)?),
        Peer::Postern => {
            let program = arguments.peer_path.unwrap_or(program);
            Some(match (arguments.peer_engine, arguments.peer_threads) {
                (Some(engine), _) => Daemon::PosternWithEngine(program, engine),
                (None, Some(threads)) => Daemon::PosternWithThreads(program, threads),
                (None, None) => Daemon::Postern(program),
            })
        }
        Peer::Ceiling => Some(Daemon::Ceiling(program, arguments.cipher != Cipher::None)),
        Peer::None => None,
    };
    let daemons = [ours].into_iter().chain(peer).collect();
    let Tunnel { seconds, rounds, only, .. } = arguments;
    tunnel::run(&tunnel::Options { daemons, seconds, rounds, only, progress })
}

fn measure_ipsec(arguments: Ipsec, program: PathBuf, progress: bool) -> ::bench::Outcome<tunnel::Report> {
    let peers = arguments.peer.iter().filter_map(|peer| match peer {
        IpsecPeer::Strongswan => Some(lab::ipsec::Daemon::StrongSwan),
        IpsecPeer::Openvpn => Some(lab::ipsec::Daemon::OpenVpn),
        IpsecPeer::Postern => {
            let other = arguments.peer_path.clone().unwrap_or_else(|| program.clone());
            Some(lab::ipsec::Daemon::Postern(other))
        }
        IpsecPeer::PosternWithoutCipher => Some(lab::ipsec::Daemon::PosternWithoutCipher(program.clone())),
        IpsecPeer::None => None,
    });
    let daemons = [lab::ipsec::Daemon::Postern(program.clone())].into_iter().chain(peers).collect();
    let Ipsec { seconds, rounds, only, .. } = arguments;
    tunnel::run_ipsec(&tunnel::IpsecOptions { daemons, seconds, rounds, only, progress })
}

fn measure_pipeline(arguments: Pipeline) -> ::bench::Outcome<pipeline::Report> {
    let mut loads: Vec<(String, Vec<usize>)> =
        [64, 512, 1400, 1418].iter().map(|&size| (format!("{size} bytes"), vec![size])).collect();
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
    let (protection, choice) = arguments.protocol.protection(arguments.cipher.as_deref())?;
    let engine: Arc<dyn Engine> = match &choice {
        Some(choice) => Arc::<Choice>::clone(choice),
        None => Arc::new(none::None),
    };
    pipeline::run(&pipeline::Options { protection, engine, choice, loads, burst, time })
}
