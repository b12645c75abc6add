//! One tunnel and a thousand, by UDP, with packets of 64 and 1400 bytes and of the Internet mix.
//!
//! The peers are simulated by one thread of this program, which also sends what comes from inside. A gateway without cipher has one
//! receiving thread a direction, and the kernel says how long that ran for a packet. So the packets of the loads come one by one, and of
//! a thousand tunnels mostly one a peer in a burst.

use super::{CORES, Options, nanoseconds, ran};
use crate::Outcome;
use crate::calls::workers;
use crate::crowd::{self, Crowd, addresses};
use crate::pipeline::{self, Protection};
use crate::report::{short, table};
use crypto::engine::{Engine, none};
use gateway::tunnel_interface::MOST_RECEIVING;
use indicatif::ProgressBar;
use lab::Lab;
use lab::wireguard::{Daemon, Gateway};
use serde::Serialize;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The numbers of tunnels.
const TUNNELS: [usize; 2] = [1, 1000];
/// What each measures: three loads.
const LOADS: usize = 3;
/// Steps of the progress.
pub(super) const STEPS: usize = TUNNELS.len() * LOADS;
/// How long all peers may take for a handshake.
const PATIENCE: Duration = Duration::from_secs(60);
/// The gateway's address inside, and its private key: that of a member that there is not.
const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 127, 255, 254);
const NO_MEMBER: usize = 1 << 30;
/// IPv4 and UDP headers.
const HEADERS: usize = 28;

/// One direction of one load.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The number of tunnels.
    pub tunnels: usize,
    /// The sizes of packets.
    pub load: String,
    /// Outbound or inbound.
    pub way: &'static str,
    /// Mean size of the inner packets in bytes.
    pub bytes: f64,
    /// Nanoseconds a packet of the thread of this direction, cipher excluded.
    pub serial: f64,
    /// Nanoseconds a packet of the cipher.
    pub cipher: f64,
    /// Predicted Gbit/s inside, for each of the processors.
    pub predicted: Vec<(usize, f64)>,
}

/// The names and sizes of the loads.
fn loads() -> [(String, Vec<usize>); LOADS] {
    let one = |size: usize| (format!("UDP, packets of {size} bytes"), vec![size]);
    [one(64), ("UDP, Internet mix".to_owned(), pipeline::imix()), one(1400)]
}

/// Measures all loads with each number of tunnels.
pub(super) fn measure(options: &Options, handoff: f64, progress: &ProgressBar) -> Outcome<Vec<Row>> {
    let engine: Arc<dyn Engine> = Arc::<crypto::choice::Choice>::clone(&options.choice);
    // A burst of each tunnel has one packet.
    let ciphers = pipeline::run(&pipeline::Options {
        protection: Protection::WireGuard,
        engine,
        choice: Some(Arc::clone(&options.choice)),
        loads: loads().to_vec(),
        burst: 1,
        time: Duration::from_millis(200),
    })?;
    let mut rows = Vec::new();
    for tunnels in TUNNELS {
        let mut scene = Scene::new(options, tunnels)?;
        for ((name, sizes), cipher) in loads().into_iter().zip(&ciphers.loads) {
            progress.set_message(format!("{tunnels} tunnels, {name}"));
            let time = Duration::from_secs(options.seconds.into());
            let serial = [scene.outbound(&sizes, time)?, scene.inbound(&sizes, time)?];
            let ciphers = [cipher.outbound.bare, cipher.inbound.bare];
            for (place, way) in ["outbound", "inbound"].into_iter().enumerate() {
                let costs = (serial[place], ciphers[place], handoff);
                rows.push(Row::new(tunnels, &name, way, cipher.bytes, costs));
            }
            progress.inc(1);
        }
    }
    Ok(rows)
}

impl Row {
    fn new(
        tunnels: usize,
        load: &str,
        way: &'static str,
        bytes: f64,
        (serial, cipher, handoff): (f64, f64, f64),
    ) -> Self {
        let each = |cores| {
            if tunnels == 1 {
                nanoseconds(cores, serial, cipher, handoff)
            } else {
                nanoseconds_of_many(cores, serial, cipher, handoff)
            }
        };
        let predicted = CORES.map(|cores| (cores, bytes * 8.0 / each(cores)));
        Self { tunnels, load: load.to_owned(), way, bytes, serial, cipher, predicted: predicted.to_vec() }
    }
}

/// Nanoseconds a packet with so many processors for one direction of many tunnels, over which the load is spread evenly: each has a
/// receiving thread that carries packets from end to end, as far as there are receiving threads. The others work for the cipher.
fn nanoseconds_of_many(cores: usize, serial: f64, cipher: f64, handoff: f64) -> f64 {
    if cores <= MOST_RECEIVING {
        return (serial + cipher) / cores as f64;
    }
    let each = (serial + cipher) / MOST_RECEIVING as f64;
    let serial = serial + handoff;
    ((serial + cipher) / cores as f64).max(serial / MOST_RECEIVING as f64).min(each)
}

