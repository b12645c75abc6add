//! The data path between ports of Ethernet frames.

mod prefix_trie;
pub mod routes;
