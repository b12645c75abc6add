//! Ethernet frames of a TAP interface: what the kernel sends by the interface is received, and the reverse. One call for each frame.

use crate::tun::TunError;
use crate::tun::device::open_tap;
use crate::{Receive, Transmit, Wake};
use packet::batch::{HEADROOM, TAILROOM};
use packet::{Batch, DropCounters, DropReason};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The longest frame that is received, unless another is asked for.
const LONGEST: usize = 2048;

/// The receiving half.
pub struct TapReceive {
    fd: Arc<OwnedFd>,
    longest: usize,
}

/// The sending half.
pub struct TapTransmit {
    fd: Arc<OwnedFd>,
    refusal: Option<Errno>,
    refused: u64,
}

/// Opens the TAP interface `name`, which is made if there is none, and removed with the last half unless it is persistent.
pub fn open(name: &str) -> Result<(TapReceive, TapTransmit), TunError> {
    open_queue(name, false, LONGEST)
}

/// The same with so many queues, among which the kernel distributes flows, for frames of at least so many bytes.
pub fn open_queues(
    name: &str,
    count: usize,
    frame: usize,
) -> Result<Vec<(TapReceive, TapTransmit)>, TunError> {
    // A frame that fills the room may have been longer.
    (0..count).map(|_| open_queue(name, count > 1, LONGEST.max(frame + 1))).collect()
}

fn open_queue(name: &str, has_several: bool, longest: usize) -> Result<(TapReceive, TapTransmit), TunError> {
    let fd = Arc::new(open_tap(name, has_several)?);
    let receive = TapReceive { fd: Arc::clone(&fd), longest };
    Ok((receive, TapTransmit { fd, refusal: None, refused: 0 }))
}

/// Sets the interface up, for a port whose program is the only one that knows of it; with an Ethernet address and an MTU if they are given.
pub fn set_up(name: &str, address: Option<[u8; 6]>, mtu: Option<u16>) -> Result<(), TunError> {
    address
        .map_or(Ok(()), |address| crate::link::set_hardware_address(name, address))
        .and_then(|()| mtu.map_or(Ok(()), |mtu| crate::link::set_mtu(name, mtu)))
        .and_then(|()| crate::link::set_up(name))
        .map_err(|error| TunError::Other(name.to_owned(), error))
}

impl TapTransmit {
    /// A half for another thread: the kernel takes frames of one queue from any number of them.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { fd: Arc::clone(&self.fd), refusal: None, refused: 0 }
    }
}

impl Receive for TapReceive {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        let (first, longest) = (batch.len(), self.longest);
        // Frames have room around them for tunnel headers and tags.
        const AROUND: usize = HEADROOM + TAILROOM;
        while batch.free() >= Batch::footprint(longest) {
            let area = batch.take(AROUND + longest).expect("there is room");
            let start = area.start + HEADROOM;
            let read = rustix::io::read(&*self.fd, batch.area_mut(start..start + longest));
            let used = read.as_ref().map_or(0, |length| AROUND + length);
            batch.give_back(&area, used);
            match read {
                // What fills the area may have been longer.
                Ok(length) if length == longest => drops.count(DropReason::Truncated, 1),
                Ok(length) => batch.declare(start..start + length),
                Err(Errno::INTR) => {}
                // A TAP interface that is down has no frames.
                Err(Errno::AGAIN | Errno::IO) => break,
                Err(error) => return Err(error.into()),
            }
        }
        batch.close_train(first, None, 0);
        Ok(batch.len() - first)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        wake.wait([Some(self.fd.as_fd())]).map(drop)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

impl Transmit for TapTransmit {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        let mut refused = 0;
        for index in 0..batch.len() {
            if !batch.is_live(index) {
                continue;
            }
            let outcome = loop {
                match rustix::io::write(&*self.fd, batch.packet(index)) {
                    Err(Errno::INTR) => {}
                    outcome => break outcome,
                }
            };
            if let Err(error) = outcome {
                self.refusal = Some(error);
                refused += 1;
                batch.discard(index);
            }
        }
        self.refused += refused as u64;
        drops.count(DropReason::SendFailed, refused);
    }

    fn take_refusal(&mut self) -> Option<Errno> {
        self.refusal.take()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        vec![("tx_refused", self.refused)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_and_written_one_by_one_and_refused_ones_are_counted() {
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::NONBLOCK,
            None,
        )
        .expect("there are descriptors left");
        let fd = Arc::new(ours);
        let mut receive = TapReceive { fd: Arc::clone(&fd), longest: LONGEST };
        let mut transmit = TapTransmit { fd, refusal: None, refused: 0 };
        for length in [60, 1514, LONGEST] {
            rustix::io::write(&theirs, &vec![length as u8; length]).expect("it is taken");
        }
        let (mut batch, drops) = (Batch::new(64 * 1024), DropCounters::default());
        assert_eq!(receive.receive(&mut batch, &drops).expect("it is open"), 2);
        assert_eq!((batch.packet(0), batch.packet(1).len()), (&[60; 60][..], 1514));
        assert_eq!((drops.read(DropReason::Truncated), batch.trains().len()), (1, 1));
        batch.grow(1, HEADROOM, TAILROOM);
        batch.packet_mut(1)[..HEADROOM].fill(7);
        assert_eq!(batch.packet(0), [60; 60], "a frame that grows leaves the one before it as it was");
        transmit.transmit(&mut batch, &drops);
        let mut frame = [0; 100];
        assert_eq!(rustix::io::read(&theirs, &mut frame), Ok(60));
        drop(theirs);
        transmit.transmit(&mut batch, &drops);
        assert_eq!(drops.read(DropReason::SendFailed), 2);
        assert_eq!(
            (transmit.counters(), transmit.take_refusal()),
            (vec![("tx_refused", 2)], Some(Errno::PIPE))
        );
    }
}
