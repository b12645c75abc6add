//! Policies that name a peer of IKE; the test stands for the thread of IKE.

use super::*;
use crate::datapath::DataPathEvent;
use crate::datapath::protocol::{PeerState, Protocol, Tunnel};
use crate::datapath::punt::{Datagram, Punt};
use crate::datapath::staging::Budget;
use crate::datapath::tables::{Peer, Session};
use crate::ipsec::handle::IkeHandle;
use crate::ipsec::ike_thread::Command;
use crossbeam_channel::{Receiver, unbounded};
use crypto::{Cipher, SecretBytes, random};
use packet::Endpoint;
use packet::header::udp::UdpHeader;
use std::net::IpAddr;
use tunnel::esp::{Policies, Policy, Processing, SaKeys, Selectors, TrafficSelector, Transform};
use tunnel::sa::Lifetime;
use tunnel::{InboundSa, OutboundSa, PeerId, Time};

/// What the configuration of the peer must have.
const PEER: &str = "\
set vpn ipsec esp-group E proposal 1 encryption aes256gcm128
set vpn ipsec ike-group I proposal 1 encryption aes256gcm128
set vpn ipsec ike-group I proposal 1 prf prfsha256
set vpn ipsec ike-group I proposal 1 dh-group 19
set vpn ipsec authentication psk sites id 172.16.1.5
set vpn ipsec authentication psk sites id 172.16.2.5
set vpn ipsec authentication psk sites secret 'a secret of both sites'
set vpn ipsec site-to-site peer b authentication mode pre-shared-secret
set vpn ipsec site-to-site peer b authentication local-id 172.16.1.5
set vpn ipsec site-to-site peer b authentication remote-id 172.16.2.5
set vpn ipsec site-to-site peer b ike-group I
set vpn ipsec site-to-site peer b default-esp-group E
set vpn ipsec site-to-site peer b local-address 172.16.2.5
set vpn ipsec site-to-site peer b remote-address 172.16.1.5
set vpn ipsec site-to-site peer b tunnel 1 local prefix 192.168.1.0/24
set vpn ipsec site-to-site peer b tunnel 1 remote prefix 192.168.7.0/24
";
/// Beside the lines of the file.
const LINES: &str = "\
sp ipv4 out ike b pri 9 dst 192.168.7.0/24 sport 0:65535 dport 0:65535
sp ipv4 in ike b pri 9 dst 192.168.7.0/24 sport 0:65535 dport 0:65535
rt ipv4 dst 192.168.7.0/24 port 0
";
const FOR_PEER: [u8; 4] = [192, 168, 7, 2];

fn peers(text: &str) -> Peers {
    let tree = config::parse(text).unwrap_or_else(|errors| panic!("{errors:?}"));
    config::Settings::new(&tree).unwrap_or_else(|errors| panic!("{errors:?}")).0.ipsec.peers
}

/// The plan of the file with these lines of its own and this configuration of peers.
fn plan_with(lines: &str, configuration: &str) -> Plan {
    plan_of(lines, configuration, WORDS)
}

fn plan_of(lines: &str, configuration: &str, words: &str) -> Plan {
    let mut plan = plan(&format!("{}{lines}", file()), words).unwrap_or_else(|refused| panic!("{refused:?}"));
    plan.set_ike(&peers(configuration));
    plan
}

/// A gateway with the ends that the thread of IKE reads.
fn scene() -> (Scene, Receiver<DataPathEvent>, [Receiver<Datagram>; 2]) {
    scene_of(&plan_with(LINES, PEER))
}

fn scene_of(plan: &Plan) -> (Scene, Receiver<DataPathEvent>, [Receiver<Datagram>; 2]) {
    let scene = Scene::of(plan);
    let (events, events_out) = unbounded();
    let ((initial, initial_out), (floated, floated_out)) =
        (Punt::new(Protocol::Ipsec), Punt::new(Protocol::Ipsec));
    let worker = scene.worker.with_ike(events, initial, floated);
    (Scene { worker, ..scene }, events_out, [initial_out, floated_out])
}

/// Lets the tunnel of peer `number` be for packets between the networks.
fn publish(scene: &Scene, number: u16) -> Arc<Peer> {
    publish_as(scene, number, PeerId::new(70))
}

fn publish_as(scene: &Scene, number: u16, id: PeerId) -> Arc<Peer> {
    let tunnel = Tunnel { ike_peer: number, ..Tunnel::default() };
    let peer = Arc::new(Peer::new(id, PeerState::Ipsec(tunnel), Budget::default()));
    let processing = Processing::Protect(Arc::clone(&peer));
    let policies = Policies::new(vec![Policy { selectors: selectors([1, 7]), processing }]);
    scene.worker.sessions().policies.store(Arc::new(policies));
    peer
}

