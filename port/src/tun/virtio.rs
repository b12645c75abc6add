//! The header before every packet of a TUN interface with `IFF_VNET_HDR` (virtio 1.2, section 5.1.6).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The offload parameters of a packet from or to the kernel. Fields are in native byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct VirtioHeader {
    /// [`NEEDS_CHECKSUM`](Self::NEEDS_CHECKSUM) or nothing.
    pub flags: u8,
    /// The type of a super-packet, or [`GSO_NONE`](Self::GSO_NONE).
    pub gso_type: u8,
    /// Length of all headers; a hint that is wrong for forwarded packets, so it is never read.
    pub header_length: u16,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// The offset of the first byte that the checksum covers.
    pub checksum_start: u16,
    /// The offset of the checksum field from there.
    pub checksum_offset: u16,
}

impl VirtioHeader {
    /// Bytes of the header.
    pub const LENGTH: usize = size_of::<Self>();
    /// The checksum field holds the sum of the pseudo header only.
    pub const NEEDS_CHECKSUM: u8 = 1;
    /// A single packet.
    pub const GSO_NONE: u8 = 0;
    /// Segments of TCP over IPv4.
    pub const GSO_TCP_V4: u8 = 1;
    /// Segments of TCP over IPv6.
    pub const GSO_TCP_V6: u8 = 4;
    /// Segments of UDP over either.
    pub const GSO_UDP: u8 = 5;
    /// Added to a type when the flow uses ECN.
    pub const GSO_ECN: u8 = 0x80;
}
