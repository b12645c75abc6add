//! Clients and a server over a network of our own making: seeded loss, delay, duplicates and damage, and a clock that
//! jumps. Only TLS draws its random numbers from the system, so that lengths and times are reproducible, not bytes.

use crate::certificates::{Authority, Issued};
use crate::host::{Core, Host, Seeded};
use crypto::cipher::Integrity;
use crypto::engine::aws_lc::AwsLc;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::data::Framing;
use tunnel::openvpn::keepalive::Keepalive;
use tunnel::openvpn::key_method::Credentials;
use tunnel::openvpn::limits::CONTROL_PACKET;
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::peer::Timing;
use tunnel::openvpn::peer_info::OURS;
use tunnel::openvpn::server::{OnlyPeer, Rate, ServerWrap};
use tunnel::openvpn::verify;
use tunnel::openvpn::wrap::{Role, StaticKey, WrapKeys};
use tunnel::openvpn::{Client, ClientConfiguration, Server, ServerConfiguration};
use tunnel::{Now, Time};

/// Seconds since 1970: within the validity of the certificates.
pub const START: u64 = 1_800_000_000;

/// How bad the network is, in thousandths of the datagrams.
#[derive(Clone, Copy)]
pub struct Weather {
    pub lost: u32,
    pub duplicated: u32,
    pub damaged: u32,
    /// Delay is between 1 ms and this.
    pub delay: Duration,
}

pub const CLEAR: Weather = Weather { lost: 0, duplicated: 0, damaged: 0, delay: Duration::from_millis(2) };
pub const STORM: Weather =
    Weather { lost: 150, duplicated: 100, damaged: 50, delay: Duration::from_millis(300) };

#[derive(Clone)]
pub struct Datagram {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

pub struct Network {
    /// The server is the first.
    pub hosts: Vec<Host>,
    pub weather: Weather,
    pub log: Vec<(Time, Datagram)>,
    now: Time,
    in_flight: BTreeMap<(Time, u64), Datagram>,
    sent: u64,
    random: ChaCha8Rng,
}

/// Clients that the server admits.
pub const MOST_CLIENTS: usize = 40;

pub const SERVER: usize = 0;
pub const CLIENT: usize = 1;

/// What both sides are configured with.
pub struct Setup {
    pub authority: Authority,
    pub server: Issued,
    pub client: Issued,
    pub key: StaticKey,
    pub server_timing: Timing,
    pub client_timing: Timing,
    pub server_ciphers: Vec<DataCipher>,
    pub client_ciphers: Vec<DataCipher>,
    pub auth: Integrity,
    pub credentials: Credentials,
    pub server_ping: [Option<Duration>; 2],
    pub client_keepalive: Keepalive,
    pub max_clients: usize,
    pub server_features: u32,
    pub client_features: u32,
    pub server_ends_compression: bool,
    pub client_framing: Option<Framing>,
    pub client_information: Vec<(String, String)>,
    pub control_packet: usize,
    pub new_sessions: Option<Rate>,
    pub answers: Option<Rate>,
    /// Whether both are peers, site to site.
    pub is_pair: bool,
    /// Where the server expects its peer.
    pub only_at: Option<Vec<SocketAddr>>,
}

impl Setup {
    pub fn new() -> Self {
        let authority = Authority::new();
        Self {
            server: authority.issue("server", Role::Server, 1),
            client: authority.issue("client", Role::Client, 2),
            authority,
            key: StaticKey::new(&std::array::from_fn(|index| index as u8)),
            server_timing: Timing::default(),
            client_timing: Timing::default(),
            server_ciphers: DataCipher::DEFAULT.to_vec(),
            client_ciphers: DataCipher::DEFAULT.to_vec(),
            auth: Integrity::HmacSha256,
            credentials: Credentials::default(),
            server_ping: [None; 2],
            client_keepalive: Keepalive::default(),
            max_clients: MOST_CLIENTS,
            server_features: OURS,
            client_features: OURS,
            server_ends_compression: false,
            client_framing: None,
            client_information: Vec::new(),
            control_packet: CONTROL_PACKET,
            new_sessions: None,
            answers: None,
            is_pair: false,
            only_at: None,
        }
    }

    pub fn tls_crypt(&self) -> (ServerWrap, ClientWrap) {
        let keys = |role| WrapKeys::tls_crypt(self.key.clone(), role);
        (ServerWrap::Shared(keys(Role::Server)), ClientWrap::Shared(keys(Role::Client)))
    }

    pub fn server(&self, wrap: ServerWrap, seed: u64) -> Server {
        let check = Arc::new(self.authority.check(Role::Client));
        let configuration = ServerConfiguration {
            tls: verify::server_config(self.server.identity(), check).expect("valid"),
            wrap,
            ciphers: self.server_ciphers.clone(),
            fallback: None,
            auth: self.auth,
            ends_compression: self.server_ends_compression,
            ping: self.server_ping[0],
            ping_restart: self.server_ping[1],
            max_clients: self.max_clients,
            features: self.server_features,
            timing: self.server_timing,
            control_packet: self.control_packet,
            new_sessions: self.new_sessions,
            answers: self.answers,
            only: self.is_pair.then(|| OnlyPeer { addresses: self.only_at.clone(), mtu: 1500 }),
        };
        Server::new(configuration, Arc::new(AwsLc), Box::new(Seeded::new(seed)))
    }

