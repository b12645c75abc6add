//! A crowd of IPsec sites in one thread, each with an address and an identity of its own: what calls a gateway from
//! thousands of places.
//!
//! ```text
//! prepare: first messages are made ──> call: INIT, AUTH, and whatever is asked for in between ──> a Child SA each
//!                                  ──> rekey: CREATE_CHILD_SA with a key exchange, DELETE    ──> another each
//! ```

mod configuration;

pub use configuration::{
    End, GATEWAY, GATEWAY_IDENTITY, GATEWAY_NETWORK, Peer, SECRET, Suite, configuration, site, swanctl,
};

use crate::Outcome;
use arc_swap::ArcSwapOption;
use configuration::{connection, outside};
use crypto::random;
use gateway::clock::Clock;
use lab::Lab;
use packet::{Batch, DropCounters, Endpoint};
use port::udp::{BATCH_BYTES, SocketSlot, UdpReceive, UdpSockets, UdpTransmit};
use port::{Offloads, Receive, Transmit, Wake};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tunnel::ikev2::limits::{IKE_PORT, NAT_PORT};
use tunnel::ikev2::{Action, Event, Outbox, Path, Patience};
use tunnel::{Now, Time};

/// What tells IKE from ESP on port 4500 (RFC 3948 section 2.2).
const MARKER: [u8; 4] = [0; 4];
/// Datagrams in one send call.
const AT_ONCE: usize = 32;
/// No message of the crowd is longer.
const LONGEST: usize = 1280;
/// An unanswered message is looked after so often.
const IMPATIENCE: Duration = Duration::from_millis(200);
/// What is waited when nothing has arrived: far less than the gateway has to do for those that wait for it.
const PAUSE: Duration = Duration::from_micros(50);
/// The lifetime of a site's Child SA.
const LIFETIME: Duration = Duration::from_secs(3600);
/// How far the clock of the sites is put ahead for a rekeying: each Child SA is old then, and none has expired.
const NEARLY_EXPIRED: Duration = Duration::from_secs(3500);

/// Namespaces `a` and `b` for gateways, and `c`, which has all the addresses of the sites.
pub fn lab() -> Outcome<Lab> {
    let lab = crate::crowd::lab()?;
    lab.ip("a", "address add 10.200.0.1/32 dev lo")?;
    Ok(lab)
}

/// The first message of a site.
pub fn first_message(suite: Suite) -> Outcome<Vec<u8>> {
    let sent = |action| if let Action::Send { message, .. } = action { Some(message) } else { None };
    Site::new(0, suite)?.first.into_iter().find_map(sent).ok_or_else(|| "it sends nothing".into())
}

/// One of the crowd.
struct Site {
    ike: tunnel::ikev2::Endpoint,
    address: Ipv4Addr,
    /// The first message, not yet sent.
    first: Outbox,
    /// When it last sent something.
    sent: Option<Instant>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Calling,
    /// It has its Child SA, or its next one, or was refused.
    Served,
}

/// What the sites do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exchange {
    /// IKE_SA_INIT and IKE_AUTH: until the Child SA is there.
    SetUp,
    /// CREATE_CHILD_SA and INFORMATIONAL: until the old Child SA is deleted.
    Rekey,
}

/// A port of the crowd.
struct Port {
    number: u16,
    receive: UdpReceive,
    transmit: UdpTransmit,
    outgoing: Batch,
}

impl Port {
    fn bind(number: u16) -> Outcome<Self> {
        let offloads = Arc::new(Offloads::default());
        let sockets = UdpSockets::bind(number, 0, &offloads)?;
        let slot: SocketSlot = Arc::new(ArcSwapOption::from_pointee(sockets));
        Ok(Self {
            number,
            receive: UdpReceive::new(Arc::clone(&slot), Arc::clone(&offloads)),
            transmit: UdpTransmit::new(slot, offloads),
            outgoing: Batch::new(AT_ONCE * Batch::footprint(LONGEST)),
        })
    }

    /// Sends a message, in a while: see [`flush`](Self::flush).
    fn send(&mut self, path: Path, message: &[u8], drops: &DropCounters) {
        let marker = if self.number == NAT_PORT { &MARKER[..] } else { &[] };
        let length = marker.len() + message.len();
        if self.outgoing.len() == AT_ONCE {
            self.flush(drops);
        }
        let first = self.outgoing.len();
        let Some(slot) = self.outgoing.append(length) else { return };
        slot[..marker.len()].copy_from_slice(marker);
        slot[marker.len()..].copy_from_slice(message);
        let endpoint = Endpoint { local: Some(path.local.ip()), ..Endpoint::new(path.remote) };
        self.outgoing.close_train(first, Some(endpoint), 0);
    }

