//! Networks behind several tunnels, of which one at a time leads there: by a route of the main table, or, if one of the tunnels has policies,
//! of the table that precedes all others. All of them stay closed together.

use super::netlink::MAIN_TABLE;
use super::wants::Wants;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

/// The owner of the routes that close these networks. No interface has such a name.
pub const OWNER: &str = "protocols failover";

/// A network behind several tunnels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The interface that leads to it.
    pub active: String,
    /// All interfaces that may.
    pub members: BTreeSet<String>,
}

/// All of them.
pub type Sharing = BTreeMap<IpNet, Shared>;

/// What closes these networks while no tunnel leads there.
pub fn closing(prefixes: impl IntoIterator<Item = IpNet>) -> Wants {
    Wants { closed: prefixes.into_iter().map(|prefix| (prefix, MAIN_TABLE)).collect(), ..Wants::default() }
}
