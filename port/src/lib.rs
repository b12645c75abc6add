//! Packets in and out.
//!
//! A port is split in two halves, each owned by one worker: [`Receive`] appends packets to a batch, [`Transmit`] sends
//! those of a batch. A half may wrap another: [`fault`] spoils what passes, [`pcap`] writes it to a file.
//!
//! Everything the kernel can do for many packets in one call, it is asked to do; see [`offload`].

pub mod fault;
pub mod heap;
pub mod memory;
pub mod offload;
pub mod pcap;
pub mod raw;
pub mod schedule;
pub mod tcp;
pub mod tun;
pub mod udp;
pub mod wake;

pub use offload::{Offload, Offloads};
pub use wake::Wake;

use packet::{Batch, DropCounters};
use rustix::io::Errno;
use std::io;

/// The receiving half of a port.
pub trait Receive: Send {
    /// Appends to `batch` what has arrived, as much as fits and without waiting; tells how many packets.
    ///
    /// Packets that came together are closed into one train. What arrived and cannot be appended is counted. An error
    /// means that the port is gone.
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize>;

    /// Waits until something has arrived, or until `wake` is rung.
    fn wait(&mut self, wake: &Wake) -> io::Result<()>;
}

/// The sending half of a port.
pub trait Transmit: Send {
    /// Sends every packet of `batch` that was not dropped, and counts those that could not be sent.
    ///
    /// An outside port sends by train, discards the packets that it could not send, and takes the local address out of an endpoint that no longer works with it.
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters);

    /// Why the kernel refused a packet that was to be sent since this was last asked: the latest error, if there was one.
    fn take_refusal(&mut self) -> Option<Errno> {
        None
    }
}

impl Receive for Box<dyn Receive> {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        (**self).receive(batch, drops)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        (**self).wait(wake)
    }
}

impl Transmit for Box<dyn Transmit> {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        (**self).transmit(batch, drops);
    }

    fn take_refusal(&mut self) -> Option<Errno> {
        (**self).take_refusal()
    }
}
