//! Everything outside the packet path: keys, configuration, links, and the API.

pub mod binding;
pub(crate) mod callers;
pub mod carrier;
pub mod daemon;
pub mod filter;
pub mod host;
pub mod interface;
pub mod ipsec;
pub mod lane;
pub mod link;
pub mod needs;
pub mod netlink;
mod nft;
pub mod occupied;
pub mod plan;
pub mod rights;
pub mod rules;
#[cfg(test)]
mod sample;
pub mod sender;
pub mod socket;
pub mod uapi;
pub mod uapi_server;
pub mod update;

/// Reads a notification of the kernel about links, routes, rules and tables of nf_tables, as the thread `routes` does: whether it
/// is about a change of ours, or of our table by another program.
pub fn read_notification(bytes: &[u8], tables: &[u32], table: &str) -> (bool, bool) {
    (netlink::is_ours(bytes, tables), nft::is_change_by_another(bytes, table, 0))
}
