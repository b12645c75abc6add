//! ESP with known keys (RFC 4303): the SAs of the device, for tunnels of both families, transport mode and ESP in UDP (RFC 3948).
//!
//! Packets are sealed and opened by the code of the data path, with numbers that never repeat while the tester runs.

mod open;
mod seal;

pub use open::Opener;
pub use seal::Sealer;

use super::addresses::Addresses;
use super::outer::OuterAddresses;
use crate::Outcome;
use crypto::engine::Engine;
use crypto::{SecretBytes, random};
use packet::header::ethernet::{self, EthernetHeader};
use packet::header::udp::UdpHeader;
use serde::Serialize;
use std::net::IpAddr;
use tunnel::esp::{Layout, Mode, SaKeys, Transform};

/// An SA of the device, with its keys.
#[derive(Clone)]
pub struct EspSa {
    /// The SPI.
    pub spi: u32,
    /// The cipher, and the MAC if it has none.
    pub transform: Transform,
    /// The keys, in the order of the key material of IKE.
    pub keys: SecretBytes,
    /// The first extended sequence number; none: sequence numbers have 32 bits.
    pub extended_from: Option<u64>,
    /// The outer addresses of a tunnel; none in transport mode, where packets keep their IP header.
    pub tunnel: Option<OuterAddresses>,
    /// Whether ESP is in UDP, from port 4500 to port 4500.
    pub in_udp: bool,
}

/// Which ports carry ESP, and the SAs of the device behind them.
#[derive(Clone, Default)]
pub struct Esp {
    /// Whether frames at a port are ESP.
    pub ports: [bool; 2],
    /// What the device seals with.
    pub sealed_by_device: Vec<EspSa>,
    /// What the device opens, by the port that the tester sends it from.
    pub opened_by_device: [Vec<EspSa>; 2],
    /// By the port that frames leave by, and by stream: the place of their SA in one of the lists above, whichever the device uses. Empty: what
    /// the tester seals takes the first, what the device seals may take any.
    pub by_stream: [Vec<u32>; 2],
    /// The sequence number that the tester begins with, instead of 1 or that of the SA.
    pub first_sequence: Option<u64>,
    /// What an operator should know about policies that are not tested.
    pub notes: Vec<String>,
}

/// What the tester does with ESP at a port.
pub struct EspEnd {
    /// What seals the frames that leave; none if none leave.
    pub(super) sealer: Option<Sealer>,
    /// What opens the frames that arrive.
    pub(super) opener: Opener,
}

/// An SA in reports.
#[derive(Clone, Debug, Serialize)]
pub struct EspReport {
    /// Whether frames at a port are ESP.
    pub ports: [bool; 2],
    /// What the tester opens: SPI, algorithms, and the number of packets opened.
    pub opens: Vec<(u32, String, u64)>,
    /// What the tester seals with: SPI, algorithms, and the next sequence number after this run.
    pub seals: Vec<(u32, String, u64)>,
    /// The crypto engines.
    pub engines: Vec<String>,
    /// Policies that are not tested.
    pub notes: Vec<String>,
}

impl Esp {
    /// What the tester does at a port of the device.
    pub fn end(&self, port: usize, addresses: &Addresses, engine: &dyn Engine) -> Outcome<Option<EspEnd>> {
        if !self.ports[port] {
            return Ok(None);
        }
        let sas = &self.opened_by_device[port];
        let sealer = (!sas.is_empty())
            .then(|| Sealer::new(sas, &self.by_stream[port], self.first_sequence, engine))
            .transpose()?;
        let is_each_port = self.ports == [true; 2];
        // Between two ports with ESP the device may pass on what the tester has sealed.
        let known = if is_each_port { self.known() } else { self.sealed_by_device.iter().collect() };
        let expected = if is_each_port { &[][..] } else { &self.by_stream[1 - port] };
        let opener = Opener::new(&known, expected, &addresses.streams[1 - port], engine)?;
        Ok(Some(EspEnd { sealer, opener }))
    }

    /// What the tester does at its port without a device: frames are sealed, and opened at the other port.
    pub fn looped_end(&self, port: usize, addresses: &Addresses, engine: &dyn Engine) -> Outcome<EspEnd> {
        let own = &self.opened_by_device[port];
        let sas = if self.ports[port] && !own.is_empty() { own } else { &self.sealed_by_device };
        let sealer =
            (!sas.is_empty()).then(|| Sealer::new(sas, &self.by_stream[port], None, engine)).transpose()?;
        let opener = Opener::new(&self.known(), &[], &addresses.streams[1 - port], engine)?;
        Ok(EspEnd { sealer, opener })
    }

    /// All SAs.
    fn known(&self) -> Vec<&EspSa> {
        self.sealed_by_device.iter().chain(self.opened_by_device.iter().flatten()).collect()
    }

    /// The tester's ends of tunnels at a port, for which it answers ARP and neighbour discovery; each once.
    pub fn addresses(&self, port: usize) -> Vec<IpAddr> {
        let opened = self.opened_by_device[port].iter().filter_map(|sa| sa.tunnel).map(|it| it.source);
        let sealed = self.sealed_by_device.iter().filter_map(|sa| sa.tunnel).map(|it| it.destination);
        let mut addresses = Vec::new();
        for address in opened.chain(sealed).filter(|_| self.ports[port]) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
    }

    /// The length of the longest frame with ESP for a frame of `length` bytes; both without their frame check sequence.
    pub fn longest(&self, length: usize) -> usize {
        let inner = length.max(ethernet::SHORTEST) - EthernetHeader::LENGTH;
        let of = |sa: &EspSa| {
            let outer = sa.tunnel.map_or(0, |tunnel| tunnel.header());
            let udp = if sa.in_udp { UdpHeader::LENGTH } else { 0 };
            EthernetHeader::LENGTH + outer + udp + Layout::of(sa.transform).sealed(inner)
        };
        self.known().into_iter().map(of).max().unwrap_or(length)
    }

    /// What a report says; `ends` are those of the ports.
    pub(super) fn report<'a>(
        &self,
        ends: impl Iterator<Item = &'a EspEnd> + Clone,
        engines: Vec<String>,
    ) -> EspReport {
        let mut opens = ends.clone().next().map(|end| end.opener.opened()).unwrap_or_default();
        for other in ends.clone().skip(1) {
            opens.iter_mut().zip(other.opener.opened()).for_each(|(sum, other)| sum.2 += other.2);
        }
        let seals = ends.filter_map(|end| end.sealer.as_ref()).flat_map(Sealer::sealed).collect();
        EspReport { ports: self.ports, opens, seals, engines, notes: self.notes.clone() }
    }
}

/// Loads the keys of an SA.
fn load(sa: &EspSa, engine: &dyn Engine) -> Outcome<SaKeys> {
    let extended = sa.extended_from.is_some();
    let mode = if sa.tunnel.is_some() { Mode::Tunnel } else { Mode::BumpInTheWire };
    let keys = SaKeys::new(sa.transform, extended, mode, &sa.keys, engine, &mut random::System::default());
    keys.map_err(|error| format!("SPI {}: {error}", sa.spi).into())
}

#[cfg(test)]
mod tests;
