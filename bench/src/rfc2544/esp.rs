//! ESP with known keys (RFC 4303, tunnel mode): the tester is the other end of a device that encrypts.
//!
//! ```text
//! send      frame of the template → seal → outer IP header → port
//! receive   port → SA by SPI and addresses → open → inner packet, which the reader judges
//! ```
//! Packets are sealed and opened by the code of the data path, with numbers that never repeat while the tester runs.

use super::frame::{self, Seen};
use crate::Outcome;
use crypto::engine::Engine;
use crypto::{SecretBytes, random};
use packet::header::esp::{ESP, EspHeader};
use packet::header::ethernet::{self, EthernetHeader};
use packet::header::ip::{IpPacket, Ipv4Header};
use packet::{Batch, DropCounters};
use serde::Serialize;
use std::io;
use std::net::Ipv4Addr;
use tunnel::esp::open::Inner;
use tunnel::esp::{Mode, SaKeys, Transform};
use tunnel::replay::{LARGEST, ReplayWindow};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes in front of an ESP packet in its frame.
const OUTER: usize = EthernetHeader::LENGTH + Ipv4Header::LENGTH;

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
    /// The outer source address.
    pub source: Ipv4Addr,
    /// The outer destination address.
    pub destination: Ipv4Addr,
}

/// Which ports carry ESP, and the SAs of the device behind them.
#[derive(Clone)]
pub struct Esp {
    /// Whether frames at a port are ESP.
    pub ports: [bool; 2],
    /// What the device seals with.
    pub sealed_by_device: Vec<EspSa>,
    /// What the device opens, by the port that the tester sends it from.
    pub opened_by_device: [Option<EspSa>; 2],
    /// The sequence number that the tester begins with, instead of 1 or that of the SA.
    pub first_sequence: Option<u64>,
}

/// An SA in reports.
#[derive(Clone, Debug, Serialize)]
pub struct EspReport {
    /// Whether frames at a port are ESP.
    pub ports: [bool; 2],
    /// What the tester opens: SPI and algorithms.
    pub opens: Vec<(u32, String)>,
    /// What the tester seals with: SPI, algorithms, and the next sequence number after this run.
    pub seals: Vec<(u32, String, u64)>,
    /// The crypto engines.
    pub engines: Vec<String>,
}

/// What the tester does at the two ends of one direction.
#[derive(Default)]
pub struct Ends {
    /// What seals the frames that leave.
    pub sealer: Option<Sealer>,
    /// What opens the frames that arrive.
    pub opener: Option<Opener>,
}

impl Esp {
    /// What frames from a port need on their way through the device.
    pub fn ends(&self, from: usize, engine: &dyn Engine) -> Outcome<Ends> {
        let sealer = match (self.ports[from], &self.opened_by_device[from]) {
            (true, Some(sa)) => Some(Sealer::new(sa, self.first_sequence, engine)?),
            _ => None,
        };
        // Between two ports with ESP the device may pass on what the tester has sealed.
        let sas = if self.ports == [true; 2] { self.known() } else { self.sealed_by_device.iter().collect() };
        let opener = self.ports[1 - from].then(|| Opener::new(&sas, engine)).transpose()?;
        Ok(Ends { sealer, opener })
    }

    /// What frames from a port need without a device: they are sealed, and opened at the other port.
    pub fn looped_ends(&self, from: usize, engine: &dyn Engine) -> Outcome<Ends> {
        let sealing = self.opened_by_device[from]
            .as_ref()
            .filter(|_| self.ports[from])
            .or(self.sealed_by_device.first());
        let sealer = sealing.map(|sa| Sealer::new(sa, None, engine)).transpose()?;
        Ok(Ends { sealer, opener: Some(Opener::new(&self.known(), engine)?) })
    }

    /// All SAs.
    fn known(&self) -> Vec<&EspSa> {
        self.sealed_by_device.iter().chain(self.opened_by_device.iter().flatten()).collect()
    }

    /// The tester's end of the tunnel at a port, for which it answers ARP.
    pub fn address(&self, port: usize) -> Option<Ipv4Addr> {
        let of_sealed = self.sealed_by_device.first().map(|sa| sa.destination);
        let address = self.opened_by_device[port].as_ref().map(|sa| sa.source).or(of_sealed);
        address.filter(|_| self.ports[port])
    }

    /// The length of the longest frame with ESP for a frame of `length` bytes; both without their frame check sequence.
    pub fn longest(&self, length: usize) -> usize {
        let inner = length.max(ethernet::SHORTEST) - EthernetHeader::LENGTH;
        let of = |sa: &EspSa| OUTER + tunnel::esp::Layout::of(sa.transform).sealed(inner);
        self.known().into_iter().map(of).max().unwrap_or(length)
    }

