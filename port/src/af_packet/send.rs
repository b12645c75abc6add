//! Sends the frames of a batch with few system calls.

#![expect(unsafe_code, reason = "sendmmsg takes buffers by address")]

use crate::link::{check, last_error};
use arrayvec::ArrayVec;
use packet::Batch;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};

/// Frames sent in one call.
const MESSAGES: usize = 64;

/// Binds a sending socket to an interface; with no protocol it receives nothing.
pub(super) fn connect(socket: &OwnedFd, index: u32) -> Result<(), Errno> {
    // SAFETY: plain data, for which all zeros is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_ifindex = index as libc::c_int;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the call reads the address, which lives until it returns.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })
}

/// Sends all live frames. From the first that the kernel refuses on, they are discarded: the error, and their number.
pub(super) fn send(socket: &OwnedFd, batch: &mut Batch) -> Result<(), (Errno, usize)> {
    let mut next = 0;
    while next < batch.len() {
        let indices: ArrayVec<usize, MESSAGES> = batch.live(next..batch.len()).take(MESSAGES).collect();
        let Some(&last) = indices.last() else { break };
        let sent = match send_some(socket, batch, &indices) {
            Err(Errno::INTR) => continue,
            Err(error) => return Err((error, discard_from(batch, indices[0]))),
            Ok(sent) => sent,
        };
        next = if sent == indices.len() { last + 1 } else { indices[sent] };
    }
    Ok(())
}

fn discard_from(batch: &mut Batch, first: usize) -> usize {
    let mut count = 0;
    for index in first..batch.len() {
        count += usize::from(batch.is_live(index));
        batch.discard(index);
    }
    count
}

/// One `sendmmsg(2)`; the number of frames sent, at least one.
fn send_some(socket: &OwnedFd, batch: &Batch, indices: &[usize]) -> Result<usize, Errno> {
    // SAFETY: both are plain data, for which all zeros is a valid value.
    let (mut headers, mut pieces): ([libc::mmsghdr; MESSAGES], [libc::iovec; MESSAGES]) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    for (place, &index) in indices.iter().enumerate() {
        let bytes = batch.packet(index);
        pieces[place] = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        headers[place].msg_hdr.msg_iov = &raw mut pieces[place];
        headers[place].msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: the first headers point to one piece each, and each piece to bytes of the batch with their true size; all of them
    // are borrowed until the call returns, and the kernel only reads them.
    let sent = unsafe {
        let count = indices.len() as libc::c_uint;
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
    };
    if sent < 0 { Err(last_error()) } else { Ok(sent as usize) }
}
