//! Policy rules of tunnels that carry everything. Two interfaces may need the same rule: it goes with the last of them.
//!
//! ```text
//! 0      lookup local                             the kernel's
//! 220    not fwmark 220 lookup 220                networks behind IPsec peers
//! 32500  lookup main suppress_prefixlength 0      what has a route of its own, other than the default route
//! 32501  not fwmark MARK lookup MARK              everything else, into the tunnel; of IPsec, table 221
//! 32766  lookup main                              the kernel's
//! ```

use super::netlink::{Netlink, NetlinkError, Rule};
use std::collections::{BTreeMap, BTreeSet};

/// Without it, reverse path filtering drops the answers to marked packets.
const SRC_VALID_MARK: &str = "/proc/sys/net/ipv4/conf/all/src_valid_mark";

/// The rules in force, by the interface that needs them.
#[derive(Default)]
pub struct Rules {
    needed: BTreeMap<String, BTreeSet<Rule>>,
    /// What `src_valid_mark` was before we set it. A daemon that was killed has taken that with it: then it stays set.
    valid_mark_before: Option<String>,
}

/// A step from some rules to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Add(Rule),
    Remove(Rule),
}

impl Step {
    fn undone(self) -> Self {
        match self {
            Self::Add(rule) => Self::Remove(rule),
            Self::Remove(rule) => Self::Add(rule),
        }
    }

    fn ask(self, netlink: &mut Netlink) -> Result<(), NetlinkError> {
        match self {
            Self::Add(rule) => netlink.add_rule(rule),
            Self::Remove(rule) => netlink.remove_rule(rule),
        }
    }
}

impl Rules {
    /// Gives an interface the rules that it needs, and takes those away that nobody needs any more; all or nothing.
    pub fn change(
        &mut self,
        netlink: &mut Netlink,
        interface: &str,
        needed: &BTreeSet<Rule>,
    ) -> Result<(), NetlinkError> {
        carry_out(&self.steps(interface, needed), |step| step.ask(netlink))?;
        if needed.is_empty() {
            self.needed.remove(interface);
        } else {
            self.needed.insert(interface.to_owned(), needed.clone());
        }
        self.set_valid_mark();
        Ok(())
    }

    /// First what comes, then what goes: there is no moment without a rule.
    fn steps(&self, interface: &str, needed: &BTreeSet<Rule>) -> Vec<Step> {
        let before: BTreeSet<Rule> = self.needed.values().flatten().copied().collect();
        let others = self.needed.iter().filter(|(name, _)| *name != interface).flat_map(|(_, rules)| rules);
        let after: BTreeSet<Rule> = others.chain(needed).copied().collect();
        let added = after.difference(&before).copied().map(Step::Add);
        added.chain(before.difference(&after).copied().map(Step::Remove)).collect()
    }

    fn set_valid_mark(&mut self) {
        let wanted = self.needed.values().flatten().any(|rule| {
            matches!(rule, Rule::NotMarked { v6: false, .. } | Rule::BeforeMain { v6: false, .. })
        });
        match (wanted, &self.valid_mark_before) {
            (true, None) => {
                self.valid_mark_before = std::fs::read_to_string(SRC_VALID_MARK).ok();
                let _ = std::fs::write(SRC_VALID_MARK, "1");
            }
            (false, Some(before)) => {
                let _ = std::fs::write(SRC_VALID_MARK, before.trim());
                self.valid_mark_before = None;
            }
            _ => {}
        }
    }
}

/// Removes the rules of a daemon that was killed: those whose table is empty, because the interface went with it.
pub fn remove_stale(netlink: &mut Netlink) -> Result<(), NetlinkError> {
    let found = netlink.rules()?;
    if found.is_empty() {
        return Ok(());
    }
    for rule in stale(&found, &netlink.tables()?) {
        tracing::info!("a daemon that was killed has left {rule:?}: removed");
        netlink.remove_rule(rule)?;
    }
    Ok(())
}

/// Which of the rules lead nowhere, where there are routes only in `tables`.
fn stale(found: &[Rule], tables: &BTreeSet<(bool, u32)>) -> Vec<Rule> {
    let lives = |rule: &Rule| match *rule {
        Rule::NotMarked { v6, table, .. } | Rule::BeforeMain { v6, mark: table } => {
            tables.contains(&(v6, table))
        }
        Rule::MainFirst { .. } => false,
    };
    let needs_main = |v6| {
        found.iter().any(|rule| lives(rule) && matches!(rule, Rule::NotMarked { v6: of, .. } if *of == v6))
    };
    let is_stale = |rule: &&Rule| match rule {
        Rule::NotMarked { .. } | Rule::BeforeMain { .. } => !lives(rule),
        Rule::MainFirst { v6 } => !needs_main(*v6),
    };
    found.iter().filter(is_stale).copied().collect()
}

/// Takes all the steps or, when one is refused, takes back those before it.
fn carry_out<E>(steps: &[Step], mut ask: impl FnMut(Step) -> Result<(), E>) -> Result<(), E> {
    for (done, step) in steps.iter().enumerate() {
        if let Err(error) = ask(*step) {
            for step in steps[..done].iter().rev() {
                // What could be done can be undone; if not, the first error says more.
                let _ = ask(step.undone());
            }
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: Rule = Rule::MainFirst { v6: false };

    fn marked(mark: u32) -> Rule {
        Rule::NotMarked { v6: false, mark, table: mark }
    }

    fn rules(needed: &[(&str, &[Rule])]) -> Rules {
        let needed = needed.iter().map(|(name, rules)| ((*name).to_owned(), rules.iter().copied().collect()));
        Rules { needed: needed.collect(), valid_mark_before: None }
    }

    #[test]
    fn a_rule_goes_with_the_last_interface_that_needs_it() {
        let both = rules(&[("wg0", &[MAIN, marked(1)]), ("wg1", &[MAIN, marked(2)])]);
        assert_eq!(both.steps("wg0", &BTreeSet::new()), [Step::Remove(marked(1))]);
        let one = rules(&[("wg0", &[MAIN, marked(1)])]);
        assert_eq!(one.steps("wg1", &BTreeSet::from([MAIN, marked(1)])), []);
        assert_eq!(
            one.steps("wg0", &BTreeSet::from([MAIN, marked(3)])),
            [Step::Add(marked(3)), Step::Remove(marked(1))]
        );
    }

    #[test]
    fn a_refused_rule_leaves_none_behind() {
        let steps = [Step::Add(marked(1)), Step::Add(MAIN), Step::Remove(marked(2))];
        let mut asked = Vec::new();
        let outcome = carry_out(&steps, |step| {
            asked.push(step);
            if step == steps[2] { Err("refused") } else { Ok(()) }
        });
        assert_eq!(outcome, Err("refused"));
        assert_eq!(asked[3..], [Step::Remove(MAIN), Step::Remove(marked(1))]);
    }

    #[test]
    fn rules_that_lead_nowhere_are_stale() {
        let v6 = Rule::MainFirst { v6: true };
        let found = [MAIN, marked(1), marked(2), v6];
        let policies = Rule::BeforeMain { v6: false, mark: 2 };
        assert_eq!(stale(&[policies], &BTreeSet::from([(false, 2)])), []);
        assert_eq!(stale(&[policies], &BTreeSet::from([(false, 1)])), [policies]);
        assert_eq!(stale(&found, &BTreeSet::from([(false, 2)])), [marked(1), v6]);
        assert_eq!(stale(&found, &BTreeSet::from([(true, 2)])), found);
    }
}
