//! Datagrams in.
#![expect(unsafe_code, reason = "recvmmsg takes buffers by address")]

use super::control::{Control, Name, endpoint};
use super::last_error;
use super::socket::{SocketSlot, UdpSockets};
use crate::{Offloads, Receive, Wake};
use packet::Batch;
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

/// What one receive can bring: GRO merges no more than an IP packet can hold.
const LARGEST: usize = 65_536;
/// Receives in one call, when they bring little each.
const MESSAGES: usize = 16;
/// From this many packets in one receive on, it is a call of its own: more would leave the cache before their turn.
const BULK: usize = 16;
/// A batch holds what one call can bring.
pub const BATCH_BYTES: usize = MESSAGES * LARGEST;

/// Receives datagrams on both sockets of an interface.
pub struct UdpReceive {
    slot: SocketSlot,
    offloads: Arc<Offloads>,
    /// The sockets of the last wait; they may have been exchanged since.
    sockets: Option<Arc<UdpSockets>>,
    /// Which of them may have something: IPv4, IPv6.
    ready: [bool; 2],
    /// Receives to ask for in the next call.
    messages: usize,
}

impl UdpReceive {
    /// Receives on whatever sockets are in `slot`; whoever exchanges them rings the bell.
    pub fn new(slot: SocketSlot, offloads: Arc<Offloads>) -> Self {
        Self { slot, offloads, sockets: None, ready: [false; 2], messages: MESSAGES }
    }

    /// One call on one socket; tells whether it may have more.
    fn receive_from(&mut self, fd: BorrowedFd<'_>, batch: &mut Batch) -> Result<bool, Errno> {
        let before = batch.len();
        let mut areas: [Range<usize>; MESSAGES] = std::array::from_fn(|_| 0..0);
        let mut asked = 0;
        while asked < self.messages {
            let Some(area) = batch.take(LARGEST) else { break };
            areas[asked] = area;
            asked += 1;
        }
        let (mut names, mut controls) = ([Name::new(); MESSAGES], [Control::new(); MESSAGES]);
        let lengths = receive_messages(fd, batch, &areas[..asked], &mut names, &mut controls)?;
        let received = lengths.iter().flatten().count();
        for (index, &(length, control)) in lengths.iter().flatten().enumerate() {
            let said = controls[index].read(control);
            let first = batch.len();
            let area = areas[index].start..areas[index].start + length;
            batch.segment(area, said.segment.unwrap_or(length));
            batch.close_train(first, endpoint(&names[index], &said), said.ds_field);
            if batch.len() - first > 1 {
                self.offloads.udp_gro.count(batch.len() - first);
            }
        }
        let packets = batch.len() - before;
        self.messages = if packets >= BULK * received.max(1) { 1 } else { (self.messages * 2).min(MESSAGES) };
        Ok(received == asked)
    }
}

impl Receive for UdpReceive {
    fn receive(&mut self, batch: &mut Batch) -> io::Result<usize> {
        let before = batch.len();
        let Some(sockets) = self.sockets.clone() else { return Ok(0) };
        for (version, fd) in [&sockets.v4, &sockets.v6].into_iter().enumerate() {
            if !self.ready[version] || batch.len() != before {
                continue;
            }
            self.ready[version] = match fd.as_ref().map(|fd| self.receive_from(fd.as_fd(), batch)) {
                Some(Ok(more)) => more,
                // An error that an earlier send brought back, such as a refused connection: it concerns no packet here.
                Some(Err(error)) => error != Errno::AGAIN,
                None => false,
            };
        }
        Ok(batch.len() - before)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        if self.ready == [false; 2] {
            self.sockets = self.slot.load_full();
            let sockets = self.sockets.as_deref();
            let v4 = sockets.and_then(|sockets| sockets.v4.as_ref()).map(AsFd::as_fd);
            let v6 = sockets.and_then(|sockets| sockets.v6.as_ref()).map(AsFd::as_fd);
            self.ready = wake.wait([v4, v6])?;
        }
        Ok(())
    }
}

/// The lengths of a datagram and of its control messages.
type Lengths = [Option<(usize, usize)>; MESSAGES];

/// `recvmmsg(2)` into the given areas of the batch.
fn receive_messages(
    fd: BorrowedFd<'_>,
    batch: &mut Batch,
    areas: &[Range<usize>],
    names: &mut [Name; MESSAGES],
    controls: &mut [Control; MESSAGES],
) -> Result<Lengths, Errno> {
    // SAFETY: both are plain data, for which all zeros is a value.
    let (mut headers, mut pieces): ([libc::mmsghdr; MESSAGES], [libc::iovec; MESSAGES]) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    for (index, area) in areas.iter().enumerate() {
        let bytes = batch.area_mut(area.clone());
        pieces[index] = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let header = &mut headers[index].msg_hdr;
        header.msg_iov = &raw mut pieces[index];
        header.msg_iovlen = 1;
        header.msg_name = names[index].as_mut_ptr().cast();
        header.msg_namelen = Name::capacity() as libc::socklen_t;
        header.msg_control = controls[index].as_mut_ptr().cast();
        header.msg_controllen = Control::capacity() as _;
    }
    // SAFETY: the first `areas.len()` headers point to areas of the batch, which do not overlap, to names and to
    // control buffers with their true sizes; all of them are borrowed until the call returns.
    let received = unsafe {
        let count = areas.len() as libc::c_uint;
        libc::recvmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    if received < 0 {
        return Err(last_error());
    }
    Ok(std::array::from_fn(|index| {
        let header = &headers[index];
        let whole = header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
        let length = if whole { header.msg_len as usize } else { 0 };
        // The type of msg_controllen differs between C libraries.
        #[allow(clippy::unnecessary_cast)]
        let control = header.msg_hdr.msg_controllen as usize;
        (index < received as usize).then_some((length, control))
    }))
}
