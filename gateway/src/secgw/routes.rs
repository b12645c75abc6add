//! Routes: the destination of a packet finds the route with the longest prefix around it.
//!
//! ```text
//! routes of both families ──> Routes::build ──> swapped in whole ──> find
//! ```
//!
//! [`Routes`] is built off the worker and never changes. A worker reads it through `arc_swap` or an `Arc` of its own.
//! [`RouteIndex`] is a number of the caller's choice, such as a next hop. Neighbours with equal numbers share memory,
//! so number next hops rather than prefixes.
//!
//! Crates: `prefix-trie`, which holds WireGuard's allowed IPs, is a binary trie: one read from memory for each bit
//! where prefixes part. `poptrie` 0.2 has the structure of ours, but each insertion moves all nodes behind it: the time
//! to build grows with the square of the prefixes. `ip_network_table-deps-treebitmap` had its last release in 2020.

use super::prefix_trie::{MOST, Prefix, PrefixTrie};
use ipnet::IpNet;
use std::net::IpAddr;

/// What a route leads to: a number of the caller's choice below 2^31 - 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteIndex(pub u32);

/// The value of an address without a route.
const NONE: u32 = MOST;

/// A table of routes of both families.
pub struct Routes {
    v4: PrefixTrie<u32>,
    v6: PrefixTrie<u128>,
}

impl Routes {
    /// Builds the table. Bits behind a prefix length are ignored; of two equal prefixes, the later one counts.
    pub fn build(routes: impl IntoIterator<Item = (IpNet, RouteIndex)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (network, RouteIndex(value)) in routes {
            assert!(value < NONE, "a route index is below 2^31 - 2");
            let length = network.prefix_len();
            match network.network() {
                IpAddr::V4(address) => v4.push(Prefix { address: address.to_bits(), length, value }),
                IpAddr::V6(address) => v6.push(Prefix { address: address.to_bits(), length, value }),
            }
        }
        Self { v4: PrefixTrie::build(&mut v4, NONE), v6: PrefixTrie::build(&mut v6, NONE) }
    }

    /// The route with the longest prefix around the address.
    #[inline]
    pub fn find(&self, address: IpAddr) -> Option<RouteIndex> {
        match address {
            IpAddr::V4(address) => self.find_v4(address.to_bits()),
            IpAddr::V6(address) => self.find_v6(address.to_bits()),
        }
    }

    /// [`find`](Self::find) for an IPv4 address as a number.
    #[inline]
    pub fn find_v4(&self, address: u32) -> Option<RouteIndex> {
        index(self.v4.find(address))
    }

    /// [`find`](Self::find) for an IPv6 address as a number.
    #[inline]
    pub fn find_v6(&self, address: u128) -> Option<RouteIndex> {
        index(self.v6.find(address))
    }

    /// Bytes that the table takes.
    pub fn memory(&self) -> usize {
        self.v4.memory() + self.v6.memory()
    }
}

fn index(value: u32) -> Option<RouteIndex> {
    (value != NONE).then_some(RouteIndex(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    /// The route with the longest prefix, of equal ones the last.
    fn one_by_one(routes: &[(IpNet, RouteIndex)], address: IpAddr) -> Option<RouteIndex> {
        let around = routes.iter().filter(|(net, _)| net.contains(&address));
        around.max_by_key(|(net, _)| net.prefix_len()).map(|&(_, index)| index)
    }

    fn agrees(routes: &[(IpNet, RouteIndex)], addresses: &[IpAddr]) {
        let table = Routes::build(routes.iter().copied());
        let expected = |address: &IpAddr| one_by_one(routes, *address);
        for address in addresses {
            assert_eq!(table.find(*address), expected(address), "{address}");
        }
    }

    /// Addresses that often fall into each other's prefixes: few values in the bytes.
    fn any_address() -> impl Strategy<Value = IpAddr> {
        let byte = prop_oneof![6 => 0..3_u8, 1 => any::<u8>()];
        (any::<bool>(), vec(byte, 16)).prop_map(|(is_v4, bytes)| {
            let number = u128::from_be_bytes(bytes.try_into().expect("16 bytes"));
            if is_v4 { IpAddr::V4(((number >> 96) as u32).into()) } else { IpAddr::V6(number.into()) }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_longest_prefix_is_found(
            prefixes in vec((any_address(), any::<u8>(), 0..4_u32), 0..100),
            addresses in vec(any_address(), 50),
        ) {
            let routes: Vec<(IpNet, RouteIndex)> = prefixes
                .into_iter()
                .map(|(address, length, index)| {
                    let lengths = if address.is_ipv4() { 33 } else { 129 };
                    (IpNet::new(address, length % lengths).expect("a length"), RouteIndex(index))
                })
                .collect();
            // The first and last addresses of prefixes, where a mistake of one bit shows.
            let ends = routes.iter().flat_map(|(net, _)| [net.network(), net.broadcast()]);
            let addresses: Vec<IpAddr> = addresses.into_iter().chain(ends).collect();
            agrees(&routes, &addresses);
        }
    }

    #[test]
    fn a_large_table_finds_the_longest_prefix() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut routes: Vec<(IpNet, RouteIndex)> = Vec::new();
        for index in 0..40_000 {
            let number: u128 = random.random();
            let v4 = IpNet::new(IpAddr::V4((number as u32).into()), random.random_range(8..=32));
            let v6 = IpNet::new(IpAddr::V6((number >> 3 | 1 << 125).into()), random.random_range(16..=128));
            routes.extend([v4, v6].map(|net| (net.expect("a length"), RouteIndex(index))));
        }
        let addresses: Vec<IpAddr> = routes.iter().step_by(900).map(|(net, _)| net.addr()).collect();
        agrees(&routes, &addresses);
    }

    #[test]
    fn hosts_of_ipv6_take_the_stated_memory() {
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let count = 20_000;
        let hosts = (0..count)
            .map(|index| (IpNet::from(IpAddr::V6(random.random::<u128>().into())), RouteIndex(index)));
        let table = Routes::build(hosts);
        // 20 nodes of 24 bytes behind the first 12 bits, and in each at most three runs of values.
        let most = 20 * (24 + 12) * count as usize + (2 << 20);
        assert!(table.memory() < most, "{} bytes", table.memory());
    }
}
