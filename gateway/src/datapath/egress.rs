//! Outbound from a key on: the part of the way that keepalives, waiting packets and relayed ones share with all others.

use super::capture::{Direction, Tap};
use super::icmp_errors::IcmpErrors;
use super::tables::Peer;
use super::worker::Shared;
use super::{Assigned, Fitted, Observer, Routed, Stage, assign, encrypt, fit, transmit, wrap};
use packet::{Batch, DropCounters, PackedEndpoint};
use port::Transmit;
use rustix::io::Errno;
use std::sync::Arc;
use tunnel::{OutboundSa, Time};

/// Waiting packets that are sent together.
const FLUSH: usize = 64;

/// What goes with a burst from stage to stage.
pub(super) struct Passage<'a, O> {
    pub(super) now: Time,
    pub(super) observer: &'a mut O,
    pub(super) tap: &'a mut Tap,
}

impl<O: Observer> Passage<'_, O> {
    /// A stage has processed the batch.
    #[inline]
    pub(super) fn finished(&mut self, stage: &'static Stage, batch: &mut Batch) {
        self.observer.finished(stage);
        if self.tap.wants_drops() {
            self.tap.report(stage, batch);
        }
    }
}

/// From a key to the network.
pub struct Egress<T> {
    shared: Shared,
    outside: T,
    pub(super) drops: Arc<DropCounters>,
    fitted: Vec<Fitted<'static>>,
    /// For what is sent at once.
    assigned: Vec<Assigned<'static>>,
    /// For what is sent at once.
    pub(super) tap: Tap,
}

impl<T: Transmit> Egress<T> {
    /// Sends on `outside`.
    pub fn new(shared: Shared, outside: T, drops: Arc<DropCounters>) -> Self {
        let tap = Tap::new(Direction::Outbound);
        Self { shared, outside, drops, fitted: Vec::new(), assigned: Vec::new(), tap }
    }

    /// Sends the trains of `batch` as they are: handshake messages. Returns why the kernel refused one, if it did.
    pub fn send_as_is(&mut self, batch: &mut Batch) -> Option<Errno> {
        // What was refused before was not of these.
        self.outside.take_refusal();
        self.outside.transmit(batch, &self.drops);
        self.outside.take_refusal()
    }

    /// Sends the packets that wait for a key, in order. If the key ends meanwhile, the rest goes on waiting.
    pub(super) fn flush(&mut self, batch: &mut Batch, peer: &Arc<Peer>) {
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
        let (mut assigned, mut tap) = (std::mem::take(&mut self.assigned), std::mem::take(&mut self.tap));
        tap.begin(&self.shared.tables.captures, batch);
        let mut passage = Passage { now, observer, tap: &mut tap };
        self.prepare(batch, routed, errors, &mut assigned, &mut passage);
        encrypt::encrypt(batch, &self.drops, &mut assigned);
        passage.observer.finished(&encrypt::STAGE);
        self.finish(batch, &mut assigned, &mut passage);
        (self.assigned, self.tap) = (assigned, tap);
    }

    /// The stages before `encrypt`.
    pub(super) fn prepare(
        &mut self,
        batch: &mut Batch,
        routed: &mut Vec<Routed<'static>>,
        errors: &mut IcmpErrors,
        assigned: &mut Vec<Assigned<'static>>,
        passage: &mut Passage<'_, impl Observer>,
    ) {
        if passage.tap.wants_drops() {
            passage.tap.note_owners(routed.iter().map(|it| (it.packets.clone(), &*it.peer)));
        }
        let (drops, inside) = (&*self.drops, self.shared.tables.inside());
        let is_full = |endpoint: &PackedEndpoint| self.outside.is_full(&endpoint.unpack());
        fit::fit(batch, inside, drops, errors, is_full, routed, &mut self.fitted);
        passage.finished(&fit::STAGE, batch);
        if passage.tap.is_on() {
            for Fitted { packets, peer, .. } in self.fitted.iter().filter(|it| it.is_data) {
                passage.tap.carry(packets.clone(), peer, batch);
            }
        }
        assign::assign(batch, inside.mtu, passage.now, drops, &mut self.fitted, assigned);
        passage.finished(&assign::STAGE, batch);
    }

    /// The stages behind `encrypt`.
    pub(super) fn finish(
        &mut self,
        batch: &mut Batch,
        assigned: &mut Vec<Assigned<'static>>,
        passage: &mut Passage<'_, impl Observer>,
    ) {
        // A crypto thread may have done `encrypt`, and then knows no observer.
        if passage.tap.wants_drops() {
            passage.tap.report(&encrypt::STAGE, batch);
        }
        wrap::wrap(batch, assigned);
        passage.finished(&wrap::STAGE, batch);
        let (outside, drops) = (&mut self.outside, &*self.drops);
        transmit::outbound(outside, batch, passage.now, drops, &self.shared.datapath_events, assigned);
        passage.finished(&transmit::OUTBOUND, batch);
    }
}

fn append(batch: &mut Batch, packet: &[u8]) -> bool {
    batch.append(packet.len()).map(|bytes| bytes.copy_from_slice(packet)).is_some()
}
