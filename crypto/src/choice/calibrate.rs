//! Measures the engines against each other, after checking that all compute the same as the first.
//!
//! The engines take turns, and the fastest turn of each counts: other load on the machine can only slow a turn down.

use super::measured::{Cost, Measured};
use super::slot::{BURSTS, Direction, SIZES, SLOTS, Slot};
use super::subject::{Flaw, Load, Subject, TestPackets};
use crate::engine::{Engine, LoadError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Packets sealed and opened per turn.
const PACKETS: usize = 32;
/// Minimum number of turns per engine and slot.
const TURNS: usize = 4;
/// Minimum time per engine and slot: short turns are repeated.
const ENOUGH: Duration = Duration::from_micros(300);

/// Milliseconds between attempts to use an engine that failed.
const PAUSES_MS: [u64; 5] = [50, 100, 200, 400, 800];

/// Measures every engine.
pub(super) fn measure(engines: &[Arc<dyn Engine>], subject: Subject) -> Vec<Measured> {
    let mut loads: Vec<_> = engines.iter().map(|engine| subject.load(&**engine)).collect();
    let mut found = vec![Measured::Works(Cost(Box::new([f64::MAX; SLOTS]))); engines.len()];
    check(&loads, &mut found);
    for (size, &bytes) in SIZES.iter().enumerate() {
        for (burst, &packets) in BURSTS.iter().enumerate() {
            let started = Instant::now();
            let mut turns = 0;
            while turns < TURNS || started.elapsed() < ENOUGH * engines.len() as u32 {
                turns += 1;
                for (load, measured) in loads.iter_mut().zip(&mut found) {
                    let (Ok(load), Measured::Works(cost)) = (load, &mut *measured) else { continue };
                    let times = match with_retries(|| turn(load, bytes, packets)) {
                        Ok(times) => times,
                        Err(flaw) => {
                            *measured = flaw.into();
                            continue;
                        }
                    };
                    for (direction, ns) in Direction::ALL.into_iter().zip(times) {
                        let best = &mut cost.0[Slot { direction, burst, size }.index()];
                        *best = best.min(ns);
                    }
                }
            }
        }
    }
    found
}

/// Discards the measurements of engines that lack the cipher, fail, or compute something else than the first engine.
pub(super) fn recheck(
    engines: &[Arc<dyn Engine>],
    subject: Subject,
    mut measured: Vec<Measured>,
) -> Vec<Measured> {
    let loads: Vec<_> = engines.iter().map(|engine| subject.load(&**engine)).collect();
    check(&loads, &mut measured);
    measured
}

fn check(loads: &[Result<Load, LoadError>], measured: &mut [Measured]) {
    for (load, measured) in loads.iter().zip(measured) {
        let agrees = |load: &Load, reference| with_retries(|| load.agrees_with(reference));
        match (&loads[0], load) {
            (_, Err(LoadError::Unsupported { .. })) => *measured = Measured::Lacks,
            (Err(_), _) | (_, Err(_)) => *measured = Measured::Failed,
            (Ok(reference), Ok(load)) => {
                if let Err(flaw) = agrees(load, reference) {
                    *measured = flaw.into();
                }
            }
        }
    }
}

impl From<Flaw> for Measured {
    fn from(flaw: Flaw) -> Self {
        match flaw {
            Flaw::Failed => Self::Failed,
            Flaw::Wrong => Self::Wrong,
        }
    }
}

/// Repeats a failed attempt after increasing pauses, so that a busy machine does not exclude an engine. A wrong result
/// is never repeated: load does not cause one.
fn with_retries<T>(attempt: impl Fn() -> Result<T, Flaw>) -> Result<T, Flaw> {
    PAUSES_MS.into_iter().fold(attempt(), |outcome, pause| match outcome {
        Err(Flaw::Failed) => {
            std::thread::sleep(Duration::from_millis(pause));
            attempt()
        }
        done => done,
    })
}

/// Seals and opens [`PACKETS`] packets; returns the ns per packet of each direction.
fn turn(load: &Load, size: usize, burst: usize) -> Result<[f64; 2], Flaw> {
    let mut packets = TestPackets::new(load, size, PACKETS);
    let mut times = [0.0; 2];
    for (direction, time) in Direction::ALL.into_iter().zip(&mut times) {
        let started = Instant::now();
        packets.run(load, direction, burst)?;
        *time = started.elapsed().as_nanos() as f64 / PACKETS as f64;
    }
    Ok(times)
}
