//! `postern bench document-002`: the protocol by which document 002 proves its encryptor, repeated by one command.
//!
//! ```text
//! devices     postern secgw, strongSwan with kernel-libipsec, ipsec-secgw: each in namespaces, on one core; all but one stopped
//! for each step of the protocol (frame size, burst, directions, traffic):
//!   calibrate   the tester's ports, connected to each other
//!   measure     at every device in turn, every second step backwards: throughput, latency, loss, back-to-back frames
//! report      tables, the document's figures, every trial
//! ```

mod chart;
mod device;
mod memory;
mod overload;
mod protocol;
mod report;
mod secgw;
mod text;

pub use device::Kind;
pub use overload::Window;
pub use protocol::{Part, Setup, quick};
pub use report::{Entry, Fixed, Report, Subject};

use crate::Outcome;
use crate::pipeline::{chosen, imix};
use crate::report::Machine;
use crate::rfc2544::host::{Host, clock_source};
use crate::rfc2544::session::Session;
use crate::rfc2544::trial::{Purpose, Trial};
use crate::rfc2544::{Addresses, Calibration, FrameSize, Options as Measurement, Plan, Wire, line_rate};
use crypto::Cipher;
use crypto::choice::{Choice, Direction};
use device::{Device, Programs, addresses, looped};
use lab::strongswan::{self, StrongSwan};
use lab::wireguard::version_of_postern;
use memory::InMemory;
use protocol::{FIXED, Step, steps};
use std::path::PathBuf;
use std::time::Instant;

/// What to measure.
pub struct Options {
    /// This program.
    pub program: PathBuf,
    /// The peers.
    pub peers: Vec<Kind>,
    /// The directory in which ipsec-secgw is, or is built.
    pub peer_directory: PathBuf,
    /// Whether all sizes are measured in all parts.
    pub is_full: bool,
    /// Lengths and repetitions.
    pub plan: Plan,
    /// The frame sizes.
    pub sizes: Vec<FrameSize>,
    /// The parts.
    pub parts: Vec<Part>,
    /// The core of the tester.
    pub tester_core: usize,
    /// The core of the devices.
    pub device_core: usize,
}

/// The parts of a run that all steps share.
struct Bench<'a> {
    options: &'a Options,
    /// The tester with its ports connected, by setup.
    looped: Vec<(Setup, Session)>,
    devices: Vec<Device>,
    missing: Vec<(String, String)>,
    begun: Instant,
}

/// Repeats the protocol.
///
/// # Errors
/// Our own gateway does not start, or the machine has no namespaces. A peer that is missing or fails is reported instead.
pub fn run(options: &Options) -> Outcome<Report> {
    // A pinned thread sees one core only.
    let (machine, before, load) = (Machine::here(), Host::Here.look(), load_average());
    lab::pin_thread(None, options.tester_core)?;
    let steps = steps(options.is_full, &options.sizes, &options.parts);
    let mut bench = Bench {
        options,
        looped: Vec::new(),
        devices: Vec::new(),
        missing: Vec::new(),
        begun: Instant::now(),
    };
    let subjects = bench.start(&steps)?;
    let seconds: f64 = steps
        .iter()
        .map(|step| {
            let devices = bench.devices.iter().filter(|device| device.setup == step.setup).count().max(1);
            step.estimate(&options.plan) * devices as f64
                + step.estimate(&options.plan.of_calibration()) / 2.0
        })
        .sum();
    bench.say(&format!("{} steps, about {}", steps.len(), length(seconds)));
    let mut entries = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        bench.say(&format!("{}/{} {}", number + 1, steps.len(), step.name()));
        entries.extend(bench.step(step, number % 2 == 1)?);
    }
    let overload = if options.parts.contains(&Part::Overload) { bench.overload()? } else { Vec::new() };
    let between = Host::Here.look().since(&before);
    let seconds = bench.begun.elapsed().as_secs_f64();
    Ok(Report {
        tester_core: options.tester_core,
        device_core: options.device_core,
        clock_source: clock_source(),
        plan: options.plan.clone(),
        subjects,
        missing: bench.missing,
        load: [load, load_average()],
        steal_percent: between.steal_ms / 10.0 / seconds / machine.cores as f64,
        seconds,
        entries,
        overload,
        machine,
    })
}

/// The load average of the last minute.
fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(f64::NAN)
}

