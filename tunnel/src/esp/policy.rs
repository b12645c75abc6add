//! The security policy database (RFC 4301 section 4.4.1): it maps packets to tunnels.
//!
//! The first policy with matching selectors decides; a packet that matches none is discarded. The index is by remote
//! address: the boundaries of all ranges split the address space into intervals, and each interval has few
//! candidates.
//!
//! A [`PolicyWriter`] publishes a change without building the index of all policies again.

mod writer;

use super::selector::Selectors;
use packet::header::flow::Flow;
use std::sync::Arc;
pub use writer::PolicyWriter;

/// How a matching packet is processed (RFC 4301 section 4.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processing<T> {
    /// Send it through this tunnel.
    Protect(T),
    /// Leave it unprotected: the data path does not carry it.
    Bypass,
    /// Drop it.
    Discard,
}

/// One policy.
#[derive(Clone, Debug)]
pub struct Policy<T> {
    /// The selectors of the policy.
    pub selectors: Selectors,
    /// How matching packets are processed.
    pub processing: Processing<T>,
}

/// All policies, in order: an immutable base that successive versions share, and what has changed since.
#[derive(Debug)]
pub struct Policies<T> {
    base: Arc<PolicyIndex<T>>,
    /// The policies of the base that no longer apply, in order.
    removed: Vec<u32>,
    added: PolicyIndex<T>,
    /// For each added policy, the number of policies of the base that precede it.
    preceding: Vec<u32>,
}

impl<T> Default for Policies<T> {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl<T> Policies<T> {
    /// Creates a database; the first matching entry decides.
    pub fn new(entries: Vec<Policy<T>>) -> Self {
        let (base, added) = (Arc::new(PolicyIndex::new(entries)), PolicyIndex::new(Vec::new()));
        Self { base, removed: Vec::new(), added, preceding: Vec::new() }
    }

    /// How an outbound packet is processed; `None` if no policy matches, and the packet must be dropped.
    pub fn outbound(&self, flow: &Flow) -> Option<&Processing<T>> {
        let base = self.base.first(flow, &self.removed);
        let added = self.added.first(flow, &[]);
        let policy = match (base, added) {
            (Some(base), Some(added)) if self.preceding[added as usize] <= base => self.added.get(added),
            (Some(base), _) => self.base.get(base),
            (None, added) => self.added.get(added?),
        };
        Some(&policy.processing)
    }
}

/// Policies in order, with an index for each family.
#[derive(Debug)]
struct PolicyIndex<T> {
    entries: Vec<Policy<T>>,
    v4: Index,
    v6: Index,
}

impl<T> PolicyIndex<T> {
    fn new(entries: Vec<Policy<T>>) -> Self {
        let (v4, v6) = (Index::of(&entries, true), Index::of(&entries, false));
        Self { entries, v4, v6 }
    }

    /// The first matching policy, except those in `removed`.
    fn first(&self, flow: &Flow, removed: &[u32]) -> Option<u32> {
        let index = if flow.is_v4 { &self.v4 } else { &self.v6 };
        let matches = |&&entry: &&u32| {
            self.get(entry).selectors.match_outbound(flow) && removed.binary_search(&entry).is_err()
        };
        let narrow = index.candidates(flow.destination).iter().find(matches);
        let before = |entry: &&u32| narrow.is_none_or(|narrow| *entry < narrow);
        let wide = index.wide.iter().take_while(before).find(matches);
        wide.or(narrow).copied()
    }

    fn get(&self, entry: u32) -> &Policy<T> {
        &self.entries[entry as usize]
    }
}

/// Ranges over more intervals than this are kept in a separate list, or a few of them would fill the table.
const WIDE: usize = 64;

/// An index from remote addresses of one family to policies.
#[derive(Debug, Default)]
struct Index {
    /// The start of each interval.
    starts: Vec<u128>,
    /// The end of each interval's candidates in `candidates`; they start at the end of the previous ones.
    ends: Vec<usize>,
    candidates: Vec<u32>,
    /// Policies with a wide range.
    wide: Vec<u32>,
}

impl Index {
    fn of<T>(entries: &[Policy<T>], v4: bool) -> Self {
        let ranges: Vec<(u128, u128, u32)> = entries
            .iter()
            .zip(0..)
            .flat_map(|(policy, number)| policy.selectors.remote.iter().map(move |side| (side, number)))
            .filter(|(side, _)| side.is_v4 == v4)
            .map(|(side, number)| (side.first, side.last, number))
            .collect();
        let ends = ranges.iter().filter_map(|(_, last, _)| last.checked_add(1));
        let mut starts: Vec<u128> = ranges.iter().map(|&(first, ..)| first).chain(ends).collect();
        starts.sort_unstable();
        starts.dedup();
        let mut pieces = vec![Vec::new(); starts.len()];
        let mut index = Self::default();
        for (first, last, number) in ranges {
            let begin = starts.partition_point(|&start| start < first);
            let end = starts.partition_point(|&start| start <= last);
            if end - begin > WIDE {
                index.wide.push(number);
            } else {
                pieces[begin..end].iter_mut().for_each(|piece: &mut Vec<u32>| piece.push(number));
            }
        }
        for piece in pieces {
            index.candidates.extend(piece);
            index.ends.push(index.candidates.len());
        }
        Self { starts, ..index }
    }

