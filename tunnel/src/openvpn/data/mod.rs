//! Data packets: one file for each kind of cipher, with the same verbs.
//!
//! ```text
//! outbound    lay out: header, room for the tag → seal, one call of the engine for up to 64 packets
//! inbound     check form and number → open, one call for up to 64 packets → accept: the window moves → strip
//! ```

mod aead;
mod cbc;
mod epoch;
mod layout;

pub use aead::AeadData;
pub use cbc::CbcData;
pub use epoch::EpochData;
pub use layout::{ExitNote, Header, Inner, PING, exit_message};

use crate::replay::ReplayWindow;
use crypto::EngineFailure;
use packet::{Batch, DropCounters};
use std::ops::Range;

/// How the data packets of one direction of one key are laid out, sealed and opened.
pub enum DataKey {
    /// With an AEAD cipher.
    Aead(AeadData),
    /// With a cipher in CBC mode or none, and an HMAC.
    Cbc(CbcData),
    /// With an AEAD cipher and epoch keys.
    Epoch(EpochData),
}

impl DataKey {
    /// The first packet number.
    pub(crate) const FIRST_SEQUENCE: u64 = 1;

    /// Bytes before the inner packet.
    #[inline]
    pub fn overhead(&self) -> usize {
        match self {
            Self::Aead(data) => data.overhead(),
            Self::Cbc(data) => data.overhead(),
            Self::Epoch(data) => data.overhead(),
        }
    }

    /// The longest inner packet whose sealed packet has at most `length` bytes.
    #[inline]
    pub fn largest(&self, length: usize) -> usize {
        match self {
            Self::Aead(data) => length.saturating_sub(data.overhead()),
            Self::Cbc(data) => data.largest(length),
            Self::Epoch(data) => data.largest(length),
        }
    }

    /// Bytes of these inner packets once they are sealed.
    #[inline]
    pub fn sealed(&self, batch: &Batch, packets: Range<usize>) -> usize {
        match self {
            Self::Aead(data) => data.sealed(batch, packets),
            Self::Cbc(data) => data.sealed(batch, packets),
            Self::Epoch(data) => data.sealed(batch, packets),
        }
    }

    /// Puts headers and padding around packets, with room for the tags.
    #[inline]
    pub fn lay_out(&self, batch: &mut Batch, packets: Range<usize>, first_sequence: u64) {
        match self {
            Self::Aead(data) => data.lay_out(batch, packets, first_sequence),
            Self::Cbc(data) => data.lay_out(batch, packets, first_sequence),
            Self::Epoch(data) => data.lay_out(batch, packets, first_sequence),
        }
    }

    /// Seals packets that were laid out. When the engine fails, nothing of the packets may leave.
    #[inline]
    pub fn seal(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        first_sequence: u64,
    ) -> Result<(), EngineFailure> {
        match self {
            Self::Aead(data) => data.seal(batch, packets),
            Self::Cbc(data) => data.seal(batch, packets, first_sequence),
            Self::Epoch(data) => data.seal(batch, packets),
        }
    }

    /// Drops packets whose form is wrong, or whose number can be read and was received before, or is not below `end`.
    #[inline]
    pub fn check(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        window: &ReplayWindow,
        end: u64,
        drops: &DropCounters,
    ) {
        match self {
            Self::Aead(data) => data.check(batch, packets, window, end, drops),
            Self::Cbc(data) => data.check(batch, packets, drops),
            Self::Epoch(data) => data.check(batch, packets, drops),
        }
    }

    /// Opens packets in place, and drops those whose tag is wrong.
    #[inline]
    pub fn open(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) {
        match self {
            Self::Aead(data) => data.open(batch, packets, drops),
            Self::Cbc(data) => data.open(batch, packets, drops),
            Self::Epoch(data) => data.open(batch, packets, drops),
        }
    }

    /// Marks authentic packets as received, and drops duplicates; returns the number of new packets and their bytes.
    #[inline]
    pub fn accept(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        window: &mut ReplayWindow,
        drops: &DropCounters,
    ) -> (usize, usize) {
        match self {
            Self::Aead(data) => data.accept(batch, packets, window, drops),
            Self::Cbc(data) => data.accept(batch, packets, window, drops),
            Self::Epoch(data) => data.accept(batch, packets, drops),
        }
    }

    /// Strips opened packets to their inner packets; returns whether there was one other than a ping.
    #[inline]
    pub fn strip(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) -> bool {
        match self {
            Self::Aead(data) => data.strip(batch, packets, drops),
            Self::Cbc(data) => data.strip(batch, packets, drops),
            Self::Epoch(data) => data.strip(batch, packets, drops),
        }
    }

    /// Whether the peer has said in one of the stripped packets that it exits.
    #[inline]
    pub fn exit(&self) -> &ExitNote {
        match self {
            Self::Aead(data) => &data.exit,
            Self::Cbc(data) => &data.exit,
            Self::Epoch(data) => &data.exit,
        }
    }
}
