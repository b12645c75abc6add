//! Datagrams out.
#![expect(unsafe_code, reason = "sendmmsg takes buffers by address")]

use super::control::{Control, Name};
use super::last_error;
use super::socket::{SocketSlot, UdpSockets};
use crate::offload::State;
use crate::{Offloads, Transmit};
use arrayvec::ArrayVec;
use packet::{Batch, DropCounters, DropReason, Endpoint};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

/// Datagrams that one send may be cut into; newer kernels take 128, all since 4.18 take these.
const SEGMENTS: usize = 64;
/// The most that one send may carry: an IP packet less its headers.
const LARGEST_V4: usize = 65_507;
const LARGEST_V6: usize = 65_527;
/// Sends in one call.
const MESSAGES: usize = 32;
/// Pieces in one call.
const PIECES: usize = 512;

/// Sends datagrams on the sockets of an interface.
pub struct UdpTransmit {
    slot: SocketSlot,
    offloads: Arc<Offloads>,
}

/// Datagrams that leave in one send: packets of one train, of equal size but for the last.
#[derive(Clone, Copy)]
struct Group {
    train: usize,
    /// The first of its pieces in the list of all.
    first: usize,
    count: usize,
    size: usize,
}

/// One call's worth of sends.
#[derive(Default)]
struct Plan {
    groups: ArrayVec<Group, MESSAGES>,
    /// Indices of the packets, group after group.
    packets: ArrayVec<usize, PIECES>,
}

impl UdpTransmit {
    /// Sends on whatever sockets are in `slot`.
    pub fn new(slot: SocketSlot, offloads: Arc<Offloads>) -> Self {
        Self { slot, offloads }
    }

    /// Sends what is planned, and plans anew.
    fn flush(&self, sockets: &UdpSockets, plan: &mut Plan, batch: &mut Batch, drops: &DropCounters) {
        let mut sent = 0;
        while sent < plan.groups.len() {
            // One call goes to one socket, so to one IP version.
            let version = |group: &Group| remote(batch, group).map(|endpoint| endpoint.remote.is_ipv4());
            let first = version(&plan.groups[sent]);
            let same = plan.groups[sent..].iter().take_while(|group| version(group) == first).count();
            match send_groups(sockets, &plan.groups[sent..sent + same], &plan.packets, batch) {
                Ok(count) => {
                    for group in plan.groups[sent..sent + count].iter().filter(|group| group.count > 1) {
                        self.offloads.udp_gso.count(group.count);
                    }
                    sent += count;
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    let group = plan.groups[sent];
                    self.recover(sockets, group, &plan.packets, error, batch, drops);
                    sent += 1;
                }
            }
        }
        plan.groups.clear();
        plan.packets.clear();
    }

    /// The kernel refused a group: tries it without what it may have refused, and drops only what cannot be sent.
    fn recover(
        &self,
        sockets: &UdpSockets,
        group: Group,
        packets: &[usize],
        error: Errno,
        batch: &mut Batch,
        drops: &DropCounters,
    ) {
        let refuses = matches!(error, Errno::INVAL | Errno::NETUNREACH | Errno::ADDRNOTAVAIL);
        if refuses && remote(batch, &group).is_some_and(|endpoint| endpoint.local.is_some()) {
            // The address that the peer last sent to is ours no more.
            batch.forget_source(group.train);
            if send_groups(sockets, &[group], packets, batch).is_ok() {
                return;
            }
        }
        if group.count > 1 {
            // EIO: the device cannot complete checksums, and will not for any packet. EINVAL and EMSGSIZE: this
            // segment size is too large for this path, where the kernel would fragment but not cut.
            self.offloads.udp_gso.count_fallback();
            if error == Errno::IO {
                self.offloads.udp_gso.set(State::Failed);
            }
        }
        for piece in group.first..group.first + group.count {
            let size = batch.packet(packets[piece]).len();
            let single = Group { first: piece, count: 1, size, ..group };
            if send_groups(sockets, &[single], packets, batch).is_err() {
                drops.count(DropReason::SendFailed, 1);
            }
        }
    }
}

