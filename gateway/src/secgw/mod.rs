//! The data path between ports of Ethernet frames.

pub mod access;
mod prefix_trie;
pub mod routes;