/// A gateway in `a` without cipher, and its simulated peers in `c`.
struct Scene {
    gateway: Gateway,
    crowd: Crowd,
    tunnels: usize,
    /// What sends from inside, and takes what comes out of the tunnels: the kernel drops it when its buffer is full.
    inside: UdpSocket,
    /// Goes last.
    lab: Lab,
}

impl Scene {
    fn new(options: &Options, tunnels: usize) -> Outcome<Self> {
        let mut lab = crowd::lab()?;
        let (interface, key) = (lab.interface("many"), crowd::key(NO_MEMBER));
        let daemon = Daemon::PosternWithoutCipher(options.program.clone());
        let gateway = Gateway::start(&mut lab, &daemon, "a", &interface)?;
        let private = base16ct::lower::encode_string(key.secret().expose());
        gateway.set(&format!("private_key={private}\nlisten_port=51820\n{}", crowd::peers(tunnels)))?;
        lab.ip("a", &format!("address add {INSIDE}/32 dev {interface}"))?;
        lab.ip("a", &format!("link set {interface} up"))?;
        lab.ip("a", &format!("route add 10.128.0.0/9 dev {interface}"))?;
        let engine: Arc<dyn Engine> = Arc::new(none::None);
        let at = ([192, 168, 78, 1], 51_820).into();
        let mut crowd = lab.enter("c", || Crowd::with_engine(tunnels, at, key.public(), &engine))??;
        crowd.storm(PATIENCE)?;
        crowd.establish();
        let inside = lab.enter("a", || UdpSocket::bind((INSIDE, 9)))??;
        Ok(Self { gateway, crowd, tunnels, inside, lab })
    }

    /// Nanoseconds that the thread of a direction runs for a packet while `load` is carried.
    fn cost(&mut self, worker: &str, load: impl FnOnce(&mut Self)) -> Outcome<f64> {
        let count = |scene: &Self| -> Outcome<(f64, f64)> {
            let all = workers(&scene.lab, &scene.gateway).ok_or("the gateway has no API")?;
            let found = all.workers.iter().find(|it| it.worker == worker).ok_or("no such worker")?;
            Ok((ran(&scene.gateway, &[worker])?, found.received_packets as f64))
        };
        let before = count(self)?;
        load(self);
        let after = count(self)?;
        let packets = after.1 - before.1;
        if packets < 1000.0 {
            return Err(format!("{worker}: {packets} packets of {} tunnels came", self.tunnels).into());
        }
        Ok((after.0 - before.0) / packets)
    }

    fn inbound(&mut self, sizes: &[usize], time: Duration) -> Outcome<f64> {
        self.cost("in", |scene| scene.crowd.flood(sizes, INSIDE, time))
    }

    fn outbound(&mut self, sizes: &[usize], time: Duration) -> Outcome<f64> {
        self.cost("out", |scene| {
            let (payload, until) = ([0; 1500], Instant::now() + time);
            let members = (0..scene.tunnels).cycle();
            for (number, (member, size)) in members.zip(sizes.iter().cycle()).enumerate() {
                // A full queue is what the load is to reach.
                let _ = scene.inside.send_to(&payload[..size - HEADERS], (addresses(member).1, 9));
                if number.is_multiple_of(64) && Instant::now() >= until {
                    return;
                }
            }
        })
    }
}

/// The rows as text.
pub(super) fn text(rows: &[Row]) -> String {
    let one = |row: &Row| {
        let words = vec![row.tunnels.to_string(), row.load.clone(), row.way.to_owned()];
        let numbers = [row.serial, row.cipher].map(short).to_vec();
        let predicted = row.predicted.iter().map(|&(_, gigabits)| short(gigabits)).collect();
        [words, numbers, predicted].concat()
    };
    let heads = CORES.map(|cores| cores.to_string());
    let mut head = vec!["tunnels", "", "way", "serial ns", "cipher ns"];
    head.extend(heads.iter().map(String::as_str));
    format!(
        "WireGuard with one tunnel and with many, packets one by one: many are predicted for a load that is spread evenly, with a \
         receiving thread for\neach processor (receive-threads), at most {MOST_RECEIVING}, and a kernel whose work for one does not \
         slow that for another; the rest is for the cipher\n\n{}",
        table(&head, &rows.iter().map(one).collect::<Vec<_>>())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_tunnels_use_all_processors_until_the_receiving_threads_are_busy() {
        for cores in 1..=MOST_RECEIVING {
            assert!((nanoseconds_of_many(cores, 300.0, 100.0, 5.0) - 400.0 / cores as f64).abs() < 1e-9);
        }
        let most = MOST_RECEIVING as f64;
        assert!((nanoseconds_of_many(32, 300.0, 100.0, 5.0) - 305.0 / most).abs() < 1e-9);
        assert!((nanoseconds_of_many(32, 100.0, 300.0, 5.0) - 405.0 / 32.0).abs() < 1e-9);
        assert!(
            (nanoseconds_of_many(32, 300.0, 1.0, 5.0) - 301.0 / most).abs() < 1e-9,
            "nothing is handed off"
        );
    }
}
