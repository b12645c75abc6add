//! The key of a measurement: direction, packets per call, bytes per packet.

/// Text lengths in bytes at which engines are measured. A packet belongs to the first size that is at least three
/// quarters of its length.
pub const SIZES: [usize; 9] = [64, 128, 256, 512, 1024, 1400, 2048, 4096, 9000];

/// Packets per call at which engines are measured.
pub const BURSTS: [usize; 2] = [1, 32];

/// A burst of at least this many packets uses the measurement of the large burst: the geometric mean of [`BURSTS`].
const MANY: usize = 6;

/// Sealing or opening, which are measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Outbound.
    Seal,
    /// Inbound.
    Open,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::Seal, Self::Open];

    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Open => "open",
        }
    }
}

/// The key of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Sealing or opening.
    pub direction: Direction,
    /// An index into [`BURSTS`].
    pub burst: usize,
    /// An index into [`SIZES`].
    pub size: usize,
}

/// Number of slots per cipher.
pub(super) const SLOTS: usize = 2 * BURSTS.len() * SIZES.len();

impl Slot {
    /// All slots.
    pub fn all() -> impl Iterator<Item = Self> {
        Direction::ALL.into_iter().flat_map(|direction| {
            (0..BURSTS.len())
                .flat_map(move |burst| (0..SIZES.len()).map(move |size| Self { direction, burst, size }))
        })
    }

    /// The slot of a burst of `packets`, of which the first has `length` bytes. Only the first is looked at, because
    /// bursts come from one read of a device.
    #[inline]
    pub fn of(direction: Direction, packets: usize, length: usize) -> Self {
        let size = SIZES.iter().position(|&size| length * 3 <= size * 4).unwrap_or(SIZES.len() - 1);
        Self { direction, burst: usize::from(packets >= MANY), size }
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        (self.direction as usize * BURSTS.len() + self.burst) * SIZES.len() + self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_belongs_to_the_nearest_size() {
        let size = |length| SIZES[Slot::of(Direction::Seal, 1, length).size];
        let lengths = [0, 64, 85, 86, 512, 683, 1365, 1366, 1420, 9000, 65_535];
        assert_eq!(lengths.map(size), [64, 64, 64, 128, 512, 1024, 1024, 1400, 1400, 9000, 9000]);
    }

    #[test]
    fn every_slot_has_its_own_index() {
        let mut indices: Vec<_> = Slot::all().map(Slot::index).collect();
        indices.sort_unstable();
        assert_eq!(indices, (0..SLOTS).collect::<Vec<_>>());
    }
}
