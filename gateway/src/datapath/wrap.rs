//! Outbound: says where each run goes, and with which outer header.

use super::{Assigned, Stage};
use packet::{Batch, Train};

/// See [`Stage`].
pub const STAGE: Stage =
    Stage { name: "wrap", does: "addresses each run: endpoint, local address, DS field", drops: &[] };

/// Makes each run the train that the outside port sends.
pub fn wrap(batch: &mut Batch, assigned: &[Assigned]) {
    batch.set_trains(assigned.iter().map(|run| Train {
        packets: run.packets.clone(),
        endpoint: Some(run.endpoint),
        ds_field: run.ds_field,
    }));
}
