//! One measurement of one pair, and the CPU time that it took.

use super::report::{Cost, Run};
use super::{is_for_subtraction, is_over_tcp};
use crate::Outcome;
use lab::traffic;
use lab::wireguard::{Gateway, Tunnel};
use lab::{Lab, softirq_seconds};
use std::collections::BTreeMap;
use std::time::Duration;

/// One kind of measurement. The client of the tunnel begins each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    RoundTrip { loaded: bool },
    Tcp { reverse: bool },
    Http,
    Udp { payload: u32 },
}

/// All measurements, in order. A UDP payload of 1372 bytes is an IP packet of 1400.
pub(super) const TESTS: &[Test] = &[
    Test::RoundTrip { loaded: false },
    Test::Tcp { reverse: false },
    Test::Tcp { reverse: true },
    Test::Http,
    Test::Udp { payload: 64 },
    Test::Udp { payload: 1372 },
    Test::RoundTrip { loaded: true },
];

/// One TCP stream to the server, and back: their names in reports.
pub(super) const TO_SERVER: &str = "TCP to the server";
pub(super) const TO_CLIENT: &str = "TCP to the client";
pub(super) const SMALL: &str = "UDP, 64 bytes";

impl Test {
    pub(super) fn name(self) -> String {
        match self {
            Self::RoundTrip { loaded: false } => "round trip".to_owned(),
            Self::RoundTrip { loaded: true } => "round trip under TCP".to_owned(),
            Self::Tcp { reverse: false } => TO_SERVER.to_owned(),
            Self::Tcp { reverse: true } => TO_CLIENT.to_owned(),
            Self::Http => "download by HTTP".to_owned(),
            Self::Udp { payload: 64 } => SMALL.to_owned(),
            Self::Udp { payload } => format!("UDP, {} bytes", payload + 28),
        }
    }

    /// Whether this is measured with a pair. Pairs for subtraction make the two transfers that the bottleneck is found with; over TCP,
    /// a download and large datagrams would show no more than the other measurements do.
    pub(super) fn is_for(self, pair: &str) -> bool {
        if is_for_subtraction(pair) {
            return matches!(self, Self::Tcp { reverse: false } | Self::Http);
        }
        !is_over_tcp(pair) || !matches!(self, Self::Http | Self::Udp { payload: 1372 })
    }

    /// The units of the value, and of its cost, if it has one.
    pub(super) fn units(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::RoundTrip { .. } => ("ms", None),
            Self::Tcp { .. } | Self::Http => ("Gbit/s", Some("CPU s/GB")),
            Self::Udp { .. } => ("kpackets/s", Some("CPU us/packet")),
        }
    }

    /// Measures once.
    pub(super) fn measure(self, lab: &Lab, tunnel: &Tunnel, server: &str, seconds: u32) -> Outcome<Run> {
        let (from, to) = (tunnel.gateways[0].namespace.as_str(), tunnel.inside[1].as_str());
        let before = Times::now(tunnel)?;
        let (value, units) = match self {
            Self::RoundTrip { loaded: false } => {
                let times = traffic::ping(lab, from, to, 100, Duration::from_millis(10))?;
                return Ok(Run::round_trip(times.quantile(0.5), times.quantile(0.99)));
            }
            Self::RoundTrip { loaded: true } => return loaded(lab, from, to, seconds),
            Self::Tcp { reverse } => {
                let transfer = traffic::tcp(lab, from, to, 1, reverse, seconds)?;
                (transfer.gigabits(), transfer.bytes / 1e9)
            }
            Self::Http => {
                let transfer = traffic::http(lab, from, (server, to), seconds)?;
                (transfer.gigabits(), transfer.bytes / 1e9)
            }
            Self::Udp { payload } => {
                let transfer = traffic::udp(lab, from, to, payload, seconds)?;
                (transfer.kilopackets(), transfer.packets / 1e6)
            }
        };
        if units <= 0.0 {
            return Err("nothing arrived".into());
        }
        Ok(Times::now(tunnel)?.since(&before, tunnel, value, units, seconds))
    }
}

/// Round trips while one TCP stream goes to the server.
fn loaded(lab: &Lab, from: &str, to: &str, seconds: u32) -> Outcome<Run> {
    std::thread::scope(|scope| {
        let load =
            scope.spawn(|| traffic::tcp(lab, from, to, 1, false, seconds).map_err(|error| error.to_string()));
        std::thread::sleep(Duration::from_millis(500));
        let count = (seconds.max(2) - 1) * 50;
        let times = traffic::ping(lab, from, to, count, Duration::from_millis(20));
        load.join().map_err(|_| "the load failed")??;
        let times = times?;
        Ok(Run::round_trip(times.quantile(0.5), times.quantile(0.99)))
    })
}

/// CPU time so far, of both gateways by thread, and of the machine in softirqs.
struct Times {
    threads: [BTreeMap<String, (String, [f64; 2])>; 2],
    softirq: f64,
}

impl Times {
    fn now(tunnel: &Tunnel) -> Outcome<Self> {
        let [client, server] = &tunnel.gateways;
        Ok(Self {
            threads: [client.process.threads()?, server.process.threads()?],
            softirq: softirq_seconds()?,
        })
    }

    /// The run since then, for each of these units.
    fn since(&self, before: &Self, tunnel: &Tunnel, value: f64, units: f64, seconds: u32) -> Run {
        let end = |index: usize| {
            let (then, gateway) = (&before.threads[index], &tunnel.gateways[index]);
            cost(&self.threads[index], then, gateway, units, f64::from(seconds))
        };
        let softirq = (self.softirq - before.softirq) / units;
        Run { value, tail: None, client: Some(end(0)), server: Some(end(1)), softirq: Some(softirq) }
    }
}

fn cost(
    now: &BTreeMap<String, (String, [f64; 2])>,
    before: &BTreeMap<String, (String, [f64; 2])>,
    gateway: &Gateway,
    units: f64,
    seconds: f64,
) -> Cost {
    let mut cost = Cost::default();
    for (id, (name, times)) in now {
        let then = before.get(id).map_or([0.0; 2], |(_, times)| *times);
        let [user, system] = [0, 1].map(|mode| times[mode] - then[mode]);
        cost.user += user / units;
        cost.system += system / units;
        // Our threads are named after their interface.
        let name = name.strip_prefix(&gateway.interface).unwrap_or(name).trim();
        *cost.threads.entry(name.to_owned()).or_default() += (user + system) / units;
        cost.busiest = cost.busiest.max((user + system) / seconds);
    }
    cost.threads.retain(|_, spent| *spent > 0.0);
    cost
}
