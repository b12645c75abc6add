//! The thread that sends probes, reads their answers, and answers those of others.
//!
//! ```text
//! orders ──> sessions ──> send what is due ──> wait ──> read answers and errors ──> what is shown
//! ```
//! It reads at most [`MOST_AT_ONCE`] datagrams of a socket before it goes on, so that a flood at the reflector delays probes little.

use super::model::{Paths, Reflector as Shown};
use super::monitor::{Orders, Shared, Sockets};
use super::reflector::{Arrival, Reflector};
use super::session::{Probe, Session};
use config::settings::PathProtocol;
use packet::header::echo::Echo;
use packet::header::stamp::{self, Reflected};
use port::probe::{Arrived, ProbeSocket, Way};
use rustix::io::Errno;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tunnel::Time;
use tunnel::timers::Timers;

/// Datagrams of a socket that are read before others have their turn.
const MOST_AT_ONCE: usize = 64;
/// How often results are shown, and interfaces are looked up.
const TICK: Duration = Duration::from_secs(1);
/// Headers of IPv4 and IPv6, and of UDP or ICMP echo.
const IP_HEADERS: [u32; 2] = [20, 40];
const UPPER_HEADER: u32 = 8;
/// What an echo request has behind its header: a token and the number of the probe.
const TOKEN: usize = 12;

/// The state of the thread.
pub(super) struct Thread {
    shared: Arc<Shared>,
    begun: Instant,
    sessions: Vec<Session>,
    /// The number that a session got last.
    number: NonZeroU16,
    /// The sessions of an address.
    by_address: HashMap<IpAddr, Vec<usize>>,
    /// Indices and MTUs of interfaces.
    links: HashMap<String, Option<(u32, u32)>>,
    sockets: Sockets,
    reflector: Reflector,
    /// Makes tokens that nobody can guess.
    keys: RandomState,
    /// Tells our echo requests from those of other programs.
    identifier: u16,
    /// When something is to be done for each session.
    timers: Timers<usize>,
    /// When results are shown next.
    tick: Duration,
    buffer: Vec<u8>,
}

