//! IKEv2: messages, two gateways, and a session with known keys.

use crypto::cipher::{Cipher, Integrity};
use crypto::exchange::Group;
use crypto::prf::Prf;
use crypto::{Random, SecretBytes};
use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use tunnel::esp::{Mode, TrafficSelector};
use tunnel::ikev2::keys::{IkeKeys, Nonces, Role, Signed, Spis, shared_key_mac};
use tunnel::ikev2::message::numbers::method;
use tunnel::ikev2::message::{
    self, Attribute, Body, Envelope, Exchange, Header, Identification, KeyExchange, Message, Payload,
    Payloads, ProposalSpi,
};
use tunnel::ikev2::proposal::{Encryption, EspOffer, IkeOffer};
use tunnel::ikev2::{
    Action, Authentication, Child, Connection, ConnectionId, DeadPeerDetection, Endpoint, Identity, Job,
    Outbox, Path, Start, WhenLost,
};
use tunnel::{Now, Time};

/// IKEv2 messages: a parsed message can be written, and parses to the same again.
pub fn messages(data: &[u8]) {
    let Ok(message) = Message::parse(data) else { return };
    let (header, payloads) = match message.body {
        Body::Clear(payloads) => (message.header, payloads),
        Body::Encrypted(sealed) | Body::Fragment { sealed, .. } => {
            assert_eq!(sealed.associated.len() + sealed.text.len(), data.len());
            let Ok(payloads) = Payloads::parse(sealed.first, sealed.text) else { return };
            (message.header, payloads)
        }
    };
    // Payloads that are skipped when parsing cannot be written.
    let unknown = |transform: &message::Transform| transform.attribute == Attribute::Unknown;
    let mut transforms = payloads.sa.iter().flatten().flat_map(|proposal| &proposal.transforms);
    let without_selectors = [&payloads.ts_i, &payloads.ts_r].into_iter().flatten().any(Vec::is_empty);
    if transforms.any(unknown) || without_selectors {
        return;
    }
    let written = message::emit_clear(&header, &payloads.clone().into_list());
    let again = Message::parse(&written).expect("we write nothing malformed");
    assert_eq!(again.header, header);
    assert_eq!(again.body, Body::Clear(payloads));
}

/// A pseudorandom source that does not repeat itself (SplitMix64): a session needs many different SPIs.
struct Numbers(u64);

impl Random for Numbers {
    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(mixed ^ mixed >> 31).to_le_bytes()[..chunk.len()]);
        }
    }

    fn fork(&mut self) -> Box<dyn Random> {
        Box::new(Self(u64::from_le_bytes(self.bytes())))
    }
}

const SECRET: &[u8] = b"a secret of both";

fn ike_offer() -> IkeOffer {
    IkeOffer {
        encryption: vec![Encryption::Aead(Cipher::Aes128Gcm, 16)],
        integrity: vec![Integrity::HmacSha256],
        prf: vec![Prf::HmacSha256],
        groups: vec![Group::X25519],
    }
}

fn esp_offer() -> EspOffer {
    EspOffer { encryption: vec![Encryption::Aead(Cipher::Aes128Gcm, 16)], ..EspOffer::default() }
}

fn address(host: usize) -> SocketAddr {
    ([192, 0, 2, host as u8], 500).into()
}

fn path(host: usize) -> Path {
    Path { local: address(host), remote: address(1 - host) }
}

/// An unused address, or another port of the peer's address.
fn elsewhere(path: Path, number: u8) -> Path {
    let remote = match number & 1 {
        0 => SocketAddr::new(path.remote.ip(), u16::from(number)),
        _ => ([198, 51, 100, number], 4500).into(),
    };
    Path { remote, ..path }
}

fn identity(host: usize) -> Identity {
    Identity::Fqdn(format!("host{host}"))
}

fn all() -> Vec<TrafficSelector> {
    let addresses = [0, 0, 0, 0].into()..=[255, 255, 255, 255].into();
    vec![TrafficSelector { protocol: 0, ports: 0..=65535, addresses }]
}

fn connection(host: usize) -> Connection {
    let child = |name: &str| Child {
        name: name.to_owned(),
        esp: vec![esp_offer()],
        local: all(),
        remote: all(),
        mode: Mode::Tunnel,
        lifetime: Duration::from_secs(1000),
        rekey: true,
        priority: None,
    };
    Connection {
        name: "peer".to_owned(),
        local: Some(address(host).ip()),
        remote: Some(address(1 - host).ip()),
        local_identity: identity(host),
        remote_identity: Some(identity(1 - host)),
        authentication: Authentication::SharedKey(SecretBytes::new(SECRET.to_vec())),
        further: Vec::new(),
        ike: vec![ike_offer()],
        children: vec![child("one"), child("two")],
        lifetime: Duration::from_secs(5000),
        reauthenticate: false,
        dead_peer_detection: Some(DeadPeerDetection {
            interval: Duration::from_secs(100),
            timeout: Duration::from_secs(300),
        }),
        start: Start::Respond,
        when_lost: WhenLost::Restart,
        force_encapsulation: false,
    }
}

