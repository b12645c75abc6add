//! The memory of frames that an AF_XDP socket shares with the kernel, in chunks of one frame each.

#![expect(unsafe_code, reason = "the kernel reads and writes the same memory")]

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr::NonNull;

/// Bytes of a chunk.
pub(super) const CHUNK: usize = 2048;
/// The kernel leaves this room in front of a received frame.
const HEADROOM: usize = 256;
/// The longest frame that is received.
pub(super) const LONGEST: usize = CHUNK - HEADROOM;

/// The memory. The chunks of the lower half are those of the receiving half of the port, the others of the sending half.
pub(super) struct Umem {
    start: NonNull<u8>,
    chunks: usize,
}

// SAFETY: all access is by chunks that belong to one half at a time; see `read` and `write`.
unsafe impl Send for Umem {}
// SAFETY: as above.
unsafe impl Sync for Umem {}

impl Umem {
    /// Memory of so many chunks.
    pub(super) fn new(chunks: usize) -> Result<Self, Errno> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), chunks * CHUNK, access, flags) }?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, chunks })
    }

    /// Its address and its length.
    pub(super) fn place(&self) -> (u64, u64) {
        (self.start.as_ptr() as u64, (self.chunks * CHUNK) as u64)
    }

    /// The bytes of a received frame.
    ///
    /// # Safety
    /// The frame's descriptor came from the receive ring, and its chunk is not yet in the fill ring again.
    pub(super) unsafe fn read(&self, address: u64, length: u32) -> &[u8] {
        let (start, length) = (address as usize, length as usize);
        assert!(start + length <= self.chunks * CHUNK, "the kernel names frames in the memory");
        // SAFETY: in the mapping, as was checked; the kernel does not write to it, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(start), length) }
    }

    /// Writes a frame into a chunk.
    ///
    /// # Safety
    /// The chunk belongs to the caller: it is not in the transmit ring, nor on its way back through the completion ring.
    pub(super) unsafe fn write(&self, address: u64, frame: &[u8]) {
        let start = address as usize;
        assert!(frame.len() <= CHUNK && start + CHUNK <= self.chunks * CHUNK, "a frame fits its chunk");
        // SAFETY: in the mapping, as was checked; nothing else uses the chunk, as the caller promises.
        unsafe {
            std::ptr::copy_nonoverlapping(frame.as_ptr(), self.start.as_ptr().add(start), frame.len());
        }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: the mapping is our own; the halves hold it until their sockets are closed.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.chunks * CHUNK) };
    }
}
