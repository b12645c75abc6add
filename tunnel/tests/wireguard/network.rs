//! Two devices over a network of our own making: seeded loss, delay, duplicates and damage, and a clock that jumps.

use crypto::engine::{Job, aws_lc::AwsLc};
use crypto::{PublicKey, Random, Secret};
use packet::DropReason;
use packet::header::wireguard::{DATA, DataHeader, Message, RESPONSE, TAG, padded};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tunnel::wireguard::device::Outbox;
use tunnel::wireguard::limits::STAGED_PACKETS;
use tunnel::wireguard::{Activity, Device, DeviceAction, Event, PeerId};
use tunnel::{InboundSa, Now, OutboundSa, Time};
use zerocopy::IntoBytes;

/// A seeded source of randomness.
pub struct Seeded(ChaCha8Rng);

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }
}

impl Random for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

/// A device with one peer and the plainest data path there can be.
pub struct Host {
    pub device: Device,
    pub peer: PeerId,
    pub address: SocketAddr,
    /// A further address of it.
    pub second: Option<SocketAddr>,
    /// Whether it sends from its second address, at which it was heard from last.
    pub sends_from_second: bool,
    pub endpoint: Option<SocketAddr>,
    pub under_load: bool,
    pub received: Vec<Vec<u8>>,
    pub keepalives_received: usize,
    pub events: Vec<Event>,
    /// Whether the protocol has yet to hear that a key was confirmed.
    pub confirms_late: bool,
    pub drops: HashMap<DropReason, usize>,
    pub sending: Option<Arc<OutboundSa>>,
    pub installed: HashMap<u32, Arc<InboundSa>>,
    /// What is sent with once a packet has come under an index.
    next: Option<(u32, Arc<OutboundSa>)>,
    staged: Vec<Vec<u8>>,
    activity: Arc<Activity>,
}

impl Host {
    pub fn new(key: [u8; 32], remote: PublicKey, address: &str, seed: u64) -> Self {
        let mut device = Device::new(Arc::new(AwsLc), Box::new(Seeded::new(seed)));
        device.set_private_key(at(1).monotonic, Some(Secret::new(key)), &mut Outbox::new());
        let (peer, activity) = device.add_peer(remote);
        device.start(at(1).monotonic);
        Self {
            device,
            peer,
            address: address.parse().expect("literal"),
            second: None,
            sends_from_second: false,
            endpoint: None,
            under_load: false,
            received: Vec::new(),
            keepalives_received: 0,
            events: Vec::new(),
            confirms_late: false,
            drops: HashMap::new(),
            sending: None,
            installed: HashMap::new(),
            next: None,
            staged: Vec::new(),
            activity,
        }
    }

    fn call(&mut self, now: Time, endpoint: SocketAddr) {
        self.endpoint = Some(endpoint);
        self.device.set_reachable(now, self.peer);
    }

    /// The address that it sends from.
    fn local(&self) -> SocketAddr {
        self.second.filter(|_| self.sends_from_second).unwrap_or(self.address)
    }

    fn seal(&mut self, now: Now, packet: &[u8]) -> Option<Vec<u8>> {
        let sa = self.sending.clone()?;
        let sequence = sa.assign(1, now.monotonic).ok()?.start;
        let header = DataHeader { kind: DATA.into(), receiver: sa.receiver.into(), counter: sequence.into() };
        let mut text = packet.to_vec();
        text.resize(padded(packet.len(), 1420), 0);
        let mut tag = [0; TAG];
        let nonce = nonce(sequence);
        sa.protection
            .wireguard()
            .expect("a session of ours")
            .seal(&mut [Job { nonce, aad: &[], text: &mut text, tag: &mut tag, authentic: false }])
            .expect("works");
        Some([header.as_bytes(), &text, &tag].concat())
    }

    /// An authentic datagram is answered the way that it came.
    fn follow(&mut self, datagram: &Datagram) {
        self.endpoint = Some(datagram.from);
        self.sends_from_second = self.second == Some(datagram.to);
    }