/// A number of seconds for a person.
fn length(seconds: f64) -> String {
    match seconds {
        _ if seconds < 5400.0 => format!("{:.0} min", (seconds / 60.0).max(1.0)),
        _ if seconds < 172_800.0 => format!("{:.0} h", seconds / 3600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

impl Bench<'_> {
    /// A line of progress.
    fn say(&self, what: &str) {
        let seconds = self.begun.elapsed().as_secs();
        eprintln!("[{}:{:02}] {what}", seconds / 60, seconds % 60);
    }

    /// Starts the devices that the steps need; what is missing is said.
    fn start(&mut self, steps: &[Step]) -> Outcome<Vec<Subject>> {
        let options = self.options;
        let mut subjects =
            vec![Subject { name: Kind::Postern.name().to_owned(), told: told_of_ours(options) }];
        let has_overload = options.parts.contains(&Part::Overload);
        let is_needed = |setup: Setup| {
            steps.iter().any(|step| step.setup == setup) || (has_overload && setup.is_single())
        };
        let mut ipsec_secgw = None;
        for kind in [Kind::Postern].into_iter().chain(options.peers.iter().copied()) {
            let told = match kind {
                Kind::Postern => Ok(None),
                Kind::StrongSwan => match StrongSwan::missing() {
                    Some(package) => Err(format!("apt-get install {package}")),
                    None => Ok(Some(format!(
                        "{}, kernel-libipsec, plugin aesni first; two charons, ESP in UDP; loses IP packets of more than 1400 bytes: \
                         its TUN device reads no more",
                        strongswan::version()
                    ))),
                },
                Kind::IpsecSecgw => crate::secgw::build(&options.peer_directory)
                    .map_err(|error| error.to_string())
                    .map(|path| {
                        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                        ipsec_secgw = Some(path);
                        Some(format!("{name}, net_af_xdp, crypto_aesni_gcm; one process with four ports"))
                    }),
            };
            let started = told.and_then(|told| {
                self.start_kind(kind, &is_needed, ipsec_secgw.as_deref())
                    .map_err(|error| error.to_string())?;
                Ok(told)
            });
            match started {
                Ok(Some(told)) => subjects.push(Subject { name: kind.name().to_owned(), told }),
                Ok(None) => {}
                Err(why) if kind == Kind::Postern => return Err(why.into()),
                Err(why) => {
                    self.say(&format!("{} is not measured: {why}", kind.name()));
                    self.devices.retain(|device| device.kind != kind);
                    self.missing.push((kind.name().to_owned(), why));
                }
            }
        }
        Ok(subjects)
    }

    /// Starts a program in each setup that is needed.
    fn start_kind(
        &mut self,
        kind: Kind,
        is_needed: &dyn Fn(Setup) -> bool,
        ipsec_secgw: Option<&std::path::Path>,
    ) -> Outcome<()> {
        let programs =
            Programs { postern: &self.options.program, ipsec_secgw, core: self.options.device_core };
        for setup in [Setup::Pair, Setup::One, Setup::Bypass] {
            // The keys of strongSwan's ESP are its own.
            let is_possible = match kind {
                Kind::Postern => true,
                Kind::StrongSwan => setup == Setup::Pair,
                Kind::IpsecSecgw => setup != Setup::Bypass,
            };
            if is_needed(setup) && is_possible {
                self.say(&format!("starting {}: {setup:?}", kind.name()));
                self.devices.push(Device::start(kind, setup, &programs)?);
            }
        }
        Ok(())
    }

    /// One step at every device.
    fn step(&mut self, step: &Step, is_backwards: bool) -> Outcome<Vec<Entry>> {
        let (calibration, trials) = self.calibrate(step)?;
        if step.setup == Setup::Memory {
            let mut device = InMemory::start(self.options.device_core)?;
            let measured = self.measure(step, &mut device.session, None, (calibration, trials));
            return Ok(vec![measured.into_entry(step, Kind::Postern, None)]);
        }
        let mut devices = std::mem::take(&mut self.devices);
        let mut places: Vec<usize> =
            (0..devices.len()).filter(|&it| devices[it].setup == step.setup).collect();
        if is_backwards {
            places.reverse();
        }
        let mut entries = Vec::new();
        for &place in &places {
            let device = &mut devices[place];
            device.resume();
            let (cpu, begun) = (device.cpu_seconds(), Instant::now());
            let esp = device.esp.clone();
            let measured =
                self.measure(step, &mut device.session, esp, (calibration.clone(), trials.clone()));
            let cpu = (device.cpu_seconds() - cpu) / begun.elapsed().as_secs_f64() * 100.0;
            device.pause();
            if let Err(error) = &measured.result {
                self.say(&format!("{}: {error}", device.kind.name()));
            }
            entries.push((place, measured.into_entry(step, device.kind, Some(cpu))));
        }
        self.devices = devices;
        entries.sort_by_key(|it| it.0);
        Ok(entries.into_iter().map(|it| it.1).collect())
    }

    /// The tester's own limits in this step.
    fn calibrate(&mut self, step: &Step) -> Outcome<(Calibration, Vec<Trial>)> {
        if self.looped.iter().all(|it| it.0 != step.setup) {
            self.looped.push((step.setup, looped(step.setup)?));
        }
        let found = self.looped.iter_mut().find(|it| it.0 == step.setup);
        let session = &mut found.ok_or("it was opened")?.1;
        session.load(step.protocol, step.both, step.size);
        let (plan, mut trials) = (Plan { burst: step.burst, ..self.options.plan.clone() }, Vec::new());
        Ok((session.calibrate(&plan, &mut trials, &|_| {})?, trials))
    }

    /// One step through open ports.
    fn measure(
        &self,
        step: &Step,
        session: &mut Session,
        esp: Option<crate::rfc2544::Esp>,
        (calibration, trials): (Calibration, Vec<Trial>),
    ) -> Measured {
        let (before, begun) = (Host::Here.look(), Instant::now());
        let plan = Plan { burst: step.burst, ..self.options.plan.clone() };
        let addresses: Addresses = addresses(esp.as_ref(), false);
        let measurement = Measurement {
            wire: if step.setup == Setup::Memory { Wire::Memory } else { Wire::AfXdp },
            interfaces: ["t0", "t1"].map(str::to_owned),
            addresses,
            both: step.both,
            protocol: step.protocol,
            protection: esp.map(crate::rfc2544::Protection::Esp),
            broadcasts: false,
            sizes: vec![step.size],
            tests: step.tests.clone(),
            plan,
            line: None,
            capture: None,
            defer_napi: false,
            core: self.options.tester_core,
            progress: false,
        };
        session.load(step.protocol, step.both, step.size);
        let result = session.measure(&measurement, step.size, calibration, trials, &|_| {});
        let mut fixed = Vec::new();
        let mut error = None;
        for bits in FIXED.into_iter().filter(|_| step.is_fixed) {
            match at_rate(session, &measurement, step.size, bits) {
                Ok(found) => fixed.push(found),
                Err(found) => error = Some(found),
            }
        }
        let steal = Host::Here.look().since(&before).steal_ms / 10.0 / begun.elapsed().as_secs_f64();
        let cores = std::thread::available_parallelism().map_or(1, usize::from).max(2);
        let result = match (result, error) {
            (Ok(result), None) => Ok(result),
            (Err(error), _) | (_, Some(error)) => Err(error.to_string()),
        };
        Measured { result, fixed, steal_percent: steal / cores as f64 }
    }
}

/// What a step at a device gave.
struct Measured {
    result: Result<crate::rfc2544::SizeResult, String>,
    fixed: Vec<Fixed>,
    steal_percent: f64,
}

impl Measured {
    fn into_entry(self, step: &Step, kind: Kind, cpu_percent: Option<f64>) -> Entry {
        let (result, error) = match self.result {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        Entry {
            part: step.part,
            device: kind.name().to_owned(),
            setup: step.setup,
            both: step.both,
            protocol: step.protocol,
            burst: step.burst,
            cpu_percent,
            steal_percent: self.steal_percent,
            error,
            result,
            fixed: self.fixed,
        }
    }
}

/// Loss and delay at a number of bits a second on the line.
fn at_rate(session: &mut Session, of: &Measurement, size: FrameSize, bits: f64) -> Outcome<Fixed> {
    let rate = line_rate(bits, size.mean());
    let trial = session.trial(&of.plan, Purpose::FrameLoss, rate, of.plan.loss_seconds)?;
    Ok(Fixed {
        bits,
        is_tester_limited: trial.is_short(),
        loss: trial.counts.loss(),
        delays: trial.delays,
        trial,
    })
}

/// Our version, and the engine that is chosen for these packets.
fn told_of_ours(options: &Options) -> String {
    let choice = Choice::here(None).prepared_for(&[Cipher::Aes128Gcm.into()]);
    let engine = chosen(&choice, Direction::Seal, 64, &imix());
    let version = version_of_postern(&options.program);
    format!("{version}, net_af_xdp, engine {engine}; one process with four ports, AES-128-GCM")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_runs_in_memory_from_end_to_end() {
        let options = Options {
            program: PathBuf::from("/nonexistent"),
            peers: Vec::new(),
            peer_directory: PathBuf::new(),
            is_full: false,
            plan: Plan { searches: 1, repeats: 0, ..quick().with_seconds(0.1) },
            sizes: vec![FrameSize::Bytes(512)],
            parts: vec![Part::Memory],
            tester_core: 0,
            device_core: usize::from(std::thread::available_parallelism().is_ok_and(|it| it.get() > 1)),
        };
        let report = run(&options).expect("memory does not fail");
        let [(entry, result)] = report.of(Part::Memory)[..] else { panic!("{:?}", report.entries) };
        let through = || result.trials.iter().filter(|it| it.purpose == Purpose::Throughput);
        let sum = |of: fn(&Trial) -> u64| through().map(of).sum::<u64>();
        assert!(entry.both && sum(|it| it.directions[0].received) > 0, "{report:?}");
        assert!(sum(|it| it.directions[1].received) > 0, "{report:?}");
        assert_eq!(
            sum(|it| it.counts.corrupted + it.counts.duplicated + it.counts.reordered),
            0,
            "{report:?}"
        );
        let text = report.text();
        assert!(text.contains("In memory: two of our encryptors") && text.contains("SCALED"), "{text}");
    }

    #[test]
    fn lengths_are_for_people() {
        assert_eq!([20.0, 480.0, 7200.0, 400_000.0].map(length), ["1 min", "8 min", "2 h", "5 days"]);
    }
}
