//! Packets that were put together from fragments of a burst: they take their way in bursts of their own.

use super::Worker;
use crate::secgw::inbound;
use crate::secgw::lists::Lists;
use crate::secgw::reassembly::table::Limits;
use crate::secgw::reassembly::{Reassembly, Side};
use crate::secgw::tables::SecgwTables;
use std::sync::atomic::Ordering;
use tunnel::Time;

impl Worker {
    /// The same workers, which put fragments together if there are limits for it. Those of one packet may come to several workers.
    #[must_use]
    pub fn reassembling(workers: Vec<Self>, limits: Option<Limits>) -> Vec<Self> {
        let Some(limits) = limits else { return workers };
        let reassemblies = Reassembly::several(limits, workers.len());
        let both = workers.into_iter().zip(reassemblies);
        both.map(|(worker, reassembly)| Self { reassembly: Some(reassembly), ..worker }).collect()
    }

    /// Carries all that was put together in a burst of the port at this place.
    #[inline]
    pub(super) fn bursts_of_whole<'t>(
        &mut self,
        tables: &'t SecgwTables,
        lists: &mut Lists<'t>,
        place: Option<usize>,
        now: Time,
    ) {
        while self.reassembly.as_ref().is_some_and(|reassembly| !reassembly.is_empty()) {
            self.burst_of_whole(tables, lists, place, now);
        }
    }

    #[cold]
    fn burst_of_whole<'t>(
        &mut self,
        tables: &'t SecgwTables,
        lists: &mut Lists<'t>,
        place: Option<usize>,
        now: Time,
    ) {
        let Some(reassembly) = &mut self.reassembly else { return };
        self.batch.clear();
        self.headers.clear();
        self.leaving.clear();
        lists.assigned.clear();
        let mut opened = Vec::new();
        let side = reassembly.put(&mut self.batch, &mut opened);
        self.counters.reassembled.fetch_add(self.batch.len() as u64, Ordering::Relaxed);
        match side {
            Some(Side::Protected) => self.outbound(tables, lists, now),
            Some(Side::Unprotected) => self.inbound(tables, lists, now),
            Some(Side::Opened) => {
                let (verdicts, leaving) = (&mut self.verdicts_in, &mut self.leaving);
                inbound::admit(&mut self.batch, tables, verdicts, &self.drops, &opened, leaving);
            }
            None => return,
        }
        self.cutter.cuts_all = true;
        self.depart(tables, lists, place, now);
    }
}
