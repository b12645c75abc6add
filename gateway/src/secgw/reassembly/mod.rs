//! `--reassemble`: fragments are put together before policies see them.
//!
//! ```text
//! protected    frame → strip → gather ─────────────────────────> protect ...
//! unprotected  frame → strip → gather → split → ESP → decrypt → gather → SP in ...
//!                                 └── whole packets: a burst of their own, from here on
//! ```
//! A burst without fragments pays a look at each packet. Fragments are copied into tables that all workers share, as a network card may
//! give those of one packet to several queues: there is a lock, which only fragments take. There are three tables, so that packets of
//! unprotected ports, which anybody may send, take no place from packets of protected ports and of tunnels.

mod chunks;
pub mod table;

use crate::datapath::SaBatch;
use crate::datapath::held::Held;
use crate::datapath::tables::Session;
use crate::secgw::spi_map::BySpi;
use packet::header::ethernet::EthernetHeader;
use packet::header::fragment::{Fragment, may_be};
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, Endpoint};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use table::{Limits, Scope, Table, Tunnel, Whole};
use tunnel::Time;

/// How often it is looked for packets whose time is over.
pub const LOOK: Duration = Duration::from_millis(100);
/// Of the room of a batch, what a packet takes: itself, and the fragments that it may be cut into again.
const ROOM_EACH: usize = 4;

/// Where packets come from; each has a table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A protected port.
    Protected,
    /// An unprotected port.
    Unprotected,
    /// A tunnel: they are authentic.
    Opened,
}

/// A table for each side, which all workers share.
struct Shared([Mutex<Table>; 3]);

/// The SA that the last fragment came under, and from where.
type Under = (Arc<Session>, Endpoint);

/// The reassembly of one worker.
pub struct Reassembly {
    shared: Arc<Shared>,
    /// What was put together in this burst, with the SA that it came under.
    whole: Vec<(Side, Whole, Option<Under>)>,
    next_look: Time,
}

impl Reassembly {
    /// The reassembly of so many workers.
    pub fn several(limits: Limits, workers: usize) -> Vec<Self> {
        let shared = Arc::new(Shared(std::array::from_fn(|_| Mutex::new(Table::new(limits)))));
        let of_worker =
            |_| Self { shared: Arc::clone(&shared), whole: Vec::new(), next_look: Time::from_nanoseconds(0) };
        (0..workers).map(of_worker).collect()
    }

    /// Takes the fragments of a burst that came by a port.
    #[inline]
    pub fn gather(&mut self, batch: &mut Batch, side: Side, now: Time, drops: &DropCounters) {
        self.look(now, drops);
        for index in 0..batch.len() {
            if may_be(batch.packet(index)) {
                self.take(batch, index, Arrival { side, scope: Scope::Clear, under: None, now }, drops);
            }
        }
    }

    /// Takes the fragments that came out of tunnels.
    pub fn gather_opened(
        &mut self,
        batch: &mut Batch,
        sa_batches: &[SaBatch<'_>],
        inbound: &BySpi<Arc<Session>>,
        now: Time,
        drops: &DropCounters,
    ) {
        for SaBatch { packets, session, endpoint, .. } in sa_batches {
            for index in packets.clone() {
                if may_be(batch.packet(index)) {
                    let is_of_ike = session.selectors.is_some();
                    let scope = Scope::Opened(Tunnel { is_of_ike, peer: session.peer.id.number() });
                    // It waits for other fragments longer than the tables of the burst are there.
                    let shared = match session {
                        Held::Shared(session) => Some(session),
                        Held::Lent(session) => inbound.get(&session.sa.index),
                    };
                    let under = shared.map(|session| (session, *endpoint));
                    let arrival = Arrival { side: Side::Opened, scope, under, now };
                    self.take(batch, index, arrival, drops);
                }
            }
        }
    }

    /// Takes a packet out of the batch if it is a fragment.
    #[cold]
    fn take(&mut self, batch: &mut Batch, index: usize, arrival: Arrival<'_>, drops: &DropCounters) {
        let Ok(ip) = IpPacket::parse(batch.packet(index)) else { return };
        match Fragment::parse(&ip) {
            Ok(None) => return,
            Err(reason) => drops.count(reason, 1),
            Ok(Some(fragment)) => {
                let Arrival { side, scope, under, now } = arrival;
                let whole = self.shared.table(side).accept(scope, &fragment, ip.bytes(), now, drops);
                let under = under.map(|(session, endpoint)| (Arc::clone(session), endpoint));
                self.whole.extend(whole.map(|whole| (side, whole, under)));
            }
        }
        batch.discard(index);
    }

    /// Whether no packet was put together.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// Adds packets that were put together to an empty batch, as many as fit: all of one side, and each opened one with its SA.
    pub fn put(&mut self, batch: &mut Batch, opened: &mut Vec<SaBatch<'static>>) -> Option<Side> {
        let mut room = batch.free();
        let &(side, ..) = self.whole.first()?;
        let mut table = self.shared.table(side);
        let fits = |(of, whole, _): &(Side, Whole, Option<Under>)| {
            let needed = ROOM_EACH * Batch::footprint(EthernetHeader::LENGTH + whole.length());
            let is_first = room == batch.free();
            let fits = *of == side && (is_first || needed <= room);
            room = room.saturating_sub(needed);
            fits
        };
        let count = self.whole.iter().map(fits).take_while(|&fits| fits).count();
        for (_, whole, under) in self.whole.drain(..count) {
            let index = batch.len();
            // As a frame has come: headers of a tunnel take the room of its Ethernet header, too.
            let (header, length) = (EthernetHeader::LENGTH, whole.length());
            let frame = batch.append(header + length).expect("a batch has room for the longest packet");
            table.write(whole, &mut frame[header..]);
            batch.shrink(index, header, length);
            if let Some((session, endpoint)) = under {
                let session = session.into();
                opened.push(SaBatch { packets: index..index + 1, session, endpoint, ds_field: 0 });
            }
        }
        Some(side)
    }

    /// Drops packets whose time is over, if it was not looked for them lately.
    #[inline]
    pub fn look(&mut self, now: Time, drops: &DropCounters) {
        if now >= self.next_look {
            self.expire(now, drops);
        }
    }

    #[cold]
    fn expire(&mut self, now: Time, drops: &DropCounters) {
        self.next_look = now + LOOK;
        for side in [Side::Protected, Side::Unprotected, Side::Opened] {
            self.shared.table(side).expire(now, drops);
        }
    }

    /// Whether there are packets whose time will be over.
    pub fn holds_any(&self) -> bool {
        [Side::Protected, Side::Unprotected, Side::Opened]
            .iter()
            .any(|&side| !self.shared.table(side).is_empty())
    }
}

/// How a fragment has come.
struct Arrival<'a> {
    side: Side,
    scope: Scope,
    under: Option<(&'a Arc<Session>, Endpoint)>,
    now: Time,
}

impl Shared {
    fn table(&self, side: Side) -> MutexGuard<'_, Table> {
        self.0[side as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
