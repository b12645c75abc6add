//! A block of rules of one family: each field of a packet finds a row of bits, and rules whose bits are set in all rows
//! match (Lakshman and Stiliadis, "High-Speed Policy-based Packet Forwarding", SIGCOMM 1998).

use super::rows::{Builder, EMPTY, Row, Rows, TooMuch, clear, set};
use super::{Ports, Protocol};
use crate::secgw::prefix_trie::{Address, Prefix, PrefixTrie};
use std::collections::BTreeMap;

/// The fields of a packet.
#[derive(Clone, Copy)]
pub(super) struct Fields<A> {
    pub source: A,
    pub destination: A,
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u8,
}

/// The ranges of a rule. The prefixes have no bits behind their lengths.
pub(super) struct Ranges<A> {
    pub source: (A, u8),
    pub destination: (A, u8),
    pub source_ports: Ports,
    pub destination_ports: Ports,
    pub protocol: Protocol,
}

/// Rules that are searched together, the rule that wins first.
pub(super) struct Block<A> {
    sources: PrefixTrie<A>,
    destinations: PrefixTrie<A>,
    source_ports: PortTable,
    destination_ports: PortTable,
    protocols: Box<[Row; 256]>,
    rows: Rows,
}

impl<A: Address> Block<A> {
    /// Builds a block whose rows take `limit` bytes at most.
    pub(super) fn build<'a>(rules: &[&'a Ranges<A>], limit: usize) -> Result<Self, TooMuch>
    where
        A: 'a,
    {
        let order = alike(rules);
        let rules: Vec<&Ranges<A>> = order.iter().map(|&rank| rules[rank as usize]).collect();
        let mut rows = Builder::new(order, limit);
        Ok(Self {
            sources: prefixes(&mut rows, rules.iter().map(|rule| rule.source))?,
            destinations: prefixes(&mut rows, rules.iter().map(|rule| rule.destination))?,
            source_ports: PortTable::build(&mut rows, rules.iter().map(|rule| rule.source_ports))?,
            destination_ports: PortTable::build(&mut rows, rules.iter().map(|rule| rule.destination_ports))?,
            protocols: protocols(&mut rows, rules.iter().map(|rule| rule.protocol))?,
            rows: rows.finish(),
        })
    }

    /// The first rule that the packet matches.
    #[inline]
    pub(super) fn find(&self, fields: &Fields<A>) -> Option<u32> {
        let addresses = [self.sources.find(fields.source), self.destinations.find(fields.destination)];
        self.rows.first_common(addresses, self.others(fields))
    }

    /// The rows of all but the addresses.
    #[inline]
    fn others(&self, fields: &Fields<A>) -> [Row; 3] {
        [
            self.source_ports.row(fields.source_port),
            self.destination_ports.row(fields.destination_port),
            self.protocols[usize::from(fields.protocol)],
        ]
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> usize {
        self.rows.memory()
            + self.sources.memory()
            + self.destinations.memory()
            + self.source_ports.memory()
            + self.destination_ports.memory()
            + size_of_val(&*self.protocols)
    }
}

/// The ranks of the rules in the order of their bits: rules that are alike in the same word, in a word by rank.
fn alike<A: Address>(rules: &[&Ranges<A>]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rules.len() as u32).collect();
    order.sort_by_key(|&rank| {
        let rule = rules[rank as usize];
        let any = (rule.source.1 == 0, rule.destination.1 == 0);
        (
            any,
            rule.source,
            rule.destination,
            rule.destination_ports.low,
            rule.source_ports.low,
            rule.protocol.value,
        )
    });
    order.chunks_mut(64).for_each(<[u32]>::sort_unstable);
    order
}

