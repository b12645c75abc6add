//! Our policy rules, and their netlink messages. [`rules`](crate::host::rules) has their order.

use super::{MAIN_TABLE, Netlink, NetlinkError, protocol};
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A policy rule of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Where `Marked` and `Bound` go on.
    Onward {
        /// For IPv6.
        v6: bool,
    },
    /// Packets without the mark use the table.
    NotMarked {
        /// For IPv6.
        v6: bool,
        /// The mark.
        mark: u32,
        /// The table.
        table: u32,
    },
    /// More specific routes of the main table come first.
    MainFirst {
        /// For IPv6.
        v6: bool,
    },
    /// The same for packets without the mark.
    MainBefore {
        /// For IPv6.
        v6: bool,
        /// The mark.
        mark: u32,
    },
    /// Packets without the mark use the table before the main one: policies decide, not routes.
    BeforeMain {
        /// For IPv6.
        v6: bool,
        /// The mark, which is also the table's number.
        mark: u32,
    },
    /// Packets with the mark pass the rules up to `Onward`.
    Marked {
        /// For IPv6.
        v6: bool,
        /// The mark.
        mark: u32,
    },
    /// Packets from these addresses use the table.
    From {
        /// The addresses.
        source: IpNet,
        /// The table.
        table: u32,
    },
    /// IPv6 has no rule for packets without a source: those that have one, in this half of all addresses, pass `Unbound`.
    Bound {
        /// The half.
        upper: bool,
    },
    /// Packets of this machine that have no source yet use the table.
    Unbound {
        /// For IPv6.
        v6: bool,
        /// The table.
        table: u32,
    },
}

impl Rule {
    /// Which rules come first: without a number, the kernel places each new rule before all others.
    pub fn priority(self) -> u32 {
        match self {
            // Where strongSwan has its own.
            Self::BeforeMain { .. } => 220,
            Self::Marked { .. } => 221,
            Self::From { .. } => 222,
            Self::Bound { .. } => 223,
            Self::Unbound { .. } => 224,
            Self::Onward { .. } => ONWARD,
            Self::MainFirst { .. } | Self::MainBefore { .. } => 32_500,
            Self::NotMarked { .. } => 32_501,
        }
    }

    /// Whether answers to packets with a mark must be looked up with the mark.
    pub fn needs_valid_mark(self) -> bool {
        matches!(
            self,
            Self::NotMarked { v6: false, .. }
                | Self::MainBefore { v6: false, .. }
                | Self::BeforeMain { v6: false, .. }
                | Self::Marked { v6: false, .. }
        )
    }
}

const ONWARD: u32 = 225;

impl Netlink {
    /// Adds a rule.
    pub(in crate::host) fn add_rule(&mut self, rule: Rule) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewRule(rule_message(rule));
        self.change(message, NLM_F_CREATE | NLM_F_EXCL, || format!("add rule {rule:?}"))
    }

    /// Takes a rule away.
    pub(in crate::host) fn remove_rule(&mut self, rule: Rule) -> Result<(), NetlinkError> {
        self.change(RouteNetlinkMessage::DelRule(rule_message(rule)), 0, || format!("remove rule {rule:?}"))
    }

    /// The rules that we, or a daemon like us, have added.
    pub fn rules(&mut self) -> Result<Vec<Rule>, NetlinkError> {
        let dump = RouteNetlinkMessage::GetRule(RuleMessage::default());
        let answers = self.request(dump, NLM_F_DUMP, || "rules".to_owned())?;
        Ok(answers
            .iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewRule(message) => rule_of(message),
                _ => None,
            })
            .collect())
    }
}

fn rule_message(rule: Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.action = RuleAction::ToTable;
    let (v6, attributes) = match rule {
        Rule::NotMarked { v6, mark, table } => not_marked(&mut message, v6, mark, table),
        Rule::BeforeMain { v6, mark } => not_marked(&mut message, v6, mark, mark),
        Rule::MainFirst { v6 } => {
            (v6, vec![RuleAttribute::Table(MAIN_TABLE), RuleAttribute::SuppressPrefixLen(0)])
        }
        Rule::MainBefore { v6, mark } => {
            let (v6, mut attributes) = not_marked(&mut message, v6, mark, MAIN_TABLE);
            attributes.push(RuleAttribute::SuppressPrefixLen(0));
            (v6, attributes)
        }
        Rule::Marked { v6, mark } => {
            message.header.action = RuleAction::Goto;
            (v6, vec![RuleAttribute::FwMark(mark), RuleAttribute::Goto(ONWARD)])
        }
        Rule::From { source, table } => {
            (is_v6(source), from(&mut message, source, RuleAttribute::Table(table)))
        }
        Rule::Bound { upper } => {
            let half = Ipv6Addr::new(if upper { 0x8000 } else { 0 }, 0, 0, 0, 0, 0, 0, 0);
            let half = IpNet::new_assert(half.into(), 1);
            message.header.action = RuleAction::Goto;
            (true, from(&mut message, half, RuleAttribute::Goto(ONWARD)))
        }
        Rule::Unbound { v6, table } => {
            let table = RuleAttribute::Table(table);
            let mut attributes = if v6 {
                vec![table]
            } else {
                from(&mut message, IpAddr::from(Ipv4Addr::UNSPECIFIED).into(), table)
            };
            attributes.push(RuleAttribute::Iifname("lo".to_owned()));
            (v6, attributes)
        }
        Rule::Onward { v6 } => {
            message.header.action = RuleAction::Nop;
            (v6, Vec::new())
        }
    };
    message.header.family = if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    message.attributes = attributes;
    message.attributes.push(RuleAttribute::Priority(rule.priority()));
    message.attributes.push(RuleAttribute::Protocol(protocol()));
    message
}