/// From our network 192.168.N.0/24 to theirs.
fn selectors(networks: [u8; 2]) -> Selectors {
    let [local, remote] = networks.map(|network| TrafficSelector {
        protocol: 0,
        ports: 0..=u16::MAX,
        addresses: IpAddr::from([192, 168, network, 0])..=IpAddr::from([192, 168, network, 255]),
    });
    Selectors::new(&[local], &[remote])
}

fn keys() -> SaKeys {
    let transform = Transform::Aead(Cipher::Aes256Gcm, 16);
    let keys = SecretBytes::new(vec![7; transform.key_material_length()]);
    SaKeys::new(transform, false, tunnel::esp::Mode::Tunnel, &keys, &AwsLc, &mut random::System::default())
        .expect("it has the cipher")
}

fn at_peer() -> Endpoint {
    let remote = (IpAddr::from([172, 16, 2, 5]), 4500).into();
    Endpoint { local: Some([172, 16, 1, 5].into()), ..Endpoint::new(remote) }
}

fn lifetime() -> Lifetime {
    let expires = Time::from_nanoseconds(u64::MAX);
    Lifetime { renew: None, renew_sequence: 0, expires, end_sequence: 1 << 32 }
}

#[test]
fn without_an_sa_packets_are_dropped_and_ike_is_asked_once_in_a_while() {
    let (mut scene, events, _) = scene();
    let packets = || vec![ours(&packet(ICMP, FOR_PEER, 0, &[8, 0, 1, 2])); 3];
    assert_eq!(scene.carry(0, &packets()), NOTHING);
    assert_eq!((scene.dropped(), events.len()), (vec![(DropReason::Denied, 3)], 0), "it has no tunnel");
    publish(&scene, 2);
    assert_eq!(scene.carry(0, &packets()), NOTHING);
    assert_eq!((scene.dropped(), events.len()), (vec![(DropReason::Denied, 6)], 0), "of another peer");
    let peer = publish(&scene, 1);
    assert_eq!(scene.carry(0, &packets()), NOTHING);
    assert_eq!(scene.statistics.dropped(DropReason::NoKey), 3);
    assert_eq!(events.try_iter().collect::<Vec<_>>(), [DataPathEvent::NoKey(peer.id)]);
    // In clear from the other side.
    assert_eq!(scene.carry(1, &packets()), NOTHING);
    assert_eq!(scene.statistics.dropped(DropReason::Denied), 9);
}

#[test]
fn an_sa_of_ike_carries_packets_in_udp_and_only_those_that_were_agreed_on() {
    let (mut scene, events, _) = scene();
    let peer = publish(&scene, 1);
    peer.endpoint.store(Some(at_peer()));
    let lifetime = lifetime();
    // The SPI of a manual SA, which the peer is free to choose.
    peer.sending.store(Some(Arc::new(OutboundSa::new(keys(), 5, lifetime))));
    let inner = packet(ICMP, FOR_PEER, 0, &[8, 0, 1, 2]);
    let [_, outside] = scene.carry(0, &[ours(&inner), ours(&packet(ICMP, [192, 168, 2, 2], 0, &[8]))]);
    assert_eq!(outside.len(), 2);
    let of_ike = outside[0].clone();
    let udp = UdpHeader::parse(&of_ike[34..]).expect("ESP in UDP");
    assert_eq!((of_ike[23], udp.source.get(), udp.destination.get()), (UDP, 4500, 4500));
    assert_eq!((outside[1][23], &outside[1][34..38]), (packet::header::esp::ESP, &[0, 0, 0, 5][..]));
    assert_eq!(events.try_iter().collect::<Vec<_>>(), [DataPathEvent::Renewal(peer.id)]);

    // Inbound, we choose the SPI: never that of a manual SA.
    peer.sending.store(Some(Arc::new(OutboundSa::new(keys(), 9, lifetime))));
    let [_, outside] = scene.carry(0, &[ours(&inner)]);
    let received = frame(OURS, IPV4, &outside[0][14..]);
    let sessions = scene.worker.sessions();
    let install = |networks| {
        let sa = Arc::new(InboundSa::new(keys(), 9, lifetime, false));
        let session =
            Session { sa, peer: Arc::clone(&peer), selectors: Some(selectors(networks)), transport: None };
        sessions.install(session);
    };
    install([7, 1]);
    let [inside, _] = scene.carry(1, std::slice::from_ref(&received));
    assert_eq!(inside.len(), 1, "{:?}", scene.dropped());
    assert_eq!(inside[0][14..][..inner.len()], inner);
    install([7, 3]);
    assert_eq!(scene.carry(1, &[received]), NOTHING);
    assert_eq!(scene.dropped(), [(DropReason::ForeignSource, 1)]);
}

