//! The workers: the stages in their order, two functions a direction: `begin` up to what a crypto thread may do, `finish` from there on.

use super::capture::{Direction, Refused, Tap};
use super::egress::{Egress, Passage};
use super::handoff::{CryptoThreadsSlot, Line, Way, Work};
use super::icmp_errors::IcmpErrors;
use super::punt::Punt;
use super::relay::Relay;
use super::route::{Recent, Router};
use super::stage_times::StageTimes;
use super::tables::{Order, Peer, Tables};
use super::{
    Assigned, Classified, DataPathEvent, Observer, Routed, SaBatch, Stage, accept, admit, check, classify,
    decrypt, encrypt, forward, punt, receive, relay, route, transmit,
};
use crate::clock::Clock;
use crossbeam_channel::Sender;
use packet::{Batch, DropCounters, DropReason};
use port::{Receive, Transmit, Wake};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tunnel::Time;

/// Bytes of a batch that waiting packets can be sent with.
const FLUSH_BYTES: usize = 256 * 1024;
/// How many peers have their waiting packets sent or dropped in one burst.
const ORDERS: usize = 16;

/// What all workers of an interface share.
#[derive(Clone)]
pub struct Shared {
    /// What they look up.
    pub tables: Arc<Tables>,
    /// Where they tell the protocol what it must know.
    pub datapath_events: Sender<DataPathEvent>,
    /// What time it is.
    pub clock: Clock,
}

/// An outbound burst behind `assign`.
struct Sealing {
    batch: Batch,
    assigned: Vec<Assigned<'static>>,
    now: Time,
    drops: Arc<DropCounters>,
    tap: Tap,
}

impl Sealing {
    fn new(batch_bytes: usize, drops: &Arc<DropCounters>) -> Self {
        let (batch, now) = (Batch::new(batch_bytes), Time::from_nanoseconds(0));
        let tap = Tap::new(Direction::Outbound);
        Self { batch, assigned: Vec::new(), now, drops: Arc::clone(drops), tap }
    }

    /// Sends the burst, which is sealed.
    fn send(&mut self, egress: &mut Egress<impl Transmit>, observer: &mut impl Observer) {
        let Self { batch, assigned, now, tap, .. } = self;
        egress.finish(batch, assigned, &mut Passage { now: *now, observer, tap });
    }
}

impl Work for Sealing {
    const STAGE: &'static Stage = &encrypt::STAGE;

    fn work(&mut self) {
        encrypt::encrypt(&mut self.batch, &self.drops, &mut self.assigned);
    }

    fn packets(&self) -> usize {
        self.batch.len()
    }

    fn now(&self) -> Time {
        self.now
    }
}

/// From the inside to the outside.
pub struct Outbound<R, T, A> {
    way: OutboundWay<R, T, A>,
    line: Line<Sealing>,
}

/// All but the bursts.
struct OutboundWay<R, T, A> {
    shared: Shared,
    inside: R,
    egress: Egress<T>,
    /// Where ICMP errors go.
    errors_to: A,
    drops: Arc<DropCounters>,
    /// For packets that waited for a key, and for ICMP errors.
    waited: Batch,
    errors: IcmpErrors,
    classified: Vec<Classified>,
    routed: Vec<Routed<'static>>,
    recent: Recent,
    /// What `route` refused, for a capture.
    refused: Vec<Refused>,
}

impl<R: Receive, T: Transmit, A: Transmit> Outbound<R, T, A> {
    /// A worker that reads from `inside`, sends ICMP errors there by `errors_to`, and sends by `egress`.
    ///
    /// `batch_bytes`: how much it carries at once, at least the largest packet with its rooms.
    pub fn new(shared: Shared, inside: R, errors_to: A, egress: Egress<T>, batch_bytes: usize) -> Self {
        let drops = Arc::clone(&egress.drops);
        let line = Line::alone(move || Sealing::new(batch_bytes, &drops));
        let way = OutboundWay {
            shared,
            inside,
            drops: Arc::clone(&egress.drops),
            egress,
            errors_to,
            waited: Batch::new(FLUSH_BYTES),
            errors: IcmpErrors::default(),
            classified: Vec::new(),
            routed: Vec::new(),
            recent: Recent::default(),
            refused: Vec::new(),
        };
        Self { way, line }
    }

    /// The same, which hands bursts off to these threads. They wake it by `wake`, with which it must be served.
    #[must_use]
    pub fn with_crypto_threads(self, slot: CryptoThreadsSlot, wake: Arc<Wake>) -> Self {
        Self { line: self.line.with_threads(slot, wake), ..self }
    }

    /// The same, which notes the times of its stages here.
    #[must_use]
    pub fn with_times(self, times: Arc<StageTimes>) -> Self {
        Self { line: self.line.with_times(times), ..self }
    }

    /// Carries one burst to its end; false when there was none. An error means that the inside is gone.
    pub fn burst(&mut self, observer: &mut impl Observer) -> io::Result<bool> {
        self.line.burst(&mut self.way, observer)
    }

