//! WireGuard: the tester is the peer of a device that is a WireGuard gateway.
//!
//! The handshake is that of our own gateway, and messages are sealed and opened by the code of the data path. The tester begins a handshake before
//! a trial if its key is old; within long trials both sides renew keys as the protocol wants, and the old key is used until there is a new one.

mod open;
mod peer;
mod seal;

pub use peer::WireGuardPeer;

use super::outer::OuterAddresses;
use crypto::{Engine, PrivateKey, PublicKey, Secret, random};
use packet::header::ethernet::{self, EthernetHeader};
use packet::header::udp::UdpHeader;
use packet::header::wireguard::{DATA_OVERHEAD, padded};
use peer::Identity;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Inner packets are padded as if the interface had no mtu.
const NO_MTU: usize = usize::MAX;

/// The tester as a WireGuard peer.
#[derive(Clone)]
pub struct WireGuard {
    /// Whether frames at a port are WireGuard.
    pub ports: [bool; 2],
    /// The tester's private key.
    pub private_key: Secret,
    /// The preshared key; zero for none.
    pub preshared_key: Secret,
    /// The device's public key.
    pub device: PublicKey,
    /// The tester's outer address and port.
    pub own: SocketAddr,
    /// The device's outer address and port.
    pub endpoint: SocketAddr,
}

/// The tester as a WireGuard peer, in reports.
#[derive(Clone, Debug, Serialize)]
pub struct WireGuardReport {
    /// Whether frames at a port are WireGuard.
    pub ports: [bool; 2],
    /// The tester's outer address and port.
    pub own: SocketAddr,
    /// The device's outer address and port.
    pub endpoint: SocketAddr,
    /// Handshakes that gave a key.
    pub handshakes: u64,
    /// Packets that were opened.
    pub opened: u64,
    /// The crypto engines.
    pub engines: Vec<String>,
}

impl WireGuard {
    /// What the tester does at the ports of the device.
    pub(super) fn ends(&self, engine: &Arc<dyn Engine>) -> [Option<WireGuardPeer>; 2] {
        match self.ports {
            [true, true] => self.looped_ends(engine).map(Some),
            [first, second] => {
                let identity = |is_here: bool| {
                    is_here.then(|| {
                        let (private_key, preshared) = (self.private_key.clone(), self.preshared_key.clone());
                        let (own, remote, is_caller) = (self.own, self.endpoint, true);
                        Identity { private_key, preshared, public: self.device, own, remote, is_caller }
                    })
                };
                [identity(first), identity(second)]
                    .map(|identity| identity.map(|identity| WireGuardPeer::new(identity, engine)))
            }
        }
    }

    /// What the tester does at both ports if frames pass from one to the other: it is both peers. The second has the addresses of the tester and
    /// calls, the first has those of the device; its key, which is not known, is a new one.
    pub(super) fn looped_ends(&self, engine: &Arc<dyn Engine>) -> [WireGuardPeer; 2] {
        let stand_in = PrivateKey::generate(&mut random::System::default());
        let tester = PrivateKey::new(self.private_key.clone());
        let identity =
            |key: &PrivateKey, other: &PrivateKey, [own, remote]: [SocketAddr; 2], is_caller| Identity {
                private_key: key.secret().clone(),
                preshared: self.preshared_key.clone(),
                public: other.public(),
                own,
                remote,
                is_caller,
            };
        let device = identity(&stand_in, &tester, [self.endpoint, self.own], false);
        let tester = identity(&tester, &stand_in, [self.own, self.endpoint], true);
        [device, tester].map(|identity| WireGuardPeer::new(identity, engine))
    }

    /// The tester's outer addresses at a port, for which it answers ARP and neighbour discovery.
    pub fn addresses(&self, port: usize) -> Vec<IpAddr> {
        match self.ports {
            [true, true] if port == 0 => vec![self.endpoint.ip()],
            ports if ports[port] => vec![self.own.ip()],
            _ => Vec::new(),
        }
    }

    /// The length of the longest frame with WireGuard for a frame of `length` bytes; both without their frame check sequence.
    pub fn longest(&self, length: usize) -> usize {
        let inner = length.max(ethernet::SHORTEST) - EthernetHeader::LENGTH;
        let outer = OuterAddresses { source: self.own.ip(), destination: self.endpoint.ip() };
        EthernetHeader::LENGTH + outer.header() + UdpHeader::LENGTH + DATA_OVERHEAD + padded(inner, NO_MTU)
    }

    /// What a report says.
    pub(super) fn report<'a>(
        &self,
        peers: impl Iterator<Item = &'a WireGuardPeer>,
        engines: Vec<String>,
    ) -> WireGuardReport {
        let counts = peers.map(WireGuardPeer::counts);
        let (handshakes, opened) =
            counts.fold((0, 0), |sum, it| (sum.0.max(it.handshakes), sum.1 + it.opened));
        let WireGuard { ports, own, endpoint, .. } = *self;
        WireGuardReport { ports, own, endpoint, handshakes, opened, engines }
    }
}

#[cfg(test)]
mod tests;
