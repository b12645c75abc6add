//! The memory of frames (UMEM) that AF_XDP sockets share with the kernel, in chunks of one frame each.

#![expect(unsafe_code, reason = "the kernel reads and writes the same memory")]

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::NonNull;

/// Bytes of a chunk, usually and at most: the kernel takes none that is longer than a page.
const CHUNK: usize = 2048;
const LARGEST_CHUNK: usize = 4096;
/// The kernel leaves this room in front of a received frame.
const HEADROOM: usize = 256;
/// The longest frame of a usual chunk, and of the largest one.
pub(super) const USUAL: usize = CHUNK - HEADROOM;
pub(super) const LONGEST: usize = LARGEST_CHUNK - HEADROOM;

/// The memory. Each half of each queue has chunks of its own.
pub(super) struct Umem {
    start: NonNull<u8>,
    chunks: usize,
    /// Bytes of a chunk: a power of two.
    chunk: usize,
}

// SAFETY: all access is by chunks that belong to one half at a time; see `read` and `write`.
unsafe impl Send for Umem {}
// SAFETY: as above.
unsafe impl Sync for Umem {}

impl Umem {
    /// Memory of so many chunks, each for a frame of so many bytes.
    pub(super) fn new(chunks: usize, frame: usize) -> Result<Self, Errno> {
        let chunk = if frame <= USUAL { CHUNK } else { LARGEST_CHUNK };
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), chunks * chunk, access, flags) }?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, chunks, chunk })
    }

    /// Its address and its length.
    pub(super) fn place(&self) -> (u64, u64) {
        (self.start.as_ptr() as u64, self.length() as u64)
    }

    /// How many chunks it has.
    pub(super) fn chunks(&self) -> usize {
        self.chunks
    }

    /// Bytes of a chunk.
    pub(super) fn chunk(&self) -> usize {
        self.chunk
    }

    /// The longest frame that is received.
    #[inline]
    pub(super) fn longest(&self) -> usize {
        self.chunk - HEADROOM
    }

    fn length(&self) -> usize {
        self.chunks * self.chunk
    }

    /// Where the chunk begins in which an address is.
    #[inline]
    pub(super) fn chunk_of(&self, address: u64) -> u64 {
        address & !(self.chunk as u64 - 1)
    }

    /// The bytes of a received frame.
    ///
    /// # Safety
    /// The frame's descriptor came from the receive ring, and its chunk is not yet in the fill ring again.
    pub(super) unsafe fn read(&self, address: u64, length: u32) -> &[u8] {
        let (start, length) = (address as usize, length as usize);
        assert!(start + length <= self.length(), "the kernel names frames in the memory");
        // SAFETY: in the mapping, as was checked; the kernel does not write to it, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(start), length) }
    }

    /// Writes a frame into a chunk.
    ///
    /// # Safety
    /// The chunk belongs to the caller: it is not in the transmit ring, nor on its way back through the completion ring.
    pub(super) unsafe fn write(&self, address: u64, frame: &[u8]) {
        let start = address as usize;
        assert!(frame.len() <= self.chunk && start + self.chunk <= self.length(), "a frame fits its chunk");
        // SAFETY: in the mapping, as was checked; nothing else uses the chunk, as the caller promises.
        unsafe {
            std::ptr::copy_nonoverlapping(frame.as_ptr(), self.start.as_ptr().add(start), frame.len());
        }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: the mapping is our own; the halves hold it until their sockets are closed.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length()) };
    }
}
