//! Publishes changes of the policies.
//!
//! A version shares its base with the version before it and has an index of its own for the changes since. When there
//! are many changes, they are merged into a new base.

use super::{Policies, Policy, PolicyIndex};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The policies with their order, from which versions for the data path are made. The lowest `Place` is matched first.
///
/// The cost of a version grows with the square root of the number of policies, on average over many changes.
pub struct PolicyWriter<Place, T> {
    base: Arc<PolicyIndex<T>>,
    /// The places of the policies of the base, in order.
    places: Vec<Place>,
    /// The changes since the base was built; `None` for a removed policy.
    changes: BTreeMap<Place, Option<Policy<T>>>,
}

impl<Place, T> Default for PolicyWriter<Place, T> {
    fn default() -> Self {
        Self { base: Arc::new(PolicyIndex::new(Vec::new())), places: Vec::new(), changes: BTreeMap::new() }
    }
}

impl<Place: Ord, T: Clone> PolicyWriter<Place, T> {
    /// Adds a policy, or replaces the one at this place.
    pub fn insert(&mut self, place: Place, policy: Policy<T>) {
        self.changes.insert(place, Some(policy));
    }

    /// Removes the policy at this place, if there is one.
    pub fn remove(&mut self, place: Place) {
        self.changes.insert(place, None);
    }

    /// The policies after all changes so far.
    pub fn publish(&mut self) -> Policies<T> {
        // A version costs as much as there are changes, a merge as much as there are policies. The sum is lowest where
        // both are equal on average.
        if self.changes.len().pow(2) > 2 * self.places.len() {
            self.merge();
        }
        let removed = self.changes.keys().filter_map(|place| self.places.binary_search(place).ok());
        let removed = removed.map(|entry| entry as u32).collect();
        let added = self.changes.iter().filter_map(|(place, change)| Some((place, change.clone()?)));
        let (preceding, added) = added.map(|(place, policy)| (self.preceding(place), policy)).unzip();
        Policies { base: Arc::clone(&self.base), removed, added: PolicyIndex::new(added), preceding }
    }

    /// The number of policies of the base that precede this place.
    fn preceding(&self, place: &Place) -> u32 {
        self.places.partition_point(|before| before < place) as u32
    }

    /// Builds a new base.
    fn merge(&mut self) {
        let (places, changes) = (std::mem::take(&mut self.places), std::mem::take(&mut self.changes));
        let kept =
            places.into_iter().zip(&self.base.entries).filter(|(place, _)| !changes.contains_key(place));
        let mut all: Vec<_> = kept.map(|(place, policy)| (place, policy.clone())).collect();
        all.extend(changes.into_iter().filter_map(|(place, change)| Some((place, change?))));
        // Two sorted sequences, which this sort merges.
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (places, entries) = all.into_iter().unzip();
        (self.places, self.base) = (places, Arc::new(PolicyIndex::new(entries)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::esp::{Processing, Selectors, TrafficSelector};
    use packet::header::flow::Flow;
    use packet::header::ip::UDP;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use std::net::IpAddr;

    /// A policy for one to all of 256 addresses.
    fn policy(random: &mut ChaCha8Rng, tunnel: u32) -> Policy<u32> {
        let mut ends = [random.random::<u8>(), random.random()];
        ends.sort_unstable();
        let [first, last] = match random.random_range(0..4) {
            0 => [0, u8::MAX],
            1 => [ends[0]; 2],
            _ => ends,
        };
        let side = |first, last| TrafficSelector {
            protocol: 0,
            ports: 0..=u16::MAX,
            addresses: IpAddr::from([10, 0, 0, first])..=IpAddr::from([10, 0, 0, last]),
        };
        let selectors = Selectors::new(&[side(0, u8::MAX)], &[side(first, last)]);
        Policy { selectors, processing: Processing::Protect(tunnel) }
    }

    fn flow(destination: u8) -> Flow {
        let number = |last| u128::from(u32::from_be_bytes([10, 0, 0, last]));
        Flow { is_v4: true, protocol: UDP, ports: None, source: number(1), destination: number(destination) }
    }

    /// Every version is what a rebuild of all policies at that moment is, whatever was added, changed or removed before.
    #[test]
    fn every_version_equals_a_rebuild() {
        let (mut overlaid, mut removed, mut merged) = (0, 0, 0);
        for seed in 0..20 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut writer = PolicyWriter::default();
            let mut expected: BTreeMap<u32, Policy<u32>> = BTreeMap::new();
            let places = random.random_range(2..400);
            for version in 0..200 {
                // One change as a rule, sometimes many at once.
                for change in 0..if version % 40 == 0 { places } else { 1 } {
                    let place = random.random_range(0..places);
                    if random.random_range(0..5) < 2 {
                        writer.remove(place);
                        expected.remove(&place);
                    } else {
                        let policy = policy(&mut random, version * 1000 + change);
                        writer.insert(place, policy.clone());
                        expected.insert(place, policy);
                    }
                }
                let published = writer.publish();
                overlaid += usize::from(!published.added.entries.is_empty());
                removed += usize::from(!published.removed.is_empty());
                merged += usize::from(writer.changes.is_empty());
                let rebuilt = Policies::new(expected.values().cloned().collect());
                for destination in 0..=u8::MAX {
                    let flow = flow(destination);
                    assert_eq!(
                        published.outbound(&flow),
                        rebuilt.outbound(&flow),
                        "{seed} {version} {flow:?}"
                    );
                }
            }
        }
        assert!(overlaid.min(removed).min(merged) > 100, "{overlaid} {removed} {merged}: each is tested");
    }

    #[test]
    fn a_removed_policy_is_no_longer_matched_and_later_ones_are() {
        let mut random = ChaCha8Rng::seed_from_u64(0);
        let everything = |tunnel| {
            let all = [TrafficSelector {
                protocol: 0,
                ports: 0..=u16::MAX,
                addresses: IpAddr::from([0; 4])..=IpAddr::from([255; 4]),
            }];
            let selectors = Selectors::new(&all, &all);
            Policy { selectors, processing: Processing::Protect(tunnel) }
        };
        let mut writer = PolicyWriter::default();
        for place in 100..200 {
            writer.insert(place, Policy { selectors: Selectors::default(), ..policy(&mut random, place) });
        }
        writer.insert(1, everything(1));
        writer.insert(300, everything(300));
        assert_eq!(writer.publish().outbound(&flow(7)), Some(&Processing::Protect(1)));
        writer.remove(1);
        assert_eq!(writer.publish().outbound(&flow(7)), Some(&Processing::Protect(300)));
        writer.insert(150, everything(150));
        assert_eq!(writer.publish().outbound(&flow(7)), Some(&Processing::Protect(150)));
        writer.remove(150);
        writer.remove(300);
        let last = writer.publish();
        assert_eq!(last.outbound(&flow(7)), None);
        assert_eq!((last.removed.len(), writer.places.len()), (3, 102), "without a new base");
    }
}
