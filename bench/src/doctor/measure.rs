//! Reads the machine's files, and measures its crypto libraries.

use super::{Build, Inputs, Trial};
use crate::Outcome;
use crate::crypto::meter::{Cell, Meter};
use crate::crypto::word;
use crate::crypto::worker::Worker;
use crypto::machine::{Capability, Machine, Processor};
use std::path::Path;
use std::time::Duration;

/// The subject and size that show whether a CPU feature is used.
const SIGNS: [(Capability, &str, usize); 7] = [
    (Capability::Aes, "aes-256-gcm", 1400),
    (Capability::CarrylessMultiply, "aes-256-gcm", 1400),
    (Capability::VectorAes, "aes-256-gcm", 8192),
    (Capability::Sha, "sha256", 8192),
    (Capability::Avx2, "chacha20-poly1305", 8192),
    (Capability::Avx512, "chacha20-poly1305", 8192),
    (Capability::Neon, "chacha20-poly1305", 8192),
];

/// Duration and number of turns; the fastest counts.
const TURN: Duration = Duration::from_millis(5);
const TURNS: usize = 6;

/// Reads the files under `root`, without measuring.
pub fn read(root: &Path) -> Inputs {
    Inputs { machine: Machine::read(root), build: build(), ..Inputs::default() }
}

/// Reads this machine and measures its engines in about two seconds. `program` is this program, for the workers.
pub fn gather(program: &Path) -> Outcome<Inputs> {
    let mut inputs = read(Path::new("/"));
    let mut meter = Meter::default();
    let absent = meter.found().absent.iter();
    inputs.absent = absent.map(|(name, reason)| ((*name).to_owned(), reason.clone())).collect();
    let processor = inputs.machine.processor.clone();
    let word = |name: &str| std::env::var(name).ok().map(|value| (name.to_owned(), value));
    inputs.words = ["OPENSSL_ia32cap", "OPENSSL_armcap"].into_iter().filter_map(word).collect();
    let mut freed = match inputs.words.first() {
        Some((variable, _)) => Some(Worker::start(program, variable, None)?),
        None => None,
    };
    for sign in SIGNS.iter().filter(|(capability, ..)| processor.has(*capability)) {
        inputs.trials.extend(trials(program, *sign, &processor, &mut meter, freed.as_mut())?);
    }
    Ok(inputs)
}

fn build() -> Build {
    Build {
        architecture: std::env::consts::ARCH.to_owned(),
        neon: cfg!(built_with_neon),
        debug: cfg!(debug_assertions),
    }
}

/// A CPU feature, and the features that cannot be used without it.
fn with_dependents(capability: Capability) -> Vec<Capability> {
    let dependents: &[Capability] = match capability {
        Capability::Aes | Capability::CarrylessMultiply => &[Capability::VectorAes],
        Capability::Avx2 => &[Capability::Avx512, Capability::VectorAes],
        _ => &[],
    };
    [&[capability], dependents].concat()
}

/// The speeds of one engine: as is, without the feature, and without the variable that disables features.
type Speeds = [Option<f64>; 3];

/// Measures every engine. An engine that seems to ignore the feature is measured for longer, to be sure.
fn trials(
    program: &Path,
    (capability, subject, size): (Capability, &'static str, usize),
    processor: &Processor,
    meter: &mut Meter,
    mut freed: Option<&mut Worker>,
) -> Outcome<Vec<Trial>> {
    let mut without = match word::hiding(&with_dependents(capability), processor) {
        Some((variable, value)) => Some(Worker::start(program, variable, Some(&value))?),
        None => None,
    };
    let engines: Vec<&'static str> = meter.found().engines.iter().map(|engine| engine.name()).collect();
    let mut trials = Vec::new();
    for engine in engines {
        let cell = Cell {
            subject: subject.to_owned(),
            engine: engine.to_owned(),
            opens: false,
            size,
            burst: 32,
            threads: 1,
        };
        let mut speeds = Speeds::default();
        // One that does not read the variable would seem to ignore the feature.
        let heeds = word::is_heeded_by(engine, processor);
        for turns in [TURNS, 3 * TURNS] {
            let workers = [without.as_mut(), freed.as_deref_mut()].map(|worker| worker.filter(|_| heeds));
            measure(&cell, turns, meter, workers, &mut speeds)?;
            let Some(speed) = speeds[0] else { break };
            let (engine, [_, without, freed]) = (engine.to_owned(), speeds);
            let trial = Trial { capability, subject, size, engine, speed, without, freed };
            if turns > TURNS || !trial.is_indifferent() {
                trials.push(trial);
                break;
            }
        }
    }
    Ok(trials)
}

/// Measures in this process and in the workers in turn, and keeps the highest speeds in `speeds`.
fn measure(
    cell: &Cell,
    turns: usize,
    meter: &mut Meter,
    mut workers: [Option<&mut Worker>; 2],
    speeds: &mut Speeds,
) -> Outcome<()> {
    for _ in 0..turns {
        let mut rates = [meter.rate(cell, TURN), None, None];
        for (worker, rate) in workers.iter_mut().zip(&mut rates[1..]) {
            if let Some(worker) = worker.as_mut() {
                *rate = worker.rate(cell, TURN)?;
            }
        }
        for (best, rate) in speeds.iter_mut().zip(rates) {
            let speed = rate.map(|rate| rate * cell.size as f64);
            *best = [*best, speed].into_iter().flatten().reduce(f64::max);
        }
    }
    Ok(())
}