/// The rows of prefixes. That of a prefix has the rules of all prefixes around it.
fn prefixes<A: Address>(
    rows: &mut Builder,
    prefixes: impl Iterator<Item = (A, u8)>,
) -> Result<PrefixTrie<A>, TooMuch> {
    let mut rules: Vec<(A, u8, usize)> =
        prefixes.enumerate().map(|(rule, (address, length))| (address, length, rule)).collect();
    rules.sort_unstable();
    let mut found: Vec<Prefix<A>> = Vec::new();
    // The prefixes around the present one, the longest last, each with its row.
    let mut around: Vec<(A, u8, Vec<u64>)> = Vec::new();
    for equal in rules.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let (address, length, _) = equal[0];
        while around.last().is_some_and(|outer| !outer.0.agrees(address, outer.1)) {
            around.pop();
        }
        let mut bits = around.last().map_or_else(|| rows.blank(), |outer| outer.2.clone());
        for &(_, _, rule) in equal {
            set(&mut bits, rule);
        }
        found.push(Prefix { address, length, value: rows.pack(&bits)? });
        around.push((address, length, bits));
    }
    Ok(PrefixTrie::build(&mut found, EMPTY))
}

/// The rows of protocols.
fn protocols(
    rows: &mut Builder,
    protocols: impl Iterator<Item = Protocol>,
) -> Result<Box<[Row; 256]>, TooMuch> {
    let mut rules: BTreeMap<(u8, u8), Vec<usize>> = BTreeMap::new();
    for (rule, Protocol { value, mask }) in protocols.enumerate() {
        rules.entry((value & mask, mask)).or_default().push(rule);
    }
    let mut table = Box::new([EMPTY; 256]);
    for (number, row) in (0..=u8::MAX).zip(table.iter_mut()) {
        let mut bits = rows.blank();
        for (_, rules) in rules.iter().filter(|&(&(value, mask), _)| number & mask == value) {
            for &rule in rules {
                set(&mut bits, rule);
            }
        }
        *row = rows.keep(&bits)?;
    }
    Ok(table)
}

/// The rows of ports, in pages of 256. Equal pages are kept once, so that few rules touch few lines of the cache.
struct PortTable {
    page_of: Box<[u8; 256]>,
    pages: Vec<[Row; 256]>,
}

impl PortTable {
    fn build(rows: &mut Builder, ranges: impl Iterator<Item = Ports>) -> Result<Self, TooMuch> {
        // Rules that begin and rules that end at a port.
        let mut changes: BTreeMap<u32, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        for (rule, Ports { low, high }) in ranges.enumerate().filter(|(_, ports)| ports.low <= ports.high) {
            changes.entry(low.into()).or_default().0.push(rule);
            changes.entry(u32::from(high) + 1).or_default().1.push(rule);
        }
        let mut table = vec![EMPTY; 1 << 16];
        let mut bits = rows.blank();
        let mut ends = changes.keys().skip(1).copied().chain([1 << 16]).collect::<Vec<u32>>().into_iter();
        for (begin, (begun, ended)) in changes {
            let end = ends.next().unwrap_or(1 << 16);
            for rule in begun {
                set(&mut bits, rule);
            }
            for rule in ended {
                clear(&mut bits, rule);
            }
            if begin < end {
                table[begin as usize..end as usize].fill(rows.keep(&bits)?);
            }
        }
        Ok(Self::of(&table))
    }

    fn of(table: &[Row]) -> Self {
        let mut page_of = Box::new([0; 256]);
        let mut pages: Vec<[Row; 256]> = Vec::new();
        for (number, page) in page_of.iter_mut().zip(table.as_chunks::<256>().0) {
            let known = pages.iter().position(|known| known == page);
            *number = known.unwrap_or(pages.len()) as u8;
            if known.is_none() {
                pages.push(*page);
            }
        }
        Self { page_of, pages }
    }

    #[inline]
    fn row(&self, port: u16) -> Row {
        let [high, low] = port.to_be_bytes();
        self.pages[usize::from(self.page_of[usize::from(high)])][usize::from(low)]
    }

    fn memory(&self) -> usize {
        size_of_val(&*self.page_of) + size_of_val(&*self.pages)
    }
}
