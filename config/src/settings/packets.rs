//! Which packets rules are for, of `nat` and of `firewall`: interfaces, protocols, addresses and ports, in the forms of VyOS.

use super::Reader;
use super::links::LONGEST_NAME;
use crate::schema::{TCP_UDP, protocol, protocol_name};
use crate::tree::Tree;
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// The packets of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// The interfaces that they arrive by.
    pub inbound: Option<LinkName>,
    /// The interfaces that they leave by.
    pub outbound: Option<LinkName>,
    /// Their protocols; none for all.
    pub protocols: Vec<u8>,
    /// Where they come from.
    pub source: Side,
    /// Where they are sent to.
    pub destination: Side,
}

impl Packets {
    /// Their protocols, as the configuration names them.
    pub fn protocol_names(&self) -> String {
        match &self.protocols[..] {
            [] => "all".to_owned(),
            [one] => protocol_name(*one).map_or_else(|| one.to_string(), str::to_owned),
            _ => TCP_UDP.to_owned(),
        }
    }
}

/// One end of packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// The addresses, if not any.
    pub addresses: Option<Addresses>,
    /// The ports, if not any.
    pub ports: Option<Ports>,
}

/// A text is not what it is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch;

/// Names of links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkName {
    /// All others are meant.
    pub is_negated: bool,
    /// The name, or what names begin with.
    pub name: String,
    /// Whether all names are meant that begin so.
    pub is_prefix: bool,
}

/// Addresses from a first one to a last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// All others are meant.
    pub is_negated: bool,
    /// The first.
    pub first: IpAddr,
    /// The last.
    pub last: IpAddr,
}

/// Ranges of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// All others are meant.
    pub is_negated: bool,
    /// The first and the last of each.
    pub ranges: Vec<(u16, u16)>,
}

fn negated(text: &str) -> (bool, &str) {
    text.strip_prefix('!').map_or((false, text), |rest| (true, rest))
}

impl FromStr for LinkName {
    type Err = Mismatch;

    fn from_str(text: &str) -> Result<Self, Mismatch> {
        let (is_negated, text) = negated(text);
        let (name, is_prefix) = text.strip_suffix('*').map_or((text, false), |name| (name, true));
        // What the kernel takes as a name.
        let is_part = |byte: u8| byte.is_ascii_graphic() && !b"/:*!\"'\\".contains(&byte);
        let is_name = (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(is_part);
        if !is_name || name == "." || name == ".." {
            return Err(Mismatch);
        }
        Ok(Self { is_negated, name: name.to_owned(), is_prefix })
    }
}

impl Addresses {
    /// Whether they are of IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }
}

impl FromStr for Addresses {
    type Err = Mismatch;

    fn from_str(text: &str) -> Result<Self, Mismatch> {
        let (is_negated, text) = negated(text);
        if let Ok(prefix) = text.parse::<IpNet>() {
            let is_prefix = prefix.trunc() == prefix;
            let (first, last) = (prefix.network(), prefix.broadcast());
            return is_prefix.then_some(Self { is_negated, first, last }).ok_or(Mismatch);
        }
        let (first, last) = parse_range(text, |text| text.parse::<IpAddr>().ok())?;
        let is_of_one_version = first.is_ipv4() == last.is_ipv4();
        is_of_one_version.then_some(Self { is_negated, first, last }).ok_or(Mismatch)
    }
}

impl FromStr for Ports {
    type Err = Mismatch;

    fn from_str(text: &str) -> Result<Self, Mismatch> {
        let (is_negated, text) = negated(text);
        let ranges = text.split(',').map(parse_ports).collect::<Result<_, _>>()?;
        Ok(Self { is_negated, ranges })
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", not(self.is_negated), self.name, if self.is_prefix { "*" } else { "" })
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(not(self.is_negated))?;
        let (length, whole) = match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                ((u32::from(first) ^ u32::from(last)).leading_zeros(), u32::BITS)
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                ((u128::from(first) ^ u128::from(last)).leading_zeros(), u128::BITS)
            }
            _ => (0, 0),
        };
        match IpNet::new(self.first, length as u8) {
            Ok(prefix)
                if prefix.network() == self.first && prefix.broadcast() == self.last && length < whole =>
            {
                prefix.fmt(f)
            }
            _ => range(f, self.first, self.last),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(not(self.is_negated))?;
        for (place, (first, last)) in self.ranges.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { "," })?;
            range(f, first, last)?;
        }
        Ok(())
    }
}

