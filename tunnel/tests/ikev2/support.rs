//! Connections as most tests want them, and what must be true of both sides.

use crate::network::{A, B, Host, Network};
use crypto::SecretBytes;
use crypto::cipher::{self, Cipher, Integrity};
use crypto::exchange::Group;
use crypto::prf::Prf;
use std::time::Duration;
use tunnel::esp::{Mode, TrafficSelector};
use tunnel::ikev2::limits::REFUSED_TIME;
use tunnel::ikev2::proposal::{Encryption, EspOffer, IkeOffer};
use tunnel::ikev2::{
    Authentication, Child, Connection, ConnectionId, DeadPeerDetection, Identity, Start, State, WhenLost,
};

/// Dead after one and a half minutes of silence.
pub const DETECTION: DeadPeerDetection = DeadPeerDetection { interval: seconds(30), timeout: seconds(90) };

pub const HOUR: Duration = Duration::from_secs(3600);

pub const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn net(from: &str, to: &str) -> TrafficSelector {
    let addresses = from.parse().expect("literal")..=to.parse().expect("literal");
    TrafficSelector { protocol: 0, ports: 0..=65535, addresses }
}

pub fn gcm() -> Encryption {
    Encryption::Aead(Cipher::Aes256Gcm, 16)
}

pub fn cbc() -> Encryption {
    Encryption::Plain(cipher::Encryption::AesCbc(16))
}

pub fn ike_offer() -> IkeOffer {
    IkeOffer {
        encryption: vec![gcm()],
        integrity: vec![Integrity::HmacSha256],
        prf: vec![Prf::HmacSha256],
        groups: vec![Group::X25519],
    }
}

pub fn esp_offer() -> EspOffer {
    EspOffer { encryption: vec![gcm()], integrity: vec![Integrity::HmacSha256], ..EspOffer::default() }
}

/// The child between 10.`ours`.0.0/24 and 10.`theirs`.0.0/24.
pub fn child(name: &str, ours: u8, theirs: u8) -> Child {
    let lan = |number: u8| vec![net(&format!("10.{number}.0.0"), &format!("10.{number}.0.255"))];
    Child {
        name: name.to_owned(),
        esp: vec![esp_offer()],
        local: lan(ours),
        remote: lan(theirs),
        mode: Mode::Tunnel,
        lifetime: HOUR,
        rekey: true,
        priority: None,
    }
}

/// The connection of a host to the other one, which only answers.
pub fn connection(host: usize) -> Connection {
    let (ours, theirs) = if host == A { (1, 2) } else { (2, 1) };
    let address = |number: u8| Some(format!("192.0.2.{number}").parse().expect("literal"));
    let name = |number: u8| Identity::Fqdn(format!("host{number}.example"));
    Connection {
        name: format!("to host {theirs}"),
        local: address(ours),
        remote: address(theirs),
        local_identity: name(ours),
        remote_identity: Some(name(theirs)),
        authentication: Authentication::SharedKey(SecretBytes::new(b"a secret of both".to_vec())),
        further: Vec::new(),
        ike: vec![ike_offer()],
        children: vec![child("lan", ours, theirs)],
        lifetime: 4 * HOUR,
        reauthenticate: false,
        dead_peer_detection: None,
        start: Start::Respond,
        when_lost: WhenLost::Clear,
        force_encapsulation: false,
    }
}

/// Two hosts with a connection each, changed for the test.
pub fn acquainted(seed: u64, change: impl Fn(usize, &mut Connection)) -> (Network, [ConnectionId; 2]) {
    let mut network = Network::new(seed);
    let ids = [A, B].map(|host| {
        let mut connection = connection(host);
        change(host, &mut connection);
        network.add(host, connection)
    });
    (network, ids)
}

/// The same, and A has begun.
pub fn connected(seed: u64, change: impl Fn(usize, &mut Connection)) -> (Network, [ConnectionId; 2]) {
    let (mut network, ids) = acquainted(seed, change);
    begin(&mut network, A, ids[A]);
    network.run(seconds(5));
    if established(&network.hosts[B]) == 0 {
        // What was refused is kept in mind for a while.
        network.run(REFUSED_TIME);
    }
    (network, ids)
}

pub fn begin(network: &mut Network, host: usize, id: ConnectionId) {
    network.command(host, |endpoint, now, out| endpoint.initiate(now, id, out)).expect("addresses are known");
}

/// Both sides have the same Child SAs with the same keys, `count` of them, and what one sends the other receives.
pub fn assert_agree(network: &Network, count: usize) {
    let [a, b] = &network.hosts;
    assert_eq!(a.installed.len(), count, "A has {:x?}, B has {:x?}", a.spis(), b.spis());
    assert_eq!(b.installed.len(), count, "A has {:x?}, B has {:x?}", a.spis(), b.spis());
    for (one, other) in [(a, b), (b, a)] {
        for installed in one.installed.values() {
            let sa = &installed.install.sa;
            let twin = other.installed.get(&sa.outbound.spi).expect("the other side receives it");
            let twin = &twin.install.sa;
            assert_eq!(twin.outbound.spi, sa.inbound.spi);
            assert_eq!(twin.inbound.keys, sa.outbound.keys);
            assert_eq!(twin.transform, sa.transform);
            assert_eq!(twin.mode, sa.mode);
            assert_eq!((&twin.local, &twin.remote), (&sa.remote, &sa.local));
            assert_ne!(sa.inbound.keys, sa.outbound.keys);
            assert_eq!(sa.inbound.keys.len(), sa.transform.key_material_length());
        }
    }
}

/// Nothing is kept but what `sessions` sessions need, each with one IKE SA, and the Child SAs installed.
pub fn assert_nothing_leaks(network: &Network, sessions: usize) {
    for host in &network.hosts {
        let load = host.endpoint.load();
        assert_eq!(load.ike_spis, sessions, "{:?}", host.endpoint.sessions());
        assert_eq!(load.child_spis, host.installed.len(), "{:x?}", host.spis());
        assert_eq!(load.claims, host.installed.len(), "{:x?}", host.spis());
        assert_eq!(load.half_open, 0);
        assert_eq!(load.instances, host.instances.len());
        assert!(load.instances <= sessions);
        assert!(host.expected.is_empty(), "{:x?}", host.expected);
        assert_eq!(established(host), sessions);
    }
}

/// Both sides have one session with one Child SA, and nothing else.
pub fn assert_one_session(network: &Network) {
    assert_agree(network, 1);
    assert_nothing_leaks(network, 1);
}

/// The host is replaced by one that remembers nothing, and has its connection.
pub fn restart(network: &mut Network, host: usize, seed: u64) -> ConnectionId {
    network.hosts[host] = Host::new(&network.hosts[host].address.to_string(), seed);
    network.add(host, connection(host))
}

pub fn established(host: &Host) -> usize {
    host.endpoint.sessions().iter().filter(|session| session.state == State::Established).count()
}
