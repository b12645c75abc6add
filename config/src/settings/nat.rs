//! `nat`, typed: which packets get other addresses.

use super::Reader;
use super::links::LONGEST_NAME;
use crate::schema::{MASQUERADE, TCP_UDP, protocol, protocol_name};
use crate::tree::Tree;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Translation of addresses. Of each list, the first rule by number that matches decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nat {
    /// For packets that leave.
    pub source: BTreeMap<u32, NatRule>,
    /// For packets that arrive.
    pub destination: BTreeMap<u32, NatRule>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatRule {
    /// The interfaces that packets leave or arrive by.
    pub link: Option<LinkName>,
    /// Their protocols; none for all.
    pub protocols: Vec<u8>,
    /// Where they come from.
    pub source: Side,
    /// Where they are sent to.
    pub destination: Side,
    /// What they get.
    pub translation: Translation,
}

impl NatRule {
    /// Its protocols, as the configuration names them.
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

/// What packets get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Translation {
    /// Nothing else.
    Exclude,
    /// The address of the interface that they leave by, and one of these ports.
    Masquerade(Option<(u16, u16)>),
    /// One of these addresses, and one of these ports.
    To(Option<(Ipv4Addr, Ipv4Addr)>, Option<(u16, u16)>),
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
    pub first: Ipv4Addr,
    /// The last.
    pub last: Ipv4Addr,
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

impl FromStr for Addresses {
    type Err = Mismatch;

    fn from_str(text: &str) -> Result<Self, Mismatch> {
        let (is_negated, text) = negated(text);
        if let Ok(prefix) = text.parse::<Ipv4Net>() {
            let is_prefix = prefix.trunc() == prefix;
            let (first, last) = (prefix.network(), prefix.broadcast());
            return is_prefix.then_some(Self { is_negated, first, last }).ok_or(Mismatch);
        }
        let (first, last) = parse_addresses(text)?;
        Ok(Self { is_negated, first, last })
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
        let length = (u32::from(self.first) ^ u32::from(self.last)).leading_zeros() as u8;
        match Ipv4Net::new(self.first, length) {
            Ok(prefix)
                if prefix.network() == self.first && prefix.broadcast() == self.last && length < 32 =>
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

impl fmt::Display for Translation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = match self {
            Self::Exclude => return f.write_str("exclude"),
            Self::Masquerade(ports) => {
                f.write_str(MASQUERADE)?;
                ports
            }
            Self::To(addresses, ports) => {
                match addresses {
                    Some((first, last)) => range(f, first, last)?,
                    None => f.write_str("same")?,
                }
                ports
            }
        };
        let Some((first, last)) = ports else { return Ok(()) };
        f.write_str(":")?;
        range(f, first, last)
    }
}

fn not(is_negated: bool) -> &'static str {
    if is_negated { "!" } else { "" }
}

fn range<T: fmt::Display + PartialEq>(f: &mut fmt::Formatter<'_>, first: T, last: T) -> fmt::Result {
    if first == last { first.fmt(f) } else { write!(f, "{first}-{last}") }
}

/// An address or a range: its first and its last one.
pub(crate) fn parse_addresses(text: &str) -> Result<(Ipv4Addr, Ipv4Addr), Mismatch> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let of = |text: &str| text.parse::<Ipv4Addr>().map_err(|_| Mismatch);
    let (first, last) = (of(first)?, of(last)?);
    if first <= last { Ok((first, last)) } else { Err(Mismatch) }
}

/// A port or a range: its first and its last one.
pub(crate) fn parse_ports(text: &str) -> Result<(u16, u16), Mismatch> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let of = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 && port.to_string() == text => Ok(port),
        _ => Err(Mismatch),
    };
    let (first, last) = (of(first)?, of(last)?);
    if first <= last { Ok((first, last)) } else { Err(Mismatch) }
}

/// A list of rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Source,
    Destination,
}

impl Reader {
    pub(super) fn nat(&mut self, root: &Tree) -> Nat {
        Nat { source: self.rules(root, List::Source), destination: self.rules(root, List::Destination) }
    }

    fn rules(&mut self, root: &Tree, list: List) -> BTreeMap<u32, NatRule> {
        let word = if list == List::Source { "source" } else { "destination" };
        let mut rules = BTreeMap::new();
        for (number, tree) in root.at(&["nat", word, "rule"]).into_iter().flat_map(Tree::children) {
            let path = format!("nat {word} rule {number}");
            let rule = self.rule(&path, tree, list);
            if let (Some(rule), Ok(number), false) = (rule, number.parse(), tree.has("disable")) {
                rules.insert(number, rule);
            }
        }
        rules
    }

    fn rule(&mut self, path: &str, tree: &Tree, list: List) -> Option<NatRule> {
        let link = if list == List::Source { "outbound-interface" } else { "inbound-interface" };
        let protocols = match tree.value("protocol") {
            None | Some("all") => Vec::new(),
            Some(TCP_UDP) => ["tcp", "udp"].into_iter().filter_map(protocol).collect(),
            Some(other) => protocol(other).into_iter().collect(),
        };
        let side = |word| {
            let tree = tree.at(&[word]);
            let value = |of| tree.and_then(|tree: &Tree| tree.value(of));
            Side {
                addresses: value("address").and_then(|text| text.parse().ok()),
                ports: value("port").and_then(|text| text.parse().ok()),
            }
        };
        let (source, destination) = (side("source"), side("destination"));
        let translation = self.translation(path, tree)?;
        let has_ports = match translation {
            Translation::Exclude => false,
            Translation::Masquerade(ports) | Translation::To(_, ports) => ports.is_some(),
        };
        let names_ports = source.ports.is_some() || destination.ports.is_some() || has_ports;
        if names_ports && !matches!(tree.value("protocol"), Some("tcp" | "udp" | "sctp" | TCP_UDP)) {
            let reason = format!("{path} has ports, and its protocol may be one without ports");
            self.error(tree.location(), reason, format!("set {path} protocol {TCP_UDP}"));
        }
        let link = tree.at(&[link]).and_then(|tree| tree.value("name"));
        let link = link.and_then(|text| text.parse().ok());
        Some(NatRule { link, protocols, source, destination, translation })
    }

