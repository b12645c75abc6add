//! What few SAs ask for: transport mode, UDP, a smaller MSS, and the one SA of `--single-sa`.

use super::plan::Plan;
use crate::datapath::{Routed, SaBatch};
use config::secgw::settings::{Direction, Mode, Sa};
use packet::Batch;
use packet::header::esp::HEADER;
use packet::header::ip::{Ipv4Header, Ipv6Header};
use packet::header::tcp::{self, TcpHeader};
use packet::header::udp::UdpHeader;
use std::collections::{HashMap, HashSet};

/// What the SAs of a plan ask for.
pub struct Modes {
    /// The SPI of the SA that all outbound packets take; policies have no effect then.
    pub single: Option<u32>,
    /// Whether an outbound SA is in transport mode.
    pub has_transport_out: bool,
    /// Whether an inbound SA is in transport mode.
    pub has_transport_in: bool,
    /// The SPIs of inbound SAs in UDP.
    in_udp: HashSet<u32>,
    segments_out: HashMap<u32, u16>,
    segments_in: HashMap<u32, u16>,
}

impl Modes {
    /// The modes of a plan.
    pub fn new(plan: &Plan) -> Self {
        let of = |direction| plan.sas.iter().filter(move |sa| sa.direction == direction);
        let segments = |direction| {
            of(direction).filter(|sa| sa.mss > 0).map(|sa| (sa.spi, sa.mss)).collect::<HashMap<_, _>>()
        };
        Self {
            single: plan.single_sa,
            has_transport_out: of(Direction::Outbound).any(|sa| sa.mode == Mode::Transport),
            has_transport_in: of(Direction::Inbound).any(|sa| sa.mode == Mode::Transport),
            in_udp: of(Direction::Inbound).filter(|sa| sa.udp_encapsulation).map(|sa| sa.spi).collect(),
            segments_out: segments(Direction::Outbound),
            segments_in: segments(Direction::Inbound),
        }
    }

    /// Whether this UDP datagram is one of an inbound SA. IKE and other datagrams of the port are not.
    pub fn is_esp(&self, datagram: &[u8]) -> bool {
        let Ok(header) = UdpHeader::parse(datagram) else { return false };
        let Some(&spi) = datagram[UdpHeader::LENGTH..].first_chunk() else { return false };
        header.destination.get() == packet::header::esp::UDP_PORT
            && datagram.len() >= UdpHeader::LENGTH + HEADER
            && self.in_udp.contains(&u32::from_be_bytes(spi))
    }

    /// Whether an inbound SA is in UDP.
    pub fn has_udp_in(&self) -> bool {
        !self.in_udp.is_empty()
    }

    /// Lowers the MSS that packets to be encrypted announce.
    pub fn clamp_out(&self, batch: &mut Batch, routed: &[Routed<'_>]) {
        if self.segments_out.is_empty() {
            return;
        }
        for Routed { packets, sa, .. } in routed {
            let Some(&size) = self.segments_out.get(&sa.receiver) else { continue };
            packets.clone().for_each(|index| clamp(batch.packet_mut(index), size));
        }
    }

    /// Lowers the MSS that decrypted packets announce.
    pub fn clamp_in(&self, batch: &mut Batch, sa_batches: &[SaBatch<'_>]) {
        if self.segments_in.is_empty() {
            return;
        }
        for sa_batch in sa_batches {
            let Some(&size) = self.segments_in.get(&sa_batch.session.sa.index) else { continue };
            sa_batch.packets.clone().for_each(|index| clamp(batch.packet_mut(index), size));
        }
    }
}

fn clamp(packet: &mut [u8], size: u16) {
    let ip = match packet.first().map(|first| first >> 4) {
        Some(6) => Ipv6Header::LENGTH,
        Some(_) => Ipv4Header::LENGTH,
        None => return,
    };
    tcp::clamp_mss(packet, ip + TcpHeader::LENGTH + usize::from(size));
}

/// The first sequence number of an SA, and whether its numbers have 64 bits.
pub fn numbers(sa: &Sa, plan: &Plan) -> (u64, bool) {
    (sa.extended_sequence.max(1), plan.extended_sequence || sa.extended_sequence > 0)
}