    /// Carries until `stop` is set; the thread that sets it calls `Wake::notify`. An error means that the inside is gone.
    pub fn serve(&mut self, stop: &AtomicBool, wake: &Wake) -> io::Result<()> {
        self.line.serve(&mut self.way, stop, wake)
    }
}

impl<R: Receive, T: Transmit, A: Transmit> Way<Sealing> for OutboundWay<R, T, A> {
    fn begin(
        &mut self,
        sealing: &mut Sealing,
        line: &mut Line<Sealing>,
        observer: &mut impl Observer,
    ) -> io::Result<bool> {
        let Sealing { batch, assigned, now, tap, .. } = sealing;
        let drops = &*self.drops;
        tap.begin(&self.shared.tables.captures, batch);
        if !receive::receive(&mut self.inside, batch, drops)? {
            return Ok(false);
        }
        *now = self.shared.clock.monotonic();
        let now = *now;
        let mut passage = Passage { now, observer, tap };
        passage.finished(&receive::OUTBOUND, batch);
        classify::outbound(batch, drops, &mut self.classified);
        passage.finished(&classify::OUTBOUND, batch);
        passage.observer.inner(batch, now);
        self.errors.begin(now);
        let (tables, datapath_events, errors) =
            (&*self.shared.tables, &self.shared.datapath_events, &mut self.errors);
        let (egress, waited) = (&mut self.egress, &mut self.waited);
        let flush = &mut |peer: &Arc<Peer>| {
            // No packet overtakes those that came before it.
            line.drain(|sealing| sealing.send(egress, &mut ()));
            egress.flush(waited, peer);
        };
        let refused = passage.tap.wants_drops().then_some(&mut self.refused);
        Router { tables, batch, now, datapath_events, drops, errors, refused, flush }.route(
            &mut self.recent,
            &mut self.classified,
            &mut self.routed,
        );
        passage.finished(&route::STAGE, batch);
        if !self.refused.is_empty() {
            passage.tap.report_refused(&route::STAGE, &mut self.refused, batch);
        }
        self.egress.prepare(batch, &mut self.routed, &mut self.errors, assigned, &mut passage);
        if !self.errors.is_empty() {
            self.send_errors();
        }
        Ok(true)
    }

    fn finish(&mut self, sealing: &mut Sealing, observer: &mut impl Observer) {
        sealing.send(&mut self.egress, observer);
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        self.inside.wait(wake)
    }

    /// About packets that wait for keys.
    #[inline]
    fn carry_out_orders(&mut self, line: &mut Line<Sealing>) -> bool {
        let mut some = false;
        for _ in 0..ORDERS {
            let Some((peer, order)) = self.shared.tables.orders.next() else { break };
            some = true;
            line.drain(|sealing| sealing.send(&mut self.egress, &mut ()));
            self.carry_out(&peer, order);
        }
        some
    }
}

impl<R: Receive, T: Transmit, A: Transmit> OutboundWay<R, T, A> {
    #[cold]
    fn carry_out(&mut self, peer: &Arc<Peer>, order: Order) {
        match order {
            Order::Drop => {
                let waited = peer.staging.purge();
                self.drops.count(DropReason::NoKey, waited.len());
                let tap = &mut self.egress.tap;
                tap.begin(&self.shared.tables.captures, &mut self.waited);
                if tap.wants_drops() {
                    let waited = waited.iter().map(Vec::as_slice);
                    tap.report_waiting(&route::STAGE, DropReason::NoKey, peer, waited);
                }
            }
            Order::Send => {
                self.egress.flush(&mut self.waited, peer);
                if peer.staging.is_occupied() {
                    // The key has ended meanwhile. The handshake thread outlives the workers.
                    let _ = self.shared.datapath_events.send(DataPathEvent::NoKey(peer.id));
                }
            }
        }
    }

    /// Sends ICMP errors back to the inside.
    #[cold]
    fn send_errors(&mut self) {
        self.waited.clear();
        for error in self.errors.take() {
            self.waited.append(error.len()).expect("fifty of them fit").copy_from_slice(&error);
        }
        self.errors_to.transmit(&mut self.waited, &self.egress.drops);
        self.waited.clear();
    }
}

/// An inbound burst behind `check`.
struct Opening {
    batch: Batch,
    sa_batches: Vec<SaBatch<'static>>,
    sequences: Vec<u64>,
    now: Time,
    drops: Arc<DropCounters>,
    tap: Tap,
}

impl Opening {
    fn new(batch_bytes: usize, drops: &Arc<DropCounters>) -> Self {
        let (batch, now) = (Batch::new(batch_bytes), Time::from_nanoseconds(0));
        let (drops, tap) = (Arc::clone(drops), Tap::new(Direction::Inbound));
        Self { batch, sa_batches: Vec::new(), sequences: Vec::new(), now, drops, tap }
    }
}

impl Work for Opening {
    const STAGE: &'static Stage = &decrypt::STAGE;

