//! Outbound: assigns sequence numbers, and adds padding and header to each packet.

use super::{Assigned, Fitted, Stage, transport};
use packet::header::esp::{NEXT_IPV4, NEXT_IPV6};
use packet::header::wireguard::{DATA, DATA_HEADER, DataHeader, TAG, padded};
use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;
use tunnel::esp::{self, Mode};
use tunnel::sa::Protection;
use tunnel::{OutboundSa, Time};
use zerocopy::IntoBytes;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "assign",
    does: "takes sequence numbers for a whole SA batch in one step; writes padding and header",
    drops: &[DropReason::CounterExhausted, DropReason::KeyExpired],
};

/// Assigns sequence numbers and lays out the messages: header, padded packet, space for the tag.
pub fn assign(
    batch: &mut Batch,
    mtu: usize,
    now: Time,
    drops: &DropCounters,
    fitted: &mut Vec<Fitted>,
    assigned: &mut Vec<Assigned>,
) {
    assigned.clear();
    for Fitted { packets, peer, sa, endpoint, ds_field, is_data } in fitted.drain(..) {
        let sequences = match take(batch, &sa, packets.clone(), now) {
            Ok(sequences) => sequences,
            Err(reason) => {
                drops.count(reason, packets.len());
                continue;
            }
        };
        let first_sequence = sequences.start;
        match &sa.protection {
            Protection::WireGuard(_) => {
                lay_out(batch, packets.clone(), sa.receiver, first_sequence, mtu);
            }
            Protection::Esp(esp) => {
                lay_out_esp(esp, batch, packets.clone(), sa.receiver, first_sequence);
            }
        }
        assigned.push(Assigned { packets, peer, sa, endpoint, ds_field, is_data, first_sequence });
    }
}

/// Counts the packets and bytes of an SA batch against the limits of its SA.
#[inline]
fn take(batch: &Batch, sa: &OutboundSa, packets: Range<usize>, now: Time) -> Result<Range<u64>, DropReason> {
    if let (Protection::Esp(esp), true) = (&sa.protection, sa.volume().is_some()) {
        let layout = esp.layout();
        let bytes = packets.clone().map(|index| layout.sealed(batch.packet(index).len())).sum();
        sa.spend(packets.len(), bytes)?;
    }
    sa.assign(packets.len(), now)
}

/// Lays out WireGuard's messages.
fn lay_out(batch: &mut Batch, packets: Range<usize>, receiver: u32, first_sequence: u64, mtu: usize) {
    for (index, sequence) in packets.zip(first_sequence..) {
        let length = batch.packet(index).len();
        let padding = padded(length, mtu) - length;
        batch.grow(index, DATA_HEADER, padding + TAG);
        let message = batch.packet_mut(index);
        let header = DataHeader { kind: DATA.into(), receiver: receiver.into(), counter: sequence.into() };
        message[..DATA_HEADER].copy_from_slice(header.as_bytes());
        message[DATA_HEADER + length..][..padding].fill(0);
    }
}

/// Lays out ESP packets.
fn lay_out_esp(
    esp: &esp::Protection,
    batch: &mut Batch,
    packets: Range<usize>,
    spi: u32,
    first_sequence: u64,
) {
    match esp.mode() {
        Mode::Tunnel => {
            for (index, sequence) in packets.zip(first_sequence..) {
                let is_v6 = batch.packet(index).first().is_some_and(|byte| byte >> 4 == 6);
                let next_header = if is_v6 { NEXT_IPV6 } else { NEXT_IPV4 };
                esp.lay_out(batch, index, spi, sequence, next_header);
            }
        }
        Mode::Transport => {
            for (index, sequence) in packets.zip(first_sequence..) {
                let next_header = transport::unwrap(batch, index);
                esp.lay_out(batch, index, spi, sequence, next_header);
            }
        }
    }
}
