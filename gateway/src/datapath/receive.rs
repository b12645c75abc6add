//! Both directions: takes what a port has.

use super::Stage;
use packet::Batch;
use port::Receive;
use std::io;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "receive",
    does: "takes a burst from the port; what came together is one train",
    drops: &[],
};

/// Begins a new batch with what has arrived; tells whether that was anything.
pub fn receive(port: &mut impl Receive, batch: &mut Batch) -> io::Result<bool> {
    batch.clear();
    Ok(port.receive(batch)? != 0)
}