    fn flush(&mut self, drops: &DropCounters) {
        if !self.outgoing.is_empty() {
            self.transmit.transmit(&mut self.outgoing, drops);
            self.outgoing.clear();
        }
    }
}

/// What came of calls.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Calls {
    /// How many sites have their Child SA.
    pub connected: usize,
    /// How many calls were refused.
    pub failed: usize,
    /// How long it took.
    pub seconds: f64,
    /// Processor time that the crowd itself has used for them.
    pub own_seconds: f64,
}

/// The crowd.
pub struct Sites {
    all: Vec<Site>,
    ports: Vec<Port>,
    wake: Wake,
    batch: Batch,
    drops: DropCounters,
    exchange: Exchange,
    /// How far the clock of the sites is ahead.
    ahead: Duration,
    connected: usize,
    failed: usize,
    /// The first failure, in words.
    failure: Option<String>,
}

impl Sites {
    /// Sites that will call the gateway; made in the namespace where they live. Their first messages are made here, so
    /// that only the rest is part of a measurement.
    pub fn new(numbers: std::ops::Range<usize>, suite: Suite) -> Outcome<Self> {
        let ports = vec![Port::bind(IKE_PORT)?, Port::bind(NAT_PORT)?];
        let all = numbers.map(|number| Site::new(number, suite)).collect::<Outcome<Vec<Site>>>()?;
        Ok(Self {
            all,
            ports,
            wake: Wake::new()?,
            batch: Batch::new(BATCH_BYTES),
            drops: DropCounters::default(),
            exchange: Exchange::SetUp,
            ahead: Duration::ZERO,
            connected: 0,
            failed: 0,
            failure: None,
        })
    }

    /// All of them call, `window` at once, each until it has its Child SA.
    pub fn call(&mut self, window: usize, patience: Duration) -> Outcome<Calls> {
        self.all_do(Exchange::SetUp, window, patience)
    }

    /// All of them replace the keys of their Child SA with a key exchange, `window` at once, each until the old one is gone.
    pub fn rekey(&mut self, window: usize, patience: Duration) -> Outcome<Calls> {
        (self.connected, self.failed, self.ahead) = (0, 0, self.ahead + NEARLY_EXPIRED);
        for site in &mut self.all {
            site.state = State::Waiting;
        }
        self.all_do(Exchange::Rekey, window, patience)
    }

    fn all_do(&mut self, exchange: Exchange, window: usize, patience: Duration) -> Outcome<Calls> {
        self.exchange = exchange;
        let (started, own) = (Instant::now(), clock_gettime(ClockId::ThreadCPUTime));
        let (mut next, mut looked) = (0, started);
        loop {
            let done = self.connected + self.failed;
            while next < self.all.len() && next - done < window {
                let mut out = std::mem::take(&mut self.all[next].first);
                self.all[next].state = State::Calling;
                if exchange == Exchange::Rekey {
                    let now = self.now();
                    self.all[next].ike.handle_timeout(now, &mut out);
                }
                self.carry_out(next, out);
                next += 1;
            }
            self.flush();
            if done == self.all.len() {
                break;
            }
            if looked.elapsed() > IMPATIENCE {
                looked = Instant::now();
                self.retry(next);
            }
            if started.elapsed() > patience {
                let why = self.failure.as_deref().unwrap_or("no answer");
                return Err(format!("{done} of {} sites were served: {why}", self.all.len()).into());
            }
            if self.answer(next)? == 0 {
                std::thread::sleep(PAUSE);
            }
        }
        let used = |at: rustix::time::Timespec| at.tv_sec as f64 + at.tv_nsec as f64 / 1e9;
        Ok(Calls {
            connected: self.connected,
            failed: self.failed,
            seconds: started.elapsed().as_secs_f64(),
            own_seconds: used(clock_gettime(ClockId::ThreadCPUTime)) - used(own),
        })
    }

