//! One tester and what it measures through its two ports: with them connected to each other, its own limits; else those of a device.

use super::addresses::Addresses;
use super::broadcast::SHARE;
use super::end::End;
use super::host::Host;
use super::procedure::{Limit, Procedure, Throughput};
use super::protection::Protection;
use super::report::{Calibration, SizeResult, StreamResult};
use super::tester::{Clock, Tester};
use super::trial::{Purpose, Trial};
use super::wire::{Held, Opened};
use super::{FrameSize, Options, Plan, Protocol, Test, line_rate};
use crate::Outcome;
use crypto::Engine;
use crypto::choice::{Choice, Slot};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A result of at least this share of the tester's own is the tester's.
const TESTER_LIMITED: f64 = 0.8;
/// Loads of latency, as shares of the throughput.
const LATENCY_LOADS: [f64; 3] = [1.0, 0.5, 0.1];
/// Frames of each stream from which a device learns, and their rate.
const LEARNING_FRAMES: usize = 8;
const LEARNING_RATE: f64 = 20_000.0;
/// How long a router may take to answer ARP or neighbour discovery.
const ROUTER_ANSWERS: u64 = 3_000_000_000;

/// The clock of the machine: CLOCK_MONOTONIC, which the C library reads from the processor's counter where the kernel does.
pub(crate) struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn rest(&self, nanoseconds: u64) {
        std::thread::sleep(Duration::from_nanos(nanoseconds));
    }
}

/// The names of crypto engines.
pub(crate) struct Engines(Arc<Choice>);

impl Engines {
    /// The names of the engines that were chosen for packets of any size.
    pub(crate) fn names(&self) -> Vec<String> {
        let rows = self.0.rows();
        let chosen = rows.iter().flat_map(|(_, row)| Slot::all().map(|slot| row.chosen(slot)));
        let indices: BTreeSet<usize> = chosen.collect();
        indices.into_iter().map(|index| self.0.engines()[index].name().to_owned()).collect()
    }
}

/// What seals and opens at each port, of the device and without it, and the engines that may do it.
pub(crate) struct Protected {
    pub(crate) ends: [Option<End>; 2],
    pub(crate) looped: [Option<End>; 2],
    pub(crate) engines: Engines,
}

impl Protected {
    /// Loads the keys; there are no ends without protection.
    pub(crate) fn load(protection: Option<&Protection>, addresses: &Addresses) -> Outcome<Self> {
        let choice = Arc::new(Choice::here(None));
        let engine: Arc<dyn Engine> = Arc::<Choice>::clone(&choice);
        let (ends, looped) = match protection {
            Some(it) => (it.ends(addresses, &engine)?, it.looped_ends(addresses, &engine)?),
            None => ([None, None], [None, None]),
        };
        Ok(Self { ends, looped, engines: Engines(choice) })
    }
}

/// A tester with open ports.
pub(crate) struct Session {
    tester: Tester<RealClock>,
    addresses: Addresses,
    routers: [Option<[u8; 6]>; 2],
    /// How the ports were opened.
    pub(crate) told: [String; 2],
    _held: Held,
}

impl Session {
    /// A tester with these ports; `ends` seal and open the frames at them.
    pub(crate) fn new(opened: Opened, addresses: Addresses, ends: [Option<End>; 2]) -> Self {
        let Opened { ports, told, held } = opened;
        let tester = Tester::new(RealClock(Instant::now()), ports, Host::Here).with_ends(ends);
        Self { tester, addresses, routers: [None; 2], told, _held: held }
    }

    /// Asks the routers of the addresses for their hardware addresses.
    pub(crate) fn find_routers(&mut self, both: bool) -> Outcome<()> {
        // A port with handshakes sends frames in any case.
        let is_used = |port: usize| port == 0 || both || matches!(self.ends()[port], Some(End::WireGuard(_)));
        let used = [0, 1].map(is_used);
        self.routers = find_routers(&mut self.tester, &self.addresses, used)?;
        Ok(())
    }

    /// Lets broadcast frames leave beside the test frames.
    pub(crate) fn set_broadcasts(&mut self, has_broadcasts: bool) {
        self.tester.set_broadcasts(has_broadcasts);
    }

    /// What seals and opens the frames, by port.
    pub(crate) fn ends(&self) -> &[Option<End>; 2] {
        self.tester.ends()
    }

    /// Sets the frames of the next trials.
    pub(crate) fn load(&mut self, protocol: Protocol, both: bool, size: FrameSize) {
        let path = |from: usize| self.addresses.path(from, self.routers[from], protocol);
        let paths: Vec<_> = (0..=usize::from(both)).map(path).collect();
        self.tester.load_frames(&paths, &size.lengths());
        for port in 0..2 {
            let other = self.routers[port].unwrap_or(Addresses::mac(1 - port));
            self.tester.set_stations(port, other, Addresses::mac(port));
        }
    }

    /// The tester's own limits with these frames: its ports are connected to each other.
    pub(crate) fn calibrate(
        &mut self,
        plan: &Plan,
        trials: &mut Vec<Trial>,
        say: &dyn Fn(&str),
    ) -> Outcome<Calibration> {
        calibrate(&mut self.tester, plan, trials, say)
    }