impl Thread {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let keys = RandomState::new();
        Self {
            shared,
            begun: Instant::now(),
            sessions: Vec::new(),
            number: NonZeroU16::MAX,
            by_address: HashMap::new(),
            links: HashMap::new(),
            sockets: Sockets::default(),
            reflector: Reflector::new(1),
            identifier: keys.hash_one(0) as u16,
            keys,
            timers: Timers::default(),
            tick: Duration::ZERO,
            buffer: vec![0; 1 << 16],
        }
    }

    pub(super) fn run(mut self) {
        let _ending = Ending(Arc::clone(&self.shared));
        while !self.shared.is_stopped() {
            if let Some(orders) = self.shared.take_orders() {
                self.obey(orders);
            }
            let now = self.begun.elapsed();
            if now >= self.tick {
                self.tick = now + TICK;
                self.look_up_links();
                self.show();
            }
            self.probe();
            let next = self
                .timers
                .first()
                .map_or(self.tick, |at| Duration::from_nanos(at.nanoseconds()).min(self.tick));
            let limit = next.saturating_sub(self.begun.elapsed());
            if let Err(error) = self.wait(limit) {
                return tracing::error!("paths are measured no more: {error}");
            }
            self.read();
        }
    }

    fn wait(&self, limit: Duration) -> std::io::Result<()> {
        let all: Vec<BorrowedFd<'_>> = self.sockets.all().map(|socket| socket.as_fd()).collect();
        self.shared.wake().wait_for_any(&all, Some(limit), |_| ())
    }

    /// Takes over new orders. Targets that stay the same keep what is known of them.
    fn obey(&mut self, orders: Orders) {
        let now = self.begun.elapsed();
        let Orders { targets, sockets, rate, taken } = orders;
        let used: HashSet<NonZeroU16> = self.sessions.iter().map(|session| session.number).collect();
        let mut before: HashMap<String, Session> =
            self.sessions.drain(..).map(|session| (session.name.clone(), session)).collect();
        let count = targets.len().max(1) as u32;
        for (place, (name, target)) in targets.into_iter().enumerate() {
            let same = before.remove(&name).filter(|session| session.target == target);
            // They are spread over the interval.
            let first = now + Duration::from_secs(target.interval.into()) * place as u32 / count;
            let session = same.unwrap_or_else(|| {
                self.number = free_after(self.number, &used);
                Session::new(name, target, self.number, first)
            });
            self.sessions.push(session);
        }
        self.by_address.clear();
        self.timers.clear();
        for (number, session) in self.sessions.iter().enumerate() {
            self.by_address.entry(session.target.address).or_default().push(number);
            self.timers.set(number, Some(time(session.next())));
        }
        self.sockets = sockets;
        self.reflector.set_rate(rate);
        self.tick = now + TICK;
        self.look_up_links();
        self.show();
        // The one who ordered may have gone.
        let _ = taken.send(());
    }

    /// Finds the interfaces: they come and go, and their MTU changes.
    fn look_up_links(&mut self) {
        self.links.clear();
        let Some(socket) = self.sockets.any() else { return };
        for session in &mut self.sessions {
            let name = &session.target.interface;
            if !self.links.contains_key(name) {
                self.links.insert(name.clone(), socket.link(name));
            }
            if let Some(Some((_, mtu))) = self.links.get(name) {
                session.set_mtu(*mtu);
            }
        }
    }

    fn show(&self) {
        let counts = self.reflector.counts;
        let listen: Vec<String> = self.sockets.reflectors.keys().map(ToString::to_string).collect();
        self.shared.show(Paths {
            targets: self.sessions.iter().map(Session::shown).collect(),
            reflector: (!listen.is_empty()).then_some(Shown {
                listen,
                answered: counts.answered,
                malformed: counts.malformed,
                limited: counts.limited,
                unsent: counts.unsent,
            }),
        });
    }

    /// Sends the probes that are due, and gives up those without an answer.
    fn probe(&mut self) {
        while let Some(number) = self.timers.take_due(time(self.begun.elapsed())) {
            let now = self.begun.elapsed();
            self.sessions[number].expire(now);
            if let Some(probe) = self.sessions[number].due(now) {
                self.send(number, probe);
            }
            self.timers.set(number, Some(time(self.sessions[number].next())));
        }
    }

    fn send(&mut self, number: usize, probe: Probe) {
        let session = &mut self.sessions[number];
        let target = &session.target;
        let is_v4 = target.address.is_ipv4();
        let Some((interface, _)) = self.links.get(&target.interface).copied().flatten() else {
            return session.unsent(format!("there is no interface {}", target.interface));
        };
        let (socket, port) = match target.protocol {
            PathProtocol::Icmp => (&self.sockets.echo[usize::from(!is_v4)], 0),
            PathProtocol::Stamp(port) => (&self.sockets.senders[usize::from(!is_v4)], port),
        };
        let Some(socket) = socket.clone() else {
            return session.unsent("this machine has no such IP version".to_owned());
        };
        let way = Way { interface, source: target.source };
        let to = SocketAddr::new(target.address, port);
        let headers = IP_HEADERS[usize::from(!is_v4)] + UPPER_HEADER;
        let length = probe.size.map_or(0, |size| size.saturating_sub(headers) as usize);
        let mut bytes = Vec::with_capacity(length.max(stamp::LENGTH) + stamp::TLV_HEADER);
        let stamped = stamp::ntp(wall());
        let token = match target.protocol {
            PathProtocol::Icmp => {
                let token = self.keys.hash_one((session.number, probe.sequence));
                Echo::request(is_v4, self.identifier, probe.sequence as u16, &mut bytes, |out| {
                    out.extend_from_slice(&token.to_be_bytes());
                    out.extend_from_slice(&probe.sequence.to_be_bytes());
                    stamp::pad(token, length.saturating_sub(TOKEN), out);
                });
                token
            }
            PathProtocol::Stamp(_) => {
                stamp::Probe::new(probe.sequence, stamped, session.number.get()).emit(length, &mut bytes);
                stamped
            }
        };
        let mut sent = self.begun.elapsed();
        let mut outcome = socket.send(&bytes, to, way);
        if outcome.is_err() {
            // An error of a probe before is reported, and cleared, by the call that comes next.
            sent = self.begun.elapsed();
            outcome = socket.send(&bytes, to, way);
        }
        match outcome {
            Ok(()) => session.sent(probe, token, sent),
            // The interface's MTU has just been made smaller.
            Err(Errno::MSGSIZE) => {}
            Err(error) => session.unsent(format!("{}: {error}", target.interface)),
        }
    }

    /// Reads what has come.
    fn read(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for (place, socket) in self.sockets.measuring() {
            self.read_errors(&socket, place, &mut buffer);
            each(&socket, &mut buffer, |bytes, arrived| self.answered(&socket, place, bytes, arrived));
        }
        let reflectors = std::mem::take(&mut self.sockets.reflectors);
        for (at, socket) in &reflectors {
            each(socket, &mut buffer, |bytes, arrived| self.reflect(socket, at.port(), bytes, arrived));
        }
        self.sockets.reflectors = reflectors;
        self.buffer = buffer;
    }

    /// An answer to one of our probes, or a datagram that looks like one.
    fn answered(&mut self, socket: &ProbeSocket, place: Place, bytes: &mut [u8], arrived: &Arrived) {
        let now = self.begun.elapsed().saturating_sub(arrived.age);
        let Some(sessions) = self.by_address.get(&arrived.from.ip()) else { return };
        let read = match place {
            Place::Echo => read_echo(socket.is_v4(), self.identifier, bytes),
            Place::Sender => read_stamp(bytes),
        };
        let Some((sequence, token, held)) = read else { return };
        for number in sessions {
            let Some(session) = self.sessions.get_mut(*number) else { continue };
            let is_it = match (place, session.target.protocol) {
                (Place::Echo, PathProtocol::Icmp) => true,
                (Place::Sender, PathProtocol::Stamp(port)) => port == arrived.from.port(),
                _ => false,
            };
            if is_it && session.answered(sequence, token, now, held) {
                return self.timers.set(*number, Some(time(session.next())));
            }
        }
    }

    /// ICMP errors about our probes, and about echo requests of other programs.
    fn read_errors(&mut self, socket: &ProbeSocket, place: Place, buffer: &mut [u8]) {
        let now = self.begun.elapsed();
        for _ in 0..MOST_AT_ONCE {
            let Ok(Some(refused)) = socket.receive_error(buffer) else { return };
            let Some(mtu) = refused.mtu else { continue };
            let quoted = &buffer[..refused.length];
            let Some(sessions) = self.by_address.get(&refused.to) else { continue };
            for number in sessions {
                let Some(session) = self.sessions.get_mut(*number) else { continue };
                let is_found = match (place, session.target.protocol) {
                    (Place::Echo, PathProtocol::Icmp) => {
                        // Other programs send echo requests, too.
                        let Ok((echo, rest)) = Echo::quoted(socket.is_v4(), quoted) else { continue };
                        let token = rest.first_chunk().map(|token| u64::from_be_bytes(*token));
                        let is_it = |sequence: u32, sent: u64| {
                            sequence as u16 == echo.sequence.get() && token.is_none_or(|it| it == sent)
                        };
                        echo.identifier.get() == self.identifier && session.too_large(is_it, mtu, now)
                    }
                    (Place::Sender, PathProtocol::Stamp(_)) => {
                        let Some((sequence, of_session)) = stamp::quoted(quoted) else { continue };
                        of_session.is_none_or(|it| it == session.number.get())
                            && session.too_large(|it, _| it == sequence, mtu, now)
                    }
                    _ => false,
                };
                if is_found {
                    self.timers.set(*number, Some(time(session.next())));
                    break;
                }
            }
        }
    }

    /// A probe of another sender.
    fn reflect(&mut self, socket: &ProbeSocket, port: u16, bytes: &mut [u8], arrived: &Arrived) {
        let arrival =
            Arrival { from: arrived.from, port, ttl: arrived.hop_limit, wall: wall(), age: arrived.age };
        if !self.reflector.answer(bytes, &arrival, self.begun.elapsed()) {
            return;
        }
        let back = Way { interface: arrived.interface, source: arrived.to };
        match socket.send(bytes, arrived.from, back) {
            Ok(()) => self.reflector.counts.answered += 1,
            Err(_) => self.reflector.counts.unsent += 1,
        }
    }
}

