//! Two endpoints over a network of our own making: seeded loss, delay, duplicates and damage, a NAT, and a clock that
//! jumps.

use crypto::Random;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tunnel::ikev2::message::{Exchange, Header};
use tunnel::ikev2::{Action, Connection, ConnectionId, Endpoint, Event, Install, Job, Outbox, Path};
use tunnel::{Now, Time};

/// A seeded source of randomness.
pub struct Seeded(ChaCha8Rng);

impl Random for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    fn fork(&mut self) -> Box<dyn Random> {
        Box::new(Self(ChaCha8Rng::seed_from_u64(self.0.random())))
    }
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

/// A Child SA as a data path has it.
pub struct Installed {
    pub install: Install,
    /// Whether the other side may not have it yet.
    pub held: bool,
    order: u64,
}

/// An endpoint and the plainest data path there can be.
pub struct Host {
    pub endpoint: Endpoint,
    pub address: IpAddr,
    pub installed: HashMap<u32, Installed>,
    /// SPIs whose packets wait.
    pub expected: HashSet<u32>,
    pub path: Option<Path>,
    pub events: Vec<Event>,
    /// The instances of profiles, each with its profile.
    pub instances: BTreeMap<ConnectionId, ConnectionId>,
    pub keepalives: usize,
    pub sent: usize,
    installs: u64,
    /// Whether it receives nothing and its timers stand still.
    pub is_dead: bool,
}

impl Host {
    pub fn new(address: &str, seed: u64) -> Self {
        Self {
            endpoint: Endpoint::new(Box::new(Seeded(ChaCha8Rng::seed_from_u64(seed)))),
            address: address.parse().expect("literal"),
            installed: HashMap::new(),
            expected: HashSet::new(),
            path: None,
            events: Vec::new(),
            instances: BTreeMap::new(),
            keepalives: 0,
            sent: 0,
            installs: 0,
            is_dead: false,
        }
    }

    /// The SPI under which a packet for a child would be sent: of the newest SA that the other side has.
    pub fn sending(&self, child: usize) -> Option<&Installed> {
        let of_child = self.installed.values().filter(|sa| sa.install.child == child);
        of_child.max_by_key(|sa| (!sa.held, sa.order))
    }

    /// The configured connection of an SA: that of the SA, or its profile.
    pub fn configured(&self, installed: &Installed) -> ConnectionId {
        let connection = installed.install.connection;
        self.instances.get(&connection).copied().unwrap_or(connection)
    }

    /// The SPIs that are received with, in order.
    pub fn spis(&self) -> Vec<u32> {
        let mut spis: Vec<u32> = self.installed.keys().copied().collect();
        spis.sort_unstable();
        spis
    }

    /// How many events are of a kind.
    pub fn count(&self, is_of_kind: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| is_of_kind(event)).count()
    }
}

/// Translates the addresses of one host.
pub struct Nat {
    pub inside: IpAddr,
    pub outside: IpAddr,
    /// What is added to ports on the way out.
    pub shift: u16,
}

/// Changes a datagram; returns whether it goes on.
pub type Meddler = Box<dyn FnMut(&mut Datagram) -> bool>;

pub struct Network {
    pub hosts: [Host; 2],
    pub weather: Weather,
    pub nat: Option<Nat>,
    /// An attacker on the path, which may change or drop messages.
    pub on_the_way: Option<Meddler>,
    pub log: Vec<(Time, Datagram)>,
    pub now: Time,
    /// A host's jobs take up to this; if it is nothing, they are done at once.
    pub longest_job: [Duration; 2],
    in_flight: BTreeMap<(Time, u64), Datagram>,
    /// Jobs, and when they are done.
    in_work: BTreeMap<(Time, u64), (usize, Job)>,
    launched: u64,
    random: ChaCha8Rng,
}

pub const A: usize = 0;
pub const B: usize = 1;

