//! Ethernet frames of an interface by AF_XDP: past most of the kernel, in rings that are shared with it.
//!
//! ```text
//! receive:  fill ring → kernel → receive ring → batch → fill ring
//! transmit: batch → free chunk → transmit ring → kernel → completion ring → free chunk
//! ```
//!
//! One socket for each queue of the interface, with memory (UMEM) of its own, or a part of one memory for all queues
//! (`XDP_SHARED_UMEM`). Its two halves share the socket only: each has its own chunks and two rings. Frames are copied between batch and memory, and by the kernel (XDP_COPY); frames in place would need a
//! network card that can (XDP_ZEROCOPY).

mod deferral;
mod program;
mod ring;
mod umem;

pub use deferral::{Deferral, put_back_deferrals};
pub use program::{Mode, QUEUES, Take};

use crate::link::{Channels, Link, LinkError, make_promiscuous, packet_socket, set_option};
use crate::{Receive, Transmit, Wake};
use packet::{Batch, DropCounters, DropReason};
use program::Program;
use ring::{Consumer, Producer};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with, sockopt};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use umem::Umem;

/// Frames in each ring, and chunks of each half.
const RING: u32 = 2048;
/// Chunks of a queue: the first are those of its receiving half.
const CHUNKS: u32 = 2 * RING;
/// `XDP_MAX_TX_SKB_BUDGET`, since Linux 6.17: frames sent by one call.
const MAX_TX_SKB_BUDGET: libc::c_int = 9;
/// A queue whose socket was just closed is busy for some tens of milliseconds: its release is deferred.
const BUSY: Duration = Duration::from_secs(1);
/// The longest frame that a port can be opened for.
pub const LONGEST: usize = umem::LONGEST;
/// Calls without progress after which a full link keeps its frames until the next transmit.
const STUCK: u32 = 64;

/// How to open an interface.
#[derive(Clone, Copy, Debug)]
pub struct XdpOptions {
    /// Which frames are taken from the kernel.
    pub take: Take,
    /// The kinds of program, in the order in which they are tried.
    pub modes: &'static [Mode],
    /// Whether checksums that the kernel has left to a network card are completed in received frames.
    pub complete_checksums: bool,
    /// The first queue of the interface that is opened.
    pub first_queue: u32,
    /// How many are opened at most.
    pub most_queues: u32,
    /// The longest frame, up to [`LONGEST`].
    pub frame: usize,
    /// Whether the queues share one memory.
    pub shares_memory: bool,
}

impl Default for XdpOptions {
    fn default() -> Self {
        Self {
            take: Take::All,
            modes: &[Mode::Native, Mode::Generic],
            complete_checksums: true,
            first_queue: 0,
            most_queues: QUEUES,
            frame: umem::USUAL,
            shares_memory: false,
        }
    }
}

/// What all queues of an open interface have in common; it is detached when the last half is dropped.
struct Shared {
    program: Program,
    /// Keeps the interface in promiscuous mode.
    _promiscuous: OwnedFd,
}

/// One socket with its memory.
struct Socket {
    fd: OwnedFd,
    umem: Arc<Umem>,
    shared: Arc<Shared>,
}

/// The receiving half of a queue.
pub struct XdpReceive {
    frames: Consumer<XdpDesc>,
    fill: Producer<u64>,
    complete_checksums: bool,
    completed: u64,
    socket: Arc<Socket>,
}

/// The sending half of a queue.
pub struct XdpTransmit {
    frames: Producer<XdpDesc>,
    completed: Consumer<u64>,
    free: Vec<u64>,
    refusal: Option<Errno>,
    socket: Arc<Socket>,
}

/// Opens queues of an interface, all of them unless the options say which; needs CAP_NET_RAW, CAP_BPF and CAP_NET_ADMIN, once. There are
/// none if the first is beyond those of the interface.
pub fn open(name: &str, options: XdpOptions) -> Result<Vec<(XdpReceive, XdpTransmit)>, LinkError> {
    let link = Link::find(name)?;
    let denied = |step| {
        let link = link.clone();
        move |error| match error {
            Errno::PERM | Errno::ACCESS => LinkError::Denied {
                interface: link.name.clone(),
                what: "AF_XDP sockets",
                capabilities: "CAP_NET_RAW, CAP_BPF and CAP_NET_ADMIN",
            },
            Errno::BUSY | Errno::EXIST => LinkError::Busy(link.name.clone()),
            error => link.step(step, error),
        }
    };
    let program = Program::attach(link.index, options.take, options.modes).map_err(denied("XDP program"))?;
    let promiscuous = packet_socket().map_err(denied("packet socket"))?;
    make_promiscuous(promiscuous.as_fd(), link.index).map_err(denied("promiscuous mode"))?;
    let shared = Arc::new(Shared { program, _promiscuous: promiscuous });
    let wanted = options.first_queue..options.first_queue.saturating_add(options.most_queues).min(QUEUES);
    let mut memory = Memory::new(name, &wanted, &options).map_err(denied("memory of frames"))?;
    let mut queues = Vec::new();
    for queue in wanted {
        match open_queue(&link, queue, &options, &shared, &mut memory) {
            Ok(halves) => queues.push(halves),
            // The kernel says so of a queue that there is not.
            Err(Errno::INVAL) if queue > 0 => break,
            Err(error) => return Err(denied("AF_XDP socket")(error)),
        }
    }
    Ok(queues)
}

