//! Sends datagrams.
#![expect(unsafe_code, reason = "sendmmsg takes buffers by address")]

use super::congestion::{Congestion, Full};
use super::control::{Control, Name};
use super::last_error;
use super::socket::{Path, SocketSlot, UdpSockets};
use crate::offload::State;
use crate::{Offloads, Tally, Transmit};
use arrayvec::ArrayVec;
use packet::{Batch, DropCounters, DropReason, Endpoint};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

/// The maximum number of segments of a send: newer kernels accept 128, all since 4.18 accept 64.
const SEGMENTS: usize = 64;
/// The maximum payload of a send: an IPv4 packet without its headers.
const LARGEST_V4: usize = 65_507;
const LARGEST_V6: usize = 65_527;
/// Sends in one call.
const MESSAGES: usize = 32;
/// Pieces in one call.
const PIECES: usize = 512;
/// The number of narrow paths that are remembered, and the number of trains for which each is: a path may widen, but
/// a refused send copies the whole train.
const NARROW: usize = 8;
const TRAINS: u32 = 1000;

/// Sends datagrams on the sockets of an interface.
pub struct UdpTransmit {
    slot: SocketSlot,
    /// The number of the receiving thread whose sockets it sends on.
    thread: usize,
    offloads: Arc<Offloads>,
    narrow: ArrayVec<Narrow, NARROW>,
    congestion: Congestion,
    refusal: Option<Errno>,
    tally: Arc<Tally>,
}

/// A path for which the kernel refuses to segment to a size, although it fragments datagrams of this size.
struct Narrow {
    remote: SocketAddr,
    size: usize,
    /// The number of further trains for which the entry is valid.
    trains: u32,
}

/// Datagrams of one send: packets of one train of equal size; the last may be smaller.
#[derive(Clone, Copy)]
struct Group {
    train: usize,
    /// The index of its first piece in the list of all pieces.
    first: usize,
    count: usize,
    size: usize,
}

/// The sends of one call.
#[derive(Default)]
struct Plan {
    groups: ArrayVec<Group, MESSAGES>,
    /// The indices of the packets, group by group.
    packets: ArrayVec<usize, PIECES>,
}

impl UdpTransmit {
    /// Sends on the sockets in `slot`.
    pub fn new(slot: SocketSlot, offloads: Arc<Offloads>) -> Self {
        let (narrow, congestion) = (ArrayVec::new(), Congestion::new());
        Self { slot, thread: 0, offloads, narrow, congestion, refusal: None, tally: Arc::default() }
    }

    /// Sends on the sockets of this receiving thread: threads that send at once do not wait for each other's socket.
    #[must_use]
    pub fn of_thread(self, thread: usize) -> Self {
        Self { thread, ..self }
    }

    /// Counts its calls in `tally`.
    #[must_use]
    pub fn counted(self, tally: Arc<Tally>) -> Self {
        Self { tally, ..self }
    }

    /// The maximum number of segments of `size` bytes in one send to `remote`.
    fn most(&mut self, remote: SocketAddr, size: usize) -> usize {
        if !self.offloads.udp_gso.is_on() {
            return 1;
        }
        let Some(known) = self.narrow.iter().position(|path| path.remote == remote) else { return SEGMENTS };
        let path = &mut self.narrow[known];
        if size < path.size {
            return SEGMENTS;
        }
        path.trains -= 1;
        if path.trains == 0 {
            self.narrow.remove(known);
        }
        1
    }

    /// Remembers that segments of `size` bytes to `remote` were refused; replaces the oldest entry if necessary.
    fn remember(&mut self, remote: SocketAddr, size: usize) {
        self.narrow.retain(|path| path.remote != remote);
        if self.narrow.is_full() {
            self.narrow.remove(0);
        }
        self.narrow.push(Narrow { remote, size, trains: TRAINS });
    }

