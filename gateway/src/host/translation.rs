//! Translation of addresses: the rules of `nat`, in a table of nf_tables. It stays when the daemon ends, as connections through it do.
//!
//! ```text
//! arrives ──> destination rules ──> routes ──> source rules ──> leaves
//! ```

use super::nft::{
    self, APPEND, Batch, CREATE, EQUAL, IIFNAME, NETWORK_HEADER, NEW_CHAIN, NEW_RULE, NEW_TABLE, NF_PROTOCOL,
    NOT_EQUAL, OIFNAME, TRANSPORT_HEADER, accept, compare, interface, interface_begins, meta, payload,
    protocol, text,
};
use super::own_table::OwnTable;
use config::settings::Nat;
use config::settings::nat::{Addresses, LinkName, NatRule, Ports, Side, Translation};
use std::collections::BTreeMap;
use std::io;

/// The name of the table, as `nft list ruleset` shows it.
const TABLE: &str = "postern-nat";
/// Hooks of netfilter, and the places among its chains where addresses are translated (linux/netfilter_ipv4.h).
const PREROUTING: u32 = 0;
const POSTROUTING: u32 = 4;
const DESTINATION_PRIORITY: i32 = -100;
const SOURCE_PRIORITY: i32 = 100;
/// linux/netfilter.h
const IPV4: u8 = 2;

/// Connections that rules have translated, by their numbers: the first packet of each counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translated {
    /// Those of source rules.
    pub source: BTreeMap<u32, u64>,
    /// Those of destination rules.
    pub destination: BTreeMap<u32, u64>,
}

/// The rules in force.
pub(super) struct Translator {
    table: OwnTable,
    wanted: Nat,
}

impl Default for Translator {
    fn default() -> Self {
        Self { table: OwnTable::new(TABLE), wanted: Nat::default() }
    }
}

impl Translator {
    /// The table.
    pub(super) fn table(&mut self) -> &mut OwnTable {
        &mut self.table
    }

    /// Whether the table is what was set last, if anything was.
    pub(super) fn is_trusted(&self) -> bool {
        self.table.is_installed() || self.table.socket().is_none()
    }

    /// Puts these rules in force, in one step. If the kernel refuses them, the former ones stay.
    pub(super) fn set(&mut self, nat: &Nat) -> io::Result<()> {
        if self.table.is_installed() && self.wanted == *nat {
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
    pub(super) fn translated(&self) -> Translated {
        let mut translated = Translated::default();
        let Some(socket) = self.table.socket().filter(|_| self.wanted != Nat::default()) else {
            return translated;
        };
        for (comment, packets) in nft::counters(socket, TABLE).unwrap_or_default() {
            let Some((list, number)) = comment.split_once(' ') else { continue };
            let Ok(number) = number.parse() else { continue };
            let list = if list == SOURCE { &mut translated.source } else { &mut translated.destination };
            // A rule of the configuration may be several of the kernel.
            *list.entry(number).or_default() += packets;
        }
        translated
    }

    fn install(&mut self, nat: &Nat) -> io::Result<()> {
        self.table.replace(|batch| {
            if *nat != Nat::default() {
                add(nat, batch);
            }
        })
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
