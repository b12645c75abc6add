//! `firewall`, typed: which packets pass between zones of interfaces, and reach this machine.
//!
//! ```text
//! state policy ──> zone that packets go to ──> rule set for the zone that they come from ──> its rules, by number
//!                          └── no rule set: default action          no rule: default action ──┘
//! ```

mod check;
mod hints;
#[cfg(test)]
mod tests;

use super::packets::Packets;
use super::{Reader, Settings};
use crate::schema::icmp_type;
pub use crate::schema::{Action, icmp_name};
use crate::tree::Tree;
pub use hints::SSH_PORT;
use std::collections::{BTreeMap, BTreeSet};

/// Zones, and the rule sets between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Firewall {
    /// Zones by name.
    pub zones: BTreeMap<String, Zone>,
    /// Rule sets.
    pub sets: BTreeMap<SetName, RuleSet>,
    /// What becomes of packets of a state, before any rule set.
    pub states: BTreeMap<State, Action>,
}

/// The name of a rule set: both versions of IP have names of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetName {
    /// Whether it is for IPv6.
    pub v6: bool,
    /// Its name.
    pub name: String,
}

/// Interfaces with the same policy, or this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Whether it is this machine itself.
    pub is_local: bool,
    /// Its interfaces.
    pub members: BTreeSet<String>,
    /// What becomes of packets into the zone that no rule set is for.
    pub default_action: Action,
    /// Whether these are logged.
    pub default_log: bool,
    /// The rule sets of IPv4 and of IPv6 for packets into the zone, by the zone that they come from.
    pub from: BTreeMap<String, [Option<String>; 2]>,
    /// Whether packets between its interfaces are dropped.
    pub drops_within: bool,
}

/// Rules, of which the first by number that matches decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// Rules that are not disabled, by number.
    pub rules: BTreeMap<u32, FirewallRule>,
    /// What becomes of packets that no rule matches.
    pub default_action: Action,
    /// Whether these are logged.
    pub default_log: bool,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirewallRule {
    /// The packets that it is for.
    pub packets: Packets,
    /// The type of ICMP messages, if it is for one.
    pub icmp: Option<u8>,
    /// The states of their connections; none for all.
    pub states: BTreeSet<State>,
    /// What becomes of them.
    pub action: Action,
    /// Whether they are logged.
    pub log: bool,
}

/// The state of a packet's connection, as the kernel tracks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Packets of it went both ways.
    Established,
    /// It fits no connection, and begins none.
    Invalid,
    /// It begins one.
    New,
    /// It belongs to another one, as an ICMP error does.
    Related,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Established, Self::Invalid, Self::New, Self::Related];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Established => "established",
            Self::Invalid => "invalid",
            Self::New => "new",
            Self::Related => "related",
        }
    }
}

impl SetName {
    /// Its path in the configuration.
    pub fn path(&self) -> String {
        format!("firewall {} name {}", self.family(), self.name)
    }

    /// The word for its version of IP.
    pub fn family(&self) -> &'static str {
        if self.v6 { "ipv6" } else { "ipv4" }
    }
}

impl Zone {
    /// The rule set of a version of IP for packets from another zone.
    pub fn set_from(&self, zone: &str, v6: bool) -> Option<SetName> {
        let name = self.from.get(zone)?[usize::from(v6)].clone()?;
        Some(SetName { v6, name })
    }
}

impl Firewall {
    /// Whether it concerns no packet: rule sets that no zone names do not.
    pub fn is_empty(&self) -> bool {
        self.zones.is_empty() && self.states.is_empty()
    }

    /// The names of rule sets that zones have.
    pub fn used_sets(&self) -> BTreeSet<SetName> {
        let from = self.zones.values().flat_map(|zone| zone.from.keys().map(move |from| (zone, from)));
        from.flat_map(|(zone, from)| [false, true].map(|v6| zone.set_from(from, v6))).flatten().collect()
    }

    /// The zone that is this machine.
    pub fn local(&self) -> Option<(&String, &Zone)> {
        self.zones.iter().find(|(_, zone)| zone.is_local)
    }
}

fn action(tree: &Tree, word: &str) -> Option<Action> {
    tree.value(word).and_then(Action::of)
}