/// Clears the results once the thread has ended, however it did: they are stale then.
pub(super) struct Ending(pub(super) Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.show(Paths::default());
    }
}

/// The next number that is not in use. There are far more numbers than sessions.
fn free_after(mut number: NonZeroU16, used: &HashSet<NonZeroU16>) -> NonZeroU16 {
    loop {
        number = number.checked_add(1).unwrap_or(NonZeroU16::MIN);
        if !used.contains(&number) {
            return number;
        }
    }
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Echo,
    Sender,
}

/// Reads the datagrams of a socket, not too many at once.
fn each(socket: &ProbeSocket, buffer: &mut [u8], mut take: impl FnMut(&mut [u8], &Arrived)) {
    for _ in 0..MOST_AT_ONCE {
        match socket.receive(buffer) {
            Ok(Some(arrived)) => take(&mut buffer[..arrived.length], &arrived),
            Ok(None) => return,
            // An ICMP error of a datagram that was sent: the call has cleared it.
            Err(_) => {}
        }
    }
}

/// The number and the token of an echo reply of ours. A raw socket of IPv4 gets the IP header, too.
fn read_echo(is_v4: bool, identifier: u16, bytes: &[u8]) -> Option<(u32, u64, Duration)> {
    let header = if is_v4 { usize::from(bytes.first()? & 15) * 4 } else { 0 };
    let (echo, rest) = Echo::reply(is_v4, bytes.get(header..)?).ok()?;
    let token = u64::from_be_bytes(*rest.first_chunk()?);
    let sequence = u32::from_be_bytes(*rest.get(8..)?.first_chunk()?);
    (echo.identifier.get() == identifier).then_some((sequence, token, Duration::ZERO))
}

