//! Inbound: what authentic packets change. Nothing before this stage has changed anything.

use super::check::counter;
use super::{Notice, Run, Stage};
use crossbeam_channel::Sender;
use packet::header::ip::IpPacket;
use packet::header::wireguard::{DATA_HEADER, DATA_OVERHEAD};
use packet::{Batch, DropCounters, DropReason};
use std::sync::Arc;
use tunnel::Time;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "accept",
    does: "moves the window, strips header and padding, follows a peer that moved",
    drops: &[DropReason::Replayed, DropReason::Malformed, DropReason::BadPadding],
};

/// Moves windows and endpoints; of each message the inner packet is left.
pub fn accept(batch: &mut Batch, now: Time, drops: &DropCounters, notices: &Sender<Notice>, runs: &[Run]) {
    for run in runs {
        let (authentic, bytes) = move_window(batch, drops, run);
        if authentic == 0 {
            continue;
        }
        let peer = &run.session().peer;
        peer.received.count(authentic, bytes);
        if peer.endpoint.load().as_deref() != Some(&run.endpoint) {
            peer.endpoint.store(Some(Arc::new(run.endpoint)));
        }
        let mut with_data = false;
        for index in run.packets.clone() {
            if batch.is_live(index) {
                with_data |= strip(batch, index, drops);
            }
        }
        tell(run, now, with_data, notices);
    }
}

/// Marks the packets as seen; tells how many and how many bytes were new.
fn move_window(batch: &mut Batch, drops: &DropCounters, run: &Run) -> (usize, usize) {
    let mut window = run.session().sa.window();
    let (mut authentic, mut bytes) = (0, 0);
    for index in run.packets.clone() {
        if !batch.is_live(index) {
            continue;
        }
        // Twice in one burst: the check before decryption could not see it.
        if let Err(reason) = window.accept(counter(batch.packet(index))) {
            drops.count(reason, 1);
            batch.discard(index);
            continue;
        }
        authentic += 1;
        bytes += batch.packet(index).len();
    }
    (authentic, bytes)
}

/// Leaves of a message the inner packet; false for a keepalive, which ends here.
#[inline]
fn strip(batch: &mut Batch, index: usize, drops: &DropCounters) -> bool {
    let message = batch.packet(index);
    let inner = &message[DATA_HEADER..message.len() - (DATA_OVERHEAD - DATA_HEADER)];
    if inner.is_empty() {
        batch.discard(index);
        return false;
    }
    if let Ok(ip) = IpPacket::parse(inner) {
        let length = ip.bytes().len();
        batch.shrink(index, DATA_HEADER, length);
    } else {
        let is_ip = matches!(inner[0] >> 4, 4 | 6);
        drops.count(if is_ip { DropReason::BadPadding } else { DropReason::Malformed }, 1);
        batch.discard(index);
    }
    true
}

/// Tells the protocol what it must know.
fn tell(run: &Run, now: Time, with_data: bool, notices: &Sender<Notice>) {
    let (sa, peer) = (&run.session().sa, &run.session().peer);
    // The lane outlives the workers.
    if sa.confirm() {
        let _ = notices.send(Notice::Confirmed(sa.index));
    }
    if peer.activity.received(now, with_data) {
        let _ = notices.send(Notice::Activity(peer.id));
    }
    if sa.wants_renewal(now) {
        let _ = notices.send(Notice::Renewal(peer.id));
    }
}
