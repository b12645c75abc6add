mod answer;
mod fragments;
mod ike;
mod large;

mod lcores;
mod lifetimes;
mod modes;
mod reassembly;
mod reload;

use super::*;
use config::secgw::{CommandLine, Finding, Loaded};
use crypto::engine::aws_lc::AwsLc;
use packet::header::ethernet::{ARP, EthernetHeader, IPV4};
use packet::header::ip::{ICMP, IpPacket, Ipv4Header, UDP, ecn};
use packet::{Batch, DropCounters, DropReason};
use port::memory::{RingReceive, RingTransmit, ring};
use port::{Receive, Transmit};
use std::sync::Arc;
use zerocopy::IntoBytes;

const FILE: &str = "\
sp ipv4 out esp protect 5 pri 1 dst 192.168.2.0/24 sport 0:65535 dport 0:65535
sp ipv4 out esp bypass pri 1 dst 192.168.3.0/24 sport 0:65535 dport 0:65535
sp ipv4 out esp protect 6 pri 2 dst 192.168.2.0/24 proto 17:255 sport 0:65535 dport 53:53
sp ipv4 in esp protect 5 pri 1 dst 192.168.2.0/24 sport 0:65535 dport 0:65535
sp ipv4 in esp bypass pri 1 dst 192.168.3.0/24 sport 0:65535 dport 0:65535
sa out 5 aead_algo aes-128-gcm aead_key KEY mode ipv4-tunnel src 172.16.1.5 dst 172.16.2.5
sa in 5 aead_algo aes-128-gcm aead_key KEY mode ipv4-tunnel src 172.16.1.5 dst 172.16.2.5
sa out 6 aead_algo aes-128-gcm aead_key OTHER mode ipv4-tunnel src 172.16.1.5 dst 172.16.2.5
sa in 6 aead_algo aes-128-gcm aead_key OTHER mode ipv4-tunnel src 172.16.1.5 dst 172.16.2.5
rt ipv4 dst 172.16.2.5/32 port 1
rt ipv4 dst 192.168.2.0/24 port 0
rt ipv4 dst 192.168.3.0/24 port 1
neigh port 1 02:00:00:00:00:0f
";
const WORDS: &str = "--vdev net_tap0 --vdev net_tap1 -- -p 3 -u 2 -w 64 -f x.cfg --config (0,0,0),(1,0,0)";
const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NOTHING: [Vec<Vec<u8>>; 2] = [const { Vec::new() }; 2];

fn file() -> String {
    keys(FILE)
}

fn keys(file: &str) -> String {
    [("KEY", "a1", 20), ("OTHER", "b2", 20), ("CBC", "c3", 16)]
        .iter()
        .fold(file.to_owned(), |file, (word, byte, length)| {
            file.replace(word, &vec![*byte; *length].join(":"))
        })
}

fn plan(file: &str, words: &str) -> Result<Plan, Vec<Finding>> {
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let command_line = CommandLine::read(&words, 2).expect("the words are accepted");
    let Loaded { settings, findings } = config::secgw::read(file.as_bytes(), &command_line.context(false));
    assert!(!config::secgw::is_refused(&findings), "{findings:?}");
    Plan::new(settings, &command_line)
}

/// A gateway between two rings, port 0 protected and port 1 not.
struct Scene {
    worker: Worker,
    statistics: Arc<Statistics>,
    to: [RingTransmit; 2],
    from: [RingReceive; 2],
}

impl Scene {
    fn new(file: &str) -> Self {
        Self::with(file, WORDS)
    }

    fn with(file: &str, words: &str) -> Self {
        Self::of(&plan(file, words).unwrap_or_else(|refused| panic!("{refused:?}")))
    }

    fn of(plan: &Plan) -> Self {
        Self::several(plan).remove(0)
    }

    /// One for each lcore, with queues of its own.
    fn several(plan: &Plan) -> Vec<Self> {
        let tables = SecgwTables::new(plan, &AwsLc).expect("it has the cipher");
        let (ends, ports): (Vec<_>, Vec<_>) = plan.lcores.iter().map(|_| Self::ports(plan)).unzip();
        let workers = Worker::reassembling(Worker::several(tables, &plan.lcores, ports), plan.reassembly);
        let statistics = Arc::new(Statistics::of(&workers));
        let scene = |(worker, (to, from))| Self { worker, statistics: Arc::clone(&statistics), to, from };
        workers.into_iter().zip(ends).map(scene).collect()
    }