    /// Sends the planned groups, and clears the plan.
    fn flush(&mut self, sockets: &UdpSockets, plan: &mut Plan, batch: &mut Batch, drops: &DropCounters) {
        let mut sent = 0;
        while sent < plan.groups.len() {
            // Each call is for one socket.
            let socket = |group: &Group| {
                let path = Path::from(remote(batch, group)?);
                Some((path.number(), self.congestion.own(&path)))
            };
            let first = socket(&plan.groups[sent]);
            let same = plan.groups[sent..].iter().take_while(|group| socket(group) == first).count();
            match self.send(sockets, &plan.groups[sent..sent + same], &plan.packets, batch) {
                Ok(count) => {
                    for group in plan.groups[sent..sent + count].iter().filter(|group| group.count > 1) {
                        self.offloads.udp_gso.count(group.count);
                    }
                    sent += count;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let group = plan.groups[sent];
                    if self.full(sockets, &group, batch) == Full::Drop {
                        lose(batch, &plan.packets[group.pieces()], DropReason::PeerCongested, drops);
                        sent += 1;
                    }
                }
                Err(error) => {
                    let group = plan.groups[sent];
                    // A second failure is handled like that of any other group.
                    if !forgets_source(batch, &group, error) {
                        self.recover(sockets, group, &plan.packets, error, batch, drops);
                        sent += 1;
                    }
                }
            }
        }
        plan.groups.clear();
        plan.packets.clear();
    }

    /// Sends groups to one socket; returns the number sent, at least one.
    fn send(
        &self,
        sockets: &UdpSockets,
        groups: &[Group],
        packets: &[usize],
        batch: &Batch,
    ) -> Result<usize, Errno> {
        let endpoint = groups.first().and_then(|group| remote(batch, group)).ok_or(Errno::DESTADDRREQ)?;
        let path = Path::from(endpoint);
        let fd = sockets.fd(&path, self.thread, self.congestion.own(&path)).ok_or(Errno::AFNOSUPPORT)?;
        let outcome = send_groups(fd, groups, packets, batch);
        let sent = &groups[..*outcome.as_ref().unwrap_or(&0)];
        self.tally.send(sent.iter().map(|group| group.bytes(packets, batch)).sum());
        outcome
    }

    /// Handles a full socket of a group.
    fn full(&mut self, sockets: &UdpSockets, group: &Group, batch: &Batch) -> Full {
        remote(batch, group).map_or(Full::Drop, |endpoint| self.congestion.full(sockets, &endpoint.into()))
    }

    /// Handles a refused group: sends it again without the feature that may be refused, and drops only datagrams that
    /// cannot be sent.
    fn recover(
        &mut self,
        sockets: &UdpSockets,
        group: Group,
        packets: &[usize],
        error: Errno,
        batch: &mut Batch,
        drops: &DropCounters,
    ) {
        // Segmentation may cause these errors. Any other would also occur for each single datagram.
        if group.count == 1 || !matches!(error, Errno::IO | Errno::INVAL | Errno::MSGSIZE) {
            self.refusal = Some(error);
            return lose(batch, &packets[group.pieces()], DropReason::SendFailed, drops);
        }
        self.offloads.udp_gso.count_fallback();
        let mut lost = 0;
        for piece in group.pieces() {
            let size = batch.packet(packets[piece]).len();
            let single = Group { first: piece, count: 1, size, ..group };
            if let Err(reason) = self.send_single(sockets, single, packets, batch) {
                lose(batch, &packets[single.pieces()], reason, drops);
                lost += 1;
            }
        }
        // EIO: the device cannot compute checksums, and will not for any packet. EINVAL and EMSGSIZE: the segment
        // size exceeds the path MTU; the kernel fragments such datagrams, but does not segment to this size.
        match remote(batch, &group) {
            _ if error == Errno::IO => self.offloads.udp_gso.set(State::Failed),
            Some(endpoint) if lost == 0 => self.remember(endpoint.remote, group.size),
            _ => {}
        }
    }

    /// Sends one datagram of a refused group.
    fn send_single(
        &mut self,
        sockets: &UdpSockets,
        single: Group,
        packets: &[usize],
        batch: &Batch,
    ) -> Result<(), DropReason> {
        loop {
            match self.send(sockets, &[single], packets, batch) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.full(sockets, &single, batch) == Full::Again => {}
                Err(Errno::AGAIN) => return Err(DropReason::PeerCongested),
                Err(error) => {
                    self.refusal = Some(error);
                    return Err(DropReason::SendFailed);
                }
            }
        }
    }
}

/// Clears the local address of a group if the kernel may have refused it: the address that the peer last sent to may
/// have been removed from this host. Returns whether it was cleared.
fn forgets_source(batch: &mut Batch, group: &Group, error: Errno) -> bool {
    let refuses = matches!(error, Errno::INVAL | Errno::NETUNREACH | Errno::ADDRNOTAVAIL);
    let has_source = remote(batch, group).is_some_and(|endpoint| endpoint.local.is_some());
    if refuses && has_source {
        batch.forget_source(group.train);
    }
    refuses && has_source
}

