//! The workers: the stages in their order, two functions a direction: `begin` up to what a crypto thread may do, `finish` from there on.

use super::handoff::{CryptoThreadsSlot, Line, Way, Work};
use super::icmp_errors::IcmpErrors;
use super::punt::Punt;
use super::relay::Relay;
use super::route::{Recent, Router};
use super::stage_times::StageTimes;
use super::tables::{Order, Peer, Tables};
use super::{
    Assigned, Classified, DataPathEvent, Fitted, Observer, Routed, SaBatch, Stage, accept, admit, assign,
    check, classify, decrypt, encrypt, fit, forward, punt, receive, relay, route, transmit, wrap,
};
use crate::clock::Clock;
use crossbeam_channel::Sender;
use packet::{Batch, DropCounters, DropReason, PackedEndpoint};
use port::{Receive, Transmit, Wake};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tunnel::{OutboundSa, Time};

/// Waiting packets that are sent together.
const FLUSH: usize = 64;
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

/// From a key to the network: the part of the way that keepalives and waiting packets share with all others.
pub struct Egress<T> {
    shared: Shared,
    outside: T,
    drops: Arc<DropCounters>,
    fitted: Vec<Fitted<'static>>,
    /// For what is sent at once.
    assigned: Vec<Assigned<'static>>,
}

impl<T: Transmit> Egress<T> {
    /// Sends on `outside`.
    pub fn new(shared: Shared, outside: T, drops: Arc<DropCounters>) -> Self {
        Self { shared, outside, drops, fitted: Vec::new(), assigned: Vec::new() }
    }

    /// Sends the trains of `batch` as they are: handshake messages. Returns why the kernel refused one, if it did.
    pub fn send_as_is(&mut self, batch: &mut Batch) -> Option<Errno> {
        // What was refused before was not of these.
        self.outside.take_refusal();
        self.outside.transmit(batch, &self.drops);
        self.outside.take_refusal()
    }

    /// Sends the packets that wait for a key, in order. If the key ends meanwhile, the rest goes on waiting.
    fn flush(&mut self, batch: &mut Batch, peer: &Arc<Peer>) {
        let _alone = peer.staging.sending();
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
        let (peer, sa) = (Arc::clone(peer).into(), Arc::clone(sa).into());
        let sa_batch = Routed { packets, peer, sa, ds_field: 0, is_data };
        let now = self.shared.clock.monotonic();
        self.send(batch, now, &mut vec![sa_batch], &mut IcmpErrors::none(), &mut ());
        batch.clear();
    }

    /// Sends the packets of `batch` that `routed` speaks of; ICMP errors for the inside are added to `errors`.
    pub fn send(
        &mut self,
        batch: &mut Batch,
        now: Time,
        routed: &mut Vec<Routed<'static>>,
        errors: &mut IcmpErrors,
        observer: &mut impl Observer,
    ) {
        let mut assigned = std::mem::take(&mut self.assigned);
        self.prepare(batch, now, routed, errors, &mut assigned, observer);
        encrypt::encrypt(batch, &self.drops, &mut assigned);
        observer.finished(&encrypt::STAGE);
        self.finish(batch, now, &mut assigned, observer);
        self.assigned = assigned;
    }

    /// The stages before `encrypt`.
    fn prepare(
        &mut self,
        batch: &mut Batch,
        now: Time,
        routed: &mut Vec<Routed<'static>>,
        errors: &mut IcmpErrors,
        assigned: &mut Vec<Assigned<'static>>,
        observer: &mut impl Observer,
    ) {
        let (drops, inside) = (&*self.drops, self.shared.tables.inside());
        let is_full = |endpoint: &PackedEndpoint| self.outside.is_full(&endpoint.unpack());
        fit::fit(batch, inside, drops, errors, is_full, routed, &mut self.fitted);
        observer.finished(&fit::STAGE);
        assign::assign(batch, inside.mtu, now, drops, &mut self.fitted, assigned);
        observer.finished(&assign::STAGE);
    }

    /// Sends a burst that is sealed.
    fn finish_sealed(&mut self, sealing: &mut Sealing, observer: &mut impl Observer) {
        let Sealing { batch, assigned, now, .. } = sealing;
        self.finish(batch, *now, assigned, observer);
    }

    /// The stages behind `encrypt`.
    fn finish(
        &mut self,
        batch: &mut Batch,
        now: Time,
        assigned: &mut Vec<Assigned<'static>>,
        observer: &mut impl Observer,
    ) {
        wrap::wrap(batch, assigned);
        observer.finished(&wrap::STAGE);
        let (outside, drops) = (&mut self.outside, &*self.drops);
        transmit::outbound(outside, batch, now, drops, &self.shared.datapath_events, assigned);
        observer.finished(&transmit::OUTBOUND);
    }
}

