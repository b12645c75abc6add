//! What the stages of the data path do with the packets of an SA, by protocol. A stage dispatches once for an SA batch.
//!
//! A further protocol adds a variant here, and a file of its own with the same verbs.

use crate::esp::keys::SaKeys as Esp;
use crate::esp::parameters::{Mode, Outer};
use crate::openvpn::data::DataKey as OpenVpn;
use crate::replay::{Moving, ReplayWindow};
use crate::wireguard::data::SessionKey as WireGuard;
use crypto::{EngineFailure, Key};
use packet::header::wireguard::DATA_OVERHEAD;
use packet::{Batch, DropCounters};
use std::ops::Range;
use std::sync::Arc;

/// The protocol and the key of an SA: an SA batch is dispatched on it once.
pub enum Protection {
    /// WireGuard's data messages.
    WireGuard(WireGuard),
    /// ESP.
    Esp(Esp),
    /// OpenVPN's data packets.
    OpenVpn(OpenVpn),
}

impl From<Arc<dyn Key>> for Protection {
    fn from(key: Arc<dyn Key>) -> Self {
        Self::WireGuard(WireGuard::new(key))
    }
}

impl From<Esp> for Protection {
    fn from(protection: Esp) -> Self {
        Self::Esp(protection)
    }
}

impl From<OpenVpn> for Protection {
    fn from(protection: OpenVpn) -> Self {
        Self::OpenVpn(protection)
    }
}

impl Protection {
    /// The key, if the SA is WireGuard's.
    pub fn wireguard(&self) -> Option<&dyn Key> {
        match self {
            Self::WireGuard(data) => Some(data.key()),
            Self::Esp(_) | Self::OpenVpn(_) => None,
        }
    }

    /// The first sequence number of a packet.
    pub(crate) fn first_sequence(&self) -> u64 {
        match self {
            Self::WireGuard(_) => WireGuard::FIRST_SEQUENCE,
            Self::Esp(_) => Esp::FIRST_SEQUENCE,
            Self::OpenVpn(_) => OpenVpn::FIRST_SEQUENCE,
        }
    }

    /// Whether the IP header of a packet is not encapsulated, as in the transport mode of ESP.
    #[inline]
    pub fn is_transport(&self) -> bool {
        match self {
            Self::WireGuard(_) | Self::OpenVpn(_) => false,
            Self::Esp(esp) => esp.mode() != Mode::Tunnel,
        }
    }

    /// The longest payload whose sealed packet has at most `length` bytes.
    #[inline]
    pub fn largest(&self, length: usize) -> usize {
        match self {
            Self::WireGuard(_) => length.saturating_sub(DATA_OVERHEAD),
            Self::Esp(esp) => esp.layout().largest(length),
            Self::OpenVpn(data) => data.largest(length),
        }
    }

    /// Bytes of these inner packets once they are sealed, on an interface with this MTU.
    #[inline]
    pub fn sealed(&self, batch: &Batch, packets: Range<usize>, mtu: usize) -> usize {
        match self {
            Self::WireGuard(data) => data.sealed(batch, packets, mtu),
            Self::Esp(esp) => esp.sealed(batch, packets),
            Self::OpenVpn(data) => data.sealed(batch, packets),
        }
    }

    /// Puts header and padding around inner packets, and leaves room for the tags.
    #[inline]
    pub fn lay_out(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        receiver: u32,
        first_sequence: u64,
        mtu: usize,
    ) {
        match self {
            Self::WireGuard(data) => data.lay_out(batch, packets, receiver, first_sequence, mtu),
            Self::Esp(esp) => esp.lay_out(batch, packets, receiver, first_sequence),
            Self::OpenVpn(data) => data.lay_out(batch, packets, first_sequence),
        }
    }

    /// Seals packets that were laid out with consecutive sequence numbers. When the engine fails, none of them may leave.
    #[inline]
    pub fn seal(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        receiver: u32,
        first_sequence: u64,
    ) -> Result<(), EngineFailure> {
        match self {
            Self::WireGuard(data) => data.seal(batch, packets, first_sequence),
            Self::Esp(esp) => esp.seal(batch, packets, receiver, first_sequence),
            Self::OpenVpn(data) => data.seal(batch, packets, first_sequence),
        }
    }

    /// Drops packets that need not be opened: their form, or their sequence number, which must be below `end`, is wrong.
    ///
    /// `sequences` receives the whole sequence numbers of ESP packets, by index.
    #[inline]
    pub fn check(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        window: &ReplayWindow,
        end: u64,
        sequences: &mut Vec<u64>,
        drops: &DropCounters,
    ) {
        match self {
            Self::WireGuard(data) => data.check(batch, packets, window, end, drops),
            Self::Esp(esp) => esp.check(batch, packets, window, end, sequences, drops),
            Self::OpenVpn(data) => data.check(batch, packets, window, end, drops),
        }
    }

    /// Opens packets in place, and drops those whose tag is wrong.
    #[inline]
    pub fn open(&self, batch: &mut Batch, packets: Range<usize>, sequences: &[u64], drops: &DropCounters) {
        match self {
            Self::WireGuard(data) => data.open(batch, packets, drops),
            Self::Esp(esp) => esp.open(batch, packets, sequences, drops),
            Self::OpenVpn(data) => data.open(batch, packets, drops),
        }
    }

    /// Marks authentic packets as received, and drops duplicates; returns the number of new packets and their bytes.
    #[inline]
    pub fn accept(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        window: &mut Moving<'_>,
        sequences: &[u64],
        drops: &DropCounters,
    ) -> (usize, usize) {
        match self {
            Self::WireGuard(data) => data.accept(batch, packets, window, drops),
            Self::Esp(esp) => esp.accept(batch, packets, window, sequences, drops),
            Self::OpenVpn(data) => data.accept(batch, packets, window, drops),
        }
    }

    /// Strips opened packets to their inner packets; returns whether there was one other than a keepalive.
    ///
    /// Inner packets that do not fit where they arrived are copied to the end of the batch: `packets` is then the range
    /// of the copies.
    #[inline]
    pub fn strip(
        &self,
        batch: &mut Batch,
        packets: &mut Range<usize>,
        outer: &Outer<'_>,
        drops: &DropCounters,
    ) -> bool {
        match self {
            Self::WireGuard(data) => data.strip(batch, packets.clone(), drops),
            Self::Esp(esp) => esp.strip(batch, packets, outer, drops),
            Self::OpenVpn(data) => data.strip(batch, packets.clone(), drops),
        }
    }

    /// Whether the peer has said in one of the stripped packets that it exits. It is told once.
    #[inline]
    pub fn take_exit(&self) -> bool {
        match self {
            Self::OpenVpn(data) => data.exit().take(),
            Self::WireGuard(_) | Self::Esp(_) => false,
        }
    }
}
