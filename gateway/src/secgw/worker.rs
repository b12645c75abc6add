//! The worker: one burst from each port in turn, through the stages to the ports that routes lead to.

use super::depart::Departures;
use super::leaving::Leaving;
use super::policies::Recent;
use super::ports::FramePort;
use super::statistics::{PortCounters, Statistics};
use super::tables::SecgwTables;
use super::{frame, inbound, outbound};
use crate::clock::Clock;
use crate::datapath::icmp_errors::IcmpErrors;
use crate::datapath::protocol::Protocol;
use crate::datapath::punt::Punt;
use crate::datapath::tables::Inside;
use crate::datapath::{
    Assigned, DataPathEvent, Fitted, Routed, SaBatch, accept, assign, check, classify, decrypt, encrypt, fit,
    forward,
};
use crossbeam_channel::{Sender, unbounded};
use packet::{Batch, DropCounters, Train};
use port::{Receive, Wake};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tunnel::Time;

/// How much the worker carries at once.
const BATCH_BYTES: usize = 256 * 1024;
/// How long a port that reports an error is not waited for.
const REST: Duration = Duration::from_millis(100);
/// A bump in the wire does not clamp the MSS: with this as the MTU inside, the stage `fit` does not.
const NO_CLAMP: Inside = Inside { mtu: 0, segment_sizes: [0; 2] };

/// What ends a worker, from any thread.
#[derive(Clone)]
pub struct Stopper {
    stop: Arc<AtomicBool>,
    wake: Arc<Wake>,
}

impl Stopper {
    /// Something that ends the worker that is made with it.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { stop: Arc::default(), wake: Arc::new(Wake::new()?) })
    }

    /// Ends the worker.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake.notify();
    }
}

/// The worker, with all ports.
pub struct Worker {
    tables: Arc<SecgwTables>,
    ports: Vec<FramePort>,
    clock: Clock,
    drops: Arc<DropCounters>,
    counters: Arc<Vec<PortCounters>>,
    datapath_events: Sender<DataPathEvent>,
    punt: Punt,
    batch: Batch,
    recent_out: Recent,
    recent_in: Recent,
    recent_admitted: Recent,
    routed: Vec<Routed>,
    fitted: Vec<Fitted>,
    assigned: Vec<Assigned>,
    trains: Vec<Train>,
    sa_batches: Vec<SaBatch>,
    sequences: Vec<u64>,
    leaving: Leaving,
    departures: Departures,
}

impl Worker {
    /// A worker of `ports`.
    pub fn new(tables: Arc<SecgwTables>, ports: Vec<FramePort>) -> Self {
        let counters = ports.iter().map(|port| PortCounters::new(port.number, &port.name)).collect();
        // Nobody renews manual SAs, and `split` drops all that could be a message of IKE.
        let (datapath_events, (punt, _)) = (unbounded().0, Punt::new(Protocol::Ipsec));
        Self {
            tables,
            ports,
            clock: Clock,
            drops: Arc::default(),
            counters: Arc::new(counters),
            datapath_events,
            punt,
            batch: Batch::new(BATCH_BYTES),
            recent_out: Recent::default(),
            recent_in: Recent::default(),
            recent_admitted: Recent::default(),
            routed: Vec::new(),
            fitted: Vec::new(),
            assigned: Vec::new(),
            trains: Vec::new(),
            sa_batches: Vec::new(),
            sequences: Vec::new(),
            leaving: Leaving::default(),
            departures: Departures::default(),
        }
    }

