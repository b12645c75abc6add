//! Inbound: the effects of authentic packets. No earlier stage changes any state.

use super::tables::Session;
use super::{DataPathEvent, SaBatch, Stage};
use crossbeam_channel::Sender;
use packet::{Batch, DropCounters, DropReason};
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
    sa_batches: &mut [SaBatch<'_>],
    sequences: &[u64],
) {
    for sa_batch in sa_batches {
        let SaBatch { packets, session, endpoint, ds_field } = sa_batch;
        let (sa, peer, drops) = (&session.sa, &session.peer, session.peer.drops(drops));
        let (authentic, bytes) =
            sa.protection.accept(batch, packets.clone(), &mut sa.moving_window(), sequences, drops);
        if authentic == 0 {
            continue;
        }
        peer.received.count(authentic as u64, bytes as u64);
        sa.spend(authentic, bytes);
        if !peer.endpoint.is(endpoint) && peer.note_elsewhere(*endpoint, sa, now) {
            // The control thread outlives the workers.
            let _ = datapath_events.send(DataPathEvent::Moved(peer.id));
        }
        let outer = Outer { endpoint, ds_field: *ds_field, transport: session.transport };
        let with_data = sa.protection.strip(batch, packets, &outer, drops);
        if with_data {
            peer.state.count_data(bytes);
        }
        tell(session, now, with_data, datapath_events);
    }
}

/// Sends the data path events of an SA batch.
fn tell(session: &Session, now: Time, with_data: bool, datapath_events: &Sender<DataPathEvent>) {
    let Session { sa, peer, .. } = session;
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