/// The memory of the queues that are still to be opened.
enum Memory {
    /// Each has one of its own, for frames of so many bytes.
    Own(usize),
    /// All have parts of one. The socket that has registered it is that of the first of them.
    Shared { umem: Arc<Umem>, first: Option<Arc<Socket>>, taken: u32 },
}

/// What a queue has of a memory.
struct Part {
    umem: Arc<Umem>,
    /// The number of its first chunk.
    first: u32,
    /// The socket that has registered the memory with the kernel, if one has.
    registered: Option<Arc<Socket>>,
}

impl Memory {
    fn new(name: &str, wanted: &Range<u32>, options: &XdpOptions) -> Result<Self, Errno> {
        if !options.shares_memory {
            return Ok(Self::Own(options.frame));
        }
        // A driver that does not tell has one: others have no part of the memory.
        let there = Channels::of(name).map_or(1, |channels| channels.receiving().max(channels.sending()));
        let queues = there.min(wanted.end).saturating_sub(wanted.start).max(1);
        let umem = Arc::new(Umem::new((queues * CHUNKS) as usize, options.frame)?);
        Ok(Self::Shared { umem, first: None, taken: 0 })
    }

    /// The memory of the next queue.
    fn take(&mut self) -> Result<Part, Errno> {
        match self {
            Self::Own(frame) => {
                Ok(Part { umem: Arc::new(Umem::new(CHUNKS as usize, *frame)?), first: 0, registered: None })
            }
            Self::Shared { umem, first, taken } => {
                let chunk = *taken * CHUNKS;
                *taken += 1;
                // What the kernel says of a queue that there is not.
                let has_room = ((chunk + CHUNKS) as usize) <= umem.chunks();
                let part = || Part { umem: Arc::clone(umem), first: chunk, registered: first.clone() };
                has_room.then(part).ok_or(Errno::INVAL)
            }
        }
    }

    /// Notes a queue that was opened.
    fn opened(&mut self, socket: &Arc<Socket>) {
        if let Self::Shared { first, .. } = self {
            first.get_or_insert_with(|| Arc::clone(socket));
        }
    }
}

fn open_queue(
    link: &Link,
    queue: u32,
    options: &XdpOptions,
    shared: &Arc<Shared>,
    memory: &mut Memory,
) -> Result<(XdpReceive, XdpTransmit), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
    let Part { umem, first, registered } = memory.take()?;
    if registered.is_none() {
        let (addr, len) = umem.place();
        let (chunk_size, flags) = (umem.chunk() as u32, XdpUmemRegFlags::empty());
        let region = XdpUmemReg { addr, len, chunk_size, headroom: 0, flags, tx_metadata_len: 0 };
        sockopt::set_xdp_umem_reg(&fd, region)?;
    }
    sockopt::set_xdp_umem_fill_ring_size(&fd, RING)?;
    sockopt::set_xdp_umem_completion_ring_size(&fd, RING)?;
    sockopt::set_xdp_rx_ring_size(&fd, RING)?;
    sockopt::set_xdp_tx_ring_size(&fd, RING)?;
    // Without it one call sends at most 32 frames.
    let _ = set_option(fd.as_fd(), libc::SOL_XDP, MAX_TX_SKB_BUDGET, &64u32);
    let offsets = sockopt::xdp_mmap_offsets(&fd)?;
    let frames = Consumer::map(fd.as_fd(), XDP_PGOFF_RX_RING, &offsets.rx, RING)?;
    let mut fill = Producer::map(fd.as_fd(), XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, RING)?;
    let outgoing = Producer::map(fd.as_fd(), XDP_PGOFF_TX_RING, &offsets.tx, RING)?;
    let completed = Consumer::map(fd.as_fd(), XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, RING)?;
    let bytes = umem.chunk() as u64;
    let chunk = |index: u32| u64::from(index) * bytes;
    for index in first..first + RING {
        fill.put(chunk(index));
    }
    fill.submit();
    match &registered {
        None => {
            let address = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_COPY, link.index, queue);
            bind_when_free(|| bind(&fd, &address))?;
        }
        // The kernel copies for all that share, or for none.
        Some(other) => {
            let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
            let address = SocketAddrXdpWithSharedUmem {
                addr: SocketAddrXdp::new(flags, link.index, queue),
                shared_umem_fd: other.fd.as_fd(),
            };
            bind_when_free(|| bind(&fd, &address))?;
        }
    }
    shared.program.serve(queue, fd.as_fd())?;
    let socket = Arc::new(Socket { fd, umem, shared: Arc::clone(shared) });
    memory.opened(&socket);
    let receive = XdpReceive {
        frames,
        fill,
        complete_checksums: options.complete_checksums,
        completed: 0,
        socket: Arc::clone(&socket),
    };
    let free = (first + RING..first + CHUNKS).map(chunk).collect();
    Ok((receive, XdpTransmit { frames: outgoing, completed, free, refusal: None, socket }))
}

