//! The worker: one burst from each of its queues in turn, through the stages to the ports that routes lead to.
//!
//! Each lcore has a worker, with queues to receive from and a sending half of every port. Workers share tables and SAs: an SA gives each
//! burst its sequence numbers in one atomic step, and locks its window once a burst.

use super::acquire::Acquire;
use super::answer::Answers;
use super::depart::{Departures, Ways};
use super::headers::Headers;
use super::inbound::Arrivals;
use super::large::Cutter;
use super::leaving::Leaving;
use super::lists::Lists;
use super::outbound::LookUp;
use super::policies::Verdicts;
use super::ports::{FramePort, Queue};
use super::reassembly::{LOOK, Reassembly, Side};
use super::reopen::Reopened;
use super::statistics::{PortCounters, Statistics, WorkerCounters};
use super::stopper::Stopper;
use super::tables::SecgwTables;
use super::{frame, inbound, outbound};
use crate::clock::Clock;
use crate::datapath::icmp_errors::IcmpErrors;
use crate::datapath::protocol::Protocol;
use crate::datapath::punt::Punt;
use crate::datapath::tables::{Inside, Tables};
use crate::datapath::{
    Assigned, DataPathEvent, accept, assign, check, classify, decrypt, encrypt, fit, forward,
};
use arc_swap::ArcSwap;
use crossbeam_channel::{Sender, unbounded};
use crypto::random::{self, Random as _};
use packet::{Batch, DropCounters, Train};
use port::{Receive, Wake};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tunnel::Time;

mod whole;

/// How much the worker receives at once, and has for fragments that packets of it are cut into.
const BURST_BYTES: usize = 256 * 1024;
const CUT_BYTES: usize = 256 * 1024;
/// How often ports that must be polled are looked at before the worker sleeps: for about a millisecond.
const LOOKS: u32 = 10_000;
/// How long it then sleeps: less than a ring of 2,048 frames holds of 10 Mpps.
const NAP: Duration = Duration::from_micros(50);
/// How often counters of drivers are noted: it costs a call for each port.
const NOTE: Duration = Duration::from_secs(1);
/// How long a port that reports an error is not waited for.
const REST: Duration = Duration::from_millis(100);
/// A bump in the wire does not clamp the MSS: with this as the MTU inside, the stage `fit` does not.
const NO_CLAMP: Inside = Inside { mtu: 0, segment_sizes: [0; 2], cuts_v6: false };

/// A worker, with all ports.
pub struct Worker {
    /// Its place among all workers.
    place: usize,
    tables: Arc<ArcSwap<SecgwTables>>,
    /// The generation of the tables that recent verdicts are of.
    generation: u64,
    ports: Vec<FramePort>,
    /// Where ports come from whose interface was deleted and made again.
    reopened: Option<Arc<Reopened>>,
    reassembly: Option<Reassembly>,
    clock: Clock,
    drops: Arc<DropCounters>,
    counters: Arc<WorkerCounters>,
    datapath_events: Sender<DataPathEvent>,
    acquire: Acquire,
    /// To the thread of IKE: what came to UDP port 500.
    initial: Punt,
    /// And to UDP port 4500.
    punt: Punt,
    batch: Batch,
    verdicts_out: Verdicts,
    verdicts_in: Verdicts,
    lists: Lists<'static>,
    trains: Vec<Train>,
    sequences: Vec<u64>,
    headers: Headers,
    leaving: Leaving,
    departures: Departures,
    cutter: Cutter,
    errors: IcmpErrors,
    answers: Answers,
    /// Looks at ports that must be polled since there was a frame.
    looks: u32,
    /// When the last burst came.
    now: Time,
    /// When counters of drivers were noted last.
    noted: Time,
}

impl Worker {
    /// The only worker of `ports`.
    pub fn new(tables: SecgwTables, ports: Vec<FramePort>) -> Self {
        Self::several(tables, &[0], vec![ports]).pop().expect("one lcore has one worker")
    }

