//! Receives datagrams.
#![expect(unsafe_code, reason = "recvmmsg takes buffers by address")]

use super::control::{Control, Name, endpoint};
use super::last_error;
use super::socket::{SocketSlot, UdpSockets};
use crate::moderation::Moderation;
use crate::{Offloads, Pace, Receive, Wake};
use arc_swap::Guard;
use packet::{Batch, DropCounters, DropReason, Slab};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The largest receive: GRO merges no more than fits into an IP packet.
const LARGEST: usize = 65_536;
/// The distance between two receive areas: an odd number of cache lines more than a power of two. Otherwise the start
/// of all areas would share few cache sets; this makes small packets a third faster in memory.
const STRIDE: usize = LARGEST + 17 * Slab::ALIGNMENT;
/// Receives in one call, while each brings few packets: what a sender of single datagrams sends in a pause of [`Pace::USUAL`].
const MESSAGES: usize = 32;
/// If the receives of a call return this many packets on average, the next call is for a single receive: more data would
/// leave the cache before it is processed.
const BULK: usize = 16;
/// After this number of bursts without a wait, an empty socket is tried again: the other one may always be busy.
const PATIENCE: u32 = 16;
/// A socket that fails at every call is not used for this time.
const PAUSE: Duration = Duration::from_millis(10);
/// The size of a batch: the data of one call.
pub const BATCH_BYTES: usize = MESSAGES * STRIDE;

/// Receives datagrams on both sockets of an interface.
pub struct UdpReceive {
    slot: SocketSlot,
    offloads: Arc<Offloads>,
    /// The sockets of the last burst.
    sockets: Option<Arc<UdpSockets>>,
    /// Whether each may have datagrams: IPv4, IPv6.
    ready: [bool; 2],
    /// The number of consecutive failures of each.
    failures: [u32; 2],
    /// The socket tried first; it alternates, so that neither starves.
    first: usize,
    /// Which of them had datagrams since both were empty.
    had: [bool; 2],
    moderation: Moderation,
    /// Bursts since the last wait.
    bursts: u32,
    /// The number of receives in the next call.
    messages: usize,
    /// Where the kernel writes sources and control messages.
    names: [Name; MESSAGES],
    controls: [Control; MESSAGES],
}

impl UdpReceive {
    /// Receives on the sockets in `slot`; after a change, the worker must be woken with `Wake::notify`.
    pub fn new(slot: SocketSlot, offloads: Arc<Offloads>) -> Self {
        Self {
            slot,
            offloads,
            sockets: None,
            ready: [false; 2],
            failures: [0; 2],
            first: 0,
            had: [false; 2],
            moderation: Moderation::default(),
            bursts: 0,
            messages: MESSAGES,
            names: [Name::new(); MESSAGES],
            controls: [Control::new(); MESSAGES],
        }
    }

    /// Switches to new sockets, if `slot` has changed.
    fn follow(&mut self) {
        let current = self.slot.load();
        if current.as_ref().map(Arc::as_ptr) != self.sockets.as_ref().map(Arc::as_ptr) {
            self.sockets = Guard::into_inner(current);
            self.ready = [self.sockets.is_some(); 2];
            self.failures = [0; 2];
        }
    }

    /// Makes one call on one socket; returns whether it may have more datagrams.
    fn receive_from(
        &mut self,
        fd: BorrowedFd<'_>,
        batch: &mut Batch,
        drops: &DropCounters,
    ) -> Result<bool, Errno> {
        let before = batch.len();
        let mut areas: [Range<usize>; MESSAGES] = std::array::from_fn(|_| 0..0);
        let mut asked = 0;
        while asked < self.messages {
            let Some(area) = batch.take(STRIDE) else { break };
            areas[asked] = area;
            asked += 1;
        }
        // What is read of control messages, the kernel has written.
        self.names[..asked].fill(Name::new());
        let lengths = receive_messages(fd, batch, &areas[..asked], &mut self.names, &mut self.controls)?;
        let received = lengths.iter().flatten().count();
        for (index, &(length, control)) in lengths.iter().flatten().enumerate() {
            let length = match length {
                Ok(length) => length,
                Err(reason) => {
                    drops.count(reason, 1);
                    continue;
                }
            };
            let said = self.controls[index].read(control);
            let first = batch.len();
            let area = areas[index].start..areas[index].start + length;
            batch.segment(area, said.segment.unwrap_or(length));
            batch.close_train(first, endpoint(&self.names[index], &said), said.ds_field);
            if batch.len() - first > 1 {
                self.offloads.udp_gro.count(batch.len() - first);
            }
        }
        let packets = batch.len() - before;
        self.moderation.note(received, packets);
        self.messages = if packets >= BULK * received.max(1) { 1 } else { (self.messages * 2).min(MESSAGES) };
        Ok(received == asked)
    }

