//! `receive-threads`: peers and flows are spread over several threads, and keep their order.

use crate::daemon::{Site, key_pair, lines, started};
use crate::support::{
    PATIENCE, answers, ask, daemon, dropped, joined, lab, postern, sites, tcp_arrives_whole,
};
use base64ct::{Base64, Encoding};
use lab::postern::Postern;
use lab::wireguard::{Gateway, private_key};
use lab::{Lab, traffic, wait_until};
use packet::{Batch, DropCounters};
use port::tun::{self, TunDevice, TunReceive, TunTransmit};
use port::{Offloads, Receive, Transmit, Wake};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

/// Receiving threads of the gateway under test.
const THREADS: usize = 4;
/// Its peers.
const PEERS: usize = 32;
const PINGS: usize = 20;

/// Packets that the workers of a direction have received, by their numbers.
fn received(interface: &str, direction: &str) -> Vec<u64> {
    let socket = format!("/run/postern/{interface}.sock");
    let said = ask(&["show", "interfaces", "statistics", "--api", &socket]);
    let number = |name: &str| match name.strip_prefix(direction)? {
        "" => Some(0),
        number => number.trim_start().parse::<usize>().ok(),
    };
    let workers = said["workers"].as_array().expect("a list").iter().filter_map(|worker| {
        let packets = worker["received_packets"].as_u64().expect("a number");
        number(worker["worker"].as_str().expect("a word")).map(|number| (number, packets))
    });
    let mut workers: Vec<_> = workers.collect();
    workers.sort_unstable();
    workers.into_iter().map(|(_, packets)| packets).collect()
}

/// Starts a gateway in `a` with many peers, each an interface of a daemon in `b`. The networks are 10.77.N.0/24.
fn crowded(lab: &mut Lab) -> (Gateway, Postern) {
    let keys: Vec<_> = (0..PEERS).map(|number| private_key(1000 + number as u16, 1)).collect();
    let own = private_key(999, 0);
    // As long as names of interfaces are: the names of threads must fit all the same.
    let interface = format!("{:x<15}", lab.interface("hub"));
    let threads = THREADS.to_string();
    let hub = Gateway::start_with(lab, &daemon(), "a", &interface, &["--receive-threads", &threads]);
    let hub = hub.expect("it starts");
    let mut request =
        format!("private_key={}\nlisten_port=51820\n", base16ct::lower::encode_string(own.secret().expose()));
    let (mut members, path) = (String::new(), "set interfaces wireguard wg");
    for (number, key) in keys.iter().enumerate() {
        let public = base16ct::lower::encode_string(&key.public().0);
        let _ = writeln!(request, "public_key={public}\nallowed_ip=10.77.{number}.2/32");
        lab.ip("a", &format!("address add 10.77.{number}.1/24 dev {interface}")).expect("it is there");
        let private = Base64::encode_string(key.secret().expose());
        for line in [
            format!("private-key {private}"),
            format!("address 10.77.{number}.2/24"),
            format!("peer hub public-key {}", own.public()),
            format!("peer hub allowed-ips 10.77.{number}.1/32"),
            "peer hub address 192.168.77.1".to_owned(),
            "peer hub port 51820".to_owned(),
        ] {
            let _ = writeln!(members, "{path}{number} {line}");
        }
    }
    hub.set(&request).expect("it is well-formed");
    lab.ip("a", &format!("link set {interface} up")).expect("it is there");
    let mut postern = Postern::new(lab, "b", postern()).expect("a folder");
    postern.write(&members);
    postern.start(lab, "info", 4 * PATIENCE).unwrap_or_else(|error| panic!("{error}"));
    (hub, postern)
}

