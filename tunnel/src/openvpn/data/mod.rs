//! Data packets: one file for each kind of cipher, with the same verbs.
//!
//! ```text
//! outbound    lay out: header, room for the tag → seal, one call of the engine for up to 64 packets
//! inbound     check form and number → open, one call for up to 64 packets → accept: the window moves → strip
//! ```

mod aead;
mod cbc;
mod epoch;
mod framing;
mod layout;

pub use aead::AeadData;
pub use cbc::CbcData;
pub use epoch::EpochData;
pub use framing::Framing;
pub use layout::{ExitNote, Header, Inner, PING, exit_message};

use crate::replay::{Moving, ReplayWindow};
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
    /// Any of them, with the framing of compression around inner packets.
    Framed(Box<Self>, Framing),
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
            Self::Framed(data, _) => data.overhead(),
        }
    }

    /// The longest inner packet whose sealed packet has at most `length` bytes.
    #[inline]
    pub fn largest(&self, length: usize) -> usize {
        match self {
            Self::Aead(data) => length.saturating_sub(data.overhead()),
            Self::Cbc(data) => data.largest(length),
            Self::Epoch(data) => data.largest(length),
            Self::Framed(data, _) => data.largest(length).saturating_sub(Framing::LENGTH),
        }
    }

    /// Bytes of these inner packets once they are sealed.
    #[inline]
    pub fn sealed(&self, batch: &Batch, packets: Range<usize>) -> usize {
        match self {
            Self::Aead(data) => data.sealed(batch, packets),
            Self::Cbc(data) => data.sealed(batch, packets),
            Self::Epoch(data) => data.sealed(batch, packets),
            // Padding may add a block: limits of keys are not that exact.
            Self::Framed(data, _) => data.sealed(batch, packets.clone()) + packets.len() * Framing::LENGTH,
        }
    }

    /// Puts headers and padding around packets, with room for the tags.
    #[inline]
    pub fn lay_out(&self, batch: &mut Batch, packets: Range<usize>, first_sequence: u64) {
        match self {
            Self::Aead(data) => data.lay_out(batch, packets, first_sequence),
            Self::Cbc(data) => data.lay_out(batch, packets, first_sequence),
            Self::Epoch(data) => data.lay_out(batch, packets, first_sequence),
            Self::Framed(data, framing) => {
                framing.add(batch, packets.clone());
                data.lay_out(batch, packets, first_sequence);
            }
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
            Self::Framed(data, _) => data.seal(batch, packets, first_sequence),
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
            Self::Framed(data, _) => data.check(batch, packets, window, end, drops),
        }
    }

    /// Opens packets in place, and drops those whose tag is wrong.
    #[inline]
    pub fn open(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) {
        match self {
            Self::Aead(data) => data.open(batch, packets, drops),
            Self::Cbc(data) => data.open(batch, packets, drops),
            Self::Epoch(data) => data.open(batch, packets, drops),
            Self::Framed(data, _) => data.open(batch, packets, drops),
        }
    }

    /// Marks authentic packets as received, and drops duplicates; returns the number of new packets and their bytes.
    #[inline]
    pub fn accept(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        window: &mut Moving<'_>,
        drops: &DropCounters,
    ) -> (usize, usize) {
        match self {
            Self::Aead(data) => data.accept(batch, packets, window, drops),
            Self::Cbc(data) => data.accept(batch, packets, window, drops),
            Self::Epoch(data) => data.accept(batch, packets, drops),
            Self::Framed(data, _) => data.accept(batch, packets, window, drops),
        }
    }

    /// Strips opened packets to their inner packets; returns whether there was one other than a ping.
    #[inline]
    pub fn strip(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) -> bool {
        self.strip_framed(batch, packets, None, drops)
    }

    fn strip_framed(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        framing: Option<Framing>,
        drops: &DropCounters,
    ) -> bool {
        match self {
            Self::Aead(data) => data.strip(batch, packets, framing, drops),
            Self::Cbc(data) => data.strip(batch, packets, framing, drops),
            Self::Epoch(data) => data.strip(batch, packets, framing, drops),
            Self::Framed(data, framing) => data.strip_framed(batch, packets, Some(*framing), drops),
        }
    }

    /// Whether the peer has said in one of the stripped packets that it exits.
    #[inline]
    pub fn exit(&self) -> &ExitNote {
        match self {
            Self::Aead(data) => &data.exit,
            Self::Cbc(data) => &data.exit,
            Self::Epoch(data) => &data.exit,
            Self::Framed(data, _) => data.exit(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openvpn::keys::Direction;
    use crypto::Cipher;
    use crypto::cipher::{Encryption, Integrity, Pair};
    use crypto::engine::Engine;
    use crypto::engine::aws_lc::AwsLc;
    use crypto::random::System;
    use packet::DropReason;

    const HEADER: Header = Header::V2 { key_id: 2, peer_id: 7 };

    fn keys() -> [DataKey; 2] {
        let pair = Pair { encryption: Encryption::AesCbc(32), integrity: Integrity::HmacSha512 };
        let keys = Direction { cipher: &[7; 64], hmac: &[9; 64] };
        let cbc = CbcData::load(pair, keys, HEADER, &mut System::default()).expect("keys");
        let key = AwsLc.load(Cipher::Aes256Gcm, &[7; 32]).expect("a key");
        [DataKey::Aead(AeadData::new(key, [9; 8], HEADER)), DataKey::Cbc(cbc)]
    }

    /// Sends messages under one key, opens them under the other; whether the last were data.
    fn carried(sender: &DataKey, receiver: &DataKey, batch: &mut Batch, drops: &DropCounters) -> bool {
        let count = batch.len();
        sender.lay_out(batch, 0..count, 1);
        sender.seal(batch, 0..count, 1).expect("works");
        receiver.check(batch, 0..count, &ReplayWindow::new(64), u64::MAX, drops);
        receiver.open(batch, 0..count, drops);
        receiver.strip(batch, 0..count, drops)
    }

    #[test]
    fn framed_packets_of_each_length_are_opened_and_pings_are_known() {
        for framing in [Framing::Before, Framing::Swapped] {
            for key in keys().map(|key| DataKey::Framed(Box::new(key), framing)) {
                let drops = DropCounters::default();
                for length in 20..60u8 {
                    let mut inner = vec![length; length.into()];
                    (inner[0], inner[2], inner[3]) = (0x45, 0, length);
                    let mut batch = Batch::new(4096);
                    batch.append(inner.len()).expect("it fits").copy_from_slice(&inner);
                    assert!(carried(&key, &key, &mut batch, &drops));
                    assert_eq!(batch.packet(0), inner);
                }
                let mut batch = Batch::new(4096);
                batch.append(PING.len()).expect("it fits").copy_from_slice(&PING);
                assert!(!carried(&key, &key, &mut batch, &drops) && !batch.is_live(0));
                assert!(DropReason::ALL.iter().all(|reason| drops.read(*reason) == 0));
            }
        }
    }

    #[test]
    fn a_packet_without_the_framing_is_counted() {
        for (sender, receiver) in keys().into_iter().zip(keys()) {
            let receiver = DataKey::Framed(Box::new(receiver), Framing::Before);
            let (mut batch, drops) = (Batch::new(4096), DropCounters::default());
            batch.append(20).expect("it fits").fill(0x45);
            carried(&sender, &receiver, &mut batch, &drops);
            assert_eq!((batch.is_live(0), drops.read(DropReason::Compressed)), (false, 1));
        }
    }
}
