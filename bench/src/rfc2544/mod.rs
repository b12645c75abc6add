//! `postern bench rfc2544`: frames between two ports, and what a device between them does to them (RFC 2544, 8219, 9004).
//!
//! ```text
//! for each frame size:
//!   calibrate   the tester's ports, connected to each other: highest rate, throughput, delay
//!   measure     throughput, latency, frame loss, back-to-back frames through the device
//!   compare     a result near the tester's own is marked as the tester's limit
//! ```

mod arp;
mod chart;
#[cfg(test)]
mod device;
mod esp;
mod frame;
mod histogram;
mod host;
mod pacer;
mod plan;
mod procedure;
mod receiver;
mod report;
mod search;
mod tester;
mod text;
mod trial;
mod wire;

pub use esp::{Esp, EspReport, EspSa};
pub use frame::Protocol;
pub use plan::Plan;
pub use report::{Calibration, Report, SizeResult};
pub use wire::{Addresses, Wire};

use crate::Outcome;
use crate::pipeline::imix;
use crate::report::Machine;
use crate::tunnel::progress_bar;
use crypto::choice::{Choice, Slot};
use esp::Ends;
use host::Host;
use lab::pin_thread;
use packet::header::ethernet::{EthernetHeader, FCS, GAP};
use port::pcap::Capture;
use procedure::{Limit, Procedure, Throughput};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tester::{Clock, Tester};
use trial::{Purpose, Trial};

/// A result of at least this share of the tester's own is the tester's.
const TESTER_LIMITED: f64 = 0.8;
/// Loads of latency, as shares of the throughput.
const LATENCY_LOADS: [f64; 3] = [1.0, 0.5, 0.1];
/// How long a router may take to answer ARP.
const ROUTER_ANSWERS: u64 = 3_000_000_000;

/// A frame size, or a mix of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameSize {
    /// Bytes, the frame check sequence included.
    Bytes(usize),
    /// The Internet mix of `bench pipeline`, as IP packets.
    Imix,
}

impl FrameSize {
    /// The sizes of RFC 2544 section 9.1, and the mix.
    pub const ALL: [Self; 8] = [
        Self::Bytes(64),
        Self::Bytes(128),
        Self::Bytes(256),
        Self::Bytes(512),
        Self::Bytes(1024),
        Self::Bytes(1280),
        Self::Bytes(1518),
        Self::Imix,
    ];

    /// The name in reports.
    pub fn name(self) -> String {
        match self {
            Self::Bytes(bytes) => bytes.to_string(),
            Self::Imix => "IMIX".to_owned(),
        }
    }

    /// The lengths of the frames in turn, without their frame check sequences.
    fn lengths(self) -> Vec<usize> {
        match self {
            Self::Bytes(bytes) => vec![bytes - FCS],
            Self::Imix => imix().iter().map(|packet| packet + EthernetHeader::LENGTH).collect(),
        }
    }

    /// Bytes of a frame on average, the frame check sequence included.
    fn mean(self) -> f64 {
        let lengths = self.lengths();
        (lengths.iter().sum::<usize>() as f64) / lengths.len() as f64 + FCS as f64
    }
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// RFC 2544 section 26.1.
    Throughput,
    /// Section 26.2.
    Latency,
    /// Section 26.3.
    FrameLoss,
    /// Section 26.4.
    BackToBack,
}

/// What to measure, and how.
pub struct Options {
    /// The kind of the ports.
    pub wire: Wire,
    /// The interfaces of the ports; of no use in memory.
    pub interfaces: [String; 2],
    /// The addresses of the ports.
    pub addresses: Addresses,
    /// Whether frames go in both directions at once.
    pub both: bool,
    /// The protocol of the frames.
    pub protocol: Protocol,
    /// The ports with ESP, and its keys.
    pub esp: Option<Esp>,
    /// The frame sizes.
    pub sizes: Vec<FrameSize>,
    /// The measurements; a throughput is always measured.
    pub tests: Vec<Test>,
    /// Lengths and repetitions.
    pub plan: Plan,
    /// Bits a second of the line, if the interfaces have a speed.
    pub line: Option<f64>,
    /// A capture file for the frames of both ports.
    pub capture: Option<PathBuf>,
    /// Whether to defer NAPI of the interfaces while it measures.
    pub defer_napi: bool,
    /// The core of the tester.
    pub core: usize,
    /// Whether to show progress.
    pub progress: bool,
}

