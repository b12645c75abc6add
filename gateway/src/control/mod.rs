//! Everything that is not a packet's way: keys, configuration, links, and whoever asks about them.

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
