//! The outside port: UDP sockets that receive and send many datagrams in one call.
//!
//! ```text
//! network ── datagrams of one sender, merged by GRO ──> one receive ──> packets of the batch, one train
//! network <── datagrams, cut by GSO ── one send <── equal packets of a train
//! ```

mod congestion;
pub(crate) mod control;
mod raw_sockets;
mod receive;
mod socket;
mod steering;
#[cfg(test)]
mod tests;
mod transmit;

pub use receive::{BATCH_BYTES, UdpReceive};
pub use socket::{BindError, MOST_FURTHER, SocketSlot, UdpBinding, UdpSockets};
pub(crate) use socket::{set_device, set_fwmark};
pub use steering::{Spread, Steering};
pub use transmit::UdpTransmit;

use rustix::io::Errno;

pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
