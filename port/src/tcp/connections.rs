//! The TCP connections of an interface, and the sockets that listen.
//!
//! ```text
//! listen ──> accept (receiving worker) ──> packets ──> trust (slow path: its session has authenticated)
//! connect (slow path) ─────────────────────┘   │
//!                 end of the stream, deadline ─┴──> ended: told to the slow path, which ends the session
//! ```
//! A connection is known by the peer's address and port. It keeps its entry until the slow path has been told of its end.

use super::connection::{Connection, Sent};
use super::framing;
use super::pending::Pending;
use packet::{Batch, DropCounters, DropReason};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// How long a connection may take to send its first packet: silent ones must not keep others out for long.
const SILENCE: Duration = Duration::from_secs(10);
/// How long no connection is accepted after an error: usually there is no descriptor.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How long the peer has to read what it was told last.
const FAREWELL: Duration = Duration::from_secs(5);
/// The longest packet of a session, and of a connection that has not authenticated: a control packet.
const LONGEST: usize = 65_535;
const LONGEST_PENDING: usize = 2048;

/// The numbers of connections begin here; those below are of sockets that listen.
const FIRST: u64 = 1 << 32;

/// Takes a connection that is not OpenVPN, with what it has sent; false if there are too many. Never waits.
type Share = Box<dyn Fn(OwnedFd, SocketAddr, Vec<u8>) -> bool + Send + Sync>;

/// The connections; shared by the workers and the slow path.
pub struct TcpConnections {
    epoll: OwnedFd,
    state: RwLock<State>,
    /// Packets that wait for a slow peer (`tcp-queue-limit`).
    queue_limit: AtomicUsize,
    /// Tells the slow path that a connection has ended, or has a deadline.
    tell: Box<dyn Fn() + Send + Sync>,
    /// Who gets connections that are not OpenVPN, if they do not just end.
    share: OnceLock<Share>,
}

#[derive(Default)]
struct State {
    listeners: Vec<OwnedFd>,
    next: u64,
    by_number: HashMap<u64, Arc<Connection>>,
    by_remote: HashMap<SocketAddr, Arc<Connection>>,
    /// Connections that have not authenticated, or that are to end.
    deadlines: BTreeMap<(Instant, u64), Arc<Connection>>,
    /// The deadline of each of them.
    deadline_of: HashMap<u64, Instant>,
    /// When connections are accepted again, after an error.
    accepts_at: Option<Instant>,
    pending: Pending,
    /// How long a connection may take to authenticate.
    window: Duration,
    ended: Vec<(Arc<Connection>, Option<Errno>)>,
}