/// As the configuration has it, in one word for each end: `10.1.0.0/24:80`.
impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.addresses {
            Some(addresses) => addresses.fmt(f)?,
            None => f.write_str("any")?,
        }
        self.ports.as_ref().map_or(Ok(()), |ports| write!(f, ":{ports}"))
    }
}

fn not(is_negated: bool) -> &'static str {
    if is_negated { "!" } else { "" }
}

pub(super) fn range<T: fmt::Display + PartialEq>(
    f: &mut fmt::Formatter<'_>,
    first: T,
    last: T,
) -> fmt::Result {
    if first == last { first.fmt(f) } else { write!(f, "{first}-{last}") }
}

/// A value, or a range from a first one to a last one that is not below it.
fn parse_range<T: PartialOrd>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Result<(T, T), Mismatch> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = (parse(first).ok_or(Mismatch)?, parse(last).ok_or(Mismatch)?);
    if range.0 <= range.1 { Ok(range) } else { Err(Mismatch) }
}

/// An address or a range: its first and its last one.
pub(crate) fn parse_addresses(text: &str) -> Result<(Ipv4Addr, Ipv4Addr), Mismatch> {
    parse_range(text, |text| text.parse().ok())
}

/// A port or a range: its first and its last one.
pub(crate) fn parse_ports(text: &str) -> Result<(u16, u16), Mismatch> {
    parse_range(text, |text| text.parse().ok().filter(|port: &u16| *port > 0 && port.to_string() == text))
}

impl Reader {
    /// The packets of the rule at a path. Ports, here or `elsewhere` in the rule, need a protocol that has some.
    pub(super) fn packets(&mut self, path: &str, tree: &Tree, elsewhere: bool) -> Packets {
        let protocols = match tree.value("protocol") {
            None | Some("all") => Vec::new(),
            Some(TCP_UDP) => ["tcp", "udp"].into_iter().filter_map(protocol).collect(),
            Some(other) => protocol(other).into_iter().collect(),
        };
        let value = |word, of| tree.at(&[word]).and_then(|tree| tree.value(of));
        let link = |word| value(word, "name").and_then(|text| text.parse().ok());
        let side = |word| Side {
            addresses: value(word, "address").and_then(|text| text.parse().ok()),
            ports: value(word, "port").and_then(|text| text.parse().ok()),
        };
        let (source, destination) = (side("source"), side("destination"));
        let has_ports = source.ports.is_some() || destination.ports.is_some() || elsewhere;
        if has_ports && !matches!(tree.value("protocol"), Some("tcp" | "udp" | "sctp" | TCP_UDP)) {
            let reason = format!("{path} has ports, and its protocol may be one without ports");
            self.error(tree.location(), reason, format!("set {path} protocol {TCP_UDP}"));
        }
        let (inbound, outbound) = (link("inbound-interface"), link("outbound-interface"));
        Packets { inbound, outbound, protocols, source, destination }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_as_they_are_written() {
        for text in [
            "10.0.0.1",
            "!10.0.0.0/8",
            "10.0.0.1-10.0.0.9",
            "0.0.0.0/0",
            "10.0.0.0/31",
            "10.0.0.0-10.0.0.2",
            "2001:db8::/32",
            "!2001:db8::1",
            "2001:db8::1-2001:db8::9",
            "::/0",
        ] {
            assert_eq!(text.parse::<Addresses>().map(|it| it.to_string()), Ok(text.to_owned()));
        }
        for text in ["10.0.0.1-::1", "2001:db8::1/32", "::2-::1"] {
            assert_eq!(text.parse::<Addresses>(), Err(Mismatch), "{text}");
        }
    }
}
