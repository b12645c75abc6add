//! A rule with what the configuration changes about it.

use super::super::model::{Rule as Shown, State};
use super::{RULES, Rule, Verdict};
use config::settings::health::Tuning;
use std::collections::BTreeMap;
use std::time::Duration;

/// A rule and its tuning.
#[derive(Clone, Copy)]
pub(in super::super) struct Tuned {
    pub(in super::super) rule: &'static Rule,
    tuning: Tuning,
}

/// All rules.
pub(in super::super) fn tuned(tunings: &BTreeMap<String, Tuning>) -> impl Iterator<Item = Tuned> {
    RULES.iter().map(|rule| Tuned { rule, tuning: tunings.get(rule.name).copied().unwrap_or_default() })
}

impl Tuned {
    fn threshold(&self) -> Option<u32> {
        self.tuning.threshold.or(self.rule.threshold)
    }

    /// How long it must fail before it is an alert.
    pub(in super::super) fn lasts(&self) -> Duration {
        self.tuning.seconds.map_or(self.rule.lasts, |seconds| Duration::from_secs(seconds.into()))
    }

    /// Checks the rule with its threshold, unless it is disabled.
    pub(in super::super) fn verdict(
        &self,
        check: impl FnOnce(&'static Rule, Option<u32>) -> Verdict,
    ) -> Verdict {
        if self.tuning.is_disabled { Verdict::Disabled } else { check(self.rule, self.threshold()) }
    }

    /// The answer of the API.
    pub(in super::super) fn shown(&self, verdict: &Verdict, is_firing: bool) -> Shown {
        let (state, why, failing) = match verdict {
            Verdict::Disabled => (State::Disabled, None, 0),
            Verdict::Unknown(why) => (State::Unknown, Some(why.clone()), 0),
            Verdict::Failing(troubles) if is_firing => (State::Firing, None, troubles.len()),
            Verdict::Failing(troubles) => (State::Pending, None, troubles.len()),
            // It must be gone for a while before the alert is resolved.
            Verdict::Ok if is_firing => (State::Firing, None, 0),
            Verdict::Ok => (State::Ok, None, 0),
        };
        Shown {
            rule: self.rule.name.to_owned(),
            severity: self.rule.severity,
            about: self.rule.about(self.threshold()),
            state,
            why,
            duration_seconds: self.lasts().as_secs(),
            threshold: self.threshold(),
            failing,
        }
    }
}
