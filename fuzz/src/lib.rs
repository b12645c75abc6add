//! The fuzz targets. Each takes arbitrary bytes and must return.
#![forbid(unsafe_code)]

pub mod agentx;
pub mod backup;
pub mod enrollment;
pub mod health;
pub mod ike;
pub mod import;
pub mod machine;
pub mod multi_buffer;
pub mod openvpn;
pub mod openvpn_files;
pub mod openvpn_management;
pub mod openvpn_server;
pub mod page;
pub mod reassembly;
pub mod requests;
pub mod secgw;
pub mod stamp;

use config::Text;
use config::merge::{Side, merge};
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, none};
use crypto::pki::{Certificate, DistinguishedName, Evidence, Identity, Revocation, TrustStore};
use crypto::signature::{Scheme, SigningKey};
use crypto::{PrivateKey, Random, Secret};
use gateway::bed::{self, Bed};
use gateway::daemon::archive::revision;
use gateway::host::read_notification;
use gateway::wireguard::uapi;
use packet::checksum::Sum;
use packet::header::arp;
use packet::header::esp::{Encapsulated, TRAILER, Trailer};
use packet::header::flow::Flow;
use packet::header::icmp::{self, IcmpError};
use packet::header::ip::{IpPacket, TCP, ecn, set_ecn};
use packet::header::neighbour::NeighbourMessage;
use packet::header::tcp::{TcpHeader, clamp_mss};
use packet::header::udp::UdpHeader;
use packet::header::wireguard::{Message, TAG};
use packet::{Batch, Endpoint};
use port::tun::coalesce::{Coalescer, SuperPacket};
use port::tun::segment::Segmenter;
use port::tun::virtio::VirtioHeader;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tunnel::esp::{Mode, Transform};
use tunnel::wireguard::device::Outbox;
use tunnel::wireguard::{Device, DeviceAction};
use tunnel::{Now, Time};
use zerocopy::{FromBytes, IntoBytes};

/// A target, which must return for any bytes.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: &[(&str, Target)] = &[
    ("headers", headers),
    ("messages", messages),
    ("ike", ike::messages),
    ("ike-gateways", ike::gateways),
    ("ike-session", ike::session),
    ("openvpn-packets", openvpn::packets),
    ("openvpn-messages", openvpn::messages),
    ("openvpn-session", openvpn::session),
    ("openvpn-server", openvpn_server::server_session),
    ("device", device),
    ("datapath", datapath),
    ("esp", esp),
    ("segment", segment),
    ("coalesce", coalesce),
    ("uapi", uapi),
    ("config", config),
    ("edits", edits),
    ("revision", revision),
    ("backup", backup::tar),
    ("age", backup::age),
    ("import-uci", import::uci),
    ("import-wg-quick", import::wg_quick),
    ("import-swanctl", import::swanctl),
    ("import-ipsec-conf", import::ipsec_conf),
    ("import-router", import::router),
    ("machine", machine::requests),
    ("multi-buffer", multi_buffer::bursts),
    ("openvpn-files", openvpn_files::files),
    ("openvpn-management", openvpn_management::lines),
    ("requests", requests::requests),
    ("enrollment", enrollment::tokens),
    ("page", page::places),
    ("agentx", agentx::messages),
    ("health", health::files),
    ("mail", health::answers),
    ("stamp", stamp::packets),
    ("secgw", secgw::files),
    ("fragments", reassembly::fragments),
    ("faults", faults),
    ("certificates", certificates),
    ("revocation", revocation),
    ("notifications", notifications),
];