impl Reader {
    pub(super) fn firewall(&mut self, root: &Tree, settings: &Settings) -> Firewall {
        let mut firewall = Firewall::default();
        for state in [State::Established, State::Invalid, State::Related] {
            let tree = root.at(&["firewall", "global-options", "state-policy", state.word()]);
            firewall.states.extend(tree.and_then(|tree| action(tree, "action")).map(|it| (state, it)));
        }
        for (v6, family) in [(false, "ipv4"), (true, "ipv6")] {
            let sets = root.at(&["firewall", family, "name"]);
            for (name, tree) in sets.into_iter().flat_map(Tree::children) {
                let name = SetName { v6, name: name.to_owned() };
                let set = self.rule_set(&name, tree);
                firewall.sets.insert(name, set);
            }
        }
        for (name, tree) in root.at(&["firewall", "zone"]).into_iter().flat_map(Tree::children) {
            let zone = self.zone(root, name, tree);
            firewall.zones.insert(name.to_owned(), zone);
        }
        self.check_zones(root, &firewall, settings);
        self.firewall_hints(&firewall, settings);
        firewall
    }

    fn rule_set(&mut self, name: &SetName, tree: &Tree) -> RuleSet {
        let mut rules = BTreeMap::new();
        for (number, tree) in tree.at(&["rule"]).into_iter().flat_map(Tree::children) {
            let path = format!("{} rule {number}", name.path());
            let rule = self.firewall_rule(&path, tree, name.v6);
            if let (Some(rule), Ok(number), false) = (rule, number.parse(), tree.has("disable")) {
                rules.insert(number, rule);
            }
        }
        let default_action = action(tree, "default-action").unwrap_or_default();
        RuleSet { rules, default_action, default_log: tree.has("default-log") }
    }

    fn firewall_rule(&mut self, path: &str, tree: &Tree, v6: bool) -> Option<FirewallRule> {
        let packets = self.packets(path, tree, false);
        let icmp = if v6 { "icmpv6" } else { "icmp" };
        let name = tree.at(&[icmp]).and_then(|tree| tree.value("type-name"));
        let protocol = if v6 { "ipv6-icmp" } else { "icmp" };
        let is_icmp = matches!(tree.value("protocol"), Some("icmp" | "ipv6-icmp" | "icmpv6"));
        if name.is_some() && !is_icmp {
            let reason = format!("{path} has a type of ICMP messages, and its protocol may be another one");
            self.error(tree.location(), reason, format!("set {path} protocol {protocol}"));
        }
        let states = tree.values("state");
        let states = State::ALL.into_iter().filter(|state| states.contains(&state.word())).collect();
        let Some(action) = action(tree, "action") else {
            let reason = format!("{path} does not say what becomes of packets");
            self.error(tree.location(), reason, format!("set {path} action accept, drop or reject"));
            return None;
        };
        let icmp = name.and_then(|name| icmp_type(name, v6));
        Some(FirewallRule { packets, icmp, states, action, log: tree.has("log") })
    }

    fn zone(&mut self, root: &Tree, name: &str, tree: &Tree) -> Zone {
        let path = format!("firewall zone {name}");
        let mut zone = Zone {
            is_local: tree.has("local-zone"),
            default_action: action(tree, "default-action").unwrap_or_default(),
            default_log: tree.has("default-log"),
            ..Zone::default()
        };
        let members = tree.at(&["member"]).map(|tree| tree.values("interface")).unwrap_or_default();
        zone.members = members.into_iter().map(str::to_owned).collect();
        let within = tree.at(&["intra-zone-filtering"]).and_then(|tree| action(tree, "action"));
        zone.drops_within = within == Some(Action::Drop);
        if within.is_some() && zone.is_local {
            let reason = format!("{path}: packets of this machine to itself are not filtered");
            self.error(tree.location(), reason, format!("delete {path} intra-zone-filtering"));
        }
        for (other, tree) in tree.at(&["from"]).into_iter().flat_map(Tree::children) {
            let of = tree.at(&["firewall"]);
            let sets = ["name", "ipv6-name"].map(|word| {
                let set = of.and_then(|tree| tree.value(word))?;
                let at = of.map(|tree| tree.location_of(word)).unwrap_or_default();
                let path = format!("{path} from {other} firewall {word}");
                self.follow(root, &path, set, at).map(|_| set.to_owned())
            });
            if of.is_none() {
                let reason = format!("{path} from {other} names no rule set");
                self.error(tree.location(), reason, format!("set {path} from {other} firewall name NAME"));
            }
            zone.from.insert(other.to_owned(), sets);
        }
        zone
    }
}
