//! Opening: what arrives is decrypted and verified, and its sequence number is held against those before.

use super::{EspSa, load};
use crate::Outcome;
use crate::rfc2544::end::{Fate, Opened};
use crate::rfc2544::outer::{Arrived, OuterAddresses};
use crate::rfc2544::streams::{Family, Stream};
use crypto::engine::Engine;
use gateway::secgw::headers::Headers;
use packet::header::chain::Place;
use packet::header::esp::{ESP, EspHeader, UDP_PORT};
use packet::header::ethernet::EthernetHeader;
use packet::header::ip::{ICMPV6, TCP, UDP};
use packet::header::udp::UdpHeader;
use packet::{Batch, DropCounters};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tunnel::esp::SaKeys;
use tunnel::esp::open::Inner;
use tunnel::replay::{LARGEST, ReplayWindow};
use zerocopy::FromBytes;

/// The least replay window, in packets.
const SMALLEST: u64 = 8192;

/// An SA to open with.
struct Opening {
    keys: SaKeys,
    spi: u32,
    name: String,
    tunnel: Option<OuterAddresses>,
    in_udp: bool,
    window: ReplayWindow,
    /// The packets that were opened.
    count: u64,
}

/// Opens the frames that arrive at a port.
pub struct Opener {
    sas: Vec<Opening>,
    /// SPIs and places of the SAs, in order.
    by_spi: Vec<(u32, u32)>,
    /// The addresses of outer headers, of all tunnels and of streams in transport mode.
    outers: HashSet<OuterAddresses>,
    /// The place of the SA, by stream; empty: any.
    expected: Vec<u32>,
    /// By packet.
    fates: Vec<Fate>,
    sequences: Vec<u64>,
    /// The IP headers of transport mode.
    headers: Headers,
    drops: DropCounters,
}

/// Where ESP is in a frame.
struct Found {
    sa: u32,
    /// Where the IP packet begins, and the ESP packet.
    start: usize,
    esp: usize,
    length: usize,
}

impl Opener {
    /// Opens with these SAs what arrives of these streams.
    pub(super) fn new(
        sas: &[&EspSa],
        expected: &[u32],
        streams: &[Stream],
        engine: &dyn Engine,
    ) -> Outcome<Self> {
        let mut by_spi: Vec<(u32, u32)> = sas.iter().map(|sa| sa.spi).zip(0..).collect();
        by_spi.sort_unstable();
        let tunnels = sas.iter().filter_map(|sa| sa.tunnel);
        let has_transport = sas.iter().any(|sa| sa.tunnel.is_none());
        let kept = streams.iter().filter(|_| has_transport);
        let kept = kept.map(|it| OuterAddresses { source: it.source, destination: it.destination });
        let outers = tunnels.chain(kept).collect();
        // The windows of ten thousand SAs would otherwise take a gigabyte.
        let window = (LARGEST / sas.len().max(1) as u64).max(SMALLEST);
        let sas = sas.iter().map(|sa| Opening::new(sa, window, engine)).collect::<Outcome<_>>()?;
        Ok(Self {
            sas,
            by_spi,
            outers,
            expected: expected.to_vec(),
            fates: Vec::new(),
            sequences: Vec::new(),
            headers: Headers::default(),
            drops: DropCounters::default(),
        })
    }

    /// The SAs: SPI, algorithms, and the number of packets opened.
    pub(super) fn opened(&self) -> Vec<(u32, String, u64)> {
        self.sas.iter().map(|sa| (sa.spi, sa.name.clone(), sa.count)).collect()
    }

