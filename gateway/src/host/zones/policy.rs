//! A policy as chains and rules of nf_tables.

use super::TABLE;
use crate::host::matching::{icmp_on_link, matching, of_family};
use crate::host::nft::{
    self, APPEND, Batch, CREATE, EQUAL, IIFNAME, NEW_CHAIN, NEW_RULE, OIFNAME, TRANSPORT_HEADER, accept,
    compare, counter, interface, jump, meta, payload, protocol,
};
use config::settings::Firewall;
use config::settings::firewall::{Action, FirewallRule, RuleSet, SetName, State, Zone};
use packet::header::ip::TCP;
use std::collections::{BTreeMap, BTreeSet};

/// Hooks of netfilter, and the place of filters there, behind destination NAT and before source NAT (linux/netfilter_ipv4.h).
const INPUT: u32 = 1;
const FORWARD: u32 = 2;
const OUTPUT: u32 = 3;
const PRIORITY: i32 = 0;
/// Neighbour solicitation and advertisement (RFC 4861), without which IPv6 ends: hop limit, first and last type.
const NEIGHBOURS: (u8, [u8; 2]) = (255, [135, 136]);
/// Routers and redirects (RFC 4861); groups that hosts of a link have joined (RFC 2710, RFC 3810): a switch that does not hear of
/// them withholds neighbour discovery.
const ON_LINK: [(u8, [u8; 2]); 4] = [(255, [133, 134]), (255, [137, 137]), (1, [130, 132]), (1, [143, 143])];

/// A rule of the kernel, what it is for, and the line of the configuration.
struct Rule {
    expressions: Vec<Vec<u8>>,
    comment: Option<String>,
    line: String,
}

/// Chains of a policy.
pub(super) struct Policy<'a> {
    firewall: &'a Firewall,
    /// What the names of its chains begin with.
    prefix: String,
    chains: BTreeMap<String, Vec<Rule>>,
}

impl<'a> Policy<'a> {
    pub(super) fn new(firewall: &'a Firewall, prefix: String) -> Self {
        Self { firewall, prefix, chains: BTreeMap::new() }
    }

    pub(super) fn add_to(mut self, batch: &mut Batch) {
        self.states();
        self.sets();
        self.forward();
        let local = self.firewall.local();
        if local.is_some() || !self.firewall.states.is_empty() {
            self.of_this_machine("input", IIFNAME, local);
            self.of_this_machine("output", OIFNAME, local);
        }
        self.rejected();
        for chain in self.chains.keys() {
            let name = self.name(chain);
            let hook = match chain.as_str() {
                "forward" => Some(FORWARD),
                "input" => Some(INPUT),
                "output" => Some(OUTPUT),
                _ => None,
            };
            let chain = match hook {
                Some(hook) => nft::base_chain(TABLE, &name, hook, PRIORITY),
                None => nft::chain(TABLE, &name),
            };
            batch.add(NEW_CHAIN, CREATE, &chain);
        }
        for (chain, rules) in &self.chains {
            for rule in rules {
                batch.place(rule.line.clone());
                let comment = rule.comment.as_deref().map(nft::comment).unwrap_or_default();
                let rule = [nft::rule(TABLE, &self.name(chain), &rule.expressions), comment].concat();
                batch.add(NEW_RULE, CREATE | APPEND, &rule);
            }
        }
    }

    fn name(&self, chain: &str) -> String {
        format!("{}{chain}", self.prefix)
    }

    fn add(&mut self, chain: &str, line: &str, comment: Option<String>, expressions: Vec<Vec<u8>>) {
        let rule = Rule { expressions, comment, line: line.to_owned() };
        self.chains.entry(chain.to_owned()).or_default().push(rule);
    }

    /// A rule that counts, logs and decides.
    fn decide(&mut self, chain: &str, line: &str, rule: Deciding<'_>) {
        let Deciding { matching, comment, log, action } = rule;
        let log = log.map(|of| nft::log(&format!("[{of}-{}] ", letter(action)))).unwrap_or_default();
        let expressions = vec![matching, counter(), log, self.verdict(action)];
        self.add(chain, line, Some(comment.to_owned()), expressions);
    }

