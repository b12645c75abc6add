//! Attacks of clients that pass TLS, and of senders on the path.

use crate::certificates::Issued;
use crate::host::{Core, Seeded};
use crate::network::{CLIENT, MOST_CLIENTS, Network, SERVER, Setup};
use crate::{assert_carries, connected, seconds};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tunnel::openvpn::action::Report;
use tunnel::openvpn::channel::{Announcement, Channel, ChannelEvent, PacketError};
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::key_method::{Credentials, KeyMethod, KeySource};
use tunnel::openvpn::packet::{Body, Lead, Opcode, SessionId};
use tunnel::openvpn::peer_info::{OURS, PeerInfo, proto};
use tunnel::openvpn::server::ServerWrap;
use tunnel::openvpn::session::{Beginning, KeyError, KeySession};
use tunnel::openvpn::tls::{Tls, TlsConfig, WallClock};
use tunnel::openvpn::wrap::{PacketId, Role, WrapError, WrapKeys, Wrapper};
use tunnel::openvpn::{Verdict, verify};

pub fn session_count(network: &Network) -> usize {
    match &network.hosts[SERVER].core {
        Core::Server(server) => server.session_count(),
        Core::Client(_) => unreachable!(),
    }
}

fn admit(network: &mut Network, (session, key_id): (u32, u8), verdict: Verdict) {
    network.call(SERVER, |core, now, out| match core {
        Core::Server(server) => server.admit(now, session, key_id, verdict, out),
        Core::Client(_) => unreachable!(),
    });
}

fn renew(network: &mut Network) {
    network.call(CLIENT, |core, now, out| match core {
        Core::Client(client) => client.handle_renewal(now, out),
        Core::Server(_) => unreachable!(),
    });
    network.run(seconds(1));
}

const ACCEPT: Verdict = Verdict::Accept { push: Vec::new() };

fn tls(setup: &Setup, network: &Network, own: &Issued) -> TlsConfig {
    let check = setup.authority.check(Role::Server);
    let config = verify::client_config(Some(own.identity()), check).expect("valid");
    let clock = Arc::new(WallClock::default());
    clock.set(network.now());
    TlsConfig::client(config, clock)
}

/// An attacker who passes TLS, with the channel only.
pub struct Attacker {
    pub channel: Channel,
    random: Seeded,
    pub address: SocketAddr,
}

impl Attacker {
    pub fn new(setup: &Setup, network: &Network, number: u64, features: u32) -> Self {
        let mut random = Seeded::new(number);
        let local = SessionId::random(&mut random);
        Self::with_session(setup, network, number, features, local)
    }

    fn with_session(setup: &Setup, network: &Network, number: u64, features: u32, local: SessionId) -> Self {
        let tls = tls(setup, network, &setup.client);
        let mut random = Seeded::new(number);
        let keys = WrapKeys::tls_crypt(setup.key.clone(), Role::Client);
        let wrapper = Wrapper::new(keys, PacketId { number: 0, time: network.now().wall.as_secs() as u32 });
        let peer_info = PeerInfo::of_client(features, "AES-256-GCM", 1500, &[]);
        let announcement = Announcement { peer_info, options: String::from("V4"), ..Announcement::default() };
        let mut channel = Channel::new(tls, wrapper, local, announcement);
        channel.send_reset(network.now(), &mut random).expect("begins");
        let address = ([203, 0, 113, 7], 1000 + number as u16).into();
        Self { channel, random, address }
    }

    /// Begins another negotiation of keys, whatever became of the last one.
    pub fn renew(&mut self, network: &Network) {
        if let Some(key_id) = self.channel.newest().map(|key| key.key_id) {
            self.channel.set_installed(key_id);
        }
        self.channel.renew(network.now(), &mut self.random).expect("begins");
    }

    pub fn run(&mut self, network: &mut Network) -> Vec<ChannelEvent> {
        let mut events = Vec::new();
        for _ in 0..50 {
            let now = network.now();
            while let Some(packet) = self.channel.transmit(now) {
                let before = network.log.len();
                network.hosts[SERVER].handle(now, self.address, &packet);
                network.collect();
                let answers: Vec<_> =
                    network.log[before..].iter().map(|(_, sent)| sent.bytes.clone()).collect();
                for answer in answers {
                    let _ = self.channel.handle(now, &answer, &mut self.random, &mut events);
                }
            }
        }
        events
    }
}

