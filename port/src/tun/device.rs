//! Creates a TUN interface and probes its offloads.
//!
//! An interface with several queues has two descriptors for each: one that is read, and one that is written. What is written to
//! a queue would lead the packets of the same flow to that queue, in the middle of the flow (tun_flow_update of the kernel). The
//! descriptors that are written are detached from their queue, and the kernel learns nothing from them. So it chooses the queue of
//! a packet by a hash of the flow alone: a flow stays with its queue, and with the thread that reads it, for all of its life.
//!
//! With Linux 6.18, and answers that are written by the thread of another queue, 456 of 480 packets of 24 flows changed their queue
//! while the descriptors were attached, and none with detached ones. TUNSETSTEERINGEBPF would do the same, with a right to load programs.
#![expect(unsafe_code, reason = "ioctls take their arguments by address")]

use crate::Offloads;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The longest interface name.
const NAME: usize = libc::IFNAMSIZ - 1;

// linux/if_tun.h and linux/sockios.h; libc does not have all of them.
const TUN_F_CSUM: u32 = 0x01;
const TUN_F_TSO4: u32 = 0x02;
const TUN_F_TSO6: u32 = 0x04;
const TUN_F_USO4: u32 = 0x20;
const TUN_F_USO6: u32 = 0x40;

/// The reason why an interface could not be created.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The name is not valid for an interface.
    #[error("{0:?} cannot be the name of an interface: 1 to {NAME} characters, none of them a space or /")]
    Name(String),
    /// The TUN driver is missing.
    #[error("/dev/net/tun cannot be opened: {0}\n  fix: modprobe tun, or run with access to that device")]
    Driver(Errno),
    /// The interface exists and is in use.
    #[error("interface {0} exists already and is in use\n  fix: ip link delete {0}, or choose another name")]
    Busy(String),
    /// The permission is missing.
    #[error("no right to create interface {0}\n  fix: run as root, or with CAP_NET_ADMIN")]
    Denied(String),
    /// The interface exists and is of another kind.
    #[error(
        "interface {0} exists, and is no TAP interface for several queues\n  fix: ip link delete {0}, or ip tuntap add {0} mode tap multi_queue"
    )]
    Queues(String),
    /// Another error.
    #[error("interface {0} cannot be created: {1}")]
    Other(String, Errno),
}

/// A TUN interface. It is removed when the last descriptor is closed.
pub struct TunDevice {
    /// At least one.
    queues: Vec<Queue>,
    name: String,
    /// Whether there is no interface: nothing is read, and what is written vanishes.
    is_null: bool,
}

/// A queue of an interface, which one thread reads.
struct Queue {
    reads: OwnedFd,
    /// The descriptor that is written, of several queues.
    writes: Option<OwnedFd>,
}

impl Queue {
    fn only(fd: OwnedFd) -> Self {
        Self { reads: fd, writes: None }
    }

    /// Adds a queue to an interface for several.
    fn add(name: &str, is_first: bool) -> Result<Self, TunError> {
        // The first one does not join an interface that another program has made for several queues.
        let first = if is_first { libc::IFF_TUN_EXCL } else { 0 };
        let writes = open(name, KIND | libc::IFF_MULTI_QUEUE | first)?;
        let reads = open(name, KIND | libc::IFF_MULTI_QUEUE)?;
        // The other one takes its number, so that packets are still received as of this queue.
        detach(writes.as_fd()).map_err(|error| TunError::Other(name.to_owned(), error))?;
        Ok(Self { reads, writes: Some(writes) })
    }
}

impl TunDevice {
    /// Creates the interface `name` with so many queues, at least one, and enables the offloads that `offloads` allows.
    ///
    /// An interface with one queue cannot get more later: with multi-queue, a second process could silently take a share of the
    /// packets.
    pub fn create(name: &str, queues: usize, offloads: &Offloads) -> Result<Self, TunError> {
        let queues = if queues <= 1 {
            vec![Queue::only(open(name, KIND)?)]
        } else {
            (0..queues).map(|number| Queue::add(name, number == 0)).collect::<Result<_, _>>()?
        };
        let device = Self { queues, name: name.to_owned(), is_null: false };
        device.probe(offloads);
        Ok(device)
    }

    /// Stands for an interface that is not there. Nothing can be read from it.
    pub fn null(name: &str) -> Result<Self, Errno> {
        // Nothing arrives on a socket that has no address.
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        Ok(Self { queues: vec![Queue::only(fd)], name: name.to_owned(), is_null: true })
    }

    /// Whether there is no interface.
    pub fn is_null(&self) -> bool {
        self.is_null
    }

    /// Enables the largest set of offloads that the kernel supports and the configuration allows.
    pub fn probe(&self, offloads: &Offloads) {
        let fd = self.any();
        let tso = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
        let uso = tso | TUN_F_USO4 | TUN_F_USO6;
        let has_tso = offloads.tun_tso.is_wanted() && set_offload(fd, tso).is_ok();
        let has_uso = has_tso && offloads.tun_uso.is_wanted() && set_offload(fd, uso).is_ok();
        if !has_uso {
            // The mask outlives the descriptor that set it, so it is also set when it is empty.
            let _ = set_offload(fd, if has_tso { tso } else { 0 });
        }
        offloads.tun_tso.probed(has_tso);
        offloads.tun_uso.probed(has_uso);
        // Writing super-packets only needs IFF_VNET_HDR; the first write shows whether it works.
        offloads.tun_gro.probed(true);
    }

