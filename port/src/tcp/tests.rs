//! Connections of this machine with itself.

use super::socket::listening;
use super::{TcpConnections, TcpReceive, TcpTransmit};
use crate::udp::{SocketSlot, UdpBinding, UdpSockets, UdpTransmit};
use crate::{Offloads, Receive, SocketOptions, Transmit, Wake};
use packet::{Batch, DropCounters, DropReason, Endpoint};
use rustix::net::getsockname;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A port that listens, and what it has received.
struct Port {
    connections: Arc<TcpConnections>,
    address: SocketAddr,
    receive: TcpReceive,
    transmit: TcpTransmit,
    batch: Batch,
    drops: DropCounters,
    told: Arc<AtomicUsize>,
}

impl Port {
    fn new(window: Duration) -> Self {
        Self::with_udp(window, Arc::default())
    }

    fn with_udp(window: Duration, slot: SocketSlot) -> Self {
        let told = Arc::new(AtomicUsize::new(0));
        let tell = Arc::clone(&told);
        let connections = TcpConnections::new(move || _ = tell.fetch_add(1, Ordering::Relaxed))
            .expect("there are descriptors");
        let connections = Arc::new(connections);
        let socket = listening(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &SocketOptions::default());
        let socket = socket.expect("a free port");
        let address = SocketAddr::try_from(getsockname(&socket).expect("bound")).expect("of IP");
        connections.listen(vec![socket], window).expect("epoll takes it");
        connections.set_queue_limit(10);
        let in_udp = UdpTransmit::new(slot, Arc::new(Offloads::default()));
        Self {
            receive: TcpReceive::new(Arc::clone(&connections)),
            transmit: TcpTransmit::new(Arc::clone(&connections), in_udp, 0),
            connections,
            address,
            batch: Batch::new(super::BATCH_BYTES),
            drops: DropCounters::default(),
            told,
        }
    }

    /// Receives until `count` packets have arrived, or nothing does for a while.
    fn received(&mut self, count: usize) -> Vec<(Vec<u8>, SocketAddr)> {
        let (mut all, end) = (Vec::new(), Instant::now() + PATIENCE);
        while all.len() < count && Instant::now() < end {
            self.burst(&mut all);
        }
        self.burst(&mut all);
        all
    }

    fn burst(&mut self, all: &mut Vec<(Vec<u8>, SocketAddr)>) {
        self.batch.clear();
        self.receive.receive(&mut self.batch, &self.drops).expect("epoll works");
        for train in self.batch.trains() {
            let from = train.endpoint.expect("of a connection").remote;
            all.extend(train.packets.clone().map(|index| (self.batch.packet(index).to_vec(), from)));
        }
    }

    /// Sends packets to a peer; returns how many were not discarded.
    fn send(&mut self, to: SocketAddr, packets: &[Vec<u8>]) -> usize {
        self.send_to(Endpoint::tcp(to), packets)
    }

    fn send_to(&mut self, to: Endpoint, packets: &[Vec<u8>]) -> usize {
        self.batch.clear();
        for packet in packets {
            self.batch.append(packet.len()).expect("it fits").copy_from_slice(packet);
        }
        self.batch.close_train(0, Some(to), 0);
        self.transmit.transmit(&mut self.batch, &self.drops);
        let live: Vec<usize> = self.batch.live(0..packets.len()).collect();
        assert!(live.iter().all(|index| self.batch.packet(*index) == packets[*index]), "without its length");
        live.len()
    }

    fn peer(&self) -> (TcpStream, SocketAddr) {
        let stream = TcpStream::connect(self.address).expect("it listens");
        let address = stream.local_addr().expect("connected");
        (stream, address)
    }

    /// The addresses of connections that have ended.
    fn ended(&mut self, count: usize) -> Vec<SocketAddr> {
        let (mut all, end) = (Vec::new(), Instant::now() + PATIENCE);
        while all.len() < count && Instant::now() < end {
            self.burst(&mut Vec::new());
            all.extend(self.connections.ended_since().into_iter().map(|(remote, _)| remote));
        }
        all
    }
}

fn framed(packets: &[Vec<u8>]) -> Vec<u8> {
    packets.iter().flat_map(|packet| [&(packet.len() as u16).to_be_bytes(), &packet[..]].concat()).collect()
}

fn numbered(count: usize, length: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![number as u8; length + number % 7]).collect()
}