/// An outbound burst behind `assign`.
struct Sealing {
    batch: Batch,
    assigned: Vec<Assigned<'static>>,
    now: Time,
    drops: Arc<DropCounters>,
}

impl Sealing {
    fn new(batch_bytes: usize, drops: &Arc<DropCounters>) -> Self {
        let (batch, now) = (Batch::new(batch_bytes), Time::from_nanoseconds(0));
        Self { batch, assigned: Vec::new(), now, drops: Arc::clone(drops) }
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

fn append(batch: &mut Batch, packet: &[u8]) -> bool {
    batch.append(packet.len()).map(|bytes| bytes.copy_from_slice(packet)).is_some()
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
        let Sealing { batch, assigned, now, .. } = sealing;
        let drops = &*self.drops;
        if !receive::receive(&mut self.inside, batch, drops)? {
            return Ok(false);
        }
        *now = self.shared.clock.monotonic();
        let now = *now;
        observer.finished(&receive::OUTBOUND);
        classify::outbound(batch, drops, &mut self.classified);
        observer.finished(&classify::OUTBOUND);
        observer.inner(batch, now);
        self.errors.begin(now);
        let (tables, datapath_events, errors) =
            (&*self.shared.tables, &self.shared.datapath_events, &mut self.errors);
        let (egress, waited) = (&mut self.egress, &mut self.waited);
        let flush = &mut |peer: &Arc<Peer>| {
            // No packet overtakes those that came before it.
            line.drain(|sealing| egress.finish_sealed(sealing, &mut ()));
            egress.flush(waited, peer);
        };
        Router { tables, batch, now, datapath_events, drops, errors, flush }.route(
            &mut self.recent,
            &mut self.classified,
            &mut self.routed,
        );
        observer.finished(&route::STAGE);
        self.egress.prepare(batch, now, &mut self.routed, &mut self.errors, assigned, observer);
        if !self.errors.is_empty() {
            self.send_errors();
        }
        Ok(true)
    }

    fn finish(&mut self, sealing: &mut Sealing, observer: &mut impl Observer) {
        self.egress.finish_sealed(sealing, observer);
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
            line.drain(|sealing| self.egress.finish_sealed(sealing, &mut ()));
            self.carry_out(&peer, order);
        }
        some
    }
}

impl<R: Receive, T: Transmit, A: Transmit> OutboundWay<R, T, A> {
    #[cold]
    fn carry_out(&mut self, peer: &Arc<Peer>, order: Order) {
        match order {
            Order::Drop => self.drops.count(DropReason::NoKey, peer.staging.purge()),
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
}

impl Opening {
    fn new(batch_bytes: usize, drops: &Arc<DropCounters>) -> Self {
        let (batch, now) = (Batch::new(batch_bytes), Time::from_nanoseconds(0));
        Self { batch, sa_batches: Vec::new(), sequences: Vec::new(), now, drops: Arc::clone(drops) }
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
        let Opening { batch, sa_batches, sequences, now, .. } = opening;
        let (tables, drops) = (&*self.shared.tables, &*self.drops);
        if !receive::inbound(&mut self.outside, &tables.pre_sa, batch, drops)? {
            return Ok(false);
        }
        *now = self.shared.clock.monotonic();
        observer.finished(&receive::INBOUND);
        classify::inbound(batch, tables, |_| None, &self.punt, drops, sa_batches);
        observer.finished(&classify::INBOUND);
        observer.finished(&punt::STAGE);
        check::check(batch, *now, drops, sa_batches, sequences);
        observer.finished(&check::STAGE);
        Ok(true)
    }

    fn finish(&mut self, opening: &mut Opening, observer: &mut impl Observer) {
        let Opening { batch, sa_batches, sequences, now, .. } = opening;
        let (tables, datapath_events, drops) =
            (&*self.shared.tables, &self.shared.datapath_events, &*self.drops);
        accept::accept(batch, *now, drops, datapath_events, sa_batches, sequences);
        observer.finished(&accept::STAGE);
        admit::admit(batch, tables, drops, sa_batches);
        observer.finished(&admit::STAGE);
        forward::forward(batch, drops, sa_batches);
        observer.finished(&forward::STAGE);
        observer.inner(batch, *now);
        if let Some(relay) = &mut self.relay {
            relay.relay(batch, tables, *now, drops);
        }
        observer.finished(&relay::STAGE);
        transmit::inbound(&mut self.inside, batch, drops);
        observer.finished(&transmit::INBOUND);
        // What is retired while we wait for the next burst must not be kept by this one.
        sa_batches.clear();
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        self.outside.wait(wake)
    }
}
