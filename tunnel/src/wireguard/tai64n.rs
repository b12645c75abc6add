//! TAI64N timestamps (section 5.1), which make each initiation newer than all earlier ones.

use std::time::Duration;

/// A time as 12 big-endian bytes, so that comparing bytes compares times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tai64n(pub [u8; 12]);

/// 2^62, where TAI64 puts the year 1970, and the ten leap seconds up to 1972.
const BASE: u64 = (1 << 62) + 10;
/// Timestamps are rounded down to this many nanoseconds, as their exact value would reveal the clock.
const GRAIN: u32 = 1 << 24;

impl Tai64n {
    /// The timestamp for a time since 1970.
    pub fn new(since_1970: Duration) -> Self {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&(BASE + since_1970.as_secs()).to_be_bytes());
        bytes[8..].copy_from_slice(&(since_1970.subsec_nanos() & !(GRAIN - 1)).to_be_bytes());
        Self(bytes)
    }

    /// The smallest timestamp later than this one.
    #[must_use]
    pub fn successor(self) -> Self {
        let seconds = u64::from_be_bytes(self.0[..8].try_into().expect("8 bytes"));
        let nanoseconds = u32::from_be_bytes(self.0[8..].try_into().expect("4 bytes"));
        Self::new(Duration::new(seconds - BASE, nanoseconds) + Duration::from_nanos(GRAIN.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_moments_compare_greater() {
        let early = Tai64n::new(Duration::new(1_700_000_000, 999_999_999));
        let late = Tai64n::new(Duration::new(1_700_000_001, 0));
        assert!(early < late);
        assert_eq!(&late.0[..8], &0x4000_0000_6553_f10b_u64.to_be_bytes());
    }

    #[test]
    fn a_timestamp_tells_sixteen_milliseconds_at_best() {
        let at = |nanoseconds| Tai64n::new(Duration::new(5, nanoseconds));
        assert_eq!(at(0), at(16_777_215));
        assert!(at(0) < at(16_777_216));
    }

    #[test]
    fn the_successor_is_later_across_a_second() {
        let mut timestamp = Tai64n::new(Duration::new(5, 0));
        for _ in 0..200 {
            let next = timestamp.successor();
            assert!(next > timestamp);
            timestamp = next;
        }
        assert!(timestamp > Tai64n::new(Duration::new(8, 0)));
    }
}
