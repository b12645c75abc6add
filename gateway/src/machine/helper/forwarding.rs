//! `system ip` and `system ipv6`: whether the kernel forwards packets.

use super::place::Place;
use super::values::{Value, Want};

/// What was changed since the machine has started, with what it was.
pub(super) const STATE_V4: &str = "/run/postern-machine/forwarding-ipv4";
/// The same of IPv6.
pub(super) const STATE_V6: &str = "/run/postern-machine/forwarding-ipv6";

/// The value that says so, if it is to be set. Those of single interfaces follow it.
pub(super) fn values(place: &Place, is_v6: bool, is_on: Option<bool>) -> Vec<Value> {
    let (name, file, absent) = if is_v6 {
        let file = "/proc/sys/net/ipv6/conf/all/forwarding";
        ("net.ipv6.conf.all.forwarding", file, "this kernel has no IPv6")
    } else {
        ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward", "this kernel does not forward")
    };
    let value = |is_on: bool| {
        let want = Want::Exactly(if is_on { "1" } else { "0" });
        Value { name: name.to_owned(), file: Some(place.at(file)), want, absent }
    };
    is_on.map(value).into_iter().collect()
}