#[test]
fn fragments_under_an_sa_of_the_file_complete_no_packet_of_ike() {
    let words = format!("{WORDS} --reassemble 8");
    let (mut scene, ..) = scene_of(&plan_of(LINES, PEER, &words));
    // The number that the SA of the file with SPI 5 has.
    let of_file = scene.worker.sessions().session(5).map(|session| session.peer.id);
    let peer = publish_as(&scene, 1, of_file.expect("it has the SA"));
    peer.endpoint.store(Some(at_peer()));
    peer.sending.store(Some(Arc::new(OutboundSa::new(keys(), 9, lifetime()))));
    let sa = Arc::new(InboundSa::new(keys(), 9, lifetime(), false));
    let session =
        Session { sa, peer: Arc::clone(&peer), selectors: Some(selectors([7, 1])), transport: None };
    scene.worker.sessions().install(session);
    let fragment = |field: u16| {
        let mut fragment = packet(ICMP, FOR_PEER, 0, &[8; 64]);
        fragment[6..8].copy_from_slice(&field.to_be_bytes());
        ours(&fragment)
    };
    let (mut sealing, ..) = scene_of(&plan_of(LINES, PEER, WORDS));
    sealing.worker.sessions().policies.store(scene.worker.sessions().policies.load_full());
    let file = file().replace("dst 192.168.2.0/24", "dst 192.168.7.0/24");
    let mut of_file = Scene::with(&file, WORDS);
    let mut first = |field| frame(OURS, IPV4, &of_file.carry(0, &[fragment(field)])[1][0][14..]);
    let mut last = |field| frame(OURS, IPV4, &sealing.carry(0, &[fragment(field)])[1][0][14..]);
    assert_eq!(scene.carry(1, &[first(0x2000), last(8)]), NOTHING);
    assert_eq!(scene.carry(1, &[last(0x2000)])[0].len(), 1, "{:?}", scene.dropped());
    assert_eq!(scene.dropped(), []);
}

#[test]
fn messages_of_ike_are_taken_from_frames_for_our_address_alone() {
    let (mut scene, _, queues) = scene();
    let message = |destination: [u8; 4], port: u16, bytes: &[u8]| {
        let length = (UdpHeader::LENGTH + bytes.len()) as u16;
        let header = UdpHeader {
            source: 900.into(),
            destination: port.into(),
            length: length.into(),
            checksum: [0; 2],
        };
        ours(&packet(UDP, destination, 0, &[header.as_bytes(), bytes].concat()))
    };
    let (ours, marked) = ([172, 16, 2, 5], [&[0; 4][..], &[9; 28]].concat());
    let frames = [
        message(ours, 500, &[9; 28]),
        message(ours, 4500, &marked),
        message(ours, 4500, &[0xff]),
        message(ours, 501, &[9; 28]),
        message([172, 16, 2, 6], 500, &[9; 28]),
    ];
    assert_eq!(scene.carry(1, &frames), NOTHING);
    for queue in queues {
        let taken: Vec<Datagram> = queue.try_iter().collect();
        assert_eq!(taken.len(), 1);
        assert_eq!((taken[0].bytes(), taken[0].endpoint.remote.port()), (&[9; 28][..], 900));
        assert_eq!(taken[0].endpoint.local, Some(ours.into()));
    }
    assert_eq!(scene.dropped(), [(DropReason::Denied, 2)]);
}

#[test]
fn peers_that_cannot_be_served_between_ports_are_refused_with_a_sentence() {
    let text = format!("{}{LINES}", file());
    let words: Vec<String> = WORDS.split(' ').map(str::to_owned).collect();
    let context = CommandLine::read(&words, 2).expect("the words are accepted").context(false);
    let settings = config::secgw::read(text.as_bytes(), &context).settings;
    let refused = |peer: &str| -> Vec<String> {
        let findings = check_ike(&settings, &peers(peer), "p.conf");
        assert!(
            findings.iter().all(|finding| finding.line == Some(14) && !finding.fix.is_empty()),
            "{findings:?}"
        );
        findings.into_iter().map(|finding| finding.text).collect()
    };
    assert_eq!(refused(PEER), [""; 0]);
    assert_eq!(refused(&PEER.replace("peer b", "peer c")), ["ike b: p.conf has no such peer"]);
    for (old, new, expected) in [
        ("local-address 172.16.2.5", "local-address any", "peer b has no local-address"),
        ("remote-address 172.16.1.5", "remote-address b.example", "peer b must have one remote-address"),
    ] {
        let [found] = &refused(&PEER.replacen(old, new, 1))[..] else { panic!("{new} is accepted") };
        assert!(found.contains(expected), "{found}");
    }
    let networks = PEER.lines().filter(|line| !line.contains("prefix")).map(|line| format!("{line}\n"));
    let transport =
        "set vpn ipsec esp-group E mode transport\nset vpn ipsec site-to-site peer b tunnel 1 protocol udp\n";
    let [found] = &refused(&networks.chain([transport.to_owned()]).collect::<String>())[..] else {
        panic!("transport mode is accepted")
    };
    assert!(found.contains("transport mode"), "{found}");
}