    /// The ports of a worker, and their other ends.
    fn ports(plan: &Plan) -> (([RingTransmit; 2], [RingReceive; 2]), Vec<FramePort>) {
        let [(to_0, receive_0), (to_1, receive_1), (transmit_0, from_0), (transmit_1, from_1)] =
            std::array::from_fn(|_| ring(64));
        let port = |number: u16, receive, transmit| FramePort {
            number,
            name: format!("memory{number}"),
            is_protected: plan.ports[usize::from(number)].is_protected,
            station: Some(OURS),
            address: OURS,
            own: plan.ports[usize::from(number)].own.as_slice().into(),
            queues: vec![Queue::new(receive)],
            transmit: Box::new(transmit),
            is_received: true,
            link: None,
        };
        let ports = vec![port(0, receive_0, transmit_0), port(1, receive_1, transmit_1)];
        (([to_0, to_1], [from_0, from_1]), ports)
    }

    /// What leaves by each port after these frames have arrived at one.
    fn carry(&mut self, port: usize, frames: &[Vec<u8>]) -> [Vec<Vec<u8>>; 2] {
        let (mut batch, drops) = (Batch::new(128 * 1024), DropCounters::default());
        for frame in frames {
            batch.append(frame.len()).expect("it fits").copy_from_slice(frame);
        }
        self.to[port].transmit(&mut batch, &drops);
        self.worker.burst(port);
        self.from.each_mut().map(|from| {
            batch.clear();
            from.receive(&mut batch, &drops).expect("memory does not fail");
            (0..batch.len()).map(|index| batch.packet(index).to_vec()).collect()
        })
    }

