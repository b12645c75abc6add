//! The workers: the stages in their order, one function a direction.

use crate::clock::Clock;
use crate::datapath::punt::Punt;
use crate::datapath::route::Router;
use crate::datapath::{
    Assigned, Classified, Fitted, Notice, Observer, Routed, Run, accept, admit, assign, check, classify,
    decrypt, encrypt, fit, forward, punt, receive, route, transmit, wrap,
};
use crate::tables::Tables;
use crossbeam_channel::Sender;
use packet::{Batch, DropCounters};
use port::{Receive, Transmit};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tunnel::Time;

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
        fit::fit(batch, drops, answers, routed, &mut self.fitted);
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

/// From the inside to the outside.
pub struct Outbound<R, T, A> {
    shared: Shared,
    inside: R,
    egress: Egress<T>,
    /// Where ICMP errors go.
    answers_to: A,
    batch: Batch,
    answers: Vec<Vec<u8>>,
    classified: Vec<Classified>,
    routed: Vec<Routed>,
}

impl<R: Receive, T: Transmit, A: Transmit> Outbound<R, T, A> {
    /// A worker that reads from `inside`, answers there by `answers_to`, and sends by `egress`.
    ///
    /// `batch_bytes`: how much it carries at once, at least the largest packet with its rooms.
    pub fn new(shared: Shared, inside: R, answers_to: A, egress: Egress<T>, batch_bytes: usize) -> Self {
        Self {
            shared,
            inside,
            egress,
            answers_to,
            batch: Batch::new(batch_bytes),
            answers: Vec::new(),
            classified: Vec::new(),
            routed: Vec::new(),
        }
    }

    /// Carries one burst; false when there was none. An error means that the inside is gone.
    pub fn burst(&mut self, observer: &mut impl Observer) -> io::Result<bool> {
        let (batch, drops) = (&mut self.batch, &self.egress.drops);
        if !receive::receive(&mut self.inside, batch)? {
            return Ok(false);
        }
        let now = self.shared.clock.monotonic();
        observer.finished(&receive::STAGE);
        classify::outbound(batch, drops, &mut self.classified);
        observer.finished(&classify::OUTBOUND);
        let (tables, notices, answers) = (&*self.shared.tables, &self.shared.notices, &mut self.answers);
        Router { tables, notices, drops, answers }.route(batch, now, &mut self.classified, &mut self.routed);
        observer.finished(&route::STAGE);
        self.egress.send(batch, now, &mut self.routed, &mut self.answers, observer);
        if !self.answers.is_empty() {
            self.answer();
        }
        Ok(true)
    }

    /// Sends ICMP errors back to the inside.
    #[cold]
    fn answer(&mut self) {
        self.batch.clear();
        for answer in self.answers.drain(..) {
            if let Some(packet) = self.batch.append(answer.len()) {
                packet.copy_from_slice(&answer);
            }
        }
        self.answers_to.transmit(&mut self.batch, &self.egress.drops);
    }

    /// The port that it reads from, to wait for.
    pub fn inside(&mut self) -> &mut R {
        &mut self.inside
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
        Self { shared, outside, inside, punt, drops, batch: Batch::new(batch_bytes), runs: Vec::new() }
    }

    /// Carries one burst; false when there was none. An error means that the outside is gone.
    pub fn burst(&mut self, observer: &mut impl Observer) -> io::Result<bool> {
        let (batch, drops, runs) = (&mut self.batch, &*self.drops, &mut self.runs);
        if !receive::receive(&mut self.outside, batch)? {
            return Ok(false);
        }
        let now = self.shared.clock.monotonic();
        let (tables, notices) = (&*self.shared.tables, &self.shared.notices);
        observer.finished(&receive::STAGE);
        classify::inbound(batch, tables, &self.punt, drops, runs);
        observer.finished(&classify::INBOUND);
        observer.finished(&punt::STAGE);
        check::check(batch, now, drops, runs);
        observer.finished(&check::STAGE);
        decrypt::decrypt(batch, drops, runs);
        observer.finished(&decrypt::STAGE);
        accept::accept(batch, now, drops, notices, runs);
        observer.finished(&accept::STAGE);
        admit::admit(batch, tables, drops, runs);
        observer.finished(&admit::STAGE);
        forward::forward(batch, drops, runs);
        observer.finished(&forward::STAGE);
        transmit::inbound(&mut self.inside, batch, drops);
        observer.finished(&transmit::INBOUND);
        Ok(true)
    }

    /// The port that it reads from, to wait for.
    pub fn outside(&mut self) -> &mut R {
        &mut self.outside
    }
}