    /// What it counts, for another thread.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            tables: Arc::clone(&self.tables),
            drops: Arc::clone(&self.drops),
            ports: Arc::clone(&self.counters),
        }
    }

    /// Carries until it is stopped.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn serve(&mut self, stopper: &Stopper) -> io::Result<()> {
        while !stopper.stop.load(Ordering::Relaxed) {
            let mut any = false;
            for place in 0..self.ports.len() {
                any |= self.burst(place);
            }
            if !any {
                self.wait(&stopper.wake)?;
            }
        }
        Ok(())
    }

    /// Carries one burst of the port at this place of the list; false when there was none.
    pub fn burst(&mut self, place: usize) -> bool {
        let (port, batch, drops) = (&mut self.ports[place], &mut self.batch, &*self.drops);
        let rests = |until| self.clock.monotonic() < until;
        if !port.is_received || port.rests_until.is_some_and(rests) {
            return false;
        }
        port.rests_until = None;
        batch.clear();
        match port.receive.receive(batch, drops) {
            Ok(0) => return false,
            Ok(_) => port.is_failing = false,
            Err(error) => {
                rest(port, self.clock.monotonic(), &error);
                return false;
            }
        }
        self.counters[place].received(batch);
        frame::strip(batch, port.station, drops);
        self.leaving.clear();
        self.assigned.clear();
        let now = self.clock.monotonic();
        if port.is_protected {
            self.outbound(now);
        } else {
            self.inbound(now);
        }
        let tables = &*self.tables;
        let (batch, drops) = (&mut self.batch, &*self.drops);
        self.departures.choose(batch, &self.leaving, &tables.routes, tables.mtu, &self.ports, drops);
        self.departures.transmit(batch, &mut self.ports, drops);
        self.departures.count(batch, &self.counters);
        self.count_sent();
        true
    }

    /// From a protected port: protects what policies say, up to the outer header.
    fn outbound(&mut self, now: Time) {
        let (batch, tables, drops) = (&mut self.batch, &*self.tables, &*self.drops);
        outbound::protect(batch, tables, &mut self.recent_out, drops, &mut self.routed, &mut self.leaving);
        fit::fit(batch, NO_CLAMP, drops, &mut IcmpErrors::none(), &mut self.routed, &mut self.fitted);
        assign::assign(batch, NO_CLAMP.mtu, now, drops, &mut self.fitted, &mut self.assigned);
        encrypt::encrypt(batch, drops, &mut self.assigned);
        outbound::wrap(batch, &self.assigned, &mut self.leaving);
    }

    /// From an unprotected port: opens ESP, and holds all packets against the policies.
    fn inbound(&mut self, now: Time) {
        let (batch, tables, drops) = (&mut self.batch, &*self.tables, &*self.drops);
        let (sa_batches, sequences) = (&mut self.sa_batches, &mut self.sequences);
        inbound::split(batch, tables, &mut self.recent_in, drops, &mut self.trains, &mut self.leaving);
        classify::inbound(batch, &tables.sessions, &self.punt, drops, sa_batches);
        inbound::check_addresses(batch, drops, sa_batches);
        check::check(batch, now, drops, sa_batches, sequences);
        decrypt::decrypt(batch, drops, sa_batches, sequences);
        accept::accept(batch, now, drops, &self.datapath_events, sa_batches, sequences);
        inbound::admit(batch, tables, &mut self.recent_admitted, drops, sa_batches, &mut self.leaving);
        forward::forward(batch, drops, sa_batches);
        // What is retired while we wait for the next burst must not be kept by this one.
        sa_batches.clear();
    }

    /// Counts what was sent under each SA.
    fn count_sent(&mut self) {
        for Assigned { fitted, .. } in self.assigned.drain(..) {
            let sizes = self.batch.live(fitted.packets.clone()).map(|index| self.batch.packet(index).len());
            let (packets, bytes) = sizes.fold((0, 0), |(packets, bytes), size| (packets + 1, bytes + size));
            fitted.peer.sent.count(packets, bytes);
        }
    }

    /// Waits for frames. A port that is down is asked again after a rest; the others are not held up by it.
    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        let now = self.clock.monotonic();
        let received = || self.ports.iter().enumerate().filter(|(_, port)| port.is_received);
        let (places, descriptors): (Vec<usize>, Vec<BorrowedFd<'_>>) = received()
            .filter(|(_, port)| port.rests_until.is_none())
            .filter_map(|(place, port)| Some((place, port.receive.descriptor()?)))
            .unzip();
        let limit = received().any(|(_, port)| port.rests_until.is_some()).then_some(REST);
        let mut failed = Vec::new();
        wake.wait_for_any(&descriptors, limit, |at| failed.push(places[at]))?;
        for place in failed {
            self.ports[place].rests_until = Some(now + REST);
        }
        Ok(())
    }
}

/// Lets a port rest that could not be read.
#[cold]
fn rest(port: &mut FramePort, now: Time, error: &io::Error) {
    if !port.is_failing {
        tracing::warn!("port {} ({}): {error}; the other ports go on", port.number, port.name);
    }
    port.is_failing = true;
    port.rests_until = Some(now + REST);
}
