//! `postern bench pipeline`: the data path from memory to memory in one thread, stage by stage, compared with the bare
//! cipher.

use crate::Outcome;
use crate::report::{Machine, short, table};
use crypto::choice::{self, Choice, Slot};
use crypto::engine::{Engine, Job, Key, PairJob, PairKey};
use crypto::{Cipher, EngineFailure};
use gateway::bed::{self, Bed};
use gateway::datapath::{INBOUND, OUTBOUND, Observer, Stage};
use ipnet::IpNet;
use packet::Batch;
use packet::header::esp::HEADER;
use packet::header::ip::{Ipv4Header, UDP};
use packet::header::wireguard::padded;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
pub use tunnel::esp::Transform;
use tunnel::esp::{Layout, Mode, Policies, Policy, Processing, Selectors, TrafficSelector};
use zerocopy::IntoBytes;

/// The protocol that protects the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// WireGuard, with its only cipher.
    WireGuard,
    /// ESP in UDP, tunnel mode.
    Esp(Transform),
}

impl Protection {
    /// The name in reports.
    pub fn name(self) -> String {
        match self {
            Self::WireGuard => format!("WireGuard, {}", Cipher::ChaCha20Poly1305),
            Self::Esp(transform) => format!("ESP, {}", transform.name()),
        }
    }
}

/// What to measure.
pub struct Options {
    /// The protocol and cipher.
    pub protection: Protection,
    /// The crypto engine.
    pub engine: Arc<dyn Engine>,
    /// The same engine, if it chooses among others.
    pub choice: Option<Arc<Choice>>,
    /// The names and packet sizes of the loads, IP headers included.
    pub loads: Vec<(String, Vec<usize>)>,
    /// Packets per burst.
    pub burst: usize,
    /// Time per load.
    pub time: Duration,
}

/// An Internet mix of packet sizes: 58.67% of 90 bytes, 2% of 92, 23.66% of 594, 15.67% of 1418.
pub fn imix() -> Vec<usize> {
    let counts = [(90, 176), (92, 6), (594, 71), (1418, 47)];
    let mut sizes: Vec<usize> = counts.iter().flat_map(|&(size, count)| vec![size; count]).collect();
    // A fixed shuffle: the step has no common divisor with the number of packets.
    sizes = (0..sizes.len()).map(|index| sizes[index * 7 % 300]).collect();
    sizes
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The protocol and cipher.
    pub protection: String,
    /// Packets per burst.
    pub burst: usize,
    /// The results by load.
    pub loads: Vec<Load>,
}

/// The result of one load.
#[derive(Debug, Serialize)]
pub struct Load {
    /// The name.
    pub name: String,
    /// Mean packet size in bytes.
    pub bytes: f64,
    /// The engines chosen for sealing and for opening packets of these sizes.
    pub engines: [String; 2],
    /// Inside to outside.
    pub outbound: Direction,
    /// Outside to inside.
    pub inbound: Direction,
}

/// The result of one direction.
#[derive(Debug, Serialize)]
pub struct Direction {
    /// Nanoseconds per packet, by stage.
    pub stages: Vec<(&'static str, f64)>,
    /// Nanoseconds per packet, in total.
    pub total: f64,
    /// Nanoseconds per packet of the bare cipher on the same packets.
    pub bare: f64,
    /// `total` divided by `bare`.
    pub ratio: f64,
}

/// Measures the time of each stage.
struct Stopwatch {
    stages: &'static [&'static Stage],
    spent: Vec<Duration>,
    last: Instant,
}

impl Stopwatch {
    fn new(stages: &'static [&'static Stage]) -> Self {
        Self { stages, spent: vec![Duration::ZERO; stages.len()], last: Instant::now() }
    }
}

impl Observer for Stopwatch {
    fn finished(&mut self, stage: &'static Stage) {
        let now = Instant::now();
        let index =
            self.stages.iter().position(|known| known.name == stage.name).expect("a stage of this direction");
        self.spent[index] += now - self.last;
        self.last = now;
    }
}

