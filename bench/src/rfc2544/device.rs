//! A simulated device with a rate, a buffer and a delay that are known, and a virtual clock, for tests of the tester.

use super::addresses::Addresses;
use super::frame::tests::{back, path};
use super::host::Host;
use super::tester::{Clock, Tester, TesterPort};
use packet::{Batch, DropCounters};
use port::fault::{Fault, Faults};
use port::{Receive, Transmit, Wake};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A clock that only moves when it is read.
#[derive(Clone)]
pub struct Virtual {
    time: Arc<AtomicU64>,
    /// Nanoseconds that a look at all ports takes when nothing is there.
    pub look: u64,
}

impl Default for Virtual {
    fn default() -> Self {
        Self { time: Arc::default(), look: 1_000 }
    }
}

impl Clock for Virtual {
    fn now(&self) -> u64 {
        self.time.fetch_add(100, Ordering::Relaxed)
    }

    fn rest(&self, nanoseconds: u64) {
        self.time.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn idle(&self) {
        self.rest(self.look);
    }
}

/// What is known of the device.
#[derive(Clone, Copy)]
pub struct Known {
    /// Frames a second that it forwards.
    pub rate: f64,
    /// Frames that may wait in it.
    pub buffer: u64,
    /// Nanoseconds from the end of forwarding to delivery.
    pub delay: u64,
    /// One frame in so many is delayed by so many nanoseconds more.
    pub spikes: Option<(u64, u64)>,
}

/// A frame, and when it leaves.
type Frame = (u64, Vec<u8>);

/// One direction of the device: one server behind a queue that drops at its tail.
#[derive(Clone)]
struct Queue {
    known: Known,
    clock: Virtual,
    /// When the last frame has been forwarded.
    busy_until: u64,
    /// The frames that were forwarded.
    forwarded: u64,
    frames: Arc<Mutex<VecDeque<Frame>>>,
}

impl Transmit for Queue {
    fn transmit(&mut self, batch: &mut Batch, _: &DropCounters) {
        let now = self.clock.time.load(Ordering::Relaxed);
        let service = (1e9 / self.known.rate) as u64;
        let mut frames = self.frames.lock().expect("no test panics here");
        for index in batch.live(0..batch.len()) {
            let waiting = self.busy_until.saturating_sub(now).div_ceil(service);
            if waiting < self.known.buffer {
                self.busy_until = self.busy_until.max(now) + service;
                let spike = self.known.spikes.filter(|(every, _)| self.forwarded.is_multiple_of(*every));
                self.forwarded += 1;
                let delay = self.known.delay + spike.map_or(0, |it| it.1);
                frames.push_back((self.busy_until + delay, batch.packet(index).to_vec()));
            }
        }
    }
}

impl Receive for Queue {
    fn receive(&mut self, batch: &mut Batch, _: &DropCounters) -> io::Result<usize> {
        let now = self.clock.time.load(Ordering::Relaxed);
        let mut frames = self.frames.lock().expect("no test panics here");
        let before = batch.len();
        while frames.front().is_some_and(|it| it.0 <= now) {
            let (_, frame) = frames.pop_front().expect("it was seen");
            batch.append(frame.len()).expect("a batch is large").copy_from_slice(&frame);
        }
        batch.close_train(before, None, 0);
        Ok(batch.len() - before)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        wake.wait([]).map(|[]| ())
    }
}

/// What the device does to frames on their way from the first port to the second, and back.
pub type Change = Box<dyn FnMut(&mut Batch) + Send>;

/// A port of the device that changes frames before they are queued.
struct Changing(Queue, Change);

impl Transmit for Changing {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        (self.1)(batch);
        self.0.transmit(batch, drops);
    }
}

/// A tester of UDP frames of 64 bytes with such a device between its ports, in one or both directions.
pub fn tester(known: Known, faults: &str, both: bool) -> Tester<Virtual> {
    tester_of(known, faults, both, [0, 1].map(|_| Box::new(|_: &mut Batch| {}) as Change))
}

/// The same with a device that changes frames.
pub fn tester_of(known: Known, faults: &str, both: bool, changes: [Change; 2]) -> Tester<Virtual> {
    let clock = Virtual::default();
    let queue = || Queue { known, clock: clock.clone(), busy_until: 0, forwarded: 0, frames: Arc::default() };
    let faults: Faults = faults.parse().expect("literal");
    let addresses = Addresses::between(["198.18.0.2", "198.19.0.2"].map(|it| it.parse().expect("literal")));
    let port = |transmit: &Queue, change, receive: &Queue, place| TesterPort {
        transmit: Box::new(Changing(transmit.clone(), change)),
        receive: Box::new(Fault::new(receive.clone(), faults, Arc::default())),
        neighbour: addresses.neighbour(place),
        refused_is_lost: true,
    };
    let (there, back_way) = (queue(), queue());
    let [forth, backward] = changes;
    let ports = [port(&there, forth, &back_way, 0), port(&back_way, backward, &there, 1)];
    let mut tester = Tester::new(clock, ports, Host::None);
    let paths = if both { vec![path(), back()] } else { vec![path()] };
    tester.load_frames(&paths, &[60]);
    tester
}
