//! What the workers of an interface count.

use super::options::Counts;
use super::{SocketKind, TunnelInterface};
use crate::datapath::capture::Captures;
use crate::datapath::handoff::CryptoThreads;
use crate::datapath::stage_times::StageTimes;
use crate::datapath::{INBOUND, OUTBOUND};
use packet::{DropCounters, DropReason};
use port::udp::SocketSlot;
use port::{Offloads, Tally};
use std::sync::Arc;

/// Where drops are counted: one set a worker.
#[derive(Clone, Default)]
pub struct Drops {
    pub(super) outbound: Arc<DropCounters>,
    pub(super) inbound: Arc<DropCounters>,
    /// Of the protocol.
    pub(crate) handshake: Arc<DropCounters>,
}

impl Drops {
    /// How many packets were dropped for `reason`, outbound, inbound and by the slow path.
    pub fn read(&self, reason: DropReason) -> [u64; 3] {
        [&self.outbound, &self.inbound, &self.handshake].map(|counters| counters.read(reason))
    }
}

/// What the workers on TUN and UDP count of their calls: one tally a worker, by the numbers of the receiving threads.
#[derive(Clone)]
pub struct Tallies {
    /// From inside to outside.
    pub outbound: Vec<Arc<Tally>>,
    /// From outside to inside.
    pub inbound: Vec<Arc<Tally>>,
}

impl Tallies {
    /// Nothing so far, of so many threads.
    pub(super) fn of_threads(counts: Counts) -> Self {
        let tallies = |threads| std::iter::repeat_with(Arc::default).take(threads).collect();
        Self { outbound: tallies(counts.senders), inbound: tallies(counts.receivers) }
    }
}

/// What the stages of its workers take, by direction.
#[derive(Clone)]
pub struct Stages {
    /// From inside to outside.
    pub outbound: Arc<StageTimes>,
    /// From outside to inside.
    pub inbound: Arc<StageTimes>,
}

impl Default for Stages {
    fn default() -> Self {
        let [outbound, inbound] = [OUTBOUND, INBOUND].map(|stages| Arc::new(StageTimes::new(stages)));
        Self { outbound, inbound }
    }
}

/// The counters that interfaces of all protocols have.
pub trait Counters: Send + Sync {
    /// The interface with the workers, which has them.
    fn tunnel(&self) -> &TunnelInterface;

    /// The name it was made with.
    fn name(&self) -> &str {
        self.tunnel().name()
    }

    /// Its drop counters.
    fn drops(&self) -> &Drops {
        self.tunnel().drops()
    }

    /// The tallies of its workers.
    fn tallies(&self) -> &Tallies {
        self.tunnel().tallies()
    }

    /// The times of its stages.
    fn stages(&self) -> &Stages {
        self.tunnel().stages()
    }

    /// Its offloads.
    fn offloads(&self) -> &Offloads {
        self.tunnel().offloads()
    }

    /// Where its sockets are, and what they carry.
    fn sockets(&self) -> Vec<(SocketKind, SocketSlot)> {
        self.tunnel().sockets()
    }

    /// Where its packets are captured, once it has workers.
    fn captures(&self) -> Option<Arc<Captures>> {
        self.tunnel().captures()
    }

    /// Its crypto threads, if it has any.
    fn crypto_threads(&self) -> Option<Arc<CryptoThreads>> {
        self.tunnel().crypto_threads()
    }
}