fn is_v6(prefix: IpNet) -> bool {
    matches!(prefix, IpNet::V6(_))
}

fn not_marked(message: &mut RuleMessage, v6: bool, mark: u32, table: u32) -> (bool, Vec<RuleAttribute>) {
    message.header.flags = RuleFlags::Invert;
    (v6, vec![RuleAttribute::FwMark(mark), RuleAttribute::Table(table)])
}

fn from(message: &mut RuleMessage, source: IpNet, what: RuleAttribute) -> Vec<RuleAttribute> {
    message.header.src_len = source.prefix_len();
    let source = (source.prefix_len() > 0).then(|| RuleAttribute::Source(source.network()));
    source.into_iter().chain([what]).collect()
}

/// The rule that a message describes, if it is one of ours in everything.
fn rule_of(message: &RuleMessage) -> Option<Rule> {
    let v6 = message.header.family == AddressFamily::Inet6;
    let (mut mark, mut table, mut priority, mut source) = (0, 0, 0, None);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::FwMark(it) => mark = *it,
            RuleAttribute::Table(it) => table = *it,
            RuleAttribute::Priority(it) => priority = *it,
            RuleAttribute::Source(it) => source = Some(*it),
            _ => {}
        }
    }
    let everything: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let source = IpNet::new(source.unwrap_or(everything), message.header.src_len).ok()?;
    let possible = [
        Rule::NotMarked { v6, mark, table },
        Rule::MainFirst { v6 },
        Rule::MainBefore { v6, mark },
        Rule::BeforeMain { v6, mark },
        Rule::Marked { v6, mark },
        Rule::From { source, table },
        Rule::Bound { upper: true },
        Rule::Bound { upper: false },
        Rule::Unbound { v6, table },
        Rule::Onward { v6 },
    ];
    possible.into_iter().filter(|rule| rule.priority() == priority).find(|&rule| {
        let ours = rule_message(rule);
        message.header.family == ours.header.family
            && message.header.action == ours.header.action
            && message.header.src_len == ours.header.src_len
            && message.header.flags.contains(RuleFlags::Invert)
                == ours.header.flags.contains(RuleFlags::Invert)
            && ours.attributes.iter().all(|attribute| message.attributes.contains(attribute))
    })
}

/// Whether a message tells of a rule of ours.
pub(super) fn is_our_rule(message: &RuleMessage) -> bool {
    message.attributes.contains(&RuleAttribute::Protocol(protocol()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_as_it_was_written() {
        let sources = ["10.1.0.0/24", "0.0.0.0/0", "fd00::/64", "::/0"];
        let from = sources.map(|it| Rule::From { source: it.parse().expect("literal"), table: 221 });
        let of_family = |v6| {
            [
                Rule::NotMarked { v6, mark: 5, table: 6 },
                Rule::MainFirst { v6 },
                Rule::MainBefore { v6, mark: 5 },
                Rule::BeforeMain { v6, mark: 220 },
                Rule::Marked { v6, mark: 220 },
                Rule::Unbound { v6, table: 222 },
                Rule::Onward { v6 },
            ]
        };
        let halves = [true, false].map(|upper| Rule::Bound { upper });
        for rule in from.into_iter().chain(of_family(false)).chain(of_family(true)).chain(halves) {
            assert_eq!(rule_of(&rule_message(rule)), Some(rule));
        }
    }

    #[test]
    fn the_rule_of_another_is_not_ours() {
        let mut message = rule_message(Rule::MainFirst { v6: false });
        message.attributes.retain(|it| !matches!(it, RuleAttribute::Protocol(_)));
        assert!(rule_of(&message).is_none() && !is_our_rule(&message));
    }
}
