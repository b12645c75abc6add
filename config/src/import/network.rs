//! Prefixes, ranges of addresses and traffic selectors, as sources write them.

use crate::schema::protocol;
use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use std::net::IpAddr;

/// The maximum number of prefixes that stand for one range.
const MOST: usize = 64;

/// An address or prefix with its length.
pub(super) fn with_length(text: &str) -> String {
    match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address).to_string(),
        Err(_) => text.to_owned(),
    }
}

/// One traffic selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector {
    /// Prefixes; none for the address of the gateway.
    pub(super) prefixes: Vec<IpNet>,
    /// The IP protocol, if it is one alone.
    pub(super) protocol: Option<u8>,
    /// The port, if it is one alone.
    pub(super) port: Option<u16>,
}

/// Reads `10.1.0.0/16[tcp/80]`, `10.1.0.1-10.1.0.9`, `dynamic`; the error says what is not served.
pub(super) fn selector(text: &str) -> Result<Selector, String> {
    let (network, kind) = match text.split_once('[') {
        Some((network, kind)) => (network, kind.strip_suffix(']').ok_or("the ] is missing")?),
        None => (text, ""),
    };
    let prefixes = match network.trim() {
        "dynamic" | "%dynamic" => Vec::new(),
        network => prefixes(network)?,
    };
    let (protocol, port) = protocol_and_port(kind)?;
    Ok(Selector { prefixes, protocol, port })
}

/// The prefixes of a prefix, an address or a range.
pub(super) fn prefixes(text: &str) -> Result<Vec<IpNet>, String> {
    if let Ok(prefix) = with_length(text).parse::<IpNet>() {
        return Ok(vec![prefix.trunc()]);
    }
    let range = text.split_once('-').map(|(from, to)| (from.trim().parse(), to.trim().parse()));
    let found: Vec<IpNet> = match range {
        Some((Ok(IpAddr::V4(from)), Ok(IpAddr::V4(to)))) if from <= to => {
            Ipv4Subnets::new(from, to, 0).map(IpNet::from).take(MOST + 1).collect()
        }
        Some((Ok(IpAddr::V6(from)), Ok(IpAddr::V6(to)))) if from <= to => {
            Ipv6Subnets::new(from, to, 0).map(IpNet::from).take(MOST + 1).collect()
        }
        _ => return Err(format!("{text:?} is no prefix and no range of addresses")),
    };
    if found.len() > MOST { Err(format!("{text} is more than {MOST} prefixes")) } else { Ok(found) }
}

/// Names of ports in traffic selectors, which are those of `/etc/services`.
const PORTS: &[(&str, u16)] = &[
    ("bgp", 179),
    ("domain", 53),
    ("ftp", 21),
    ("http", 80),
    ("https", 443),
    ("imap", 143),
    ("ldap", 389),
    ("ntp", 123),
    ("l2tp", 1701),
    ("l2f", 1701),
    ("rdp", 3389),
    ("sip", 5060),
    ("smtp", 25),
    ("snmp", 161),
    ("ssh", 22),
    ("syslog", 514),
    ("telnet", 23),
];

/// Reads `tcp/80`, `gre`, `17/%any`.
pub(super) fn protocol_and_port(text: &str) -> Result<(Option<u8>, Option<u16>), String> {
    let (kind, port) = text.split_once('/').unwrap_or((text, ""));
    let kind = match kind.trim().to_lowercase().as_str() {
        "" | "%any" | "any" | "0" => None,
        name => Some(protocol(name).ok_or_else(|| format!("{name:?} is no IP protocol"))?),
    };
    let port = match port.trim().to_lowercase().as_str() {
        "" | "%any" | "any" | "0" => None,
        name => {
            let known = PORTS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
            Some(known.or_else(|| name.parse().ok()).ok_or_else(|| format!("{name:?} is not one port"))?)
        }
    };
    Ok((kind, port))
}

/// Seconds: 3600, 3600s, 60m, 1h, 1d.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" | "sec" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_have_prefixes_a_protocol_and_a_port() {
        let of = |text: &str| {
            selector(text).map(|it| {
                let prefixes: Vec<String> = it.prefixes.iter().map(IpNet::to_string).collect();
                (prefixes.join(" "), it.protocol, it.port)
            })
        };
        assert_eq!(of("10.1.0.1/16"), Ok(("10.1.0.0/16".to_owned(), None, None)));
        assert_eq!(of("10.1.0.1[tcp/http]"), Ok(("10.1.0.1/32".to_owned(), Some(6), Some(80))));
        assert_eq!(of("dynamic[gre]"), Ok((String::new(), Some(47), None)));
        assert_eq!(
            of("10.0.0.1-10.0.0.4"),
            Ok(("10.0.0.1/32 10.0.0.2/31 10.0.0.4/32".to_owned(), None, None))
        );
        assert_eq!(of("fd00::-fd00::ffff"), Ok(("fd00::/112".to_owned(), None, None)));
        for wrong in ["10.0.0.9-10.0.0.1", "10.0.0.0/8[tcp/1-9]", "10.0.0.0/8[tcp", "x", "10.0.0.0/33"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert!(of("::1-ffff::").expect_err("long").contains("more than 64"));
    }

    #[test]
    fn times_have_units() {
        let read = ["90", "90s", "3m", "2h", "1d", "1w", "", "h", "99999999999999999999"].map(seconds);
        let day = Some(86_400);
        assert_eq!(read, [Some(90), Some(90), Some(180), Some(7200), day, None, None, None, None]);
    }
}
