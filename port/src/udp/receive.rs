//! Receives datagrams.
#![expect(unsafe_code, reason = "recvmmsg takes buffers by address")]

use super::control::{Control, Name, endpoint};
use super::last_error;
use super::socket::{MOST_RECEIVING, SocketSlot, UdpSockets};
use crate::moderation::Moderation;
use crate::{Offloads, Pace, Receive, Tally, Wake};
use arc_swap::Guard;
use arrayvec::ArrayVec;
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
/// After this number of bursts without a wait, empty sockets are tried again: another one may always be busy.
const PATIENCE: u32 = 16;
/// A socket that fails at every call is not used for this time.
const PAUSE: Duration = Duration::from_millis(10);
/// The size of a batch: the data of one call.
pub const BATCH_BYTES: usize = MESSAGES * STRIDE;

/// Receives datagrams on the sockets of an interface: IPv4 and IPv6 of the first binding, then of the next.
pub struct UdpReceive {
    slot: SocketSlot,
    /// The number of the receiving thread, which has sockets of its own.
    thread: usize,
    offloads: Arc<Offloads>,
    /// The sockets of the last burst.
    sockets: Option<Arc<UdpSockets>>,
    /// The state of each.
    states: ArrayVec<State, MOST_RECEIVING>,
    /// The socket tried first; it changes, so that none starves.
    first: usize,
    moderation: Moderation,
    /// Bursts since the last wait.
    bursts: u32,
    /// The number of receives in the next call.
    messages: usize,
    /// Where the kernel writes sources and control messages.
    names: [Name; MESSAGES],
    controls: [Control; MESSAGES],
    tally: Arc<Tally>,
}

/// What is known about a socket.
#[derive(Clone, Copy, Default)]
struct State {
    /// Whether it may have datagrams.
    is_ready: bool,
    /// The number of consecutive failures.
    failures: u32,
    /// Whether it had datagrams since all were empty.
    had: bool,
}

impl State {
    fn is_failing(self) -> bool {
        self.failures > 1
    }
}

impl UdpReceive {
    /// Receives on the sockets in `slot`; after a change, the worker must be woken with `Wake::notify`.
    pub fn new(slot: SocketSlot, offloads: Arc<Offloads>) -> Self {
        Self {
            slot,
            thread: 0,
            offloads,
            sockets: None,
            states: ArrayVec::new(),
            first: 0,
            moderation: Moderation::default(),
            bursts: 0,
            messages: MESSAGES,
            names: [Name::new(); MESSAGES],
            controls: [Control::new(); MESSAGES],
            tally: Arc::default(),
        }
    }

    /// Receives on the sockets of this thread: 0 is the first, which has those of further bindings, too.
    #[must_use]
    pub fn of_thread(self, thread: usize) -> Self {
        Self { thread, ..self }
    }

    /// Counts its calls in `tally`.
    #[must_use]
    pub fn counted(self, tally: Arc<Tally>) -> Self {
        Self { tally, ..self }
    }

    /// Switches to new sockets, if `slot` has changed.
    fn follow(&mut self) {
        let current = self.slot.load();
        if current.as_ref().map(Arc::as_ptr) != self.sockets.as_ref().map(Arc::as_ptr) {
            self.sockets = Guard::into_inner(current);
            let count = self.sockets.as_ref().map_or(0, |sockets| sockets.receiving(self.thread));
            let new = State { is_ready: true, ..State::default() };
            self.states = std::iter::repeat_n(new, count).take(MOST_RECEIVING).collect();
            self.first = 0;
        }
    }

