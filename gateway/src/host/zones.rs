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

mod policy;

use super::nft::{self, BatchError, CREATE, Count, NEW_TABLE, text};
use super::own_table::OwnTable;
use config::settings::Firewall;
use policy::Policy;
use std::collections::BTreeMap;
use std::io;

/// The name of the table, as `nft list ruleset` shows it.
const TABLE: &str = "postern-firewall";
/// What rules have counted, by what they are for: `ipv4 NAME 10`, `ipv4 NAME default`, `zone NAME default`, `state invalid`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filtered {
    /// Packets and bytes.
    pub counts: BTreeMap<String, Count>,
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
            *filtered.counts.entry(comment).or_default() += count;
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
                Policy::new(firewall, prefix).add_to(batch);
            }
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::nft::{NEW_RULE, accept};
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
