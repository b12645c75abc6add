//! The receive ring of a packet socket, TPACKET_V2: slots that the kernel fills in turn, each with its state.

#![expect(unsafe_code, reason = "the kernel writes into the mapped ring")]

use crate::link::{check, set_option};
use crate::tun::virtio::VirtioHeader;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{RecvFlags, recv};
use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a slot, usually: header and frame. Longer frames are truncated.
const SLOT: usize = 2048;
/// Room for the header of a slot, its address and gaps, and a VLAN tag.
const HEADER: usize = 128;
/// Bytes that the kernel allocates at once: the largest slot.
const BLOCK: usize = 128 * 1024;
/// Bytes of all slots, usually, and the least number of them.
const RING: usize = 8 << 20;
const LEAST_SLOTS: usize = 512;
/// linux/if_packet.h; libc has it as an enumeration.
const TPACKET_V2: i32 = 1;

/// The ring and its socket.
pub(super) struct Ring {
    socket: OwnedFd,
    start: *mut c_void,
    next: usize,
    /// Bytes of a slot, and slots: powers of two.
    slot: usize,
    slots: usize,
    /// Whether the kernel says of each frame what it has left to a network card.
    has_offloads: bool,
}

// SAFETY: the mapping belongs to the ring alone, and moves with it.
unsafe impl Send for Ring {}

/// A received frame in its slot.
pub(super) struct Frame<'a> {
    /// The frame without a VLAN tag that the kernel took off; its begin, if it did not fit the slot.
    pub bytes: &'a [u8],
    /// That tag.
    pub vlan: Option<[u8; 4]>,
    /// Whether its checksum is left to a network card.
    pub is_partial: bool,
    /// Whether it did not fit the slot.
    pub is_truncated: bool,
    /// Whether it is whole in the queue of the socket, and must be taken from there.
    pub has_copy: bool,
    /// What the kernel has left to a network card.
    pub offload: VirtioHeader,
}

impl Ring {
    /// Maps the ring of a packet socket that is not bound yet, for frames of so many bytes.
    pub(super) fn map(socket: OwnedFd, frame: usize) -> Result<Self, Errno> {
        let slot = (HEADER + frame).next_power_of_two().clamp(SLOT, BLOCK);
        let slots = (RING / slot).max(LEAST_SLOTS);
        set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VERSION, &TPACKET_V2)?;
        // Without them, super-packets are truncated. What does not fit a slot is queued whole.
        let option = |name| set_option(socket.as_fd(), libc::SOL_PACKET, name, &1i32).is_ok();
        let has_offloads = option(libc::PACKET_VNET_HDR) && option(libc::PACKET_COPY_THRESH);
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as libc::c_uint,
            tp_block_nr: (slot * slots / BLOCK) as libc::c_uint,
            tp_frame_size: slot as libc::c_uint,
            tp_frame_nr: slots as libc::c_uint,
        };
        set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping of the socket's ring, at an address that the kernel chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), slot * slots, access, flags, &socket, 0) }?;
        Ok(Self { socket, start, next: 0, slot, slots, has_offloads })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn slot(&self) -> *mut c_void {
        // SAFETY: `next` is less than the number of slots, so the slot is in the mapping.
        unsafe { self.start.byte_add(self.next * self.slot) }
    }

    /// The state at the start of a slot: who owns it.
    fn state(&self) -> &AtomicU32 {
        // SAFETY: a slot starts with its state, aligned to 16 bytes; both sides access it atomically.
        unsafe { AtomicU32::from_ptr(self.slot().cast()) }
    }

    /// The next frame, if one has arrived; it stays until [`give_back`](Self::give_back).
    #[inline]
    pub(super) fn next(&self) -> Option<Frame<'_>> {
        let state = self.state().load(Ordering::Acquire);
        if state & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot is ours until it is given back, and its header is written.
        let header = unsafe { &*self.slot().cast::<libc::tpacket2_hdr>() };
        let (offset, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        let is_truncated = header.tp_snaplen < header.tp_len || offset + length > self.slot || length < 14;
        let length = if length < 14 || offset + length > self.slot { 0 } else { length };
        // SAFETY: the bytes are in the slot, as was checked, which is ours until it is given back.
        let bytes = unsafe { std::slice::from_raw_parts(self.slot().byte_add(offset).cast(), length) };
        let has_tag = state & libc::TP_STATUS_VLAN_VALID != 0;
        let has_type = state & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let vlan = has_tag.then(|| {
            let kind = if has_type { header.tp_vlan_tpid } else { packet::header::ethernet::VLAN };
            let ([a, b], [c, d]) = (kind.to_be_bytes(), header.tp_vlan_tci.to_be_bytes());
            [a, b, c, d]
        });
        let is_partial = state & libc::TP_STATUS_CSUMNOTREADY != 0;
        let has_copy = self.has_offloads && state & libc::TP_STATUS_COPY != 0;
        Some(Frame { bytes, vlan, is_partial, is_truncated, has_copy, offload: self.offload(offset) })
    }

    /// What the kernel has written before the frame at this offset of the slot.
    #[inline]
    fn offload(&self, offset: usize) -> VirtioHeader {
        let is_there = size_of::<libc::tpacket2_hdr>() + VirtioHeader::LENGTH..=self.slot;
        if !self.has_offloads || !is_there.contains(&offset) {
            return VirtioHeader::default();
        }
        // SAFETY: the bytes are in the slot, as was checked, which is ours until it is given back; any bytes are a header.
        unsafe { self.slot().byte_add(offset - VirtioHeader::LENGTH).cast::<VirtioHeader>().read_unaligned() }
    }

    /// Gives the slot of the last frame back to the kernel.
    #[inline]
    pub(super) fn give_back(&mut self) {
        self.state().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) & (self.slots - 1);
    }
}

impl Ring {
    /// Gives all frames that have arrived back unread.
    pub(super) fn empty(&mut self) {
        for _ in 0..self.slots {
            let Some(frame) = self.next() else { return };
            if frame.has_copy {
                let _ = recv(&self.socket, &mut [0; 1], RecvFlags::DONTWAIT);
            }
            self.give_back();
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is the ring's own, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.start, self.slot * self.slots) };
    }
}

/// Frames that the kernel dropped since the last call, because the ring was full.
pub(super) fn dropped(socket: &OwnedFd) -> Result<u64, Errno> {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: the call writes at most `length` bytes of the statistics, which live until it returns.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut length,
        )
    })?;
    Ok(u64::from(statistics.tp_drops))
}