    /// Makes one call on one socket; returns whether it may have more datagrams.
    fn receive_from(
        &mut self,
        fd: BorrowedFd<'_>,
        binding: u8,
        batch: &mut Batch,
        drops: &DropCounters,
    ) -> Result<bool, Errno> {
        let before = batch.len();
        let mut areas = ArrayVec::<Range<usize>, MESSAGES>::new();
        while areas.len() < self.messages {
            let Some(area) = batch.take(STRIDE) else { break };
            areas.push(area);
        }
        let asked = areas.len();
        // What is read of control messages, the kernel has written.
        self.names[..asked].fill(Name::new());
        let lengths = receive_messages(fd, batch, &areas, &mut self.names, &mut self.controls)?;
        let received = lengths.len();
        let bytes = lengths.iter().map(|(length, _)| length.as_ref().unwrap_or(&0)).sum();
        self.tally.receive(bytes);
        for (index, &(length, control)) in lengths.iter().enumerate() {
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
            batch.close_train(first, endpoint(&self.names[index], &said, binding), said.ds_field);
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
    fn note(&mut self, number: usize, outcome: Option<Result<bool, Errno>>) {
        let state = &mut self.states[number];
        match outcome {
            Some(Err(error)) if error != Errno::AGAIN => {
                // A single error may belong to an earlier send, such as a refused connection. A second one in a row
                // belongs to the socket.
                state.failures = state.failures.saturating_add(1);
                state.is_ready = !state.is_failing();
            }
            outcome => {
                if matches!(outcome, Some(Err(_))) {
                    self.tally.empty();
                }
                state.failures = 0;
                state.had |= matches!(outcome, Some(Ok(_)));
                state.is_ready = matches!(outcome, Some(Ok(true)));
            }
        }
    }

    /// Leaves all sockets alone for a moment, if that is worthwhile; whether it was.
    fn pause(&mut self, wake: &Wake) -> io::Result<bool> {
        let mut had = [false; MOST_RECEIVING];
        self.states.iter_mut().zip(&mut had).for_each(|(state, had)| *had = std::mem::take(&mut state.had));
        let Some(pause) = Pace::now().pause() else { return Ok(false) };
        if !self.moderation.is_worthwhile(Instant::now(), pause) {
            return Ok(false);
        }
        let [] = wake.wait_at_most([], Some(pause))?;
        // The other sockets, too: the pause may have hidden their packets.
        for (number, state) in self.states.iter_mut().enumerate() {
            let is_open =
                self.sockets.as_ref().is_some_and(|sockets| sockets.receives(self.thread, number).is_some());
            state.is_ready = had[number] || is_open && !state.is_failing();
        }
        Ok(true)
    }
}

impl Receive for UdpReceive {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        let before = batch.len();
        self.follow();
        let Some(sockets) = self.sockets.clone() else { return Ok(0) };
        self.bursts += 1;
        if self.bursts.is_multiple_of(PATIENCE) {
            self.states.iter_mut().for_each(|state| state.is_ready = true);
        }
        let count = self.states.len();
        for number in (self.first..count).chain(0..self.first) {
            if self.states[number].is_ready && batch.len() == before {
                let fd = sockets.receives(self.thread, number);
                let outcome = fd.map(|fd| self.receive_from(fd, (number / 2) as u8, batch, drops));
                self.note(number, outcome);
            }
        }
        self.first = (self.first + 1) % count;
        self.tally.burst(batch.len() - before);
        Ok(batch.len() - before)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        self.follow();
        if self.states.iter().all(|state| !state.is_ready) {
            if self.pause(wake)? {
                self.tally.wake_up();
                return Ok(());
            }
            let thread = self.thread;
            let waiting = |(number, state): (usize, &State)| {
                self.sockets.as_ref()?.receives(thread, number).filter(|_| !state.is_failing())
            };
            let waiting: ArrayVec<_, MOST_RECEIVING> = self.states.iter().enumerate().map(waiting).collect();
            let pause = self.states.iter().any(|state| state.is_failing()).then_some(PAUSE);
            let mut readable = [false; MOST_RECEIVING];
            wake.wait_for(&waiting, pause, &mut readable)?;
            self.tally.wake_up();
            for (state, readable) in self.states.iter_mut().zip(readable) {
                state.is_ready = readable || state.is_failing();
            }
            // The first packet of a burst is taken with those that follow at once.
            if let Some(pause) = Pace::now().pause().filter(|_| self.moderation.is_busy()) {
                let [] = wake.wait_at_most([], Some(pause))?;
                self.tally.wake_up();
            }
        }
        self.bursts = 0;
        Ok(())
    }
}

/// The length of each datagram, or the drop reason, and the length of its control messages.
type Lengths = ArrayVec<(Result<usize, DropReason>, usize), MESSAGES>;

/// `recvmmsg(2)` into the given areas of the batch, at most [`MESSAGES`].
fn receive_messages(
    fd: BorrowedFd<'_>,
    batch: &mut Batch,
    areas: &[Range<usize>],
    names: &mut [Name; MESSAGES],
    controls: &mut [Control; MESSAGES],
) -> Result<Lengths, Errno> {
    // Both are as long as there are areas: often it is one, and writing to all would be 2.5 KiB.
    let mut pieces = ArrayVec::<libc::iovec, MESSAGES>::new();
    let mut headers = ArrayVec::<libc::mmsghdr, MESSAGES>::new();
    for area in areas {
        let bytes = batch.area_mut(area.clone());
        pieces.push(libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() });
    }
    for ((piece, name), control) in pieces.iter_mut().zip(names).zip(controls) {
        // SAFETY: it is plain data, for which all zeros is a valid value.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_iov = piece;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_name = name.as_mut_ptr().cast();
        header.msg_hdr.msg_namelen = Name::capacity() as libc::socklen_t;
        header.msg_hdr.msg_control = control.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = Control::capacity() as _;
        headers.push(header);
    }
    // SAFETY: the headers point to areas of the batch, which do not overlap, to names and to
    // control buffers with their true sizes; all of them are borrowed until the call returns.
    let received = unsafe {
        let count = headers.len() as libc::c_uint;
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
    let said = headers.iter().take(received as usize).map(|header| {
        let length = match header.msg_len as usize {
            _ if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 => Err(DropReason::Truncated),
            0 => Err(DropReason::TooShort),
            length => Ok(length),
        };
        // The type of msg_controllen differs between C libraries.
        #[allow(clippy::unnecessary_cast)]
        let control = header.msg_hdr.msg_controllen as usize;
        (length, control)
    });
    Ok(said.collect())
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

    fn sockets(v4: Option<OwnedFd>, v6: Option<OwnedFd>) -> UdpSockets {
        UdpSockets { v4, v6, own: Default::default(), port: 0, of_threads: Vec::new(), further: Vec::new() }
    }

    fn receiver(v4: impl Into<OwnedFd>, v6: OwnedFd) -> (UdpReceive, Weak<UdpSockets>) {
        let sockets = Arc::new(sockets(Some(v4.into()), Some(v6)));
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
        receive.slot.store(Some(Arc::new(self::sockets(Some(v4.into()), None))));
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
