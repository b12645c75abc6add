//! `postern bench system`: the memory, pi and e tests of router firmware, to compare processors and builds with
//! published figures of routers, and the speed of copying memory.
//!
//! Memory: 2 MiB of integers, written and read sequentially and scattered, ten times. Pi: a spigot of 8400 terms, ten
//! times. E: a spigot of 9009 terms. All are integer divisions and memory accesses in one thread.

use crate::Outcome;
use crate::report::{Machine, short, table};
use serde::Serialize;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

/// Size of the memory test in bytes.
const MEMORY: usize = 2 << 20;
/// Repetitions of the memory and pi tests.
const TIMES: usize = 10;
/// Decimal digits of pi: 14 terms give four digits.
const PI_DIGITS: usize = 2400;
/// Terms of e; all but the last few digits are right.
const E_TERMS: usize = 9009;
/// Block sizes for copying, for the speed of the caches and of memory.
const COPIES: [usize; 3] = [32 << 10, 1 << 20, 64 << 20];
/// Total bytes copied per block size.
const COPIED: usize = 512 << 20;

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The target of the build, with CPU features.
    pub build: String,
    /// Seconds of the memory test.
    pub memory_seconds: f64,
    /// Seconds of 2400 digits of pi, ten times.
    pub pi_seconds: f64,
    /// Seconds of 9009 digits of e.
    pub e_seconds: f64,
    /// The speed of copying, by block size.
    pub copies: Vec<Copying>,
}

/// The speed of copying a block repeatedly.
#[derive(Debug, Serialize)]
pub struct Copying {
    /// Block size in bytes.
    pub bytes: usize,
    /// Bytes copied per second.
    pub bytes_per_second: f64,
}

/// Runs all tests; the fastest of three runs counts.
pub fn run() -> Outcome<Report> {
    let fastest = |test: &dyn Fn()| {
        let seconds = (0..3).map(|_| {
            let started = Instant::now();
            test();
            started.elapsed().as_secs_f64()
        });
        seconds.fold(f64::MAX, f64::min)
    };
    Ok(Report {
        machine: Machine::here(),
        build: format!("{}, {}", std::env::consts::ARCH, features()),
        memory_seconds: fastest(&|| (0..TIMES).for_each(|_| memory())),
        pi_seconds: fastest(&|| (0..TIMES).for_each(|_| drop(black_box(pi(PI_DIGITS))))),
        e_seconds: fastest(&|| drop(black_box(e(E_TERMS)))),
        copies: COPIES.into_iter().map(copying).collect(),
    })
}

/// The processor that the program is built for, and CPU features that the compiler could use beyond the baseline of the target.
fn features() -> String {
    let cpu = env!("POSTERN_CPU");
    let known = [
        ("avx2", cfg!(target_feature = "avx2")),
        ("avx512f", cfg!(target_feature = "avx512f")),
        ("aes", cfg!(target_feature = "aes")),
        ("neon", cfg!(built_with_neon)),
    ];
    let used: Vec<&str> = known.into_iter().filter_map(|(name, on)| on.then_some(name)).collect();
    let processor = if cpu.is_empty() { "any processor of this architecture" } else { cpu };
    let with = if used.is_empty() { String::new() } else { format!(", with {}", used.join(", ")) };
    format!("for {processor}{with}")
}

fn memory() {
    // Hide the value from the compiler, or it would replace the division.
    let length = black_box(MEMORY / size_of::<u32>());
    let scattered = |index: usize| (index as u32 * 23 % (length as u32 / 2)) as usize;
    let mut integers: Vec<u32> = vec![0; length];
    for (index, integer) in integers.iter_mut().enumerate() {
        *black_box(integer) = index as u32;
    }
    for integer in &integers {
        black_box(*integer);
    }
    for index in 0..length {
        black_box(integers[scattered(index)]);
    }
    for index in 0..length {
        *black_box(&mut integers[scattered(index)]) = index as u32;
    }
    black_box(integers);
}

/// Digits of pi, by the spigot of Rabinowitz and Wagon (1995), four at a time.
fn pi(digits: usize) -> String {
    let terms = digits / 4 * 14;
    let mut remainders = vec![2000u32; terms + 1];
    let (mut text, mut carried) = (String::with_capacity(digits), 0);
    for last in (1..=terms / 14).rev().map(|group| group * 14) {
        // 32 bits, as the original: small processors take many times as long for a 64-bit division.
        let mut sum = 0u32;
        for place in (1..=last).rev() {
            sum = sum * place as u32 + remainders[place] * 10_000;
            let divisor = 2 * place as u32 - 1;
            remainders[place] = sum % divisor;
            sum /= divisor;
        }
        let _ = write!(text, "{:04}", carried + sum / 10_000);
        carried = sum % 10_000;
    }
    text
}

/// Decimal places of e, by the spigot of Sale (1968).
fn e(terms: usize) -> String {
    let mut remainders = vec![1u32; terms];
    let mut text = String::with_capacity(terms);
    for length in (10..=terms).rev() {
        let mut carried = 0;
        for place in (2..length).rev() {
            let value = remainders[place] * 10 + carried;
            remainders[place] = value % place as u32;
            carried = value / place as u32;
        }
        text += &carried.to_string();
    }
    text
}

fn copying(bytes: usize) -> Copying {
    let (from, mut to) = (vec![0x5au8; bytes], vec![0u8; bytes]);
    let fastest = (0..3).map(|_| {
        let started = Instant::now();
        for _ in 0..(COPIED / bytes / 3).max(1) {
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
        }
        (COPIED / bytes / 3).max(1) as f64 * bytes as f64 / started.elapsed().as_secs_f64()
    });
    Copying { bytes, bytes_per_second: fastest.fold(0.0, f64::max) }
}

impl Report {
    /// The report as text: the three lines of the firmware's tests, then copying.
    pub fn text(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .copies
            .iter()
            .map(|copy| vec![format!("{} KiB", copy.bytes >> 10), short(copy.bytes_per_second / 1e9)])
            .collect();
        format!(
            "{}built for {}\n\n\
             Time to run memory bench: {:.3}[secs]\n\
             Time to run computation of pi (2400 digits, 10 times): {:.3}[secs]\n\
             Time to run computation of e (9009 digits): {:.3}[secs]\n\n{}",
            self.machine.head(),
            self.build,
            self.memory_seconds,
            self.pi_seconds,
            self.e_seconds,
            table(&["copied at a time", "GB/s"], &rows)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pi_and_e_are_right() {
        let pi = pi(2400);
        assert_eq!(pi.len(), 2400);
        assert!(pi.starts_with("31415926535897932384626433832795028841971693993751"), "{pi}");
        assert!(e(200).starts_with("71828182845904523536028747135266249775724709369995"), "{}", e(200));
    }
}
