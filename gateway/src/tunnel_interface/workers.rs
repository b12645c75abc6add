//! The workers of an interface, with the ports that they carry packets between.

use super::{Options, Removed, TunnelInterface};
use crate::datapath::egress::Egress;
use crate::datapath::punt::Punt;
use crate::datapath::worker::{Inbound, Outbound, Shared};
use port::fault::Fault;
use port::pcap::Captured;
use port::shaper::{Counted, Held};
use port::tun::{self, TunTransmit};
use port::{Receive, Transmit, Wake};
use std::sync::Arc;
use tokio::sync::mpsc;

impl TunnelInterface {
    /// The worker of a receiving thread from the inside to the outside, until the interface is gone.
    pub(super) fn outbound(
        &self,
        number: usize,
        shared: &Shared,
        options: &Options,
        events: mpsc::UnboundedSender<Removed>,
    ) -> impl FnOnce() + Send + use<> {
        let (mut inside, answers) =
            tun::halves_of(Arc::clone(&self.device), number, Arc::clone(&self.offloads));
        if self.shaper.as_ref().is_some_and(|shaper| shaper.is_slow()) {
            inside.take_singly();
        }
        let tally = &self.tallies.outbound[number];
        let mut inside: Box<dyn Receive> = Box::new(inside.counted(Arc::clone(tally)));
        if let Some(capture) = &options.capture_inside {
            inside = Box::new(Captured::new(inside, capture.clone()));
        }
        let mut outside = self.outside_counted(number, Arc::clone(tally));
        if let Some(capture) = &options.capture_outside {
            outside = Box::new(Captured::new(outside, capture.clone()));
        }
        if let Some(shaper) = &self.shaper {
            inside = Box::new(Held::new(inside, Arc::clone(shaper)));
            outside = Box::new(Counted::new(outside, Arc::clone(shaper)));
        }
        let egress = Egress::new(shared.clone(), outside, Arc::clone(&self.drops.outbound));
        let mut worker = Outbound::new(shared.clone(), inside, answers, egress, tun::BATCH_BYTES)
            .with_crypto_threads(Arc::clone(&self.crypto_threads), Arc::clone(&self.outbound_wakes[number]))
            .with_times(Arc::clone(&self.stages.outbound));
        let (stop, wake) = (Arc::clone(&self.stop), Arc::clone(&self.outbound_wakes[number]));
        let name = self.device.name().to_owned();
        move || {
            if let Err(error) = worker.serve(&stop, &wake) {
                // All its workers notice, and one reports it.
                if number == 0 {
                    tracing::info!("interface {name} is gone: {error}");
                    // When the daemon ends, the event has no receiver.
                    let _ = events.send(Removed(name));
                }
            }
        }
    }

    /// From the outside to the inside.
    pub(super) fn inbound(
        &self,
        shared: &Shared,
        (mut outside, inside): (Box<dyn Receive>, TunTransmit),
        batch_bytes: usize,
        wake: &Arc<Wake>,
        options: &Options,
        punt: Punt,
    ) -> impl FnOnce() + Send + use<> {
        let drops = Arc::clone(&self.drops.inbound);
        if let Some(capture) = &options.capture_outside {
            outside = Box::new(Captured::new(outside, capture.clone()));
        }
        if let Some(faults) = &options.faults {
            outside = Box::new(Fault::new(outside, *faults, Arc::clone(&drops)));
        }
        let mut inside: Box<dyn Transmit> = Box::new(inside);
        if let Some(capture) = &options.capture_inside {
            inside = Box::new(Captured::new(inside, capture.clone()));
        }
        let mut worker = Inbound::new(shared.clone(), outside, inside, punt, drops, batch_bytes)
            .with_crypto_threads(Arc::clone(&self.crypto_threads), Arc::clone(wake))
            .with_times(Arc::clone(&self.stages.inbound));
        if shared.tables.relayed_beside.get().is_some() {
            worker = worker.relaying(self.outside());
        }
        let (stop, wake) = (Arc::clone(&self.stop), Arc::clone(wake));
        let name = self.device.name().to_owned();
        move || {
            if let Err(error) = worker.serve(&stop, &wake) {
                tracing::error!("interface {name} receives nothing more from outside: {error}");
            }
        }
    }
}
