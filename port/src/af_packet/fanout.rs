//! A group of packet sockets that share the frames of an interface by flow (packet(7), PACKET_FANOUT).

#![expect(unsafe_code, reason = "socket options take their arguments by address")]

use crate::link::{check, set_option};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

// linux/if_packet.h
const PACKET_FANOUT_HASH: u32 = 0;
const PACKET_FANOUT_FLAG_UNIQUEID: u32 = 0x2000;
const PACKET_FANOUT_FLAG_IGNORE_OUTGOING: u32 = 0x4000;
/// Where the kind and the flags begin, behind the number of the group.
const KIND: u32 = 16;
const NUMBER: u32 = 0xffff;
/// Where the flags begin in what the kernel tells: it tells their higher byte.
const TOLD_FLAGS: u32 = 24;

/// A group, which ends with its last socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    number: u32,
    flags: u32,
}

/// Adds a bound socket to a group, or to a new one.
pub(super) fn join(socket: &OwnedFd, group: Option<Group>) -> Result<Group, Errno> {
    let add = |number: u32, flags: u32| {
        let value = number | (PACKET_FANOUT_HASH | flags) << KIND;
        set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, &value)
    };
    if let Some(group) = group {
        add(group.number, group.flags)?;
        return Ok(group);
    }
    // An older kernel does not know the second flag; what it sends itself is received there.
    add(0, PACKET_FANOUT_FLAG_UNIQUEID | PACKET_FANOUT_FLAG_IGNORE_OUTGOING)
        .or_else(|_| add(0, PACKET_FANOUT_FLAG_UNIQUEID))?;
    let told = told(socket)?;
    Ok(Group { number: told & NUMBER, flags: told >> TOLD_FLAGS << 8 })
}

/// The group of a socket: number, kind and flags.
fn told(socket: &OwnedFd) -> Result<u32, Errno> {
    let mut value = 0u32;
    let mut length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the call writes at most `length` bytes of the value, which lives until it returns.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_FANOUT,
            (&raw mut value).cast(),
            &raw mut length,
        )
    })?;
    Ok(value)
}
