//! Outbound: says where each SA batch goes, and with which outer header.

use super::{Assigned, Stage};
use packet::{Batch, Train};

/// See [`Stage`].
pub const STAGE: Stage =
    Stage { name: "wrap", does: "addresses each SA batch: endpoint, local address, DS field", drops: &[] };

/// Makes each SA batch the train that the outside port sends.
pub fn wrap(batch: &mut Batch, assigned: &[Assigned<'_>]) {
    batch.set_trains(assigned.iter().map(|Assigned { fitted: sa_batch, .. }| Train {
        packets: sa_batch.packets.clone(),
        endpoint: Some(sa_batch.endpoint.unpack()),
        ds_field: sa_batch.ds_field,
    }));
}