    /// Handles one datagram; returns whether its source is to be followed.
    fn open(&mut self, now: Now, bytes: &[u8], out: &mut Outbox) -> Result<bool, DropReason> {
        let Some(Message::Data(header, sealed)) = Message::parse(bytes) else {
            unreachable!("told by the caller")
        };
        let sa = Arc::clone(self.installed.get(&header.receiver.get()).ok_or(DropReason::UnknownSa)?);
        sa.check_age(now.monotonic)?;
        sa.window().check(header.counter.get())?;
        let (text, tag) = sealed.split_at(sealed.len() - TAG);
        let (mut text, mut tag): (Vec<u8>, [u8; TAG]) = (text.to_vec(), tag.try_into().expect("a tag"));
        let nonce = nonce(header.counter.get());
        let mut jobs = [Job { nonce, aad: &[], text: &mut text, tag: &mut tag, authentic: false }];
        sa.protection.wireguard().expect("a session of ours").open(&mut jobs).expect("works");
        if !jobs[0].authentic {
            return Err(DropReason::BadTag);
        }
        sa.moving_window().accept(header.counter.get())?;
        if sa.confirm() {
            // The data path does not wait for the protocol.
            if let Some((_, next)) = self.next.take_if(|(index, _)| *index == sa.index) {
                self.sending = Some(next);
            }
            if !self.confirms_late {
                self.device.handle_confirmed(now, sa.index, out);
            }
        }
        if self.activity.received(now.monotonic, !text.is_empty()) {
            self.device.handle_activity(now, self.peer);
        }
        if sa.wants_renewal(now.monotonic) {
            self.device.handle_renewal(now, self.peer, out);
        }
        if text.is_empty() {
            self.keepalives_received += 1;
        } else {
            self.received.push(text);
        }
        Ok(true)
    }
}

fn nonce(sequence: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&sequence.to_le_bytes());
    nonce
}

/// A moment; both clocks agree.
pub fn at(seconds: u64) -> Now {
    Now { monotonic: Time::from_nanoseconds(seconds * 1_000_000_000), wall: Duration::from_secs(seconds) }
}

/// How bad the network is, in thousandths of the datagrams.
#[derive(Clone, Copy, Default)]
pub struct Weather {
    pub lost: u32,
    pub duplicated: u32,
    pub damaged: u32,
    /// Delay is between 1 ms and this.
    pub delay: Duration,
}

#[derive(Clone)]
pub struct Datagram {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

pub struct Network {
    pub hosts: [Host; 2],
    pub weather: Weather,
    /// Addresses from which nothing arrives, and to which nothing does.
    pub silent: Vec<SocketAddr>,
    pub deaf: Vec<SocketAddr>,
    pub log: Vec<(Time, Datagram)>,
    now: Time,
    in_flight: BTreeMap<(Time, u64), Datagram>,
    sent: u64,
    random: ChaCha8Rng,
}

pub const A: usize = 0;
pub const B: usize = 1;

impl Network {
    /// Two hosts, of which A knows B's address and B does not know A's.
    pub fn new(seed: u64) -> Self {
        let mut network = Self::unacquainted(seed);
        network.introduce(A, B);
        network
    }

    /// Tells `host` where `other` is.
    pub fn introduce(&mut self, host: usize, other: usize) {
        let (now, address) = (self.now.max(at(1).monotonic), self.hosts[other].address);
        self.hosts[host].call(now, address);
    }

