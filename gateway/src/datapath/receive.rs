//! Both directions: receives packets from a port.

use super::Stage;
use super::pre_sa_queue::PreSaQueue;
use packet::{Batch, DropCounters, DropReason};
use port::Receive;
use std::io;

/// See [`Stage`].
pub const OUTBOUND: Stage = Stage {
    name: "receive",
    does: "takes a burst from the port; what came together is one train",
    drops: &[DropReason::BadOffload],
};

/// See [`Stage`].
pub const INBOUND: Stage = Stage {
    drops: &[
        DropReason::TooShort,
        DropReason::Truncated,
        DropReason::BadFraming,
        DropReason::TooManyConnections,
    ],
    ..OUTBOUND
};

/// Starts a batch with the packets that have arrived; returns whether there were any.
pub fn receive(port: &mut impl Receive, batch: &mut Batch, drops: &DropCounters) -> io::Result<bool> {
    batch.clear();
    Ok(port.receive(batch, drops)? != 0)
}

/// The same from outside, after packets released from the pre-SA queue.
pub fn inbound(
    port: &mut impl Receive,
    pre_sa: &PreSaQueue,
    batch: &mut Batch,
    drops: &DropCounters,
) -> io::Result<bool> {
    batch.clear();
    pre_sa.take(batch);
    port.receive(batch, drops)?;
    Ok(!batch.is_empty())
}
