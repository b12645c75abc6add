//! Our gateway between ports in memory: frames are copied out of a list into the batch, and forgotten behind it.

use super::load::{Load, Way};
use crate::Outcome;
use crypto::engine::Engine;
use gateway::secgw::{Worker, bed};
use packet::header::ethernet::EthernetHeader;
use packet::{Batch, DropCounters};
use port::{Receive, Transmit, Wake};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Frames that are received again and again, as DPDK's net_pcap does with `infinite_rx`: each is copied once.
struct Replay {
    frames: Vec<Vec<u8>>,
    next: usize,
    burst: usize,
}

impl Receive for Replay {
    fn receive(&mut self, batch: &mut Batch, _: &DropCounters) -> io::Result<usize> {
        let first = batch.len();
        for _ in 0..self.burst {
            let frame = &self.frames[self.next];
            let Some(packet) = batch.append(frame.len()) else { break };
            packet.copy_from_slice(frame);
            self.next = (self.next + 1) % self.frames.len();
        }
        batch.close_train(first, None, 0);
        Ok(batch.len() - first)
    }

    /// Does not wait: there is always a frame.
    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        wake.wait([]).map(|[]| ())
    }
}

/// Counts frames, as DPDK's net_null does.
#[derive(Clone, Default)]
struct Sink(Arc<AtomicU64>);

impl Transmit for Sink {
    fn transmit(&mut self, batch: &mut Batch, _: &DropCounters) {
        self.0.fetch_add(batch.live(0..batch.len()).count() as u64, Ordering::Relaxed);
    }
}

/// Keeps frames.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Vec<u8>>>>);

impl Transmit for Kept {
    fn transmit(&mut self, batch: &mut Batch, _: &DropCounters) {
        let frames = batch.live(0..batch.len()).map(|index| batch.packet(index).to_vec());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(frames);
    }
}

/// The words of ports, which the memory replaces.
const PORTS: &str = "--vdev net_tap0 --vdev net_tap1 --";

/// What came out of a gateway for these frames.
fn carry(load: &Load, way: Way, engine: &dyn Engine, frames: Vec<Vec<u8>>) -> Outcome<Vec<Vec<u8>>> {
    let count = frames.len();
    let kept = Kept::default();
    let replay = Replay { frames, next: 0, burst: 32 };
    let mut worker = between(load, way, engine, replay, Box::new(kept.clone()))?;
    while kept.0.lock().unwrap_or_else(PoisonError::into_inner).len() < count {
        let before = kept.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        worker.burst(0);
        if kept.0.lock().unwrap_or_else(PoisonError::into_inner).len() == before {
            return Err(format!("no frame left the gateway\n{}", worker.statistics()).into());
        }
    }
    let mut frames = std::mem::take(&mut *kept.0.lock().unwrap_or_else(PoisonError::into_inner));
    frames.truncate(count);
    Ok(frames)
}

fn between(
    load: &Load,
    way: Way,
    engine: &dyn Engine,
    replay: Replay,
    sink: Box<dyn Transmit>,
) -> Outcome<Worker> {
    // No frame comes back from port 1.
    let nothing = Replay { frames: Vec::new(), next: 0, burst: 0 };
    let ports: [bed::Halves; 2] = [(Box::new(replay), Box::new(Sink::default())), (Box::new(nothing), sink)];
    let words = format!("{PORTS} {} -f x --reassemble {}", way.words(), load.reassemble);
    Ok(bed::worker(&load.file(), &words, engine, ports)?)
}

/// The frames that a gateway receives on a way: in clear, or sealed by a gateway with the same SAs.
pub fn received(load: &Load, way: Way, engine: &dyn Engine) -> Outcome<Vec<Vec<u8>>> {
    let clear = load.frames();
    if way == Way::Outbound {
        return Ok(clear);
    }
    let mut sealed = carry(load, Way::Outbound, engine, clear.clone())?;
    for frame in &mut sealed {
        frame[..6].copy_from_slice(&bed::STATION);
    }
    // The figures mean nothing unless the packets come out as they went in.
    let opened = carry(load, Way::Inbound, engine, sealed.clone())?;
    let packet = |frame: &Vec<u8>| frame[EthernetHeader::LENGTH..].to_vec();
    if !opened.iter().map(packet).eq(clear.iter().map(packet)) {
        return Err("packets were changed on their way through two gateways".into());
    }
    Ok(sealed)
}

/// A gateway that is measured.
pub struct Ours {
    worker: Worker,
    sent: Sink,
}

impl Ours {
    /// A gateway that receives these frames, so many at once.
    pub fn new(
        load: &Load,
        way: Way,
        engine: &dyn Engine,
        frames: Vec<Vec<u8>>,
        burst: usize,
    ) -> Outcome<Self> {
        let sent = Sink::default();
        let worker = between(load, way, engine, Replay { frames, next: 0, burst }, Box::new(sent.clone()))?;
        Ok(Self { worker, sent })
    }

    /// Carries frames for so many seconds of this thread's processor time; returns the packets that left, and the nanoseconds.
    pub fn measure(&mut self, seconds: f64) -> (u64, f64) {
        let sent = || self.sent.0.load(Ordering::Relaxed);
        let (before, begun) = (sent(), processor_time());
        loop {
            for _ in 0..64 {
                self.worker.burst(0);
            }
            let spent = processor_time() - begun;
            if spent >= seconds * 1e9 {
                return (sent() - before, spent);
            }
        }
    }
}

/// Nanoseconds that this thread has run.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

#[cfg(test)]
mod tests {
    use super::super::load::Spread;
    use super::*;
    use crypto::engine::aws_lc::AwsLc;

    #[test]
    fn all_frames_leave_on_both_ways_under_every_sa() {
        for (rules, spread) in [(1, Spread::All), (20, Spread::All), (20, Spread::One)] {
            let reassemble = rules as u32 - 1;
            let load = Load { name: "x".into(), sizes: vec![64, 1418], flows: 60, rules, spread, reassemble };
            for way in Way::ALL {
                let frames = received(&load, way, &AwsLc).expect("packets pass");
                let mut ours = Ours::new(&load, way, &AwsLc, frames, 60).expect("a gateway");
                let (packets, nanoseconds) = ours.measure(1e-6);
                assert_eq!(packets % 60, 0, "no frame is lost");
                assert!(packets > 0 && nanoseconds > 0.0);
                let text = ours.worker.statistics().to_string();
                let used = text
                    .lines()
                    .filter(|line| line.starts_with("sa ") && !line.contains(": 0 packets"))
                    .count();
                assert_eq!(used, if spread == Spread::All { rules } else { 1 }, "{text}");
            }
        }
    }
}
