//! Several ports and addresses of one interface.

use super::congestion::{Congestion, Full};
use super::socket::Path;
use super::{BATCH_BYTES, UdpBinding, UdpReceive, UdpSockets, UdpTransmit};
use crate::{Offloads, Receive, Transmit, Wake};
use packet::{Batch, DropCounters, Endpoint};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// A port of 127.0.0.1, two more addresses with it, and another port of 127.0.0.1; and their addresses.
fn several() -> (Arc<UdpSockets>, Vec<SocketAddr>) {
    let port = |socket: &UdpSocket| socket.local_addr().expect("bound").port();
    loop {
        let free = [(); 2].map(|()| port(&UdpSocket::bind("127.0.0.1:0").expect("loopback is there")));
        let at = [([127, 0, 0, 2], free[0]), ([127, 0, 0, 3], free[0]), ([127, 0, 0, 1], free[1])];
        let further: Vec<SocketAddr> = at.map(SocketAddr::from).to_vec();
        let v4 = Some(Ipv4Addr::LOCALHOST);
        let binding = UdpBinding { v4, v6: None, further: further.clone(), ..UdpBinding::default() };
        // Another test may take a port meanwhile.
        if let Ok(sockets) = UdpSockets::bind_at(free[0], &binding, &Offloads::default()) {
            let first = SocketAddr::from(([127, 0, 0, 1], free[0]));
            return (Arc::new(sockets), [&[first][..], &further].concat());
        }
    }
}

#[test]
fn an_answer_leaves_from_the_address_and_port_that_the_peer_sent_to() {
    let (sockets, addresses) = several();
    let slot = Arc::new(Some(sockets).into());
    let mut receive = UdpReceive::new(Arc::clone(&slot), Arc::default());
    let mut transmit = UdpTransmit::new(slot, Arc::default());
    let peer = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
    peer.set_read_timeout(Some(Duration::from_secs(30))).expect("not zero");
    let (wake, drops) = (Wake::new().expect("there are descriptors"), DropCounters::default());
    for round in 0..3u8 {
        for (number, to) in addresses.iter().enumerate() {
            peer.send_to(&[round, number as u8], to).expect("loopback sends");
            let mut batch = Batch::new(BATCH_BYTES);
            while batch.is_empty() {
                receive.wait(&wake).expect("poll works");
                receive.receive(&mut batch, &drops).expect("readable");
            }
            let endpoint = batch.trains()[0].endpoint.expect("it has a source");
            assert_eq!(usize::from(endpoint.binding), number);
            assert_eq!(endpoint.local, Some(to.ip()));
            transmit.transmit(&mut batch, &drops);
            let (mut buffer, mut told) = ([0; 10], Vec::new());
            told.push(peer.recv_from(&mut buffer).expect("an answer"));
            assert_eq!((told, buffer[..2].to_vec()), (vec![(2, *to)], vec![round, number as u8]));
        }
    }
}

#[test]
fn a_slow_peer_of_a_further_binding_has_a_socket_with_its_port() {
    let (sockets, addresses) = several();
    let mut congestion = Congestion::new();
    let peer = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
    let remote = peer.local_addr().expect("bound");
    for binding in 0..4u8 {
        let endpoint =
            Endpoint { binding, local: Some(addresses[usize::from(binding)].ip()), ..Endpoint::new(remote) };
        let path = Path::from(&endpoint);
        assert_eq!(
            congestion.full(&sockets, &path),
            Full::Again,
            "the same peer at another binding is another one"
        );
        assert_eq!(congestion.own(&path), Some(0));
        assert_eq!(sockets.own(&path).len(), if binding == 0 { 16 } else { 4 });
        assert_eq!(sockets.port_of(binding), Some(addresses[usize::from(binding)].port()));
    }
    assert_eq!((sockets.port_of(4), sockets.receiving(0)), (None, 8));
}

#[test]
fn the_port_that_cannot_be_bound_is_named() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("loopback is there").local_addr().expect("bound");
    let _holder = UdpSocket::bind(taken).expect("it was free");
    let binding =
        UdpBinding { v4: Some(Ipv4Addr::LOCALHOST), v6: None, further: vec![taken], ..UdpBinding::default() };
    let refused = UdpSockets::bind_at(0, &binding, &Offloads::default()).err();
    assert_eq!(refused.map(|it| it.port), Some(taken.port()));
}
