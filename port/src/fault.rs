//! A port that injects faults, reproducible by a seed.

use crate::{Receive, Wake};
use packet::{Batch, DropCounters, DropReason, Endpoint};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

/// The rate of each fault, as a fraction of the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The packet is lost.
    pub lose: f64,
    /// The packet arrives twice.
    pub duplicate: f64,
    /// The packet arrives after some of its successors.
    pub reorder: f64,
    /// One bit of the packet is inverted.
    pub corrupt: f64,
    /// The seed that selects the packets.
    pub seed: u64,
}

/// A syntax error in a description of faults.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a fault: write, for example, lose=0.01,reorder=0.02,duplicate=0.01,corrupt=0.001,seed=7"
)]
pub struct FaultSyntax(String);

impl FromStr for Faults {
    type Err = FaultSyntax;

    fn from_str(text: &str) -> Result<Self, FaultSyntax> {
        let mut faults = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let error = || FaultSyntax(part.to_owned());
            let (name, value) = part.split_once('=').ok_or_else(error)?;
            let share = || value.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(error);
            match name {
                "lose" => faults.lose = share()?,
                "duplicate" => faults.duplicate = share()?,
                "reorder" => faults.reorder = share()?,
                "corrupt" => faults.corrupt = share()?,
                "seed" => faults.seed = value.parse().map_err(|_| error())?,
                _ => return Err(error()),
            }
        }
        Ok(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lose, duplicate, reorder, corrupt, seed } = self;
        write!(f, "lose={lose},duplicate={duplicate},reorder={reorder},corrupt={corrupt},seed={seed}")
    }
}

/// A delayed or duplicated packet.
struct Held {
    bytes: Vec<u8>,
    endpoint: Option<Endpoint>,
    ds_field: u8,
    /// The number of packets that pass before it.
    after: usize,
}

/// A receiving half that injects faults into the packets of another.
pub struct Fault<P> {
    port: P,
    faults: Faults,
    random: ChaCha8Rng,
    held: VecDeque<Held>,
    drops: Arc<DropCounters>,
}

impl<P: Receive> Fault<P> {
    /// Injects faults into the packets received from `port`; lost ones are counted in `drops`.
    pub fn new(port: P, faults: Faults, drops: Arc<DropCounters>) -> Self {
        Self { port, faults, random: ChaCha8Rng::seed_from_u64(faults.seed), held: VecDeque::new(), drops }
    }

    fn strikes(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.random_bool(share)
    }

    fn spoil(&mut self, batch: &mut Batch, index: usize, endpoint: Option<Endpoint>, ds_field: u8) {
        if self.strikes(self.faults.lose) {
            return batch.drop_packet(index, DropReason::InjectedFault, &self.drops);
        }
        if self.strikes(self.faults.corrupt) {
            let packet = batch.packet_mut(index);
            let bit = self.random.random_range(0..packet.len() * 8);
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        let late = self.strikes(self.faults.reorder);
        if late || self.strikes(self.faults.duplicate) {
            let after = if late { self.random.random_range(1..20) } else { 0 };
            self.held.push_back(Held { bytes: batch.packet(index).to_vec(), endpoint, ds_field, after });
        }
        if late {
            batch.discard(index);
        }
    }
}

impl<P: Receive> Receive for Fault<P> {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        let before = batch.len();
        let trains_before = batch.trains().len();
        let passed = self.port.receive(batch, drops)?;
        for train in trains_before..batch.trains().len() {
            let train = batch.trains()[train].clone();
            for index in train.packets {
                self.spoil(batch, index, train.endpoint, train.ds_field);
            }
        }
        for _ in 0..self.held.len() {
            let Some(mut held) = self.held.pop_front() else { break };
            if held.after > passed || Batch::footprint(held.bytes.len()) > batch.free() {
                held.after = held.after.saturating_sub(passed);
                self.held.push_back(held);
                continue;
            }
            let first = batch.len();
            batch.append(held.bytes.len()).expect("room was seen").copy_from_slice(&held.bytes);
            batch.close_train(first, held.endpoint, held.ds_field);
        }
        Ok(batch.len() - before)
    }

    fn has_ended(&self) -> bool {
        self.port.has_ended() && self.held.is_empty()
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        self.port.wait(wake)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.port.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Link;

    /// The output for 1000 numbered packets.
    fn run(faults: &str) -> (Vec<Vec<u8>>, u64) {
        let link = Link::default();
        let drops = Arc::new(DropCounters::default());
        let mut port = Fault::new(link.clone(), faults.parse().expect("literal"), Arc::clone(&drops));
        let mut out = Vec::new();
        let mut batch = Batch::new(64 * 1024);
        for number in 0..1000u32 {
            link.push([&number.to_be_bytes()[..]], None, 0);
            batch.clear();
            port.receive(&mut batch, &drops).expect("memory does not fail");
            out.extend(batch.live(0..batch.len()).map(|index| batch.packet(index).to_vec()));
        }
        (out, drops.read(DropReason::InjectedFault))
    }

    #[test]
    fn without_faults_everything_passes() {
        let (out, lost) = run("");
        assert_eq!((out.len(), lost), (1000, 0));
        assert!(out.is_sorted());
    }

    #[test]
    fn each_fault_has_its_effect_and_is_reproducible() {
        let (out, lost) = run("lose=0.1,seed=1");
        assert_eq!(out.len() as u64 + lost, 1000);
        assert!((50..200).contains(&lost), "{lost}");
        assert_eq!(run("lose=0.1,seed=1").0, out);
        assert_ne!(run("lose=0.1,seed=2").0, out);
        let (out, _) = run("duplicate=0.1");
        assert!(out.len() > 1050);
        let (mut out, _) = run("reorder=0.1");
        assert!(!out.is_sorted());
        out.sort();
        out.dedup();
        assert!(out.len() > 970, "the last ones may still be held: {}", out.len());
        let (out, _) = run("corrupt=1");
        assert!(out.iter().enumerate().all(|(number, packet)| packet[..] != (number as u32).to_be_bytes()));
    }

    #[test]
    fn the_error_for_a_wrong_description_has_an_example() {
        for wrong in ["lose", "lose=2", "loose=0.1", "seed=x"] {
            let error = wrong.parse::<Faults>().expect_err("wrong").to_string();
            assert!(error.contains(wrong) && error.contains("lose=0.01"), "{error}");
        }
    }
}
