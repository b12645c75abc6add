//! Selectors as people write them.

use std::fmt::Write;
use tunnel::esp::TrafficSelector;

/// Several, on one line.
pub fn list(selectors: &[TrafficSelector]) -> String {
    if selectors.is_empty() {
        return "the gateway's own address".to_owned();
    }
    selectors.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// One selector: a prefix or a range, with protocol and port where there are any.
pub fn text(selector: &TrafficSelector) -> String {
    let (first, last) = (*selector.addresses.start(), *selector.addresses.end());
    let prefix = (0..=if first.is_ipv4() { 32 } else { 128 })
        .filter_map(|length| ipnet::IpNet::new(first, length).ok())
        .find(|net| net.network() == first && net.broadcast() == last);
    let mut text = prefix.map_or_else(|| format!("{first}-{last}"), |prefix| prefix.to_string());
    let (low, high) = (*selector.ports.start(), *selector.ports.end());
    let port = match (low, high) {
        (0, u16::MAX) => String::new(),
        (low, high) if low == high => low.to_string(),
        (low, high) => format!("{low}-{high}"),
    };
    if selector.protocol != 0 || !port.is_empty() {
        let _ = write!(text, "[{}/{port}]", selector.protocol);
    }
    text
}
