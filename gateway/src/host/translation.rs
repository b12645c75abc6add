//! Translation of addresses: the rules of `nat`, in a table of nf_tables. It stays when the daemon ends, as connections through it do.
//!
//! ```text
//! arrives ──> destination rules ──> routes ──> source rules ──> leaves
//! ```

use super::nft::{
    self, APPEND, Batch, CREATE, DELETE_TABLE, EQUAL, IIFNAME, NETWORK_HEADER, NEW_CHAIN, NEW_RULE,
    NEW_TABLE, NF_PROTOCOL, NOT_EQUAL, OIFNAME, TRANSPORT_HEADER, accept, compare, interface,
    interface_begins, meta, payload, protocol, text,
};
use config::settings::Nat;
use config::settings::nat::{Addresses, LinkName, NatRule, Ports, Side, Translation};
use netlink_sys::Socket;
use std::collections::BTreeMap;
use std::io;

/// The name of the table, as `nft list ruleset` shows it.
pub(super) const TABLE: &str = "postern-nat";
/// Hooks of netfilter, and the places among its chains where addresses are translated (linux/netfilter_ipv4.h).
const PREROUTING: u32 = 0;
const POSTROUTING: u32 = 4;
const DESTINATION_PRIORITY: i32 = -100;
const SOURCE_PRIORITY: i32 = 100;
/// linux/netfilter.h
const IPV4: u8 = 2;

/// What a rule has translated: the first packet of each connection counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translated {
    /// Connections.
    pub connections: u64,
    /// Bytes of their first packets.
    pub bytes: u64,
}

/// What rules have translated, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranslatedByRule {
    /// Source rules.
    pub source: BTreeMap<u32, Translated>,
    /// Destination rules.
    pub destination: BTreeMap<u32, Translated>,
}

/// The rules in force.
#[derive(Default)]
pub(super) struct Translator {
    socket: Option<(Socket, u32)>,
    wanted: Nat,
    /// Whether the table is what is wanted, as far as is known. An earlier daemon may have left one.
    is_installed: bool,
    /// The number of all rules after our last change.
    generation: Option<u32>,
}

impl Translator {
    /// The number by which the kernel names our own changes.
    pub(super) fn port(&self) -> u32 {
        self.socket.as_ref().map_or(0, |(_, port)| *port)
    }

    /// The number of all rules after our last change.
    pub(super) fn generation(&self) -> Option<u32> {
        self.generation
    }

    /// Whether the table is what was set last, if anything was.
    pub(super) fn is_trusted(&self) -> bool {
        self.is_installed || self.socket.is_none()
    }

    /// Another program has changed the table: it is made again with the next comparison.
    pub(super) fn distrust(&mut self) {
        self.is_installed = false;
    }

    /// Puts these rules in force, in one step. If the kernel refuses them, the former ones stay.
    pub(super) fn set(&mut self, nat: &Nat) -> io::Result<()> {
        if self.is_installed && self.wanted == *nat {
            return Ok(());
        }
        self.install(nat)?;
        self.wanted = nat.clone();
        Ok(())
    }

    /// Makes the table again, if another program has changed it; whether it did so.
    pub(super) fn restore(&mut self) -> io::Result<bool> {
        // Before the first configuration it is not known what is wanted.
        if self.is_trusted() {
            return Ok(false);
        }
        self.install(&self.wanted.clone())?;
        Ok(true)
    }

    /// What the rules have translated since they were put in force.
    pub(super) fn translated(&self) -> TranslatedByRule {
        let mut by_rule = TranslatedByRule::default();
        let Some((socket, _)) = self.socket.as_ref().filter(|_| self.wanted != Nat::default()) else {
            return by_rule;
        };
        for counted in nft::counters(socket, TABLE).unwrap_or_default() {
            let Some((list, number)) = counted.comment.split_once(' ') else { continue };
            let Ok(number) = number.parse() else { continue };
            let list = if list == SOURCE { &mut by_rule.source } else { &mut by_rule.destination };
            // A rule of the configuration may be several of the kernel.
            let translated: &mut Translated = list.entry(number).or_default();
            translated.connections += counted.packets;
            translated.bytes += counted.bytes;
        }
        by_rule
    }

    fn install(&mut self, nat: &Nat) -> io::Result<()> {
        if self.socket.is_none() {
            self.socket = Some(nft::open()?);
        }
        let Some((socket, _)) = &self.socket else { return Ok(()) };
        let mut batch = Batch::new();
        // The table is created if it is missing, so that its deletion cannot fail.
        batch.add(NEW_TABLE, CREATE, &text(1, TABLE));
        batch.add(DELETE_TABLE, 0, &text(1, TABLE));
        if *nat != Nat::default() {
            add(nat, &mut batch);
        }
        batch.send(socket)?;
        self.generation = nft::generation(socket);
        self.is_installed = true;
        Ok(())
    }
}

