//! Ethernet frames of a port of DPDK: mbufs into the batch, and copies out of it. Nothing tells when frames come: queues are polled.
//!
//! ```text
//! receive:  driver → 32 mbufs → batch
//! transmit: batch → 32 frames → mbufs → driver
//! ```

use crate::{Receive, Transmit, Wake, partial_checksum};
use arrayvec::ArrayVec;
use dpdk::port::{
    BURST, Frame, LONGEST, LinkState, PortCounts, PortFacts, PortOptions, ReceiveQueue, TransmitQueue,
};
use dpdk::{DeviceError, Eal};
use packet::{Batch, DropCounters, DropReason};
use rustix::io::Errno;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Calls without a frame taken after which a full ring keeps its frames.
const STUCK: usize = 8;
/// How long a wait lasts at most.
const NAP: Duration = Duration::from_micros(50);
/// Drivers whose frames come from the kernel, which leaves checksums to network cards.
const BY_THE_KERNEL: [&str; 2] = ["net_af_xdp", "net_af_packet"];

/// A port that is open.
pub struct DpdkPort {
    /// What DPDK says of it.
    pub facts: PortFacts,
    /// Whether its link is up.
    pub link: LinkState,
    /// Its receiving halves, one a queue.
    pub receive: Vec<DpdkReceive>,
    /// Its sending halves, as many as were asked for. Some may share a queue.
    pub transmit: Vec<DpdkTransmit>,
}

/// The receiving half of a queue.
pub struct DpdkReceive {
    queue: ReceiveQueue,
    complete_checksums: bool,
    completed: u64,
}

/// A sending half.
pub struct DpdkTransmit {
    queue: Arc<Mutex<TransmitQueue>>,
    refusal: Option<Errno>,
    refused: u64,
}

/// Opens a port of DPDK; EAL must have started.
///
/// # Errors
/// There is no such port, it is open, or has fewer queues to receive from.
pub fn open(eal: &'static Eal, number: u16, options: &PortOptions) -> Result<DpdkPort, DeviceError> {
    let (receive, transmit) = eal.open_port(number, options)?;
    let (facts, link) = (receive[0].facts().clone(), receive[0].link());
    let complete_checksums = BY_THE_KERNEL.contains(&facts.driver.as_str());
    let half = |queue| DpdkReceive { queue, complete_checksums, completed: 0 };
    let queues: Vec<_> = transmit.into_iter().map(|queue| Arc::new(Mutex::new(queue))).collect();
    let shared = (0..usize::from(options.transmit_queues)).map(|half| &queues[half % queues.len()]);
    let transmit =
        shared.map(|queue| DpdkTransmit { queue: Arc::clone(queue), refusal: None, refused: 0 }).collect();
    Ok(DpdkPort { facts, link, receive: receive.into_iter().map(half).collect(), transmit })
}

impl Receive for DpdkReceive {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        let (first, mut pieces) = (batch.len(), 0);
        loop {
            let most = BURST.min(batch.free() / Batch::footprint(LONGEST));
            if most == 0 {
                break;
            }
            let count = self.queue.receive(most, |frame| match frame {
                Some(frame) => {
                    let packet = batch.append(frame.len()).expect("there is room for the longest");
                    packet.copy_from_slice(frame);
                }
                // Longer than a buffer.
                None => pieces += 1,
            });
            if count < most {
                break;
            }
        }
        for index in (first..batch.len()).filter(|_| self.complete_checksums) {
            self.completed += u64::from(partial_checksum::complete(batch.packet_mut(index)));
        }
        drops.count(DropReason::Truncated, pieces);
        batch.close_train(first, None, 0);
        Ok(batch.len() - first)
    }

    /// Waits for [`NAP`] at most: frames may have come.
    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        wake.wait_at_most([], Some(NAP)).map(|[]| ())
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let PortCounts { missed, receive_errors, without_buffer, .. } = self.queue.counts();
        vec![
            // The receive ring was full.
            ("rx_missed", missed),
            ("rx_errors", receive_errors),
            ("rx_no_buffer", without_buffer),
            ("checksums_completed", self.completed),
        ]
    }
}

impl DpdkTransmit {
    /// Sends frames of these indices; returns how many were taken, from the first on, and why the others were not.
    fn send(&mut self, batch: &Batch, indices: &[usize]) -> (usize, DropReason) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let mut frames = [Frame::new(&[]); BURST];
        for (frame, &index) in frames.iter_mut().zip(indices) {
            *frame = Frame::new(batch.packet(index));
        }
        let (mut sent, mut stuck) = (0, 0);
        while sent < indices.len() && stuck < STUCK {
            let taken = queue.send(&frames[sent..indices.len()]);
            sent += taken;
            if taken == 0 {
                stuck += 1;
                if !queue.is_up() {
                    self.refusal = Some(Errno::NETDOWN);
                    return (sent, DropReason::SendFailed);
                }
            }
        }
        (sent, DropReason::RingFull)
    }
}

/// The next frames of a batch from an index on, and the index behind them. Those that are too long are discarded.
fn next_burst(batch: &mut Batch, mut from: usize, drops: &DropCounters) -> (ArrayVec<usize, BURST>, usize) {
    let mut burst = ArrayVec::new();
    while from < batch.len() && !burst.is_full() {
        let length = batch.packet(from).len();
        if length > LONGEST {
            batch.drop_packet(from, DropReason::TooBig, drops);
        } else if length > 0 {
            burst.push(from);
        }
        from += 1;
    }
    (burst, from)
}

impl Transmit for DpdkTransmit {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        let mut from = 0;
        while from < batch.len() {
            let (burst, end) = next_burst(batch, from, drops);
            from = end;
            let (sent, reason) = self.send(batch, &burst);
            for &index in &burst[sent..] {
                batch.discard(index);
            }
            let lost = burst.len() - sent;
            self.refused += lost as u64;
            drops.count(reason, lost);
        }
    }

    fn take_refusal(&mut self) -> Option<Errno> {
        self.refusal.take()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        vec![("tx_refused", self.refused), ("tx_errors", queue.counts().transmit_errors)]
    }
}