/// A test bed whose peer has 256 prefixes, so that routing has to search.
fn bed(options: &Options) -> Outcome<Bed> {
    let prefixes: Vec<IpNet> =
        (0..=255).map(|net| format!("10.{net}.0.0/16").parse()).collect::<Result<_, _>>()?;
    match options.protection {
        Protection::WireGuard => {
            let bed = Bed::new(&*options.engine)?;
            bed.allow(&prefixes);
            Ok(bed)
        }
        Protection::Esp(transform) => {
            let bed = Bed::esp(&*options.engine, bed::child(transform, false, Mode::Tunnel))?;
            let policies = prefixes.iter().map(|prefix| {
                let any = |prefix: &IpNet| TrafficSelector {
                    protocol: 0,
                    ports: 0..=u16::MAX,
                    addresses: prefix.network()..=prefix.broadcast(),
                };
                let selectors = Selectors::new(&[any(&prefixes[1])], &[any(prefix)]);
                Policy { selectors, processing: Processing::Protect(Arc::clone(&bed.peer)) }
            });
            bed.tables.policies.store(Arc::new(Policies::new(policies.collect())));
            Ok(bed)
        }
    }
}

/// UDP packets of these sizes, each to another host, so that no decision can be reused for the next packet.
fn packets(sizes: &[usize], count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|number| {
            let size = sizes[number % sizes.len()].max(Ipv4Header::LENGTH);
            let mut header = Ipv4Header {
                fragment: Ipv4Header::DONT_FRAGMENT.into(),
                ..Ipv4Header::new(UDP, [10, 1, 0, 1], [10, 2, 0, number as u8], size as u16)
            };
            header.finish();
            let mut packet = header.as_bytes().to_vec();
            packet.resize(size, number as u8);
            packet
        })
        .collect()
}

/// Measures everything.
pub fn run(options: &Options) -> Outcome<Report> {
    let mut loads = Vec::new();
    for (name, sizes) in &options.loads {
        let burst = packets(sizes, options.burst.max(sizes.len().min(300)));
        let bytes = burst.iter().map(Vec::len).sum::<usize>() as f64 / burst.len() as f64;
        let [outbound, inbound] = measure(options, &burst)?;
        let engines = choice::Direction::ALL.map(|direction| options.engines(direction, sizes));
        loads.push(Load { name: name.clone(), bytes, engines, outbound, inbound });
    }
    let protection = options.protection.name();
    Ok(Report { machine: Machine::here(), protection, burst: options.burst, loads })
}

impl Options {
    /// The engines chosen for packets of these sizes.
    fn engines(&self, direction: choice::Direction, sizes: &[usize]) -> String {
        match &self.choice {
            Some(choice) => chosen(choice, direction, self.burst, sizes),
            None => self.engine.name().to_owned(),
        }
    }
}

/// The engines that are chosen for bursts of packets of these sizes.
pub fn chosen(choice: &Choice, direction: choice::Direction, burst: usize, sizes: &[usize]) -> String {
    let rows = choice.rows();
    let slots = sizes.iter().map(|&size| Slot::of(direction, burst, size));
    let chosen = slots.flat_map(|slot| rows.iter().map(move |(_, row)| row.chosen(slot)));
    // Name each engine once.
    let indices: BTreeSet<usize> = chosen.collect();
    let names: Vec<&str> = indices.into_iter().map(|index| choice.engines()[index].name()).collect();
    names.join(", ")
}

