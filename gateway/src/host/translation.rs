//! Translation of addresses: the rules of `nat`, in a table of nf_tables. It stays when the daemon ends, as connections through it do.
//!
//! ```text
//! arrives ──> destination rules ──> routes ──> source rules ──> leaves
//! ```

use super::matching::{matching, of_family};
use super::nft::{self, APPEND, Batch, CREATE, NEW_CHAIN, NEW_RULE, NEW_TABLE, accept, text};
use super::own_table::OwnTable;
use config::settings::Nat;
use config::settings::nat::{NatRule, Translation};
use std::collections::BTreeMap;
use std::io;

/// The name of the table, as `nft list ruleset` shows it.
const TABLE: &str = "postern-nat";
/// Hooks of netfilter, and the places among its chains where addresses are translated (linux/netfilter_ipv4.h).
const PREROUTING: u32 = 0;
const POSTROUTING: u32 = 4;
const DESTINATION_PRIORITY: i32 = -100;
const SOURCE_PRIORITY: i32 = 100;

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
        for (comment, count) in nft::counters(socket, TABLE).unwrap_or_default() {
            let Some((list, number)) = comment.split_once(' ') else { continue };
            let Ok(number) = number.parse() else { continue };
            let list = if list == SOURCE { &mut translated.source } else { &mut translated.destination };
            // A rule of the configuration may be several of the kernel.
            *list.entry(number).or_default() += count.packets;
        }
        translated
    }

    fn install(&mut self, nat: &Nat) -> io::Result<()> {
        self.table.replace(|batch| {
            if *nat != Nat::default() {
                add(nat, batch);
            }
        })?;
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

/// The rules of the kernel for a rule of the configuration.
fn expressions(rule: &NatRule, is_destination: bool) -> Vec<Vec<Vec<u8>>> {
    let all = matching(&rule.packets).into_iter();
    all.map(|it| vec![of_family(false), it, nft::counter(), verdict(rule, is_destination)]).collect()
}

fn verdict(rule: &NatRule, is_destination: bool) -> Vec<u8> {
    match rule.translation {
        Translation::Exclude => accept(),
        Translation::Masquerade(ports) => nft::masquerade(ports),
        Translation::To(addresses, ports) => nft::translate(is_destination, addresses, ports),
    }
}
