//! What the Internet checksum of a packet costs: `cargo run --release -p postern-bench --example checksum`.
//!
//! Each packet that is cut from a super-packet is copied and summed, and each that is merged into one is summed. The columns: with AVX2 where
//! the processor has it; in words of 64 bits with their carries, as all others have it; in 32-bit words that the compiler makes vectors of, as it
//! once was. Then a copy with its sum, in one pass, and one after the other.

use packet::checksum::Sum;
use port::checksum;
use std::cell::RefCell;
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
    println!("ns a packet: sum                           copy and sum");
    println!("bytes      AVX2  carries  vectors      in one pass  one by one");
    for length in [20, 64, 576, 1448] {
        let place = RefCell::new(vec![0; length]);
        let fused = |bytes: &[u8]| checksum::copy(bytes, &mut place.borrow_mut()).fold().into();
        let after = |bytes: &[u8]| {
            let mut place = place.borrow_mut();
            place.copy_from_slice(bytes);
            Sum::of(&place).fold().into()
        };
        let of = [
            measure(length, |bytes| checksum::sum(bytes).fold().into()),
            measure(length, |bytes| Sum::of(bytes).fold().into()),
            measure(length, vectors),
            measure(length, fused),
            measure(length, after),
        ];
        println!("{length:5}   {:7.1}  {:7.1}  {:7.1}  {:15.1}  {:10.1}", of[0], of[1], of[2], of[3], of[4]);
    }
}