impl Transmit for UdpTransmit {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        let sockets = self.slot.load();
        let mut plan = Plan::default();
        for train in 0..batch.trains().len() {
            let range = batch.trains()[train].packets.clone();
            let endpoint = batch.trains()[train].endpoint;
            let (Some(sockets), Some(endpoint)) = (sockets.as_deref(), endpoint) else {
                drops.count(DropReason::SendFailed, batch.live(range).count());
                continue;
            };
            let most = if self.offloads.udp_gso.is_on() { SEGMENTS } else { 1 };
            let largest = if endpoint.remote.is_ipv4() { LARGEST_V4 } else { LARGEST_V6 };
            for index in range {
                if !batch.is_live(index) {
                    continue;
                }
                let length = batch.packet(index).len();
                if plan.join(train, index, length, most, largest, batch) {
                    continue;
                }
                if plan.is_full() {
                    self.flush(sockets, &mut plan, batch, drops);
                }
                plan.begin(train, index, length);
            }
        }
        if let Some(sockets) = sockets.as_deref() {
            self.flush(sockets, &mut plan, batch, drops);
        }
    }
}

impl Plan {
    fn is_full(&self) -> bool {
        self.groups.is_full() || self.packets.is_full()
    }

    fn begin(&mut self, train: usize, index: usize, size: usize) {
        self.groups.push(Group { train, first: self.packets.len(), count: 1, size });
        self.packets.push(index);
    }

    /// Adds a packet to the last group, if one send may carry it too.
    fn join(
        &mut self,
        train: usize,
        index: usize,
        length: usize,
        most: usize,
        largest: usize,
        batch: &Batch,
    ) -> bool {
        let full = self.packets.is_full();
        let Some(group) = self.groups.last_mut() else { return false };
        let last = self.packets[group.first + group.count - 1];
        let ended = batch.packet(last).len() < group.size;
        let too_much = group.count == most || (group.count + 1) * group.size > largest;
        if full || group.train != train || ended || length > group.size || too_much {
            return false;
        }
        group.count += 1;
        self.packets.push(index);
        true
    }
}

fn remote<'a>(batch: &'a Batch, group: &Group) -> Option<&'a Endpoint> {
    batch.trains()[group.train].endpoint.as_ref()
}

/// `sendmmsg(2)`: tells how many of the groups were sent, at least one.
fn send_groups(
    sockets: &UdpSockets,
    groups: &[Group],
    packets: &[usize],
    batch: &Batch,
) -> Result<usize, Errno> {
    let endpoint = groups.first().and_then(|group| remote(batch, group)).ok_or(Errno::DESTADDRREQ)?;
    let fd: BorrowedFd<'_> = sockets.fd(&endpoint.remote).ok_or(Errno::AFNOSUPPORT)?;
    let mut names = ArrayVec::<Name, MESSAGES>::new();
    let mut controls = ArrayVec::<Control, MESSAGES>::new();
    let mut pieces = ArrayVec::<libc::iovec, PIECES>::new();
    let mut headers = ArrayVec::<libc::mmsghdr, MESSAGES>::new();
    for group in groups {
        let train = &batch.trains()[group.train];
        let endpoint = train.endpoint.as_ref().ok_or(Errno::DESTADDRREQ)?;
        let mut control = Control::new();
        control.push_source(endpoint.local);
        control.push_ds_field(endpoint.remote.is_ipv4(), train.ds_field);
        // A segment size without segments is an error to some drivers (firezone issue 8932).
        if group.count > 1 {
            control.push_segment(group.size as u16);
        }
        names.push(Name::of(&endpoint.remote));
        controls.push(control);
        for &index in &packets[group.first..group.first + group.count] {
            let bytes = batch.packet(index);
            pieces.push(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
        }
    }
    let mut first = 0;
    for ((group, name), control) in groups.iter().zip(&mut names).zip(&mut controls) {
        // SAFETY: plain data, for which all zeros is a value.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_name = name.as_mut_ptr().cast();
        header.msg_hdr.msg_namelen = name.length() as libc::socklen_t;
        header.msg_hdr.msg_control = control.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = control.length() as _;
        header.msg_hdr.msg_iov = pieces[first..].as_mut_ptr();
        header.msg_hdr.msg_iovlen = group.count as _;
        first += group.count;
        headers.push(header);
    }
    // SAFETY: every header points to a name, a control buffer and pieces with their true sizes, and every piece to
    // bytes of the batch; all of them are borrowed until the call returns, and the kernel only reads them.
    let sent =
        unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), headers.len() as libc::c_uint, 0) };
    if sent < 0 { Err(last_error()) } else { Ok(sent as usize) }
}
