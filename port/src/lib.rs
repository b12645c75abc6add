//! Ports: input and output of packets and of Ethernet frames.
//!
//! A port has two halves, each owned by one worker: [`Receive`] appends packets to a batch, [`Transmit`] sends the
//! packets of a batch. A half may wrap another: [`fault`] injects faults, [`pcap`] captures packets.
//!
//! Ports use every offload of the kernel that handles many packets in one call; see [`offload`].

pub mod af_packet;
pub mod checksum;
pub mod clock;
pub mod dpdk;
pub mod fault;
pub mod frame_files;
pub mod heap;
pub mod link;
pub mod memory;
mod moderation;
pub mod offload;
pub mod pace;
pub mod partial_checksum;
pub mod pcap;
pub mod probe;
pub mod raw;
pub mod schedule;
pub mod shaper;
pub mod socket_options;
pub mod tally;
pub mod tap;
pub mod tcp;
pub mod tun;
pub mod udp;
pub mod wake;
pub mod xdp;

pub use offload::{Offload, Offloads};
pub use pace::Pace;
pub use socket_options::{MtuDiscovery, SocketOptions};
pub use tally::Tally;
pub use wake::Wake;

use packet::{Batch, DropCounters, Endpoint};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;

/// The receiving half of a port.
pub trait Receive: Send {
    /// Appends the packets that have arrived to `batch`, as many as fit, without waiting; returns their number.
    ///
    /// Packets that arrived together become one train. Packets that cannot be appended are counted as dropped. An
    /// error means that the port is gone.
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize>;

    /// Waits until a packet has arrived, or until `wake` is notified.
    fn wait(&mut self, wake: &Wake) -> io::Result<()>;

    /// What becomes readable when a packet arrives, for a worker that waits for several ports; none if the port must be polled.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether no packet will arrive any more: the end of a file.
    fn has_ended(&self) -> bool {
        false
    }

    /// What the kernel counts of this port and no drop reason has, by name, since it was opened.
    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// The sending half of a port.
pub trait Transmit: Send {
    /// Sends all live packets of `batch`, and counts those that could not be sent.
    ///
    /// An outside port sends by train and discards the packets that it could not send. It clears the local address of
    /// an endpoint if the kernel refuses to send from that address.
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters);

    /// Whether packets to this endpoint would be dropped now, as those before them were: then they need not be sealed.
    fn is_full(&self, _: &Endpoint) -> bool {
        false
    }

    /// The latest error of a refused packet since the last call, if any.
    fn take_refusal(&mut self) -> Option<Errno> {
        None
    }

    /// As [`Receive::counters`].
    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

impl Receive for Box<dyn Receive> {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        (**self).receive(batch, drops)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        (**self).wait(wake)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }

    fn has_ended(&self) -> bool {
        (**self).has_ended()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        (**self).counters()
    }
}

impl Transmit for Box<dyn Transmit> {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        (**self).transmit(batch, drops);
    }

    fn is_full(&self, endpoint: &Endpoint) -> bool {
        (**self).is_full(endpoint)
    }

    fn take_refusal(&mut self) -> Option<Errno> {
        (**self).take_refusal()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        (**self).counters()
    }
}
