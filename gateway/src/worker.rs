//! The workers: the stages in their order, one function a direction.

use crate::clock::Clock;
use crate::datapath::punt::Punt;
use crate::datapath::route::{Recent, Router};
use crate::datapath::{
    Assigned, Classified, Fitted, Notice, Observer, Routed, Run, accept, admit, assign, check, classify,
    decrypt, encrypt, fit, forward, punt, receive, route, transmit, wrap,
};
use crate::staging::Order;
use crate::tables::{Peer, Tables};
use crossbeam_channel::Sender;
use packet::{Batch, DropCounters, DropReason};
use port::{Receive, Transmit, Wake};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tunnel::{OutboundSa, Time};

/// RFC 4443 section 2.4(f) and RFC 1812 section 4.3.2.8 want ICMP errors limited, by a token bucket. Rate and burst are
/// what Linux long had for all of its own (icmp_msgs_per_sec, icmp_msgs_burst): a burst of path MTU discoveries is
/// answered whole, and a scan of an empty network costs less than carrying it would.
const ANSWER_INTERVAL: Duration = Duration::from_millis(1);
const ANSWERS_AT_ONCE: u32 = 50;

/// Waiting packets that are sent together.
const FLUSH: usize = 64;
/// Bytes of a batch that waiting packets can be sent with.
const FLUSH_BYTES: usize = 256 * 1024;
/// Peers whose waiting packets are sent or dropped before others have their turn.
const ORDERS: usize = 16;

/// What all workers of an interface share.
#[derive(Clone)]
pub struct Shared {
    /// What they look up.
    pub tables: Arc<Tables>,
    /// Where they tell the protocol what it must know.
    pub notices: Sender<Notice>,
    /// What time it is.
    pub clock: Clock,
}

/// From a key to the network: the part of the way that keepalives and waiting packets share with all others.
pub struct Egress<T> {
    shared: Shared,
    outside: T,
    drops: Arc<DropCounters>,
    fitted: Vec<Fitted>,
    assigned: Vec<Assigned>,
}

impl<T: Transmit> Egress<T> {
    /// Sends on `outside`.
    pub fn new(shared: Shared, outside: T, drops: Arc<DropCounters>) -> Self {
        Self { shared, outside, drops, fitted: Vec::new(), assigned: Vec::new() }
    }

    /// Sends the trains of `batch` as they are: handshake messages.
    pub fn send_as_is(&mut self, batch: &mut Batch) {
        self.outside.transmit(batch, &self.drops);
    }

    /// Sends the packets that wait for a key, in order. If the key ends meanwhile, the rest goes on waiting.
    fn flush(&mut self, batch: &mut Batch, peer: &Arc<Peer>) {
        while let Some(sa) = peer.sending.load_full().filter(|sa| sa.is_usable(self.shared.clock.monotonic()))
        {
            let waiting = peer.staging.take();
            if waiting.is_empty() {
                break;
            }
            for packet in waiting {
                if batch.len() == FLUSH || !append(batch, &packet) {
                    self.send_run(batch, peer, &sa, true);
                    append(batch, &packet);
                }
            }
            self.send_run(batch, peer, &sa, true);
        }
    }

    /// Sends all packets of `batch` under one key, and empties it.
    pub fn send_run(&mut self, batch: &mut Batch, peer: &Arc<Peer>, sa: &Arc<OutboundSa>, is_data: bool) {
        let packets = 0..batch.len();
        // The packets may be of any flow; "not ECN-capable" is right for all (RFC 6040, compatibility mode).
        let run = Routed { packets, peer: Arc::clone(peer), sa: Arc::clone(sa), ds_field: 0, is_data };
        let now = self.shared.clock.monotonic();
        self.send(batch, now, &mut vec![run], &mut Vec::new(), &mut ());
        batch.clear();
    }

    /// Sends the packets of `batch` that `routed` speaks of; ICMP errors for the inside are added to `answers`.
    pub fn send(
        &mut self,
        batch: &mut Batch,
        now: Time,
        routed: &mut Vec<Routed>,
        answers: &mut Vec<Vec<u8>>,
        observer: &mut impl Observer,
    ) {
        let (drops, mtu) = (&*self.drops, self.shared.tables.mtu.load(Ordering::Relaxed));
        fit::fit(batch, mtu, drops, answers, routed, &mut self.fitted);
        observer.finished(&fit::STAGE);
        assign::assign(batch, mtu, now, drops, &mut self.fitted, &mut self.assigned);
        observer.finished(&assign::STAGE);
        encrypt::encrypt(batch, drops, &mut self.assigned);
        observer.finished(&encrypt::STAGE);
        wrap::wrap(batch, &self.assigned);
        observer.finished(&wrap::STAGE);
        transmit::outbound(&mut self.outside, batch, now, drops, &self.shared.notices, &mut self.assigned);
        observer.finished(&transmit::OUTBOUND);
    }
}