    /// Handles the outcome of a call on a socket.
    fn note(&mut self, version: usize, outcome: Option<Result<bool, Errno>>) {
        match outcome {
            Some(Err(error)) if error != Errno::AGAIN => {
                // A single error may belong to an earlier send, such as a refused connection. A second one in a row
                // belongs to the socket.
                self.failures[version] = self.failures[version].saturating_add(1);
                self.ready[version] = !self.is_failing(version);
            }
            outcome => {
                self.failures[version] = 0;
                self.had[version] |= matches!(outcome, Some(Ok(_)));
                self.ready[version] = matches!(outcome, Some(Ok(true)));
            }
        }
    }

    /// Leaves both sockets alone for a moment, if that is worthwhile; whether it was.
    fn pause(&mut self, wake: &Wake) -> io::Result<bool> {
        let had = std::mem::take(&mut self.had);
        let Some(pause) = Pace::now().pause() else { return Ok(false) };
        if !self.moderation.is_worthwhile(Instant::now(), pause) {
            return Ok(false);
        }
        let [] = wake.wait_at_most([], Some(pause))?;
        // The other socket, too: the pause may have hidden its packets.
        let both = self.sockets.as_ref().map_or([false; 2], |sockets| sockets.both().map(|fd| fd.is_some()));
        self.ready = [0, 1].map(|version| had[version] || both[version] && !self.is_failing(version));
        Ok(true)
    }

    fn is_failing(&self, version: usize) -> bool {
        self.failures[version] > 1
    }
}

impl Receive for UdpReceive {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        let before = batch.len();
        self.follow();
        let Some(sockets) = self.sockets.clone() else { return Ok(0) };
        self.bursts += 1;
        if self.bursts.is_multiple_of(PATIENCE) {
            self.ready = [true; 2];
        }
        for version in [self.first, 1 - self.first] {
            if self.ready[version] && batch.len() == before {
                let fd = sockets.both()[version];
                let outcome = fd.map(|fd| self.receive_from(fd, batch, drops));
                self.note(version, outcome);
            }
        }
        self.first = 1 - self.first;
        Ok(batch.len() - before)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        self.follow();
        if self.ready == [false; 2] {
            if self.pause(wake)? {
                return Ok(());
            }
            let failing = [0, 1].map(|version| self.is_failing(version));
            let both = self.sockets.as_ref().map_or([None; 2], |sockets| sockets.both());
            let waiting = [0, 1].map(|version| both[version].filter(|_| !failing[version]));
            let pause = failing.contains(&true).then_some(PAUSE);
            let readable = wake.wait_at_most(waiting, pause)?;
            self.ready = [0, 1].map(|version| readable[version] || failing[version]);
            // The first packet of a burst is taken with those that follow at once.
            if let Some(pause) = Pace::now().pause().filter(|_| self.moderation.is_busy()) {
                let [] = wake.wait_at_most([], Some(pause))?;
            }
        }
        self.bursts = 0;
        Ok(())
    }
}

/// The length of a datagram, or the drop reason, and the length of its control messages.
type Lengths = [Option<(Result<usize, DropReason>, usize)>; MESSAGES];