/// IP, TCP, UDP and ICMP headers, and messages of neighbour discovery and ARP.
pub fn headers(data: &[u8]) {
    if let Ok(message) = NeighbourMessage::parse(data) {
        assert_eq!(NeighbourMessage::parse(&message.packet()), Ok(message));
    }
    if let Some(message) = arp::Message::parse(data) {
        assert_eq!(arp::Message::parse(&message.frame([2; 6])[14..]), Some(message));
    }
    let _ = (TcpHeader::parse(data), UdpHeader::parse(data), Flow::parse(data));
    clamp_mss(&mut data.to_vec(), 1400);
    if let Ok(Encapsulated::Esp(_, text)) = Encapsulated::parse(data)
        && let Ok(trailer) = Trailer::parse(text)
    {
        assert!(trailer.payload + TRAILER <= text.len());
    }
    let Ok(ip) = IpPacket::parse(data) else { return };
    assert!(ip.bytes().len() <= data.len());
    for error in [IcmpError::HostUnreachable, IcmpError::TooBig { mtu: 1400 }] {
        if let Some(answer) = icmp::answer(&ip, error) {
            let parsed = IpPacket::parse(&answer).expect("we send nothing malformed");
            assert_eq!(parsed.bytes().len(), answer.len());
            assert_eq!(parsed.destination(), ip.source());
        }
    }
    let mut copy = ip.bytes().to_vec();
    for outer in 0..4 {
        if let Some(inner) = ecn::decapsulate(ip.ds_field(), outer) {
            set_ecn(&mut copy, inner).expect("it was parsed");
        }
    }
}

/// WireGuard messages.
pub fn messages(data: &[u8]) {
    if let Some(Message::Data(header, sealed)) = Message::parse(data) {
        assert_eq!(header.as_bytes().len() + sealed.len(), data.len());
        assert!(sealed.len() >= TAG);
    }
}

/// A predictable source of randomness: it fills each request with one repeated byte, which differs from the last.
struct Constant(u8);

impl Random for Constant {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0 = self.0.wrapping_add(1);
        bytes.fill(self.0);
    }
}

/// The WireGuard protocol between two hosts. The bytes contain datagrams with lengths and delays, and say how the
/// messages of the protocol itself are damaged on the way.
pub fn device(data: &[u8]) {
    let keys = [[1; 32], [2; 32]];
    let mut hosts = keys.map(|key| {
        let mut device = Device::new(Arc::new(AwsLc), Box::new(Constant(key[0])));
        device.set_private_key(Time::from_nanoseconds(1), Some(Secret::new(key)), &mut Outbox::new());
        device
    });
    let mut now = Now { monotonic: Time::from_nanoseconds(1_000_000_000), wall: Duration::from_secs(1) };
    let peers = [0, 1].map(|end: usize| {
        let (peer, _) = hosts[end].add_peer(PrivateKey::new(Secret::new(keys[1 - end])).public());
        hosts[end].start(now.monotonic);
        hosts[end].set_reachable(now.monotonic, peer);
        peer
    });
    let source: SocketAddr = ([192, 0, 2, 1], 5).into();
    // One of them has a peer with two addresses.
    let addresses = vec![source, ([192, 0, 2, 2], 5).into()];
    hosts[0].set_addresses(now.monotonic, peers[0], addresses, &mut Outbox::new());
    let mut rest = data;
    let mut last: Option<Vec<u8>> = None;
    while let Some((&[command, argument], tail)) = rest.split_first_chunk::<2>() {
        rest = tail;
        let end = usize::from(command & 1);
        let mut out = Outbox::new();
        match command >> 1 & 7 {
            0 => hosts[end].handle_no_key(now, peers[end], &mut out),
            1 => hosts[end].handle_renewal(now, peers[end], &mut out),
            2 => {
                now.monotonic = now.monotonic + Duration::from_millis(u64::from(argument) * 100);
                now.wall += Duration::from_millis(u64::from(argument));
                hosts[end].handle_timeout(now, &mut out);
            }
            3 => {
                let length = usize::from(argument).min(rest.len());
                let (datagram, tail) = rest.split_at(length);
                rest = tail;
                let _ = hosts[end].handle_datagram(now, source, datagram, argument & 1 == 1, &mut out);
            }
            4 | 5 => {
                if let Some(mut message) = last.take() {
                    if command >> 1 & 7 == 5 {
                        let at = usize::from(argument) % message.len();
                        message[at] ^= 1 << (argument & 7);
                    }
                    let _ = hosts[end].handle_datagram(now, source, &message, argument & 0x80 != 0, &mut out);
                }
            }
            6 => hosts[end].handle_confirmed(now, u32::from_le_bytes([argument; 4]), &mut out),
            _ => {
                let every = (argument != 0).then(|| Duration::from_secs(argument.into()));
                hosts[end].set_persistent_keepalive(now.monotonic, peers[end], every, &mut out);
            }
        }
        for action in out {
            if let DeviceAction::Send { message, .. }
            | DeviceAction::Reply { message, .. }
            | DeviceAction::Probe { message, .. } = action
            {
                last = Some(message);
            }
        }
    }
}

