//! What the stages ask of a protocol. They dispatch once for a batch or for an SA batch, never for a packet.
//!
//! | stage | what it asks |
//! |---|---|
//! | classify | how a datagram is read: [`Wire`] |
//! | punt | whether a handshake message is well-formed: [`Protocol::check_message`] |
//! | route | how the peer of an inner packet is found: [`Protocol::lookup`] |
//! | fit | the limits for inner packets: [`PeerState::room`] |
//! | accept | whether the endpoint follows, and what the timers must know: [`PeerState`] |
//! | transmit | what the timers must know |
//!
//! What they do with packets under a key is [`tunnel::Protection`]'s. A further protocol adds a variant to both enums
//! here, and a file of its own.

mod ipsec;
mod openvpn;
mod wireguard;

pub use ipsec::Tunnel;
pub use openvpn::Link;

use packet::{DropReason, Endpoint, PackedEndpoint};
use std::sync::Arc;
use tunnel::wireguard::Activity;
use tunnel::{Protection, Time};

/// The protocol of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// WireGuard, with cryptokey routing.
    WireGuard,
    /// ESP and IKE, with policies.
    Ipsec,
    /// OpenVPN over UDP or TCP, with the addresses that a server gives its clients.
    OpenVpn,
}

/// How the peer of an inner packet is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// By the longest prefix of its destination, in `Tables::routes`.
    Prefix,
    /// By its addresses, protocol and ports, in `Tables::policies`.
    Policy,
}

impl Protocol {
    /// Calls `reader` with the wire format of the protocol.
    #[inline]
    pub(super) fn read(self, reader: impl Reader) {
        match self {
            Self::WireGuard => reader.read::<wireguard::Datagrams>(),
            Self::Ipsec => reader.read::<ipsec::Datagrams>(),
            Self::OpenVpn => reader.read::<openvpn::Datagrams>(),
        }
    }

    /// Whether a handshake message has a valid length.
    pub(super) fn check_message(self, message: &[u8]) -> Result<(), DropReason> {
        match self {
            Self::WireGuard => wireguard::check_message(message),
            Self::Ipsec => ipsec::check_message(message),
            Self::OpenVpn => openvpn::check_message(message),
        }
    }

    /// How outbound packets find their peer.
    #[inline]
    pub(super) fn lookup(self) -> Lookup {
        match self {
            Self::WireGuard | Self::OpenVpn => Lookup::Prefix,
            Self::Ipsec => Lookup::Policy,
        }
    }
}

/// The wire format of a protocol, as far as classification needs it.
pub(super) trait Wire {
    /// The shortest data packet. Packets of one SA batch start with the same bytes, and are no shorter.
    const SHORTEST: usize;

    /// The type of a datagram, from its first bytes.
    fn type_of(datagram: &[u8]) -> Result<PacketType, DropReason>;

    /// Whether two datagrams are for the same session.
    fn is_same(one: &[u8], other: &[u8]) -> bool;

    /// The handshake message in a datagram.
    fn handshake(datagram: &[u8]) -> &[u8];
}

/// The type of a datagram.
pub(super) enum PacketType {
    /// A data packet under this receiver index or SPI.
    Data(u32),
    /// A message for the handshake thread.
    Handshake,
    /// A keepalive for NATs, which needs no answer.
    NatKeepalive,
}

/// Code that is compiled for each wire format, so that it does not dispatch for each packet.
pub(super) trait Reader {
    /// Reads datagrams of the format `W`.
    fn read<W: Wire>(self);
}

/// The protocol-specific part of a peer.
#[allow(clippy::large_enum_variant, reason = "it is a part of a peer, which has an allocation of its own")]
pub enum PeerState {
    /// The activity notes for the timers of the protocol.
    WireGuard(Arc<Activity>),
    /// The tunnel parameters.
    Ipsec(Tunnel),
    /// The activity notes, and what may follow the peer.
    OpenVpn(Link),
}

impl PeerState {
    /// The limits for inner packets under an SA to `endpoint`.
    #[inline]
    pub(super) fn room(&self, protection: &Protection, endpoint: &PackedEndpoint) -> Room {
        match self {
            Self::WireGuard(_) => wireguard::room(protection, endpoint),
            Self::Ipsec(tunnel) => tunnel.room(protection, endpoint),
            Self::OpenVpn(link) => link.room(protection, endpoint),
        }
    }

    /// Whether the endpoint is that of the last authentic packet, or can become another port of its address.
    pub(super) fn is_followed(&self) -> bool {
        match self {
            Self::WireGuard(_) => true,
            Self::Ipsec(tunnel) => tunnel.is_followed(),
            Self::OpenVpn(link) => link.follows,
        }
    }

    /// Whether the endpoint, which is `known`, becomes `from`, where an authentic packet has come from.
    pub(super) fn follows(&self, known: Option<&Endpoint>, from: &Endpoint) -> bool {
        match self {
            Self::WireGuard(_) => true,
            Self::Ipsec(tunnel) => tunnel.follows(known, from),
            Self::OpenVpn(link) => link.follows,
        }
    }

    /// Whether packets count only from the endpoint: that of a TCP connection.
    #[inline]
    pub(super) fn is_bound(&self) -> bool {
        matches!(self, Self::OpenVpn(link) if link.is_stream)
    }

    /// Notes that an SA batch was sent; returns whether the timers of the protocol must be told.
    #[inline]
    pub(super) fn note_sent(&self, now: Time, is_data: bool) -> bool {
        match self {
            Self::WireGuard(activity) if is_data => activity.sent_data(now),
            Self::WireGuard(activity) => {
                activity.sent(now);
                false
            }
            Self::Ipsec(_) => false,
            Self::OpenVpn(link) => {
                link.note_sent(now);
                false
            }
        }
    }

    /// Counts bytes of packets other than pings, if the protocol asks for it.
    #[inline]
    pub(super) fn count_data(&self, bytes: usize) {
        if let Self::OpenVpn(link) = self {
            link.count_data(bytes);
        }
    }

    /// Notes that authentic packets were received; returns whether the timers of the protocol must be told.
    #[inline]
    pub(super) fn note_received(&self, now: Time, with_data: bool) -> bool {
        match self {
            Self::WireGuard(activity) => activity.received(now, with_data),
            Self::Ipsec(_) => false,
            Self::OpenVpn(link) => {
                link.note_received(now);
                false
            }
        }
    }
}

/// The limits for inner packets of an SA batch.
pub(super) struct Room {
    /// Longer packets cannot be carried at all.
    pub(super) largest: usize,
    /// Longer packets cause fragmentation of the outer packet; an inner packet that forbids fragmentation gets an ICMP error.
    pub(super) usual: usize,
    /// TCP segments are clamped to packets of this length.
    pub(super) fitting: usize,
    /// The bits of the DS field that are copied to the outer header.
    pub(super) ds_mask: u8,
    /// Whether the MSS of TCP connections is clamped.
    pub(super) clamps_mss: bool,
    /// Whether fragments are refused, as in transport mode.
    pub(super) whole: bool,
}