/// A gateway, with the state that a data path would have.
struct Gateway {
    endpoint: Endpoint,
    id: ConnectionId,
    path: Path,
    installed: HashSet<u32>,
    expected: HashSet<u32>,
    instances: HashSet<ConnectionId>,
    /// Jobs that have not run yet.
    jobs: VecDeque<Job>,
}

impl Gateway {
    fn new(host: usize, now: Now) -> Self {
        let mut endpoint = Endpoint::new(Box::new(Numbers(host as u64)));
        let id = endpoint.add_connection(now, connection(host));
        let (installed, expected, instances) = (HashSet::new(), HashSet::new(), HashSet::new());
        Self { endpoint, id, path: path(host), installed, expected, instances, jobs: VecDeque::new() }
    }

    /// Carries out actions; returns the datagrams to send.
    fn carry_out(&mut self, now: Now, out: Outbox) -> Vec<Vec<u8>> {
        let mut sent = self.carry_out_but_jobs(out);
        // A job may create another one.
        while let Some(job) = self.jobs.pop_front() {
            let mut out = Outbox::new();
            self.endpoint.handle_finished(now, job.run(), &mut out);
            sent.extend(self.carry_out_but_jobs(out));
        }
        sent
    }

    fn carry_out_but_jobs(&mut self, out: Outbox) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        for action in out {
            match action {
                Action::Work(job) => self.jobs.push_back(job),
                Action::Send { message, .. } => sent.push(message),
                Action::Install(install) => {
                    self.expected.remove(&install.sa.inbound.spi);
                    assert!(self.installed.insert(install.sa.inbound.spi));
                }
                Action::Retire { spi } => assert!(self.installed.remove(&spi)),
                Action::Expect { spi } => assert!(self.expected.insert(spi)),
                Action::ExpectNoMore { spi } => assert!(self.expected.remove(&spi)),
                Action::AddInstance { instance, .. } => assert!(self.instances.insert(instance)),
                Action::RemoveInstance { instance } => assert!(self.instances.remove(&instance)),
                Action::Use { .. } | Action::KeepNat { .. } | Action::Follow { .. } | Action::Report(_) => {}
            }
        }
        let load = self.endpoint.load();
        assert!(load.child_spis >= self.installed.len(), "what is installed has an SPI");
        assert_eq!(load.instances, self.instances.len());
        sent
    }
}

const START: Now = Now { monotonic: Time::from_nanoseconds(1), wall: Duration::from_secs(1 << 30) };

/// Two gateways. The bytes determine what they start, which datagrams arrive and how, and how time passes.
pub fn gateways(data: &[u8]) {
    let mut now = START;
    let mut hosts = [0, 1].map(|host| Gateway::new(host, now));
    let mut wire: [Vec<Vec<u8>>; 2] = Default::default();
    for pair in data.as_chunks::<2>().0.iter().take(200) {
        let [command, argument] = *pair;
        let end = usize::from(command & 1);
        let host = &mut hosts[end];
        let (id, mut out) = (host.id, Outbox::new());
        let spi = host.installed.iter().min().copied().unwrap_or_default();
        match command >> 1 & 15 {
            0 => drop(host.endpoint.initiate(now, id, &mut out)),
            1 => host.endpoint.rekey(now, id, &mut out),
            2 => host.endpoint.rekey_child(now, spi, &mut out),
            3 => host.endpoint.delete_child(now, spi, &mut out),
            4 => host.endpoint.close(now, id, &mut out),
            5 | 6 => {
                let passed = Duration::from_millis(u64::from(argument).pow(2));
                now = Now { monotonic: now.monotonic + passed, wall: now.wall + passed };
                host.endpoint.handle_timeout(now, &mut out);
            }
            7 => drop(wire[end].pop()),
            10 => {
                host.endpoint.note_sent(now, spi);
                host.endpoint.note_strayed(now, spi, elsewhere(host.path, argument).remote);
            }
            11 => host.endpoint.note_moved(now, spi, elsewhere(host.path, argument), &mut out),
            command => {
                if let Some(mut datagram) = wire[end].pop() {
                    let path = if command == 12 { elsewhere(host.path, argument) } else { host.path };
                    if command == 8 {
                        let at = usize::from(argument) % datagram.len();
                        datagram[at] ^= argument | 1;
                    }
                    if command == 9 {
                        wire[end].push(datagram.clone());
                    }
                    let _ = host.endpoint.handle_datagram(now, path, &datagram, &mut out);
                }
            }
        }
        let are_jobs_done = command & 0x80 == 0;
        let sent = if are_jobs_done { host.carry_out(now, out) } else { host.carry_out_but_jobs(out) };
        wire[1 - end].extend(sent);
        wire[1 - end].truncate(64);
    }
}