/// Pings addresses at the same time, each `count` times, with so many seconds between two pings; how many were answered.
pub(crate) fn pings(lab: &Lab, from: &str, addresses: &[String], count: usize, interval: &str) -> usize {
    let ping = |to: &str| {
        let count = count.to_string();
        let said = lab.run(from, "ping", &["-c", &count, "-i", interval, "-W", "20", "-q", to]);
        let said = said.unwrap_or_default();
        let answered = said.split(" received").next().and_then(|text| text.rsplit(' ').next());
        answered.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = addresses.iter().map(|to| scope.spawn(move || ping(to))).collect();
        all.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
    })
}

#[test]
fn many_peers_are_spread_over_the_threads_and_nothing_is_lost() {
    let Some(mut lab) = sites() else { return };
    let (hub, _members) = crowded(&mut lab);
    for (from, last) in [("b", 1), ("a", 2)] {
        let addresses: Vec<_> = (0..PEERS).map(|number| format!("10.77.{number}.{last}")).collect();
        assert_eq!(pings(&lab, from, &addresses, PINGS, "0.02"), PEERS * PINGS, "from {from}");
    }
    let inbound = received(&hub.interface, "in");
    assert_eq!(inbound.len(), THREADS);
    for (number, packets) in inbound.iter().enumerate() {
        // Each has a quarter of the peers.
        assert!(*packets >= (PEERS / THREADS * 2 * PINGS) as u64, "in {number}: {inbound:?}");
    }
    let outbound = received(&hub.interface, "out");
    assert_eq!(outbound.len(), THREADS);
    assert!(outbound.iter().filter(|packets| **packets > 0).count() > 1, "{outbound:?}");
    for reason in ["replayed", "unknown-sa", "bad-tag", "foreign-source", "no-key"] {
        assert_eq!(dropped(&hub.interface, reason), 0, "{reason}");
    }
    let names = hub.process.threads().expect("it runs");
    let workers = names.values().filter(|(name, _)| [" in", " out"].iter().any(|role| name.contains(role)));
    assert_eq!(workers.count(), 2 * THREADS);
}

/// iperf3 by UDP, eight flows at once: datagrams that came, and those that came behind a later one.
fn out_of_order(lab: &Lab, to: &str, more: &[&str]) -> (u64, u64) {
    let usual = ["--client", to, "--udp", "--parallel", "8", "--bitrate", "20M", "--length", "700"];
    let arguments = [&usual[..], &["--time", "3", "--json"], more].concat();
    let said = lab.run("a", "iperf3", &arguments).expect("iperf3 runs");
    let report: Value = serde_json::from_str(&said).expect("it is JSON");
    let streams = report["end"]["streams"].as_array().expect("a list");
    let sum = |key: &str| streams.iter().filter_map(|stream| stream["udp"][key].as_u64()).sum::<u64>();
    (sum("packets") - sum("lost_packets"), sum("out_of_order"))
}

/// A counter of TCP in a namespace.
fn counter(lab: &Lab, namespace: &str, name: &str) -> u64 {
    let text = lab.run(namespace, "cat", &["/proc/net/netstat"]).expect("it is there");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let found = names.split(' ').zip(values.split(' ')).find(|(it, _)| *it == name);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or_else(|| panic!("{name} is not counted"))
}

#[test]
fn the_packets_of_each_flow_keep_their_order() {
    let Some((mut lab, tunnel)) = joined(&["--receive-threads", "4", "--threads", "4", "--hand-off-always"])
    else {
        return;
    };
    traffic::serve(&mut lab, "b").expect("it starts");
    for more in [&[][..], &["--reverse"], &["--bidir"]] {
        let (came, late) = out_of_order(&lab, &tunnel.inside[1], more);
        assert!(came > 1000, "{more:?}: {came}");
        assert_eq!(late, 0, "{more:?}: of {came}");
    }
    std::thread::scope(|scope| {
        for (from, to, end) in [("a", "b", 1), ("b", "a", 0), ("a", "b", 1), ("b", "a", 0)] {
            let (lab, address) = (&lab, &tunnel.inside[end]);
            scope.spawn(move || tcp_arrives_whole(lab, from, to, address, 50 << 20).expect("whole"));
        }
    });
    for namespace in ["a", "b"] {
        for name in ["TCPSACKReorder", "TCPTSReorder", "TCPRenoReorder"] {
            assert_eq!(counter(&lab, namespace, name), 0, "{namespace} {name}");
        }
    }
    for gateway in &tunnel.gateways {
        let outbound = received(&gateway.interface, "out");
        assert!(outbound.iter().filter(|packets| **packets > 0).count() > 1, "{outbound:?}");
        assert_eq!(dropped(&gateway.interface, "replayed"), 0);
    }
}

