//! `postern bench rfc2544`: its arguments.

mod esp;
mod policies;
mod wireguard;

use bench::eal;
use bench::rfc2544::{
    Addresses, Family, FrameSize, MOST_STREAMS, Options, Plan, Protection, Protocol, Report, Test, Wire, run,
};
use clap::{Args, ValueEnum};
use esp::EspArguments;
use policies::Frames;
use std::net::IpAddr;
use std::path::PathBuf;
use wireguard::WireGuardArguments;

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct Arguments {
    /// How frames get to the device; af-xdp if interfaces are given
    #[arg(long, value_enum)]
    wire: Option<WireName>,
    /// Words of EAL for --wire dpdk, such as "--vdev net_memif0,socket=/run/a.sock -a 0000:01:00.0"
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    eal: Option<String>,
    /// Interface that frames leave by; with --wire dpdk the name of its device
    #[arg(long, value_name = "INTERFACE", requires = "rx")]
    tx: Option<String>,
    /// Interface that frames come back by
    #[arg(long, value_name = "INTERFACE", requires = "tx")]
    rx: Option<String>,
    /// Let the kernel take received frames some at a time while it measures (napi_defer_hard_irqs); put back at the end
    #[arg(long)]
    defer_napi: bool,
    /// Send frames in both directions at once
    #[arg(long)]
    both: bool,
    /// Trials of about a second, not RFC 2544 conformant; this is the default
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Lengths and repetitions of RFC 2544, 8219 and 9004: hours for each frame size
    #[arg(long)]
    full: bool,
    /// Seconds of all trials, instead of those of --quick
    #[arg(long, value_parser = seconds, conflicts_with = "full")]
    seconds: Option<f64>,
    /// With --full: all trials, pauses and bursts so many times as long, and as many of them
    #[arg(long, value_name = "FACTOR", value_parser = scale, requires = "full")]
    scale: Option<f64>,
    /// Searches for each throughput; the result is their median
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=100))]
    searches: Option<u16>,
    /// Frame size in bytes, the frame check sequence included, or imix; may be given more than once
    #[arg(long, value_parser = size, value_name = "BYTES")]
    size: Vec<FrameSize>,
    /// What to measure beside the throughput; may be given more than once
    #[arg(long, value_enum, default_values = ["latency", "frame-loss", "back-to-back"])]
    test: Vec<TestName>,
    /// Protocol of the frames
    #[arg(long, value_enum, default_value = "udp")]
    protocol: ProtocolName,
    #[command(flatten)]
    esp: EspArguments,
    #[command(flatten)]
    wireguard: WireGuardArguments,
    /// Frames that leave together, at the same mean rate
    #[arg(long, value_parser = ["1", "16", "64", "256", "1024"], default_value = "1")]
    burst: String,
    /// One frame in a hundred is a broadcast frame beside the test frames (RFC 2544 section 11.1)
    #[arg(long)]
    broadcast: bool,
    /// Speed of the line in Gbit/s, which limits the rates and is drawn as theory
    #[arg(long, value_name = "GBIT", value_parser = line)]
    line: Option<f64>,
    /// Core of the tester; the device should have another
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// Test frames over IPv6
    #[arg(long)]
    ipv6: bool,
    /// IP addresses of the two ports; without it 198.18.0.2 and 198.19.0.2, or 2001:2::2 and 2001:2:0:8000::2
    #[arg(long, num_args = 2, value_names = ["TX", "RX"])]
    addresses: Vec<IpAddr>,
    /// Streams in each direction, mixed at random: the first 256 between networks next to the addresses, then hosts of them
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=MOST_STREAMS as i64))]
    streams: u16,
    /// IP addresses of a device that routes, on the sides of the two ports
    #[arg(long, num_args = 2, value_names = ["TX", "RX"])]
    routers: Vec<IpAddr>,
    /// Write the frames of both ports to a capture file; it slows the tester down
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Draw throughput, latency and frame loss as SVG into this directory
    #[arg(long, value_name = "DIRECTORY")]
    chart: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WireName {
    /// Rings in memory, and a thread that copies frames between them as the device
    Memory,
    /// Packet sockets: work on every interface
    Packet,
    /// AF_XDP: past most of the kernel
    AfXdp,
    /// TAP interfaces, which are made if they are not there: this machine's kernel is the device
    Tap,
    /// Ports of DPDK, whose devices --eal names
    Dpdk,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TestName {
    /// The throughput alone
    Throughput,
    /// Delays at the throughput, at half and at a tenth of it
    Latency,
    /// The share of frames lost by load
    FrameLoss,
    /// The longest burst without loss
    BackToBack,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProtocolName {
    Udp,
    Tcp,
    Icmp,
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds from 0.01 to 3600".to_owned())
}

pub(crate) fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok().filter(|scale| (0.0001..=1.0).contains(scale));
    scale.ok_or_else(|| "a factor from 0.0001 to 1".to_owned())
}

fn line(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.001..=800.0).contains(speed));
    speed.map(|speed: f64| speed * 1e9).ok_or_else(|| "Gbit/s from 0.001 to 800".to_owned())
}

pub(crate) fn size(text: &str) -> Result<FrameSize, String> {
    if text.eq_ignore_ascii_case("imix") {
        return Ok(FrameSize::Imix);
    }
    let bytes = text.parse().ok().filter(|bytes| (64..=1518).contains(bytes));
    bytes.map(FrameSize::Bytes).ok_or_else(|| "64 to 1518 bytes, or imix".to_owned())
}