/// What a reload asks of the thread of IKE, and its sentences about peers.
fn reloaded(scene: &Scene, lines: &str, configuration: &str) -> (Vec<String>, Vec<String>) {
    let (handle, commands) = IkeHandle::new();
    let thread = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for command in commands {
            match command {
                Command::Remove(names) => asked.extend(names.iter().map(|name| format!("remove {name}"))),
                Command::Add(plans) => asked.extend(plans.iter().map(|plan| {
                    let numbers: Vec<u16> = plan.children.iter().map(|child| child.ike_peer).collect();
                    format!("add {} {numbers:?}, keeps {}", plan.connection.name, plan.keeps)
                })),
                Command::Settle(reply) => _ = reply.send(()),
                _ => panic!("it is not asked for more"),
            }
        }
        asked
    });
    let control =
        Control::new(Arc::clone(&scene.statistics), Arc::new(AwsLc), "x.cfg").with_ike(Some(handle));
    let plan = plan_with(lines, configuration);
    let changes = control.replace(&plan).expect("the engine has the ciphers");
    drop(control);
    let about_peers = changes.into_iter().filter(|change| change.contains("ike")).collect();
    (thread.join().expect("it ends with the handle"), about_peers)
}

#[test]
fn a_reload_leaves_an_unchanged_peer_alone_and_no_number_has_two_names() {
    let (mut scene, events, _) = scene();
    let peer = publish(&scene, 1);
    let expires = Time::from_nanoseconds(u64::MAX);
    let lifetime = Lifetime { renew: None, renew_sequence: u64::MAX, expires, end_sequence: 1 << 32 };
    let outbound = Arc::new(OutboundSa::new(keys(), 0x99, lifetime));
    let endpoint =
        Endpoint { local: Some([172, 16, 1, 5].into()), ..Endpoint::new(([172, 16, 2, 5], 0).into()) };
    peer.endpoint.store(Some(endpoint));
    peer.sending.store(Some(outbound));
    let sa = Arc::new(InboundSa::new(keys(), 0x9999, lifetime, false));
    let session =
        Session { sa, peer: Arc::clone(&peer), selectors: Some(selectors([1, 7])), transport: None };
    scene.worker.sessions().install(session);
    let inner = ours(&packet(ICMP, FOR_PEER, 0, &[8, 0, 1, 2]));
    let passes = |scene: &mut Scene| scene.carry(0, std::slice::from_ref(&inner))[1].len();
    assert_eq!(passes(&mut scene), 1);

    // Another peer comes before it in the file, and the manual SAs go.
    let other = PEER.replace("peer b", "peer a").replace(".5", ".6").replace("192.168.7", "192.168.8");
    let both = format!("{PEER}{other}");
    let first = LINES.replace("ike b", "ike a").replace("192.168.7", "192.168.8");
    let lines = format!("{first}{LINES}");
    let (asked, said) = reloaded(&scene, &lines, &both);
    assert_eq!(
        (&asked[..], &said[..]),
        (&["add a [2], keeps false".to_owned()][..], &["+ ike a".to_owned()][..])
    );
    assert_eq!(passes(&mut scene), 1, "its number is still the first");
    assert!(scene.worker.sessions().has_session(0x9999), "and IKE has its SAs");
    assert_eq!(events.len(), 0);

    // Other ciphers are for the next keys; another secret ends what was agreed on with the one before.
    let renewed = both.replace("proposal 1 dh-group 19", "proposal 1 dh-group 20");
    let (asked, _) = reloaded(&scene, &lines, &renewed);
    assert_eq!(asked, ["add a [2], keeps true", "add b [1], keeps true"]);
    let (asked, said) = reloaded(&scene, &lines, &renewed.replace("a secret of", "another secret of"));
    assert_eq!(asked, ["add a [2], keeps false", "add b [1], keeps false"]);
    assert_eq!(said[0], "ike a: changed, its SAs are deleted");

    // A peer that no policy names is ended, and without its policy nothing passes in clear.
    let (asked, said) = reloaded(&scene, &first, &renewed);
    assert_eq!((&asked[0][..], &said[0][..]), ("remove b", "- ike b: its SAs are deleted"));
    assert_eq!(scene.carry(0, std::slice::from_ref(&inner)), NOTHING);
    let third = first.replace("ike a", "ike c");
    let (asked, _) = reloaded(&scene, &third, &both.replace("peer a", "peer c"));
    assert_eq!(asked, ["remove a", "add c [3], keeps false"], "a number is not used again");
}
