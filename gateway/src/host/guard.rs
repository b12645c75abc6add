//! The last check of outbound packets: nf_tables rules drop packets that an IPsec policy protects and that leave by another
//! interface, whatever rule or route led them there. Their table stays when the daemon ends, however it ends.
//!
//! ```text
//! our interfaces, our ESP and IKE, neighbours on a link     leave
//! HTTP of ours, where only a tunnel for everything leads     leaves
//! an exception, or protected: the closer network decides    leaves, or is dropped and counted
//! ```

use super::matching::{bytes, icmp_on_link, of_family};
use super::networks::MARK;
use super::nft;
use super::nft::{
    APPEND, AT_LEAST, AT_MOST, Batch, CREATE, EQUAL, NETWORK_HEADER, NEW_CHAIN, NEW_ELEMENTS, NEW_RULE,
    NEW_SET, NEW_TABLE, OIFNAME, accept, attribute, compare, interface, jump, lookup, meta, nested, number,
    payload, protocol, refuse, text,
};
use super::own_table::OwnTable;
use ipnet::IpNet;
use packet::header::esp::ESP;
use packet::header::ip::{TCP, UDP};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

/// The name of the table, as `nft list ruleset` shows it.
const TABLE: &str = "postern-guard";
const CHAIN: &str = "protected";
/// Before and after source addresses are translated: a policy may be for either.
const HOOKS: [(&str, i32); 2] = [("before-nat", -300), ("after-nat", 300)];
const POSTROUTING: u32 = 4;
/// linux/netfilter/nf_tables.h
const INTERVAL: u32 = 4;
const INTERVAL_END: u32 = 1;
/// Elements that fit a message, whose attributes are not longer than 64 KiB.
const ELEMENTS: usize = 1000;
/// Addresses whose packets do not leave a link.
const ON_LINK: [&str; 4] = ["224.0.0.0/24", "255.255.255.255/32", "fe80::/10", "ff02::/16"];
/// Neighbours and routers on a link (RFC 4861): hop limit, first and last type.
const NEIGHBOURS: (u8, [u8; 2]) = (255, [133, 137]);

/// Packets that must not leave unprotected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Protected {
    /// Their sources and destinations.
    pub(super) pairs: BTreeSet<(IpNet, IpNet)>,
    /// Destinations that are excepted.
    pub(super) exceptions: BTreeSet<IpNet>,
    /// The interfaces that they may leave by: those of the tunnels.
    pub(super) interfaces: BTreeSet<String>,
}

/// The rules in force.
pub(super) struct Guard {
    table: OwnTable,
    /// What the table has, if that is known.
    installed: Protected,
    /// The packets that earlier tables have dropped.
    earlier: u64,
}

impl Default for Guard {
    fn default() -> Self {
        Self { table: OwnTable::new(TABLE), installed: Protected::default(), earlier: 0 }
    }
}

impl Guard {
    /// The table.
    pub(super) fn table(&mut self) -> &mut OwnTable {
        &mut self.table
    }

    /// Whether the table is what was set last.
    pub(super) fn is_trusted(&self) -> bool {
        self.table.is_installed()
    }

    /// The number of dropped packets; `None` without rules.
    pub(super) fn held_back(&self) -> Option<u64> {
        let socket = self.table.socket()?;
        let guards = self.is_trusted() && !self.installed.pairs.is_empty();
        (guards || self.earlier > 0).then(|| self.earlier + nft::counted(socket, TABLE).unwrap_or(0))
    }

    /// Puts these rules in force, in one step; returns whether anything changed.
    pub(super) fn set(&mut self, protected: &Protected) -> io::Result<bool> {
        if self.is_trusted() && self.installed == *protected {
            return Ok(false);
        }
        self.replace(|batch| {
            if !protected.pairs.is_empty() {
                protected.add_to(batch);
            }
        })?;
        self.installed = protected.clone();
        Ok(true)
    }

    /// Replaces the table, and keeps what it has counted.
    fn replace(&mut self, fill: impl FnOnce(&mut Batch)) -> io::Result<()> {
        // The counters of a table that an earlier daemon has left are included.
        let counted = nft::counted(self.table.open()?, TABLE).unwrap_or(0);
        self.table.replace(fill)?;
        // If the kernel refuses the batch, the old table stays with its counters.
        self.earlier += counted;
        Ok(())
    }
}

