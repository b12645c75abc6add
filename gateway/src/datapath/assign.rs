//! Outbound: gives each packet its sequence number, its padding and its header.

use super::{Assigned, Fitted, Stage};
use packet::header::wireguard::{DATA, DATA_HEADER, DataHeader, TAG, padded};
use packet::{Batch, DropCounters, DropReason};
use tunnel::Time;
use zerocopy::IntoBytes;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "assign",
    does: "takes sequence numbers for a whole run in one step; pads to 16 bytes, writes the header",
    drops: &[DropReason::CounterExhausted, DropReason::KeyExpired],
};

/// Takes the sequence numbers and lays out the messages: header, padded packet, room for the tag.
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
        let sequences = match sa.assign(packets.len(), now) {
            Ok(sequences) => sequences,
            Err(reason) => {
                drops.count(reason, packets.len());
                continue;
            }
        };
        let first_sequence = sequences.start;
        for (index, sequence) in packets.clone().zip(sequences) {
            let length = batch.packet(index).len();
            let padding = padded(length, mtu) - length;
            batch.grow(index, DATA_HEADER, padding + TAG);
            let message = batch.packet_mut(index);
            let header =
                DataHeader { kind: DATA.into(), receiver: sa.receiver.into(), counter: sequence.into() };
            message[..DATA_HEADER].copy_from_slice(header.as_bytes());
            message[DATA_HEADER + length..][..padding].fill(0);
        }
        assigned.push(Assigned { packets, peer, sa, endpoint, ds_field, is_data, first_sequence });
    }
}