/// Datagrams through the inbound stages, and inner packets through the outbound stages.
pub fn datapath(data: &[u8]) {
    let Some((&[kind, size], rest)) = data.split_first_chunk::<2>() else { return };
    let mut bed = Bed::new(&AwsLc).expect("the engine has the cipher");
    bed.allow(&["0.0.0.0/0".parse().expect("literal"), "::/0".parse().expect("literal")]);
    let pieces = rest.chunks(usize::from(size).max(1) * 8);
    if kind & 1 == 0 {
        bed.outside.push(pieces, Some(Endpoint::new(([192, 0, 2, 1], 5).into())), kind >> 1);
    } else {
        for piece in pieces {
            bed.inside.push([piece], None, 0);
        }
    }
    bed.carry();
    let _ = (bed.received(), bed.dropped());
}

/// ESP: received datagrams with wrong tags, or with an engine that accepts any tag; and inner packets.
pub fn esp(data: &[u8]) {
    let Some((&[kind, which, size], rest)) = data.split_first_chunk::<3>() else { return };
    let transforms: Vec<Transform> = Transform::all().collect();
    let transform = transforms[usize::from(which) % transforms.len()];
    let (mode, extended) = (if kind & 1 == 0 { Mode::Tunnel } else { Mode::Transport }, kind & 2 != 0);
    let engine: &dyn Engine = if kind & 4 == 0 { &none::None } else { &AwsLc };
    let mut bed = Bed::esp(engine, bed::child(transform, extended, mode)).expect("the engine has the cipher");
    let pieces = rest.chunks(usize::from(size).max(1) * 8);
    if kind & 8 == 0 {
        let datagrams: Vec<Vec<u8>> =
            pieces.map(|piece| [&bed::INDEX.to_be_bytes()[..], piece].concat()).collect();
        let from = Some(Endpoint::new(([192, 0, 2, 1], 4500).into()));
        bed.outside.push(datagrams.iter().map(Vec::as_slice), from, kind >> 4);
    } else {
        for piece in pieces {
            bed.inside.push([piece], None, 0);
        }
    }
    bed.carry();
    let _ = (bed.received(), bed.dropped());
}

fn virtio(data: &[u8]) -> Option<(VirtioHeader, &[u8])> {
    let (bytes, rest) = data.split_first_chunk::<{ VirtioHeader::LENGTH }>()?;
    Some((VirtioHeader::read_from_bytes(bytes).ok()?, rest))
}

/// Super-packets from TUN.
pub fn segment(data: &[u8]) {
    let Some((header, packet)) = virtio(data) else { return };
    let mut packet = packet.to_vec();
    let Ok(mut segmenter) = Segmenter::new(&header, &mut packet) else { return };
    let mut batch = Batch::new(64 * 1024);
    for _ in 0..64 {
        if segmenter.write(&packet, &mut batch) {
            return;
        }
        assert!(!batch.is_empty() || packet.len() > 60_000, "a batch takes at least one segment");
        batch.clear();
    }
}