/// The number and the token that a reflector repeats, and how long it had the probe.
fn read_stamp(bytes: &[u8]) -> Option<(u32, u64, Duration)> {
    let reflected = Reflected::parse(bytes).ok()?;
    let held = reflected.timestamp.get().saturating_sub(reflected.received.get());
    // Parts of 2^32 of a second.
    let held = Duration::from_nanos(((u128::from(held) * 1_000_000_000) >> 32) as u64);
    Some((reflected.sender_sequence.get(), reflected.sender_timestamp.get(), held))
}

/// A moment since the thread has begun, for timers.
pub(super) fn time(since: Duration) -> Time {
    Time::from_nanoseconds(since.as_nanos() as u64)
}

/// The time since 1970.
fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::super::monitor::Results;
    use super::super::tests::target;
    use super::*;
    use tokio::sync::oneshot;

    #[test]
    fn targets_that_stay_keep_their_number() {
        let orders = |names: &[&str]| {
            let targets = names.iter().map(|name| ((*name).to_owned(), target())).collect();
            Orders { targets, sockets: Sockets::default(), rate: 1, taken: oneshot::channel().0 }
        };
        let numbers = |thread: &Thread| -> Vec<(String, u16)> {
            thread.sessions.iter().map(|it| (it.name.clone(), it.number.get())).collect()
        };
        let mut thread = Thread::new(Arc::new(Shared::new(&Results::default()).expect("an event")));
        thread.obey(orders(&["b", "d"]));
        assert_eq!(numbers(&thread), [("b".to_owned(), 1), ("d".to_owned(), 2)]);
        thread.obey(orders(&["a", "b", "d"]));
        assert_eq!(numbers(&thread), [("a".to_owned(), 3), ("b".to_owned(), 1), ("d".to_owned(), 2)]);
    }

    #[test]
    fn numbers_of_sessions_are_never_zero_and_never_in_use() {
        let number = |it| NonZeroU16::new(it).expect("not zero");
        let used = HashSet::from([1, 2, 4, u16::MAX].map(number));
        assert_eq!(free_after(NonZeroU16::MAX, &HashSet::new()), number(1), "the first of all");
        assert_eq!(free_after(number(2), &used), number(3));
        assert_eq!(free_after(number(3), &used), number(5));
        assert_eq!(free_after(number(u16::MAX - 1), &used), number(3), "it begins anew");
    }
}
