//! Access rules: the 5-tuple of a packet finds the rule of the highest priority that it matches.
//!
//! ```text
//! rules of both families ──> Access::build ──> swapped in whole ──> find
//! ```
//!
//! [`Access`] is built off the worker and never changes. A worker reads it through `arc_swap` or an `Arc` of its own.
//! [`RuleIndex`] is the place of the rule in the list that the table was built from. Of equal priorities, the rule
//! that stands first wins; DPDK's ACL library leaves that open.
//!
//! # Look-up
//!
//! Each of the five fields of a packet finds a row with one bit for each rule: addresses by longest prefix, ports and
//! the protocol by a table. Rules whose bits are set in all five rows match. Bits are in words of 64 rules, and rules
//! that are alike share words; of the rows of addresses only words that are not zero are kept. So a packet looks only
//! at words where rules for its source meet rules for its destination. In each, the first bit is the rule that wins.
//! The most that hostile rules can make a packet look at is every word, one for 64 rules.
//!
//! A worker keeps a [`FlowCache`] in front: a flow that it has met costs the same for any number of rules.
//!
//! # Memory
//!
//! The rows of `n` rules take at most about 6n x n/8 bytes: 75 MB for 10,000 rules that have nothing in common. No
//! rules make them grow faster, as they can with decision trees and tables of products. Above [`MOST_ROWS`] the rules
//! are cut by priority into two blocks, each with half of that, and so on down to 64 rules; blocks are searched one
//! after another. The rest, such as tables of ports, takes less than 8 KiB a rule and 64 KiB a family.
//!
//! # Alternatives
//!
//! We found no crate that classifies by 5-tuple in less time than a search of all rules. Decision trees (HyperCuts,
//! EffiCuts) and recursive flow classification copy rules into several places: some rules make them grow without
//! bound. A tuple space needs a look-up for each combination of prefix lengths and ranges that the rules use.

mod block;
mod flow_cache;
mod rows;
#[cfg(test)]
mod tests;

use super::prefix_trie::Address;
use block::{Block, Fields, Ranges};
pub use config::secgw::settings::{Ports, Protocol};
pub use flow_cache::FlowCache;
use ipnet::IpNet;
use std::cmp::Reverse;
use std::net::IpAddr;

/// Bytes that the rows of one family may take before rules are cut into blocks.
pub const MOST_ROWS: usize = 64 << 20;

/// Rules of a block that is not cut further.
const SMALLEST_BLOCK: usize = 64;

/// A rule: the packets that match it, and its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The priority; the largest wins.
    pub priority: i32,
    /// The source addresses. Bits behind the prefix length are ignored.
    pub source: IpNet,
    /// The destination addresses, of the same family: a rule of two families matches no packet.
    pub destination: IpNet,
    /// The source ports.
    pub source_ports: Ports,
    /// The destination ports.
    pub destination_ports: Ports,
    /// The protocols.
    pub protocol: Protocol,
}

/// The fields of a packet that rules are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FiveTuple {
    /// Whether the addresses are of IPv4.
    pub is_v4: bool,
    /// The protocol.
    pub protocol: u8,
    /// The source port, or what stands in its place.
    pub source_port: u16,
    /// The destination port, or what stands in its place.
    pub destination_port: u16,
    /// The source address as a number.
    pub source: u128,
    /// The destination address as a number.
    pub destination: u128,
}

/// The place of a rule in the list that the table was built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleIndex(pub u32);

/// A table of rules of both families.
pub struct Access {
    v4: Table<u32>,
    v6: Table<u128>,
}

impl Access {
    /// Builds the table.
    pub fn build(rules: &[Rule]) -> Self {
        Self::within(rules, MOST_ROWS)
    }

    /// Builds the table, with so many bytes for the rows of each family.
    fn within(rules: &[Rule], most_rows: usize) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (index, rule) in (0..).map(RuleIndex).zip(rules) {
            let lengths = (rule.source.prefix_len(), rule.destination.prefix_len());
            match (rule.source.network(), rule.destination.network()) {
                (IpAddr::V4(source), IpAddr::V4(destination)) => {
                    v4.push((index, rule, ranges(rule, lengths, source.to_bits(), destination.to_bits())));
                }
                (IpAddr::V6(source), IpAddr::V6(destination)) => {
                    v6.push((index, rule, ranges(rule, lengths, source.to_bits(), destination.to_bits())));
                }
                _ => {}
            }
        }
        Self { v4: Table::build(v4, most_rows), v6: Table::build(v6, most_rows) }
    }

    /// The rule of the highest priority that the packet matches.
    #[inline]
    pub fn find(&self, flow: &FiveTuple) -> Option<RuleIndex> {
        if flow.is_v4 {
            self.v4.find(&fields(flow, flow.source as u32, flow.destination as u32))
        } else {
            self.v6.find(&fields(flow, flow.source, flow.destination))
        }
    }

    /// Bytes that the table takes.
    pub fn memory(&self) -> usize {
        self.v4.memory() + self.v6.memory()
    }
}

#[inline]
fn fields<A>(flow: &FiveTuple, source: A, destination: A) -> Fields<A> {
    let &FiveTuple { protocol, source_port, destination_port, .. } = flow;
    Fields { source, destination, source_port, destination_port, protocol }
}

fn ranges<A>(rule: &Rule, lengths: (u8, u8), source: A, destination: A) -> Ranges<A> {
    let &Rule { source_ports, destination_ports, protocol, .. } = rule;
    let (source, destination) = ((source, lengths.0), (destination, lengths.1));
    Ranges { source, destination, source_ports, destination_ports, protocol }
}

/// The rules of one family.
struct Table<A> {
    /// The blocks, each with the place of its first rule in `order`. A rule of an earlier block wins.
    blocks: Vec<(usize, Block<A>)>,
    /// The rules, the one that wins first.
    order: Vec<RuleIndex>,
}

impl<A: Address> Table<A> {
    fn build(mut rules: Vec<(RuleIndex, &Rule, Ranges<A>)>, most_rows: usize) -> Self {
        rules.sort_by_key(|&(index, rule, _)| (Reverse(rule.priority), index));
        let order = rules.iter().map(|&(index, ..)| index).collect();
        let ranges: Vec<&Ranges<A>> = rules.iter().map(|(.., ranges)| ranges).collect();
        let mut blocks = Vec::new();
        // The rest to be built: the first rule, the number of rules, bytes for their rows. The first rules come last.
        let mut rest = vec![(0, ranges.len(), most_rows)];
        while let Some((first, count, limit)) = rest.pop().filter(|&(_, count, _)| count > 0) {
            let limit = if count <= SMALLEST_BLOCK { usize::MAX } else { limit };
            if let Ok(block) = Block::build(&ranges[first..][..count], limit) {
                blocks.push((first, block));
            } else {
                let half = count / 2;
                rest.extend([(first + half, count - half, limit / 2), (first, half, limit / 2)]);
            }
        }
        Self { blocks, order }
    }

    /// The rule that wins.
    #[inline]
    fn find(&self, fields: &Fields<A>) -> Option<RuleIndex> {
        let mut blocks = self.blocks.iter();
        blocks.find_map(|(first, block)| block.find(fields).map(|rank| self.order[first + rank as usize]))
    }

    fn memory(&self) -> usize {
        size_of_val(&*self.order) + self.blocks.iter().map(|(_, block)| block.memory()).sum::<usize>()
    }
}
