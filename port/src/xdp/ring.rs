//! The rings that an AF_XDP socket shares with the kernel: one side produces, the other consumes.

#![expect(unsafe_code, reason = "the kernel reads and writes the same memory")]

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::XdpRingOffset;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// A mapped ring of `T`.
struct Mapping<T> {
    start: *mut c_void,
    length: usize,
    producer: usize,
    consumer: usize,
    entries: usize,
    mask: u32,
    items: PhantomData<T>,
}

// SAFETY: the mapping belongs to the ring alone, and moves with it.
unsafe impl<T: Send> Send for Mapping<T> {}

impl<T: Copy> Mapping<T> {
    fn map(fd: BorrowedFd<'_>, page: u64, offset: &XdpRingOffset, size: u32) -> Result<Self, Errno> {
        let length = offset.desc as usize + size as usize * size_of::<T>();
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping of the socket's ring, at an address that the kernel chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), length, access, flags, fd, page) }?;
        Ok(Self {
            start,
            length,
            producer: offset.producer as usize,
            consumer: offset.consumer as usize,
            entries: offset.desc as usize,
            mask: size - 1,
            items: PhantomData,
        })
    }

    fn index(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the kernel has said where its index is: in the mapping, aligned, and accessed atomically by both sides.
        unsafe { AtomicU32::from_ptr(self.start.byte_add(offset).cast()) }
    }

    fn entry(&self, position: u32) -> *mut T {
        let place = self.entries + (position & self.mask) as usize * size_of::<T>();
        // SAFETY: the entry is in the mapping: the position is taken modulo the size.
        unsafe { self.start.byte_add(place).cast() }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is the ring's own, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

/// A ring that we fill: of chunks to receive into, or of frames to send.
pub(super) struct Producer<T> {
    ring: Mapping<T>,
    /// What was put, submitted or not.
    put: u32,
    /// What the kernel had taken when it was last looked at.
    taken: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        page: u64,
        offset: &XdpRingOffset,
        size: u32,
    ) -> Result<Self, Errno> {
        Ok(Self { ring: Mapping::map(fd, page, offset, size)?, put: 0, taken: 0 })
    }

    /// Puts an item, which the kernel sees after [`submit`](Self::submit); false if the ring is full.
    #[inline]
    pub(super) fn put(&mut self, item: T) -> bool {
        if self.put.wrapping_sub(self.taken) > self.ring.mask {
            self.taken = self.ring.index(self.ring.consumer).load(Ordering::Acquire);
            if self.put.wrapping_sub(self.taken) > self.ring.mask {
                return false;
            }
        }
        // SAFETY: the kernel does not read entries from the producer's index on, and this is not yet submitted.
        unsafe { self.ring.entry(self.put).write(item) };
        self.put = self.put.wrapping_add(1);
        true
    }

    /// Shows the kernel what was put.
    #[inline]
    pub(super) fn submit(&self) {
        self.ring.index(self.ring.producer).store(self.put, Ordering::Release);
    }

    /// Whether the kernel has taken all that was put.
    #[inline]
    pub(super) fn is_drained(&self) -> bool {
        self.ring.index(self.ring.consumer).load(Ordering::Acquire) == self.put
    }
}

/// A ring that the kernel fills: of received frames, or of chunks that were sent.
pub(super) struct Consumer<T> {
    ring: Mapping<T>,
    taken: u32,
    /// What the kernel had put when it was last looked at.
    put: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        page: u64,
        offset: &XdpRingOffset,
        size: u32,
    ) -> Result<Self, Errno> {
        Ok(Self { ring: Mapping::map(fd, page, offset, size)?, taken: 0, put: 0 })
    }

    /// The next item, which stays until [`advance`](Self::advance).
    #[inline]
    pub(super) fn peek(&mut self) -> Option<T> {
        if self.taken == self.put {
            self.put = self.ring.index(self.ring.producer).load(Ordering::Acquire);
            if self.taken == self.put {
                return None;
            }
        }
        // SAFETY: the kernel has written the entry before it moved its index, and does not touch it before ours passes it.
        Some(unsafe { self.ring.entry(self.taken).read() })
    }

    /// Takes the item that [`peek`](Self::peek) returned.
    #[inline]
    pub(super) fn advance(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// Gives the places of the taken items back to the kernel.
    #[inline]
    pub(super) fn release(&self) {
        self.ring.index(self.ring.consumer).store(self.taken, Ordering::Release);
    }
}