    /// What packets get; an error if nothing says so.
    fn translation(&mut self, path: &str, tree: &Tree) -> Option<Translation> {
        let translation = tree.at(&["translation"]);
        let value = |of| translation.and_then(|tree: &Tree| tree.value(of));
        let (address, port) = (value("address"), value("port"));
        let ports = port.and_then(|text| parse_ports(text).ok());
        if tree.has("exclude") {
            if translation.is_some() {
                self.warn(format!("{path} translation has no effect beside: {path} exclude"));
            }
            return Some(Translation::Exclude);
        }
        if address == Some(MASQUERADE) {
            return Some(Translation::Masquerade(ports));
        }
        let addresses = address.and_then(|text| parse_addresses(text).ok());
        if addresses.is_none() && ports.is_none() {
            let example = if path.starts_with("nat source") { MASQUERADE } else { "ADDRESS" };
            let fix = format!("set {path} translation address {example}, or set {path} exclude");
            self.error(tree.location(), format!("{path} does not say what packets get"), fix);
            return None;
        }
        Some(Translation::To(addresses, ports))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    fn read(lines: &[&str]) -> Result<Nat, String> {
        let text: String = lines.iter().map(|line| format!("set nat {line}\n")).collect();
        let read = crate::parse(&text).and_then(|tree| Settings::new(&tree));
        read.map(|(settings, _)| settings.nat)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().expect("literal")
    }

    #[test]
    fn rules_are_read_in_the_words_of_vyos() {
        let nat = read(&[
            "source rule 5 destination address 10.0.0.0/8",
            "source rule 5 exclude",
            "source rule 10 outbound-interface name eth0",
            "source rule 10 source address 10.2.0.0/24",
            "source rule 10 translation address masquerade",
            "source rule 20 translation address 192.0.2.1-192.0.2.4",
            "source rule 20 disable",
            "destination rule 10 inbound-interface name !wg*",
            "destination rule 10 protocol tcp_udp",
            "destination rule 10 destination port 443,8000-8010",
            "destination rule 10 translation address 10.2.0.9",
            "destination rule 10 translation port 8443",
        ]);
        let nat = nat.expect("right");
        assert_eq!(nat.source.keys().copied().collect::<Vec<_>>(), [5, 10], "one is disabled");
        assert_eq!(nat.source[&5].translation, Translation::Exclude);
        let out = &nat.source[&10];
        assert_eq!(out.translation, Translation::Masquerade(None));
        let inside = Addresses { is_negated: false, first: ip("10.2.0.0"), last: ip("10.2.0.255") };
        assert_eq!((out.source.addresses, out.protocols.len()), (Some(inside), 0));
        let server = &nat.destination[&10];
        let link = LinkName { is_negated: true, name: "wg".to_owned(), is_prefix: true };
        assert_eq!((server.link.as_ref(), &server.protocols[..]), (Some(&link), &[6, 17][..]));
        let ports = Ports { is_negated: false, ranges: vec![(443, 443), (8000, 8010)] };
        assert_eq!(server.destination.ports, Some(ports));
        let to = (ip("10.2.0.9"), ip("10.2.0.9"));
        assert_eq!(server.translation, Translation::To(Some(to), Some((8443, 8443))));
        let shown = [
            out.source.to_string(),
            server.destination.to_string(),
            server.translation.to_string(),
            link.to_string(),
        ];
        assert_eq!(shown, ["10.2.0.0/24", "any:443,8000-8010", "10.2.0.9:8443", "!wg*"]);
    }

    #[test]
    fn addresses_are_shown_as_they_are_written() {
        for text in
            ["10.0.0.1", "!10.0.0.0/8", "10.0.0.1-10.0.0.9", "0.0.0.0/0", "10.0.0.0/31", "10.0.0.0-10.0.0.2"]
        {
            assert_eq!(text.parse::<Addresses>().map(|it| it.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn a_rule_that_says_nothing_or_ports_of_no_protocol_is_refused_with_a_fix() {
        for (lines, said) in [
            (
                &["source rule 10 outbound-interface name eth0"][..],
                "set nat source rule 10 translation address masquerade",
            ),
            (
                &["destination rule 1 source address 10.0.0.1"],
                "set nat destination rule 1 translation address ADDRESS",
            ),
            (
                &[
                    "destination rule 1 destination port 80",
                    "destination rule 1 translation address 10.0.0.1",
                ],
                "set nat destination rule 1 protocol tcp_udp",
            ),
            (&["source rule 1 translation address 10.0.0.0/24"], "masquerade"),
            (&["source rule 0 exclude"], "1 to 999999"),
            (&["static rule 1 destination address 10.0.0.1"], "write a source and a destination rule"),
        ] {
            let refused = read(lines).expect_err("refused");
            assert!(refused.contains(said), "{lines:?}: {refused}");
        }
    }
}