impl Network {
    pub fn new(seed: u64) -> Self {
        let hosts = [Host::new("192.0.2.1", seed * 2), Host::new("192.0.2.2", seed * 2 + 1)];
        Self {
            hosts,
            weather: Weather { delay: Duration::from_millis(10), ..Weather::default() },
            nat: None,
            on_the_way: None,
            log: Vec::new(),
            now: Time::from_nanoseconds(1_000_000_000),
            longest_job: [Duration::ZERO; 2],
            in_flight: BTreeMap::new(),
            in_work: BTreeMap::new(),
            launched: 0,
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    pub fn add(&mut self, host: usize, connection: Connection) -> ConnectionId {
        let now = self.now();
        self.hosts[host].endpoint.add_connection(now, connection)
    }

    /// Both clocks: the wall's says 2030.
    pub fn now(&self) -> Now {
        let wall = Duration::from_secs(1_893_456_000) + Duration::from_nanos(self.now.nanoseconds());
        Now { monotonic: self.now, wall }
    }

    /// Has a host do something.
    pub fn command<R>(
        &mut self,
        host: usize,
        command: impl FnOnce(&mut Endpoint, Now, &mut Outbox) -> R,
    ) -> R {
        let (now, mut out) = (self.now(), Outbox::new());
        let result = command(&mut self.hosts[host].endpoint, now, &mut out);
        self.carry_out(host, out);
        result
    }

    /// Lets `duration` pass: datagrams arrive, timers run out.
    pub fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        let mut rounds = 0;
        loop {
            let arrivals = [self.in_flight.keys().next(), self.in_work.keys().next()];
            let arrival = arrivals.into_iter().flatten().map(|(at, _)| *at).min();
            let alive = self.hosts.iter().filter(|host| !host.is_dead);
            let timeouts = alive.filter_map(|host| host.endpoint.next_timeout());
            let Some(next) = timeouts.chain(arrival).min().filter(|&next| next <= end) else { break };
            rounds = if next > self.now { 0 } else { rounds + 1 };
            assert!(rounds < 1000, "a timer that is due is dealt with");
            self.now = self.now.max(next);
            for host in [A, B] {
                if !self.hosts[host].is_dead {
                    self.command(host, Endpoint::handle_timeout);
                }
            }
            while let Some(entry) = self.in_work.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (host, job) = entry.remove();
                self.finish(host, job);
            }
            while let Some(entry) = self.in_flight.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let datagram = entry.remove();
                self.arrive(datagram);
            }
        }
        self.now = end;
    }

    /// A datagram reaches the host at its destination, if there is one.
    pub fn arrive(&mut self, mut datagram: Datagram) {
        if let Some(nat) = self.nat.as_ref().filter(|nat| datagram.to.ip() == nat.outside) {
            datagram.to = SocketAddr::new(nat.inside, datagram.to.port().wrapping_sub(nat.shift));
        }
        let Some(host) = self.hosts.iter().position(|host| host.address == datagram.to.ip()) else { return };
        if self.hosts[host].is_dead {
            return;
        }
        let path = Path { local: datagram.to, remote: datagram.from };
        let mut out = Outbox::new();
        let _ = self.hosts[host].endpoint.handle_datagram(self.now(), path, &datagram.bytes, &mut out);
        self.carry_out(host, out);
    }

    fn carry_out(&mut self, host: usize, out: Outbox) {
        for action in out {
            let this = &mut self.hosts[host];
            match action {
                Action::Send { path, message } => {
                    this.sent += 1;
                    assert_eq!(path.local.ip(), this.address, "it sends from its own address");
                    self.transmit(Datagram { from: path.local, to: path.remote, bytes: message });
                }
                Action::KeepNat { .. } => this.keepalives += 1,
                Action::Expect { spi } => assert!(this.expected.insert(spi), "it is new"),
                Action::ExpectNoMore { spi } => assert!(this.expected.remove(&spi), "it was expected"),
                Action::Install(install) => {
                    this.installs += 1;
                    this.path = Some(install.path);
                    let spi = install.sa.inbound.spi;
                    this.expected.remove(&spi);
                    let held = install.hold;
                    let installed = Installed { install: *install, held, order: this.installs };
                    assert!(this.installed.insert(spi, installed).is_none(), "an SPI has one owner");
                }
                Action::AddInstance { profile, instance, .. } => {
                    assert!(this.instances.insert(instance, profile).is_none(), "it is new");
                }
                Action::RemoveInstance { instance } => {
                    assert!(this.instances.remove(&instance).is_some(), "it was added");
                    let of_it = |it: &Installed| it.install.connection == instance;
                    assert!(!this.installed.values().any(of_it), "its SAs are gone");
                }
                Action::Use { spi } => {
                    if let Some(installed) = this.installed.get_mut(&spi) {
                        installed.held = false;
                    }
                }
                Action::Retire { spi } => {
                    assert!(this.installed.remove(&spi).is_some(), "what is retired was installed");
                }
                Action::Follow { path, .. } => this.path = Some(path),
                Action::Work(job) if self.longest_job[host].is_zero() => self.finish(host, job),
                Action::Work(job) => {
                    let longest = self.longest_job[host].as_nanos() as u64;
                    let takes = Duration::from_nanos(self.random.random_range(0..longest));
                    self.launched += 1;
                    self.in_work.insert((self.now + takes, self.launched), (host, job));
                }
                Action::Report(event) => this.events.push(*event),
            }
        }
    }

    /// How many jobs of a host are being done.
    pub fn working(&self, host: usize) -> usize {
        self.in_work.values().filter(|(of, _)| *of == host).count()
    }

    /// Does all jobs of a host now.
    pub fn finish_all(&mut self, host: usize) {
        let (now, later) =
            std::mem::take(&mut self.in_work).into_iter().partition(|(_, (of, _))| *of == host);
        self.in_work = later;
        let now: BTreeMap<_, _> = now;
        for (_, (host, job)) in now {
            self.finish(host, job);
        }
    }

    fn finish(&mut self, host: usize, job: Job) {
        let finished = job.run();
        self.command(host, |endpoint, now, out| endpoint.handle_finished(now, finished, out));
    }

    fn transmit(&mut self, mut datagram: Datagram) {
        if let Some(nat) = self.nat.as_ref().filter(|nat| datagram.from.ip() == nat.inside) {
            datagram.from = SocketAddr::new(nat.outside, datagram.from.port().wrapping_add(nat.shift));
        }
        self.log.push((self.now, datagram.clone()));
        if self.on_the_way.as_mut().is_some_and(|change| !change(&mut datagram)) {
            return;
        }
        if self.chance(self.weather.lost) {
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

    /// Puts a datagram on the wire.
    pub fn launch(&mut self, datagram: Datagram) {
        let longest = self.weather.delay.as_nanos().max(1_000_001) as u64;
        let delay = Duration::from_nanos(self.random.random_range(1_000_000..longest));
        self.launched += 1;
        self.in_flight.insert((self.now + delay, self.launched), datagram);
    }

    pub fn chance(&mut self, thousandths: u32) -> bool {
        self.random.random_range(0..1000) < thousandths
    }

    pub fn pick(&mut self, below: usize) -> usize {
        self.random.random_range(0..below)
    }

    /// The exchanges of all messages sent so far, as (exchange, is a response).
    pub fn exchanges(&self) -> Vec<(Exchange, bool)> {
        self.log.iter().map(|(_, datagram)| exchange(&datagram.bytes)).collect()
    }
}

pub fn exchange(bytes: &[u8]) -> (Exchange, bool) {
    let (header, ..) = Header::parse(bytes).expect("what is sent is well formed");
    (header.exchange, header.is_response)
}