    /// Opens what is ESP in a batch. Opened packets are left without anything around them.
    pub fn open(&mut self, batch: &mut Batch) -> Opened<'_> {
        self.fates.clear();
        self.sequences.clear();
        self.headers.clear();
        for index in 0..batch.len() {
            let (fate, sequence) = self.find(batch, index);
            self.fates.push(fate);
            self.sequences.push(sequence);
        }
        let mut first = 0;
        while first < self.fates.len() {
            let fate = self.fates[first];
            let count = self.fates[first..].iter().take_while(|it| **it == fate).count();
            if let Fate::Sealed(place) = fate {
                let (packets, sa) = (first..first + count, &mut self.sas[place as usize]);
                sa.keys.open(batch, packets.clone(), &self.sequences, &self.drops);
                for index in packets {
                    let sequence = self.sequences[index];
                    self.fates[index] = sa.accept(batch, index, (place, sequence), &self.headers);
                }
            }
            first += count;
        }
        Opened { fates: &self.fates, expected: &self.expected }
    }

    /// The SA of a frame and its sequence number; a frame that has one is cut to its ESP packet.
    fn find(&mut self, batch: &mut Batch, index: usize) -> (Fate, u64) {
        let frame = batch.packet(index);
        let Found { sa: place, start, esp, length } = match self.esp(frame) {
            Ok(found) => found,
            Err(fate) => return (fate, 0),
        };
        let sa = &self.sas[place as usize];
        let packet = &frame[esp..esp + length];
        let checked =
            sa.keys.layout().check(length).and_then(|()| sa.keys.infer_sequence(packet, &sa.window));
        let Ok(sequence) = checked else { return (Fate::Corrupt, 0) };
        if sa.tunnel.is_none() {
            let ip = &frame[start..];
            let family = if ip[0] >> 4 == 4 { Family::V4 } else { Family::V6 };
            let (offset, field) = (family.header(), if family == Family::V4 { 9 } else { 6 });
            self.headers.keep(index, ip, Place { offset, field, protocol: ESP });
        }
        batch.shrink(index, esp, length);
        (Fate::Sealed(place), sequence)
    }

    /// The SA of a frame, and where its ESP packet is.
    fn esp(&self, frame: &[u8]) -> Result<Found, Fate> {
        if frame.is_empty() {
            return Err(Fate::Nothing);
        }
        let is_damaged = || if self.resembles(frame) { Fate::Corrupt } else { Fate::Frame };
        let arrived = Arrived::read(frame).ok_or_else(is_damaged)?;
        let family = Family::of(arrived.addresses.source);
        // Test frames have neither options nor extension headers.
        let is_plain = arrived.header == family.header();
        let (in_udp, before) = match arrived.protocol {
            ESP if is_plain => (false, 0),
            UDP if arrived.datagram() == Some([UDP_PORT; 2]) => (true, UdpHeader::LENGTH),
            // Over IPv6, nothing else tells whether the next header was ESP.
            UDP | TCP | ICMPV6 if arrived.has_valid_checksum() => return Err(Fate::Frame),
            UDP => return Err(is_damaged()),
            _ if family == Family::V4 => return Err(Fate::Frame),
            _ => return Err(is_damaged()),
        };
        let esp = &arrived.payload()[before..];
        let Ok((fields, _)) = EspHeader::ref_from_prefix(esp) else { return Err(is_damaged()) };
        let is_right =
            |sa: &Opening| sa.in_udp == in_udp && sa.tunnel.is_none_or(|tunnel| tunnel == arrived.addresses);
        let mut sas = self.with_spi(fields.spi.get());
        let sa = sas.find(|&sa| is_right(&self.sas[sa as usize])).ok_or_else(is_damaged)?;
        let start = arrived.start;
        Ok(Found { sa, start, esp: start + arrived.header + before, length: esp.len() })
    }

    /// The SAs with an SPI.
    fn with_spi(&self, spi: u32) -> impl Iterator<Item = u32> + '_ {
        let first = self.by_spi.partition_point(|it| it.0 < spi);
        self.by_spi[first..].iter().take_while(move |it| it.0 == spi).map(|it| it.1)
    }

    /// Whether a frame without an SA was ESP of ours: it has outer addresses or an SPI of ours.
    fn resembles(&self, frame: &[u8]) -> bool {
        let packet = frame.get(EthernetHeader::LENGTH..).unwrap_or_default();
        let four = |at: usize| -> Option<IpAddr> {
            Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?).into())
        };
        let six = |at: usize| -> Option<IpAddr> {
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?).into())
        };
        let has = |source: Option<IpAddr>, destination: Option<IpAddr>| {
            let both = source.zip(destination);
            both.is_some_and(|(source, destination)| {
                self.outers.contains(&OuterAddresses { source, destination })
            })
        };
        let has_spi = |at: usize| {
            let spi = packet.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
            spi.is_some_and(|spi| self.with_spi(u32::from_be_bytes(spi)).next().is_some())
        };
        let headers = [Family::V4, Family::V6].map(Family::header);
        has(four(12), four(16))
            || has(six(8), six(24))
            || headers.into_iter().any(|header| has_spi(header) || has_spi(header + UdpHeader::LENGTH))
    }
}

impl Opening {
    fn new(sa: &EspSa, window: u64, engine: &dyn Engine) -> Outcome<Self> {
        let mut window = ReplayWindow::new(window);
        if let Some(before) = sa.extended_from.and_then(|first| first.checked_sub(1)) {
            // The high half is that of the first number.
            window.accept(before).map_err(|reason| format!("SPI {}: {reason:?}", sa.spi))?;
        }
        let (keys, name) = (load(sa, engine)?, sa.transform.name());
        let EspSa { spi, tunnel, in_udp, .. } = *sa;
        Ok(Self { keys, spi, name, tunnel, in_udp, window, count: 0 })
    }

    /// Notes the number of a packet that was opened, and strips the packet; in transport mode it gets back its IP header.
    fn accept(
        &mut self,
        batch: &mut Batch,
        index: usize,
        (sa, sequence): (u32, u64),
        headers: &Headers,
    ) -> Fate {
        if !batch.is_live(index) {
            return Fate::Corrupt;
        }
        // A number behind the window counts as seen: it is thousands of frames late.
        let is_repeated = self.window.accept(sequence).is_err();
        match self.keys.decapsulate(batch, index) {
            Ok(Inner::Payload { next_header, .. }) => {
                if self.tunnel.is_none() && headers.put_back(batch, index, next_header).is_err() {
                    return Fate::Corrupt;
                }
                self.count += 1;
                Fate::Opened { is_repeated, sa }
            }
            Ok(Inner::Dummy) => Fate::Nothing,
            Err(_) => Fate::Corrupt,
        }
    }
}
