//! `postern bench rfc2544`: frames between two ports, and what a device between them does to them (RFC 2544, 8219, 9004).
//!
//! ```text
//! for each frame size:
//!   calibrate   the tester's ports, connected to each other: highest rate, throughput, delay
//!   measure     throughput, latency, frame loss, back-to-back frames through the device
//!   compare     a result near the tester's own is marked as the tester's limit
//! ```

mod addresses;
mod broadcast;
pub(crate) mod chart;
#[cfg(test)]
mod device;
mod direction;
mod dpdk;
mod end;
mod esp;
mod frame;
mod histogram;
pub(crate) mod host;
mod neighbour;
mod outer;
mod pacer;
mod plan;
pub(crate) mod procedure;
mod protection;
mod receiver;
mod report;
mod search;
pub(crate) mod session;
mod streams;
mod tester;
pub(crate) mod text;
pub(crate) mod trial;
pub(crate) mod wire;
mod wireguard;

pub use addresses::Addresses;
pub use esp::{Esp, EspReport, EspSa};
pub use frame::Protocol;
pub use outer::OuterAddresses;
pub use plan::Plan;
pub use protection::Protection;
#[cfg(test)]
pub(crate) use report::tests::example;
pub use report::{Calibration, Report, SizeResult};
pub use streams::{Family, MOST as MOST_STREAMS, Stream};
pub use wire::Wire;
pub use wireguard::{WireGuard, WireGuardReport};

use crate::Outcome;
use crate::pipeline::imix;
use crate::report::Machine;
use crate::tunnel::progress_bar;
use lab::pin_thread;
use packet::header::ethernet::{EthernetHeader, FCS, GAP};
use port::pcap::Capture;
use session::{Protected, Session};
use std::path::PathBuf;

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

    /// The sizes for frames of this family: the shortest with IPv6 have a tag behind its longer header.
    pub fn all(family: Family) -> Vec<Self> {
        let shortest = frame::shortest(family) + FCS;
        let longer =
            |size| if let Self::Bytes(bytes) = size { Self::Bytes(bytes.max(shortest)) } else { size };
        Self::ALL.map(longer).to_vec()
    }

    /// Whether frames of this family can be so short.
    pub fn fits(self, family: Family) -> bool {
        self.lengths().iter().all(|&length| length >= frame::shortest(family))
    }

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
    pub(crate) fn mean(self) -> f64 {
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
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub struct Options {
    /// The kind of the ports.
    pub wire: Wire,
    /// The interfaces of the ports; of no use in memory.
    pub interfaces: [String; 2],
    /// The addresses of the ports and of the streams.
    pub addresses: Addresses,
    /// Whether frames go in both directions at once.
    pub both: bool,
    /// The protocol of the frames.
    pub protocol: Protocol,
    /// The ports with encrypted packets, and their keys.
    pub protection: Option<Protection>,
    /// The frame sizes.
    pub sizes: Vec<FrameSize>,
    /// The measurements; a throughput is always measured.
    pub tests: Vec<Test>,
    /// Lengths and repetitions.
    pub plan: Plan,
    /// Bits a second of the line, if the interfaces have a speed.
    pub line: Option<f64>,
    /// Whether one frame in a hundred is a broadcast frame, beside the test frames.
    pub broadcasts: bool,
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
    /// Bytes of a frame on average where it is longest: encrypted if it is.
    fn bytes_on_line(&self, size: FrameSize) -> f64 {
        let Some(protection) = &self.protection else { return size.mean() };
        let lengths = size.lengths();
        let sealed: usize = lengths.iter().map(|&length| protection.longest(length) + FCS).sum();
        sealed as f64 / lengths.len() as f64
    }

    /// Refuses interfaces whose mtu is too small for the longest frame, which would be lost there.
    fn check_mtu(&self) -> Outcome<()> {
        let Some(protection) = self.protection.as_ref().filter(|_| self.wire.has_interfaces()) else {
            return Ok(());
        };
        let longest = self.sizes.iter().flat_map(|size| size.lengths()).max().unwrap_or_default();
        let needed = protection.longest(longest) - EthernetHeader::LENGTH;
        for (interface, _) in self.interfaces.iter().zip(protection.ports()).filter(|it| it.1) {
            let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).unwrap_or_default();
            if text.trim().parse::<usize>().is_ok_and(|mtu| mtu < needed) {
                let mtu = text.trim();
                return Err(format!(
                    "{interface} has an mtu of {mtu}, and the longest packets have {needed} bytes with {}\n  fix: ip link set \
                     {interface} mtu {needed}, and the same at the device",
                    protection.name()
                )
                .into());
            }
        }
        Ok(())
    }
}

/// Frames a second that a line carries, of so many bytes on average.
pub(crate) fn line_rate(bits: f64, bytes: f64) -> f64 {
    bits / 8.0 / (bytes + GAP as f64)
}

/// Measures all sizes.
pub fn run(options: &Options) -> Outcome<Report> {
    // Before the thread is pinned: it counts the cores that it may use.
    let machine = Machine::here();
    pin_thread(None, options.core)?;
    let device_core = usize::from(options.core == 0);
    options.check_mtu()?;
    let Protected { ends, looped: looped_ends, engines } =
        Protected::load(options.protection.as_ref(), &options.addresses)?;
    let looped = options.wire.open_loop(&options.addresses)?;
    let mut opened =
        options.wire.open(&options.interfaces, &options.addresses, device_core, options.defer_napi)?;
    if let Some(path) = &options.capture {
        let failed = |error| format!("{}: {error}", path.display());
        let capture = Capture::create_for_frames(path).map_err(failed)?;
        opened.ports = opened.ports.map(|port| port.captured(&capture));
    }
    let mut looped = Session::new(looped, options.addresses.clone(), looped_ends);
    let mut session = Session::new(opened, options.addresses.clone(), ends);
    session.find_routers(options.both)?;
    looped.set_broadcasts(options.broadcasts);
    session.set_broadcasts(options.broadcasts);
    let progress = progress_bar(options.progress, options.sizes.len() as u64);
    let mut sizes = Vec::new();
    for &size in &options.sizes {
        let say = |what: &str| progress.set_message(format!("{}: {what}", size.name()));
        looped.load(options.protocol, options.both, size);
        session.load(options.protocol, options.both, size);
        if sizes.is_empty() {
            session.learn(&options.plan)?;
        }
        let mut trials = Vec::new();
        let calibration = looped.calibrate(&options.plan, &mut trials, &say)?;
        sizes.push(session.measure(options, size, calibration, trials, &say)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let protection = options.protection.as_ref();
    let protection = protection.map(|it| it.report(session.ends(), engines.names())).unwrap_or_default();
    Ok(Report::new(machine, options, session.told.clone(), host::clock_source(), protection, sizes))
}

#[cfg(test)]
mod tests;