    /// What a report says; `ends` are those of the directions in turn.
    pub fn report(&self, ends: &[Ends], engines: Vec<String>) -> EspReport {
        let named = |sa: &EspSa| (sa.spi, sa.transform.name());
        let seals = ends.iter().filter_map(|it| it.sealer.as_ref());
        EspReport {
            ports: self.ports,
            opens: self.sealed_by_device.iter().map(named).collect(),
            seals: seals.map(|it| (it.spi, it.name.clone(), it.next)).collect(),
            engines,
        }
    }
}

fn load(sa: &EspSa, engine: &dyn Engine) -> Outcome<SaKeys> {
    let (extended, mode) = (sa.extended_from.is_some(), Mode::Tunnel);
    let keys = SaKeys::new(sa.transform, extended, mode, &sa.keys, engine, &mut random::System::default());
    keys.map_err(|error| format!("SPI {}: {error}", sa.spi).into())
}

/// Seals the frames of one direction.
pub struct Sealer {
    keys: SaKeys,
    spi: u32,
    name: String,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    /// The next sequence number.
    next: u64,
}

impl Sealer {
    fn new(sa: &EspSa, first: Option<u64>, engine: &dyn Engine) -> Outcome<Self> {
        Ok(Self {
            keys: load(sa, engine)?,
            spi: sa.spi,
            name: sa.transform.name(),
            source: sa.source,
            destination: sa.destination,
            next: first.or(sa.extended_from).unwrap_or(1).max(1),
        })
    }

    /// Seals all frames of a batch, which have the same Ethernet header.
    pub fn seal(&mut self, batch: &mut Batch) -> io::Result<()> {
        let (all, first) = (0..batch.len(), self.next);
        let Some(header) = batch.packet(0).first_chunk::<{ EthernetHeader::LENGTH }>().copied() else {
            return Ok(());
        };
        let after = first.saturating_add(all.len() as u64);
        if after > 1 << 32 && !self.keys.is_extended() {
            // RFC 4303 section 3.3.3: a number must not be used again.
            let text = format!(
                "all sequence numbers of SPI {} are used up\n  fix: a shorter run, or esn 1 in its line and at the device",
                self.spi
            );
            return Err(io::Error::other(text));
        }
        self.next = after;
        for index in all.clone() {
            let inner = batch.packet(index).len() - EthernetHeader::LENGTH;
            batch.shrink(index, EthernetHeader::LENGTH, inner);
        }
        self.keys.lay_out(batch, all.clone(), self.spi, first);
        let sealed = self.keys.seal(batch, all.clone(), self.spi, first);
        sealed.map_err(|_| io::Error::other("the crypto engine failed"))?;
        for index in all {
            let length = batch.packet(index).len() + Ipv4Header::LENGTH;
            let outer = self.outer(length);
            batch.grow(index, OUTER, 0);
            let frame = batch.packet_mut(index);
            frame[..EthernetHeader::LENGTH].copy_from_slice(&header);
            frame[EthernetHeader::LENGTH..OUTER].copy_from_slice(outer.as_bytes());
        }
        Ok(())
    }

    /// The outer header of a packet of `length` bytes.
    fn outer(&self, length: usize) -> Ipv4Header {
        let mut header = Ipv4Header {
            fragment: Ipv4Header::DONT_FRAGMENT.into(),
            ..Ipv4Header::new(ESP, self.source.octets(), self.destination.octets(), length as u16)
        };
        header.finish();
        header
    }
}

/// What a received frame is, before the reader looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Not ESP, and unchanged.
    Frame,
    /// ESP that was opened: the inner packet.
    Opened {
        /// Whether the sequence number has been seen before.
        is_repeated: bool,
    },
    /// ESP of ours that is not what was sealed.
    Corrupt,
    /// Dropped before, or a dummy packet (RFC 4303 section 2.6).
    Nothing,
    /// ESP of this SA that has yet to be opened.
    Sealed(usize),
}

/// An SA to open with.
struct Receiving {
    keys: SaKeys,
    spi: u32,
    /// Outer source and destination.
    addresses: [u8; 8],
    window: ReplayWindow,
}

/// Opens the frames of one direction.
pub struct Opener {
    sas: Vec<Receiving>,
    /// By packet.
    fates: Vec<Fate>,
    sequences: Vec<u64>,
    drops: DropCounters,
}