/// Packets for TUN: segmenting the merged packets must give the original ones.
pub fn coalesce(data: &[u8]) {
    let mut batch = Batch::new(512 * 1024);
    let mut rest = data;
    while let Some((&length, tail)) = rest.split_first_chunk::<2>() {
        let (packet, tail) = tail.split_at(usize::from(u16::from_le_bytes(length)).min(tail.len()));
        rest = tail;
        if let Some(bytes) = batch.append(packet.len()) {
            bytes.copy_from_slice(packet);
        }
    }
    let mut coalescer = Coalescer::default();
    coalescer.group(&batch, true, true);
    let mut seen = 0;
    for group in coalescer.groups() {
        let packets: Vec<usize> = coalescer.packets(group).collect();
        seen += packets.len();
        if let [first, .., last] = packets[..] {
            let whole = SuperPacket::new(group, batch.packet(first), batch.packet(last));
            let mut bytes = whole.headers().to_vec();
            for &index in &packets {
                bytes.extend(&batch.packet(index)[whole.headers().len()..]);
            }
            let mut segmenter =
                Segmenter::new(&whole.virtio, &mut bytes).expect("we write nothing malformed");
            let mut cut = Batch::new(512 * 1024);
            assert!(segmenter.write(&bytes, &mut cut), "no more than came in");
            assert_eq!(cut.len(), packets.len());
            for (index, &packet) in packets.iter().enumerate() {
                let cut = cut.packet(index);
                assert!(Sum::of(&cut[..20]).is_valid() || cut[0] >> 4 == 6);
                assert_eq!(as_compared(cut), as_compared(batch.packet(packet)));
            }
        }
    }
    assert_eq!(seen, batch.live(0..batch.len()).count());
}

/// A packet without the fields that merging may change: the identification if DF is set (RFC 6864), the header
/// checksum, and the sign of zero in the TCP checksum (RFC 1624).
fn as_compared(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let is_ipv4 = packet[0] >> 4 == 4;
    let (transport, protocol) = if is_ipv4 { (20, packet[9]) } else { (40, packet[6]) };
    if is_ipv4 && packet[6] & 0x40 != 0 {
        packet[4..6].fill(0);
    }
    if is_ipv4 {
        packet[10..12].fill(0);
    }
    let checksum = transport + TcpHeader::CHECKSUM;
    if protocol == TCP && packet[checksum..][..2] == [0xff; 2] {
        packet[checksum..][..2].fill(0);
    }
    packet
}

/// Requests to the UAPI socket.
pub fn uapi(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err(error) = uapi::parse(&text) {
        assert!(uapi::status(Err(&error)).starts_with("errno=-"));
    }
}

/// Configuration files.
pub fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match config::parse(&text) {
        Ok(tree) => {
            let printed = config::print::text(&tree);
            let printed = printed.as_str().expect("it is text");
            assert_eq!(config::parse(printed).as_ref(), Ok(&tree), "{printed}");
            let _ = config::Settings::new(&tree);
        }
        Err(errors) => {
            for error in errors {
                assert!(!error.in_text("file", &text).to_string().is_empty());
            }
        }
    }
}

/// A configuration and edits of it, with an empty line between them.
pub fn edits(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (base, lines) = text.split_once("\n\n").unwrap_or(("", text));
    let base = config::parse(base).unwrap_or_default();
    let mut tree = base.clone();
    let Ok(deleted) = config::edits::carry_out(lines.lines(), &mut tree) else { return };
    let between = config::edits::between(&base, &tree);
    let mut made = base.clone();
    let between = between.iter().map(|line| line.as_str());
    config::edits::carry_out(between, &mut made).expect("we write nothing wrong");
    assert_eq!(made, tree);
    let side = Side { tree: &tree, deleted: &deleted };
    assert_eq!(merge(&base, side, side).expect("both made the same"), tree);
    let before = Side { tree: &base, deleted: &[] };
    assert_eq!(merge(&base, side, before).expect("only one made something"), tree);
}

/// The file of a revision.
pub fn revision(data: &[u8]) {
    let text = |bytes: &[u8]| {
        let mut text = Text::default();
        text.room().extend_from_slice(bytes);
        text
    };
    // Its first line says what it is, and has the hash of that before it: otherwise nothing behind that is reached.
    let end = data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len());
    let (first, rest) = data.split_at(end);
    let json = first.trim_ascii_end();
    let sealed = [b"# ", revision::digest(json).as_bytes(), b" ", json, rest].concat();
    let _ = revision::parse(text(data));
    if let Ok((header, lines)) = revision::parse(text(&sealed)) {
        let printed = revision::print(&header, &lines);
        let (again, same) = revision::parse(printed).expect("we write nothing corrupt");
        assert_eq!((again, same.bytes()), (header, lines.bytes()));
    }
    // Any lines come back, and no others do.
    if std::str::from_utf8(data).is_ok() {
        let header = revision::Header { text: revision::digest(data), ..revision::Header::default() };
        let printed = revision::print(&header, &text(data));
        let cut_off = text(&printed.bytes()[..printed.bytes().len() - 1]);
        assert!(revision::parse(cut_off).is_err());
        assert_eq!(revision::parse(printed).expect("it is whole").1.bytes(), data);
    }
}

