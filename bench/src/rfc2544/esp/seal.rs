//! Sealing: frames of the templates become ESP, each under the SA of its stream.

use super::{EspSa, load};
use crate::Outcome;
use crate::rfc2544::outer::{OuterAddresses, finish_udp, prepend_ether, prepend_udp};
use crate::rfc2544::streams::stream_of;
use crypto::engine::Engine;
use gateway::secgw::headers::Headers;
use packet::Batch;
use packet::header::chain::place_for_esp;
use packet::header::esp::{ESP, UDP_PORT};
use packet::header::ethernet::EthernetHeader;
use packet::header::ip::{IpPacket, UDP};
use std::io;
use std::ops::Range;
use tunnel::esp::SaKeys;

/// An SA to seal with.
pub(super) struct Sealing {
    keys: SaKeys,
    spi: u32,
    name: String,
    tunnel: Option<OuterAddresses>,
    in_udp: bool,
    /// The next sequence number.
    pub(super) next: u64,
}

/// Seals the frames that leave by a port.
pub struct Sealer {
    pub(super) sas: Vec<Sealing>,
    /// The place of the SA, by stream; empty: the first for all.
    by_stream: Vec<u32>,
    /// The IP headers of transport mode.
    headers: Headers,
}

impl Sealer {
    /// Seals with these SAs, at least one.
    pub(super) fn new(
        sas: &[EspSa],
        by_stream: &[u32],
        first: Option<u64>,
        engine: &dyn Engine,
    ) -> Outcome<Self> {
        let sealing = |sa: &EspSa| -> Outcome<Sealing> {
            Ok(Sealing {
                keys: load(sa, engine)?,
                spi: sa.spi,
                name: sa.transform.name(),
                tunnel: sa.tunnel,
                in_udp: sa.in_udp,
                next: first.or(sa.extended_from).unwrap_or(1).max(1),
            })
        };
        let sas = sas.iter().map(sealing).collect::<Outcome<_>>()?;
        Ok(Self { sas, by_stream: by_stream.to_vec(), headers: Headers::default() })
    }

    /// The SAs: SPI, algorithms, and the next sequence number.
    pub(super) fn sealed(&self) -> impl Iterator<Item = (u32, String, u64)> {
        self.sas.iter().map(|sa| (sa.spi, sa.name.clone(), sa.next))
    }

    /// Seals all frames of a batch, of which the first has this sequence number.
    pub fn seal(&mut self, batch: &mut Batch, first: u64) -> io::Result<()> {
        self.headers.clear();
        let sa_of = |index: usize| match &self.by_stream[..] {
            [] => 0,
            places => places[stream_of(first + index as u64, places.len())] as usize,
        };
        let mut start = 0;
        while start < batch.len() {
            let sa = sa_of(start);
            let count = (start..batch.len()).take_while(|&index| sa_of(index) == sa).count();
            self.sas[sa].seal(batch, start..start + count, &mut self.headers)?;
            start += count;
        }
        Ok(())
    }
}

impl Sealing {
    /// Seals some frames, which have the same hardware addresses.
    fn seal(&mut self, batch: &mut Batch, frames: Range<usize>, headers: &mut Headers) -> io::Result<()> {
        let first = self.take(frames.len() as u64)?;
        let Some(&macs) = batch.packet(frames.start).first_chunk::<12>() else { return Ok(()) };
        for index in frames.clone() {
            let inner = batch.packet(index).len() - EthernetHeader::LENGTH;
            batch.shrink(index, EthernetHeader::LENGTH, inner);
            if self.tunnel.is_none()
                && let Ok(ip) = IpPacket::parse(batch.packet(index))
                && let Ok(place) = place_for_esp(&ip)
            {
                headers.keep(index, ip.bytes(), place);
            }
        }
        self.keys.lay_out(batch, frames.clone(), self.spi, first);
        let sealed = self.keys.seal(batch, frames.clone(), self.spi, first);
        sealed.map_err(|_| io::Error::other("the crypto engine failed"))?;
        for index in frames {
            self.wrap(batch, index, headers)?;
            prepend_ether(batch, index, macs);
        }
        Ok(())
    }

    /// Puts UDP and IP around a sealed packet.
    fn wrap(&self, batch: &mut Batch, index: usize, headers: &Headers) -> io::Result<()> {
        let protocol = if self.in_udp { UDP } else { ESP };
        if self.in_udp {
            prepend_udp(batch, index, UDP_PORT, UDP_PORT);
        }
        match self.tunnel {
            Some(tunnel) => tunnel.prepend(batch, index, protocol, 0),
            None => headers
                .put_back(batch, index, protocol)
                .map_err(|reason| io::Error::other(format!("SPI {}: {reason:?}", self.spi)))?,
        }
        if self.in_udp {
            finish_udp(batch.packet_mut(index));
        }
        Ok(())
    }

    /// Takes so many sequence numbers.
    fn take(&mut self, count: u64) -> io::Result<u64> {
        let (first, after) = (self.next, self.next.saturating_add(count));
        if after > 1 << 32 && !self.keys.is_extended() {
            // RFC 4303 section 3.3.3: a number must not be used again.
            let text = format!(
                "all sequence numbers of SPI {} are used up\n  fix: a shorter run, or esn 1 in its line and at the device",
                self.spi
            );
            return Err(io::Error::other(text));
        }
        self.next = after;
        Ok(first)
    }
}
