//! STAMP test packets without authentication (RFC 8762 section 4, with the session identifier and TLVs of RFC 8972).
//!
//! ```text
//! sender ──> Probe: sequence, timestamp, TLVs ──> reflector: reflect ──> Reflected: the same, both timestamps, TTL ──> sender
//! ```
//! A reflected packet is as long as the one that it answers, so that a reflector amplifies nothing and both directions are measured
//! with one size.

use super::Malformed;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a packet without TLVs, of a sender or a reflector.
pub const LENGTH: usize = 44;
/// Where a sender's packet begins to be zero.
const SENDER_ZERO: usize = 16;
/// Length of the header of a TLV: flags, type, length of the value.
pub const TLV_HEADER: usize = 4;

/// The type of padding (RFC 8972 section 4.1).
const EXTRA_PADDING: u8 = 1;
/// Flags of a TLV (RFC 8972 section 4): not understood, and malformed.
const UNRECOGNIZED: u8 = 0x80;
const MALFORMED: u8 = 0x40;
/// Not synchronized to UTC, NTP's format, 2^-10 s (RFC 4656 section 4.1.2): the delay of one direction is not computed, so the error of the clock does not matter.
const ERROR_ESTIMATE: u16 = 0x1601;
/// Seconds from 1900, where NTP's timestamps begin, to 1970.
const NTP_EPOCH: u64 = 2_208_988_800;

/// A sender's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Probe {
    /// Its number.
    pub sequence: U32,
    /// When it was sent, in NTP's format: seconds since 1900, and parts of 2^32.
    pub timestamp: U64,
    error_estimate: U16,
    /// The sender's session.
    pub session: U16,
    zero: [u8; 28],
}

/// The number and the session of a sender's packet that an ICMP error quotes; the session only if it quotes as much.
pub fn quoted(bytes: &[u8]) -> Option<(u32, Option<u16>)> {
    let sequence = u32::from_be_bytes(*bytes.first_chunk()?);
    let session = bytes.get(14..).and_then(|rest| rest.first_chunk());
    Some((sequence, session.map(|session| u16::from_be_bytes(*session))))
}

impl Probe {
    /// A packet without TLVs.
    pub fn new(sequence: u32, timestamp: u64, session: u16) -> Self {
        Self {
            sequence: sequence.into(),
            timestamp: timestamp.into(),
            error_estimate: ERROR_ESTIMATE.into(),
            session: session.into(),
            zero: [0; 28],
        }
    }

    /// Appends the packet, padded to `length` bytes with a TLV. Less than [`LENGTH`] and its header has no padding.
    ///
    /// The padding cannot be compressed, as a tunnel may do that.
    pub fn emit(&self, length: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
        let Some(padding) = length.checked_sub(LENGTH + TLV_HEADER) else { return };
        let [high, low] = (padding as u16).to_be_bytes();
        out.extend_from_slice(&[UNRECOGNIZED, EXTRA_PADDING, high, low]);
        pad(u64::from(self.sequence.get()), padding, out);
    }
}

/// A reflector's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Reflected {
    /// Its number; of a stateless reflector the sender's.
    pub sequence: U32,
    /// When it was sent.
    pub timestamp: U64,
    error_estimate: U16,
    /// The sender's session.
    pub session: U16,
    /// When the sender's packet arrived.
    pub received: U64,
    /// The number of the sender's packet.
    pub sender_sequence: U32,
    /// When the sender sent it.
    pub sender_timestamp: U64,
    sender_error_estimate: U16,
    zero: [u8; 2],
    /// The TTL with which it arrived.
    pub sender_ttl: u8,
    zeros: [u8; 3],
}

impl Reflected {
    /// Reads a reflector's packet, whatever TLVs follow.
    pub fn parse(bytes: &[u8]) -> Result<&Self, Malformed> {
        Self::ref_from_prefix(bytes).map(|(header, _)| header).map_err(|_| Malformed)
    }
}

/// Whether this is what a reflector sends: behind the first 16 bytes a sender's packet is zero, while a reflector's has times there, and
/// two bytes between them that are zero (RFC 8762 section 4.3.1).
///
/// Other bytes there are no reason to refuse a sender's packet (section 4.2.1). TWAMP Light has padding there (section 4.6).
pub fn is_reflected(bytes: &[u8]) -> bool {
    let Ok(reflected) = Reflected::parse(bytes) else { return false };
    reflected.zero == [0; 2] && bytes[SENDER_ZERO..LENGTH].iter().any(|byte| *byte != 0)
}

/// Makes the answer to a sender's packet in `bytes` of it, as a stateless reflector (RFC 8762 section 4.3). It arrived at `received`
/// with this TTL, and is answered at `now`.
pub fn reflect(bytes: &mut [u8], received: u64, now: u64, ttl: u8) -> Result<(), Malformed> {
    let (header, tlvs) = bytes.split_at_mut_checked(LENGTH).ok_or(Malformed)?;
    let probe = Probe::read_from_bytes(header).map_err(|_| Malformed)?;
    let reflected = Reflected {
        sequence: probe.sequence,
        timestamp: now.into(),
        error_estimate: ERROR_ESTIMATE.into(),
        session: probe.session,
        received: received.into(),
        sender_sequence: probe.sequence,
        sender_timestamp: probe.timestamp,
        sender_error_estimate: probe.error_estimate,
        zero: [0; 2],
        sender_ttl: ttl,
        zeros: [0; 3],
    };
    header.copy_from_slice(reflected.as_bytes());
    flag(tlvs);
    Ok(())
}