    /// A worker for each of these lcores, with its ports.
    pub fn several(tables: SecgwTables, lcores: &[u32], ports: Vec<Vec<FramePort>>) -> Vec<Self> {
        let tables = Arc::new(ArcSwap::from_pointee(tables));
        let mut identification = [0; 4];
        random::System::default().fill(&mut identification);
        let first = u32::from_be_bytes(identification);
        // A power of two: the numbers of the workers stay apart when they begin again at 0.
        let step = lcores.len().next_power_of_two() as u32;
        let workers = lcores.iter().zip(ports).enumerate().map(|(place, (&lcore, ports))| {
            let cutter = Cutter::new(first.wrapping_add(place as u32), step);
            Self::with(place, lcore, Arc::clone(&tables), ports, cutter)
        });
        workers.collect()
    }

    fn with(
        place: usize,
        lcore: u32,
        tables: Arc<ArcSwap<SecgwTables>>,
        ports: Vec<FramePort>,
        cutter: Cutter,
    ) -> Self {
        let count = |port: &FramePort| PortCounters::new(port.number, &port.name, port.is_protected);
        let drops = Arc::<DropCounters>::default();
        let counters = WorkerCounters {
            lcore,
            drops: Arc::clone(&drops),
            ports: ports.iter().map(count).collect(),
            reassembled: AtomicU64::new(0),
        };
        // Without IKE, no SA is renewed, and `split` drops all that could be a message of IKE.
        let (datapath_events, (punt, _)) = (unbounded().0, Punt::new(Protocol::Ipsec));
        Self {
            place,
            generation: tables.load().generation,
            tables,
            ports,
            reopened: None,
            reassembly: None,
            clock: Clock,
            drops,
            counters: Arc::new(counters),
            acquire: Acquire::new(datapath_events.clone()),
            datapath_events,
            initial: punt.clone(),
            punt,
            batch: Batch::new(BURST_BYTES + CUT_BYTES),
            verdicts_out: Verdicts::default(),
            verdicts_in: Verdicts::default(),
            lists: Lists::default(),
            trains: Vec::new(),
            sequences: Vec::new(),
            headers: Headers::default(),
            leaving: Leaving::default(),
            departures: Departures::default(),
            cutter,
            errors: IcmpErrors::default(),
            answers: Answers::default(),
            looks: 0,
            now: Time::from_nanoseconds(0),
            noted: Time::from_nanoseconds(0),
        }
    }

    /// The same, which takes ports that are opened again.
    #[must_use]
    pub fn with_reopened(self, reopened: Arc<Reopened>) -> Self {
        Self { reopened: Some(reopened), ..self }
    }

    /// The same, with a thread of IKE that reads the other ends.
    pub(super) fn with_ike(self, datapath_events: Sender<DataPathEvent>, initial: Punt, punt: Punt) -> Self {
        Self { acquire: Acquire::new(datapath_events.clone()), datapath_events, initial, punt, ..self }
    }

    /// What it looks up.
    pub(super) fn tables(&self) -> Arc<SecgwTables> {
        self.tables.load_full()
    }

    /// Where IKE installs SAs.
    pub(super) fn sessions(&self) -> Arc<Tables> {
        Arc::clone(&self.tables.load().sessions)
    }

    /// Where it counts drops.
    pub(super) fn drops(&self) -> Arc<DropCounters> {
        Arc::clone(&self.drops)
    }

    /// Where its tables are exchanged.
    pub(super) fn shared_tables(&self) -> Arc<ArcSwap<SecgwTables>> {
        Arc::clone(&self.tables)
    }

    /// What it counts.
    pub(super) fn counters(&self) -> Arc<WorkerCounters> {
        Arc::clone(&self.counters)
    }

    /// What it counts, for another thread, if it is the only worker.
    pub fn statistics(&self) -> Statistics {
        Statistics::of(std::slice::from_ref(self))
    }

