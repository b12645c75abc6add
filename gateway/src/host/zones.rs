//! The zones of `firewall`, in a table of nf_tables. It stays when the daemon ends, however it ends.
//!
//! ```text
//! forward ──> states ──> to-ZONE, by the interface that packets leave by ──> rule set, by the one they arrive by
//! input   ──> lo, states, neighbours ──> rule set for this machine, by the interface they arrive by
//! output  ──> lo, states, neighbours ──> rule set for packets of this machine, by the interface they leave by
//! ```
//!
//! Rules decide about router advertisements, redirects and multicast listeners. If none matches, these pass, whatever the default action.
//!
//! A packet that no rule set is for gets the default action of the zone that it goes to. Where packets neither come from a zone
//! nor go to one, no rule decides.

use super::matching::{icmp_on_link, matching, of_family};
use super::nft::{
    self, APPEND, Batch, BatchError, CREATE, EQUAL, IIFNAME, NEW_CHAIN, NEW_RULE, NEW_TABLE, OIFNAME,
    TRANSPORT_HEADER, accept, compare, counter, interface, jump, meta, payload, protocol, text,
};
use super::own_table::OwnTable;
use config::settings::Firewall;
use config::settings::firewall::{Action, FirewallRule, RuleSet, SetName, State, Zone};
use packet::header::ip::TCP;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The name of the table, as `nft list ruleset` shows it.
const TABLE: &str = "postern-firewall";
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

/// What rules have counted, by what they are for: `ipv4 NAME 10`, `ipv4 NAME default`, `zone NAME default`, `state invalid`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filtered {
    /// Packets and bytes.
    pub counts: BTreeMap<String, (u64, u64)>,
}

/// The kernel did not take the rules.
#[derive(Debug)]
pub struct FilterError {
    /// Its reason.
    pub error: io::Error,
    /// The line of the configuration that it refused, if it is one.
    pub line: Option<String>,
}

impl From<BatchError> for FilterError {
    fn from(BatchError { error, place, .. }: BatchError) -> Self {
        Self { error, line: place }
    }
}

/// The rules in force.
pub(super) struct ZoneFilter {
    table: OwnTable,
    /// A packet must pass all of these. None before the first configuration: an earlier daemon may have left a table.
    wanted: Option<Vec<Firewall>>,
}

impl Default for ZoneFilter {
    fn default() -> Self {
        Self { table: OwnTable::new(TABLE), wanted: None }
    }
}

impl ZoneFilter {
    /// The table.
    pub(super) fn table(&mut self) -> &mut OwnTable {
        &mut self.table
    }

    /// Whether the table is what was set last, if anything was.
    pub(super) fn is_trusted(&self) -> bool {
        self.table.is_installed() || self.wanted.is_none()
    }

    /// Puts policies in force, in one step: packets must pass each. If the kernel refuses them, the former ones stay.
    pub(super) fn set(&mut self, policies: &[Firewall]) -> Result<(), FilterError> {
        let wanted: Vec<Firewall> = policies.iter().filter(|it| !it.is_empty()).cloned().collect();
        if self.table.is_installed() && self.wanted.as_ref() == Some(&wanted) {
            return Ok(());
        }
        self.install(&wanted)?;
        self.wanted = Some(wanted);
        Ok(())
    }

    /// Makes the table again, if another program has changed it; whether it did so.
    pub(super) fn restore(&mut self) -> io::Result<bool> {
        let Some(wanted) = self.wanted.clone().filter(|_| !self.is_trusted()) else { return Ok(false) };
        self.install(&wanted).map_err(|refused| refused.error)?;
        Ok(true)
    }

    /// What the rules have counted since they were put in force.
    pub(super) fn filtered(&self) -> Filtered {
        let mut filtered = Filtered::default();
        let filters = self.wanted.as_ref().is_some_and(|wanted| !wanted.is_empty());
        let Some(socket) = self.table.socket().filter(|_| filters) else { return filtered };
        for (comment, count) in nft::counters(socket, TABLE).unwrap_or_default() {
            // A rule of the configuration may be several of the kernel.
            let counted = filtered.counts.entry(comment).or_default();
            *counted = (counted.0.saturating_add(count.packets), counted.1.saturating_add(count.bytes));
        }
        filtered
    }

    fn install(&mut self, policies: &[Firewall]) -> Result<(), FilterError> {
        self.table.replace(|batch| {
            if policies.is_empty() {
                return;
            }
            batch.add(NEW_TABLE, CREATE, &text(1, TABLE));
            for (number, firewall) in policies.iter().enumerate() {
                let prefix = if number == 0 { String::new() } else { format!("{number}-") };
                Policy { firewall, prefix, chains: BTreeMap::new() }.add_to(batch);
            }
        })?;
        Ok(())
    }
}

/// A rule of the kernel, what it is for, and the line of the configuration.
struct Rule {
    expressions: Vec<Vec<u8>>,
    comment: Option<String>,
    line: String,
}

