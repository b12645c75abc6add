//! Inbound: the effects of authentic packets. No earlier stage changes any state.

use super::{DataPathEvent, SaBatch, Stage};
use crossbeam_channel::Sender;
use packet::{Batch, DropCounters, DropReason};
use std::sync::Arc;
use tunnel::Time;
use tunnel::esp::Outer;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "accept",
    does: "moves the window, strips header and padding, follows a peer that moved",
    drops: &[
        DropReason::Replayed,
        DropReason::Malformed,
        DropReason::BadPadding,
        DropReason::Compressed,
        DropReason::BadNextHeader,
        DropReason::Dummy,
        DropReason::Truncated,
    ],
};

/// Updates replay windows and endpoints; strips each message to its inner packet.
pub fn accept(
    batch: &mut Batch,
    now: Time,
    drops: &DropCounters,
    datapath_events: &Sender<DataPathEvent>,
    sa_batches: &mut [SaBatch],
    sequences: &[u64],
) {
    for sa_batch in sa_batches {
        let session = Arc::clone(sa_batch.session());
        let (sa, peer) = (&session.sa, &session.peer);
        let packets = sa_batch.packets.clone();
        let (authentic, bytes) = sa.protection.accept(batch, packets, &mut sa.window(), sequences, drops);
        if authentic == 0 {
            continue;
        }
        peer.received.count(authentic, bytes);
        sa.spend(authentic, bytes);
        if peer.endpoint.load().as_deref() != Some(&sa_batch.endpoint)
            && peer.note_elsewhere(sa_batch.endpoint)
        {
            // The control thread outlives the workers.
            let _ = datapath_events.send(DataPathEvent::Moved(peer.id));
        }
        let (endpoint, ds_field, transport) = (sa_batch.endpoint, sa_batch.ds_field, session.transport);
        let outer = Outer { endpoint, ds_field, transport };
        let with_data = sa.protection.strip(batch, &mut sa_batch.packets, &outer, drops);
        if with_data {
            peer.state.count_data(bytes);
        }
        tell(sa_batch, now, with_data, datapath_events);
    }
}

/// Sends the data path events of an SA batch.
fn tell(sa_batch: &SaBatch, now: Time, with_data: bool, datapath_events: &Sender<DataPathEvent>) {
    let (sa, peer) = (&sa_batch.session().sa, &sa_batch.session().peer);
    // The handshake thread outlives the workers.
    if sa.confirm() {
        peer.confirmed(sa.index);
        let _ = datapath_events.send(DataPathEvent::Confirmed(sa.index));
    }
    if peer.state.note_received(now, with_data) {
        let _ = datapath_events.send(DataPathEvent::Activity(peer.id));
    }
    if sa.wants_renewal(now) {
        let _ = datapath_events.send(DataPathEvent::Renewal(peer.id));
    }
    if sa.protection.take_exit() {
        let _ = datapath_events.send(DataPathEvent::Exited(peer.id));
    }
}
