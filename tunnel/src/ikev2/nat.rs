//! Paths between two gateways, and NAT detection (RFC 7296 section 2.23).

use super::keys::Spis;
use super::limits::{IKE_PORT, NAT_PORT};
use super::message::Payloads;
use super::message::numbers::notify;
use crypto::hash;
use std::net::{IpAddr, SocketAddr};

/// Local and remote address of datagrams. On every local port but 500, the caller adds and strips the non-ESP marker
/// (section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// The local address.
    pub local: SocketAddr,
    /// The remote address, as seen here.
    pub remote: SocketAddr,
}

impl Path {
    /// The same addresses with the ports for NAT traversal; a path that has left port 500 stays as it is.
    #[must_use]
    pub fn floated(self) -> Self {
        let float = |address: SocketAddr| match address.port() {
            IKE_PORT => SocketAddr::new(address.ip(), NAT_PORT),
            _ => address,
        };
        Self { local: float(self.local), remote: float(self.remote) }
    }
}

/// The sides that are behind a NAT, and the consequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nat {
    /// The local side: NAT keepalives are sent.
    pub local: bool,
    /// The remote side: its address may change, and the session follows.
    pub remote: bool,
    /// ESP travels in UDP, and IKE on port 4500.
    pub in_udp: bool,
}

/// The address changes of the peer that a session follows (section 2.23).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Follows {
    /// None: without a NAT, the address does not change unless the peer changes it.
    #[default]
    Nothing,
    /// Another port of the same address. Both sides are behind NATs. The section forbids both to follow, but then a
    /// NAT that forgets a mapping would end the connection. Only a host at that very address could gain from a copied
    /// packet.
    Port,
    /// Any address that an authentic packet came from.
    Anywhere,
}

impl Follows {
    /// Whether the session follows a change from `from` to `to`.
    pub fn allows(self, from: SocketAddr, to: SocketAddr) -> bool {
        match self {
            Self::Nothing => false,
            Self::Port => from.ip() == to.ip(),
            Self::Anywhere => true,
        }
    }
}

impl Nat {
    /// The address changes that the session follows.
    pub fn follows(&self) -> Follows {
        match (self.in_udp && self.remote, self.local) {
            (false, _) => Follows::Nothing,
            (true, true) => Follows::Port,
            (true, false) => Follows::Anywhere,
        }
    }

    /// Compares the NAT detection hashes of a message received over `path`. With `force`, ESP is encapsulated in UDP
    /// even without a NAT. A peer that sends no hashes does not support NAT traversal.
    pub fn detect(path: Path, spis: Spis, payloads: &Payloads<'_>, force: bool) -> Self {
        let hashes = |kind| {
            payloads.notifies.iter().filter(move |notify| notify.kind == kind).map(|notify| notify.data)
        };
        // A sender that does not know its own address sends a hash of each; one match is enough.
        let is_missing = |kind, address| {
            let expected = address_hash(spis, address);
            hashes(kind).next().is_some() && hashes(kind).all(|hash| hash != expected)
        };
        let local = is_missing(notify::NAT_DETECTION_DESTINATION_IP, path.local);
        let remote = is_missing(notify::NAT_DETECTION_SOURCE_IP, path.remote);
        let is_known = hashes(notify::NAT_DETECTION_SOURCE_IP).next().is_some();
        Self { local, remote, in_udp: local || remote || (force && is_known) }
    }
}

/// The hashes of source and destination for a message over `path`.
///
/// With `force`, the source hash matches no address, so that the peer detects a NAT and encapsulates ESP in UDP.
pub(super) fn detection_hashes(path: Path, spis: Spis, force: bool) -> [[u8; 20]; 2] {
    let source = if force { SocketAddr::from(([0, 0, 0, 0], 0)) } else { path.local };
    [address_hash(spis, source), address_hash(spis, path.remote)]
}

fn address_hash(spis: Spis, address: SocketAddr) -> [u8; 20] {
    let (spi_i, spi_r) = (spis.initiator.to_be_bytes(), spis.responder.to_be_bytes());
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => hash::sha1(&[&spi_i, &spi_r, &ip.octets(), &port]),
        IpAddr::V6(ip) => hash::sha1(&[&spi_i, &spi_r, &ip.octets(), &port]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ikev2::message::Notify;

    const SPIS: Spis = Spis { initiator: 1, responder: 0 };

    fn path(local: &str, remote: &str) -> Path {
        Path { local: local.parse().expect("literal"), remote: remote.parse().expect("literal") }
    }

    /// The NAT that a receiver detects in a message sent over `sent` and received over `received`.
    fn detected(sent: Path, received: Path, force: bool) -> Nat {
        let [source, destination] = detection_hashes(sent, SPIS, force);
        let notifies = vec![
            Notify::new(notify::NAT_DETECTION_SOURCE_IP, &source),
            Notify::new(notify::NAT_DETECTION_DESTINATION_IP, &destination),
        ];
        Nat::detect(received, SPIS, &Payloads { notifies, ..Payloads::default() }, false)
    }

    #[test]
    fn a_translated_address_or_port_is_noticed_on_its_side() {
        let sent = path("10.0.0.1:500", "192.0.2.2:500");
        let straight = path("192.0.2.2:500", "10.0.0.1:500");
        assert_eq!(detected(sent, straight, false), Nat::default());
        let behind = path("192.0.2.2:500", "192.0.2.1:500");
        assert_eq!(detected(sent, behind, false), Nat { local: false, remote: true, in_udp: true });
        let port = path("192.0.2.2:500", "10.0.0.1:1024");
        assert_eq!(detected(sent, port, false), Nat { local: false, remote: true, in_udp: true });
        let forwarded = path("10.9.9.9:500", "10.0.0.1:500");
        assert_eq!(detected(sent, forwarded, false), Nat { local: true, remote: false, in_udp: true });
        let forced = Nat { local: false, remote: true, in_udp: true };
        assert_eq!(detected(sent, straight, true), forced, "the peer wants UDP");
    }

    #[test]
    fn who_sends_no_hashes_gets_no_udp() {
        let path = path("10.0.0.1:500", "10.0.0.2:500");
        assert_eq!(Nat::detect(path, SPIS, &Payloads::default(), true), Nat::default());
        let [source, _] = detection_hashes(Path { local: path.remote, remote: path.local }, SPIS, false);
        let notifies = vec![Notify::new(notify::NAT_DETECTION_SOURCE_IP, &source)];
        let nat = Nat::detect(path, SPIS, &Payloads { notifies, ..Payloads::default() }, true);
        assert_eq!(nat, Nat { in_udp: true, ..Nat::default() }, "we want UDP");
    }

    #[test]
    fn only_port_500_floats() {
        let floated = path("10.0.0.1:500", "10.0.0.2:500").floated();
        assert_eq!(floated, path("10.0.0.1:4500", "10.0.0.2:4500"));
        let other = path("10.0.0.1:4500", "10.0.0.2:1024");
        assert_eq!(other.floated(), other);
    }
}
