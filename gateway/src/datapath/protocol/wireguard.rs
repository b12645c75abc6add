//! WireGuard: data messages carry a receiver index, peers are found by prefix, and the endpoint follows every authentic
//! packet.

use super::{PacketType, Room, Wire};
use packet::header::ip::{Ipv4Header, MAXIMUM, ecn};
use packet::header::udp::UdpHeader;
use packet::header::wireguard::{
    COOKIE_REPLY, CookieReply, DATA, DATA_OVERHEAD, INITIATION, Initiation, RESPONSE, Response,
};
use packet::{DropReason, PackedEndpoint};
use tunnel::Protection;

/// The wire format: type and receiver index in the first 8 bytes.
pub(super) struct Datagrams;

impl Wire for Datagrams {
    const SHORTEST: usize = DATA_OVERHEAD;

    #[inline]
    fn type_of(datagram: &[u8]) -> Result<PacketType, DropReason> {
        let word = |at: usize| {
            let bytes = datagram.get(at..at + 4).ok_or(DropReason::TooShort)?;
            Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
        };
        match word(0)? {
            DATA if datagram.len() >= DATA_OVERHEAD => Ok(PacketType::Data(word(4)?)),
            DATA => Err(DropReason::TooShort),
            INITIATION | RESPONSE | COOKIE_REPLY => Ok(PacketType::Handshake),
            _ => Err(DropReason::NotOurs),
        }
    }

    #[inline]
    fn is_same(one: &[u8], other: &[u8]) -> bool {
        let first = one.first_chunk::<8>();
        first.is_some() && other.first_chunk() == first
    }

    fn handshake(datagram: &[u8]) -> &[u8] {
        datagram
    }
}

/// Handshake messages have fixed lengths.
pub(super) fn check_message(message: &[u8]) -> Result<(), DropReason> {
    const LENGTHS: [usize; 3] = [size_of::<Initiation>(), size_of::<Response>(), size_of::<CookieReply>()];
    if LENGTHS.contains(&message.len()) { Ok(()) } else { Err(DropReason::NotOurs) }
}

/// The path MTU is not known: only the length fields of the outer headers are a limit.
#[inline]
pub(super) fn room(protection: &Protection, endpoint: &PackedEndpoint) -> Room {
    // A datagram over IPv6 is limited by the payload length field.
    let most = MAXIMUM - if endpoint.is_v4() { Ipv4Header::LENGTH } else { 0 };
    let largest = protection.largest(most - UdpHeader::LENGTH);
    // The DSCP is not copied, as in other implementations: it would reveal the kind of traffic.
    Room { largest, usual: largest, fitting: largest, ds_mask: ecn::MASK, clamps_mss: false, whole: false }
}