/// `recvmmsg(2)` into the given areas of the batch.
fn receive_messages(
    fd: BorrowedFd<'_>,
    batch: &mut Batch,
    areas: &[Range<usize>],
    names: &mut [Name; MESSAGES],
    controls: &mut [Control; MESSAGES],
) -> Result<Lengths, Errno> {
    // SAFETY: both are plain data, for which all zeros is a valid value.
    let (mut headers, mut pieces): ([libc::mmsghdr; MESSAGES], [libc::iovec; MESSAGES]) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    for (index, area) in areas.iter().enumerate() {
        let bytes = batch.area_mut(area.clone());
        pieces[index] = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let header = &mut headers[index].msg_hdr;
        header.msg_iov = &raw mut pieces[index];
        header.msg_iovlen = 1;
        header.msg_name = names[index].as_mut_ptr().cast();
        header.msg_namelen = Name::capacity() as libc::socklen_t;
        header.msg_control = controls[index].as_mut_ptr().cast();
        header.msg_controllen = Control::capacity() as _;
    }
    // SAFETY: the first `areas.len()` headers point to areas of the batch, which do not overlap, to names and to
    // control buffers with their true sizes; all of them are borrowed until the call returns.
    let received = unsafe {
        let count = areas.len() as libc::c_uint;
        libc::recvmmsg(
            fd.as_raw_fd(),
            headers.as_mut_ptr(),
            count,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    if received < 0 {
        return Err(last_error());
    }
    Ok(std::array::from_fn(|index| {
        let header = &headers[index];
        let length = match header.msg_len as usize {
            _ if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 => Err(DropReason::Truncated),
            0 => Err(DropReason::TooShort),
            length => Ok(length),
        };
        // The type of msg_controllen differs between C libraries.
        #[allow(clippy::unnecessary_cast)]
        let control = header.msg_hdr.msg_controllen as usize;
        (index < received as usize).then_some((length, control))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
    use std::collections::HashSet;
    use std::net::UdpSocket;
    use std::os::fd::OwnedFd;
    use std::sync::Weak;
    use std::time::Instant;

    /// A socket pair: one end replaces a UDP socket.
    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::NONBLOCK, None).expect("works")
    }

    fn receiver(v4: impl Into<OwnedFd>, v6: OwnedFd) -> (UdpReceive, Weak<UdpSockets>) {
        let sockets =
            Arc::new(UdpSockets { v4: Some(v4.into()), v6: Some(v6), own: Default::default(), port: 0 });
        let weak = Arc::downgrade(&sockets);
        (UdpReceive::new(Arc::new(Some(sockets).into()), Arc::default()), weak)
    }

    /// One burst: the received packets, and the drops.
    fn burst(receive: &mut UdpReceive) -> (Vec<Vec<u8>>, DropCounters) {
        let (mut batch, drops) = (Batch::new(BATCH_BYTES), DropCounters::default());
        receive.receive(&mut batch, &drops).expect("an error of one socket does not end the port");
        (batch.live(0..batch.len()).map(|index| batch.packet(index).to_vec()).collect(), drops)
    }

    /// An IPv4 socket that always has more datagrams than one burst can take.
    fn busy() -> (UdpSocket, impl Fn()) {
        let v4 = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
        let (to, from) = (v4.local_addr().expect("bound"), UdpSocket::bind("127.0.0.1:0").expect("as above"));
        (v4, move || (0..2 * MESSAGES).for_each(|_| _ = from.send_to(b"four", to).expect("loopback sends")))
    }

    #[test]
    fn one_version_does_not_starve_the_other() {
        let (v4, fill) = busy();
        let (v6, peer) = pair();
        let (mut receive, _) = receiver(v4, v6);
        for _ in 0..3 {
            fill();
            burst(&mut receive);
        }
        send(&peer, b"six", SendFlags::empty()).expect("there is room");
        let arrived = (0..2 * PATIENCE).find(|_| {
            fill();
            burst(&mut receive).0.contains(&b"six".to_vec())
        });
        assert!(arrived.is_some(), "no wait is needed for it");
    }

    #[test]
    fn replaced_sockets_are_released_under_load() {
        let (v4, fill) = busy();
        let (mut receive, sockets) = receiver(v4, pair().0);
        fill();
        assert!(!burst(&mut receive).0.is_empty());
        let (v4, fill) = busy();
        fill();
        receive.slot.store(Some(Arc::new(UdpSockets {
            v4: Some(v4.into()),
            v6: None,
            own: Default::default(),
            port: 0,
        })));
        assert!(!burst(&mut receive).0.is_empty(), "the new sockets are used at once");
        assert!(sockets.upgrade().is_none());
        receive.slot.store(None);
        assert!(burst(&mut receive).0.is_empty());
    }

    #[test]
    fn a_socket_that_always_fails_costs_no_time_and_stops_no_other() {
        // Always readable, but not a socket.
        let broken = eventfd(1, EventfdFlags::NONBLOCK).expect("there are descriptors left");
        let (v6, peer) = pair();
        let (mut receive, _) = receiver(broken, v6);
        let (wake, start) = (Wake::new().expect("there are descriptors left"), Instant::now());
        let mut bursts = 0;
        while start.elapsed() < 10 * PAUSE {
            burst(&mut receive);
            receive.wait(&wake).expect("poll works");
            bursts += 1;
        }
        assert!(bursts < 30, "{bursts}");
        send(&peer, b"six", SendFlags::empty()).expect("there is room");
        assert!((0..3).any(|_| {
            receive.wait(&wake).expect("poll works");
            burst(&mut receive).0 == [b"six"]
        }));
    }

    #[test]
    fn packets_of_one_call_do_not_share_cache_sets() {
        let (v4, peer) = pair();
        let (mut receive, _) = receiver(v4, pair().0);
        (0..8).for_each(|_| _ = send(&peer, b"one", SendFlags::empty()).expect("there is room"));
        let mut batch = Batch::new(BATCH_BYTES);
        assert_eq!(receive.receive(&mut batch, &DropCounters::default()).expect("readable"), 8);
        // On most machines a page is as large as one way of the first-level cache.
        let lines = (0..8).map(|index| batch.packet(index).as_ptr().addr() % 4096 / Slab::ALIGNMENT);
        assert_eq!(lines.collect::<HashSet<_>>().len(), 8);
    }

    #[test]
    fn truncated_and_empty_datagrams_are_counted() {
        let (v4, peer) = pair();
        let (mut receive, _) = receiver(v4, pair().0);
        for length in [STRIDE + 1, 0, 3] {
            send(&peer, &vec![7; length], SendFlags::empty()).expect("there is room");
        }
        let (packets, drops) = burst(&mut receive);
        assert_eq!(packets, [[7; 3]]);
        assert_eq!((drops.read(DropReason::Truncated), drops.read(DropReason::TooShort)), (1, 1));
    }
}