fn measure(options: &Options, packets: &[Vec<u8>]) -> Outcome<[Direction; 2]> {
    let mut bed = bed(options)?;
    let (mut out, mut back) = (Stopwatch::new(OUTBOUND), Stopwatch::new(INBOUND));
    let (mut rounds, mut total) = (0u32, [Duration::ZERO; 2]);
    let mut batch = Batch::new(512 * 1024);
    let end = Instant::now() + options.time;
    // Time the bare cipher in between, so that other load on the machine affects both.
    let mut bare = Bare::new(options, packets)?;
    while rounds < 20 || Instant::now() < end {
        if rounds == 10 {
            // End of the warm-up.
            (out, back, total) = (Stopwatch::new(OUTBOUND), Stopwatch::new(INBOUND), [Duration::ZERO; 2]);
            bare.spent = [Duration::ZERO; 2];
        }
        for burst in packets.chunks(options.burst) {
            for packet in burst {
                bed.inside.push([packet.as_slice()], None, 0);
            }
            let started = Instant::now();
            out.last = started;
            bed.outbound.burst(&mut out)?;
            let between = Instant::now();
            back.last = between;
            bed.inbound.burst(&mut back)?;
            total[0] += between - started;
            total[1] += between.elapsed();
            batch.clear();
            port::Receive::receive(&mut bed.delivered, &mut batch, &bed.drops)?;
            if batch.len() != burst.len() {
                return Err(lost(&bed, burst.len(), batch.len()));
            }
        }
        bare.round(options.burst);
        rounds += 1;
    }
    let count = f64::from(rounds - 10) * packets.len() as f64;
    let each = |spent: Duration| spent.as_nanos() as f64 / count;
    Ok([(out, 0), (back, 1)].map(|(watch, way)| {
        let stages = watch.stages.iter().zip(&watch.spent).map(|(stage, &spent)| (stage.name, each(spent)));
        let (total, bare) = (each(total[way]), each(bare.spent[way]));
        Direction { stages: stages.collect(), total, bare, ratio: total / bare }
    }))
}

fn lost(bed: &Bed, sent: usize, received: usize) -> Box<dyn std::error::Error + Send + Sync> {
    let names: Vec<&str> = bed.dropped().iter().map(|(reason, _)| reason.name()).collect();
    format!("{sent} packets sent, {received} received; dropped as {}", names.join(", ")).into()
}

/// The cipher on the same packets, called without the rest of the data path.
struct Bare {
    keys: Keys,
    /// For each packet the data for the cipher; for ESP with the header before it.
    texts: Vec<Vec<u8>>,
    tags: Vec<Vec<u8>>,
    counter: u64,
    spent: [Duration; 2],
}

enum Keys {
    /// An AEAD key, and the length of the AAD before the text.
    Aead(Arc<dyn Key>, usize),
    /// A pair of keys, and the offset of the text, after header and IV.
    Pair(Arc<dyn PairKey>, usize),
    /// A GMAC key: everything is authenticated, nothing is encrypted.
    Gmac(Arc<dyn Key>),
}

impl Bare {
    fn new(options: &Options, packets: &[Vec<u8>]) -> Outcome<Self> {
        let engine = &*options.engine;
        let (keys, tag) = match options.protection {
            Protection::WireGuard => (Keys::Aead(engine.load(Cipher::ChaCha20Poly1305, &[7; 32])?, 0), 16),
            Protection::Esp(transform) => {
                let header = Layout::of(transform).header();
                let secret = |length| vec![7; length];
                let keys = match transform {
                    Transform::Aead(cipher, _) => {
                        Keys::Aead(engine.load(cipher, &secret(cipher.key_length()))?, HEADER)
                    }
                    Transform::Gmac(cipher) => Keys::Gmac(engine.load(cipher, &secret(cipher.key_length()))?),
                    Transform::Null => return Err("there is no cipher to measure".into()),
                    Transform::Pair(pair) => {
                        let encryption = secret(pair.encryption.key_length());
                        let integrity = secret(pair.integrity.key_length());
                        Keys::Pair(engine.load_pair(pair, &encryption, &integrity)?, header)
                    }
                };
                (keys, Layout::of(transform).tag)
            }
        };
        let pad = |packet: &Vec<u8>| match options.protection {
            Protection::WireGuard => {
                let mut text = packet.clone();
                text.resize(padded(packet.len(), 1420), 0);
                text
            }
            Protection::Esp(transform) => {
                let layout = Layout::of(transform);
                // The input of an AEAD cipher does not include the IV.
                let before = if matches!(transform, Transform::Aead(..)) { HEADER } else { layout.header() };
                let mut text = vec![0; before];
                text.extend_from_slice(packet);
                text.resize(before + packet.len() + layout.trailer(packet.len()), 0);
                text
            }
        };
        let texts: Vec<Vec<u8>> = packets.iter().map(pad).collect();
        let tags = vec![vec![0; tag]; texts.len()];
        Ok(Self { keys, texts, tags, counter: 0, spent: [Duration::ZERO; 2] })
    }

