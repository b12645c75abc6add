//! The states up, waiting and down, and their screen.

use super::*;
use crate::vpn::samples::{down, up};
use gateway::api::model::{
    Advice, Configuration, CryptoCipher, CryptoDirection, CryptoPlace, Refused, ReloadOutcome, Reloaded,
};
use gateway::failover::model::Member;

fn now() -> u64 {
    std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

fn wireguard_peer(active: bool, handshake: Option<u64>, endpoint: Option<&str>, keepalive: u16) -> Peer {
    Peer {
        name: Some("berlin".to_owned()),
        description: None,
        public_key: "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=".to_owned(),
        has_preshared_key: false,
        endpoint: endpoint.map(str::to_owned),
        allowed_ips: vec!["10.2.0.0/24".to_owned()],
        latest_handshake: handshake,
        active,
        received_bytes: 1 << 20,
        sent_bytes: 512,
        addresses: Vec::new(),
        host_name: None,
        endpoint_reason: None,
        unsent_packets: 0,
        persistent_keepalive: keepalive,
        failure: None,
    }
}

#[test]
fn a_wireguard_peer_is_down_only_if_it_should_answer() {
    let endpoint = Some("192.0.2.1:51820");
    for (it, expected, said) in [
        (wireguard_peer(true, Some(now()), endpoint, 25), State::Up, "1.00 MiB received"),
        (wireguard_peer(false, Some(7), endpoint, 0), State::Waiting, "last handshake "),
        (wireguard_peer(false, None, None, 25), State::Waiting, "it has not called yet"),
        (wireguard_peer(false, None, endpoint, 0), State::Waiting, "when a packet is sent"),
        (wireguard_peer(false, None, endpoint, 25), State::Down, "should answer every 25 s"),
        (wireguard_peer(false, Some(7), endpoint, 25), State::Down, " ago, at 192.0.2.1:51820; "),
    ] {
        let line = peer(&it);
        assert!(line.state == expected && line.why.contains(said), "{:?}: {}", line.state, line.why);
    }
    let failure = Some("192.0.2.1:51820 has not answered 3 handshakes".to_owned());
    for handshake in [None, Some(7)] {
        let line = peer(&Peer { failure: failure.clone(), ..wireguard_peer(false, handshake, endpoint, 0) });
        assert!(line.state == State::Down && line.why.starts_with("192.0.2.1:51820 has not"), "{}", line.why);
        assert_eq!(line.why.contains("last handshake"), handshake.is_some(), "{}", line.why);
    }
}

#[test]
fn an_ipsec_peer_is_down_if_it_should_be_there_or_has_failed() {
    let states = |peer: &IpsecPeer| {
        let shown = connection(peer);
        (shown.line.state, shown.tunnels.iter().map(|line| line.state).collect::<Vec<_>>())
    };
    assert_eq!(states(&up()), (State::Up, vec![State::Up]));
    assert_eq!(states(&down()), (State::Down, vec![State::Down]));
    let waits = IpsecPeer { connection_type: ConnectionType::Trap, failure: None, ..down() };
    assert_eq!(states(&waits), (State::Waiting, vec![State::Waiting]));
    let closed = |carried: &Failover| -> Vec<Vec<String>> {
        closed(&waits, &super::carried(carried)).map(|closed| closed.prefixes).collect()
    };
    assert_eq!(closed(&Failover::default()), [["10.3.0.0/16"]]);
    for (state, is_used, expected) in
        [(Carries::Up, true, 0), (Carries::Up, false, 1), (Carries::Down, true, 1)]
    {
        let member = Member { state, is_used, ..Member::default() };
        let prefixes = vec!["10.3.0.0/16".to_owned()];
        let groups = vec![Group { prefixes, members: vec![member], ..Group::default() }];
        assert_eq!(closed(&Failover { groups }).len(), expected, "{state:?} {is_used}");
    }
    let half = IpsecPeer { tunnels: [up().tunnels, down().tunnels].concat(), ..up() };
    assert_eq!(states(&half), (State::Up, vec![State::Up, State::Down]));
}

#[test]
fn a_tunnel_that_is_down_is_told_though_its_peer_is_up() {
    let half = IpsecPeer { tunnels: down().tunnels, failure: down().failure, ..up() };
    let shown = Daemon {
        socket: PathBuf::new(),
        up: false,
        status: Status::default(),
        wireguard: Vec::new(),
        ipsec: vec![connection(&half)],
        openvpn: Vec::new(),
        closed: Vec::new(),
        drops: Vec::new(),
        engines: BTreeMap::new(),
    };
    let text = text::daemon(&shown);
    assert_eq!(
        text.lines().skip(1).collect::<Vec<_>>(),
        [
            "IPsec: 1 of 1 peers up, but 1 of their tunnels is down",
            "  berlin            up       192.0.2.2, for 1h2m3s",
            "  fix: postern explain vpn ipsec peer berlin",
            "    rome2-tunnel-1  down     10.1.0.0/16 to 10.3.0.0/16: no common proposal for IKE",
        ]
    );
}

#[test]
fn the_engine_of_most_places_is_named() {
    let place = |chosen: &str| CryptoPlace {
        direction: CryptoDirection::Seal,
        burst: 1,
        size: 64,
        chosen: chosen.to_owned(),
        costs: Vec::new(),
    };
    let cipher = CryptoCipher {
        name: "aes-128-gcm".to_owned(),
        pinned: None,
        pin_refused: None,
        unused: Vec::new(),
        measured_here: false,
        places: vec![place("aws-lc"), place("openssl"), place("openssl")],
    };
    let crypto = Crypto { ciphers: vec![cipher], ..Crypto::default() };
    assert_eq!(engines(&crypto)["aes-128-gcm"], "openssl");
}

#[test]
fn a_screen_shows_the_state_of_every_peer() {
    let reloaded = Reloaded {
        at: 0,
        ..Reloaded::new(ReloadOutcome::Refused, Vec::new(), vec!["a:1: wrong".to_owned()])
    };
    let configuration = Configuration {
        file: "/etc/postern/postern.conf".to_owned(),
        in_force_since: now(),
        last_reload: Some(reloaded),
    };
    let status = Status {
        version: "0.1.0".to_owned(),
        process: 7,
        started: now(),
        configuration: Some(configuration),
        refused: vec![Refused { place: "vpn a".to_owned(), why: "no route".to_owned(), is_temporary: true }],
        warnings: vec![Advice { what: "ip_forward is 0".to_owned(), fix: "sysctl".to_owned() }],
    };
    let interface = WireGuard {
        name: "wg0".to_owned(),
        up: true,
        listen_port: 51_820,
        peers: vec![peer(&wireguard_peer(false, None, None, 0))],
    };
    let shown = Daemon {
        socket: PathBuf::new(),
        up: false,
        status,
        wireguard: vec![interface],
        ipsec: [up(), down()].iter().map(connection).collect(),
        openvpn: Vec::new(),
        closed: closed(&down(), &BTreeSet::new()).collect(),
        drops: vec![Dropped { interface: "wg0".to_owned(), reason: "no-key".to_owned(), packets: 9 }],
        engines: [("aes-128-gcm".to_owned(), "openssl".to_owned())].into(),
    };
    let text = text::daemon(&shown);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "postern 0.1.0, process ID 7, started now");
    assert_eq!(lines[1], "/etc/postern/postern.conf, put in force now");
    assert!(lines[2].ends_with(" was refused: a:1: wrong"), "{text}");
    assert_eq!(
        lines[3..],
        [
            "WireGuard wg0: up, port 51820, 0 of 1 peers up, 1 waiting",
            "  berlin  waiting  it has not called yet",
            "IPsec: 1 of 2 peers up, 1 down",
            "  rome2              down     no common proposal for IKE",
            "  fix: postern explain vpn ipsec peer rome2",
            "    rome2-tunnel-1   down     10.1.0.0/16 to 10.3.0.0/16",
            "  berlin             up       192.0.2.2, for 1h2m3s",
            "    berlin-tunnel-1  up       10.1.0.0/16 to 10.2.0.0/16",
            "Closed: nothing is sent to 10.3.0.0/16 while rome2-tunnel-1 is down",
            "Dropped: 9 no-key on wg0 (postern show drops)",
            "Engines: aes-128-gcm by openssl",
            "Not in force: vpn a, and tried again: no route",
            "Warning: ip_forward is 0",
            "  fix: sysctl",
        ]
    );
}