impl Options {
    /// Bytes of a frame on average where it is longest: with ESP if there is.
    fn bytes_on_line(&self, size: FrameSize) -> f64 {
        let Some(esp) = &self.esp else { return size.mean() };
        let lengths = size.lengths();
        let sealed: usize = lengths.iter().map(|&length| esp.longest(length) + FCS).sum();
        sealed as f64 / lengths.len() as f64
    }

    /// Refuses interfaces whose mtu is too small for the longest frame, which would be lost there.
    fn check_mtu(&self) -> Outcome<()> {
        let Some(esp) = self.esp.as_ref().filter(|_| self.wire.has_interfaces()) else { return Ok(()) };
        let longest = self.sizes.iter().flat_map(|size| size.lengths()).max().unwrap_or_default();
        let needed = esp.longest(longest) - EthernetHeader::LENGTH;
        for (interface, _) in self.interfaces.iter().zip(esp.ports).filter(|it| it.1) {
            let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).unwrap_or_default();
            if text.trim().parse::<usize>().is_ok_and(|mtu| mtu < needed) {
                let mtu = text.trim();
                return Err(format!(
                    "{interface} has an mtu of {mtu}, and the longest packets have {needed} bytes with ESP\n  fix: ip link set \
                     {interface} mtu {needed}, and the same at the device"
                )
                .into());
            }
        }
        Ok(())
    }
}

/// The clock of the machine: CLOCK_MONOTONIC, which the C library reads from the processor's counter where the kernel does.
struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn rest(&self, nanoseconds: u64) {
        std::thread::sleep(Duration::from_nanos(nanoseconds));
    }
}

/// Frames a second that a line carries, of so many bytes on average.
fn line_rate(bits: f64, bytes: f64) -> f64 {
    bits / 8.0 / (bytes + GAP as f64)
}

/// What seals and opens in each direction, through the device and without it, and the engines that may do it.
struct Protected {
    ends: Vec<Ends>,
    looped: Vec<Ends>,
    engines: Choice,
}

impl Protected {
    /// Loads the keys of `esp`; none without ESP.
    fn load(options: &Options) -> Outcome<Self> {
        let engines = Choice::here(None);
        let directions = 0..1 + usize::from(options.both);
        let Some(esp) = &options.esp else {
            return Ok(Self { ends: Vec::new(), looped: Vec::new(), engines });
        };
        let ends = directions.clone().map(|from| esp.ends(from, &engines)).collect::<Outcome<_>>()?;
        let looped = directions.map(|from| esp.looped_ends(from, &engines)).collect::<Outcome<_>>()?;
        Ok(Self { ends, looped, engines })
    }

    /// The names of the engines that were chosen for packets of any size.
    fn engines(choice: &Choice) -> Vec<String> {
        let rows = choice.rows();
        let chosen = rows.iter().flat_map(|(_, row)| Slot::all().map(|slot| row.chosen(slot)));
        let indices: BTreeSet<usize> = chosen.collect();
        indices.into_iter().map(|index| choice.engines()[index].name().to_owned()).collect()
    }
}

