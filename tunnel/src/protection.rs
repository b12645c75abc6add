//! What the stages of the data path do with the packets of an SA, by protocol. A stage dispatches once for an SA batch.
//!
//! A further protocol adds a variant here, and a file of its own with the same verbs.

use crate::esp::open::Inner;
use crate::esp::parameters::Mode;
use crate::esp::protection::Protection as Esp;
use crate::replay::ReplayWindow;
use crate::wireguard::data::Protection as WireGuard;
use crypto::{EngineFailure, Key};
use packet::header::esp::{NEXT_IPV4, NEXT_IPV6};
use packet::header::ip::IpPacket;
use packet::header::wireguard::{DATA_OVERHEAD, padded};
use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;
use std::sync::Arc;

/// The protocol and the key of an SA: an SA batch is dispatched on it once.
pub enum Protection {
    /// WireGuard's data messages.
    WireGuard(WireGuard),
    /// ESP.
    Esp(Esp),
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

impl Protection {
    /// The key, if the SA is WireGuard's.
    pub fn wireguard(&self) -> Option<&dyn Key> {
        match self {
            Self::WireGuard(data) => Some(data.key()),
            Self::Esp(_) => None,
        }
    }

    /// ESP in transport mode, whose inner IP headers are made of outer ones.
    #[inline]
    pub fn transport(&self) -> Option<&Esp> {
        match self {
            Self::Esp(esp) if esp.mode() == Mode::Transport => Some(esp),
            Self::Esp(_) | Self::WireGuard(_) => None,
        }
    }

    /// The first sequence number of a packet (RFC 4303 section 3.3.3; WireGuard counts from 0).
    pub(crate) fn first_sequence(&self) -> u64 {
        match self {
            Self::WireGuard(_) => 0,
            Self::Esp(_) => 1,
        }
    }

    /// Bytes of these inner packets once they are sealed, on an interface with this MTU.
    #[inline]
    pub fn sealed(&self, batch: &Batch, packets: Range<usize>, mtu: usize) -> usize {
        let lengths = packets.map(|index| batch.packet(index).len());
        match self {
            Self::WireGuard(_) => lengths.map(|length| DATA_OVERHEAD + padded(length, mtu)).sum(),
            Self::Esp(esp) => lengths.map(|length| esp.layout().sealed(length)).sum(),
        }
    }

    /// Puts header and padding around whole inner packets, and leaves room for the tags.
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
            Self::Esp(esp) => {
                for (index, sequence) in packets.zip(first_sequence..) {
                    let is_v6 = batch.packet(index).first().is_some_and(|byte| byte >> 4 == 6);
                    let next_header = if is_v6 { NEXT_IPV6 } else { NEXT_IPV4 };
                    esp.lay_out(batch, index, receiver, sequence, next_header);
                }
            }
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
        }
    }

    /// Drops packets that need not be opened: their form, or their sequence number, which must be below `end`, is wrong.
    ///
    /// `sequences`: of ESP packets, the whole sequence numbers by index. Here they are made: once the window moves, the same
    /// half would mean another number.
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
            Self::WireGuard(_) => {
                for index in packets {
                    let counter = WireGuard::counter(batch.packet(index));
                    if counter >= end || window.check(counter).is_err() {
                        drops.count(DropReason::Replayed, 1);
                        batch.discard(index);
                    }
                }
            }
            Self::Esp(esp) => {
                sequences.resize(batch.len(), 0);
                for index in packets {
                    match check_esp(esp, window, end, batch.packet(index)) {
                        Ok(sequence) => sequences[index] = sequence,
                        Err(reason) => {
                            drops.count(reason, 1);
                            batch.discard(index);
                        }
                    }
                }
            }
        }
    }

    /// Opens packets in place, and drops those whose tag is wrong.
    #[inline]
    pub fn open(&self, batch: &mut Batch, packets: Range<usize>, sequences: &[u64], drops: &DropCounters) {
        match self {
            Self::WireGuard(data) => data.open(batch, packets, drops),
            Self::Esp(esp) => esp.open(batch, packets, sequences, drops),
        }
    }

    /// Marks authentic packets as received, and drops duplicates; returns the number of new packets and their bytes.
    #[inline]
    pub fn accept(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        window: &mut ReplayWindow,
        sequences: &[u64],
        drops: &DropCounters,
    ) -> (usize, usize) {
        match self {
            Self::WireGuard(_) => move_window(batch, packets, window, drops, |batch, index| {
                WireGuard::counter(batch.packet(index))
            }),
            Self::Esp(_) => move_window(batch, packets, window, drops, |_, index| sequences[index]),
        }
    }

    /// Strips opened packets to their inner packets; returns whether there was one other than a keepalive.
    #[inline]
    pub fn strip(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) -> bool {
        match self {
            Self::WireGuard(data) => {
                strip_all(batch, packets, |batch, index| data.strip(batch, index, drops))
            }
            Self::Esp(esp) => strip_all(batch, packets, |batch, index| strip_esp(esp, batch, index, drops)),
        }
    }
}

/// The whole sequence number of a packet that may be one of this SA.
#[inline]
fn check_esp(esp: &Esp, window: &ReplayWindow, end: u64, packet: &[u8]) -> Result<u64, DropReason> {
    esp.layout().check(packet.len())?;
    let sequence = esp.infer_sequence(packet, window)?;
    if sequence >= end {
        return Err(DropReason::Replayed);
    }
    window.check(sequence)?;
    Ok(sequence)
}

#[inline]
fn move_window(
    batch: &mut Batch,
    packets: Range<usize>,
    window: &mut ReplayWindow,
    drops: &DropCounters,
    sequence: impl Fn(&Batch, usize) -> u64,
) -> (usize, usize) {
    let (mut authentic, mut bytes) = (0, 0);
    for index in packets {
        if !batch.is_live(index) {
            continue;
        }
        // A duplicate within one burst: the check before decryption could not see it.
        if let Err(reason) = window.accept(sequence(batch, index)) {
            drops.count(reason, 1);
            batch.discard(index);
            continue;
        }
        authentic += 1;
        bytes += batch.packet(index).len();
    }
    (authentic, bytes)
}

#[inline]
fn strip_all(
    batch: &mut Batch,
    packets: Range<usize>,
    mut strip: impl FnMut(&mut Batch, usize) -> bool,
) -> bool {
    let mut with_data = false;
    for index in packets {
        if batch.is_live(index) {
            with_data |= strip(batch, index);
        }
    }
    with_data
}

/// Strips an ESP packet to its inner packet; returns false if there is none.
#[inline]
fn strip_esp(esp: &Esp, batch: &mut Batch, index: usize, drops: &DropCounters) -> bool {
    let stripped = esp.strip(batch, index).and_then(|inner| match inner {
        Inner::Dummy => Err(DropReason::Dummy),
        Inner::Payload { .. } => cut(batch, index),
    });
    if let Err(reason) = stripped {
        drops.count(reason, 1);
        batch.discard(index);
    }
    stripped.is_ok()
}

/// Cuts off bytes after the inner packet (RFC 4303 section 2.7).
#[inline]
fn cut(batch: &mut Batch, index: usize) -> Result<(), DropReason> {
    let length = IpPacket::parse(batch.packet(index)).map_err(|_| DropReason::Malformed)?.bytes().len();
    batch.shrink(index, 0, length);
    Ok(())
}
