//! The protocol between clients and a server, and against OpenVPN itself.

mod attack;
mod certificates;
mod crowd;
mod handshakes;
mod holders;
mod host;
mod hostile;
mod lives;
mod network;
mod pair;
mod refusals;
mod revocation;
mod stock;
mod weather;

use network::{CLIENT, Network, SERVER, Setup};
use std::time::Duration;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// An IPv4 packet without content, which is told from others by its identification.
fn inner(identification: u16) -> Vec<u8> {
    let mut packet = vec![0; 20];
    (packet[0], packet[3]) = (0x45, 20);
    packet[4..6].copy_from_slice(&identification.to_be_bytes());
    packet
}

/// A network on which the client has connected, with tls-crypt.
fn connected(setup: &Setup, seed: u64) -> Network {
    let mut network = setup.network(setup.tls_crypt(), seed);
    network.connect(CLIENT);
    network.run(seconds(1));
    assert!(
        network.is_connected(CLIENT) && network.is_connected(SERVER),
        "{:?}",
        network.hosts[CLIENT].closed
    );
    network
}

/// Packets pass in both directions.
fn assert_carries(network: &mut Network, identification: u16) {
    let session = *network.hosts[SERVER].connected.keys().next_back().expect("connected");
    network.send(CLIENT, 0, &inner(identification));
    network.run(seconds(1));
    network.send(SERVER, session, &inner(identification));
    network.run(seconds(1));
    assert_eq!(network.hosts[SERVER].received.pop(), Some((session, inner(identification))));
    assert_eq!(network.hosts[CLIENT].received.pop(), Some((0, inner(identification))));
}
