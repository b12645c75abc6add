//! System calls on sockets of the family `AF_ALG` (linux/if_alg.h), and the kernel's asynchronous I/O.

#![expect(
    unsafe_code,
    reason = "addresses, options and control messages of AF_ALG, and AIO: no safe crate has them"
)]

use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Size of a request's control messages: direction, IV, and length of the AAD.
const CONTROL: usize = 88;

/// rustix has no constant for it on Linux.
const FAMILY: AddressFamily = AddressFamily::from_raw(libc::AF_ALG as u16);

/// The type of an algorithm in `AF_ALG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Aead,
    Cipher,
    Hash,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Aead => "aead",
            Self::Cipher => "skcipher",
            Self::Hash => "hash",
        }
    }
}

/// A socket bound to an algorithm or driver name; `NOENT` if the kernel has none of this name.
pub(super) fn bound(kind: Kind, algorithm: &str) -> Result<OwnedFd> {
    let socket = rustix::net::socket_with(FAMILY, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut address = libc::sockaddr_alg {
        salg_family: libc::AF_ALG as libc::sa_family_t,
        salg_type: [0; 14],
        salg_feat: 0,
        salg_mask: 0,
        salg_name: [0; 64],
    };
    // Both names must be zero-terminated.
    if algorithm.len() >= address.salg_name.len() {
        return Err(Errno::NOENT);
    }
    address.salg_type[..kind.name().len()].copy_from_slice(kind.name().as_bytes());
    address.salg_name[..algorithm.len()].copy_from_slice(algorithm.as_bytes());
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is live and of this length.
    done(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

/// Sets the key of a bound socket.
pub(super) fn set_key(socket: &OwnedFd, key: &[u8]) -> Result<()> {
    let length = key.len() as libc::socklen_t;
    // SAFETY: the key is live and of this length.
    done(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_ALG, libc::ALG_SET_KEY, key.as_ptr().cast(), length)
    })
}

/// Sets the tag length of a bound socket, for all its operations.
pub(super) fn set_tag_length(socket: &OwnedFd, bytes: usize) -> Result<()> {
    let (level, option) = (libc::SOL_ALG, libc::ALG_SET_AEAD_AUTHSIZE);
    // SAFETY: for this option the length is the value, and no memory is read.
    done(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::null(), bytes as libc::socklen_t)
    })
}

/// An operation socket with the key of `bound`, for one request at a time.
pub(super) fn operation(bound: &OwnedFd) -> Result<OwnedFd> {
    rustix::net::accept_with(bound, SocketFlags::CLOEXEC)
}

/// The parameters of a request, sent in control messages.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) encrypts: bool,
    /// Only the first `iv_length` bytes are used.
    pub(super) iv: [u8; 16],
    pub(super) iv_length: usize,
    /// Length of the AAD at the start of the data.
    pub(super) associated: usize,
}

/// Sends a request to an operation socket; the kernel copies it. A hash request has no head and is computed at once.
pub(super) fn send(socket: &OwnedFd, head: Option<Head>, parts: &[IoSlice<'_>]) -> Result<()> {
    #[repr(align(8))]
    struct Control([u8; CONTROL]);
    let mut control = Control([0; CONTROL]);
    // SAFETY: an all-zero message header is valid: it describes no message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len() as _;
    if let Some(head) = head {
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = fill(&mut control.0, head) as _;
    }
    let expected: usize = parts.iter().map(|part| part.len()).sum();
    loop {
        // SAFETY: `IoSlice` has the layout of iovec, and everything that the header points to is live and only read.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
        match done(sent as i64) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok(()) if sent as usize == expected => return Ok(()),
            // The kernel took only as much as fits the socket's buffer: the data is longer than any packet.
            Ok(()) => return Err(Errno::MSGSIZE),
        }
    }
}

/// Writes the control messages for `head` and returns their length.
fn fill(control: &mut [u8; CONTROL], head: Head) -> usize {
    let mut at = 0;
    let mut put = |option: libc::c_int, value: &[u8]| {
        let header = size_of::<libc::cmsghdr>();
        let length = header + value.len();
        let (size, words) = control[at..at + header].split_at_mut(size_of::<usize>());
        size.copy_from_slice(&length.to_ne_bytes());
        words[..4].copy_from_slice(&libc::SOL_ALG.to_ne_bytes());
        words[4..].copy_from_slice(&option.to_ne_bytes());
        control[at + header..at + length].copy_from_slice(value);
        // The kernel aligns to `long`, whatever the C library declares.
        at += length.next_multiple_of(size_of::<usize>());
    };
    let operation = if head.encrypts { libc::ALG_OP_ENCRYPT } else { libc::ALG_OP_DECRYPT };
    put(libc::ALG_SET_OP, &operation.to_ne_bytes());
    let mut iv = [0; 20];
    iv[..4].copy_from_slice(&(head.iv_length as u32).to_ne_bytes());
    iv[4..].copy_from_slice(&head.iv);
    put(libc::ALG_SET_IV, &iv[..4 + head.iv_length]);
    if head.associated > 0 {
        put(libc::ALG_SET_AEAD_ASSOCLEN, &(head.associated as u32).to_ne_bytes());
    }
    at
}

