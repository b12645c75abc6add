//! Measures one flood: a transfer while the gateway is flooded, while a closed port is flooded, and without a flood.

use crate::Outcome;
use crate::report::median;
use arc_swap::ArcSwapOption;
use lab::traffic;
use lab::{Lab, Process};
use packet::{Batch, DropCounters, Endpoint};
use port::udp::{SocketSlot, UdpSockets, UdpTransmit};
use port::{Offloads, Transmit};
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What to measure.
pub struct Options {
    /// The program under test.
    pub program: PathBuf,
    /// The protocol to flood.
    pub protocol: Protocol,
    /// Datagrams per second.
    pub rate: u32,
    /// Seconds for each measurement.
    pub seconds: u32,
    /// Number of measurements of each kind.
    pub rounds: u32,
    /// Whether to show progress.
    pub progress: bool,
}

/// The protocol to flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// WireGuard.
    WireGuard,
    /// IKE, and ESP in UDP.
    Ike,
}

/// Number of source addresses.
pub(super) const SOURCES: u32 = 1 << 20;
/// A port without a listener.
const CLOSED_PORT: u16 = 9;

/// The result of one flood.
#[derive(Debug, Serialize)]
pub struct Flood {
    /// The type of datagram.
    pub name: &'static str,
    /// The rate that was reached, in datagrams per second.
    pub sent_rate: f64,
    /// Gbit/s of the transfer without a flood.
    pub speed_without: f64,
    /// Gbit/s of the transfer while a closed port is flooded.
    pub speed_elsewhere: f64,
    /// Gbit/s of the transfer while the gateway is flooded.
    pub speed: f64,
    /// Milliseconds until a new peer's tunnel is up during the flood. For IKE, the slowest of several new peers, during
    /// the transfer.
    pub handshake_ms: f64,
    /// Growth of the gateway's resident memory in MiB.
    pub grown: f64,
}

/// The environment of a flood.
pub(super) struct Scene<'a> {
    pub(super) lab: &'a Lab,
    /// The process of the gateway.
    pub(super) gateway: Process,
    /// The destination of transfers from the namespace `a`.
    pub(super) inside: &'a str,
    /// The port to flood.
    pub(super) port: u16,
    /// Makes the datagram with a given number.
    pub(super) datagram: &'a (dyn Fn(u32) -> Vec<u8> + Sync),
    /// Connects a new peer; returns the milliseconds until its tunnel is up.
    pub(super) call_anew: &'a dyn Fn() -> Outcome<f64>,
}

impl Scene<'_> {
    pub(super) fn measure(&self, options: &Options, name: &'static str) -> Outcome<Flood> {
        let before = self.gateway.memory()?;
        let speed = || Ok(traffic::tcp(self.lab, "a", self.inside, 1, false, options.seconds)?.gigabits());
        let (mut without, mut elsewhere, mut here) = (Vec::new(), Vec::new(), Vec::new());
        let mut rates = Vec::new();
        for _ in 0..options.rounds {
            without.push(speed()?);
            for (port, speeds) in [(CLOSED_PORT, &mut elsewhere), (self.port, &mut here)] {
                let (speed, rate) = self.under_flood(options, port, speed)?;
                speeds.push(speed);
                rates.push(rate);
            }
        }
        let (handshake_ms, _) = self.under_flood(options, self.port, self.call_anew)?;
        let grown = self.gateway.memory()?.saturating_sub(before) as f64 / f64::from(1 << 20);
        Ok(Flood {
            name,
            sent_rate: median(&rates),
            speed_without: median(&without),
            speed_elsewhere: median(&elsewhere),
            speed: median(&here),
            handshake_ms,
            grown,
        })
    }

    /// Runs `action` while a port of the gateway is flooded; also returns the rate that was reached.
    fn under_flood<T>(
        &self,
        options: &Options,
        port: u16,
        action: impl FnOnce() -> Outcome<T>,
    ) -> Outcome<(T, f64)> {
        let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (stop, sent, lab, datagram) = (&stop, &sent, self.lab, self.datagram);
            let target = SocketAddr::from(([192, 168, 78, 1], port));
            let flooding =
                scope.spawn(move || lab.enter("c", || flood(datagram, target, options.rate, stop, sent)));
            let started = Instant::now();
            std::thread::sleep(Duration::from_millis(300));
            let outcome = action();
            stop.store(true, Ordering::Relaxed);
            let rate = sent.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
            flooding.join().map_err(|_| "the flood panicked")???;
            Ok((outcome?, rate))
        })
    }
}

/// Sends datagrams at a given rate, each from another address, until stopped.
fn flood(
    datagram: &(dyn Fn(u32) -> Vec<u8> + Sync),
    target: SocketAddr,
    rate: u32,
    stop: &AtomicBool,
    sent: &AtomicU64,
) -> Outcome<()> {
    const BURST: u32 = 32;
    const LONGEST: usize = 768;
    let offloads = Arc::new(Offloads::default());
    let slot: SocketSlot = Arc::new(ArcSwapOption::from_pointee(UdpSockets::bind(7001, 0, &offloads)?));
    let mut transmit = UdpTransmit::new(slot, offloads);
    let mut batch = Batch::new(BURST as usize * Batch::footprint(LONGEST));
    let drops = DropCounters::default();
    let mut number = 0u32;
    let started = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        batch.clear();
        for _ in 0..BURST {
            number = number.wrapping_add(1);
            let datagram = datagram(number);
            let first = batch.len();
            batch.append(datagram.len()).ok_or("too small")?.copy_from_slice(&datagram);
            let local = Some(Ipv4Addr::from(0x0a40_0000 + number % SOURCES + 1).into());
            batch.close_train(first, Some(Endpoint { local, ..Endpoint::new(target) }), 0);
        }
        transmit.transmit(&mut batch, &drops);
        sent.fetch_add(BURST.into(), Ordering::Relaxed);
        let due = Duration::from_secs_f64(f64::from(number) / f64::from(rate));
        std::thread::sleep(due.saturating_sub(started.elapsed()));
    }
    Ok(())
}