/// An attacker with one negotiation of keys, who sends what a client would not.
struct Negotiator {
    key: KeySession,
    wrapper: Wrapper,
    local: SessionId,
    server: Option<SessionId>,
    address: SocketAddr,
}

impl Negotiator {
    fn new(setup: &Setup, network: &Network, number: u64) -> Self {
        let mut random = Seeded::new(number);
        let now = network.now();
        let tls = Tls::new(&tls(setup, network, &setup.client)).expect("valid");
        let source = KeySource::random(Role::Client, &mut random);
        let peer_info = PeerInfo::of_client(OURS, "AES-256-GCM", 1500, &[]);
        let ours =
            KeyMethod { source, options: String::from("V4"), credentials: Credentials::default(), peer_info };
        let keys = WrapKeys::tls_crypt(setup.key.clone(), Role::Client);
        let wrapper = Wrapper::new(keys, PacketId { number: 0, time: now.wall.as_secs() as u32 });
        let reset = Beginning::Reset(Opcode::ClientResetV2);
        Self {
            key: KeySession::new(now.monotonic, 0, Role::Client, tls, reset, ours, wrapper.room()),
            wrapper,
            local: SessionId::random(&mut random),
            server: None,
            address: ([203, 0, 113, 8], 1000 + number as u16).into(),
        }
    }

    /// Until TLS is established; then `last` is sent in the packets that have the key method message.
    fn run(&mut self, network: &mut Network, last: &str) {
        let mut has_said = false;
        for _ in 0..50 {
            let now = network.now();
            while let Some((lead, body)) = self.key.transmit(now.monotonic, self.server) {
                let packet = self.wrapper.seal(now.wall.as_secs() as u32, lead, self.local, &body);
                let before = network.log.len();
                network.hosts[SERVER].handle(now, self.address, &packet);
                network.collect();
                let answers: Vec<_> =
                    network.log[before..].iter().map(|(_, sent)| sent.bytes.clone()).collect();
                for answer in answers {
                    let Ok(opened) = self.wrapper.keys().open(&answer) else { continue };
                    let body = Body::parse(opened.lead.opcode, &opened.body).expect("the server's");
                    self.server = Some(opened.session);
                    let _ = self.key.receive(now.monotonic, opened.lead.opcode, &body, &mut Vec::new());
                    if !has_said && !self.key.tls().is_handshaking() {
                        has_said = true;
                        self.key.send_command(last).expect("short");
                    }
                }
            }
        }
    }
}

/// Nothing would undo what is decided about a session that has ended.
#[test]
fn nobody_is_asked_about_a_client_that_leaves_with_its_first_message() {
    let setup = Setup::new();
    let mut network = setup.network(setup.tls_crypt(), 1);
    network.hosts[SERVER].verdict = None;
    let mut stays = Negotiator::new(&setup, &network, 1);
    stays.run(&mut network, "PUSH_REQUEST");
    assert_eq!((network.hosts[SERVER].unanswered.len(), session_count(&network)), (1, 1));
    let mut leaves = Negotiator::new(&setup, &network, 2);
    leaves.run(&mut network, "EXIT");
    assert!(leaves.server.is_some());
    assert_eq!((network.hosts[SERVER].unanswered.len(), session_count(&network)), (1, 1));
}

#[test]
fn a_verdict_is_about_the_keys_that_were_asked_about() {
    let setup = Setup::new();
    let mut network = connected(&setup, 1);
    network.hosts[SERVER].verdict = None;
    renew(&mut network);
    renew(&mut network);
    let asked = std::mem::take(&mut network.hosts[SERVER].unanswered);
    assert_eq!(
        asked.iter().map(|(_, key_id)| *key_id).collect::<Vec<_>>(),
        [1],
        "no other key before the verdict"
    );
    let session = asked[0].0;
    for key_id in [0, 2] {
        admit(&mut network, (session, key_id), ACCEPT);
    }
    assert_eq!(network.hosts[SERVER].inbound.len(), 1, "verdicts about other keys");
    admit(&mut network, asked[0], Verdict::Refuse { reason: String::from("no") });
    admit(&mut network, asked[0], ACCEPT);
    network.run(seconds(10));
    assert!(!network.is_connected(SERVER) && network.hosts[SERVER].inbound.is_empty());
}

