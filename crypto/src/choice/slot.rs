//! A place in the table of the choice: direction, packets in a call, bytes in a packet.

/// Bytes of text at which engines are measured. A packet goes by the first of which it has at most four thirds.
pub const SIZES: [usize; 9] = [64, 128, 256, 512, 1024, 1400, 2048, 4096, 9000];

/// Packets in one call at which engines are measured.
pub const BURSTS: [usize; 2] = [1, 32];

/// From this many packets on, a burst goes by what was measured for many: the geometric mean of [`BURSTS`].
const MANY: usize = 6;

/// Sealing and opening are measured apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Outbound.
    Seal,
    /// Inbound.
    Open,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Seal, Self::Open];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Open => "open",
        }
    }
}

/// A place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Sealing or opening.
    pub direction: Direction,
    /// An index into [`BURSTS`].
    pub burst: usize,
    /// An index into [`SIZES`].
    pub size: usize,
}

/// Places in the table of one cipher.
pub(super) const SLOTS: usize = 2 * BURSTS.len() * SIZES.len();

impl Slot {
    /// Every place.
    pub fn all() -> impl Iterator<Item = Self> {
        Direction::ALL.into_iter().flat_map(|direction| {
            (0..BURSTS.len())
                .flat_map(move |burst| (0..SIZES.len()).map(move |size| Self { direction, burst, size }))
        })
    }

    /// Where a burst of `packets` belongs, of which the first has `length` bytes. That one stands for all: bursts come
    /// from one read of a device.
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
    fn a_packet_goes_by_the_size_nearest_to_its_own() {
        let size = |length| SIZES[Slot::of(Direction::Seal, 1, length).size];
        let lengths = [0, 64, 85, 86, 512, 683, 1365, 1366, 1420, 9000, 65_535];
        assert_eq!(lengths.map(size), [64, 64, 64, 128, 512, 1024, 1024, 1400, 1400, 9000, 9000]);
    }

    #[test]
    fn every_place_has_its_own_index() {
        let mut indices: Vec<_> = Slot::all().map(Slot::index).collect();
        indices.sort_unstable();
        assert_eq!(indices, (0..SLOTS).collect::<Vec<_>>());
    }
}