const _: () = assert!(size_of::<libc::cmsghdr>() == size_of::<usize>() + 8);

/// Receives the answer to a request; the kernel computes it now. `BADMSG` if the request is not authentic.
pub(super) fn receive(socket: &OwnedFd, answer: &mut [u8]) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::read(socket, &mut *answer))
}

/// A context of the kernel's asynchronous I/O (linux/aio_abi.h).
pub(super) struct Queue(libc::c_ulong);

/// `struct iocb`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Block {
    data: u64,
    key_and_flags: [u32; 2],
    command: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    block: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<Block>() == 64 && size_of::<Event>() == 32);

/// `IOCB_CMD_PREAD`.
const READ: u16 = 0;

impl Queue {
    /// Maximum number of requests in a queue.
    pub(super) const LENGTH: usize = 32;

    pub(super) fn new() -> Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the call writes one number, which must be zero before.
        done(unsafe { libc::syscall(libc::SYS_io_setup, Self::LENGTH, &raw mut context) })?;
        Ok(Self(context))
    }

    /// As [`receive`], for many sockets: all requests are submitted before the first answer is awaited. The result is
    /// `None` for requests that did not fit the queue; their answers can still be received.
    pub(super) fn receive(&self, requests: &mut [(BorrowedFd<'_>, &mut [u8])]) -> Vec<Option<Result<usize>>> {
        let mut blocks = [Block::default(); Self::LENGTH];
        for (i, ((socket, answer), block)) in requests.iter_mut().zip(&mut blocks).enumerate() {
            *block = Block {
                data: i as u64,
                command: READ,
                descriptor: socket.as_raw_fd() as u32,
                buffer: answer.as_mut_ptr() as u64,
                length: answer.len() as u64,
                ..Block::default()
            };
        }
        let pointers: Vec<*mut Block> = blocks.iter_mut().map(std::ptr::from_mut).collect();
        let mut results = vec![None; requests.len()];
        // SAFETY: every block names a buffer that is live and exclusively ours until `wait` has seen its event.
        let taken = unsafe {
            libc::syscall(libc::SYS_io_submit, self.0, requests.len().min(Self::LENGTH), pointers.as_ptr())
        };
        self.wait(taken.max(0) as usize, &mut results);
        results
    }

    /// Waits until `taken` requests have completed: until then the kernel may write to their buffers.
    fn wait(&self, taken: usize, results: &mut [Option<Result<usize>>]) {
        let mut ended = 0;
        let mut events = [Event::default(); Self::LENGTH];
        while ended < taken {
            let most = taken - ended;
            let forever = std::ptr::null::<libc::timespec>();
            // SAFETY: there is room for the requested number of events.
            let got = unsafe {
                libc::syscall(libc::SYS_io_getevents, self.0, most, most, events.as_mut_ptr(), forever)
            };
            if got < 0 {
                assert!(errno() == libc::EINTR, "io_getevents accepts a queue from io_setup");
                continue;
            }
            for event in &events[..got as usize] {
                results[event.data as usize] = Some(match event.result {
                    error @ ..0 => Err(Errno::from_raw_os_error(-error as i32)),
                    length => Ok(length as usize),
                });
            }
            ended += got as usize;
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the context was made by `new`, and no request is pending.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

fn done(result: impl Into<i64>) -> Result<()> {
    if result.into() < 0 { Err(Errno::from_raw_os_error(errno())) } else { Ok(()) }
}

fn errno() -> RawFd {
    std::io::Error::last_os_error().raw_os_error().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_have_the_layout_of_cmsghdr() {
        let mut control = [0; CONTROL];
        let length = fill(&mut control, Head { encrypts: true, iv: [7; 16], iv_length: 16, associated: 13 });
        assert_eq!(length, CONTROL, "24 for the direction, 40 for the IV, 24 for the length");
        let mut message: Vec<(i32, i32, Vec<u8>)> = Vec::new();
        let mut at = 0;
        while at < length {
            let word = |from: usize| i32::from_ne_bytes(control[from..from + 4].try_into().expect("four"));
            let size = usize::from_ne_bytes(control[at..at + 8].try_into().expect("eight"));
            message.push((word(at + 8), word(at + 12), control[at + 16..at + size].to_vec()));
            at += size.next_multiple_of(8);
        }
        let iv = [&16u32.to_ne_bytes()[..], &[7; 16]].concat();
        assert_eq!(message[0], (libc::SOL_ALG, libc::ALG_SET_OP, 1u32.to_ne_bytes().to_vec()));
        assert_eq!(message[1], (libc::SOL_ALG, libc::ALG_SET_IV, iv));
        assert_eq!(message[2], (libc::SOL_ALG, libc::ALG_SET_AEAD_ASSOCLEN, 13u32.to_ne_bytes().to_vec()));
        let length = fill(&mut control, Head { encrypts: false, iv: [7; 16], iv_length: 8, associated: 0 });
        assert_eq!(length, 24 + 32);
    }

    #[test]
    fn a_name_that_is_too_long_is_not_found() {
        if let Err(error) = bound(Kind::Aead, &"a".repeat(64)) {
            assert!(matches!(error, Errno::NOENT | Errno::AFNOSUPPORT));
        }
    }
}