#[test]
fn a_peer_that_roams_stays_with_its_thread() {
    let Some((lab, tunnel)) = joined(&["--receive-threads", "4"]) else { return };
    let [hub, roaming] = &tunnel.gateways;
    let endpoint = || hub.value("endpoint").expect("it answers").unwrap_or_default();
    let before = received(&hub.interface, "in");
    let ports = [51_831, 51_832, 51_833, 51_834, 51_835];
    for port in ports {
        roaming.set(&format!("listen_port={port}\n")).expect("it is free");
        assert!(answers(&lab, "b", &tunnel.inside[0]), "at port {port}");
        assert_eq!(endpoint(), format!("192.168.77.2:{port}"));
    }
    lab.ip("b", "address del 192.168.77.2/24 dev outside").expect("it is there");
    lab.ip("b", "address add 192.168.77.9/24 dev outside").expect("it is free");
    wait_until(PATIENCE, || answers(&lab, "b", &tunnel.inside[0])).expect("the tunnel goes on");
    assert_eq!(endpoint(), "192.168.77.9:51835");
    let after = received(&hub.interface, "in");
    let grown: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    // The first has handshake messages, too.
    assert!(grown[1] > ports.len() as u64, "{grown:?}");
    assert_eq!(grown[2..], [0, 0], "{grown:?}");
}

/// The names of a gateway's workers.
fn workers(site: &Site) -> BTreeSet<String> {
    let said = ask(&["show", "datapath", "threads", "--api", &site.socket.to_string_lossy()]);
    let names = said["threads"].as_array().expect("a list").iter().filter_map(|it| it["name"].as_str());
    names.filter(|name| name.contains(" in") || name.contains(" out")).map(str::to_owned).collect()
}

#[test]
fn the_number_is_set_when_the_interface_is_made_and_another_one_is_refused() {
    let Some((lab, a, _b, publics)) = started() else { return };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let has = workers(&a).len() / 2;
    let handshake = a.peer("other")["latest_handshake"].clone();
    a.write(&lines(0, &publics[1], &[&format!("receive-threads {}", has + 1)]));
    let said = a.reload();
    let expected = format!("wg0 has {has} receiving threads, and {} are wanted", has + 1);
    assert!(said.contains(&expected) && said.contains("fix: delete interfaces wireguard wg0"), "{said}");
    assert_eq!(workers(&a).len(), 2 * has);
    // The same number in other words is no change, and the tunnel has noticed nothing.
    a.write(&lines(0, &publics[1], &[&format!("receive-threads {has}")]));
    assert!(a.reload().contains("is in force"));
    assert!(answers(&lab, "a", "10.66.0.2"));
    assert_eq!(a.peer("other")["latest_handshake"], handshake);
    a.write(&lines(0, &publics[1], &["receive-threads 17"]));
    let said = a.reload();
    assert!(said.contains("\"17\" is not a number from 1 to 16, or auto"), "{said}");
}

#[test]
fn each_receiving_thread_is_shown() {
    let Some(mut lab) = sites() else { return };
    let [(private, _), (_, public)] = [key_pair(), key_pair()];
    let mut site = Site::new(&lab, "a", &private);
    site.write(&lines(0, &public, &["receive-threads 3"]));
    site.start(&mut lab);
    let expected = ["wg0 in", "wg0 in 1", "wg0 in 2", "wg0 out", "wg0 out 1", "wg0 out 2"];
    assert_eq!(workers(&site), expected.map(str::to_owned).into());
}