    /// The policies for an address, in order.
    fn candidates(&self, address: u128) -> &[u32] {
        let Some(piece) = self.starts.partition_point(|&start| start <= address).checked_sub(1) else {
            return &[];
        };
        let begin = piece.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.candidates[begin..self.ends[piece]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::esp::TrafficSelector;
    use packet::header::flow::number;
    use packet::header::ip::{TCP, UDP};
    use rand::{RngExt, SeedableRng};
    use std::net::IpAddr;

    fn range(first: &str, last: &str) -> TrafficSelector {
        let addresses = first.parse().expect("literal")..=last.parse().expect("literal");
        TrafficSelector { protocol: 0, ports: 0..=u16::MAX, addresses }
    }

    fn policy(local: TrafficSelector, remote: TrafficSelector, processing: Processing<u32>) -> Policy<u32> {
        Policy { selectors: Selectors::new(&[local], &[remote]), processing }
    }

    fn everything() -> TrafficSelector {
        range("0.0.0.0", "255.255.255.255")
    }

    fn flow(source: &str, destination: &str) -> Flow {
        let address = |text: &str| text.parse().expect("literal");
        of(address(source), address(destination))
    }

    fn of(source: IpAddr, destination: IpAddr) -> Flow {
        let (is_v4, source, destination) = (source.is_ipv4(), number(source), number(destination));
        Flow { is_v4, protocol: UDP, ports: None, source, destination }
    }

    #[test]
    fn without_a_policy_nothing_passes() {
        assert_eq!(Policies::<u32>::default().outbound(&flow("10.0.0.1", "10.0.0.2")), None);
        let policies = Policies::new(vec![policy(everything(), everything(), Processing::Bypass)]);
        assert_eq!(policies.outbound(&flow("fd00::1", "fd00::2")), None, "not even of the other family");
    }

    #[test]
    fn the_first_that_matches_decides() {
        let host = range("10.2.0.5", "10.2.0.5");
        let net = range("10.2.0.0", "10.2.255.255");
        let mut web = host.clone();
        (web.protocol, web.ports) = (TCP, 80..=80);
        let policies = Policies::new(vec![
            policy(everything(), web, Processing::Bypass),
            policy(range("10.1.0.9", "10.1.0.9"), everything(), Processing::Discard),
            policy(everything(), net, Processing::Protect(1)),
            policy(everything(), host, Processing::Protect(2)),
        ]);
        assert_eq!(policies.outbound(&flow("10.1.0.1", "10.2.0.5")), Some(&Processing::Protect(1)));
        assert_eq!(policies.outbound(&flow("10.1.0.9", "10.2.0.5")), Some(&Processing::Discard));
        let web = Flow { protocol: TCP, ports: Some((9, 80)), ..flow("10.1.0.9", "10.2.0.5") };
        assert_eq!(policies.outbound(&web), Some(&Processing::Bypass));
        assert_eq!(policies.outbound(&flow("10.1.0.1", "10.3.0.0")), None);
        assert_eq!(policies.outbound(&flow("10.1.0.1", "10.1.255.255")), None);
    }

    #[test]
    fn the_ends_of_the_address_space_are_addresses() {
        let policies = Policies::new(vec![
            policy(everything(), range("255.255.255.255", "255.255.255.255"), Processing::Protect(1)),
            policy(everything(), range("0.0.0.0", "0.0.0.0"), Processing::Protect(2)),
            policy(
                range("::", "::1"),
                range("ffff::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
                Processing::Bypass,
            ),
        ]);
        assert_eq!(policies.outbound(&flow("1.1.1.1", "255.255.255.255")), Some(&Processing::Protect(1)));
        assert_eq!(policies.outbound(&flow("1.1.1.1", "0.0.0.0")), Some(&Processing::Protect(2)));
        assert_eq!(policies.outbound(&flow("1.1.1.1", "0.0.0.1")), None);
        let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        assert_eq!(policies.outbound(&flow("::1", last)), Some(&Processing::Bypass));
    }

    #[test]
    fn agrees_with_a_search_from_first_to_last() {
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(4);
        let mut address =
            |bits: u32| IpAddr::from((random.random::<u32>() >> (32 - bits) | 0x0a00_0000).to_be_bytes());
        let mut entries = Vec::new();
        for number in 0..500 {
            let (local, remote) =
                ((address(8), address(8)), (address(16), address(if number % 9 == 0 { 24 } else { 16 })));
            let side = |(a, b): (IpAddr, IpAddr)| TrafficSelector {
                protocol: 0,
                ports: 0..=u16::MAX,
                addresses: a.min(b)..=if number % 3 == 0 { a.min(b) } else { a.max(b) },
            };
            entries.push(policy(side(local), side(remote), Processing::Protect(number)));
        }
        let policies = Policies::new(entries.clone());
        let mut found = 0;
        for _ in 0..20_000 {
            let flow = of(address(8), address(17));
            let expected = entries.iter().find(|policy| policy.selectors.match_outbound(&flow));
            assert_eq!(policies.outbound(&flow), expected.map(|policy| &policy.processing), "{flow:?}");
            found += usize::from(expected.is_some());
        }
        assert!((1000..19_000).contains(&found), "{found} found: the test tests something");
        let index = &policies.base.v4;
        assert!(!index.wide.is_empty() && !index.candidates.is_empty());
    }
}
