//! Inbound: the effects of authentic packets. No earlier stage changes any state.

use super::check::counter;
use super::tables::Kind;
use super::{DataPathEvent, SaBatch, Stage, transport};
use crossbeam_channel::Sender;
use packet::header::ip::IpPacket;
use packet::header::wireguard::{DATA_HEADER, DATA_OVERHEAD};
use packet::{Batch, DropCounters, DropReason};
use std::sync::Arc;
use tunnel::Time;
use tunnel::esp::{self, Mode, open::Inner};
use tunnel::sa::Protection;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "accept",
    does: "moves the window, strips header and padding, follows a peer that moved",
    drops: &[
        DropReason::Replayed,
        DropReason::Malformed,
        DropReason::BadPadding,
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
        let (authentic, bytes) = match &sa.protection {
            Protection::WireGuard(_) => {
                move_window(batch, drops, sa_batch, |batch, index| counter(batch.packet(index)))
            }
            Protection::Esp(_) => move_window(batch, drops, sa_batch, |_, index| sequences[index]),
        };
        if authentic == 0 {
            continue;
        }
        peer.received.count(authentic, bytes);
        sa.spend(authentic, bytes);
        if peer.endpoint.load().as_deref() != Some(&sa_batch.endpoint) {
            peer.note_elsewhere(sa_batch.endpoint);
        }
        let with_data = match &sa.protection {
            Protection::WireGuard(_) => strip_all(batch, sa_batch, |batch, index| strip(batch, index, drops)),
            Protection::Esp(esp) if esp.mode() == Mode::Transport => {
                transport::rebuild(esp, batch, sa_batch, drops)
            }
            Protection::Esp(esp) => {
                strip_all(batch, sa_batch, |batch, index| strip_esp(esp, batch, index, drops))
            }
        };
        tell(sa_batch, now, with_data, datapath_events);
    }
}

/// Marks the packets as received; returns the number of new packets and their bytes.
#[inline]
fn move_window(
    batch: &mut Batch,
    drops: &DropCounters,
    sa_batch: &SaBatch,
    sequence: impl Fn(&Batch, usize) -> u64,
) -> (usize, usize) {
    let mut window = sa_batch.session().sa.window();
    let (mut authentic, mut bytes) = (0, 0);
    for index in sa_batch.packets.clone() {
        if !batch.is_live(index) {
            continue;
        }
        // A duplicate within one burst: the check before decryption could not see it.
        if let Err(reason) = window.accept(sequence(batch, index)) {
            drops.count(reason, 1);
            batch.discard(index);
            continue;
        }
        authentic += 1;
        bytes += batch.packet(index).len();
    }
    (authentic, bytes)
}

/// Strips all packets; returns whether there was one other than a keepalive.
#[inline]
fn strip_all(
    batch: &mut Batch,
    sa_batch: &SaBatch,
    mut strip: impl FnMut(&mut Batch, usize) -> bool,
) -> bool {
    let mut with_data = false;
    for index in sa_batch.packets.clone() {
        if batch.is_live(index) {
            with_data |= strip(batch, index);
        }
    }
    with_data
}

/// Strips a message to its inner packet; returns false for a keepalive, which ends here.
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

/// Strips an ESP packet to its inner packet; returns false if there is none.
#[inline]
fn strip_esp(esp: &esp::Protection, batch: &mut Batch, index: usize, drops: &DropCounters) -> bool {
    let stripped = esp.strip(batch, index).and_then(|inner| match inner {
        Inner::Dummy => Err(DropReason::Dummy),
        Inner::Payload { .. } => cut(batch, index),
    });
    if let Err(reason) = stripped {
        drops.count(reason, 1);
        batch.discard(index);
    }
    stripped.is_ok()
}

/// Cuts off bytes after the inner packet (RFC 4303 section 2.7).
#[inline]
fn cut(batch: &mut Batch, index: usize) -> Result<(), DropReason> {
    let length = IpPacket::parse(batch.packet(index)).map_err(|_| DropReason::Malformed)?.bytes().len();
    batch.shrink(index, 0, length);
    Ok(())
}

/// Sends the data path events of an SA batch.
fn tell(sa_batch: &SaBatch, now: Time, with_data: bool, datapath_events: &Sender<DataPathEvent>) {
    let (sa, peer) = (&sa_batch.session().sa, &sa_batch.session().peer);
    // The handshake thread outlives the workers.
    if sa.confirm() {
        peer.confirmed(sa.index);
        let _ = datapath_events.send(DataPathEvent::Confirmed(sa.index));
    }
    if let Kind::WireGuard(activity) = &peer.kind
        && activity.received(now, with_data)
    {
        let _ = datapath_events.send(DataPathEvent::Activity(peer.id));
    }
    if sa.wants_renewal(now) {
        let _ = datapath_events.send(DataPathEvent::Renewal(peer.id));
    }
}