    fn verdict(&self, action: Action) -> Vec<u8> {
        match action {
            Action::Accept => accept(),
            Action::Drop => nft::drop(),
            Action::Reject => jump(&self.name(REJECTED)),
        }
    }

    fn states(&mut self) {
        for (state, action) in &self.firewall.states {
            let line = format!("firewall global-options state-policy {} action", state.word());
            let comment = format!("state {}", state.word());
            let matching = nft::in_states(bits([*state]));
            self.decide(STATES, &line, Deciding { matching, comment: &comment, log: None, action: *action });
        }
    }

    /// Rule sets that zones name.
    fn sets(&mut self) {
        for name in self.firewall.used_sets() {
            if let Some(set) = self.firewall.sets.get(&name) {
                self.set(&name, set);
            }
        }
    }

    fn set(&mut self, name: &SetName, set: &RuleSet) {
        let chain = chain_of(name);
        let log = |number: &dyn std::fmt::Display| format!("{}-NAM-{}-{number}", name.family(), name.name);
        for (number, rule) in &set.rules {
            let line = format!("{} rule {number}", name.path());
            let comment = format!("{} {} {number}", name.family(), name.name);
            for matching in rules(rule, name.v6) {
                let log = rule.log.then(|| log(number));
                let rule = Deciding { matching, comment: &comment, log: log.as_deref(), action: rule.action };
                self.decide(&chain, &line, rule);
            }
        }
        let (line, comment) =
            (format!("{} default-action", name.path()), format!("{} {} default", name.family(), name.name));
        // Forwarded packets cannot have these hop limits: only rule sets of the local zone see such packets.
        if name.v6 && self.firewall.local().is_some() {
            for kind in ON_LINK {
                self.add(&chain, &line, None, vec![icmp_on_link(kind), accept()]);
            }
        }
        let log = set.default_log.then(|| log(&"default"));
        let rest = Deciding {
            matching: Vec::new(),
            comment: &comment,
            log: log.as_deref(),
            action: set.default_action,
        };
        self.decide(&chain, &line, rest);
    }

    fn forward(&mut self) {
        let zones = &self.firewall.zones;
        self.chains.entry("forward".to_owned()).or_default();
        self.ask_states("forward");
        for (name, zone) in zones.iter().filter(|(_, zone)| !zone.is_local) {
            let (line, to) = (format!("firewall zone {name}"), format!("to-{name}"));
            for member in &zone.members {
                let within = if zone.drops_within { Action::Drop } else { Action::Accept };
                let (matching, comment) = (by(IIFNAME, member), format!("zone {name} within"));
                self.decide(&to, &line, Deciding { matching, comment: &comment, log: None, action: within });
            }
            self.ask_zones(&to, name, zone);
            self.default(&to, name, zone, Vec::new());
            for member in &zone.members {
                let expressions = vec![by(OIFNAME, member), jump(&self.name(&to))];
                self.add("forward", &line, None, expressions);
            }
        }
        // What comes from a zone leaves by an interface of a zone only.
        for (name, zone) in zones {
            for member in &zone.members {
                let (matching, comment) = (by(IIFNAME, member), format!("zone {name} outside"));
                let rule = Deciding { matching, comment: &comment, log: None, action: Action::Drop };
                self.decide("forward", &format!("firewall zone {name}"), rule);
            }
        }
    }

    /// Rule sets for packets into a zone from others, by the interface that they arrive by.
    fn ask_zones(&mut self, chain: &str, name: &str, zone: &Zone) {
        for from in zone.from.keys() {
            let members = self.firewall.zones.get(from).map(|from| &from.members);
            for member in members.into_iter().flatten() {
                self.ask_sets(chain, name, zone, from, by(IIFNAME, member));
            }
        }
    }

    fn ask_sets(&mut self, chain: &str, name: &str, zone: &Zone, from: &str, matching: Vec<u8>) {
        for set in [false, true].into_iter().filter_map(|v6| zone.set_from(from, v6)) {
            let line = format!("firewall zone {name} from {from} firewall");
            let jump = jump(&self.name(&chain_of(&set)));
            self.add(chain, &line, None, vec![of_family(set.v6), matching.clone(), jump]);
        }
    }

