//! What one owner wants of the kernel, for one interface: a WireGuard interface, or the interface of all IPsec tunnels.

use super::netlink::Rule;
use super::networks::Networks;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

/// The tables of an interface that tell what was closed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftIn {
    /// The table of its default route.
    pub table: u32,
    /// The table that names its prefixes in the main table. No rule leads there.
    pub note: u32,
}

/// Addresses, routes by table, rules, and the networks that policies protect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Addresses of the interface.
    pub addresses: BTreeSet<IpNet>,
    /// Prefixes that lead to it, and in which table.
    pub routes: BTreeSet<(IpNet, u32)>,
    /// Metrics of routes that have one.
    pub metrics: BTreeMap<(IpNet, u32), u32>,
    /// Prefixes for which a table sends on to the next rules.
    pub onward: BTreeSet<(IpNet, u32)>,
    /// Prefixes that lead nowhere while they do not lead to it.
    pub closed: BTreeSet<(IpNet, u32)>,
    /// Rules for a tunnel that carries everything.
    pub rules: BTreeSet<Rule>,
    /// Networks whose routes and rules depend on what else this machine has.
    pub networks: Networks,
    /// Where an earlier daemon has left what stays closed, too.
    pub left_in: Option<LeftIn>,
}

impl Wants {
    /// What is wanted while there is no interface.
    #[must_use]
    pub fn without_interface(&self) -> Self {
        Self {
            onward: self.onward.clone(),
            closed: self.closed.clone(),
            rules: self.rules.clone(),
            networks: Networks { is_served: false, ..self.networks.clone() },
            left_in: self.left_in,
            ..Self::default()
        }
    }

    /// Whether it has no interface.
    pub(super) fn is_closed(&self) -> bool {
        *self == self.without_interface()
    }

    /// What it protects.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.closed.iter().map(|(prefix, _)| *prefix).chain(self.networks.behind.keys().copied())
    }

    /// What closes these of its prefixes, without an interface.
    pub(super) fn closing(&self, is_meant: impl Fn(IpNet) -> bool) -> Self {
        let mut closing = self.without_interface();
        closing.closed.retain(|(prefix, _)| is_meant(*prefix));
        closing.networks.behind.retain(|prefix, _| is_meant(*prefix));
        // They lead to the table of a tunnel for everything.
        if !closing.closed.iter().any(|(prefix, _)| prefix.prefix_len() == 0) {
            closing.rules.clear();
        }
        closing
    }

    /// What is wanted on the way from this to another.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            addresses: &self.addresses | &other.addresses,
            routes: &self.routes | &other.routes,
            metrics: self
                .metrics
                .iter()
                .chain(&other.metrics)
                .map(|(route, metric)| (*route, *metric))
                .collect(),
            onward: &self.onward | &other.onward,
            closed: &self.closed | &other.closed,
            rules: &self.rules | &other.rules,
            networks: self.networks.clone().and(other.networks.clone()),
            left_in: self.left_in.or(other.left_in),
        }
    }
}