fn append(batch: &mut Batch, packet: &[u8]) -> bool {
    batch.append(packet.len()).map(|bytes| bytes.copy_from_slice(packet)).is_some()
}

/// From the inside to the outside.
pub struct Outbound<R, T, A> {
    shared: Shared,
    inside: R,
    egress: Egress<T>,
    /// Where ICMP errors go.
    answers_to: A,
    drops: Arc<DropCounters>,
    batch: Batch,
    /// For packets that waited for a key.
    waited: Batch,
    answers: Vec<Vec<u8>>,
    allowance: Allowance,
    classified: Vec<Classified>,
    routed: Vec<Routed>,
    recent: Recent,
}

impl<R: Receive, T: Transmit, A: Transmit> Outbound<R, T, A> {
    /// A worker that reads from `inside`, answers there by `answers_to`, and sends by `egress`.
    ///
    /// `batch_bytes`: how much it carries at once, at least the largest packet with its rooms.
    pub fn new(shared: Shared, inside: R, answers_to: A, egress: Egress<T>, batch_bytes: usize) -> Self {
        Self {
            shared,
            inside,
            drops: Arc::clone(&egress.drops),
            egress,
            answers_to,
            batch: Batch::new(batch_bytes),
            waited: Batch::new(FLUSH_BYTES),
            answers: Vec::new(),
            allowance: Allowance::default(),
            classified: Vec::new(),
            routed: Vec::new(),
            recent: Recent::default(),
        }
    }

    /// Carries one burst; false when there was none. An error means that the inside is gone.
    pub fn burst(&mut self, observer: &mut impl Observer) -> io::Result<bool> {
        let ordered = self.carry_out_orders();
        let (batch, drops) = (&mut self.batch, &*self.drops);
        if !receive::receive(&mut self.inside, batch, drops)? {
            return Ok(ordered);
        }
        let now = self.shared.clock.monotonic();
        observer.finished(&receive::OUTBOUND);
        classify::outbound(batch, drops, &mut self.classified);
        observer.finished(&classify::OUTBOUND);
        let (tables, notices, answers) = (&*self.shared.tables, &self.shared.notices, &mut self.answers);
        let recent = &mut self.recent;
        let (classified, routed) = (&mut self.classified, &mut self.routed);
        let (egress, waited) = (&mut self.egress, &mut self.waited);
        let flush = &mut |peer: &Arc<Peer>| egress.flush(waited, peer);
        Router { tables, recent, notices, drops, answers, flush }.route(batch, now, classified, routed);
        observer.finished(&route::STAGE);
        self.egress.send(batch, now, &mut self.routed, &mut self.answers, observer);
        if !self.answers.is_empty() {
            self.answer(now);
        }
        Ok(true)
    }

    /// Does what the protocol wants done with packets that wait for keys; tells whether that was anything.
    #[inline]
    fn carry_out_orders(&mut self) -> bool {
        let mut some = false;
        for _ in 0..ORDERS {
            let Some((peer, order)) = self.shared.tables.orders.next() else { break };
            some = true;
            self.carry_out(&peer, order);
        }
        some
    }

    #[cold]
    fn carry_out(&mut self, peer: &Arc<Peer>, order: Order) {
        match order {
            Order::Drop => self.drops.count(DropReason::NoKey, peer.staging.purge()),
            Order::Send => {
                self.egress.flush(&mut self.waited, peer);
                if peer.staging.is_occupied() {
                    // The key has ended meanwhile. The lane outlives the workers.
                    let _ = self.shared.notices.send(Notice::NoKey(peer.id));
                }
            }
        }
    }

    /// Sends ICMP errors back to the inside, as many as may be sent.
    #[cold]
    fn answer(&mut self, now: Time) {
        self.batch.clear();
        let allowed = self.allowance.take(now, self.answers.len());
        for answer in self.answers.drain(..).take(allowed) {
            if let Some(packet) = self.batch.append(answer.len()) {
                packet.copy_from_slice(&answer);
            }
        }
        self.answers_to.transmit(&mut self.batch, &self.egress.drops);
    }