impl Protected {
    fn add_to(&self, batch: &mut Batch) {
        let mut rules = vec![
            vec![meta(OIFNAME), interface(EQUAL, "lo"), accept()],
            ours(UDP),
            ours(ESP),
            vec![icmp_on_link(NEIGHBOURS), accept()],
        ];
        let links = self.interfaces.iter();
        rules.extend(links.map(|name| vec![meta(OIFNAME), interface(EQUAL, name), accept()]));
        let on_link: Vec<IpNet> = ON_LINK.iter().filter_map(|it| it.parse().ok()).collect();
        let mut sets = Sets::default();
        for v6 in [false, true] {
            rules.extend(accepted(on_link.iter().copied(), v6, &mut sets));
            // As in a routing table, the closer network decides. Only where exceptions stand between do lengths matter.
            let mut lengths: BTreeSet<Reverse<u8>> =
                self.exceptions.iter().map(|it| Reverse(it.prefix_len())).collect();
            lengths.insert(Reverse(0));
            let mut closer = u8::MAX;
            for Reverse(length) in lengths {
                let within = |prefix: &IpNet| (length..closer).contains(&prefix.prefix_len());
                let pairs: Vec<_> = self.pairs.iter().copied().filter(|(_, remote)| within(remote)).collect();
                let (even, longer): (Vec<_>, Vec<_>) =
                    pairs.into_iter().partition(|(_, remote)| remote.prefix_len() == length);
                rules.extend(dropped(&longer, v6, &mut sets));
                if length == 0 {
                    // Requests about revocation bypass tunnels for everything, and no other tunnel.
                    rules.push([vec![of_family(v6)], ours(TCP)].concat());
                }
                let exceptions = self.exceptions.iter().copied().filter(|it| it.prefix_len() == length);
                rules.extend(accepted(exceptions, v6, &mut sets));
                rules.extend(dropped(&even, v6, &mut sets));
                closer = length;
            }
        }
        batch.add(NEW_TABLE, CREATE, &text(1, TABLE));
        batch.add(NEW_CHAIN, CREATE, &nft::chain(TABLE, CHAIN));
        sets.add_to(batch);
        for expressions in &rules {
            batch.add(NEW_RULE, CREATE | APPEND, &nft::rule(TABLE, CHAIN, expressions));
        }
        for (chain, priority) in HOOKS {
            batch.add(NEW_CHAIN, CREATE, &nft::base_chain(TABLE, chain, POSTROUTING, priority));
            batch.add(NEW_RULE, CREATE | APPEND, &nft::rule(TABLE, chain, &[jump(CHAIN)]));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

/// Our own packets of a protocol: with our mark, and sent by this machine, not forwarded.
fn ours(of: u8) -> Vec<Vec<u8>> {
    vec![
        meta(nft::MARK),
        compare(EQUAL, &MARK.to_ne_bytes()),
        meta(nft::IIF),
        compare(EQUAL, &0u32.to_ne_bytes()),
        protocol(of),
        accept(),
    ]
}

/// A rule that accepts packets to these networks.
fn accepted(to: impl Iterator<Item = IpNet>, v6: bool, sets: &mut Sets) -> Option<Vec<Vec<u8>>> {
    let to: Vec<IpNet> = to.filter(|it| is_v6(*it) == v6).collect();
    let set = (!to.is_empty()).then(|| sets.add(to, v6))?;
    Some(vec![of_family(v6), address(v6, Side::Destination), lookup(&set), accept()])
}

/// Rules that drop these pairs: one for each network of the side that has fewer, with a set of the others.
fn dropped(pairs: &[(IpNet, IpNet)], v6: bool, sets: &mut Sets) -> Vec<Vec<Vec<u8>>> {
    let pairs = pairs.iter().filter(|(local, remote)| is_v6(*local) == v6 && is_v6(*remote) == v6);
    let (mut by_local, mut by_remote) = (BTreeMap::new(), BTreeMap::new());
    for &(local, remote) in pairs {
        by_local.entry(local).or_insert_with(Vec::new).push(remote);
        by_remote.entry(remote).or_insert_with(Vec::new).push(local);
    }
    let (groups, one, many) = if by_local.len() <= by_remote.len() {
        (by_local, Side::Source, Side::Destination)
    } else {
        (by_remote, Side::Destination, Side::Source)
    };
    let rule = |(prefix, others): (IpNet, Vec<IpNet>)| {
        let [first, last] = [prefix.network(), prefix.broadcast()].map(bytes);
        let set = sets.add(others, v6);
        vec![
            of_family(v6),
            address(v6, one),
            compare(AT_LEAST, &first),
            compare(AT_MOST, &last),
            address(v6, many),
            lookup(&set),
            refuse(),
        ]
    };
    groups.into_iter().map(rule).collect()
}

fn is_v6(prefix: IpNet) -> bool {
    matches!(prefix, IpNet::V6(_))
}

fn address(v6: bool, side: Side) -> Vec<u8> {
    let (source, length) = if v6 { (8, 16) } else { (12, 4) };
    payload(NETWORK_HEADER, if side == Side::Source { source } else { source + length }, length)
}

/// Sets of addresses, by their numbers.
#[derive(Default)]
struct Sets(Vec<(bool, Vec<IpNet>)>);

impl Sets {
    /// Adds one, and returns its name.
    fn add(&mut self, prefixes: Vec<IpNet>, v6: bool) -> String {
        let known = self.0.iter().position(|known| *known == (v6, prefixes.clone()));
        let number = known.unwrap_or_else(|| {
            self.0.push((v6, prefixes));
            self.0.len() - 1
        });
        name(number)
    }

    fn add_to(&self, batch: &mut Batch) {
        for (number, (v6, prefixes)) in self.0.iter().enumerate() {
            let (key, length) = if *v6 { (8, 16) } else { (7, 4) };
            let id = nft::number(10, number as u32 + 1);
            let set = [
                text(1, TABLE),
                text(2, &name(number)),
                nft::number(3, INTERVAL),
                nft::number(4, key),
                nft::number(5, length),
                id,
            ];
            batch.add(NEW_SET, CREATE, &set.concat());
            let elements: Vec<Vec<u8>> =
                ranges(prefixes).into_iter().flat_map(|it| elements(it, *v6)).collect();
            for elements in elements.chunks(ELEMENTS) {
                let list = [text(1, TABLE), text(2, &name(number)), nested(3, elements)];
                batch.add(NEW_ELEMENTS, CREATE, &list.concat());
            }
        }
    }
}

fn name(set: usize) -> String {
    format!("networks-{set}")
}

/// The first and last addresses of all that the prefixes cover, without overlaps and neighbours.
fn ranges(prefixes: &[IpNet]) -> Vec<(u128, u128)> {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let mut all: Vec<_> = prefixes.iter().map(|it| (number(it.network()), number(it.broadcast()))).collect();
    all.sort_unstable();
    let mut ranges: Vec<(u128, u128)> = Vec::new();
    for (first, last) in all {
        match ranges.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => ranges.push((first, last)),
        }
    }
    ranges
}

/// Where a range begins, and where it has ended; what goes on to the last address does not end.
fn elements((first, last): (u128, u128), v6: bool) -> Vec<Vec<u8>> {
    let (most, length) = if v6 { (u128::MAX, 16) } else { (u128::from(u32::MAX), 4) };
    let key = |address: u128| nested(1, &[attribute(1, &address.to_be_bytes()[16 - length..])]);
    let begin = nested(1, &[key(first)]);
    let end = (last < most).then(|| nested(1, &[key(last + 1), number(3, INTERVAL_END)]));
    std::iter::once(begin).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::Lab;
    use std::net::UdpSocket;

    fn net(text: &str) -> IpNet {
        text.parse().expect("literal")
    }

    #[test]
    fn what_was_held_back_is_counted_once_although_the_kernel_refuses_a_change() {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("NO_SKIP").is_none(), "needs root to make network namespaces");
            return eprintln!("SKIPPED: needs root to make network namespaces");
        }
        let lab = Lab::new(&["guard", "far"]).expect("root can make namespaces");
        let (near, far) = (("guard", "outside", "192.0.2.1/24"), ("far", "outside", "192.0.2.9/24"));
        lab.connect(near, far).expect("veth exists");
        lab.enter("guard", || {
            let mut guard = Guard::default();
            let mut protected = Protected::default();
            protected.pairs.insert((net("192.0.2.1/32"), net("192.0.2.0/24")));
            assert!(guard.set(&protected).expect("nf_tables is there"));
            let socket = UdpSocket::bind("192.0.2.1:0").expect("our address");
            for _ in 0..3 {
                assert!(socket.send_to(b"in clear", "192.0.2.9:9").is_err(), "it left in clear");
            }
            assert_eq!(guard.held_back(), Some(3));
            let refused = |batch: &mut Batch| {
                batch.add(NEW_RULE, CREATE, &nft::rule("no-such-table", CHAIN, &[accept()]));
            };
            for _ in 0..2 {
                guard.replace(refused).expect_err("there is no such table");
                assert_eq!(guard.held_back(), Some(3), "after a refused change");
            }
            protected.interfaces.insert("wg0".to_owned());
            assert!(guard.set(&protected).expect("nf_tables is there"));
            assert_eq!(guard.held_back(), Some(3), "of the table before");
            assert!(socket.send_to(b"in clear", "192.0.2.9:9").is_err(), "it left in clear");
            assert_eq!(guard.held_back(), Some(4));
        })
        .expect("the namespace is there");
    }

