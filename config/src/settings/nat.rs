//! `nat`, typed: which packets get other addresses.

use super::Reader;
use super::packets::{Packets, parse_addresses, parse_ports, range};
use crate::schema::MASQUERADE;
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

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
    /// The packets that it is for.
    pub packets: Packets,
    /// What they get.
    pub translation: Translation,
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

impl Reader {
    pub(super) fn nat(&mut self, root: &Tree) -> Nat {
        Nat { source: self.rules(root, "source"), destination: self.rules(root, "destination") }
    }

    fn rules(&mut self, root: &Tree, list: &str) -> BTreeMap<u32, NatRule> {
        let mut rules = BTreeMap::new();
        for (number, tree) in root.at(&["nat", list, "rule"]).into_iter().flat_map(Tree::children) {
            let path = format!("nat {list} rule {number}");
            let rule = self.rule(&path, tree);
            if let (Some(rule), Ok(number), false) = (rule, number.parse(), tree.has("disable")) {
                rules.insert(number, rule);
            }
        }
        rules
    }

    fn rule(&mut self, path: &str, tree: &Tree) -> Option<NatRule> {
        let translation = self.translation(path, tree)?;
        let has_ports = match translation {
            Translation::Exclude => false,
            Translation::Masquerade(ports) | Translation::To(_, ports) => ports.is_some(),
        };
        Some(NatRule { packets: self.packets(path, tree, has_ports), translation })
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
    use super::super::packets::{Addresses, LinkName, Ports};
    use super::*;
    use crate::Settings;
    use std::net::IpAddr;

    fn read(lines: &[&str]) -> Result<Nat, String> {
        let text: String = lines.iter().map(|line| format!("set nat {line}\n")).collect();
        let read = crate::parse(&text).and_then(|tree| Settings::new(&tree));
        read.map(|(settings, _)| settings.nat)
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    fn ip(text: &str) -> IpAddr {
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
        assert_eq!((out.packets.source.addresses, out.packets.protocols.len()), (Some(inside), 0));
        let server = &nat.destination[&10];
        let link = LinkName { is_negated: true, name: "wg".to_owned(), is_prefix: true };
        assert_eq!(
            (server.packets.inbound.as_ref(), &server.packets.protocols[..]),
            (Some(&link), &[6, 17][..])
        );
        let ports = Ports { is_negated: false, ranges: vec![(443, 443), (8000, 8010)] };
        assert_eq!(server.packets.destination.ports, Some(ports));
        let to = (Ipv4Addr::new(10, 2, 0, 9), Ipv4Addr::new(10, 2, 0, 9));
        assert_eq!(server.translation, Translation::To(Some(to), Some((8443, 8443))));
        let shown = [
            out.packets.source.to_string(),
            server.packets.destination.to_string(),
            server.translation.to_string(),
            link.to_string(),
        ];
        assert_eq!(shown, ["10.2.0.0/24", "any:443,8000-8010", "10.2.0.9:8443", "!wg*"]);
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