#[test]
fn keys_are_renewed_with_the_certificate_of_the_session_only() {
    for changes in [false, true] {
        let setup = Setup::new();
        let mut network = setup.network(setup.tls_crypt(), 1);
        let mut attacker = Attacker::new(&setup, &network, 1, OURS & !proto::DYNAMIC_TLS_CRYPT);
        attacker.run(&mut network);
        assert!(network.is_connected(SERVER));
        let other = setup.authority.issue("client", Role::Client, 3);
        attacker.channel.set_tls(tls(&setup, &network, if changes { &other } else { &setup.client }));
        network.run(seconds(1));
        attacker.renew(&network);
        attacker.run(&mut network);
        let keys = network.hosts[SERVER].inbound.len();
        network.run(seconds(10));
        assert_eq!((keys, network.is_connected(SERVER)), if changes { (0, false) } else { (2, true) });
        assert_eq!(
            network.hosts[SERVER].requests.len(),
            if changes { 1 } else { 2 },
            "the caller is not asked"
        );
    }
}

#[test]
fn no_keys_are_negotiated_before_the_verdict() {
    let setup = Setup::new();
    let mut network = setup.network(setup.tls_crypt(), 1);
    network.hosts[SERVER].verdict = None;
    let mut attacker = Attacker::new(&setup, &network, 1, OURS);
    attacker.run(&mut network);
    let mut handshakes = 0;
    for _ in 0..20 {
        attacker.renew(&network);
        let events = attacker.run(&mut network);
        handshakes += events.iter().filter(|event| matches!(event, ChannelEvent::Exchanged { .. })).count();
    }
    let asked = std::mem::take(&mut network.hosts[SERVER].unanswered);
    admit(&mut network, asked[0], ACCEPT);
    network.run(seconds(24 * 3600));
    assert_eq!(
        (handshakes, session_count(&network), network.hosts[SERVER].inbound.len()),
        (0, 0, 0),
        "handshakes before the verdict, sessions a day later, their keys"
    );
}

#[test]
fn admitted_sessions_end_if_no_options_are_asked_for() {
    let setup = Setup::new();
    let mut network = setup.network(setup.tls_crypt(), 1);
    for number in 0..150 {
        let mut attacker = Attacker::new(&setup, &network, number, OURS & !proto::REQUEST_PUSH);
        attacker.run(&mut network);
        network.run(Duration::from_millis(200));
    }
    network.run(seconds(10));
    assert_eq!(session_count(&network), MOST_CLIENTS, "as many as may be connected");
    network.run(seconds(24 * 3600));
    assert_eq!(session_count(&network), 0);
}

#[test]
fn a_session_that_moves_takes_nothing_from_another() {
    let mut setup = Setup::new();
    let mut network = connected(&setup, 1);
    let victim = network.hosts[CLIENT].address;
    // The attacker has seen the victim's session ID, and takes the same.
    let id = SessionId(network.log[0].1.bytes[1..9].try_into().expect("8 bytes"));
    let own = setup.authority.issue("attacker", Role::Client, 3);
    let client = std::mem::replace(&mut setup.client, own);
    let mut attackers =
        vec![Attacker::with_session(&setup, &network, 1, OURS, id), Attacker::new(&setup, &network, 2, OURS)];
    setup.client = client;
    // With the victim's certificate, too, the victim keeps its entry.
    attackers.push(Attacker::with_session(&setup, &network, 3, OURS, id));
    attackers.push(Attacker::new(&setup, &network, 4, OURS));
    let mut moved = Vec::new();
    for attacker in &mut attackers {
        attacker.run(&mut network);
        let mut sessions = network.hosts[SERVER].connected.iter();
        let session = *sessions.find(|(_, address)| **address == attacker.address).expect("connected").0;
        // A data packet of the attacker with the victim's source address.
        moved.push(network.call(SERVER, |core, _, _| match core {
            Core::Server(server) => server.handle_move(session, victim),
            Core::Client(_) => unreachable!("a server"),
        }));
        network.run(Duration::from_millis(200));
    }
    assert_eq!(moved, [false, false, false, true], "only the victim itself, in another session");
    renew(&mut network);
    network.run(seconds(20));
    let ids: Vec<u32> = network.hosts[CLIENT].inbound.keys().map(|index| index >> 24 & 7).collect();
    assert!(ids.contains(&1), "the victim has no new keys: {ids:?}");
}