/// The wire, and the interfaces of its ports.
fn wire(
    name: Option<WireName>,
    tx: Option<String>,
    rx: Option<String>,
) -> bench::Outcome<(Wire, [String; 2])> {
    let interfaces = tx.zip(rx).map(|(tx, rx)| [tx, rx]);
    let wire = match (name, &interfaces) {
        (Some(WireName::Memory), _) => Wire::Memory,
        (Some(WireName::Packet), _) => Wire::Packet,
        (Some(WireName::Tap), _) => Wire::Tap,
        (Some(WireName::Dpdk), _) => Wire::Dpdk,
        (Some(WireName::AfXdp), _) | (None, Some(_)) => Wire::AfXdp,
        (None, None) => {
            return Err("no ports\n  fix: --tx INTERFACE --rx INTERFACE, or --wire memory to measure the tester alone".into());
        }
    };
    match (wire.has_interfaces(), interfaces) {
        (true, None) => Err("no interfaces\n  fix: --tx INTERFACE --rx INTERFACE".into()),
        (false, Some(_)) => {
            Err("--wire memory has no interfaces\n  fix: leave out --tx and --rx, or --wire".into())
        }
        (true, Some([tx, rx])) if tx == rx => {
            Err(format!("{tx} cannot be both ports\n  fix: two interfaces").into())
        }
        (_, interfaces) => Ok((wire, interfaces.unwrap_or_default())),
    }
}

/// The addresses of the ports: those of the command line, or of the networks for benchmarks (RFC 2544 appendix C, RFC 5180).
fn ports(addresses: &[IpAddr], is_v6: bool) -> bench::Outcome<[IpAddr; 2]> {
    let Ok(ports) = <[IpAddr; 2]>::try_from(addresses) else {
        let ports = if is_v6 { ["2001:2::2", "2001:2:0:8000::2"] } else { ["198.18.0.2", "198.19.0.2"] };
        return Ok(ports.map(|text| text.parse().expect("literal")));
    };
    let [first, second] = ports;
    if first.is_ipv4() != second.is_ipv4() || is_v6 && first.is_ipv4() {
        let family = if is_v6 { "IPv6" } else { "one family" };
        return Err(format!("--addresses {first} {second}\n  fix: two addresses of {family}").into());
    }
    if first == second {
        return Err(format!("--addresses: {first} twice\n  fix: another address for each port").into());
    }
    Ok(ports)
}

/// The frame sizes, which must have room for the headers.
fn sizes(sizes: Vec<FrameSize>, family: Family) -> bench::Outcome<Vec<FrameSize>> {
    if sizes.is_empty() {
        return Ok(FrameSize::all(family));
    }
    match sizes.iter().find(|size| !size.fits(family)) {
        Some(size) => Err(format!(
            "--size {}: a test frame with an IPv6 header has at least 84 bytes\n  fix: --size 84",
            size.name()
        )
        .into()),
        None => Ok(sizes),
    }
}

/// Measures, and draws the graphs.
pub(crate) fn measure(arguments: Arguments, progress: bool) -> bench::Outcome<Report> {
    let mut plan = if arguments.full { Plan::full() } else { Plan::quick() };
    if let Some(seconds) = arguments.seconds {
        plan = plan.with_seconds(seconds);
    }
    if let Some(scale) = arguments.scale {
        plan = plan.scaled(scale);
    }
    plan.searches = arguments.searches.map_or(plan.searches, usize::from);
    plan.burst = arguments.burst.parse()?;
    let tests = arguments.test.iter().map(|test| match test {
        TestName::Throughput => Test::Throughput,
        TestName::Latency => Test::Latency,
        TestName::FrameLoss => Test::FrameLoss,
        TestName::BackToBack => Test::BackToBack,
    });
    let protocol = match arguments.protocol {
        ProtocolName::Udp => Protocol::Udp,
        ProtocolName::Tcp => Protocol::Tcp,
        ProtocolName::Icmp => Protocol::Icmp,
    };
    let (wire, interfaces) = wire(arguments.wire, arguments.tx, arguments.rx)?;
    match (wire == Wire::Dpdk, &arguments.eal) {
        (true, words) => eal::start(words.as_deref().unwrap_or_default(), arguments.core)?,
        (false, Some(_)) => {
            return Err("--eal is for ports of DPDK\n  fix: --wire dpdk, or leave --eal out".into());
        }
        (false, None) => {}
    }
    let ports = ports(&arguments.addresses, arguments.ipv6)?;
    let (both, count) = (arguments.both, usize::from(arguments.streams));
    let frames = Frames { addresses: ports, protocol, both, in_memory: wire == Wire::Memory, streams: count };
    let (esp, streams) = arguments.esp.read(&frames)?.unzip();
    let streams = streams.unwrap_or(Addresses::spread(ports, count).streams);
    let wireguard = arguments.wireguard.read(&frames, &streams)?;
    let routers = <[IpAddr; 2]>::try_from(&arguments.routers[..]).ok();
    if wireguard.is_some() && wire.has_interfaces() && routers.is_none() {
        return Err("a WireGuard gateway routes\n  fix: --routers with its addresses on both sides".into());
    }
    let protection = esp.map(Protection::Esp).or(wireguard.map(Protection::WireGuard));
    let outer = [0, 1].map(|port| protection.as_ref().map(|it| it.addresses(port)).unwrap_or_default());
    let addresses = Addresses { streams, outer, routers };
    let report = run(&Options {
        wire,
        interfaces,
        capture: arguments.capture,
        defer_napi: arguments.defer_napi,
        both,
        protocol,
        protection,
        broadcasts: arguments.broadcast,
        sizes: sizes(arguments.size, addresses.family())?,
        addresses,
        tests: tests.collect(),
        plan,
        line: arguments.line,
        core: arguments.core,
        progress,
    })?;
    if let Some(directory) = arguments.chart {
        report.draw(&directory)?;
    }
    Ok(report)
}
