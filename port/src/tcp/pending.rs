//! Connections that have not authenticated: bounded in total and for each source.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// All of them.
const MOST: usize = 1024;
/// Those of one source, an IPv4 address or an IPv6 /64: all users behind one NAT may come back at once.
const MOST_OF_SOURCE: usize = 256;
/// Beyond this total, few sources must not keep all others out.
const CROWDED: usize = MOST / 2;
/// Those of one source beyond that total.
const MOST_OF_SOURCE_CROWDED: usize = 32;

/// Counts connections.
#[derive(Default)]
pub(super) struct Pending {
    by_source: HashMap<IpAddr, usize>,
    total: usize,
}

impl Pending {
    /// Counts a connection; false if there are too many.
    pub(super) fn add(&mut self, remote: SocketAddr) -> bool {
        let source = source(remote);
        let count = self.by_source.get(&source).copied().unwrap_or(0);
        let most = if self.total < CROWDED { MOST_OF_SOURCE } else { MOST_OF_SOURCE_CROWDED };
        if count >= most || self.total >= MOST {
            return false;
        }
        self.by_source.insert(source, count + 1);
        self.total += 1;
        true
    }

    /// A counted connection has authenticated, or has ended.
    pub(super) fn remove(&mut self, remote: SocketAddr) {
        let Entry::Occupied(mut count) = self.by_source.entry(source(remote)) else { return };
        self.total -= 1;
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

fn source(remote: SocketAddr) -> IpAddr {
    match remote.ip() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 2000 connections from this address are counted.
    fn added(pending: &mut Pending, source: impl Into<IpAddr>) -> usize {
        let source = source.into();
        (0..2000).filter(|port| pending.add(SocketAddr::new(source, *port))).count()
    }

    #[test]
    fn an_office_behind_one_address_begins_at_once_and_two_leave_room_for_others() {
        let mut pending = Pending::default();
        assert_eq!(added(&mut pending, [192, 0, 2, 1]), 256);
        assert_eq!(added(&mut pending, Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 1)), 256);
        assert_eq!(added(&mut pending, Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 9, 9, 9, 9)), 0, "of the same /64");
        let others = (0..100).map(|host| added(&mut pending, [198, 51, 100, host]));
        assert_eq!(others.collect::<Vec<_>>(), [[32; 16].as_slice(), &[0; 84]].concat());
    }

    #[test]
    fn a_connection_that_authenticates_or_ends_makes_room() {
        let mut pending = Pending::default();
        let remote = SocketAddr::from(([192, 0, 2, 1], 1));
        for _ in 0..3 {
            assert_eq!(added(&mut pending, [192, 0, 2, 1]), 256);
            (0..256).for_each(|_| pending.remove(remote));
            pending.remove(remote);
            assert_eq!((pending.total, pending.by_source.len()), (0, 0));
        }
    }
}
