//! How packets are protected at the ports behind the encrypting side of a device.

use super::addresses::Addresses;
use super::end::End;
use super::esp::{Esp, EspReport};
use super::wireguard::{WireGuard, WireGuardPeer, WireGuardReport};
use crate::Outcome;
use crypto::Engine;
use std::net::IpAddr;
use std::sync::Arc;

/// The protocol, its keys, and the ports.
#[derive(Clone)]
pub enum Protection {
    /// ESP with known keys.
    Esp(Esp),
    /// WireGuard.
    WireGuard(WireGuard),
}

/// What was protected, in reports.
#[derive(Clone, Debug, Default)]
pub struct ProtectionReport {
    /// ESP, if a port has it.
    pub esp: Option<EspReport>,
    /// WireGuard, if a port has it.
    pub wireguard: Option<WireGuardReport>,
}

impl Protection {
    /// The name of the protocol.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Esp(_) => "ESP",
            Self::WireGuard(_) => "WireGuard",
        }
    }

    /// Whether frames at a port are protected.
    pub(super) fn ports(&self) -> [bool; 2] {
        match self {
            Self::Esp(esp) => esp.ports,
            Self::WireGuard(wireguard) => wireguard.ports,
        }
    }

    /// The tester's outer addresses at a port, for which it answers ARP and neighbour discovery.
    pub fn addresses(&self, port: usize) -> Vec<IpAddr> {
        match self {
            Self::Esp(esp) => esp.addresses(port),
            Self::WireGuard(wireguard) => wireguard.addresses(port),
        }
    }

    /// The length of the longest protected frame for a frame of `length` bytes; both without their frame check sequence.
    pub(super) fn longest(&self, length: usize) -> usize {
        match self {
            Self::Esp(esp) => esp.longest(length),
            Self::WireGuard(wireguard) => wireguard.longest(length),
        }
    }

    /// What the tester does at the ports of the device.
    pub(super) fn ends(&self, addresses: &Addresses, engine: &Arc<dyn Engine>) -> Outcome<[Option<End>; 2]> {
        match self {
            Self::Esp(esp) => {
                let [first, second] = [0, 1].map(|port| esp.end(port, addresses, &**engine));
                Ok([first?, second?].map(|end| end.map(|end| End::Esp(Box::new(end)))))
            }
            Self::WireGuard(wireguard) => Ok(wireguard.ends(engine).map(|peer| peer.map(boxed))),
        }
    }

    /// What the tester does at its ports without a device: frames are sealed, and opened at the other port.
    pub(super) fn looped_ends(
        &self,
        addresses: &Addresses,
        engine: &Arc<dyn Engine>,
    ) -> Outcome<[Option<End>; 2]> {
        match self {
            Self::Esp(esp) => {
                let [first, second] = [0, 1].map(|port| esp.looped_end(port, addresses, &**engine));
                Ok([first?, second?].map(|end| Some(End::Esp(Box::new(end)))))
            }
            Self::WireGuard(wireguard) => Ok(wireguard.looped_ends(engine).map(|peer| Some(boxed(peer)))),
        }
    }

    /// What a report says; `ends` are those of the ports.
    pub(super) fn report(&self, ends: &[Option<End>; 2], engines: Vec<String>) -> ProtectionReport {
        let esp = ends.iter().flatten().filter_map(|end| match end {
            End::Esp(esp) => Some(&**esp),
            End::WireGuard(_) => None,
        });
        let peers = ends.iter().flatten().filter_map(|end| match end {
            End::WireGuard(peer) => Some(&**peer),
            End::Esp(_) => None,
        });
        match self {
            Self::Esp(it) => ProtectionReport { esp: Some(it.report(esp, engines)), wireguard: None },
            Self::WireGuard(it) => ProtectionReport { esp: None, wireguard: Some(it.report(peers, engines)) },
        }
    }
}

fn boxed(peer: WireGuardPeer) -> End {
    End::WireGuard(Box::new(peer))
}
