//! What a DHCP server has given, out of what udhcpc says: text from the network, of which nothing is taken that is not what it is
//! to be.

use crate::dns;
use ipnet::Ipv4Net;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Servers of a kind that are taken.
const MOST: usize = 4;
/// A shorter prefix would take all packets of this machine, also those that tunnels are for.
const SHORTEST_PREFIX: u8 = 8;
/// The variables that udhcpc has for the options that are taken.
pub const VARIABLES: [&str; 9] =
    ["interface", "ip", "mask", "subnet", "router", "dns", "domain", "serverid", "lease"];

/// What a server has given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lease {
    /// The address, with the length of its network's prefix.
    #[serde(with = "as_text")]
    #[schemars(with = "String")]
    pub address: Ipv4Net,
    /// The router, if there is one on the network.
    pub router: Option<Ipv4Addr>,
    /// Name servers.
    pub name_servers: Vec<Ipv4Addr>,
    /// The domain of the network.
    pub domain: Option<String>,
    /// The server.
    pub server: Option<Ipv4Addr>,
    /// For how many seconds it is given.
    pub seconds: u32,
}

/// A network as its text.
mod as_text {
    use ipnet::Ipv4Net;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(net: &Ipv4Net, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(net)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Ipv4Net, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// What is wrong with what a server has given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server gives {what} that cannot be used: {value:?}")]
pub struct Unusable {
    what: &'static str,
    value: String,
}

impl Lease {
    /// Reads what udhcpc says.
    pub fn new(said: &BTreeMap<String, String>) -> Result<Self, Unusable> {
        let text = |name: &str| said.get(name).map(String::as_str);
        let unusable =
            |what| move |value: Option<&str>| Unusable { what, value: shown(value.unwrap_or("none")) };
        let ip = text("ip");
        let address = ip.and_then(|text| text.parse().ok()).ok_or_else(|| unusable("an address")(ip))?;
        let mask = text("mask").or(text("subnet"));
        let length = mask.and_then(prefix_length).ok_or_else(|| unusable("a network mask")(mask))?;
        let address = Ipv4Net::new(address, length).map_err(|_| unusable("a network mask")(mask))?;
        let all = |name: &str| {
            let words = text(name).unwrap_or_default().split_ascii_whitespace();
            words.filter_map(|word| word.parse::<Ipv4Addr>().ok()).filter(|it| is_host(*it)).take(MOST)
        };
        let router = all("router").find(|it| address.contains(it) && *it != address.addr());
        let lease = Self {
            address,
            router,
            name_servers: all("dns").collect(),
            domain: text("domain").filter(|it| is_domain(it)).map(str::to_owned),
            server: all("serverid").next(),
            seconds: text("lease").and_then(|text| text.parse().ok()).unwrap_or(0),
        };
        if lease.is_usable() { Ok(lease) } else { Err(unusable("an address")(ip)) }
    }

    /// Whether a machine may have it: what another process has checked is checked again.
    pub fn is_usable(&self) -> bool {
        let (address, net) = (self.address.addr(), self.address);
        let is_of_network = net.prefix_len() < 31 && (address == net.network() || address == net.broadcast());
        let is_near = |router: Ipv4Addr| net.contains(&router) && router != address && is_host(router);
        is_host(address)
            && net.prefix_len() >= SHORTEST_PREFIX
            && !is_of_network
            && self.router.is_none_or(is_near)
            && self.domain.as_deref().is_none_or(is_domain)
            && self.name_servers.len() <= MOST
    }
}

/// Whether an address can be that of a machine on a network.
fn is_host(address: Ipv4Addr) -> bool {
    let is_reserved = address.octets()[0] == 0 || address.octets()[0] >= 240;
    !(address.is_loopback() || address.is_multicast() || is_reserved)
}

/// udhcpc has both forms: a number, and a mask.
fn prefix_length(text: &str) -> Option<u8> {
    if let Ok(length) = text.parse::<u8>() {
        return (1..=32).contains(&length).then_some(length);
    }
    let mask = u32::from(text.parse::<Ipv4Addr>().ok()?);
    (mask.leading_ones() + mask.trailing_zeros() == u32::BITS || mask == u32::MAX)
        .then(|| mask.leading_ones() as u8)
}

/// The root is no domain of a network.
fn is_domain(text: &str) -> bool {
    dns::is_domain(text) && !text.starts_with('.')
}

/// Text from the network, as a log may have it.
fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(said: &[(&str, &str)]) -> Result<Lease, Unusable> {
        let said = said.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Lease::new(&said.collect())
    }

    const GIVEN: [(&str, &str); 8] = [
        ("ip", "192.0.2.7"),
        ("mask", "24"),
        ("subnet", "255.255.255.0"),
        ("router", "192.0.2.1 192.0.2.2"),
        ("dns", "9.9.9.9 192.0.2.1"),
        ("domain", "site.example"),
        ("serverid", "192.0.2.1"),
        ("lease", "3600"),
    ];

    fn with(name: &'static str, value: &'static str) -> Result<Lease, Unusable> {
        let mut given = GIVEN;
        given.iter_mut().filter(|(it, _)| *it == name).for_each(|(_, it)| *it = value);
        read(&given)
    }

    #[test]
    fn what_a_server_gives_is_read() {
        let lease = read(&GIVEN).expect("right");
        assert_eq!(lease.address.to_string(), "192.0.2.7/24");
        assert_eq!((lease.router, lease.name_servers.len()), ("192.0.2.1".parse().ok(), 2));
        assert_eq!((lease.domain.as_deref(), lease.seconds), (Some("site.example"), 3600));
        assert_eq!(with("mask", "255.255.0.0").expect("right").address.prefix_len(), 16);
        let few = read(&[("ip", "192.0.2.7"), ("subnet", "255.255.255.0")]).expect("enough");
        assert_eq!((few.router, few.server, few.seconds), (None, None, 0));
    }

    #[test]
    fn what_no_machine_can_have_is_refused() {
        for (name, value) in [
            ("ip", "127.0.0.1"),
            ("ip", "0.0.0.0"),
            ("ip", "224.0.0.1"),
            ("ip", "255.255.255.255"),
            ("ip", "192.0.2.0"),
            ("ip", "192.0.2.255"),
            ("ip", "192.0.2.7; reboot"),
            ("ip", "::1"),
            ("mask", "0"),
            ("mask", "1"),
            ("mask", "33"),
            ("mask", "255.0.255.0"),
            ("mask", "$(reboot)"),
        ] {
            assert!(with(name, value).is_err(), "{name} {value}");
        }
        assert!(read(&[("ip", "192.0.2.7")]).is_err() && read(&[("mask", "24")]).is_err());
    }

    #[test]
    fn what_else_is_wrong_is_left_out() {
        assert_eq!(with("router", "198.51.100.1").expect("without").router, None, "it is not on the network");
        assert_eq!(with("router", "192.0.2.7").expect("without").router, None, "it is the machine itself");
        assert_eq!(with("router", "a `b`").expect("without").router, None);
        for domain in ["a b", "a;b", "$(reboot)", "-a", ".", "", "ä.example", "a\nb"] {
            assert_eq!(with("domain", domain).expect("without").domain, None, "{domain:?}");
        }
        let many = with("dns", "1.1.1.1 127.0.0.1 x 2.2.2.2 3.3.3.3 4.4.4.4 5.5.5.5").expect("right");
        assert_eq!(many.name_servers.len(), MOST);
        assert_eq!(with("lease", "-1").expect("right").seconds, 0);
    }
}