    fn work(&mut self) {
        decrypt::decrypt(&mut self.batch, &self.drops, &self.sa_batches, &self.sequences);
    }

    fn packets(&self) -> usize {
        self.batch.len()
    }

    fn now(&self) -> Time {
        self.now
    }
}

/// From the outside to the inside.
pub struct Inbound<R, T> {
    way: InboundWay<R, T>,
    line: Line<Opening>,
}

/// All but the bursts.
struct InboundWay<R, T> {
    shared: Shared,
    outside: R,
    inside: T,
    punt: Punt,
    drops: Arc<DropCounters>,
    relay: Option<Relay<T>>,
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
        let counters = Arc::clone(&drops);
        let line = Line::alone(move || Opening::new(batch_bytes, &counters));
        let way = InboundWay { shared, outside, inside, punt, drops, relay: None };
        Self { way, line }
    }

    /// Relays packets for other clients, which leave by `outside`.
    #[must_use]
    pub fn relaying(mut self, outside: T) -> Self {
        let egress = Egress::new(self.way.shared.clone(), outside, Arc::clone(&self.way.drops));
        self.way.relay = Some(Relay::new(egress));
        self
    }

    /// The same, which hands bursts off to these threads. They wake it by `wake`, with which it must be served.
    #[must_use]
    pub fn with_crypto_threads(self, slot: CryptoThreadsSlot, wake: Arc<Wake>) -> Self {
        Self { line: self.line.with_threads(slot, wake), ..self }
    }

    /// The same, which notes the times of its stages here.
    #[must_use]
    pub fn with_times(self, times: Arc<StageTimes>) -> Self {
        Self { line: self.line.with_times(times), ..self }
    }

    /// Carries one burst to its end; false when there was none. An error means that the outside is gone.
    pub fn burst(&mut self, observer: &mut impl Observer) -> io::Result<bool> {
        self.line.burst(&mut self.way, observer)
    }

    /// Carries until `stop` is set; the thread that sets it calls `Wake::notify`. An error means that the outside is gone.
    pub fn serve(&mut self, stop: &AtomicBool, wake: &Wake) -> io::Result<()> {
        self.line.serve(&mut self.way, stop, wake)
    }
}

impl<R: Receive, T: Transmit> Way<Opening> for InboundWay<R, T> {
    fn begin(
        &mut self,
        opening: &mut Opening,
        _: &mut Line<Opening>,
        observer: &mut impl Observer,
    ) -> io::Result<bool> {
        let Opening { batch, sa_batches, sequences, now, tap, .. } = opening;
        let (tables, drops) = (&*self.shared.tables, &*self.drops);
        tap.begin(&tables.captures, batch);
        if !receive::inbound(&mut self.outside, &tables.pre_sa, batch, drops)? {
            return Ok(false);
        }
        *now = self.shared.clock.monotonic();
        let mut passage = Passage { now: *now, observer, tap };
        if passage.tap.wants_drops() {
            passage.tap.keep_received(batch);
        }
        passage.finished(&receive::INBOUND, batch);
        classify::inbound(batch, tables, |_| None, &self.punt, drops, sa_batches);
        passage.finished(&classify::INBOUND, batch);
        passage.observer.finished(&punt::STAGE);
        if passage.tap.wants_drops() {
            passage.tap.note_senders(sa_batches);
        }
        check::check(batch, *now, drops, sa_batches, sequences);
        passage.finished(&check::STAGE, batch);
        Ok(true)
    }

    fn finish(&mut self, opening: &mut Opening, observer: &mut impl Observer) {
        let Opening { batch, sa_batches, sequences, now, tap, .. } = opening;
        let (tables, datapath_events, drops) =
            (&*self.shared.tables, &self.shared.datapath_events, &*self.drops);
        let mut passage = Passage { now: *now, observer, tap };
        if passage.tap.wants_drops() {
            passage.tap.report(&decrypt::STAGE, batch);
        }
        accept::accept(batch, *now, drops, datapath_events, sa_batches, sequences);
        passage.finished(&accept::STAGE, batch);
        if passage.tap.wants_drops() {
            // In transport mode, `accept` makes packets of others.
            passage.tap.note_senders(sa_batches);
        }
        admit::admit(batch, tables, drops, sa_batches);
        passage.finished(&admit::STAGE, batch);
        forward::forward(batch, drops, sa_batches);
        passage.finished(&forward::STAGE, batch);
        passage.observer.inner(batch, *now);
        if passage.tap.is_on() {
            for sa_batch in &*sa_batches {
                passage.tap.carry(sa_batch.packets.clone(), &sa_batch.session().peer, batch);
            }
        }
        if let Some(relay) = &mut self.relay {
            relay.relay(batch, tables, *now, drops);
        }
        passage.finished(&relay::STAGE, batch);
        transmit::inbound(&mut self.inside, batch, drops);
        passage.finished(&transmit::INBOUND, batch);
        // What is retired while we wait for the next burst must not be kept by this one.
        sa_batches.clear();
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        self.outside.wait(wake)
    }
}
