//! Flows that a worker has met, and what it found for them.

use super::FiveTuple;

/// Flows that are kept: 4,096, in 256 KiB with values of 8 bytes.
const PLACES: usize = 1 << 12;

/// What was found for each of the last flows. One worker owns it; a flow takes the place of another with equal hash.
///
/// It belongs to one table: a worker that gets a new table makes a new cache.
pub struct FlowCache<T> {
    places: Box<[Option<(FiveTuple, T)>]>,
}

impl<T: Copy> Default for FlowCache<T> {
    fn default() -> Self {
        Self { places: vec![None; PLACES].into_boxed_slice() }
    }
}

impl<T: Copy> FlowCache<T> {
    /// What was found for the flow, or what `find` finds now.
    #[inline]
    pub fn get_or(&mut self, flow: &FiveTuple, find: impl FnOnce() -> T) -> T {
        let place = &mut self.places[hash(flow)];
        match place {
            Some((known, found)) if known == flow => *found,
            _ => {
                let found = find();
                *place = Some((*flow, found));
                found
            }
        }
    }
}

/// The place of a flow. Flows that collide on purpose cost the look-up that they would have cost without a cache.
#[inline]
fn hash(flow: &FiveTuple) -> usize {
    // Odd multipliers from the golden ratio and from splitmix64.
    let fold = |number: u128| (number >> 64) as u64 ^ number as u64;
    let ports = u64::from(flow.source_port) << 24 | u64::from(flow.destination_port) << 8;
    let mixed = fold(flow.source).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ fold(flow.destination).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        ^ (ports | u64::from(flow.protocol)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ mixed >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: u32) -> FiveTuple {
        let (source, destination) = (number.into(), u128::from(number) << 64);
        FiveTuple { is_v4: false, protocol: 6, source_port: 1, destination_port: 2, source, destination }
    }

    #[test]
    fn a_flow_is_looked_up_once_and_is_never_taken_for_another() {
        let mut cache = FlowCache::default();
        // More flows than places: many take the place of another one.
        for number in 0..3 * PLACES as u32 {
            assert_eq!(cache.get_or(&flow(number), || number), number);
            let again = cache.get_or(&flow(number), || panic!("flow {number} is known"));
            assert_eq!(again, number);
        }
        assert_eq!(cache.get_or(&FiveTuple { is_v4: true, ..flow(7) }, || 8), 8);
        assert_eq!(cache.get_or(&FiveTuple { destination_port: 3, ..flow(7) }, || 9), 9);
    }

    #[test]
    fn like_flows_have_places_of_their_own() {
        let places: std::collections::HashSet<usize> = (0..1024).map(|number| hash(&flow(number))).collect();
        // By chance, 1,024 flows take 907 of 4,096 places.
        assert!(places.len() > 800, "{} places", places.len());
    }
}