/// Descriptions of injected faults.
pub fn faults(data: &[u8]) {
    if let Ok(faults) = String::from_utf8_lossy(data).parse::<port::fault::Faults>() {
        assert_eq!(faults.to_string().parse(), Ok(faults));
    }
}

/// Certificates, names, identities, keys and signature schemes, from the payloads of peers and from files.
pub fn certificates(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(name) = text.parse::<DistinguishedName>() {
        assert_eq!(name.to_string().parse().as_ref(), Ok(&name), "{name}");
    }
    if let Ok(name) = DistinguishedName::from_der(data) {
        assert_eq!(name.to_der(), data);
        let printed = name.to_string();
        // A value that is not a string is printed in hexadecimal, which cannot be parsed again.
        if let (false, Ok(read)) = (printed.contains("=#"), printed.parse::<DistinguishedName>()) {
            assert_eq!(read, name, "{printed}");
        }
    }
    if let Ok(identity) = text.parse::<Identity>() {
        assert_eq!(Identity::from_payload(identity.kind(), &identity.data()), Ok(identity));
    }
    if let Ok(scheme) = Scheme::from_der(data) {
        assert_eq!(Scheme::from_der(&scheme.to_der()), Ok(scheme));
    }
    if let Ok(key) = SigningKey::from_file(data) {
        let scheme = key.public().kind().schemes()[0];
        let signature = key.sign(scheme, b"message").expect("a scheme of its own");
        assert_eq!(key.public().verify(scheme, b"message", &signature), Ok(()));
    }
    let found = Certificate::from_file(data).unwrap_or_default();
    let mut store = TrustStore::default();
    let _ = store.add_revocation_lists(data);
    for certificate in &found {
        let mut names = vec![Identity::Name(certificate.subject().clone())];
        names.extend([1, 2, 3, 5, 11].iter().filter_map(|&kind| Identity::from_payload(kind, data).ok()));
        let _ = names.iter().any(|name| certificate.holds(name));
        let _ = store.add_authority(certificate.clone());
    }
    if let Some((peer, others)) = found.split_last() {
        let _ = store.verify(peer, others, Duration::from_secs(1_893_456_000));
    }
}

/// Notifications of the kernel through rtnetlink and nfnetlink.
pub fn notifications(data: &[u8]) {
    let (is_ours, by_another) = read_notification(data, &[220], "postern-guard");
    // Each message has a 16-byte header.
    assert!(data.len() >= 16 || !(is_ours || by_another));
}

/// Answers of a server to OCSP requests and CRL downloads, and CRL files.
pub fn revocation(data: &[u8]) {
    let now = Duration::from_secs(1_893_456_000);
    let read = |pem: &[u8]| Certificate::from_file(pem).expect("it is OpenSSL's").remove(0);
    let authority = read(include_bytes!("../../crypto/tests/certificates/ocsp/ca.pem"));
    let peer = read(include_bytes!("../../crypto/tests/certificates/ocsp/good.pem"));
    let evidence = Arc::new(Evidence::new(|| {}));
    let mut store = TrustStore::default();
    store.add_authority(authority.clone()).expect("an authority");
    store.set_revocation(Revocation::Strict);
    store.use_evidence(Arc::clone(&evidence));
    assert!(store.verify(&peer, &[], now).is_err(), "nothing is known");
    for query in evidence.due(now) {
        let _ = evidence.answer(&query, now, Ok(data.to_vec()));
    }
    let _ = evidence.set_file("list", &authority, data);
    let _ = store.verify(&peer, &[], now);
}
