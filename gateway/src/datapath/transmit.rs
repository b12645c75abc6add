//! Both directions: hands the batch to the port.

use super::{Assigned, DataPathEvent, Stage};
use crossbeam_channel::Sender;
use packet::{Batch, DropCounters, DropReason};
use port::Transmit;
use std::sync::atomic::Ordering;
use tunnel::Time;

/// See [`Stage`].
pub const OUTBOUND: Stage = Stage {
    name: "transmit",
    does: "one send for the equal packets of a train; notes what the timers must know",
    drops: &[DropReason::PeerCongested, DropReason::TcpQueueFull, DropReason::SendFailed],
};

/// See [`Stage`].
pub const INBOUND: Stage = Stage {
    name: "transmit",
    does: "merges neighbours of a flow, one write for each super-packet",
    drops: &[DropReason::InsideRefused],
};

/// Outbound: sends the trains that [`wrap`](super::wrap) made, one for each SA batch.
pub fn outbound(
    port: &mut impl Transmit,
    batch: &mut Batch,
    now: Time,
    drops: &DropCounters,
    datapath_events: &Sender<DataPathEvent>,
    assigned: &mut Vec<Assigned<'_>>,
) {
    // Before they are sent: the other worker may see the answer first.
    for Assigned { fitted: sa_batch, .. } in &*assigned {
        if sa_batch.peer.state.note_sent(now, sa_batch.is_data) {
            // The handshake thread outlives the workers.
            let _ = datapath_events.send(DataPathEvent::Activity(sa_batch.peer.id));
        }
    }
    port.transmit(batch, drops);
    for (train, Assigned { fitted: sa_batch, .. }) in assigned.drain(..).enumerate() {
        let peer = &sa_batch.peer;
        // The port discards what it could not send.
        let sizes = batch.live(sa_batch.packets.clone()).map(|index| batch.packet(index).len());
        let (packets, bytes) = sizes.fold((0, 0), |(packets, bytes), size| (packets + 1, bytes + size));
        peer.sent.count(packets as u64, bytes as u64);
        if sa_batch.is_data {
            peer.state.count_data(bytes);
        }
        if packets < sa_batch.packets.len() {
            peer.unsent.fetch_add((sa_batch.packets.len() - packets) as u64, Ordering::Relaxed);
        }
        if sa_batch.sa.wants_renewal(now) {
            let _ = datapath_events.send(DataPathEvent::Renewal(peer.id));
        }
        if sa_batch.endpoint.local().is_some()
            && batch.trains()[train].endpoint.is_some_and(|now| now.local.is_none())
        {
            peer.forget_source_of(&sa_batch.endpoint.unpack());
        }
    }
}

/// Inbound: sends what is left of the batch to the inside.
pub fn inbound(port: &mut impl Transmit, batch: &mut Batch, drops: &DropCounters) {
    port.transmit(batch, drops);
}
