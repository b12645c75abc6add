//! What the Internet checksum of a packet costs: `cargo run --release -p postern-bench --example checksum`.
//!
//! Each packet that is cut from a super-packet is summed once, and so is each that is merged into one. The sum is compared with the one
//! that it replaced, 32-bit words in 64-bit sums that the compiler makes vectors of.

use packet::checksum::Sum;
use std::hint::black_box;
use std::time::Instant;

/// Packets in memory, as many as a super-packet has.
const PACKETS: usize = 44;
const STEPS: usize = 400_000;
const ROUNDS: usize = 9;

fn vectors(bytes: &[u8]) -> u64 {
    let mut sums = [0u64; 16];
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum += u64::from(u32::from_ne_bytes(*word));
        }
    }
    sums.iter().sum::<u64>() + u64::from(Sum::of(rest).fold())
}

/// The median of the rounds, in nanoseconds a packet.
fn measure(length: usize, sum: impl Fn(&[u8]) -> u64) -> f64 {
    let bytes: Vec<u8> = (0..PACKETS * length).map(|at| (at * 7) as u8).collect();
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            let folded = (0..STEPS).fold(0, |all, step| {
                let start = step % PACKETS * length;
                all ^ sum(black_box(&bytes[start..start + length]))
            });
            black_box(folded);
            begun.elapsed().as_nanos() as f64 / STEPS as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn main() {
    println!("bytes  sum, ns  before, ns");
    for length in [20, 64, 576, 1448] {
        let (now, before) = (measure(length, |bytes| Sum::of(bytes).fold().into()), measure(length, vectors));
        println!("{length:5}  {now:7.1}  {before:10.1}");
    }
}