/// Drops packets that were not sent.
#[cold]
fn lose(batch: &mut Batch, packets: &[usize], reason: DropReason, drops: &DropCounters) {
    for &index in packets {
        batch.drop_packet(index, reason, drops);
    }
}

impl Transmit for UdpTransmit {
    fn is_full(&self, endpoint: &Endpoint) -> bool {
        self.congestion.is_full(&endpoint.into())
    }

    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        let sockets = self.slot.load();
        let mut plan = Plan::default();
        if let Some(sockets) = sockets.as_deref() {
            self.congestion.sweep(sockets);
        }
        for train in 0..batch.trains().len() {
            let range = batch.trains()[train].packets.clone();
            let endpoint = batch.trains()[train].endpoint;
            let (Some(sockets), Some(endpoint)) = (sockets.as_deref(), endpoint) else {
                let live: Vec<usize> = batch.live(range).collect();
                lose(batch, &live, DropReason::SendFailed, drops);
                continue;
            };
            self.congestion.note(&Path::from(&endpoint));
            let size = batch.live(range.clone()).next().map_or(0, |index| batch.packet(index).len());
            let most = self.most(endpoint.remote, size);
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

    fn take_refusal(&mut self) -> Option<Errno> {
        self.refusal.take()
    }
}

impl Group {
    /// The range of its pieces in the list of all pieces.
    fn pieces(self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// Bytes of its datagrams: all but the last have the same size.
    fn bytes(self, packets: &[usize], batch: &Batch) -> usize {
        let last = batch.packet(packets[self.first + self.count - 1]).len();
        (self.count - 1) * self.size + last
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

    /// Adds a packet to the last group, if both fit into one send.
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

/// Calls `sendmmsg(2)`; returns the number of groups sent, at least one.
fn send_groups(
    fd: BorrowedFd<'_>,
    groups: &[Group],
    packets: &[usize],
    batch: &Batch,
) -> Result<usize, Errno> {
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
        for &index in &packets[group.pieces()] {
            let bytes = batch.packet(index);
            pieces.push(libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() });
        }
    }
    let mut first = 0;
    for ((group, name), control) in groups.iter().zip(&mut names).zip(&mut controls) {
        // SAFETY: plain data, for which all zeros is a valid value.
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
    let sent = unsafe {
        let count = headers.len() as libc::c_uint;
        libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
    };
    if sent < 0 { Err(last_error()) } else { Ok(sent as usize) }
}

#[cfg(test)]
mod tests {
    use super::super::socket::OWN;
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::net::UdpSocket;
    use std::time::Duration;

    /// A sending half that may use GSO, its socket, and where its datagrams arrive.
    fn sender() -> (UdpTransmit, Arc<UdpSockets>, UdpSocket) {
        let offloads = Arc::new(Offloads::default());
        let sockets = Arc::new(UdpSockets::bind(0, 0, &offloads).expect("loopback is there"));
        let slot = Arc::new(Some(Arc::clone(&sockets)).into());
        let to = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
        to.set_read_timeout(Some(Duration::from_secs(5))).expect("not zero");
        (UdpTransmit::new(slot, offloads), sockets, to)
    }

    /// Sends a train of twenty datagrams; tells how many were lost.
    fn send(transmit: &mut UdpTransmit, to: SocketAddr, size: usize) -> u64 {
        let (mut batch, drops) = (Batch::new(64 * 1024), DropCounters::default());
        for number in 0..20 {
            batch.append(size).expect("it fits").fill(number);
        }
        batch.close_train(0, Some(Endpoint::new(to)), 0);
        transmit.transmit(&mut batch, &drops);
        drops.read(DropReason::SendFailed)
    }

    #[test]
    fn an_error_that_every_datagram_would_get_is_not_retried() {
        let (mut transmit, _, _) = sender();
        // EACCES: broadcast is not enabled on this socket.
        let lost = send(&mut transmit, "127.255.255.255:9".parse().expect("literal"), 100);
        assert_eq!((lost, transmit.offloads.udp_gso.counters()), (20, (0, 0, 0)));
        assert_eq!((transmit.take_refusal(), transmit.take_refusal()), (Some(Errno::ACCESS), None));
        assert!(transmit.narrow.is_empty());
    }

    #[test]
    fn a_path_that_refuses_segments_is_remembered_for_a_while() {
        let (mut transmit, sockets, receiver) = sender();
        if !transmit.offloads.udp_gso.is_on() {
            return eprintln!("SKIPPED: this kernel has no UDP_SEGMENT");
        }
        let to = receiver.local_addr().expect("bound");
        let arrived = |size: usize| {
            let arrived = (0..20).map(|_| receiver.recv(&mut [0; 2000]).expect("one is there"));
            arrived.filter(|&length| length == size).count()
        };
        // EINVAL: without checksums, segmentation is not possible. A narrow path fails in the same way.
        sockets.set_no_check(true).expect("any socket has it");
        for _ in 0..3 {
            assert_eq!((send(&mut transmit, to, 500), arrived(500)), (0, 20));
        }
        assert_eq!(transmit.offloads.udp_gso.counters(), (0, 0, 1), "one refusal is remembered");
        sockets.set_no_check(false).expect("any socket has it");
        assert_eq!((send(&mut transmit, to, 400), arrived(400)), (0, 20));
        assert_eq!(transmit.offloads.udp_gso.counters(), (1, 20, 1), "smaller segments are still used");
        for _ in 0..TRAINS - 2 {
            assert_eq!((send(&mut transmit, to, 500), arrived(500)), (0, 20));
        }
        assert_eq!((send(&mut transmit, to, 500), arrived(500)), (0, 20));
        assert_eq!(transmit.offloads.udp_gso.counters(), (2, 40, 1), "the size is tried again later");
    }

    #[test]
    fn an_own_socket_has_the_same_address_and_port_and_receives_nothing() {
        for host in ["127.0.0.1", "::1"] {
            let (mut transmit, sockets, _) = sender();
            let receiver = UdpSocket::bind((host, 0)).expect("loopback is there");
            receiver.set_read_timeout(Some(Duration::from_secs(30))).expect("not zero");
            let to = receiver.local_addr().expect("bound");
            let path = Path { remote: to, binding: 0 };
            assert_eq!(transmit.congestion.full(&sockets, &path), Full::Again);
            assert!(transmit.congestion.own(&path).is_some() && sockets.own(&path).len() == OWN);
            assert_eq!(send(&mut transmit, to, 100), 0);
            let (_, source) = receiver.recv_from(&mut [0; 100]).expect("it arrives");
            assert_eq!(source, SocketAddr::new(to.ip(), sockets.port()));
            receiver.send_to(b"answer", source).expect("loopback sends");
            let shared = sockets.fd(&Path { remote: source, binding: 0 }, 0, None).expect("it is open");
            let readable = &mut [PollFd::from_borrowed_fd(shared, PollFlags::IN)];
            let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
            assert_eq!(poll(readable, Some(&limit)), Ok(1), "the shared socket has the answer");
            let unauthenticated = UdpSocket::bind((host, source.port()));
            assert!(unauthenticated.is_err(), "the port is still ours alone");
        }
    }

    #[test]
    fn peers_get_unused_sockets_as_long_as_there_are_some() {
        let (mut transmit, sockets, _) = sender();
        let path = |port: u16| Path { remote: ([192, 0, 2, 1], port).into(), binding: 0 };
        let remotes: Vec<Path> = (0..OWN as u16 + 3).map(path).collect();
        for remote in &remotes {
            assert_eq!(transmit.congestion.full(&sockets, remote), Full::Again);
        }
        let numbers: Vec<_> = remotes.iter().filter_map(|remote| transmit.congestion.own(remote)).collect();
        let different: std::collections::BTreeSet<_> = numbers[..OWN].iter().collect();
        assert_eq!((different.len(), numbers.len()), (OWN, remotes.len()), "further peers share sockets");
        assert_eq!(
            transmit.congestion.full(&sockets, &remotes[1]),
            Full::Drop,
            "another peer was sent to just now"
        );
    }

    #[test]
    fn the_number_of_remembered_paths_is_limited() {
        let (mut transmit, ..) = sender();
        for port in 0..3 * NARROW as u16 {
            transmit.remember(([192, 0, 2, 1], port).into(), 1400);
            transmit.remember(([192, 0, 2, 1], port).into(), 1300);
        }
        assert_eq!(transmit.narrow.len(), NARROW);
        let last = transmit.narrow.last().map(|path| (path.remote.port(), path.size));
        assert_eq!(last, Some((3 * NARROW as u16 - 1, 1300)));
    }
}