/// The names of chains, and the first word of the comments of rules.
const SOURCE: &str = "source";
const DESTINATION: &str = "destination";

fn add(nat: &Nat, batch: &mut Batch) {
    batch.add(NEW_TABLE, CREATE, &text(1, TABLE));
    let lists = [
        (DESTINATION, PREROUTING, DESTINATION_PRIORITY, &nat.destination),
        (SOURCE, POSTROUTING, SOURCE_PRIORITY, &nat.source),
    ];
    for (chain, hook, priority, rules) in lists {
        batch.add(NEW_CHAIN, CREATE, &nft::nat_chain(TABLE, chain, hook, priority));
        for (number, rule) in rules {
            let comment = nft::comment(&format!("{chain} {number}"));
            for expressions in expressions(rule, chain == DESTINATION) {
                let rule = [nft::rule(TABLE, chain, &expressions), comment.clone()].concat();
                batch.add(NEW_RULE, CREATE | APPEND, &rule);
            }
        }
    }
}

/// The rules of the kernel for a rule of the configuration: one for each protocol and each range of ports.
fn expressions(rule: &NatRule, is_destination: bool) -> Vec<Vec<Vec<u8>>> {
    let mut common = vec![meta(NF_PROTOCOL), compare(EQUAL, &[IPV4])];
    if let Some(link) = &rule.link {
        common.push(meta(if is_destination { IIFNAME } else { OIFNAME }));
        common.push(named(link));
    }
    common
        .extend(rule.source.addresses.iter().flat_map(|addresses| of_addresses(*addresses, SOURCE_ADDRESS)));
    let to = rule.destination.addresses.iter();
    common.extend(to.flat_map(|addresses| of_addresses(*addresses, DESTINATION_ADDRESS)));
    let protocols: Vec<Vec<u8>> = match &rule.protocols[..] {
        [] => vec![Vec::new()],
        protocols => protocols.iter().map(|number| protocol(*number)).collect(),
    };
    let mut all = Vec::new();
    for protocol in protocols {
        for from in of_ports(&rule.source, SOURCE_PORT) {
            for to in of_ports(&rule.destination, DESTINATION_PORT) {
                let matching = common.iter().cloned().chain([protocol.clone(), from.clone(), to]);
                all.push(matching.chain([nft::counter(), verdict(rule, is_destination)]).collect());
            }
        }
    }
    all
}

fn verdict(rule: &NatRule, is_destination: bool) -> Vec<u8> {
    match rule.translation {
        Translation::Exclude => accept(),
        Translation::Masquerade(ports) => nft::masquerade(ports),
        Translation::To(addresses, ports) => nft::translate(is_destination, addresses, ports),
    }
}

fn named(LinkName { is_negated, name, is_prefix }: &LinkName) -> Vec<u8> {
    let how = if *is_negated { NOT_EQUAL } else { EQUAL };
    if *is_prefix { interface_begins(how, name) } else { interface(how, name) }
}

/// Where addresses begin in an IPv4 header, and ports in the headers of TCP, UDP and SCTP.
const SOURCE_ADDRESS: u32 = 12;
const DESTINATION_ADDRESS: u32 = 16;
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;

fn of_addresses(Addresses { is_negated, first, last }: Addresses, at: u32) -> [Vec<u8>; 2] {
    let how = if is_negated { NOT_EQUAL } else { EQUAL };
    [payload(NETWORK_HEADER, at, 4), nft::range(how, &first.octets(), &last.octets())]
}

/// What matches ports: any of these, or all of these at once where they are excepted.
fn of_ports(side: &Side, at: u32) -> Vec<Vec<u8>> {
    let Some(Ports { is_negated, ranges }) = &side.ports else { return vec![Vec::new()] };
    let port = || payload(TRANSPORT_HEADER, at, 2);
    let range = |how, (first, last): (u16, u16)| nft::range(how, &first.to_be_bytes(), &last.to_be_bytes());
    if *is_negated {
        let all = ranges.iter().map(|ports| range(NOT_EQUAL, *ports));
        return vec![[port()].into_iter().chain(all).collect::<Vec<_>>().concat()];
    }
    ranges.iter().map(|ports| [port(), range(EQUAL, *ports)].concat()).collect()
}