    /// Carries until it is stopped, or until all that it receives from has ended: capture files.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn serve(&mut self, stopper: &Stopper) -> io::Result<()> {
        let wake = stopper.waker(self.place);
        while !stopper.is_stopped() {
            for port in self.reopened.iter().flat_map(|reopened| reopened.take(self.place)) {
                if let Some(old) = self.ports.iter_mut().find(|old| old.number == port.number) {
                    *old = port;
                }
            }
            let mut any = self.burst_of_released();
            for place in 0..self.ports.len() {
                any |= self.burst(place);
            }
            if any {
                self.looks = 0;
                self.note_drivers(NOTE);
            } else if self.looks < LOOKS && self.polls() {
                self.looks += 1;
                std::hint::spin_loop();
            } else if self.has_ended() {
                break;
            } else {
                self.wait(&wake)?;
            }
        }
        self.note_drivers(Duration::ZERO);
        Ok(())
    }

    /// Notes what drivers count, if the last time was at least so long ago.
    fn note_drivers(&mut self, pause: Duration) {
        if self.now - self.noted < pause {
            return;
        }
        self.noted = self.now;
        for (port, counters) in self.ports.iter_mut().zip(&self.counters.ports) {
            let mut all = port.transmit.counters();
            for queue in &mut port.queues {
                all.extend(queue.receive.counters());
            }
            counters.note(all);
        }
    }

    /// Carries one burst of each queue of the port at this place of the list; false when there was none.
    pub fn burst(&mut self, place: usize) -> bool {
        let mut any = false;
        if self.ports[place].is_received {
            for queue in 0..self.ports[place].queues.len() {
                any |= self.burst_of(place, queue);
            }
        }
        any
    }

    /// Carries one burst of a queue; false when there was none.
    fn burst_of(&mut self, place: usize, queue: usize) -> bool {
        let (port, batch, drops) = (&mut self.ports[place], &mut self.batch, &*self.drops);
        let queue = &mut port.queues[queue];
        let rests = |until| self.clock.monotonic() < until;
        if queue.rests_until.is_some_and(rests) {
            return false;
        }
        queue.rests_until = None;
        batch.clear();
        batch.hold_back(CUT_BYTES);
        let received = queue.receive.receive(batch, drops);
        batch.hold_back(0);
        match received {
            Ok(0) => return false,
            Ok(_) => queue.is_failing = false,
            Err(error) => {
                if !queue.is_failing {
                    tracing::warn!("port {} ({}): {error}; the other ports go on", port.number, port.name);
                }
                queue.is_failing = true;
                queue.rests_until = Some(self.clock.monotonic() + REST);
                return false;
            }
        }
        self.counters.ports[place].received(batch);
        if !port.own.is_empty() && self.answers.take(batch, &port.own, port.address, drops) {
            port.transmit.transmit(self.answers.batch(), drops);
            self.counters.ports[place].sent_all(self.answers.batch());
        }
        frame::strip(batch, port.station, drops);
        let now = self.clock.monotonic();
        self.now = now;
        let side = if port.is_protected { Side::Protected } else { Side::Unprotected };
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.gather(batch, side, now, drops);
        }
        self.leaving.clear();
        self.headers.clear();
        let tables = self.tables.load();
        let mut lists = std::mem::take(&mut self.lists).emptied();
        forget(&mut self.generation, &tables, [&mut self.verdicts_out, &mut self.verdicts_in]);
        if side == Side::Protected {
            self.errors.begin(now);
            self.outbound(&tables, &mut lists, now);
        } else {
            self.inbound(&tables, &mut lists, now);
        }
        self.cutter.cuts_all = self.reassembly.is_some() && side == Side::Unprotected;
        self.depart(&tables, &mut lists, Some(place), now);
        self.bursts_of_whole(&tables, &mut lists, Some(place), now);
        self.lists = lists.emptied();
        true
    }

    /// Carries packets that came before their SA, which IKE has installed now; false when there were none.
    #[inline]
    fn burst_of_released(&mut self) -> bool {
        let tables = self.tables.load();
        self.batch.clear();
        tables.sessions.pre_sa.take(&mut self.batch);
        if self.batch.is_empty() {
            return false;
        }
        forget(&mut self.generation, &tables, [&mut self.verdicts_out, &mut self.verdicts_in]);
        self.headers.clear();
        self.leaving.clear();
        let mut lists = std::mem::take(&mut self.lists).emptied();
        let now = self.clock.monotonic();
        self.open(&tables, &mut lists, now);
        self.cutter.cuts_all = self.reassembly.is_some();
        self.depart(&tables, &mut lists, None, now);
        self.bursts_of_whole(&tables, &mut lists, None, now);
        self.lists = lists.emptied();
        true
    }

    /// Sends what leaves, and ICMP errors by the protected port at this place that the burst came from. An unprotected port gets none: it
    /// would show packets in clear.
    fn depart(&mut self, tables: &SecgwTables, lists: &mut Lists<'_>, place: Option<usize>, now: Time) {
        let (batch, drops) = (&mut self.batch, &*self.drops);
        let ways = Ways { tables, ports: &self.ports };
        self.departures.choose(batch, &self.leaving, &ways, drops);
        let protected = place.filter(|&place| self.ports[place].is_protected);
        let mut none = IcmpErrors::none();
        let errors = if protected.is_some() { &mut self.errors } else { &mut none };
        self.departures.cut(batch, &mut self.cutter, &lists.assigned, errors, &ways, drops);
        if let Some(place) = protected {
            self.departures.answer(batch, errors, place as u8, &ways, drops);
        }
        self.departures.discard_others(batch);
        self.departures.transmit(batch, &mut self.ports, drops);
        self.departures.count(batch, &self.counters.ports);
        self.count_sent(&mut lists.assigned, now);
    }

    /// From a protected port: protects what policies say, up to the outer header.
    fn outbound<'t>(&mut self, tables: &'t SecgwTables, lists: &mut Lists<'t>, now: Time) {
        // As in ipsec-secgw, which cuts only if it puts together.
        let inside = Inside { cuts_v6: self.reassembly.is_some(), ..NO_CLAMP };
        let (batch, drops) = (&mut self.batch, &*self.drops);
        let (headers, leaving) = (&mut self.headers, &mut self.leaving);
        let Lists { routed, fitted, assigned, .. } = lists;
        let mut look_up =
            LookUp { tables, verdicts: &mut self.verdicts_out, acquire: &mut self.acquire, now };
        outbound::protect(batch, &mut look_up, drops, routed, headers, leaving);
        tables.modes.clamp_out(batch, routed);
        // Which port, and whether it is full, is known behind the outer header.
        fit::fit(batch, inside, drops, &mut self.errors, |_| false, routed, fitted);
        assign::assign(batch, inside.mtu, now, drops, fitted, assigned);
        encrypt::encrypt(batch, drops, assigned);
        outbound::wrap(batch, assigned, headers, drops, leaving);
    }

    /// From an unprotected port: opens ESP, and holds all packets against the policies.
    fn inbound<'t>(&mut self, tables: &'t SecgwTables, lists: &mut Lists<'t>, now: Time) {
        let (batch, drops, trains) = (&mut self.batch, &*self.drops, &mut self.trains);
        let mut arrivals = Arrivals { tables, verdicts: &mut self.verdicts_in, initial: &self.initial };
        inbound::split(batch, &mut arrivals, drops, trains, &mut self.headers, &mut self.leaving);
        self.open(tables, lists, now);
    }

    /// Opens what `split` has sorted.
    fn open<'t>(&mut self, tables: &'t SecgwTables, lists: &mut Lists<'t>, now: Time) {
        let (batch, drops) = (&mut self.batch, &*self.drops);
        let (sa_batches, sequences) = (&mut lists.sa_batches, &mut self.sequences);
        let (headers, leaving) = (&mut self.headers, &mut self.leaving);
        let lent = |spi| tables.inbound.get(&spi).map(|session| &**session);
        classify::inbound(batch, &tables.sessions, lent, &self.punt, drops, sa_batches);
        inbound::check_addresses(batch, drops, sa_batches);
        check::check(batch, now, drops, sa_batches, sequences);
        decrypt::decrypt(batch, drops, sa_batches, sequences);
        accept::accept(batch, now, drops, &self.datapath_events, sa_batches, sequences);
        inbound::restore(batch, headers, drops, sa_batches);
        tables.modes.clamp_in(batch, sa_batches);
        forward::forward(batch, drops, sa_batches);
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.gather_opened(batch, sa_batches, &tables.inbound, now, drops);
        }
        inbound::admit(batch, tables, &mut self.verdicts_in, drops, sa_batches, leaving);
        // What is retired while we wait for the next burst must not be kept by this one.
        sa_batches.clear();
    }

    /// Counts what was sent under each SA, and has IKE replace an SA that wears out.
    fn count_sent(&mut self, assigned: &mut Vec<Assigned<'_>>, now: Time) {
        for Assigned { fitted, .. } in assigned.drain(..) {
            let sizes = self.batch.live(fitted.packets.clone()).map(|index| self.batch.packet(index).len());
            let (packets, bytes) = sizes.fold((0, 0), |(packets, bytes), size| (packets + 1, bytes + size));
            fitted.peer.sent.count(packets, bytes as u64);
            if fitted.sa.wants_renewal(now) {
                // Without IKE, SAs do not wear out.
                let _ = self.datapath_events.send(DataPathEvent::Renewal(fitted.peer.id));
            }
        }
    }

    /// The queues that are received from.
    fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.ports.iter().filter(|port| port.is_received).flat_map(|port| &port.queues)
    }

    /// Whether a port must be polled: nothing tells when it has frames.
    fn polls(&self) -> bool {
        let mut queues = self.queues().filter(|queue| queue.rests_until.is_none());
        queues.any(|queue| queue.receive.descriptor().is_none() && !queue.receive.has_ended())
    }

    /// Whether nothing will come any more. Fragments that wait are kept to the end of their time: another worker may have the others.
    fn has_ended(&self) -> bool {
        self.queues().next().is_some()
            && self.queues().all(|queue| queue.receive.has_ended())
            && !self.reassembly.as_ref().is_some_and(Reassembly::holds_any)
    }

    /// Waits for frames. A port that is down is asked again after a rest; the others are not held up by it.
    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        let now = self.clock.monotonic();
        self.now = now;
        self.note_drivers(NOTE);
        let received = self.ports.iter().enumerate().filter(|(_, port)| port.is_received);
        let queues: Vec<((usize, usize), &Queue)> = received
            .flat_map(|(place, port)| (0..).zip(&port.queues).map(move |(at, queue)| ((place, at), queue)))
            .collect();
        let (places, descriptors): (Vec<(usize, usize)>, Vec<BorrowedFd<'_>>) = queues
            .iter()
            .filter(|(_, queue)| queue.rests_until.is_none())
            .filter_map(|(place, queue)| Some((place, queue.receive.descriptor()?)))
            .unzip();
        let rests = queues.iter().any(|(_, queue)| queue.rests_until.is_some()).then_some(REST);
        let holds_any = self.reassembly.as_ref().is_some_and(Reassembly::holds_any).then_some(LOOK);
        let nap = self.polls().then_some(NAP);
        let limit = rests.into_iter().chain(holds_any).chain(nap).chain([NOTE]).min();
        let mut failed = Vec::new();
        wake.wait_for_any(&descriptors, limit, |at| failed.push(places[at]))?;
        for (place, at) in failed {
            self.ports[place].queues[at].rests_until = Some(now + REST);
        }
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.look(self.clock.monotonic(), &self.drops);
        }
        Ok(())
    }
}

/// Forgets the verdicts of tables before these: their rows may not exist any more.
#[inline]
fn forget(generation: &mut u64, tables: &SecgwTables, verdicts: [&mut Verdicts; 2]) {
    if *generation != tables.generation {
        *generation = tables.generation;
        for verdicts in verdicts {
            *verdicts = Verdicts::default();
        }
    }
}