    pub fn client(&self, wrap: ClientWrap, seed: u64) -> Client {
        let check = self.authority.check(Role::Server);
        let configuration = ClientConfiguration {
            tls: verify::client_config(Some(self.client.identity()), check).expect("valid"),
            wrap,
            ciphers: self.client_ciphers.clone(),
            fallback: None,
            auth: self.auth,
            framing: self.client_framing,
            credentials: self.credentials.clone(),
            peer_info: self.client_information.clone(),
            mtu: 1500,
            features: self.client_features,
            keepalive: self.client_keepalive,
            timing: self.client_timing,
            control_packet: self.control_packet,
            pulls: !self.is_pair,
        };
        Client::new(configuration, Arc::new(AwsLc), Box::new(Seeded::new(seed)))
    }

    /// A server and a client, which has not begun.
    pub fn network(&self, wraps: (ServerWrap, ClientWrap), seed: u64) -> Network {
        self.network_of(wraps, 1, seed)
    }

    /// A server and some clients, which have not begun.
    pub fn network_of(&self, wraps: (ServerWrap, ClientWrap), clients: u16, seed: u64) -> Network {
        let address = |number: u16| format!("198.18.{}.{}:5000", number / 256, number % 256);
        self.network_at(wraps, (0..clients).map(address), seed)
    }

    /// A server, and clients at these addresses, which have not begun.
    pub fn network_at(
        &self,
        (server, client): (ServerWrap, ClientWrap),
        clients: impl Iterator<Item = String>,
        seed: u64,
    ) -> Network {
        let mut hosts = vec![Host::new(Core::Server(Box::new(self.server(server, seed))), "192.0.2.1:1194")];
        hosts.extend((1..).zip(clients).map(|(number, address)| {
            let core = self.client(client.clone(), seed + number);
            Host::new(Core::Client(Box::new(core)), &address)
        }));
        Network::new(hosts, seed)
    }
}

impl Network {
    fn new(hosts: Vec<Host>, seed: u64) -> Self {
        Self {
            hosts,
            weather: CLEAR,
            log: Vec::new(),
            now: Time::from_nanoseconds(1) + Duration::from_secs(1000),
            in_flight: BTreeMap::new(),
            sent: 0,
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    pub fn now(&self) -> Now {
        let wall = Duration::from_secs(START) + Duration::from_nanos(self.now.nanoseconds());
        Now { monotonic: self.now, wall }
    }

    /// The client begins a session.
    pub fn connect(&mut self, client: usize) {
        let (now, server) = (self.now(), self.hosts[SERVER].address);
        self.hosts[client].connect(now, server);
        self.collect();
    }

    /// Sends an inner packet.
    pub fn send(&mut self, host: usize, session: u32, inner: &[u8]) {
        let now = self.now();
        self.hosts[host].send(now, session, inner);
        self.collect();
    }

    pub fn call<R>(
        &mut self,
        host: usize,
        act: impl FnOnce(&mut Core, Now, &mut tunnel::openvpn::Outbox) -> R,
    ) -> R {
        let now = self.now();
        let result = self.hosts[host].call(now, |core, out| act(core, now, out));
        self.collect();
        result
    }

    /// Lets `duration` pass: datagrams arrive, timers run out.
    pub fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
            let timeouts = self.hosts.iter().filter_map(Host::next_timeout);
            let Some(next) = timeouts.chain(arrival).min().filter(|&next| next <= end) else { break };
            self.now = self.now.max(next);
            let now = self.now();
            for host in &mut self.hosts {
                if host.next_timeout().is_some_and(|at| at <= now.monotonic) {
                    host.handle_timeout(now);
                }
            }
            self.collect();
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
        if let Some(host) = self.hosts.iter_mut().find(|host| host.address == datagram.to) {
            host.handle(now, datagram.from, &datagram.bytes);
        }
        self.collect();
    }

    /// Takes what the hosts send.
    pub fn collect(&mut self) {
        for host in 0..self.hosts.len() {
            let from = self.hosts[host].address;
            for (to, bytes) in std::mem::take(&mut self.hosts[host].outgoing) {
                self.log.push((self.now, Datagram { from, to, bytes: bytes.clone() }));
                self.put_on_the_wire(Datagram { from, to, bytes });
            }
        }
    }

    fn put_on_the_wire(&mut self, mut datagram: Datagram) {
        let Weather { lost, duplicated, damaged, delay } = self.weather;
        let mut chance = |thousandths: u32| self.random.random_range(0..1000) < thousandths;
        let (is_lost, copies, is_damaged) =
            (chance(lost), 1 + usize::from(chance(duplicated)), chance(damaged));
        if is_lost {
            return;
        }
        if is_damaged {
            let position = self.random.random_range(0..datagram.bytes.len());
            datagram.bytes[position] ^= 1 << self.random.random_range(0..8);
        }
        for _ in 0..copies {
            let nanoseconds = self.random.random_range(1_000_000..=delay.as_nanos() as u64);
            self.sent += 1;
            let at = self.now + Duration::from_nanos(nanoseconds);
            self.in_flight.insert((at, self.sent), datagram.clone());
        }
    }

    pub fn is_connected(&self, client: usize) -> bool {
        !self.hosts[client].connected.is_empty()
    }
}