    /// The descriptor that a queue is read from; the first queue's if there are fewer.
    pub(super) fn reads(&self, queue: usize) -> BorrowedFd<'_> {
        self.queue(queue).reads.as_fd()
    }

    /// The descriptor that the thread of a queue writes to.
    pub(super) fn writes(&self, queue: usize) -> BorrowedFd<'_> {
        let Queue { reads, writes } = self.queue(queue);
        writes.as_ref().unwrap_or(reads).as_fd()
    }

    fn queue(&self, number: usize) -> &Queue {
        self.queues.get(number).unwrap_or(&self.queues[0])
    }

    /// The descriptor for what concerns the interface as a whole.
    fn any(&self) -> BorrowedFd<'_> {
        self.queues[0].reads.as_fd()
    }

    /// The name at creation; the interface may have been renamed since.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The current name; `None` if the interface was deleted.
    pub fn current_name(&self) -> Option<String> {
        // SAFETY: ifreq is plain data, for which all zeros is a valid value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // SAFETY: the request writes one ifreq, which lives until the call returns.
        check(unsafe { libc::ioctl(self.any().as_raw_fd(), TUNGETIFF, &raw mut request) }).ok()?;
        let bytes = request.ifr_name.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8);
        String::from_utf8(bytes.collect()).ok()
    }

    /// The current network namespace of the interface, which may differ from ours. `None` before Linux 5.7.
    pub fn namespace(&self) -> Option<OwnedFd> {
        // SAFETY: the request takes no argument and returns a new descriptor, which has no other owner.
        unsafe {
            let fd = libc::ioctl(self.any().as_raw_fd(), TUNGETDEVNETNS);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
        }
    }
}

#[cfg(test)]
impl From<OwnedFd> for TunDevice {
    /// For tests: any descriptor that keeps message boundaries can replace an interface.
    fn from(fd: OwnedFd) -> Self {
        Self { queues: vec![Queue::only(fd)], name: String::new(), is_null: false }
    }
}

/// `_IO('T', 227)`
const TUNGETDEVNETNS: libc::Ioctl = 0x54e3 as libc::Ioctl;
/// `_IOR('T', 210, unsigned int)`
const TUNGETIFF: libc::Ioctl = 0x8004_54d2_u32 as libc::Ioctl;
/// `_IOW('T', 202, int)`
const TUNSETIFF: libc::Ioctl = 0x4004_54ca as libc::Ioctl;
/// `_IOW('T', 208, unsigned int)`
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0 as libc::Ioctl;
/// `_IOW('T', 217, int)`
const TUNSETQUEUE: libc::Ioctl = 0x4004_54d9 as libc::Ioctl;

/// The kind of interface: IP packets, with a header about offloads before each.
const KIND: libc::c_int = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;

/// Opens a TAP interface, without a header before frames. With several queues, each call opens one.
pub(crate) fn open_tap(name: &str, has_several: bool) -> Result<OwnedFd, TunError> {
    let queues = if has_several { libc::IFF_MULTI_QUEUE } else { 0 };
    open(name, libc::IFF_TAP | libc::IFF_NO_PI | queues).map_err(|error| match error {
        TunError::Other(name, Errno::INVAL) if has_several => TunError::Queues(name),
        error => error,
    })
}

/// Opens an interface of the driver, which is made if there is none.
fn open(name: &str, kind: libc::c_int) -> Result<OwnedFd, TunError> {
    let valid =
        (1..=NAME).contains(&name.len()) && !name.contains(['/', ' ', '%']) && name != "." && name != "..";
    if !valid || name.contains(|c: char| c.is_ascii_control()) {
        return Err(TunError::Name(name.to_owned()));
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(TunError::Driver)?;
    set_interface(fd.as_fd(), name, kind).map_err(|error| match error {
        Errno::BUSY | Errno::EXIST => TunError::Busy(name.to_owned()),
        Errno::PERM => TunError::Denied(name.to_owned()),
        error => TunError::Other(name.to_owned(), error),
    })?;
    Ok(fd)
}

fn set_interface(fd: BorrowedFd<'_>, name: &str, flags: libc::c_int) -> Result<(), Errno> {
    // SAFETY: ifreq is plain data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the request reads and writes one ifreq, which lives until the call returns.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETIFF, &raw mut request) })
}

/// Takes a descriptor from the queues that packets are spread over. It can still be written.
fn detach(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: ifreq is plain data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_flags = libc::IFF_DETACH_QUEUE as libc::c_short;
    // SAFETY: the request reads one ifreq, which lives until the call returns.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETQUEUE, &raw mut request) })
}

fn set_offload(fd: BorrowedFd<'_>, mask: u32) -> Result<(), Errno> {
    // SAFETY: the request takes its argument by value.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD, libc::c_ulong::from(mask)) })
}

fn check(outcome: libc::c_int) -> Result<(), Errno> {
    if outcome < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(())
}