    /// The first failure, in words.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Handles what has come in; tells how much that was.
    fn answer(&mut self, called: usize) -> Outcome<usize> {
        let mut batch = std::mem::replace(&mut self.batch, Batch::new(0));
        let mut handled = 0;
        for port in 0..self.ports.len() {
            batch.clear();
            // With the event signalled the wait returns at once.
            self.wake.notify();
            self.ports[port].receive.wait(&self.wake)?;
            self.ports[port].receive.receive(&mut batch, &self.drops)?;
            for train in batch.trains() {
                let Some(Endpoint { remote, local: Some(IpAddr::V4(local)), .. }) = train.endpoint else {
                    continue;
                };
                let number = u32::from(local).wrapping_sub(u32::from(self.first_address())) as usize;
                if number >= called {
                    continue;
                }
                let path = Path { local: SocketAddr::new(local.into(), self.ports[port].number), remote };
                for index in train.packets.clone() {
                    let bytes = batch.packet(index);
                    let bytes =
                        if path.local.port() == NAT_PORT { bytes.strip_prefix(&MARKER) } else { Some(bytes) };
                    if let Some(bytes) = bytes {
                        let mut out = Outbox::new();
                        let now = self.now();
                        // What makes no sense to it is another site's, or comes twice.
                        let _ = self.all[number].ike.handle_datagram(now, path, bytes, &mut out);
                        self.carry_out(number, out);
                        handled += 1;
                    }
                }
            }
        }
        self.batch = batch;
        Ok(handled)
    }

    /// The clock of the sites.
    fn now(&self) -> Now {
        let now = Clock.now();
        Now { monotonic: now.monotonic + self.ahead, ..now }
    }

    fn first_address(&self) -> Ipv4Addr {
        self.all[0].address
    }

    /// A request without an answer in time is sent again.
    fn retry(&mut self, called: usize) {
        let now = self.now();
        for number in 0..called {
            let site = &mut self.all[number];
            // Its timer runs since its first message was made, which may have been long before it was sent.
            let is_late = site.sent.is_some_and(|sent| sent.elapsed() > Patience::default().first);
            let is_due = site.ike.next_timeout().is_some_and(|at: Time| at <= now.monotonic);
            if site.state == State::Calling && is_late && is_due {
                let mut out = Outbox::new();
                site.ike.handle_timeout(now, &mut out);
                self.carry_out(number, out);
            }
        }
    }

    fn carry_out(&mut self, number: usize, out: Outbox) {
        for action in out {
            match action {
                Action::Send { path, message } => {
                    let port = usize::from(path.local.port() == NAT_PORT);
                    self.ports[port].send(path, &message, &self.drops);
                    self.all[number].sent = Some(Instant::now());
                }
                Action::Work(job) => {
                    let (mut out, now) = (Outbox::new(), self.now());
                    self.all[number].ike.handle_finished(now, job.run(), &mut out);
                    self.carry_out(number, out);
                }
                Action::Report(event) => self.note(number, &event),
                // Nothing is sent inside: keys are not loaded.
                _ => {}
            }
        }
    }

    fn note(&mut self, number: usize, event: &Event) {
        let is_calling = self.all[number].state == State::Calling;
        match event {
            Event::ChildUp { .. } if is_calling && self.exchange == Exchange::SetUp => self.connected += 1,
            Event::ChildDown { .. } if is_calling && self.exchange == Exchange::Rekey => self.connected += 1,
            Event::Failed { cause, .. } if is_calling => {
                self.failure.get_or_insert_with(|| format!("{cause:?}"));
                self.failed += 1;
            }
            _ => return,
        }
        self.all[number].state = State::Served;
    }

    fn flush(&mut self) {
        for port in &mut self.ports {
            port.flush(&self.drops);
        }
    }
}

impl Site {
    fn new(number: usize, suite: Suite) -> Outcome<Self> {
        let (now, mut first) = (Clock.now(), Outbox::new());
        let mut ike = tunnel::ikev2::Endpoint::new(Box::new(random::System::default()));
        let connection = ike.add_connection(now, connection(number, suite));
        ike.initiate(now, connection, &mut first)?;
        // Its public value is no part of what is measured.
        let first = first.into_iter().fold(Outbox::new(), |mut sent, action| {
            match action {
                Action::Work(job) => ike.handle_finished(now, job.run(), &mut sent),
                other => sent.push(other),
            }
            sent
        });
        Ok(Self { ike, address: outside(number), first, sent: None, state: State::Waiting })
    }
}