    /// The reasons of all drops so far.
    fn dropped(&self) -> Vec<(DropReason, u64)> {
        let counts = DropReason::ALL.iter().map(|&reason| (reason, self.statistics.dropped(reason)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

fn packet(protocol: u8, destination: [u8; 4], ds_field: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = Ipv4Header {
        ds_field,
        identification: 7.into(),
        ttl: 9,
        ..Ipv4Header::new(protocol, [192, 168, 1, 2], destination, (20 + payload.len()) as u16)
    };
    header.finish();
    [header.as_bytes(), payload].concat()
}

fn frame(destination: [u8; 6], ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let header = EthernetHeader { destination, source: [2; 6], ether_type: ether_type.into() };
    [header.as_bytes(), packet].concat()
}

fn ours(packet: &[u8]) -> Vec<u8> {
    frame(OURS, IPV4, packet)
}

#[test]
fn a_packet_passes_two_gateways_unchanged_in_a_tunnel_with_its_ds_field() {
    let mut scene = Scene::new(&file());
    let inner = packet(ICMP, [192, 168, 2, 2], 0xb8 | 0b10, &[8, 0, 1, 2, 3, 4, 5, 6]);
    // Padding of a short frame is no part of the packet.
    let padded = [ours(&inner), vec![0x55; 18]].concat();
    let [inside, mut outside] = scene.carry(0, &[padded.clone(), padded]);
    assert_eq!((inside.len(), outside.len()), (0, 2));
    let (header, outer) = outside[1].split_at(14);
    assert_eq!((&header[..6], &header[6..12]), (&[2, 0, 0, 0, 0, 15][..], &OURS[..]));
    let Ok(IpPacket::V4(outer, bytes)) = IpPacket::parse(outer) else { panic!("{outer:?}") };
    assert_eq!((outer.source, outer.destination), ([172, 16, 1, 5], [172, 16, 2, 5]));
    assert_eq!((outer.protocol, outer.ds_field, outer.ttl), (50, 0xb8 | 0b10, 64));
    assert_eq!(bytes[20..28], [0, 0, 0, 5, 0, 0, 0, 2], "SPI and sequence number");
    // Congestion on the way comes out inside; ECT(1) does not (RFC 4301 section 5.1.2.1).
    packet::header::ip::set_ecn(&mut outside[0][14..], ecn::ECT_1).expect("it is IP");
    packet::header::ip::set_ecn(&mut outside[1][14..], ecn::CE).expect("it is IP");
    let arrived: Vec<Vec<u8>> = outside.iter().map(|sent| [&OURS[..], &sent[6..]].concat()).collect();
    let [inside, outside] = scene.carry(1, &arrived);
    assert!(outside.is_empty());
    assert_eq!(inside[0][14..14 + inner.len()], inner, "the packet is as it was");
    assert_eq!(inside[0].len(), 60, "a short frame is padded");
    assert_eq!(inside[1][15], 0xb8 | ecn::CE);
    assert_eq!(scene.carry(1, &arrived[..1]), NOTHING);
    assert_eq!(scene.dropped(), [(DropReason::Replayed, 1)]);
    let text = scene.statistics.to_string();
    for line in
        ["sa out 5 aes-128-gcm: 2 packets", "sa in 5 aes-128-gcm: 2 packets", "line 1, protect 5: 2 packets"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn what_no_policy_lets_through_is_dropped_with_its_reason() {
    let mut scene = Scene::new(&file());
    let to = |last| packet(ICMP, [192, 168, last, 2], 0, &[8, 0, 1, 2, 3, 4, 5, 6]);
    let [inside, outside] = scene.carry(0, &[ours(&to(3)), ours(&to(2)), ours(&to(3))]);
    assert_eq!((inside.len(), outside.len()), (0, 3), "bypass and protect in one burst");
    assert_eq!(outside.iter().filter(|frame| frame[23] == 50).count(), 1);
    let fragment = {
        let mut bytes = packet(50, [172, 16, 2, 5], 0, &[7; 40]);
        bytes[6] = 0x20;
        bytes
    };
    let wrong_outer =
        [&OURS[..], &outside.iter().find(|frame| frame[23] == 50).expect("one is")[6..]].concat();
    let mut wrong_outer = wrong_outer;
    wrong_outer[29] = 6;
    let vlan = [&ours(&to(2))[..12], &[0x81, 0, 0, 1], &ours(&to(2))[12..]].concat();
    let mut large = packet(UDP, [192, 168, 3, 2], 0, &[0; 1490]);
    large[6] = 0x40;
    for (port, frame, reason) in [
        (0, frame(OURS, ARP, &[0; 46]), DropReason::NotIp),
        (0, vlan.clone(), DropReason::VlanTag),
        (1, [&vlan[..12], &[0x88, 0xa8, 0, 1], &vlan[12..]].concat(), DropReason::VlanTag),
        (0, frame(OURS, 0x88cc, &[0; 46]), DropReason::NotIp),
        (0, frame([2, 0, 0, 0, 0, 2], IPV4, &to(2)), DropReason::OtherStation),
        (0, frame([0xff; 6], IPV4, &to(2)), DropReason::OtherStation),
        (0, vec![2; 9], DropReason::TooShort),
        (0, ours(&to(2)[..19]), DropReason::Malformed),
        (0, frame(OURS, 0x86dd, &to(2)), DropReason::Malformed),
        (0, ours(&to(4)), DropReason::Denied),
        (0, ours(&packet(50, [192, 168, 3, 2], 0, &[7; 40])), DropReason::Denied),
        (1, ours(&large), DropReason::TooBig),
        (1, ours(&to(2)), DropReason::Denied),
        (1, ours(&fragment), DropReason::Fragmented),
        (1, ours(&packet(50, [172, 16, 2, 5], 0, &[0; 40])), DropReason::UnknownSa),
        (1, ours(&packet(50, [172, 16, 2, 5], 0, &[7; 7])), DropReason::TooShort),
        (1, wrong_outer, DropReason::UnknownSa),
    ] {
        let before = scene.statistics.dropped(reason);
        assert_eq!(scene.carry(port, &[frame]), NOTHING, "{reason:?}");
        assert_eq!(scene.statistics.dropped(reason), before + 1, "{reason:?}");
    }
    // Port 53 has an SA of its own, which no inbound policy names.
    let [_, outside] = scene.carry(0, &[ours(&packet(UDP, [192, 168, 2, 2], 0, &[0, 1, 0, 53, 0, 8, 0, 0]))]);
    assert_eq!(outside[0][34..38], [0, 0, 0, 6]);
    let arrived = [&OURS[..], &outside[0][6..]].concat();
    assert_eq!(scene.carry(1, &[arrived]), NOTHING);
    assert_eq!(scene.statistics.dropped(DropReason::ForeignSource), 1);
    // Without a route for the outer destination.
    let mut scene = Scene::new(&file().replace("rt ipv4 dst 172.16.2.5/32 port 1\n", ""));
    assert_eq!(scene.carry(0, &[ours(&to(2))]), NOTHING);
    assert_eq!(scene.dropped(), [(DropReason::NoRoute, 1)]);
}

#[test]
fn tap_interfaces_get_the_addresses_of_the_words() {
    let addresses = |words: &str| {
        let ports = plan(&file(), words).map(|plan| plan.ports).map_err(|refused| refused[0].text.clone())?;
        Ok::<_, String>(ports.iter().map(|port| port.address).collect::<Vec<_>>())
    };
    let fixed = |last| Some([0x02, b'd', b't', b'a', b'p', last]);
    let both = WORDS.replace("net_tap0", "net_tap0,mac=fixed").replace("net_tap1", "net_tap1,mac=fixed");
    assert_eq!(addresses(&both), Ok(vec![fixed(b'0'), fixed(b'1')]));
    let one = WORDS.replace("net_tap1", "net_tap1,mac=02:0a:00:00:00:fe");
    assert_eq!(addresses(&one), Ok(vec![None, Some([2, 10, 0, 0, 0, 254])]));
    for bad in ["01:00:00:00:00:01", "02:00:00:00:01", "x"] {
        let said = addresses(&WORDS.replace("net_tap1", &format!("net_tap1,mac={bad}")));
        assert!(said.is_err_and(|said| said.contains("no Ethernet address")), "{bad}");
    }
}

#[test]
fn what_is_not_served_yet_is_refused_with_a_sentence() {
    let refused = |file: &str, words: &str| -> String {
        let refused = plan(file, words).map(drop).expect_err("it is not served");
        refused.iter().map(|finding| finding.in_file("x").to_string()).collect()
    };
    for (from, to, said) in [
        (
            "dst 172.16.2.5\nsa in 5",
            "dst 172.16.2.5 reassembly_en\nsa in 5",
            "x:6: error: reassembly_en needs hardware",
        ),
        (
            "mode ipv4-tunnel src 172.16.1.5 dst 172.16.2.5\nsa in 5",
            "mode transport udp-encap\nsa in 5",
            "x:6: error: udp-encap with mode transport",
        ),
        (
            "sa in 6",
            "sa out 7 cipher_algo aes-128-cbc cipher_key CBC auth_algo aes-xcbc-mac-96 auth_key CBC udp-encap mode ipv6-tunnel\nsa in 6",
            "in an IPv6 tunnel",
        ),
        (
            "sa in 6",
            "sa in 7 cipher_algo des-cbc cipher_key 1:2:3:4:5:6:7:8 auth_algo sha1-hmac auth_key KEY mode transport\nsa in 6",
            "des-cbc with sha1-hmac is not served",
        ),
        (
            "sa in 6",
            "sa in 7 cipher_algo aes-128-cbc cipher_key CBC auth_algo null mode ipv4-tunnel src 1.1.1.1 dst 1.1.1.2\nsa in 6",
            "aes-128-cbc with null",
        ),
    ] {
        let said_here = refused(&keys(&FILE.replacen(from, to, 1)), WORDS);
        assert!(said_here.contains(said) && said_here.contains("fix: "), "{said_here}");
    }
    for (from, to, said) in [
        ("-w 64", "-l --reassemble 70000", "--reassemble 70000"),
        (
            "net_tap0 --vdev net_tap1 --",
            "net_tap0 --vdev net_af_xdp1,iface=x -- --mtu 3827",
            "at most 3826 bytes",
        ),
        ("-w 64", "--mtu 65522", "at most 65521 bytes"),
        ("(1,0,0)", "(1,0,0),(1,0,1)", "queue 0 of port 1 to lcores 0 and 1"),
        ("(1,0,0)", "(1,1,0)", "names queue 1 of port 1, and not its queue 0"),
        ("net_tap1", "net_tap1,qpairs=2", "qpairs=2 is not served"),
        ("net_tap1", "net_af_xdp0,iface=e,queue_count=x", "queue_count=x"),
        ("net_tap1", "net_pcap0,rx_pcap=x,rx_pcap=y", "2 rx_pcap files"),
        ("net_tap1", "net_tap1,iface=dtap0", "are one interface"),
    ] {
        let said_here = refused(&file(), &WORDS.replacen(from, to, 1));
        assert!(said_here.contains(said) && said_here.contains("fix: "), "{said}: {said_here}");
    }
    let plan = plan("", &WORDS.replacen("-u 2 ", "", 1)).map(|plan| plan.remarks);
    assert_eq!(
        plan.expect("an empty file is served").len(),
        4,
        "one remark for each family and direction without policies"
    );
}