/// The peer of a session: it has the right keys and sends what the bytes contain.
struct Insider {
    gateway: Gateway,
    /// The path of its datagrams.
    path: Path,
    spis: Spis,
    keys: IkeKeys,
}

impl Insider {
    fn header(spis: Spis, exchange: Exchange, message_id: u32) -> Header {
        Header {
            initiator_spi: spis.initiator,
            responder_spi: spis.responder,
            exchange,
            from_initiator: true,
            is_response: false,
            message_id,
        }
    }

    /// Completes both exchanges of a set-up.
    fn new() -> Self {
        let mut gateway = Gateway::new(1, START);
        let share = Group::X25519.generate(&mut Numbers(5));
        let init = Self::header(Spis { initiator: 1, responder: 0 }, Exchange::IkeSaInit, 0);
        let nonce = [7; 32];
        let first = message::emit_clear(
            &init,
            &[
                Payload::Sa(IkeOffer::propose(&[ike_offer()], ProposalSpi::None)),
                Payload::Ke(KeyExchange { group: 31, public: share.public() }),
                Payload::Nonce(&nonce),
            ],
        );
        let answer = Self::ask(&mut gateway, &first).pop().expect("it is answered");
        let message = Message::parse(&answer).expect("well formed");
        let Body::Clear(payloads) = message.body else { unreachable!("it is in the clear") };
        let shared = share.agree(payloads.ke.expect("success").public).expect("valid");
        let proposals = payloads.sa.expect("success");
        let suite = IkeOffer::select(&[ike_offer()], &proposals).expect("ours").suite;
        let spis = Spis { initiator: 1, responder: message.header.responder_spi };
        let nonces = Nonces { initiator: &nonce, responder: payloads.nonce.expect("success") };
        let keys = IkeKeys::first(&suite, Role::Initiator, spis, nonces, &shared);
        let path = gateway.path;
        let mut this = Self { gateway, path, spis, keys };
        this.authenticate(&first, nonces.responder);
        this
    }

    fn ask(gateway: &mut Gateway, datagram: &[u8]) -> Vec<Vec<u8>> {
        let path = gateway.path;
        Self::ask_from(gateway, path, datagram)
    }

    fn ask_from(gateway: &mut Gateway, path: Path, datagram: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Outbox::new();
        let _ = gateway.endpoint.handle_datagram(START, path, datagram, &mut out);
        gateway.carry_out(START, out)
    }

    fn say(&mut self, header: &Header, envelope: Envelope, first: u8, chain: &[u8]) {
        let datagram = self.keys.sealer.seal(header, first, envelope, chain, &mut Numbers(1));
        let path = self.path;
        Self::ask_from(&mut self.gateway, path, &datagram);
    }

    fn authenticate(&mut self, first: &[u8], nonce: &[u8]) {
        let body = b"\x02\0\0\0host0";
        let octets =
            Signed { message: first, nonce, identity: body }.octets(Prf::HmacSha256, &self.keys.proof.local);
        let mac = shared_key_mac(Prf::HmacSha256, &SecretBytes::new(SECRET.to_vec()), &octets);
        let payloads = [
            Payload::IdI(Identification::parse(body).expect("ours")),
            Payload::Auth(message::Authentication { method: method::SHARED_KEY, data: mac.expose() }),
            Payload::Sa(EspOffer::propose(&[esp_offer()], 999)),
            Payload::TsI(all()),
            Payload::TsR(all()),
        ];
        let (kind, chain) = message::emit(&payloads);
        let header = Self::header(self.spis, Exchange::IkeAuth, 1);
        self.say(&header, Envelope::Whole, kind, &chain);
        assert_eq!(self.gateway.installed.len(), 1, "the session is there");
    }
}

/// A session whose peer has the right keys and sends what the bytes contain: exchange, number, fragment, payloads.
pub fn session(data: &[u8]) {
    let mut insider = Insider::new();
    let mut rest = data;
    let mut message_id = 2;
    while let Some((&[kind, fragment, first, length], tail)) = rest.split_first_chunk::<4>() {
        let (chain, tail) = tail.split_at(usize::from(length).min(tail.len()));
        rest = tail;
        let exchange = match kind & 3 {
            0 | 1 => Exchange::CreateChildSa,
            2 => Exchange::Informational,
            _ => Exchange::Other(kind),
        };
        let envelope = match fragment {
            0..128 => Envelope::Whole,
            number => Envelope::Fragment(u16::from(number & 7), u16::from(number >> 3 & 7)),
        };
        let header = Insider::header(insider.spis, exchange, message_id);
        if kind & 0x40 != 0 {
            insider.path = elsewhere(insider.gateway.path, kind >> 2 & 15);
        }
        insider.say(&header, envelope, first, chain);
        message_id += u32::from(kind & 0x80 == 0);
    }
}