    /// Two hosts that do not know each other's address.
    pub fn unacquainted(seed: u64) -> Self {
        let public = |key| crypto::PrivateKey::new(Secret::new(key)).public();
        let (a, b) = ([1; 32], [2; 32]);
        let hosts = [
            Host::new(a, public(b), "192.0.2.1:1000", seed),
            Host::new(b, public(a), "192.0.2.2:2000", seed + 1),
        ];
        Self {
            hosts,
            weather: Weather { delay: Duration::from_millis(1), ..Weather::default() },
            silent: Vec::new(),
            deaf: Vec::new(),
            log: Vec::new(),
            now: at(100).monotonic,
            in_flight: BTreeMap::new(),
            sent: 0,
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    pub fn now(&self) -> Now {
        Now {
            monotonic: self.now,
            wall: Duration::from_nanos(self.now.nanoseconds()) + Duration::from_secs(1 << 30),
        }
    }

    /// Sends an inner packet from `host`.
    pub fn send(&mut self, host: usize, packet: &[u8]) {
        let now = self.now();
        let mut out = Outbox::new();
        let this = &mut self.hosts[host];
        if let Some(datagram) = this.seal(now, packet) {
            if this.activity.sent_data(now.monotonic) {
                this.device.handle_activity(now, this.peer);
            }
            if this.sending.as_ref().is_some_and(|sa| sa.wants_renewal(now.monotonic)) {
                this.device.handle_renewal(now, this.peer, &mut out);
            }
            self.transmit(host, datagram);
        } else {
            this.staged.push(packet.to_vec());
            if this.staged.len() > STAGED_PACKETS {
                this.staged.remove(0);
            }
            this.device.handle_no_key(now, this.peer, &mut out);
        }
        self.carry_out(host, None, out);
    }

    /// Gives `host` a private key.
    pub fn set_private_key(&mut self, host: usize, key: Option<[u8; 32]>) {
        let (now, mut out) = (self.now(), Outbox::new());
        self.hosts[host].device.set_private_key(now.monotonic, key.map(Secret::new), &mut out);
        self.carry_out(host, None, out);
    }

    /// Switches the persistent keepalive of `host` on.
    pub fn keep_alive(&mut self, host: usize, every: Duration) {
        let (now, peer) = (self.now(), self.hosts[host].peer);
        let mut out = Outbox::new();
        self.hosts[host].device.set_persistent_keepalive(now.monotonic, peer, Some(every), &mut out);
        self.carry_out(host, None, out);
    }

    /// Has `host` initiate a handshake, as for a key that has become old.
    pub fn renew(&mut self, host: usize) {
        let (now, mut out) = (self.now(), Outbox::new());
        let this = &mut self.hosts[host];
        this.device.handle_renewal(now, this.peer, &mut out);
        self.carry_out(host, None, out);
    }

    /// Lets `duration` pass: datagrams arrive, timers run out.
    pub fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
            let timeouts = self.hosts.iter().filter_map(|host| host.device.next_timeout());
            let Some(next) = timeouts.chain(arrival).min().filter(|&next| next <= end) else { break };
            self.now = self.now.max(next);
            for host in [A, B] {
                let mut out = Outbox::new();
                self.hosts[host].device.handle_timeout(self.now(), &mut out);
                self.carry_out(host, None, out);
            }
            while let Some(entry) = self.in_flight.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let datagram = entry.remove();
                self.arrive(datagram);
            }
        }
        self.now = end;
    }

    /// A datagram reaches the host at its destination, if there is one.
    pub fn arrive(&mut self, datagram: Datagram) {
        let now = self.now();
        let is_at = |host: &Host| host.address == datagram.to || host.second == Some(datagram.to);
        let Some(host) = self.hosts.iter().position(is_at) else { return };
        let this = &mut self.hosts[host];
        let mut out = Outbox::new();
        let outcome = match Message::parse(&datagram.bytes) {
            Some(Message::Data(..)) => this.open(now, &datagram.bytes, &mut out),
            _ => this
                .device
                .handle_datagram(now, datagram.from, &datagram.bytes, this.under_load, &mut out)
                .map(|_| false),
        };
        match outcome {
            Ok(true) => this.follow(&datagram),
            Ok(false) => {}
            Err(reason) => *this.drops.entry(reason).or_default() += 1,
        }
        self.carry_out(host, Some(&datagram), out);
    }