#[test]
fn an_injected_packet_does_not_end_an_established_session() {
    let setup = Setup::new();
    let none = WrapKeys::none;
    let mut network = setup.network((ServerWrap::Shared(none()), ClientWrap::Shared(none())), 1);
    network.connect(CLIENT);
    network.run(seconds(1));
    let client = network.hosts[CLIENT].address;
    let own = SessionId(network.log[0].1.bytes[1..9].try_into().expect("8 bytes"));
    for message in 0..40 {
        let garbage = [
            0x17, 3, 3, 0, 32, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
            23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
        ];
        let body = Body {
            acks: [].into_iter().collect(),
            receiver: None,
            message: Some(message),
            payload: &garbage,
        };
        let id = PacketId { number: 1, time: 1 };
        let packet = none().seal(Lead { opcode: Opcode::Control, key_id: 0 }, own, id, &body.emit());
        let now = network.now();
        network.hosts[SERVER].handle(now, client, &packet);
        network.collect();
    }
    assert_eq!(network.hosts[SERVER].closed, []);
    assert_carries(&mut network, 1);
    // The first key has no control channel at the server any more, and new keys are negotiated nevertheless.
    network.run(seconds(30));
    let ids: Vec<u32> = network.hosts[CLIENT].inbound.keys().map(|index| index >> 24 & 7).collect();
    assert!(ids.contains(&1), "{ids:?}");
    assert_carries(&mut network, 2);
}

#[test]
fn a_command_with_control_characters_is_ignored_and_reported() {
    let setup = Setup::new();
    let mut network = setup.network(setup.tls_crypt(), 1);
    let mut attacker = Attacker::new(&setup, &network, 1, OURS);
    attacker.run(&mut network);
    for command in ["INFO,a\r\n", "INFO,b\nINFO,c", "INFO,\x1b[2J", "INFO,\u{9b}2J"] {
        attacker.channel.send_command(command).expect("short");
    }
    attacker.run(&mut network);
    assert_eq!(network.hosts[SERVER].commands, ["INFO,a"]);
    assert_eq!(network.hosts[SERVER].reports, [Report::BadCommand], "once");
}

#[test]
fn many_commands_in_one_packet_arrive_at_once() {
    let setup = Setup::new();
    let mut network = setup.network(setup.tls_crypt(), 1);
    let mut attacker = Attacker::new(&setup, &network, 1, OURS);
    attacker.run(&mut network);
    for _ in 0..40 {
        attacker.channel.send_command("A").expect("short");
    }
    attacker.run(&mut network);
    assert_eq!(network.hosts[SERVER].commands.len(), 40);
}

#[test]
fn a_peer_that_acknowledges_nothing_occupies_a_bounded_memory() {
    let setup = Setup::new();
    let mut network = setup.network(setup.tls_crypt(), 1);
    let mut attacker = Attacker::new(&setup, &network, 1, OURS);
    attacker.run(&mut network);
    let command = "x".repeat(10_000);
    let sent: Vec<_> = (0..10).map(|_| attacker.channel.send_command(&command)).collect();
    assert_eq!(sent.first(), Some(&Ok(())));
    assert_eq!(sent.last(), Some(&Err(KeyError::TooMuchToSend)));
}

#[test]
fn a_data_packet_is_no_control_packet() {
    let setup = Setup::new();
    let mut network =
        setup.network((ServerWrap::Shared(WrapKeys::none()), ClientWrap::Shared(WrapKeys::none())), 1);
    network.connect(CLIENT);
    network.run(seconds(1));
    let own = SessionId(network.log[0].1.bytes[1..9].try_into().expect("8 bytes"));
    let body = Body { acks: [].into_iter().collect(), receiver: None, message: Some(9), payload: &[] };
    let id = PacketId { number: 1, time: 1 };
    let packet = WrapKeys::none().seal(Lead { opcode: Opcode::DataV2, key_id: 0 }, own, id, &body.emit());
    let client = network.hosts[CLIENT].address;
    let handled = network.call(SERVER, |core, now, out| match core {
        Core::Server(server) => server.handle_packet(now, client, &packet, out),
        Core::Client(_) => unreachable!("a server"),
    });
    assert_eq!(handled, Err(PacketError::Wrap(WrapError::Malformed)));
}