impl Opener {
    fn new(sas: &[&EspSa], engine: &dyn Engine) -> Outcome<Self> {
        let receiving = |sa: &&EspSa| {
            let mut addresses = [0; 8];
            addresses[..4].copy_from_slice(&sa.source.octets());
            addresses[4..].copy_from_slice(&sa.destination.octets());
            let mut window = ReplayWindow::new(LARGEST);
            if let Some(before) = sa.extended_from.and_then(|first| first.checked_sub(1)) {
                // The high half is that of the first number.
                window.accept(before).map_err(|reason| format!("SPI {}: {reason:?}", sa.spi))?;
            }
            Ok(Receiving { keys: load(sa, engine)?, spi: sa.spi, addresses, window })
        };
        let sas = sas.iter().map(receiving).collect::<Outcome<_>>()?;
        Ok(Self { sas, fates: Vec::new(), sequences: Vec::new(), drops: DropCounters::default() })
    }

    /// Opens what is ESP in a batch; the fates are by packet. Opened packets are left without anything around them.
    pub fn open(&mut self, batch: &mut Batch) -> &[Fate] {
        self.fates.clear();
        self.sequences.clear();
        for index in 0..batch.len() {
            let (fate, sequence) = self.find(batch, index);
            self.fates.push(fate);
            self.sequences.push(sequence);
        }
        let mut first = 0;
        while first < self.fates.len() {
            let fate = self.fates[first];
            let count = self.fates[first..].iter().take_while(|it| **it == fate).count();
            if let Fate::Sealed(sa) = fate {
                let packets = first..first + count;
                self.sas[sa].keys.open(batch, packets.clone(), &self.sequences, &self.drops);
                for index in packets {
                    self.fates[index] = self.sas[sa].accept(batch, index, self.sequences[index]);
                }
            }
            first += count;
        }
        &self.fates
    }

    /// The SA of a frame and its sequence number; a frame that has one is cut to its ESP packet.
    fn find(&self, batch: &mut Batch, index: usize) -> (Fate, u64) {
        let frame = batch.packet(index);
        let found = match self.esp(frame) {
            Ok(found) => found,
            Err(fate) => return (fate, 0),
        };
        let (sa, start, length) = found;
        let Receiving { keys, window, .. } = &self.sas[sa];
        let packet = &frame[start..start + length];
        let checked = keys.layout().check(length).and_then(|()| keys.infer_sequence(packet, window));
        let Ok(sequence) = checked else { return (Fate::Corrupt, 0) };
        batch.shrink(index, start, length);
        (Fate::Sealed(sa), sequence)
    }

    /// The SA of a frame, and where its ESP packet is.
    fn esp(&self, frame: &[u8]) -> Result<(usize, usize, usize), Fate> {
        if frame.is_empty() {
            return Err(Fate::Nothing);
        }
        let is_damaged = || if self.resembles(frame) { Fate::Corrupt } else { Fate::Frame };
        let Ok((ethernet::IPV4, offset)) = EthernetHeader::payload(frame) else { return Err(is_damaged()) };
        let Ok(IpPacket::V4(header, packet)) = IpPacket::parse(&frame[offset..]) else {
            return Err(is_damaged());
        };
        let (head, esp) = packet.split_at(header.length());
        if !frame::is_valid_header(head) {
            return Err(is_damaged());
        }
        if header.protocol != ESP {
            return Err(Fate::Frame);
        }
        let Ok((fields, _)) = EspHeader::ref_from_prefix(esp) else { return Err(is_damaged()) };
        let spi = fields.spi.get();
        let is_right = |sa: &Receiving| {
            sa.spi == spi && (&sa.addresses[..4], &sa.addresses[4..]) == (&header.source, &header.destination)
        };
        let sa = self.sas.iter().position(is_right).ok_or_else(is_damaged)?;
        Ok((sa, offset + head.len(), esp.len()))
    }

    /// Whether a frame without an SA was ESP of ours: it has outer addresses or an SPI of ours.
    fn resembles(&self, frame: &[u8]) -> bool {
        let is_at = |at: usize, bytes: &[u8]| frame.get(at..at + bytes.len()) == Some(bytes);
        self.sas.iter().any(|sa| is_at(OUTER - 8, &sa.addresses) || is_at(OUTER, &sa.spi.to_be_bytes()))
    }
}

impl Receiving {
    /// Notes the number of a packet that was opened, and strips the packet.
    fn accept(&mut self, batch: &mut Batch, index: usize, sequence: u64) -> Fate {
        if !batch.is_live(index) {
            return Fate::Corrupt;
        }
        // A number behind the window counts as seen: it is a million frames late.
        let is_repeated = self.window.accept(sequence).is_err();
        match self.keys.decapsulate(batch, index) {
            Ok(Inner::Payload { .. }) => Fate::Opened { is_repeated },
            Ok(Inner::Dummy) => Fate::Nothing,
            Err(_) => Fate::Corrupt,
        }
    }
}

/// What a frame of ours is that came as it is where ESP is expected.
pub fn unsealed(seen: Seen) -> Seen {
    if matches!(seen, Seen::Ours(_)) { Seen::Clear } else { seen }
}

#[cfg(test)]
mod tests;
