//! OpenVPN's server in any state: first packets, a client that passes TLS, verdicts, moves, timers and data path events, in
//! any order.

use crypto::Random;
use crypto::cipher::Integrity;
use crypto::engine::aws_lc::AwsLc;
use crypto::hash;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tunnel::openvpn::action::Request;
use tunnel::openvpn::channel::{Announcement, Channel, ChannelEvent};
use tunnel::openvpn::limits::{CONTROL_PACKET, MAX_PENDING};
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::packet::SessionId;
use tunnel::openvpn::peer::Timing;
use tunnel::openvpn::peer_info::{OURS, PeerInfo};
use tunnel::openvpn::server::ServerWrap;
use tunnel::openvpn::tls::{TlsConfig, WallClock};
use tunnel::openvpn::verify::{self, Identity, PeerCheck};
use tunnel::openvpn::wrap::{PacketId, Role, WrapKeys, Wrapper};
use tunnel::openvpn::{Action, Outbox, Server, ServerConfiguration, Verdict};
use tunnel::{Now, Time};

/// Bytes that differ from call to call, so that sessions and keys do.
struct Counting(u64);

impl Random for Counting {
    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            chunk.copy_from_slice(&self.0.to_be_bytes()[..chunk.len()]);
        }
    }
}

/// A certificate, which is made once.
fn identity() -> (CertificateDer<'static>, Vec<u8>) {
    static MADE: OnceLock<(CertificateDer<'static>, Vec<u8>)> = OnceLock::new();
    let make = || {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(Vec::new()).expect("a certificate");
        (cert.der().clone(), signing_key.serialize_der())
    };
    MADE.get_or_init(make).clone()
}

fn server() -> Server {
    let (certificate, key) = identity();
    let key = PrivateKeyDer::try_from(key).expect("PKCS #8");
    let mut check = PeerCheck::new(Role::Client);
    check.make_optional();
    let identity = Identity { chain: vec![certificate], key };
    let configuration = ServerConfiguration {
        tls: verify::server_config(identity, Arc::new(check)).expect("valid"),
        wrap: ServerWrap::Shared(WrapKeys::none()),
        ciphers: DataCipher::DEFAULT.to_vec(),
        fallback: None,
        auth: Integrity::HmacSha1,
        ends_compression: true,
        ping: Some(Duration::from_secs(10)),
        ping_restart: Some(Duration::from_secs(60)),
        max_clients: 2,
        features: OURS,
        timing: Timing::default(),
        control_packet: CONTROL_PACKET,
        new_sessions: None,
        answers: None,
        only: None,
    };
    Server::new(configuration, Arc::new(AwsLc), Box::new(Counting(1)))
}

/// The control channel of a client that knows the protocol, until it is told to send something else.
fn client(now: Now, seed: u64, info: &[u8]) -> Channel {
    let mut check = PeerCheck::new(Role::Server);
    check.add_fingerprint(hash::sha256(&[&identity().0]));
    let clock = Arc::new(WallClock::default());
    clock.set(now);
    let tls = TlsConfig::client(verify::client_config(None, check).expect("valid"), clock);
    let random = &mut Counting(seed);
    let wrapper = Wrapper::new(WrapKeys::none(), PacketId { number: 0, time: 0 });
    // What follows is of the input.
    let more = String::from_utf8_lossy(info);
    let peer_info = PeerInfo::of_client(OURS, "AES-256-GCM", 1500, &[]) + &more;
    let announcement = Announcement { options: String::from("V4"), peer_info, ..Announcement::default() };
    let mut channel = Channel::new(tls, wrapper, SessionId::random(random), announcement);
    channel.send_reset(now, random).expect("TLS begins");
    channel
}

struct Scene {
    now: Now,
    server: Server,
    client: Channel,
    address: SocketAddr,
    random: Counting,
    asked: Vec<(u32, Box<Request>)>,
    sessions: Vec<u32>,
    out: Outbox,
}

impl Scene {
    /// Carries packets between both until none is left, or many were.
    fn exchange(&mut self) {
        for _ in 0..20 {
            let mut events: Vec<ChannelEvent> = Vec::new();
            while let Some(packet) = self.client.transmit(self.now) {
                let _ = self.server.handle_packet(self.now, self.address, &packet, &mut self.out);
            }
            let answers = self.take_actions();
            if answers.is_empty() {
                return;
            }
            for (_, packet) in answers.iter().filter(|(to, _)| *to == self.address) {
                let _ = self.client.handle(self.now, packet, &mut self.random, &mut events);
            }
        }
    }

    /// The packets of the server; notes what it asks.
    fn take_actions(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        assert!(self.out.len() < 5000, "few actions for one packet");
        assert!(self.server.session_count() <= MAX_PENDING + 2);
        let mut packets = Vec::new();
        for action in self.out.drain(..) {
            match action {
                Action::Transmit { to, packet, .. } => packets.push((to.socket, packet)),
                Action::Authenticate { session, request } => self.asked.push((session, request)),
                Action::Connected { session, .. } => self.sessions.push(session),
                Action::Closed { session, .. } => self.sessions.retain(|other| *other != session),
                Action::Install { session, .. } => {
                    assert!(self.sessions.contains(&session), "an SA of a session that is up");
                }
                _ => {}
            }
        }
        packets
    }

    fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        self.now.wall += time;
        self.server.handle_timeout(self.now, &mut self.out);
    }

    fn step(&mut self, kind: u8, choice: u8, bytes: &[u8]) {
        let (now, session) = (self.now, self.sessions.last().copied().unwrap_or(u32::from(choice)));
        let elsewhere = SocketAddr::from(([198, 51, 100, choice % 4], 5000));
        let out = &mut self.out;
        match kind % 10 {
            0 => _ = self.server.handle_packet(now, self.address, bytes, out),
            1 => _ = self.server.handle_packet(now, elsewhere, bytes, out),
            2 => {
                // Under the session ID of the client: for its session, if there is one.
                let packet = [&[choice][..], &self.client.local().0, bytes].concat();
                _ = self.server.handle_packet(now, self.address, &packet, out);
            }
            3 => _ = self.client.send_command(&String::from_utf8_lossy(bytes)),
            4 => _ = self.client.renew(now, &mut self.random),
            5 => {
                let verdict = match choice % 3 {
                    0 => Verdict::Refuse { reason: String::from_utf8_lossy(bytes).into_owned() },
                    _ => Verdict::Accept { push: vec![String::from_utf8_lossy(bytes).into_owned()] },
                };
                if let Some((session, request)) = self.asked.pop() {
                    let key_id = request.key_id.wrapping_add(u8::from(choice > 250));
                    self.server.admit(now, session, key_id, verdict, out);
                }
            }
            6 => self.pass(Duration::from_millis(u64::from(choice) * 400)),
            7 => {
                if self.server.handle_move(session, elsewhere) {
                    self.address = elsewhere;
                }
            }
            8 => match choice % 3 {
                0 => self.server.handle_renewal(now, session, out),
                1 => self.server.handle_confirmed(now, session, 0x4800_0000 | session, out),
                _ => self.server.handle_exit(now, session, out),
            },
            _ => self.client = client(now, self.random.0, bytes),
        }
        self.exchange();
    }
}

/// Steps, each of a kind, a choice, a length and so many bytes.
pub fn server_session(mut data: &[u8]) {
    let now = Now { monotonic: Time::from_nanoseconds(1), wall: Duration::from_secs(1_800_000_000) };
    let mut scene = Scene {
        now,
        server: server(),
        client: client(now, 7, &[]),
        address: SocketAddr::from(([192, 0, 2, 7], 5000)),
        random: Counting(3),
        asked: Vec::new(),
        sessions: Vec::new(),
        out: Outbox::new(),
    };
    scene.exchange();
    while let [kind, choice, length, rest @ ..] = data {
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        data = rest;
        scene.step(*kind, *choice, bytes);
    }
    // However it went, nothing stays for ever.
    for _ in 0..50 {
        scene.pass(Duration::from_secs(7200));
        scene.take_actions();
    }
    assert_eq!(scene.server.session_count(), 0, "no session without a client");
}
