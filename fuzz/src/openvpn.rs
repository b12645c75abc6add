//! OpenVPN: packets before authentication, messages after it, and a client's session.

use crypto::Random;
use crypto::engine::aws_lc::AwsLc;
use crypto::prf::Prf;
use port::tcp::framing;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::data::{Header, Inner};
use tunnel::openvpn::keepalive::Keepalive;
use tunnel::openvpn::key_method::{Credentials, KeyMethod};
use tunnel::openvpn::limits::{CONTROL_PACKET, LONGEST_PACKET};
use tunnel::openvpn::negotiate::{self, DataCipher};
use tunnel::openvpn::packet::{Body, Lead, Opcode, SessionId};
use tunnel::openvpn::peer::Timing;
use tunnel::openvpn::peer_info::{OURS, PeerInfo};
use tunnel::openvpn::push::{CoreOptions, Reply};
use tunnel::openvpn::verify::{self, PeerCheck};
use tunnel::openvpn::wrap::v2::{ClientKey, ServerKey};
use tunnel::openvpn::wrap::{KEY, PacketId, Role, StaticKey, WrapKeys};
use tunnel::openvpn::{Action, Client, ClientConfiguration, Outbox};
use tunnel::{Now, Time};

/// Random numbers that are all the same.
struct Constant;

impl Random for Constant {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(0x5a);
    }
}

/// Packets from any source, under each wrap, as datagrams and on a stream; key files.
pub fn packets(data: &[u8]) {
    let key = StaticKey::new(&[7; KEY]);
    let wraps = [
        WrapKeys::none(),
        WrapKeys::tls_auth(Prf::HmacSha1, key.clone(), Some(0)),
        WrapKeys::tls_crypt(key.clone(), Role::Server),
    ];
    for wrap in &wraps {
        let Ok(opened) = wrap.open(data) else { continue };
        let Ok(body) = Body::parse(opened.lead.opcode, &opened.body) else { continue };
        // The list of acknowledgments and the receiver's ID are there together, or not at all.
        assert_eq!(body.emit(), opened.body);
    }
    let _ = ServerKey::random(&mut Constant).unwrap(data);
    if let Some(header) = Header::parse(data) {
        assert_eq!(header.word() >> 24, u32::from(data[0]));
        Inner::of(data);
    }
    let mut start = 0;
    while let Ok(Some(packet)) = framing::next(data, start, LONGEST_PACKET) {
        assert!(!packet.is_empty() && packet.start == start + framing::LENGTH);
        start = packet.end;
    }
    let _ = (ServerKey::from_file(data), ClientKey::from_file(data));
    let _ = StaticKey::from_file(&String::from_utf8_lossy(data));
}

/// Messages of a peer inside of TLS.
pub fn messages(data: &[u8]) {
    for role in [Role::Client, Role::Server] {
        let Ok(message) = KeyMethod::parse(role, data) else { continue };
        let info = PeerInfo::parse(&message.peer_info);
        let _ = negotiate::choose(
            &DataCipher::DEFAULT,
            DataCipher::DEFAULT.last().copied(),
            &info,
            &message.options,
        );
        if let Some(written) = message.emit(role) {
            let again = KeyMethod::parse(role, &written).expect("we write nothing malformed");
            assert_eq!((again.options, again.peer_info), (message.options, message.peer_info));
        }
    }
    let text = String::from_utf8_lossy(data);
    let mut reply = Reply::default();
    for line in text.split('\0') {
        if let Ok(Some(options)) = reply.take(line) {
            let _ = CoreOptions::parse(&options);
        }
    }
}

const SERVER: SessionId = SessionId([9; 8]);

/// The packets of a server without a wrap, to a client that has received its reset: for each a leading byte, a length, a
/// body.
pub fn session(mut data: &[u8]) {
    let server = SocketAddr::from(([192, 0, 2, 1], 1194));
    let mut now = Now { monotonic: Time::from_nanoseconds(1), wall: Duration::from_secs(1_800_000_000) };
    let configuration = ClientConfiguration {
        tls: verify::client_config(None, PeerCheck::new(Role::Server)).expect("valid"),
        wrap: ClientWrap::Shared(WrapKeys::none()),
        ciphers: DataCipher::DEFAULT.to_vec(),
        fallback: None,
        auth: crypto::cipher::Integrity::HmacSha1,
        framing: None,
        credentials: Credentials::default(),
        peer_info: Vec::new(),
        mtu: 1500,
        features: OURS,
        keepalive: Keepalive::default(),
        timing: Timing::default(),
        control_packet: CONTROL_PACKET,
        pulls: true,
    };
    let mut client = Client::new(configuration, Arc::new(AwsLc), Box::new(Constant));
    let mut out = Outbox::new();
    client.connect(now, server, &mut out);
    let Some(Action::Transmit { packet, .. }) = out.first() else { panic!("a first packet") };
    let receiver = SessionId(packet[1..9].try_into().expect("a session ID"));
    let reset =
        Body { acks: [0].into_iter().collect(), receiver: Some(receiver), message: Some(0), payload: &[] };
    let lead = Lead { opcode: Opcode::ServerReset, key_id: 0 };
    let id = PacketId { number: 1, time: 1 };
    let packet = WrapKeys::none().seal(lead, SERVER, id, &reset.emit());
    client.handle_packet(now, server, &packet, &mut out).expect("a reset");
    while let [lead, length, rest @ ..] = data {
        let (body, rest) = rest.split_at(rest.len().min(usize::from(*length) * 2));
        data = rest;
        let packet = [&[*lead][..], &SERVER.0, body].concat();
        out.clear();
        let _ = client.handle_packet(now, server, &packet, &mut out);
        assert!(out.len() < 100, "few packets for one");
        now.monotonic = now.monotonic + Duration::from_millis(500);
        client.handle_timeout(now, &mut out);
    }
}