/// Reads packets until none comes for a moment.
fn read_all(stream: &mut TcpStream, pause: Duration) -> Vec<u8> {
    stream.set_read_timeout(Some(pause)).expect("a socket");
    let (mut all, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return all,
            Ok(length) => all.extend_from_slice(&buffer[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn packets_of_two_connections_arrive_in_order_and_are_answered_on_their_own() {
    let mut port = Port::new(PATIENCE);
    let ((mut one, one_address), (mut other, other_address)) = (port.peer(), port.peer());
    let packets = numbered(300, 1400);
    one.write_all(&framed(&packets)).expect("taken");
    let mut received = port.received(300);
    assert!(received.iter().all(|(_, from)| *from == one_address));
    assert_eq!(received.drain(..).map(|(packet, _)| packet).collect::<Vec<_>>(), packets);
    other.write_all(&framed(&packets[..1])).expect("taken");
    assert_eq!(port.received(1), [(packets[0].clone(), other_address)]);
    assert_eq!(port.send(other_address, &packets[..5]), 5);
    assert_eq!(read_all(&mut other, Duration::from_millis(500)), framed(&packets[..5]));
    assert_eq!(read_all(&mut one, Duration::from_millis(100)), b"");
}

#[test]
fn an_endpoint_in_udp_has_the_port_of_a_connection_and_is_another_one() {
    let slot = Arc::new(None.into());
    let mut port = Port::with_udp(PATIENCE, Arc::clone(&slot));
    let at = UdpBinding { v4: Some(Ipv4Addr::LOCALHOST), ..UdpBinding::default() };
    let sockets = UdpSockets::bind_at(0, &at, &Offloads::default()).expect("a free port");
    slot.store(Some(Arc::new(sockets)));
    let (mut connection, address) = port.peer();
    let in_udp = UdpSocket::bind(address).expect("no other program has the port in UDP");
    in_udp.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let packets = numbered(2, 100);
    connection.write_all(&framed(&packets[..1])).expect("taken");
    assert_eq!(port.received(1).len(), 1);
    assert_eq!(port.send_to(Endpoint::new(address), &packets[..1]), 1);
    assert_eq!(port.send_to(Endpoint::tcp(address), &packets[1..]), 1);
    let mut buffer = [0; 200];
    let length = in_udp.recv(&mut buffer).expect("sent in UDP");
    assert_eq!(buffer[..length], packets[0]);
    assert_eq!(read_all(&mut connection, Duration::from_millis(500)), framed(&packets[1..]));
    // A connection that has ended is not replaced by UDP.
    drop(connection);
    assert_eq!(port.ended(1), [address]);
    assert_eq!(port.send_to(Endpoint::tcp(address), &packets[..1]), 0);
    assert_eq!(port.drops.read(DropReason::SendFailed), 1);
    in_udp.set_nonblocking(true).expect("a socket");
    assert!(in_udp.recv(&mut buffer).is_err());
}

#[test]
fn a_packet_that_arrives_in_pieces_is_one() {
    let mut port = Port::new(PATIENCE);
    let (mut stream, address) = port.peer();
    let packet = vec![5; 1000];
    for piece in framed(std::slice::from_ref(&packet)).chunks(333) {
        assert_eq!(port.received(0), []);
        stream.write_all(piece).expect("taken");
    }
    assert_eq!(port.received(1), [(packet, address)]);
}

#[test]
fn a_peer_that_reads_nothing_gets_whole_packets_in_order_and_the_rest_is_dropped() {
    let mut port = Port::new(PATIENCE);
    let (mut slow, slow_address) = port.peer();
    let (mut other, other_address) = port.peer();
    port.received(0);
    let packets = numbered(200, 1400);
    let mut sent = Vec::new();
    while port.drops.read(DropReason::TcpQueueFull) == 0 {
        port.send(slow_address, &packets);
        let live = port.batch.live(0..packets.len()).map(|index| packets[index].clone());
        sent.extend(live.collect::<Vec<_>>());
    }
    assert_eq!(port.send(other_address, &packets[..3]), 3, "another connection goes on");
    assert_eq!(read_all(&mut other, Duration::from_millis(500)), framed(&packets[..3]));
    // The worker sends what waits when the socket is writable.
    let reader = std::thread::spawn(move || read_all(&mut slow, Duration::from_secs(2)));
    while !reader.is_finished() {
        port.received(0);
    }
    assert!(reader.join().expect("it ends") == framed(&sent), "all that was not dropped");
}

#[test]
fn a_wrong_length_ends_the_connection_after_the_packets_before_it() {
    for wrong in [&[0, 0][..], &[0xff, 0xff, 1, 2, 3]] {
        let mut port = Port::new(PATIENCE);
        let (mut stream, address) = port.peer();
        let good = numbered(1, 50);
        stream.write_all(&[&framed(&good), wrong].concat()).expect("taken");
        assert_eq!(port.received(1), [(good[0].clone(), address)]);
        assert_eq!(port.ended(1), [address]);
        assert_eq!(port.drops.read(DropReason::BadFraming), 1);
        assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)), "the peer is told");
    }
}

#[test]
fn longer_packets_than_those_of_control_need_a_session() {
    let mut port = Port::new(PATIENCE);
    let (mut stream, address) = port.peer();
    let long = [vec![1; 9000]];
    port.received(0);
    assert!(port.connections.trust(address) && !port.connections.trust(port.address));
    stream.write_all(&framed(&long)).expect("taken");
    assert_eq!(port.received(1), [(long[0].clone(), address)]);
}

#[test]
fn a_connection_without_a_session_ends_in_time_and_one_with_a_session_stays() {
    let mut port = Port::new(Duration::from_millis(300));
    let ((_silent, silent), (_slow, _), (trusted, address)) = (port.peer(), port.peer(), port.peer());
    while !port.connections.trust(address) {
        port.received(0);
    }
    assert!(port.told.load(Ordering::Relaxed) > 0, "the slow path knows of a deadline");
    assert!(port.connections.next_timeout().is_some_and(|waits| waits <= Duration::from_millis(300)));
    std::thread::sleep(Duration::from_millis(400));
    port.connections.handle_timeout();
    let ended = port.ended(2);
    assert!(ended.len() == 2 && ended.contains(&silent) && !ended.contains(&address), "{ended:?}");
    assert_eq!(port.connections.next_timeout(), None);
    drop(trusted);
    assert_eq!(port.ended(1), [address]);
}

#[test]
fn a_source_has_a_bounded_number_of_connections_without_a_session() {
    let mut port = Port::new(PATIENCE);
    let mut streams: Vec<TcpStream> = (0..264).map(|_| port.peer().0).collect();
    let end = Instant::now() + PATIENCE;
    while port.drops.read(DropReason::TooManyConnections) < 8 && Instant::now() < end {
        port.received(0);
    }
    assert_eq!(port.drops.read(DropReason::TooManyConnections), 8);
    // One that has ended makes room once the slow path has seen its end.
    streams.truncate(255);
    assert_eq!(port.ended(1).len(), 1);
    let (mut stream, address) = port.peer();
    stream.write_all(&framed(&numbered(1, 20))).expect("taken");
    assert_eq!(port.received(1)[0].1, address);
}

#[test]
fn what_is_said_last_arrives_before_the_end() {
    let mut port = Port::new(PATIENCE);
    let (mut stream, address) = port.peer();
    port.received(0);
    let last = numbered(2, 100);
    assert_eq!(port.send(address, &last), 2);
    port.connections.finish(address);
    assert_eq!(port.send(address, &last), 0, "a late packet is dropped, and cuts nothing off");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("the end is orderly");
    assert_eq!(all, framed(&last));
    drop(stream);
    assert_eq!(port.ended(1), [address]);
}

#[test]
fn connections_that_are_closed_with_the_interface_are_told_and_no_more_are_accepted() {
    let mut port = Port::new(PATIENCE);
    let (_stream, address) = port.peer();
    port.received(0);
    let waits = port.connections.next_timeout().expect("a deadline");
    assert!(waits <= Duration::from_secs(10), "a silent one: {waits:?}");
    port.connections.close();
    assert_eq!(port.ended(1), [address]);
    assert_eq!(port.connections.next_timeout(), None);
}

#[test]
fn a_connection_that_has_sent_a_packet_has_the_whole_window() {
    let window = Duration::from_secs(60);
    let mut port = Port::new(window);
    let (mut stream, _) = port.peer();
    stream.write_all(&framed(&numbered(1, 20))).expect("taken");
    assert_eq!(port.received(1).len(), 1);
    let waits = port.connections.next_timeout().expect("a deadline");
    assert!(waits > window / 2 && waits <= window, "{waits:?}");
}

#[test]
fn a_worker_that_waits_is_woken_by_a_connection() {
    let mut port = Port::new(PATIENCE);
    let wake = Wake::new().expect("there are descriptors");
    let address = port.address;
    let peer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        TcpStream::connect(address).expect("it listens")
    });
    port.receive.wait(&wake).expect("poll works");
    drop(peer.join().expect("it ends"));
}