/// Measures all sizes.
pub fn run(options: &Options) -> Outcome<Report> {
    // Before the thread is pinned: it counts the cores that it may use.
    let machine = Machine::here();
    pin_thread(None, options.core)?;
    let device_core = usize::from(options.core == 0);
    options.check_mtu()?;
    let Protected { ends, looped: looped_ends, engines } = Protected::load(options)?;
    let looped = options.wire.open_loop(&options.addresses)?;
    let opened =
        options.wire.open(&options.interfaces, &options.addresses, device_core, options.defer_napi)?;
    let ports = match &options.capture {
        Some(path) => {
            let failed = |error| format!("{}: {error}", path.display());
            let capture = Capture::create_for_frames(path).map_err(failed)?;
            opened.ports.map(|port| port.captured(&capture))
        }
        None => opened.ports,
    };
    let clock = || RealClock(Instant::now());
    let mut loop_tester = Tester::new(clock(), looped.ports, Host::Here).with_ends(looped_ends);
    let mut tester = Tester::new(clock(), ports, Host::Here).with_ends(ends);
    let routers = find_routers(&mut tester, &options.addresses, options.both)?;
    let progress = progress_bar(options.progress, options.sizes.len() as u64);
    let mut sizes = Vec::new();
    for &size in &options.sizes {
        let say = |what: &str| progress.set_message(format!("{}: {what}", size.name()));
        let paths = |routers: [Option<[u8; 6]>; 2]| {
            let count = 1 + usize::from(options.both);
            (0..count).map(|from| options.addresses.path(from, routers[from])).collect::<Vec<_>>()
        };
        loop_tester.load_frames(options.protocol, &paths([None; 2]), &size.lengths());
        tester.load_frames(options.protocol, &paths(routers), &size.lengths());
        let mut trials = Vec::new();
        let calibration = calibrate(&mut loop_tester, options, &mut trials, &say)?;
        sizes.push(measure(&mut tester, options, size, calibration, trials, &say)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    drop((opened.held, looped.held));
    let esp = options.esp.as_ref().map(|esp| esp.report(tester.ends(), Protected::engines(&engines)));
    Ok(Report::new(machine, options, opened.told, host::clock_source(), esp, sizes))
}

/// Asks routers for their hardware addresses.
fn find_routers<C: Clock>(
    tester: &mut Tester<C>,
    addresses: &Addresses,
    both: bool,
) -> Outcome<[Option<[u8; 6]>; 2]> {
    let mut found = [None; 2];
    let Some(routers) = addresses.routers else { return Ok(found) };
    for port in 0..=usize::from(both) {
        let request = tester.ports()[port].arp.request(routers[port]);
        tester.ask(port, &request, ROUTER_ANSWERS)?;
        let (router, address) = (routers[port], addresses.ports[port]);
        found[port] = tester.ports()[port].arp.router;
        found[port].ok_or_else(|| {
            format!(
                "{router} did not answer ARP from {address} within 3 s\n  fix: give the device's interface this address, and let it \
                 route to {}",
                addresses.ports[1 - port]
            )
        })?;
    }
    Ok(found)
}

/// The tester's own limits with these frames.
fn calibrate<C: Clock>(
    tester: &mut Tester<C>,
    options: &Options,
    trials: &mut Vec<Trial>,
    say: &dyn Fn(&str),
) -> Outcome<Calibration> {
    let plan = options.plan.of_calibration();
    let mut procedure = Procedure { tester, plan: &plan, most: f64::INFINITY, trials, progress: say };
    let fastest = procedure.trial(Purpose::Calibration, f64::INFINITY, plan.search_seconds)?;
    procedure.most = fastest.offered;
    if fastest.counts.received == 0 {
        return Err("no frame passed between the tester's own ports, connected to each other".into());
    }
    let throughput = procedure.throughput(Purpose::Calibration)?;
    let rates = throughput.iter().map(|it| it.rate).collect();
    let half = fastest.forwarded() / 2.0;
    let floor = procedure.trial(Purpose::Calibration, half, plan.latency_seconds)?.delays;
    Ok(Calibration { most: fastest.offered, rates, floor })
}

/// The measurements of one size.
fn measure<C: Clock>(
    tester: &mut Tester<C>,
    options: &Options,
    size: FrameSize,
    calibration: Calibration,
    mut trials: Vec<Trial>,
    say: &dyn Fn(&str),
) -> Outcome<SizeResult> {
    let line = options.line.map(|bits| line_rate(bits, options.bytes_on_line(size)));
    let most = line.unwrap_or(f64::INFINITY).min(calibration.most);
    let has = |test: Test| options.tests.contains(&test);
    let mut procedure = Procedure { tester, plan: &options.plan, most, trials: &mut trials, progress: say };
    let mut throughput = procedure.throughput(Purpose::Throughput)?;
    for (found, own) in throughput.iter_mut().zip(&calibration.rates) {
        found.limit = limit(found, *own, line);
    }
    let lossless = throughput.last().and_then(|it| it.rate);
    let mut latency = Vec::new();
    if let Some(rate) = lossless.filter(|_| has(Test::Latency)) {
        for share in LATENCY_LOADS {
            latency.push(procedure.latency(rate, share)?);
        }
    }
    let loss = if has(Test::FrameLoss) { procedure.loss_curve()? } else { Vec::new() };
    let back_to_back = match lossless.filter(|_| has(Test::BackToBack)) {
        Some(rate) => procedure.back_to_back(rate)?,
        None => None,
    };
    Ok(SizeResult {
        name: size.name(),
        bytes: size.mean(),
        line,
        most,
        calibration,
        throughput,
        latency,
        loss,
        back_to_back,
        trials,
    })
}

/// Why a throughput may be more than was measured.
fn limit(found: &Throughput, own: Option<f64>, line: Option<f64>) -> Option<Limit> {
    let rate = found.rate?;
    let is_line = line.is_some_and(|line| rate >= line * 0.999);
    let is_tester = rate >= own? * TESTER_LIMITED;
    if is_line { Some(Limit::Line) } else { is_tester.then_some(Limit::Tester) }
}

#[cfg(test)]
mod tests;