impl TcpConnections {
    /// No connections, and no sockets.
    pub fn new(tell: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let state = RwLock::new(State { next: FIRST, ..State::default() });
        Ok(Self {
            epoll,
            state,
            queue_limit: AtomicUsize::new(0),
            tell: Box::new(tell),
            share: OnceLock::new(),
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Limits the packets that wait for a slow peer.
    pub fn set_queue_limit(&self, packets: usize) {
        self.queue_limit.store(packets, Ordering::Relaxed);
    }

    /// Accepts connections on bound sockets, which have `window` to authenticate.
    pub fn listen(&self, sockets: Vec<OwnedFd>, window: Duration) -> io::Result<()> {
        for (number, socket) in sockets.iter().enumerate() {
            let number = EventData::new_u64(number as u64);
            epoll::add(&self.epoll, socket, number, EventFlags::IN)?;
        }
        let mut state = self.write();
        state.listeners = sockets;
        state.window = window;
        Ok(())
    }

    /// Opens a connection with a socket that connects. Packets wait until the peer accepts it; if it does not, the connection
    /// has ended.
    pub fn connect(&self, remote: SocketAddr, socket: OwnedFd) -> io::Result<()> {
        let mut state = self.write();
        // An earlier connection with the same server, which may not have ended yet.
        state.ended.retain(|(connection, _)| connection.remote != remote);
        if let Some(earlier) = state.by_remote.get(&remote).map(Arc::clone) {
            earlier.end();
            state.forget(&earlier);
        }
        let connection = state.add(remote, socket, true);
        let number = EventData::new_u64(connection.number);
        let added = epoll::add(&self.epoll, &connection.socket, number, EventFlags::IN | EventFlags::OUT);
        if let Err(error) = added {
            state.forget(&connection);
            return Err(error.into());
        }
        Ok(())
    }

    /// The session of a connection has authenticated: it may stay, and send packets of any length. Returns whether there is
    /// such a connection.
    pub fn trust(&self, remote: SocketAddr) -> bool {
        let mut state = self.write();
        let Some(connection) = state.by_remote.get(&remote).map(Arc::clone) else { return false };
        state.no_longer_pending(&connection);
        true
    }

    /// Ends a connection after what waits to be sent, as its session has ended.
    pub fn finish(&self, remote: SocketAddr) {
        let mut state = self.write();
        let Some(connection) = state.by_remote.get(&remote).map(Arc::clone) else { return };
        connection.finish();
        state.set_deadline(Instant::now() + FAREWELL, connection);
    }

    /// The time to the next deadline, of a connection that has not authenticated or is to end.
    pub fn next_timeout(&self) -> Option<Duration> {
        let state = self.read();
        let first = state.deadlines.first_key_value().map(|((at, _), _)| *at);
        let at = first.into_iter().chain(state.accepts_at).min()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Ends connections whose time is over.
    pub fn handle_timeout(&self) {
        let now = Instant::now();
        let mut over = Vec::new();
        let mut state = self.write();
        while let Some(entry) = state.deadlines.first_entry()
            && entry.key().0 <= now
        {
            let connection = entry.remove();
            state.deadline_of.remove(&connection.number);
            over.push(connection);
        }
        if state.accepts_at.is_some_and(|at| at <= now) {
            state.accepts_at = None;
            self.watch_listeners(&state, EventFlags::IN);
        }
        // Workers that send wait for the lock: no system call for each connection below it.
        drop(state);
        for connection in over {
            connection.end();
        }
    }

    /// A connection has sent a packet: it may take longer to authenticate than a silent one.
    pub(super) fn spoke(&self, connection: &Arc<Connection>) {
        let mut state = self.write();
        if let Some(before) = state.deadline_of.get(&connection.number).copied() {
            let at = before + state.window.saturating_sub(SILENCE);
            state.set_deadline(at, Arc::clone(connection));
        }
    }

    fn watch_listeners(&self, state: &State, events: EventFlags) {
        for (number, socket) in state.listeners.iter().enumerate() {
            let _ = epoll::modify(&self.epoll, socket, EventData::new_u64(number as u64), events);
        }
    }

    /// Connections that have ended since the last call, with the error that ended each. They are forgotten.
    pub fn ended_since(&self) -> Vec<(SocketAddr, Option<Errno>)> {
        if self.read().ended.is_empty() {
            return Vec::new();
        }
        let mut state = self.write();
        let ended = std::mem::take(&mut state.ended);
        for (connection, _) in &ended {
            state.forget(connection);
        }
        // The sockets are closed after this, without the lock.
        drop(state);
        ended.into_iter().map(|(connection, error)| (connection.remote, error)).collect()
    }

    /// Ends all connections, and closes the sockets that listen. The slow path is told of the ends: a session may wait for a
    /// verdict.
    pub fn close(&self) {
        let mut state = self.write();
        for socket in std::mem::take(&mut state.listeners) {
            let _ = epoll::delete(&self.epoll, &socket);
        }
        state.accepts_at = None;
        for connection in std::mem::take(&mut state.by_number).into_values() {
            let _ = epoll::delete(&self.epoll, &connection.socket);
            connection.finish();
            state.ended.push((connection, None));
        }
        drop(state);
        (self.tell)();
    }

    pub(super) fn connection(&self, number: u64) -> Option<Arc<Connection>> {
        self.read().by_number.get(&number).map(Arc::clone)
    }

    /// Sends packets of a batch on the connection with an address, if there is one; `spare` more may wait than the limit says.
    pub(super) fn send(
        &self,
        remote: &SocketAddr,
        batch: &mut Batch,
        packets: Range<usize>,
        spare: usize,
        drops: &DropCounters,
    ) -> bool {
        let Some(connection) = self.read().by_remote.get(remote).map(Arc::clone) else { return false };
        let limit = self.queue_limit.load(Ordering::Relaxed) + spare;
        let watch = || self.watch(&connection, EventFlags::IN | EventFlags::OUT);
        if connection.send(batch, packets, limit, drops, watch) == Sent::Broken {
            connection.end();
        }
        true
    }

    /// Waits for these events of a connection.
    fn watch(&self, connection: &Connection, events: EventFlags) {
        // The connection may have ended meanwhile.
        let _ = epoll::modify(&self.epoll, &connection.socket, EventData::new_u64(connection.number), events);
    }

    /// Handles a writable socket: the connection was opened, or packets wait.
    pub(super) fn writable(&self, connection: &Arc<Connection>) -> Result<(), Errno> {
        if connection.is_connecting.load(Ordering::Relaxed) {
            sockopt::socket_error(&connection.socket)??;
            connection.is_connecting.store(false, Ordering::Relaxed);
        }
        match connection.flush(|| self.watch(connection, EventFlags::IN)) {
            Sent::Broken => Err(Errno::PIPE),
            Sent::All | Sent::Waits => Ok(()),
        }
    }

    /// A connection has ended.
    pub(super) fn ended(&self, connection: &Arc<Connection>, error: Option<Errno>) {
        let _ = epoll::delete(&self.epoll, &connection.socket);
        connection.end();
        let mut state = self.write();
        if state.by_number.remove(&connection.number).is_some() {
            state.ended.push((Arc::clone(connection), error));
            drop(state);
            (self.tell)();
        }
    }

    /// Gives connections that are not OpenVPN to `share`, which says whether it has taken one, and never waits.
    pub fn share_with(&self, share: impl Fn(OwnedFd, SocketAddr, Vec<u8>) -> bool + Send + Sync + 'static) {
        // It is set once, before the port is open.
        let _ = self.share.set(Box::new(share));
    }

    /// What a connection has sent, if it is not OpenVPN and another server gets it.
    pub(super) fn foreign(&self, connection: &Connection, begun: &[u8]) -> Option<Vec<u8>> {
        let is_first = !connection.has_spoken.load(Ordering::Relaxed);
        let is_foreign =
            is_first && self.share.get().is_some() && framing::is_foreign(begun, LONGEST_PENDING);
        is_foreign.then(|| begun.to_vec())
    }

    /// Gives a connection away, and forgets it: it never had a session.
    pub(super) fn hand_over(&self, connection: &Connection, begun: Vec<u8>, drops: &DropCounters) {
        let _ = epoll::delete(&self.epoll, &connection.socket);
        self.write().forget(connection);
        let taken = connection.socket.try_clone().is_ok_and(|socket| {
            self.share.get().is_some_and(|share| share(socket, connection.remote, begun))
        });
        if !taken {
            connection.end();
            drops.count(DropReason::TooManyConnections, 1);
        }
    }

    /// Accepts the next connection; false if none waits.
    pub(super) fn accept(&self, listener: u64, drops: &DropCounters) -> bool {
        let accepted = {
            let state = self.read();
            let Some(socket) = state.listeners.get(listener as usize) else { return false };
            super::socket::accept(socket.as_fd())
        };
        match accepted {
            Ok(Some((socket, remote))) => self.accepted(socket, remote, drops),
            Ok(None) => return false,
            // No descriptor or no memory: the connection whose deadline is next makes room, and no other is accepted for a moment.
            Err(_) => {
                let mut state = self.write();
                state.accepts_at = Some(Instant::now() + ACCEPT_AGAIN);
                self.watch_listeners(&state, EventFlags::empty());
                let oldest = state.deadlines.pop_first();
                if let Some((_, connection)) = &oldest {
                    state.deadline_of.remove(&connection.number);
                }
                drop(state);
                if let Some((_, connection)) = oldest {
                    self.ended(&connection, None);
                }
                (self.tell)();
                return false;
            }
        }
        true
    }

    fn accepted(&self, socket: OwnedFd, remote: SocketAddr, drops: &DropCounters) {
        let mut state = self.write();
        if state.listeners.is_empty() {
            return;
        }
        // A connection whose end the slow path has not seen may have had the same address.
        if state.by_remote.contains_key(&remote) || !state.pending.add(remote) {
            return drops.count(DropReason::TooManyConnections, 1);
        }
        let connection = state.add(remote, socket, false);
        let number = EventData::new_u64(connection.number);
        if epoll::add(&self.epoll, &connection.socket, number, EventFlags::IN).is_err() {
            return state.forget(&connection);
        }
        let is_first = state.deadlines.is_empty();
        let at = Instant::now() + SILENCE.min(state.window);
        state.set_deadline(at, connection);
        if is_first {
            (self.tell)();
        }
    }
}

impl State {
    fn add(&mut self, remote: SocketAddr, socket: OwnedFd, is_connecting: bool) -> Arc<Connection> {
        let connection = Arc::new(Connection::new(self.next, remote, socket, is_connecting));
        self.next += 1;
        self.by_number.insert(connection.number, Arc::clone(&connection));
        self.by_remote.insert(remote, Arc::clone(&connection));
        connection
    }

    /// Sets when a connection is to end, in place of an earlier deadline.
    fn set_deadline(&mut self, at: Instant, connection: Arc<Connection>) {
        if let Some(before) = self.deadline_of.insert(connection.number, at) {
            self.deadlines.remove(&(before, connection.number));
        }
        self.deadlines.insert((at, connection.number), connection);
    }

    fn forget(&mut self, connection: &Connection) {
        self.by_number.remove(&connection.number);
        if self.by_remote.get(&connection.remote).is_some_and(|other| other.number == connection.number) {
            self.by_remote.remove(&connection.remote);
        }
        self.no_longer_pending(connection);
    }

    /// A connection has authenticated, or has ended.
    fn no_longer_pending(&mut self, connection: &Connection) {
        if let Some(at) = self.deadline_of.remove(&connection.number) {
            self.deadlines.remove(&(at, connection.number));
        }
        if !connection.is_trusted.swap(true, Ordering::Relaxed) {
            self.pending.remove(connection.remote);
        }
    }
}

/// The longest packet that a connection may send.
pub(super) fn longest(connection: &Connection) -> usize {
    if connection.is_trusted.load(Ordering::Relaxed) { LONGEST } else { LONGEST_PENDING }
}
