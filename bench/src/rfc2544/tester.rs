//! One trial: frames leave at their times, what arrives is counted, and stragglers are waited for. All in one thread.

use super::direction::{Direction, Note};
use super::end::End;
use super::frame::Path;
use super::histogram::{Differences, Histogram};
use super::host::{Disturbance, Host};
use super::neighbour::Neighbour;
use super::outer::ROOM;
use super::receiver::Counts;
use super::trial::{Delays, Load, Spread, Trial};
use packet::{Batch, DropCounters};
use port::pcap::{Capture, Captured};
use port::{Receive, Transmit};
use std::collections::BTreeMap;
use std::io;

/// Most frames sent in one call.
const BURST: usize = 32;
/// Bytes of a batch: enough for what a port receives at once.
const BATCH: usize = 512 * 1024;
/// Nanoseconds that a handshake may take: some lost messages are sent again.
const HANDSHAKE: u64 = 16_000_000_000;
/// Nanoseconds that a device has to notice that its new key is confirmed.
const CONFIRMATION: u64 = 10_000_000;

/// Counts by name.
type Counters = BTreeMap<&'static str, u64>;

/// The time that the tester lives in.
pub trait Clock {
    /// Nanoseconds since some moment.
    fn now(&self) -> u64;

    /// Lets `nanoseconds` pass.
    fn rest(&self, nanoseconds: u64);

    /// Notes that a look at all ports found nothing.
    fn idle(&self) {}
}

/// The two halves of a port of the tester.
pub struct TesterPort {
    /// To the device.
    pub transmit: Box<dyn Transmit>,
    /// From the device.
    pub receive: Box<dyn Receive>,
    /// Answers for the addresses of the port.
    pub neighbour: Neighbour,
    /// Whether a frame that the port does not take is lost in the device: its ring is the device's.
    pub refused_is_lost: bool,
}

impl TesterPort {
    /// Writes all frames of the port to a capture file, which costs time.
    #[must_use]
    pub fn captured(self, capture: &Capture) -> Self {
        Self {
            transmit: Box::new(Captured::new(self.transmit, capture.clone())),
            receive: Box::new(Captured::new(self.receive, capture.clone())),
            ..self
        }
    }
}

/// The tester: its ports, and the frames that it sends between them.
pub struct Tester<C> {
    /// The clock of pacing and of delays.
    pub clock: C,
    ports: [TesterPort; 2],
    directions: Vec<Direction>,
    /// What seals and opens the frames, by port.
    ends: [Option<End>; 2],
    batch: Batch,
    drops: DropCounters,
    host: Host,
    trials: u16,
    /// Whether broadcast frames leave beside the test frames.
    has_broadcasts: bool,
}

impl<C: Clock> Tester<C> {
    /// A tester of frames of these lengths, in turn, on one or two paths: from the first port to the second, and back.
    pub fn new(clock: C, ports: [TesterPort; 2], host: Host) -> Self {
        let (batch, drops) = (Batch::new(BATCH), DropCounters::default());
        Self {
            clock,
            ports,
            directions: Vec::new(),
            ends: [None, None],
            batch,
            drops,
            host,
            trials: 0,
            has_broadcasts: false,
        }
    }

    /// Sets the frames of the next trials: their paths, and their lengths in turn.
    pub fn load_frames(&mut self, paths: &[Path], lengths: &[usize]) {
        let direction = |(from, path)| Direction::new(from, path, lengths, self.has_broadcasts);
        self.directions = paths.iter().enumerate().map(direction).collect();
    }

    /// Sets what seals and opens the frames, by port.
    #[must_use]
    pub fn with_ends(self, ends: [Option<End>; 2]) -> Self {
        Self { ends, ..self }
    }

    /// What seals and opens the frames, by port.
    pub fn ends(&self) -> &[Option<End>; 2] {
        &self.ends
    }

    /// Lets broadcast frames leave beside the test frames that are loaded from now on.
    pub fn set_broadcasts(&mut self, has_broadcasts: bool) {
        self.has_broadcasts = has_broadcasts;
    }

