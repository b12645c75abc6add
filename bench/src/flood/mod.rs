//! `postern bench flood`: what strangers can do to a gateway. Datagrams from a million addresses arrive at a fixed rate while a
//! peer transfers and another one calls anew; the same datagrams sent to a closed port show what the machine itself
//! loses to them.

use crate::Outcome;
use crate::crowd;
use crate::gateway_under_test::{Daemon, Plan, Tunnel, private_key};
use crate::lab::{Lab, Process, wait_until};
use crate::report::{Machine, median, short, table};
use crate::traffic;
use crate::tunnel::progress_bar;
use arc_swap::ArcSwapOption;
use crypto::engine::aws_lc::AwsLc;
use crypto::{PublicKey, hash, random};
use gateway::clock::Clock;
use packet::header::wireguard::Initiation;
use packet::{Batch, DropCounters, Endpoint};
use port::udp::{SocketSlot, UdpSockets, UdpTransmit};
use port::{Offloads, Transmit};
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tunnel::wireguard::device::Outbox;
use tunnel::wireguard::{Action, Device};
use zerocopy::{FromZeros, IntoBytes};

/// What to measure.
pub struct Options {
    /// The program under test.
    pub program: PathBuf,
    /// What is flooded.
    pub protocol: Protocol,
    /// Datagrams a second.
    pub rate: u32,
    /// Seconds for each measurement.
    pub seconds: u32,
    /// How often each is made.
    pub rounds: u32,
    /// Whether to show progress.
    pub progress: bool,
}

/// What the strangers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Data messages of no session.
    Garbage,
    /// Initiations whose first MAC is wrong.
    BlindInitiations,
    /// Initiations of somebody who knows our public key.
    InformedInitiations,
    /// An initiation that a true peer has sent once, again and again.
    Replays,
}

const KINDS: [(Kind, &str); 4] = [
    (Kind::Garbage, "data of no session"),
    (Kind::BlindInitiations, "initiations, wrong MAC"),
    (Kind::InformedInitiations, "initiations, right MAC"),
    (Kind::Replays, "replayed initiation"),
];

/// Which protocol is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// WireGuard.
    WireGuard,
    /// IKE, and ESP in UDP.
    Ike,
}

/// So many addresses the strangers have.
pub(crate) const STRANGERS: u32 = 1 << 20;
/// Where nobody listens.
const CLOSED_PORT: u16 = 9;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// Datagrams a second that were asked for.
    pub rate: u32,
    /// Each kind.
    pub floods: Vec<Flood>,
}

/// One kind of flood.
#[derive(Debug, Serialize)]
pub struct Flood {
    /// Its name.
    pub name: &'static str,
    /// Datagrams a second that were sent.
    pub sent_rate: f64,
    /// Gbit/s of the transfer without any flood.
    pub speed_without: f64,
    /// Gbit/s of the transfer while the same flood hits a closed port.
    pub speed_elsewhere: f64,
    /// Gbit/s of the transfer while it hits the gateway.
    pub speed: f64,
    /// Milliseconds until a peer that called anew was answered, in the middle of the flood; of IKE, the slowest of several
    /// new ones, while the transfer goes on.
    pub handshake_ms: f64,
    /// MiB of resident memory that the gateway grew by.
    pub grown: f64,
}

/// Measures everything.
pub fn run(options: &Options) -> Outcome<Report> {
    let floods = match options.protocol {
        Protocol::WireGuard => run_wireguard(options)?,
        Protocol::Ike => crate::ike_flood::run(options)?,
    };
    Ok(Report { machine: Machine::here(), rate: options.rate, floods })
}

