//! Cryptokey routing (section 2): maps inner addresses to peers by the longest prefix.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;
use std::net::IpAddr;

/// A table from prefixes to peers; the caller chooses the type of a peer.
#[derive(Clone)]
pub struct AllowedIps<T> {
    v4: PrefixMap<Ipv4Net, T>,
    v6: PrefixMap<Ipv6Net, T>,
}

impl<T> Default for AllowedIps<T> {
    fn default() -> Self {
        Self { v4: PrefixMap::new(), v6: PrefixMap::new() }
    }
}

impl<T> AllowedIps<T> {
    /// Assigns `prefix` to `peer`; returns the previous peer.
    pub fn insert(&mut self, prefix: IpNet, peer: T) -> Option<T> {
        match prefix {
            IpNet::V4(prefix) => self.v4.insert(prefix.trunc(), peer),
            IpNet::V6(prefix) => self.v6.insert(prefix.trunc(), peer),
        }
    }

    /// Removes `prefix`; returns its peer.
    pub fn remove(&mut self, prefix: IpNet) -> Option<T> {
        match prefix {
            IpNet::V4(prefix) => self.v4.remove(&prefix.trunc()),
            IpNet::V6(prefix) => self.v6.remove(&prefix.trunc()),
        }
    }

    /// The peer of exactly this prefix.
    pub fn owner(&self, prefix: IpNet) -> Option<&T> {
        match prefix {
            IpNet::V4(prefix) => self.v4.get(&prefix.trunc()),
            IpNet::V6(prefix) => self.v6.get(&prefix.trunc()),
        }
    }

    /// The peer with the longest prefix that contains `address`.
    #[inline]
    pub fn lookup(&self, address: IpAddr) -> Option<&T> {
        match address {
            IpAddr::V4(address) => self.v4.get_lpm(&Ipv4Net::from(address)).map(|(_, peer)| peer),
            IpAddr::V6(address) => self.v6.get_lpm(&Ipv6Net::from(address)).map(|(_, peer)| peer),
        }
    }

    /// The same table with the peers converted by `name`.
    pub fn map<U>(&self, mut name: impl FnMut(&T) -> U) -> AllowedIps<U> {
        AllowedIps {
            v4: self.v4.iter().map(|(prefix, peer)| (prefix, name(peer))).collect(),
            v6: self.v6.iter().map(|(prefix, peer)| (prefix, name(peer))).collect(),
        }
    }

    /// The number of prefixes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(prefixes: &[(&str, u32)]) -> AllowedIps<u32> {
        let mut table = AllowedIps::default();
        for (prefix, peer) in prefixes {
            table.insert(prefix.parse().expect("literal"), *peer);
        }
        table
    }

    fn lookup(table: &AllowedIps<u32>, address: &str) -> Option<u32> {
        table.lookup(address.parse().expect("literal")).copied()
    }

    #[test]
    fn the_longest_prefix_wins_in_both_versions() {
        let table = table(&[
            ("0.0.0.0/0", 1),
            ("10.0.0.0/8", 2),
            ("10.1.0.0/16", 3),
            ("10.1.2.3/32", 4),
            ("2001:db8::/32", 5),
            ("2001:db8:1::/48", 6),
        ]);
        for (address, peer) in [
            ("192.0.2.1", Some(1)),
            ("10.9.9.9", Some(2)),
            ("10.1.9.9", Some(3)),
            ("10.1.2.3", Some(4)),
            ("10.1.2.4", Some(3)),
            ("2001:db8:2::1", Some(5)),
            ("2001:db8:1::1", Some(6)),
            ("2001:db9::1", None),
        ] {
            assert_eq!(lookup(&table, address), peer, "{address}");
        }
    }

    #[test]
    fn host_bits_do_not_count() {
        let table = table(&[("10.1.2.3/24", 1)]);
        assert_eq!(lookup(&table, "10.1.2.200"), Some(1));
        assert_eq!(table.owner("10.1.2.0/24".parse().expect("literal")), Some(&1));
    }

    #[test]
    fn a_prefix_has_one_owner_at_a_time() {
        let mut table = table(&[("10.0.0.0/24", 1)]);
        assert_eq!(table.insert("10.0.0.0/24".parse().expect("literal"), 2), Some(1));
        assert_eq!((lookup(&table, "10.0.0.1"), table.len()), (Some(2), 1));
        assert_eq!(table.remove("10.0.0.0/24".parse().expect("literal")), Some(2));
        assert!(table.is_empty());
    }

    #[test]
    fn agrees_with_a_search_through_all_prefixes() {
        let mut state = 7u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 32) as u32
        };
        let prefixes: Vec<Ipv4Net> = (0..2000)
            .map(|_| {
                Ipv4Net::new((random() & 0xff0f_f0ff).into(), (random() % 33) as u8)
                    .expect("at most 32")
                    .trunc()
            })
            .collect();
        let mut table = AllowedIps::default();
        for (index, prefix) in prefixes.iter().enumerate() {
            table.insert((*prefix).into(), index);
        }
        for _ in 0..5000 {
            let address = std::net::Ipv4Addr::from(random() & 0xff0f_f0ff);
            let best = prefixes
                .iter()
                .filter(|prefix| prefix.contains(&address))
                .max_by_key(|prefix| prefix.prefix_len());
            let found = table.lookup(address.into()).map(|&index| prefixes[index]);
            assert_eq!(found.as_ref(), best, "{address}");
        }
    }
}