    /// Sets the hardware addresses of the station behind a port and of the port.
    pub fn set_stations(&mut self, port: usize, other: [u8; 6], own: [u8; 6]) {
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&other);
        macs[6..].copy_from_slice(&own);
        if let Some(end) = &mut self.ends[port] {
            end.set_stations(macs);
        }
    }

    /// The ports, to ask for hardware addresses before the first trial.
    pub fn ports(&mut self) -> &mut [TesterPort; 2] {
        &mut self.ports
    }

    /// Makes one trial.
    pub fn run(&mut self, load: &Load) -> io::Result<Trial> {
        // What came meanwhile belongs to no trial.
        while self.receive()? {}
        self.renew_keys()?;
        let (before, counted) = (self.host.look(), self.counters());
        self.trials = self.trials.wrapping_add(1);
        let start = self.clock.now();
        for (place, direction) in self.directions.iter_mut().enumerate() {
            direction.prepare(load, start, self.trials << 1 | place as u16);
        }
        let end = start + (load.seconds * 1e9) as u64;
        loop {
            let now = self.clock.now();
            if now >= end || self.directions.iter().all(|it| it.next >= it.pacer.total()) {
                break;
            }
            let mut is_idle = true;
            for direction in 0..self.directions.len() {
                is_idle &= !self.send(direction, now)?;
            }
            is_idle &= !self.receive()?;
            if is_idle {
                self.clock.idle();
            }
        }
        self.wait_for_stragglers(load)?;
        let disturbance = self.host.look().since(&before);
        let mut ports = self.counters();
        for (name, count) in &mut ports {
            *count -= counted.get(name).copied().unwrap_or_default().min(*count);
        }
        Ok(self.summary(load, disturbance, ports))
    }

    /// Waits until all ports have a fresh key.
    fn renew_keys(&mut self) -> io::Result<()> {
        let begun = self.clock.now();
        let asked: Vec<_> = self.ends.iter_mut().flatten().filter_map(|end| end.renew(begun)).collect();
        let Some(other) = asked.last() else { return Ok(()) };
        while !self.ends.iter().flatten().all(|end| end.is_ready(self.clock.now())) {
            if self.clock.now() - begun > HANDSHAKE {
                let text = format!(
                    "{other} did not answer the handshake of WireGuard within {} s\n  fix: give the device the public key of PrivateKey, \
                     and check PublicKey, PresharedKey and Endpoint",
                    HANDSHAKE / 1_000_000_000
                );
                return Err(io::Error::other(text));
            }
            if !self.receive()? {
                self.clock.idle();
            }
        }
        // The other end may send with the new key once it has the first packet under it.
        self.clock.rest(CONFIRMATION);
        while self.receive()? {}
        Ok(())
    }

    /// Receives until nothing has come for a while.
    fn wait_for_stragglers(&mut self, load: &Load) -> io::Result<()> {
        let settle = (load.settle_seconds * 1e9) as u64;
        let mut last = self.clock.now();
        while self.clock.now() - last < settle {
            if self.receive()? {
                last = self.clock.now();
            } else {
                self.clock.idle();
            }
        }
        Ok(())
    }

    /// Sends what is due in one direction, at most a burst; whether anything was.
    #[inline]
    fn send(&mut self, index: usize, now: u64) -> io::Result<bool> {
        let direction = &mut self.directions[index];
        let count = (direction.pacer.due(now) - direction.next).min(BURST as u64);
        if count == 0 {
            return Ok(false);
        }
        self.batch.clear();
        let end = self.ends[direction.from].as_mut();
        let room = if end.is_some() { ROOM } else { 0 };
        direction.fill(&mut self.batch, count, now, room);
        if let Some(end) = end
            && !end.seal(&mut self.batch, direction.next, now)?
        {
            return Ok(false);
        }
        direction.add_broadcasts(&mut self.batch, count);
        self.batch.close_train(0, None, 0);
        let port = &mut self.ports[direction.from];
        port.transmit.transmit(&mut self.batch, &self.drops);
        let taken =
            if port.refused_is_lost { count } else { self.batch.live(0..count as usize).count() as u64 };
        direction.left(taken, now);
        Ok(taken > 0)
    }

    /// Takes what has arrived at both ports; whether anything did.
    #[inline]
    fn receive(&mut self) -> io::Result<bool> {
        let mut any = false;
        for (place, port) in self.ports.iter_mut().enumerate() {
            if let Some(end) = &mut self.ends[place] {
                for frame in end.tick(self.clock.now()) {
                    port.send(&frame, &mut self.batch, &self.drops);
                }
            }
            self.batch.clear();
            if port.receive.receive(&mut self.batch, &self.drops)? == 0 {
                continue;
            }
            any = true;
            let now = self.clock.now();
            let mut requests = Vec::new();
            let opened = self.ends[place].as_mut().map(|end| end.open(&mut self.batch, now));
            let direction = self.directions.iter_mut().find(|it| it.to == place);
            let note = Note { direction, neighbour: &mut port.neighbour, now };
            note.all(&self.batch, opened, &mut requests);
            for answer in requests {
                port.send(&answer, &mut self.batch, &self.drops);
            }
        }
        Ok(any)
    }

    /// Shows the ports' hardware addresses to bridges.
    pub fn learn(&mut self) {
        for port in &mut self.ports {
            for announcement in port.neighbour.announcements() {
                port.send(&announcement, &mut self.batch, &self.drops);
            }
        }
    }

    /// Sends a frame that is not of a trial, and takes what arrives at that port for some time.
    pub fn ask(&mut self, port: usize, frame: &[u8], nanoseconds: u64) -> io::Result<()> {
        self.ports[port].send(frame, &mut self.batch, &self.drops);
        let end = self.clock.now() + nanoseconds;
        while self.clock.now() < end && self.ports[port].neighbour.router.is_none() {
            if !self.receive()? {
                self.clock.idle();
            }
        }
        Ok(())
    }

    /// What the kernel has counted of the ports.
    fn counters(&mut self) -> Counters {
        let mut counters = Counters::new();
        for port in &mut self.ports {
            for (name, count) in port.transmit.counters().into_iter().chain(port.receive.counters()) {
                *counters.entry(name).or_default() += count;
            }
        }
        counters
    }

    fn summary(&self, load: &Load, disturbance: Disturbance, ports: Counters) -> Trial {
        let (mut counts, mut delays, mut samples) = (Counts::default(), Histogram::default(), Vec::new());
        let mut changes = Differences::default();
        let streams: Vec<_> = self.directions.iter().map(|it| it.receiver.by_stream.clone()).collect();
        let (mut late, mut offered) = (0, f64::INFINITY);
        for direction in &self.directions {
            counts = counts.and(direction.receiver.counts);
            delays.add(&direction.receiver.delays);
            changes.add(&direction.receiver.delay_changes);
            samples.extend(&direction.receiver.samples);
            late += direction.late;
            offered = offered.min(direction.offered(load));
        }
        Trial {
            purpose: load.purpose,
            rate: load.rate.is_finite().then_some(load.rate),
            offered,
            seconds: load.seconds,
            burst: load.burst,
            counts,
            lost: counts.lost(),
            directions: self.directions.iter().map(|it| it.receiver.counts).collect(),
            spread: Spread::of(&streams),
            streams,
            late_share: late as f64 / counts.sent.max(1) as f64,
            delays: Delays::of(&delays),
            ipdv: changes.least_median_most().map(|it| it.map(|change| change / 1e3)),
            samples,
            disturbance,
            ports,
        }
    }
}

impl TesterPort {
    /// Sends one frame.
    fn send(&mut self, frame: &[u8], batch: &mut Batch, drops: &DropCounters) {
        batch.clear();
        if let Some(place) = batch.append(frame.len()) {
            place.copy_from_slice(frame);
            batch.close_train(0, None, 0);
            self.transmit.transmit(batch, drops);
        }
    }
}
