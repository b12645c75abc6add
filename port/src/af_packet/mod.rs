//! Ethernet frames of an interface by packet sockets (packet(7)): works on every interface of every kernel.
//!
//! Receiving: the kernel writes frames into a ring that is mapped, one slot a frame (TPACKET_V2). TPACKET_V3 hands over blocks, and
//! a block that is not full only after a tick of the kernel: a single frame would wait for up to 8 ms. Super-packets are cut: see `large`.
//! Sending: one `sendmmsg(2)` for up to 64 frames, past the queueing discipline.

mod fanout;
mod large;
mod ring;
mod send;

use crate::link::{Link, LinkError, bind, make_promiscuous, packet_socket, set_option};
use crate::tun::virtio::VirtioHeader;
use crate::{Receive, Transmit, Wake};
use large::Large;
use packet::{Batch, DropCounters, DropReason};
use ring::Ring;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The receiving half.
pub struct PacketReceive {
    ring: Ring,
    large: Large,
    /// Frames whose checksum the kernel had left to the network card, and that were completed.
    completed: u64,
    /// Frames that the kernel dropped because the ring was full, so far.
    full: u64,
}

/// The sending half.
pub struct PacketTransmit {
    socket: OwnedFd,
    refusal: Option<Errno>,
    refused: u64,
}

/// Opens an interface; needs CAP_NET_RAW.
pub fn open(name: &str) -> Result<(PacketReceive, PacketTransmit), LinkError> {
    let link = Link::find(name)?;
    Ok((open_receive(&link, 0)?, open_transmit(name)?))
}

/// Opens so many receiving halves of an interface, for frames of at least so many bytes: each frame comes to one of them, and all frames of a
/// flow to the same one.
pub fn open_queues(name: &str, count: usize, frame: usize) -> Result<Vec<PacketReceive>, LinkError> {
    let link = Link::find(name)?;
    let mut queues = Vec::new();
    let mut group = None;
    for _ in 0..count {
        let mut queue = open_receive(&link, frame)?;
        if count > 1 {
            let joined = fanout::join(queue.ring.socket(), group);
            group = Some(joined.map_err(|error| link.step("PACKET_FANOUT", error))?);
            // Before, it had copies of the frames of the others.
            queue.ring.empty();
        }
        queues.push(queue);
    }
    Ok(queues)
}

/// Opens a sending half of an interface, of which there may be several; needs CAP_NET_RAW.
pub fn open_transmit(name: &str) -> Result<PacketTransmit, LinkError> {
    let link = Link::find(name)?;
    let socket = open_socket(&link)?;
    // Without it frames wait in a queueing discipline that is not the device's. Some drivers know no way past it.
    let _ = set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1i32);
    send::connect(&socket, link.index).map_err(|error| link.step("bind", error))?;
    Ok(PacketTransmit { socket, refusal: None, refused: 0 })
}

fn open_receive(link: &Link, frame: usize) -> Result<PacketReceive, LinkError> {
    let socket = open_socket(link)?;
    // Before bind(2), so that no frame of ours is received.
    set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)
        .map_err(|error| link.step("PACKET_IGNORE_OUTGOING", error))?;
    // Super-packets that wait. Without the right, as many as the machine allows.
    let queue = |name| set_option(socket.as_fd(), libc::SOL_SOCKET, name, &large::QUEUE);
    let _ = queue(libc::SO_RCVBUFFORCE).or_else(|_| queue(libc::SO_RCVBUF));
    let ring = Ring::map(socket, frame).map_err(|error| link.step("receive ring", error))?;
    bind(ring.socket(), link.index).map_err(|error| link.step("bind", error))?;
    make_promiscuous(ring.socket().as_fd(), link.index)
        .map_err(|error| link.step("promiscuous mode", error))?;
    Ok(PacketReceive { ring, large: Large::default(), completed: 0, full: 0 })
}

fn open_socket(link: &Link) -> Result<OwnedFd, LinkError> {
    packet_socket().map_err(|error| match error {
        Errno::PERM | Errno::ACCESS => LinkError::Denied {
            interface: link.name.clone(),
            what: "packet sockets",
            capabilities: "CAP_NET_RAW",
        },
        error => link.step("packet socket", error),
    })
}

impl Receive for PacketReceive {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        let first = batch.len();
        while self.large.write(batch) {
            let Some(frame) = self.ring.next() else { break };
            if frame.is_truncated || frame.offload.gso_type != VirtioHeader::GSO_NONE {
                if let Err(reason) = self.large.take(&frame, self.ring.socket()) {
                    drops.count(reason, 1);
                }
                self.ring.give_back();
                continue;
            }
            let tag = frame.vlan.map_or(0, |_| 4);
            let (index, partial) = (batch.len(), frame.is_partial);
            let Some(packet) = batch.append(frame.bytes.len() + tag) else { break };
            match frame.vlan {
                None => packet.copy_from_slice(frame.bytes),
                // The kernel takes the tag off; it is put back behind the addresses.
                Some(vlan) => {
                    packet[..12].copy_from_slice(&frame.bytes[..12]);
                    packet[12..16].copy_from_slice(&vlan);
                    packet[16..].copy_from_slice(&frame.bytes[12..]);
                }
            }
            self.ring.give_back();
            if partial && crate::partial_checksum::complete(batch.packet_mut(index)) {
                self.completed += 1;
            }
        }
        batch.close_train(first, None, 0);
        Ok(batch.len() - first)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        wake.wait([Some(self.ring.socket().as_fd())]).map(drop)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.socket().as_fd())
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.full += ring::dropped(self.ring.socket()).unwrap_or_default();
        vec![("rx_ring_full", self.full), ("checksums_completed", self.completed)]
    }
}

impl Transmit for PacketTransmit {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        match send::send(&self.socket, batch) {
            Ok(()) => {}
            Err((error, refused)) => {
                self.refusal = Some(error);
                self.refused += refused as u64;
                drops.count(DropReason::SendFailed, refused);
            }
        }
    }

    fn take_refusal(&mut self) -> Option<Errno> {
        self.refusal.take()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![("tx_refused", self.refused)]
    }
}
