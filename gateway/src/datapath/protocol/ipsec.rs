//! IPsec: ESP packets carry an SPI, in UDP or not; peers are found by policy, and the endpoint is what IKE negotiated.

use super::{PacketType, Room, Wire};
use arc_swap::ArcSwapOption;
use packet::header::esp::{Encapsulated, HEADER};
use packet::header::ip::{Ipv4Header, Ipv6Header, MAXIMUM, ecn};
use packet::header::udp::UdpHeader;
use packet::{DropReason, Endpoint, PackedEndpoint};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tunnel::Protection;

/// Bytes of an IKE header (RFC 7296 section 3.1).
const IKE_HEADER: usize = 28;

/// The wire format (RFC 3948 section 2): the SPI in the first 4 bytes, or a marker before an IKE message.
pub(super) struct Datagrams;

impl Wire for Datagrams {
    const SHORTEST: usize = HEADER;

    #[inline]
    fn type_of(datagram: &[u8]) -> Result<PacketType, DropReason> {
        match Encapsulated::parse(datagram).map_err(|_| DropReason::TooShort)? {
            Encapsulated::Esp(header, _) => Ok(PacketType::Data(header.spi.get())),
            Encapsulated::Ike(_) => Ok(PacketType::Handshake),
            Encapsulated::Keepalive => Ok(PacketType::NatKeepalive),
        }
    }

    #[inline]
    fn is_same(one: &[u8], other: &[u8]) -> bool {
        let first = one.first_chunk::<4>();
        first.is_some() && other.first_chunk() == first
    }

    fn handshake(datagram: &[u8]) -> &[u8] {
        match Encapsulated::parse(datagram) {
            Ok(Encapsulated::Ike(message)) => message,
            _ => datagram,
        }
    }
}

/// IKE messages have a header.
pub(super) fn check_message(message: &[u8]) -> Result<(), DropReason> {
    if message.len() < IKE_HEADER { Err(DropReason::TooShort) } else { Ok(()) }
}

/// The parameters of a tunnel, which all its successive SAs share.
pub struct Tunnel {
    /// Whether the endpoint follows the last authentic packet. RFC 7296 section 2.23: only for a peer behind a NAT.
    pub follows: AtomicBool,
    /// Whether the endpoint follows if only the port changes: both sides are behind NATs.
    pub follows_port: AtomicBool,
    /// The last source of authentic packets that the endpoint does not follow; cleared when read.
    pub strayed: ArcSwapOption<Endpoint>,
    /// The largest outer packet that reaches the peer, as far as known.
    pub path_mtu: AtomicUsize,
    /// The configured inner MTU.
    pub mtu: usize,
    /// Whether ESP packets are in UDP datagrams.
    pub in_udp: AtomicBool,
    /// Whether the DSCP is copied to the outer header (RFC 4301 section 5.1.2.1).
    pub shows_dscp: bool,
    /// Whether the MSS of TCP connections is clamped.
    pub clamps_mss: bool,
    /// Of a gateway between ports, the number of its IKE peer, which policies name; 0 for none.
    pub ike_peer: u16,
}

impl Default for Tunnel {
    fn default() -> Self {
        Self {
            follows: AtomicBool::new(false),
            follows_port: AtomicBool::new(false),
            strayed: ArcSwapOption::empty(),
            path_mtu: AtomicUsize::new(usize::MAX),
            mtu: usize::MAX,
            in_udp: AtomicBool::new(true),
            shows_dscp: true,
            clamps_mss: false,
            ike_peer: 0,
        }
    }
}

impl Tunnel {
    /// The path MTU, the configured MTU and the length fields of the outer headers are limits.
    #[inline]
    pub(super) fn room(&self, protection: &Protection, endpoint: &PackedEndpoint) -> Room {
        let is_v4 = endpoint.is_v4();
        // A packet over IPv6 is limited by the payload length field.
        let most = MAXIMUM - if is_v4 { Ipv4Header::LENGTH } else { 0 };
        let udp = if self.in_udp.load(Ordering::Relaxed) { UdpHeader::LENGTH } else { 0 };
        let ip = if is_v4 { Ipv4Header::LENGTH } else { Ipv6Header::LENGTH };
        // In transport mode the inner IP header is the outer one.
        let is_transport = protection.is_transport();
        let inner = |length| protection.largest(length) + if is_transport { ip } else { 0 };
        let (largest, path) = (inner(most - udp), self.path_mtu.load(Ordering::Relaxed));
        let usual = inner(path.saturating_sub(ip + udp)).min(largest).min(self.mtu);
        Room {
            largest,
            usual,
            fitting: usual,
            ds_mask: if self.shows_dscp { 0xff } else { ecn::MASK },
            clamps_mss: self.clamps_mss,
            whole: is_transport,
        }
    }

    pub(super) fn is_followed(&self) -> bool {
        self.follows.load(Ordering::Relaxed) || self.follows_port.load(Ordering::Relaxed)
    }

    /// Whether the endpoint becomes `from`; if not, `from` is noted for IKE.
    pub(super) fn follows(&self, known: Option<&Endpoint>, from: &Endpoint) -> bool {
        let known = known.map(|endpoint| endpoint.remote);
        let is_same_address = known.is_some_and(|known| known.ip() == from.remote.ip());
        let follows_port = || self.follows_port.load(Ordering::Relaxed) && is_same_address;
        if self.follows.load(Ordering::Relaxed) || follows_port() {
            return true;
        }
        // Without UDP there are no ports.
        let has_ports = self.in_udp.load(Ordering::Relaxed);
        let is_same = if has_ports { known == Some(from.remote) } else { is_same_address };
        if !is_same && self.strayed.load().as_deref() != Some(from) {
            self.strayed.store(Some(Arc::new(*from)));
        }
        false
    }
}