    /// Seals and opens every packet once, in bursts as large as those of the data path.
    fn round(&mut self, burst: usize) {
        for (texts, tags) in self.texts.chunks_mut(burst).zip(self.tags.chunks_mut(burst)) {
            let nonces = (self.counter..).map(|counter| {
                let mut nonce = [0; 12];
                nonce[4..].copy_from_slice(&counter.to_le_bytes());
                nonce
            });
            self.counter += texts.len() as u64;
            let packets = texts.iter_mut().zip(tags).zip(nonces);
            let spent = match &self.keys {
                Keys::Pair(key, text) => {
                    let mut jobs: Vec<PairJob<'_>> = packets
                        .map(|((packet, tag), nonce)| {
                            let mut iv = [0; 16];
                            iv[..12].copy_from_slice(&nonce);
                            PairJob { iv, packet, text: *text, suffix: &[], tag, authentic: false }
                        })
                        .collect();
                    time(&mut jobs, |jobs| key.seal(jobs), |jobs| key.open(jobs), |job| job.authentic)
                }
                Keys::Aead(key, _) | Keys::Gmac(key) => {
                    let mut jobs: Vec<Job<'_>> = packets
                        .map(|((packet, tag), nonce)| {
                            let aad = match self.keys {
                                Keys::Aead(_, aad) => aad,
                                _ => packet.len(),
                            };
                            let (aad, text) = packet.split_at_mut(aad);
                            Job { nonce, aad, text, tag, authentic: false }
                        })
                        .collect();
                    time(&mut jobs, |jobs| key.seal(jobs), |jobs| key.open(jobs), |job| job.authentic)
                }
            };
            self.spent[0] += spent[0];
            self.spent[1] += spent[1];
        }
    }
}

/// Seals and opens jobs; returns how long each took.
fn time<J>(
    jobs: &mut [J],
    seal: impl Fn(&mut [J]) -> Result<(), EngineFailure>,
    open: impl Fn(&mut [J]) -> Result<(), EngineFailure>,
    authentic: impl Fn(&J) -> bool,
) -> [Duration; 2] {
    let started = Instant::now();
    seal(jobs).expect("the engine works");
    let between = Instant::now();
    open(jobs).expect("the engine works");
    let spent = [between - started, between.elapsed()];
    assert!(jobs.iter().all(authentic), "sealed packets are authentic");
    spent
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}{}\none thread, memory to memory, bursts of {} packets to as many hosts; ns per packet\n",
            self.machine.head(),
            self.protection,
            self.burst
        );
        for Load { name, engines: [seals, opens], .. } in &self.loads {
            let _ = writeln!(text, "{name}: sealed by {seals}, opened by {opens}");
        }
        text += &self.direction("outbound", |load| &load.outbound);
        text += &self.direction("inbound", |load| &load.inbound);
        text
    }

    fn direction(&self, name: &str, direction: impl Fn(&Load) -> &Direction) -> String {
        let names: Vec<&str> = self.loads.iter().map(|load| load.name.as_str()).collect();
        let row = |label: &str, value: &dyn Fn(&Direction) -> String| -> Vec<String> {
            let cells = self.loads.iter().map(|load| value(direction(load)));
            [label.to_owned()].into_iter().chain(cells).collect()
        };
        let stages = self.loads.first().map(|load| &direction(load).stages).into_iter().flatten();
        let mut rows: Vec<Vec<String>> = stages
            .enumerate()
            .map(|(index, (stage, _))| row(stage, &|way| short(way.stages[index].1)))
            .collect();
        rows.push(row("all stages", &|way| short(way.total)));
        rows.push(row("bare cipher", &|way| short(way.bare)));
        rows.push(row("ratio", &|way| format!("{:.2}x", way.ratio)));
        rows.push(row("Mpackets/s", &|way| short(1e3 / way.total)));
        let speeds = self.loads.iter().map(|load| short(load.bytes * 8.0 / direction(load).total));
        rows.push(["Gbit/s inside".to_owned()].into_iter().chain(speeds).collect());
        format!("\n{}", table(&[vec![name], names].concat(), &rows))
    }
}