    #[test]
    fn networks_that_touch_or_overlap_are_one_range() {
        let found = ranges(&["10.0.2.0/24", "10.0.1.0/24", "10.0.1.7/32", "10.0.4.0/24"].map(net));
        assert_eq!(found, [(0x0a00_0100, 0x0a00_02ff), (0x0a00_0400, 0x0a00_04ff)]);
        assert_eq!(ranges(&[net("::/0")]), [(0, u128::MAX)]);
    }

    #[test]
    fn the_last_address_has_no_end() {
        assert_eq!(elements((0, u32::MAX.into()), false).len(), 1);
        assert_eq!(elements((0, 1), false).len(), 2);
        assert_eq!(elements((5, u128::MAX), true).len(), 1);
    }

    #[test]
    fn there_are_as_few_rules_as_networks_on_the_smaller_side() {
        let remotes: Vec<_> =
            (0..100).map(|it| (net("10.0.0.0/8"), net(&format!("172.16.{it}.0/24")))).collect();
        assert_eq!(dropped(&remotes, false, &mut Sets::default()).len(), 1);
        let locals: Vec<_> = remotes.iter().map(|(local, remote)| (*remote, *local)).collect();
        assert_eq!(dropped(&locals, false, &mut Sets::default()).len(), 1);
        assert!(dropped(&locals, true, &mut Sets::default()).is_empty());
    }
}