fn run_wireguard(options: &Options) -> Outcome<Vec<Flood>> {
    let progress = progress_bar(options.progress, KINDS.len() as u64);
    let mut floods = Vec::new();
    for (kind, name) in KINDS {
        progress.set_message(name);
        let mut lab = crowd::lab()?;
        let plan = Plan { name: "f", ..Plan::SITES };
        let tunnel = Tunnel::start(&mut lab, &Daemon::Postern(options.program.clone()), &plan)?;
        traffic::serve(&mut lab, "b")?;
        let source = Source::new();
        let scene = Scene {
            lab: &lab,
            gateway: tunnel.gateways[0].process,
            inside: &tunnel.inside[1],
            port: 51_820,
            datagram: &|number| source.datagram(kind, number),
            call_anew: &|| call_anew(&lab, &tunnel),
        };
        floods.push(scene.measure(options, name)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(floods)
}

/// What a flood meets.
pub(crate) struct Scene<'a> {
    pub(crate) lab: &'a Lab,
    /// Whom it hits.
    pub(crate) gateway: Process,
    /// Where transfers from the namespace `a` go.
    pub(crate) inside: &'a str,
    /// The port that is flooded.
    pub(crate) port: u16,
    /// What the strangers send.
    pub(crate) datagram: &'a (dyn Fn(u32) -> Vec<u8> + Sync),
    /// Has a peer call anew; the milliseconds that it waits for its tunnel.
    pub(crate) call_anew: &'a dyn Fn() -> Outcome<f64>,
}

impl Scene<'_> {
    pub(crate) fn measure(&self, options: &Options, name: &'static str) -> Outcome<Flood> {
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

    /// Does something while a flood goes to a port of the gateway; also returns the rate that was reached.
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

/// The far gateway forgets its session and calls; the time until a packet is answered.
fn call_anew(lab: &Lab, tunnel: &Tunnel) -> Outcome<f64> {
    let interface = &tunnel.gateways[1].interface;
    lab.ip("b", &format!("link set {interface} down"))?;
    lab.ip("b", &format!("link set {interface} up"))?;
    let started = Instant::now();
    let answered = || lab.run("b", "ping", &["-c", "1", "-i", "0.01", "-W", "1", &tunnel.inside[0]]).is_ok();
    wait_until(Duration::from_secs(60), answered)?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}

/// Sends datagrams at a rate, each from another address, until told to stop.
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
            let local = Some(Ipv4Addr::from(0x0a40_0000 + number % STRANGERS + 1).into());
            batch.close_train(first, Some(Endpoint { remote: target, local }), 0);
        }
        transmit.transmit(&mut batch, &drops);
        sent.fetch_add(BURST.into(), Ordering::Relaxed);
        let due = Duration::from_secs_f64(f64::from(number) / f64::from(rate));
        std::thread::sleep(due.saturating_sub(started.elapsed()));
    }
    Ok(())
}

/// Where the datagrams come from.
struct Source {
    /// The gateway's key.
    public: PublicKey,
    /// What its peer once sent.
    seen: Vec<u8>,
}

impl Source {
    fn new() -> Self {
        // The keys that Plan gives the gateways.
        let [ours, theirs] = [0, 1].map(|end| private_key(51_820, end));
        let public = ours.public();
        let mut device = Device::new(Arc::new(AwsLc), Box::new(random::System::default()));
        let mut out = Outbox::new();
        device.set_private_key(Clock.monotonic(), Some(theirs.secret().clone()), &mut out);
        let (peer, _) = device.add_peer(public);
        device.start(Clock.monotonic());
        device.set_reachable(Clock.monotonic(), peer);
        // Of an hour ago, so that the peer's own are newer.
        let mut now = Clock.now();
        now.wall = now.wall.saturating_sub(Duration::from_secs(3600));
        device.handle_no_key(now, peer, &mut out);
        let seen = out.into_iter().find_map(|action| match action {
            Action::Send { message, .. } => Some(message),
            _ => None,
        });
        Self { public, seen: seen.expect("a reachable peer is called") }
    }

    fn datagram(&self, kind: Kind, number: u32) -> Vec<u8> {
        match kind {
            Kind::Replays => return self.seen.clone(),
            Kind::Garbage => {
                let mut bytes = vec![0; 128];
                bytes[0] = 4;
                bytes[4..8].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_le_bytes());
                return bytes;
            }
            Kind::BlindInitiations | Kind::InformedInitiations => {}
        }
        let mut message = Initiation::new_zeroed();
        message.kind = 1.into();
        message.sender = number.into();
        message.ephemeral = hash::hash(&[&number.to_le_bytes()]);
        if kind == Kind::InformedInitiations {
            let key = hash::hash(&[b"mac1----", &self.public.0]);
            let covered = message.as_bytes()[..size_of::<Initiation>() - 32].to_vec();
            message.macs.mac1 = hash::mac(&key, &[&covered]);
        }
        message.as_bytes().to_vec()
    }
}

impl Report {
    /// The report for people.
    pub fn text(&self) -> String {
        let row = |flood: &Flood| {
            let loss = (1.0 - flood.speed / flood.speed_elsewhere) * 100.0;
            let numbers = [
                flood.sent_rate / 1e3,
                flood.speed_without,
                flood.speed_elsewhere,
                flood.speed,
                loss,
                flood.handshake_ms,
                flood.grown,
            ];
            [flood.name.to_owned()].into_iter().chain(numbers.map(short)).collect()
        };
        let rows: Vec<Vec<String>> = self.floods.iter().map(row).collect();
        let head = [
            "",
            "kpackets/s",
            "Gbit/s, no flood",
            "closed port",
            "gateway",
            "lost %",
            "new peer ms",
            "grown MiB",
        ];
        format!(
            "{}{} datagrams a second from a million addresses\n\n{}",
            self.machine.head(),
            self.rate,
            table(&head, &rows)
        )
    }
}