    fn carry_out(&mut self, host: usize, received: Option<&Datagram>, out: Outbox) {
        let mut has_new_key = false;
        for action in out {
            let this = &mut self.hosts[host];
            match action {
                DeviceAction::Send { message, .. } => self.transmit(host, message),
                DeviceAction::Reply { message, .. } => {
                    let received = received.expect("only a datagram is replied to");
                    self.transmit_between(host, received.to, received.from, message);
                }
                DeviceAction::Probe { remote, message, .. } => self.transmit_to(host, remote, message),
                DeviceAction::Redirect { remote, .. } => this.endpoint = Some(remote),
                DeviceAction::Learn { .. } => {
                    let received = received.expect("it was received");
                    // Until then packets under the older key would move the endpoint back.
                    assert!(
                        has_new_key || received.bytes[0] != RESPONSE as u8,
                        "the key comes before the endpoint"
                    );
                    this.follow(received);
                }
                DeviceAction::Install { sa, next, .. } => {
                    if let Some(next) = next {
                        this.next = Some((sa.index, next));
                    }
                    this.installed.insert(sa.index, sa);
                }
                DeviceAction::Retire { index } => drop(this.installed.remove(&index)),
                DeviceAction::Use { sa, .. } => {
                    has_new_key = sa.is_some();
                    (this.sending, this.next) = (sa, None);
                }
                DeviceAction::Flush { confirm, .. } => {
                    let staged = std::mem::take(&mut this.staged);
                    if staged.is_empty() && confirm {
                        self.keepalive(host);
                    }
                    for packet in staged {
                        self.send(host, &packet);
                    }
                }
                DeviceAction::Keepalive { .. } => self.keepalive(host),
                DeviceAction::Purge { .. } => this.staged.clear(),
                DeviceAction::ForgetSource { .. } => {}
                DeviceAction::Report(event) => this.events.push(event),
            }
        }
    }

    fn keepalive(&mut self, host: usize) {
        let now = self.now();
        let this = &mut self.hosts[host];
        let Some(datagram) = this.seal(now, &[]) else { return };
        let mut out = Outbox::new();
        this.activity.sent(now.monotonic);
        if this.sending.as_ref().is_some_and(|sa| sa.wants_renewal(now.monotonic)) {
            this.device.handle_renewal(now, this.peer, &mut out);
        }
        self.transmit(host, datagram);
        self.carry_out(host, None, out);
    }

    fn transmit(&mut self, host: usize, bytes: Vec<u8>) {
        if let Some(to) = self.hosts[host].endpoint {
            self.transmit_to(host, to, bytes);
        }
    }

    fn transmit_to(&mut self, host: usize, to: SocketAddr, bytes: Vec<u8>) {
        self.transmit_between(host, self.hosts[host].local(), to, bytes);
    }

    fn transmit_between(&mut self, host: usize, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        // A test moves a host by giving it another address.
        let from = if self.hosts[host].second == Some(from) { from } else { self.hosts[host].address };
        let mut datagram = Datagram { from, to, bytes };
        self.log.push((self.now, datagram.clone()));
        let is_lost = self.silent.contains(&from) || self.deaf.contains(&to);
        if self.chance(self.weather.lost) || is_lost {
            return;
        }
        if self.chance(self.weather.duplicated) {
            self.launch(datagram.clone());
        }
        if self.chance(self.weather.damaged) {
            let bit = self.random.random_range(0..datagram.bytes.len() * 8);
            datagram.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        self.launch(datagram);
    }

    fn launch(&mut self, datagram: Datagram) {
        let longest = self.weather.delay.as_nanos().max(1_000_001) as u64;
        let delay = Duration::from_nanos(self.random.random_range(1_000_000..longest));
        self.sent += 1;
        self.in_flight.insert((self.now + delay, self.sent), datagram);
    }

    fn chance(&mut self, thousandths: u32) -> bool {
        self.random.random_range(0..1000) < thousandths
    }

    /// How many messages of a kind were sent so far.
    pub fn count(&self, kind: u8) -> usize {
        self.log.iter().filter(|(_, datagram)| datagram.bytes[0] == kind).count()
    }

    /// The last message of a kind that was sent.
    pub fn last(&self, kind: u8) -> Datagram {
        self.log.iter().rev().find(|(_, datagram)| datagram.bytes[0] == kind).expect("one was sent").1.clone()
    }

    pub fn drops(&self, host: usize, reason: DropReason) -> usize {
        self.hosts[host].drops.get(&reason).copied().unwrap_or(0)
    }
}
