//! Peers in transport mode that are at one address, as a NAT has them there.
//!
//! Nothing but the address says to which of them a packet goes, unless their Child SAs are for different protocols or
//! ports: who comes later is refused what another has.

use super::config::ConnectionId;
use super::identity::Identity;
use super::selectors::narrow;
use crate::esp::TrafficSelector;
use std::collections::HashMap;
use std::net::IpAddr;

/// The packets of a Child SA in transport mode, and whose they are.
pub(super) struct Claim {
    /// The SPI that we receive with.
    pub(super) spi: u32,
    pub(super) connection: ConnectionId,
    pub(super) identity: Identity,
    /// Whether the peer calls itself by another address.
    pub(super) translated: bool,
    pub(super) local: Vec<TrafficSelector>,
    pub(super) remote: Vec<TrafficSelector>,
}

impl Claim {
    /// Whether packets would be for both, which are two: one host may have several connections, but not if a NAT is
    /// before one of them.
    fn meets(&self, other: &Self) -> bool {
        (self.connection, &self.identity) != (other.connection, &other.identity)
            && (self.translated || other.translated)
            && !narrow(&self.local, &other.local).is_empty()
            && !narrow(&self.remote, &other.remote).is_empty()
    }
}

/// Who has which packets, by the address of the peer.
#[derive(Default)]
pub(super) struct Neighbours(HashMap<IpAddr, Vec<Claim>>);

impl Neighbours {
    /// Who has packets already that are claimed.
    pub(super) fn owner(&self, address: IpAddr, claim: &Claim) -> Option<&Identity> {
        self.0.get(&address)?.iter().find(|other| other.meets(claim)).map(|other| &other.identity)
    }

    pub(super) fn enter(&mut self, address: IpAddr, claim: Claim) {
        self.0.entry(address).or_default().push(claim);
    }

    pub(super) fn leave(&mut self, address: IpAddr, spi: u32) {
        let Some(claims) = self.0.get_mut(&address) else { return };
        claims.retain(|claim| claim.spi != spi);
        if claims.is_empty() {
            self.0.remove(&address);
        }
    }
}
