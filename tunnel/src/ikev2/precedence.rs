//! The precedence of tunnels whose traffic selectors overlap.
//!
//! The configured priority comes first. Then a single protocol or port precedes all of them, a configured network
//! precedes the address of a peer configured without one, and a smaller network precedes a larger one. All of this is
//! taken from the configuration: a peer that narrows its selectors takes no packets from other tunnels.

use super::selectors::contains;
use crate::esp::TrafficSelector;
use std::cmp::Reverse;
use std::net::IpAddr;

/// The kind of the remote side, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// Configured networks.
    Network,
    /// The address of a peer that is configured without one: the configuration parser could not compare it with other
    /// networks.
    Address,
    /// Everything: the default route.
    Everything,
}

/// The precedence of a pair of selectors: the lowest value matches first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Precedence {
    priority: u8,
    named: Reverse<u8>,
    kind: Scope,
    size: u32,
}

/// The contribution of one side to the precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    named: u8,
    size: u32,
    is_everything: bool,
}

impl Shape {
    /// The shape of the configured selector that covers an agreed one.
    pub fn of(configured: &[TrafficSelector], agreed: &TrafficSelector) -> Self {
        let around = configured.iter().filter(|configured| contains(configured, agreed));
        let closest = around.map(shape).min_by_key(|shape| (Reverse(shape.named), shape.size));
        // A protocol or port that only the peer asks for does not raise the precedence.
        closest.unwrap_or_else(|| Shape { named: 0, ..shape(agreed) })
    }
}

/// The precedence of a tunnel with this priority; `is_anywhere` if its remote side is the address of a peer that is
/// configured without one.
pub fn precedence(priority: Option<u8>, is_anywhere: bool, [local, remote]: [Shape; 2]) -> Precedence {
    let kind = match remote.is_everything {
        _ if is_anywhere => Scope::Address,
        true => Scope::Everything,
        false => Scope::Network,
    };
    Precedence {
        priority: priority.unwrap_or(u8::MAX),
        named: Reverse(local.named + remote.named),
        kind,
        size: local.size + remote.size,
    }
}

fn shape(selector: &TrafficSelector) -> Shape {
    let named = u8::from(selector.protocol != 0) + u8::from(selector.ports != (0..=u16::MAX));
    let size = size(selector);
    let all = if selector.addresses.start().is_ipv4() { 32 } else { 128 };
    Shape { named, size, is_everything: size == all }
}

/// The number of free bits of an address.
pub(super) fn size(selector: &TrafficSelector) -> u32 {
    let [first, last] = ends(selector);
    u128::BITS - last.saturating_sub(first).leading_zeros()
}

/// The first and the last address as numbers.
pub(super) fn ends(selector: &TrafficSelector) -> [u128; 2] {
    let number = |address: &IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(*address)),
        IpAddr::V6(address) => u128::from(*address),
    };
    [number(selector.addresses.start()), number(selector.addresses.end())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(first: &str, last: &str) -> TrafficSelector {
        let addresses = first.parse().expect("literal")..=last.parse().expect("literal");
        TrafficSelector { protocol: 0, ports: 0..=u16::MAX, addresses }
    }

    fn of(priority: Option<u8>, is_anywhere: bool, configured: &TrafficSelector, agreed: &str) -> Precedence {
        let local = Shape::of(&[], &net("10.1.0.0", "10.1.0.255"));
        let remote = Shape::of(std::slice::from_ref(configured), &net(agreed, agreed));
        precedence(priority, is_anywhere, [local, remote])
    }

    #[test]
    fn what_is_configured_decides_and_not_what_was_agreed_on() {
        let (wide, close) = (net("10.0.0.0", "10.255.255.255"), net("10.9.0.0", "10.9.0.255"));
        let all = net("0.0.0.0", "255.255.255.255");
        let host = net("10.9.0.7", "10.9.0.7");
        let order = [
            of(Some(1), false, &all, "10.9.0.7"),
            of(None, false, &close, "10.9.0.7"),
            of(None, false, &wide, "10.9.0.7"),
            of(None, true, &host, "10.9.0.7"),
            of(None, false, &all, "10.9.0.7"),
        ];
        assert!(order.is_sorted(), "{order:?}");
    }
}