    /// The measurements of one size.
    pub(crate) fn measure(
        &mut self,
        options: &Options,
        size: FrameSize,
        calibration: Calibration,
        trials: Vec<Trial>,
        say: &dyn Fn(&str),
    ) -> Outcome<SizeResult> {
        measure(&mut self.tester, options, size, calibration, trials, say)
    }

    /// Whether frames arrive in all directions, at a rate that any device carries.
    pub(crate) fn carries(&mut self, plan: &Plan) -> io::Result<bool> {
        let trial = self.trial(plan, Purpose::Learning, 2_000.0, 0.1)?;
        Ok(trial.directions.iter().all(|direction| direction.received > 0))
    }

    /// Lets a device find the addresses of several streams: it asks for each when its first frame comes, and that frame waits or is lost.
    pub(crate) fn learn(&mut self, plan: &Plan) -> io::Result<()> {
        let streams = self.addresses.streams[0].len();
        if streams > 1 {
            let seconds = (streams * LEARNING_FRAMES) as f64 / LEARNING_RATE;
            self.trial(plan, Purpose::Learning, LEARNING_RATE, seconds)?;
        }
        Ok(())
    }

    /// One trial at a rate.
    pub(crate) fn trial(
        &mut self,
        plan: &Plan,
        purpose: Purpose,
        rate: f64,
        seconds: f64,
    ) -> io::Result<Trial> {
        let (most, trials, progress) = (rate, &mut Vec::new(), &|_: &str| {});
        Procedure { tester: &mut self.tester, plan, most, trials, progress }.trial(purpose, rate, seconds)
    }
}

/// Asks routers for their hardware addresses.
fn find_routers<C: Clock>(
    tester: &mut Tester<C>,
    addresses: &Addresses,
    used: [bool; 2],
) -> Outcome<[Option<[u8; 6]>; 2]> {
    let mut found = [None; 2];
    let Some(routers) = addresses.routers else { return Ok(found) };
    for port in (0..2).filter(|&port| used[port]) {
        let (router, own) = (routers[port], addresses.own(port));
        let from = own.iter().find(|own| own.is_ipv4() == router.is_ipv4());
        let (Some(from), Some(request)) = (from, tester.ports()[port].neighbour.request()) else {
            let text = format!(
                "{router} is not of the family of {}\n  fix: --routers with an address of its family at this port",
                own[0]
            );
            return Err(text.into());
        };
        tester.ask(port, &request, ROUTER_ANSWERS)?;
        found[port] = tester.ports()[port].neighbour.router;
        found[port].ok_or_else(|| {
            let asked = if router.is_ipv4() { "ARP" } else { "neighbour discovery" };
            format!(
                "{router} did not answer {asked} from {from} within 3 s\n  fix: give the device's interface this address, and let it \
                 route to {}",
                addresses.streams[port][0].destination
            )
        })?;
    }
    Ok(found)
}

/// The tester's own limits with these frames.
pub(super) fn calibrate<C: Clock>(
    tester: &mut Tester<C>,
    plan: &Plan,
    trials: &mut Vec<Trial>,
    say: &dyn Fn(&str),
) -> Outcome<Calibration> {
    let plan = plan.of_calibration();
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
pub(super) fn measure<C: Clock>(
    tester: &mut Tester<C>,
    options: &Options,
    size: FrameSize,
    calibration: Calibration,
    mut trials: Vec<Trial>,
    say: &dyn Fn(&str),
) -> Outcome<SizeResult> {
    let share = if options.broadcasts { SHARE } else { 1.0 };
    let line = options.line.map(|bits| line_rate(bits, options.bytes_on_line(size)) * share);
    let most = line.unwrap_or(f64::INFINITY).min(calibration.most);
    let has = |test: Test| options.tests.contains(&test);
    let mut procedure = Procedure { tester, plan: &options.plan, most, trials: &mut trials, progress: say };
    let mut throughput = procedure.throughput(Purpose::Throughput)?;
    for (found, own) in throughput.iter_mut().zip(&calibration.rates) {
        found.limit = limit(found, *own, line);
    }
    let lossless = throughput.last().and_then(|it| it.rate);
    let mut latency = Vec::new();
    // A device without a rate that loses nothing still has delays: those of the PDR, as FD.io CSIT takes them.
    let found = throughput.iter().rev().find_map(|it| Some((it.rate?, it.loss)));
    if let Some((rate, loss)) = found.filter(|_| has(Test::Latency)) {
        for share in LATENCY_LOADS {
            latency.push(procedure.latency(rate, loss, share)?);
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
        streams: if options.addresses.streams[0].len() > 1 {
            StreamResult::of(&options.addresses.streams, &trials)
        } else {
            Vec::new()
        },
        trials,
    })
}

/// Why a throughput may be more than was measured.
pub(super) fn limit(found: &Throughput, own: Option<f64>, line: Option<f64>) -> Option<Limit> {
    let rate = found.rate?;
    let is_line = line.is_some_and(|line| rate >= line * 0.999);
    let is_tester = rate >= own? * TESTER_LIMITED;
    if is_line { Some(Limit::Line) } else { is_tester.then_some(Limit::Tester) }
}
