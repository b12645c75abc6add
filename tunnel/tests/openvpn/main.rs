//! The protocol between clients and a server, and against OpenVPN itself.

mod certificates;
mod handshakes;
mod host;
mod network;
mod stock;

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