    fn default(&mut self, chain: &str, name: &str, zone: &Zone, matching: Vec<u8>) {
        let (line, comment) =
            (format!("firewall zone {name} default-action"), format!("zone {name} default"));
        let log = zone.default_log.then(|| format!("ZONE-{name}"));
        let action = zone.default_action;
        self.decide(chain, &line, Deciding { matching, comment: &comment, log: log.as_deref(), action });
    }

    fn ask_states(&mut self, chain: &str) {
        if !self.firewall.states.is_empty() {
            let jump = jump(&self.name(STATES));
            self.add(chain, "firewall global-options state-policy", None, vec![jump]);
        }
    }

    /// Packets to this machine, or from it, told apart by the interface on the other side.
    fn of_this_machine(&mut self, chain: &str, link: u32, local: Option<(&String, &Zone)>) {
        let line = local.map_or_else(|| "firewall".to_owned(), |(name, _)| format!("firewall zone {name}"));
        self.add(chain, &line, None, vec![by(link, "lo"), accept()]);
        self.ask_states(chain);
        let Some((local_name, local)) = local else { return };
        self.add(chain, &line, None, vec![icmp_on_link(NEIGHBOURS), accept()]);
        if link == IIFNAME {
            self.ask_zones(chain, local_name, local);
        } else {
            for (name, zone) in &self.firewall.zones {
                for member in &zone.members {
                    self.ask_sets(chain, name, zone, local_name, by(link, member));
                }
            }
        }
        for kind in ON_LINK {
            self.add(chain, &line, None, vec![icmp_on_link(kind), accept()]);
        }
        if link == OIFNAME {
            for (name, zone) in &self.firewall.zones {
                for member in &zone.members {
                    self.default(chain, name, zone, by(link, member));
                }
            }
        }
        self.default(chain, local_name, local, Vec::new());
    }

    /// What answers the senders of rejected packets, if there are some.
    fn rejected(&mut self) {
        let firewall = self.firewall;
        let mut actions = firewall.states.values().copied().collect::<BTreeSet<_>>();
        actions.extend(firewall.zones.values().map(|zone| zone.default_action));
        for set in firewall.sets.values() {
            actions.insert(set.default_action);
            actions.extend(set.rules.values().map(|rule| rule.action));
        }
        if actions.contains(&Action::Reject) {
            self.add(REJECTED, "firewall", None, vec![protocol(TCP), nft::reject(true)]);
            self.add(REJECTED, "firewall", None, vec![nft::reject(false)]);
        }
    }
}

const REJECTED: &str = "rejected";
const STATES: &str = "states";

/// A rule that decides.
struct Deciding<'a> {
    matching: Vec<u8>,
    comment: &'a str,
    /// What the log names it by, if it logs.
    log: Option<&'a str>,
    action: Action,
}

fn chain_of(set: &SetName) -> String {
    format!("{}-{}", set.family(), set.name)
}

fn by(link: u32, name: &str) -> Vec<u8> {
    [meta(link), interface(EQUAL, name)].concat()
}

fn letter(action: Action) -> char {
    match action {
        Action::Accept => 'A',
        Action::Drop => 'D',
        Action::Reject => 'R',
    }
}

/// What matches the packets of a rule.
fn rules(rule: &FirewallRule, v6: bool) -> Vec<Vec<u8>> {
    let icmp = rule.icmp.map(|kind| [payload(TRANSPORT_HEADER, 0, 1), compare(EQUAL, &[kind])].concat());
    let icmp = icmp.unwrap_or_default();
    let states = bits(rule.states.iter().copied());
    let states = if states == 0 { Vec::new() } else { nft::in_states(states) };
    // The chain has packets of this version only: `nft list` shows addresses as such behind it.
    let family = of_family(v6);
    matching(&rule.packets).into_iter().map(|it| [family.as_slice(), &it, &icmp, &states].concat()).collect()
}

/// The bits that the kernel has for states (`NF_CT_STATE_BIT`, linux/netfilter/nf_conntrack_common.h).
fn bits(states: impl IntoIterator<Item = State>) -> u32 {
    let bit = |state| match state {
        State::Invalid => 1,
        State::Established => 1 << 1,
        State::Related => 1 << 2,
        State::New => 1 << 3,
    };
    states.into_iter().map(bit).fold(0, |all, bit| all | bit)
}