/// Queues of the kernel's interface.
const QUEUES: usize = 3;
const FLOWS: usize = 24;

/// Reads all queues until there is a datagram with this payload; its queue, and the whole packet.
fn taken(halves: &mut [(TunReceive, TunTransmit)], wake: &Wake, payload: &[u8]) -> (usize, Vec<u8>) {
    let (mut batch, drops) = (Batch::new(tun::BATCH_BYTES), DropCounters::default());
    let mut found = None;
    wait_until(PATIENCE, || {
        for (queue, (receive, _)) in halves.iter_mut().enumerate() {
            batch.clear();
            wake.notify();
            receive.wait(wake).expect("poll works");
            receive.receive(&mut batch, &drops).expect("readable");
            let mut packets = (0..batch.len()).map(|index| batch.packet(index));
            if let Some(packet) = packets.find(|packet| packet.ends_with(payload)) {
                found = Some((queue, packet.to_vec()));
            }
        }
        found.is_some()
    })
    .expect("the packet comes");
    found.expect("just seen")
}

#[test]
fn the_kernel_never_changes_the_queue_of_a_flow_whatever_is_written() {
    let Some(lab) = lab(&["a"]) else { return };
    let (name, offloads) = (lab.interface("q"), Arc::<Offloads>::default());
    let device = lab.enter("a", || TunDevice::create(&name, QUEUES, &offloads)).expect("a thread");
    let device = Arc::new(device.expect("root may"));
    lab.ip("a", &format!("address add 10.9.0.1/24 dev {name}")).expect("it is there");
    lab.ip("a", &format!("link set {name} up")).expect("it is there");
    let second = lab.enter("a", || TunDevice::create(&name, QUEUES, &offloads)).expect("a thread");
    assert!(second.is_err(), "it does not join an interface that exists");
    let half = |queue| tun::halves_of(Arc::clone(&device), queue, Arc::clone(&offloads));
    let mut halves: Vec<_> = (0..QUEUES).map(half).collect();
    let bind = || (0..FLOWS).map(|_| UdpSocket::bind("10.9.0.1:0").expect("it is ours")).collect();
    let sockets: Vec<UdpSocket> = lab.enter("a", bind).expect("a thread");
    let (wake, drops) = (Wake::new().expect("there are descriptors"), DropCounters::default());
    let (mut homes, mut batch) = (vec![None; FLOWS], Batch::new(4096));
    for round in 0..10u8 {
        for (flow, socket) in sockets.iter().enumerate() {
            let payload = [round, flow as u8, 0x5a, 0xa5].repeat(8);
            socket.send_to(&payload, "10.9.0.2:7").expect("it is routed");
            let (queue, mut packet) = taken(&mut halves, &wake, &payload);
            assert_eq!(*homes[flow].get_or_insert(queue), queue, "flow {flow} in round {round}");
            // Its answer is written by the thread of another queue: addresses and ports change places.
            for (one, other, length) in [(12, 16, 4), (20, 22, 2)] {
                (0..length).for_each(|byte| packet.swap(one + byte, other + byte));
            }
            batch.clear();
            batch.append(packet.len()).expect("it fits").copy_from_slice(&packet);
            batch.close_train(0, None, 0);
            halves[(queue + 1) % QUEUES].1.transmit(&mut batch, &drops);
            socket.set_read_timeout(Some(Duration::from_secs(30))).expect("not zero");
            let (mut answer, expected) = ([0; 64], payload.len());
            assert_eq!(socket.recv(&mut answer).expect("the answer comes"), expected);
        }
    }
    let used: BTreeSet<usize> = homes.into_iter().flatten().collect();
    assert!(used.len() > 1, "{used:?}");
}