/// Sets the flags of TLVs as RFC 8972 section 4 has it: all but padding are not understood, and one that is too long is malformed,
/// after which nothing is read.
fn flag(mut tlvs: &mut [u8]) {
    while let [flags, kind, high, low, rest @ ..] = tlvs {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        *flags = if *kind == EXTRA_PADDING { 0 } else { UNRECOGNIZED };
        let Some((_, others)) = rest.split_at_mut_checked(length) else {
            *flags |= MALFORMED;
            return;
        };
        tlvs = others;
    }
}

/// Appends bytes that cannot be compressed, different ones for each seed.
pub fn pad(seed: u64, length: usize, out: &mut Vec<u8>) {
    let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15) | 1;
    let end = out.len() + length;
    while out.len() < end {
        // Marsaglia, Xorshift RNGs.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let bytes = state.to_le_bytes();
        let take = bytes.len().min(end - out.len());
        out.extend_from_slice(&bytes[..take]);
    }
}

/// A time since 1970 in NTP's format.
pub fn ntp(since_1970: std::time::Duration) -> u64 {
    let seconds = (since_1970.as_secs() + NTP_EPOCH) & 0xffff_ffff;
    (seconds << 32) | ((u64::from(since_1970.subsec_nanos()) << 32) / 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_quoted_packet_tells_its_number_and_its_session() {
        let mut bytes = Vec::new();
        Probe::new(7, 1, 9).emit(0, &mut bytes);
        assert_eq!(quoted(&bytes), Some((7, Some(9))));
        assert_eq!(
            quoted(&bytes[..15]),
            Some((7, None)),
            "RFC 792: eight bytes behind the IP header at least"
        );
        assert_eq!(quoted(&bytes[..3]), None);
    }

    #[test]
    fn a_probe_is_reflected_as_rfc_8762_has_it() {
        let mut bytes = Vec::new();
        Probe::new(7, 0x1122_3344_5566_7788, 9).emit(LENGTH, &mut bytes);
        assert_eq!(bytes.len(), LENGTH);
        assert_eq!(bytes[..16], [0, 0, 0, 7, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x16, 1, 0, 9]);
        assert!(bytes[16..].iter().all(|byte| *byte == 0), "it must be zero");
        reflect(&mut bytes, 5, 6, 63).expect("it is long enough");
        let expected = [
            &[0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 6, 0x16, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5][..],
            &[0, 0, 0, 7, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x16, 1, 0, 0, 63, 0, 0, 0],
        ];
        assert_eq!(bytes, expected.concat());
        let reflected = Reflected::parse(&bytes).expect("it is one");
        assert_eq!((reflected.sender_sequence.get(), reflected.session.get()), (7, 9));
    }

    #[test]
    fn what_a_reflector_sent_is_known_and_what_a_sender_sent_is_not_taken_for_it() {
        let mut bytes = Vec::new();
        Probe::new(7, 8, 9).emit(100, &mut bytes);
        assert!(!is_reflected(&bytes));
        let padded = [&bytes[..SENDER_ZERO], &[0xa5; 40]].concat();
        assert!(!is_reflected(&padded), "as of TWAMP Light");
        for mut sent in [bytes, padded] {
            reflect(&mut sent, 1, 2, 0).expect("it is long enough");
            assert!(is_reflected(&sent));
            assert!(!is_reflected(&sent[..LENGTH - 1]));
        }
    }

    #[test]
    fn an_answer_is_as_long_as_the_probe_and_padding_is_understood() {
        for length in [LENGTH, 48, 49, 576, 1392] {
            let mut bytes = Vec::new();
            Probe::new(1, 2, 3).emit(length, &mut bytes);
            assert_eq!(bytes.len(), length);
            let sent = bytes.clone();
            reflect(&mut bytes, 0, 0, 64).expect("it is long enough");
            assert_eq!(bytes.len(), length);
            if length > LENGTH {
                assert_eq!((sent[LENGTH], bytes[LENGTH]), (UNRECOGNIZED, 0), "flags");
                assert_eq!(sent[LENGTH + 1..], bytes[LENGTH + 1..]);
            }
        }
        let mut short = Vec::new();
        Probe::new(1, 2, 3).emit(46, &mut short);
        assert_eq!(short.len(), LENGTH, "there is no room for a header");
    }

    #[test]
    fn other_tlvs_are_marked_and_malformed_ones_end_the_reading() {
        let mut bytes = Vec::new();
        Probe::new(1, 2, 3).emit(LENGTH, &mut bytes);
        bytes.extend([0, 2, 0, 4, 1, 2, 3, 4, 0x80, 1, 0, 0, 0x80, 1, 0, 9, 5, 0]);
        reflect(&mut bytes, 0, 0, 64).expect("it is long enough");
        assert_eq!(bytes[LENGTH..], [0x80, 2, 0, 4, 1, 2, 3, 4, 0, 1, 0, 0, 0x40, 1, 0, 9, 5, 0]);
        for length in 0..LENGTH {
            assert_eq!(reflect(&mut bytes[..length], 0, 0, 64), Err(Malformed));
            assert_eq!(Reflected::parse(&bytes[..length]), Err(Malformed));
        }
        for length in LENGTH..bytes.len() {
            assert_eq!(reflect(&mut bytes[..length], 0, 0, 64), Ok(()));
        }
    }

    #[test]
    fn ntp_counts_from_1900_in_halves_quarters_and_so_on() {
        assert_eq!(ntp(Duration::ZERO), 0x83aa_7e80_0000_0000);
        assert_eq!(ntp(Duration::from_millis(1750)), 0x83aa_7e81_c000_0000);
        // Era 1 begins in 2036.
        assert_eq!(ntp(Duration::from_secs(0x1_0000_0000 - NTP_EPOCH)), 0);
    }
}