    /// Carries until `stop` is set; whoever sets it rings the bell. An error means that the inside is gone.
    pub fn serve(&mut self, stop: &AtomicBool, wake: &Wake) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            if !self.burst(&mut ())? {
                self.inside.wait(wake)?;
            }
        }
        Ok(())
    }
}

/// A token bucket of time: [`ANSWER_INTERVAL`] buys one ICMP error.
struct Allowance {
    credit: Duration,
    last: Time,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { credit: ANSWER_INTERVAL * ANSWERS_AT_ONCE, last: Time::from_nanoseconds(0) }
    }
}

impl Allowance {
    /// How many of `wanted` may be sent now.
    fn take(&mut self, now: Time, wanted: usize) -> usize {
        self.credit = (self.credit + (now - self.last)).min(ANSWER_INTERVAL * ANSWERS_AT_ONCE);
        self.last = now;
        let affordable = (self.credit.as_nanos() / ANSWER_INTERVAL.as_nanos()) as u32;
        let granted = u32::try_from(wanted).unwrap_or(u32::MAX).min(affordable);
        self.credit -= ANSWER_INTERVAL * granted;
        granted as usize
    }
}

/// From the outside to the inside.
pub struct Inbound<R, T> {
    shared: Shared,
    outside: R,
    inside: T,
    punt: Punt,
    drops: Arc<DropCounters>,
    batch: Batch,
    runs: Vec<Run>,
    sequences: Vec<u64>,
}

impl<R: Receive, T: Transmit> Inbound<R, T> {
    /// A worker that receives from `outside`, writes to `inside`, and hands handshakes to `punt`.
    pub fn new(
        shared: Shared,
        outside: R,
        inside: T,
        punt: Punt,
        drops: Arc<DropCounters>,
        batch_bytes: usize,
    ) -> Self {
        let (batch, runs, sequences) = (Batch::new(batch_bytes), Vec::new(), Vec::new());
        Self { shared, outside, inside, punt, drops, batch, runs, sequences }
    }

    /// Carries one burst; false when there was none. An error means that the outside is gone.
    pub fn burst(&mut self, observer: &mut impl Observer) -> io::Result<bool> {
        let (batch, drops, runs) = (&mut self.batch, &*self.drops, &mut self.runs);
        let sequences = &mut self.sequences;
        if !receive::inbound(&mut self.outside, &self.shared.tables.early, batch, drops)? {
            return Ok(false);
        }
        let now = self.shared.clock.monotonic();
        let (tables, notices) = (&*self.shared.tables, &self.shared.notices);
        observer.finished(&receive::INBOUND);
        classify::inbound(batch, tables, &self.punt, drops, runs);
        observer.finished(&classify::INBOUND);
        observer.finished(&punt::STAGE);
        check::check(batch, now, drops, runs, sequences);
        observer.finished(&check::STAGE);
        decrypt::decrypt(batch, drops, runs, sequences);
        observer.finished(&decrypt::STAGE);
        accept::accept(batch, now, drops, notices, runs, sequences);
        observer.finished(&accept::STAGE);
        admit::admit(batch, tables, drops, runs);
        observer.finished(&admit::STAGE);
        forward::forward(batch, drops, runs);
        observer.finished(&forward::STAGE);
        transmit::inbound(&mut self.inside, batch, drops);
        observer.finished(&transmit::INBOUND);
        // What is retired while we wait for the next burst must not be kept by this one.
        runs.clear();
        Ok(true)
    }

    /// Carries until `stop` is set; whoever sets it rings the bell. An error means that the outside is gone.
    pub fn serve(&mut self, stop: &AtomicBool, wake: &Wake) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            if !self.burst(&mut ())? {
                self.outside.wait(wake)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_answered_fifty_at_once_and_a_thousand_a_second() {
        let mut allowance = Allowance::default();
        let mut at = |milliseconds: u64, wanted| {
            allowance.take(Time::from_nanoseconds(1 + milliseconds * 1_000_000), wanted)
        };
        assert_eq!([at(0, 20), at(0, 100), at(0, 1)], [20, 30, 0]);
        assert_eq!([at(3, 1), at(3, 100)], [1, 2]);
        assert_eq!(at(60_000, usize::MAX), 50, "credit does not grow for ever");
        assert_eq!((60_001..61_001).map(|now| at(now, 7)).sum::<usize>(), 1000);
    }
}
