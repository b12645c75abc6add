//! Longest-prefix match in a multi-bit trie, built whole and then only read.
//!
//! The first bits of an address are an index into `top`; each node on the way down takes 6 more, until a value is
//! found. A node has two bitmaps: slots with a child, and slots where a run of equal values begins. Children and
//! values lie side by side, so that a count of bits finds them (Asai and Ohara, "Poptrie", SIGCOMM 2015).
//!
//! Memory: `top` is 16 KiB, or 1 MiB above 32,768 prefixes. A prefix needs one node for each 6 bits of its length at
//! most. A node is 24 bytes and 4 for each of its runs of values. Nodes and runs that prefixes share count once.

/// An address as a number.
pub(super) trait Address: Copy + Ord {
    /// The first bits.
    fn first(self, bits: u32) -> usize;

    /// The 6 bits behind the first `offset`, filled up with zeros.
    fn slot(self, offset: u32) -> usize;

    /// Whether the first `length` bits are those of the other address.
    fn agrees(self, other: Self, length: u8) -> bool;
}

macro_rules! address {
    ($number:ty) => {
        impl Address for $number {
            #[inline]
            fn first(self, bits: u32) -> usize {
                (self >> (Self::BITS - bits)) as usize
            }

            #[inline]
            fn slot(self, offset: u32) -> usize {
                // Two registers need many instructions to shift: most prefixes of IPv6 end in the first one.
                if Self::BITS > 64 && offset <= 64 - STRIDE {
                    let first = (self >> (Self::BITS - 64)) as u64;
                    return ((first << offset) >> (64 - STRIDE)) as usize;
                }
                ((self << offset) >> (Self::BITS - STRIDE)) as usize
            }

            fn agrees(self, other: Self, length: u8) -> bool {
                length == 0 || (self ^ other) >> (Self::BITS - u32::from(length)) == 0
            }
        }
    };
}

address!(u32);
address!(u128);

/// A prefix without bits behind its length, and what an address in it is to find.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix<A> {
    /// The address.
    pub address: A,
    /// The number of bits that count.
    pub length: u8,
    /// The value, at most [`MOST`].
    pub value: u32,
}

/// The largest value.
pub(super) const MOST: u32 = VALUE - 1;

/// Bits a node takes: a bitmap of 64 slots.
const STRIDE: u32 = 6;
/// In an entry of `top`: the rest is a value and not a node.
const VALUE: u32 = 1 << 31;
/// Up to this number of prefixes, a small `top` that stays in the first cache finds as fast as a large one.
const FEW: usize = 32_768;
#[derive(Clone, Copy, Default)]
struct Node {
    /// Slots with a child.
    children: u64,
    /// Slots without a child, where the value differs from that of the last slot without a child.
    starts: u64,
    /// The first child.
    child_base: u32,
    /// The first value.
    value_base: u32,
}

/// The trie. An address without a prefix finds the default value.
pub(super) struct PrefixTrie<A> {
    top_bits: u32,
    top: Box<[u32]>,
    nodes: Vec<Node>,
    values: Vec<u32>,
    address: std::marker::PhantomData<A>,
}

impl<A: Address> PrefixTrie<A> {
    /// Sorts the prefixes and builds a trie of them. Of two equal ones, the later one counts.
    pub(super) fn build(prefixes: &mut [Prefix<A>], default: u32) -> Self {
        prefixes.sort_by_key(|prefix| (prefix.address, prefix.length));
        let top_bits = if prefixes.len() > FEW { 18 } else { 12 };
        let top = vec![VALUE | default; 1 << top_bits].into_boxed_slice();
        let (nodes, values) = (Vec::new(), Vec::new());
        let mut trie = Self { top_bits, top, nodes, values, address: std::marker::PhantomData };
        // A prefix comes before the longer ones inside it, which write over its slots.
        for prefix in prefixes.iter().filter(|prefix| u32::from(prefix.length) <= top_bits) {
            let first = prefix.address.first(top_bits);
            trie.top[first..][..1 << (top_bits - u32::from(prefix.length))].fill(VALUE | prefix.value);
        }
        let slot = |prefix: &Prefix<A>| prefix.address.first(top_bits);
        for run in prefixes.chunk_by(|a, b| slot(a) == slot(b)) {
            let longer = longer(run, top_bits);
            if !longer.is_empty() {
                let inherited = std::mem::replace(&mut trie.top[slot(&run[0])], trie.nodes.len() as u32);
                let node = trie.nodes.len();
                trie.nodes.push(Node::default());
                trie.fill(node, longer, top_bits, inherited & !VALUE);
            }
        }
        trie.nodes.shrink_to_fit();
        trie.values.shrink_to_fit();
        trie
    }

    /// Fills a node from the prefixes below it, all longer than `offset`, and the value of the prefix around it.
    fn fill(&mut self, node: usize, prefixes: &[Prefix<A>], offset: u32, inherited: u32) {
        let end = offset + STRIDE;
        let mut values = [inherited; 1 << STRIDE];
        let mut children = 0_u64;
        for prefix in prefixes {
            let slot = prefix.address.slot(offset);
            if u32::from(prefix.length) <= end {
                values[slot..][..1 << (end - u32::from(prefix.length))].fill(prefix.value);
            } else {
                children |= 1 << slot;
            }
        }
        let child_base = self.nodes.len();
        self.nodes.resize(child_base + children.count_ones() as usize, Node::default());
        let value_base = self.values.len() as u32;
        let mut starts = 0;
        for (slot, &value) in values.iter().enumerate().filter(|&(slot, _)| children >> slot & 1 == 0) {
            if starts == 0 || self.values.last() != Some(&value) {
                starts |= 1 << slot;
                self.values.push(value);
            }
        }
        self.nodes[node] = Node { children, starts, child_base: child_base as u32, value_base };
        let slot = |prefix: &Prefix<A>| prefix.address.slot(offset);
        let below = prefixes.chunk_by(|a, b| slot(a) == slot(b)).map(|run| (slot(&run[0]), longer(run, end)));
        for (child, (slot, run)) in below.filter(|(_, run)| !run.is_empty()).enumerate() {
            self.fill(child_base + child, run, end, values[slot]);
        }
    }

    /// The value of the longest prefix around the address.
    #[inline]
    pub(super) fn find(&self, address: A) -> u32 {
        let mut entry = self.top[address.first(self.top_bits)];
        let mut offset = self.top_bits;
        while entry & VALUE == 0 {
            entry = self.below(entry, address.slot(offset));
            offset += STRIDE;
        }
        entry & !VALUE
    }

    /// The entry in a slot of a node.
    #[inline]
    fn below(&self, node: u32, slot: usize) -> u32 {
        let node = &self.nodes[node as usize];
        let up_to = u64::MAX >> (63 - slot);
        if node.children >> slot & 1 == 1 {
            node.child_base + (node.children & up_to).count_ones() - 1
        } else {
            let rank = (node.starts & up_to).count_ones() - 1;
            VALUE | self.values[(node.value_base + rank) as usize]
        }
    }

    /// Bytes that it takes.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.top) + size_of_val(&*self.nodes) + size_of_val(&*self.values)
    }
}

/// The prefixes of `run` that are longer than `length`. In `run`, prefixes agree in `length` bits, and shorter prefixes come first.
fn longer<A>(run: &[Prefix<A>], length: u32) -> &[Prefix<A>] {
    &run[run.partition_point(|prefix| u32::from(prefix.length) <= length)..]
}