/// Chains of a policy.
struct Policy<'a> {
    firewall: &'a Firewall,
    /// What the names of its chains begin with.
    prefix: String,
    chains: BTreeMap<String, Vec<Rule>>,
}

impl Policy<'_> {
    fn add_to(mut self, batch: &mut Batch) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use lab::Lab;
    use rustix::net::sockopt::{set_socket_recv_buffer_size, socket_recv_buffer_size};

    fn firewall(lines: &[&str]) -> Firewall {
        let text: String = lines.iter().map(|line| format!("set firewall {line}\n")).collect();
        config::parse(&text).and_then(|tree| config::Settings::new(&tree)).expect("right").0.firewall
    }

    /// Runs a test in a network namespace of its own, as root.
    fn in_namespace(test: impl FnOnce() + Send) {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("NO_SKIP").is_none(), "needs root to make network namespaces");
            return eprintln!("SKIPPED: needs root to make network namespaces");
        }
        let lab = Lab::new(&["zones"]).expect("root can make namespaces");
        lab.enter("zones", test).expect("the namespace is there");
    }

    #[test]
    fn a_change_whose_answer_is_lost_can_be_taken_back() {
        in_namespace(|| {
            let mut filter = ZoneFilter::default();
            let zones = |name: &str| [firewall(&[&format!("zone {name} member interface eth0")])];
            filter.set(&zones("A")).expect("nf_tables is there");
            let a = filter.filtered();
            // The answers to so many messages do not fit.
            let socket = filter.table.open().expect("open");
            let size = socket_recv_buffer_size(socket).expect("known");
            set_socket_recv_buffer_size(socket, 1).expect("small");
            filter.set(&zones("B")).expect_err("the answers are lost");
            let socket = filter.table.open().expect("open");
            set_socket_recv_buffer_size(socket, size / 2).expect("large");
            assert_ne!(filter.filtered(), a, "the kernel has taken the change");
            filter.set(&zones("A")).expect("it is known again");
            assert_eq!(filter.filtered(), a);
        });
    }

    #[test]
    fn what_an_earlier_daemon_left_stays_although_the_first_policy_is_refused() {
        in_namespace(|| {
            let mut earlier = ZoneFilter::default();
            earlier.set(&[firewall(&["zone A member interface eth0"])]).expect("nf_tables is there");
            let mut filter = ZoneFilter::default();
            filter.table.replace(|batch| batch.add(NEW_RULE, CREATE, &[])).expect_err("no rule");
            assert!(!filter.restore().expect("nothing is wanted yet"));
            assert!(earlier.filtered().counts.contains_key("zone A default"));
        });
    }

    #[test]
    fn what_the_kernel_refuses_is_named_and_the_former_rules_stay() {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("NO_SKIP").is_none(), "needs root to make network namespaces");
            return eprintln!("SKIPPED: needs root to make network namespaces");
        }
        let lab = Lab::new(&["zones"]).expect("root can make namespaces");
        lab.enter("zones", || {
            let mut filter = ZoneFilter::default();
            let all = firewall(&[
                "zone A member interface eth0",
                "zone B member interface eth1",
                "zone B from A firewall name S",
                "ipv4 name S rule 10 action reject",
                "ipv4 name S rule 10 protocol tcp",
                "ipv4 name S rule 10 destination port 1-9,80",
                "ipv4 name S rule 10 state new",
                "ipv4 name S rule 20 action accept",
                "ipv4 name S rule 20 source address !10.0.0.0/8",
            ]);
            filter.set(std::slice::from_ref(&all)).expect("nf_tables is there");
            let known = filter.filtered();
            let rules: Vec<&str> = known.counts.keys().map(String::as_str).collect();
            assert_eq!(
                rules,
                [
                    "ipv4 S 10",
                    "ipv4 S 20",
                    "ipv4 S default",
                    "zone A default",
                    "zone A outside",
                    "zone A within",
                    "zone B default",
                    "zone B outside",
                    "zone B within"
                ]
            );
            // Two policies are side by side.
            filter.set(&[all.clone(), firewall(&["zone A member interface eth2"])]).expect("both");
            filter.set(std::slice::from_ref(&all)).expect("one");
            let refused = filter.table.replace(|batch| {
                batch.add(NEW_TABLE, CREATE, &text(1, TABLE));
                batch.place("firewall ipv4 name S rule 10");
                batch.add(NEW_RULE, CREATE, &nft::rule(TABLE, "forward", &[accept()]));
                batch.place("firewall ipv4 name S rule 20");
            });
            let refused = FilterError::from(refused.expect_err("there is no such chain any more"));
            assert_eq!(refused.line.as_deref(), Some("firewall ipv4 name S rule 10"), "{refused:?}");
            assert_eq!(filter.filtered(), known, "the former rules stay");
        })
        .expect("the namespace is there");
    }
}