fn bind_when_free(bind: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    let begun = Instant::now();
    loop {
        match bind() {
            Err(Errno::BUSY) if begun.elapsed() < BUSY => std::thread::sleep(Duration::from_millis(10)),
            outcome => return outcome,
        }
    }
}

impl XdpReceive {
    /// How the program of the interface runs.
    pub fn mode(&self) -> Mode {
        self.socket.shared.program.mode
    }
}

impl Receive for XdpReceive {
    fn receive(&mut self, batch: &mut Batch, _: &DropCounters) -> io::Result<usize> {
        let first = batch.len();
        while let Some(XdpDesc { addr, len, .. }) = self.frames.peek() {
            let index = batch.len();
            let Some(packet) = batch.append(len as usize) else { break };
            #[expect(unsafe_code, reason = "the memory is shared with the kernel")]
            // SAFETY: the descriptor comes from the receive ring, and its chunk goes to the fill ring below.
            packet.copy_from_slice(unsafe { self.socket.umem.read(addr, len) });
            self.frames.advance();
            // There are as many places as chunks of this half.
            self.fill.put(self.socket.umem.chunk_of(addr));
            if self.complete_checksums && crate::partial_checksum::complete(batch.packet_mut(index)) {
                self.completed += 1;
            }
        }
        if batch.len() > first {
            self.frames.release();
            self.fill.submit();
            batch.close_train(first, None, 0);
        }
        Ok(batch.len() - first)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        wake.wait([Some(self.socket.fd.as_fd())]).map(drop)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd.as_fd())
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let Ok(statistics) = sockopt::xdp_statistics(&self.socket.fd) else { return Vec::new() };
        vec![
            // Longer than a chunk, or no chunk to receive into.
            ("rx_dropped", statistics.rx_dropped),
            ("rx_ring_full", statistics.rx_ring_full.unwrap_or_default()),
            ("checksums_completed", self.completed),
        ]
    }
}

impl XdpTransmit {
    /// Takes back the chunks of frames that were sent.
    #[inline]
    fn reclaim(&mut self) {
        while let Some(chunk) = self.completed.peek() {
            self.completed.advance();
            self.free.push(chunk);
        }
        self.completed.release();
    }

    /// Makes the kernel send until it has taken all frames, or until the link is full.
    fn kick(&mut self) {
        let mut stuck = 0;
        while !self.frames.is_drained() && stuck < STUCK {
            match send(&self.socket.fd, &[], SendFlags::DONTWAIT) {
                // Nothing may be taken at all: of a queue that only receives.
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => stuck += 1,
                Err(error) => {
                    self.refusal = Some(error);
                    return;
                }
            }
        }
    }
}

impl Transmit for XdpTransmit {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        self.reclaim();
        let (mut full, mut long) = (0, 0);
        for index in 0..batch.len() {
            let frame = batch.packet(index);
            if frame.is_empty() {
                continue;
            }
            if frame.len() > self.socket.umem.longest() {
                long += 1;
                batch.discard(index);
                continue;
            }
            let Some(addr) = self.free.pop() else {
                full += 1;
                batch.discard(index);
                continue;
            };
            #[expect(unsafe_code, reason = "the memory is shared with the kernel")]
            // SAFETY: the chunk is free: it came back through the completion ring, or was never sent.
            unsafe {
                self.socket.umem.write(addr, frame);
            }
            let options = XdpDescOptions::empty();
            // There are as many places as chunks of this half.
            self.frames.put(XdpDesc { addr, len: frame.len() as u32, options });
        }
        self.frames.submit();
        self.kick();
        drops.count(DropReason::RingFull, full);
        drops.count(DropReason::TooBig, long);
    }

    fn take_refusal(&mut self) -> Option<Errno> {
        self.refusal.take()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let Ok(statistics) = sockopt::xdp_statistics(&self.socket.fd) else { return Vec::new() };
        vec![("tx_invalid_descs", statistics.tx_invalid_descs)]
    }
}