fn openvpn_with(mode: Mode, sessions: Vec<openvpn::Session>, failure: Option<&str>) -> OpenVpn {
    openvpn_interface(&openvpn::Interface {
        name: "vtun0".to_owned(),
        description: None,
        mode,
        addresses: Vec::new(),
        up: true,
        port: 1194,
        sessions,
        failure: failure.map(str::to_owned),
    })
}

#[test]
fn openvpn_is_down_where_a_client_is_not_connected_and_a_server_waits() {
    let session = openvpn::Session {
        common_name: Some("anna".to_owned()),
        remote_host: Some("192.0.2.7:4000".to_owned()),
        connected_since: now(),
        ..openvpn::Session::default()
    };
    let one = |it: OpenVpn| it.peers.first().map(|line| (line.name.clone(), line.state, line.why.clone()));
    assert_eq!(one(openvpn_with(Mode::Server, Vec::new(), None)), None);
    for (mode, state) in [(Mode::Client, State::Down), (Mode::SiteToSite, State::Waiting)] {
        let (_, found, why) = one(openvpn_with(mode, Vec::new(), None)).expect("it should have a peer");
        assert_eq!((found, &*why), (state, "not connected"));
    }
    for mode in [Mode::Server, Mode::Client, Mode::SiteToSite] {
        let (_, state, why) = one(openvpn_with(mode, Vec::new(), Some("no route"))).expect("it failed");
        assert_eq!((state, &*why), (State::Down, "no route"));
    }
    for (mode, name) in [(Mode::Server, "anna"), (Mode::Client, "server"), (Mode::SiteToSite, "peer")] {
        let (found, state, why) = one(openvpn_with(mode, vec![session.clone()], None)).expect("it is there");
        assert_eq!((&*found, state), (name, State::Up));
        assert!(why.starts_with("192.0.2.7:4000, connected "), "{why}");
    }
}
