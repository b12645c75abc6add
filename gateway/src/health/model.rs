//! What the API says of health.

use crate::api::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/health`: the rules, as they were found within the last second, and the alerts that came of them.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Health {
    /// Seconds since 1970 of the snapshot of facts that the rules were applied to; 0 before the first one.
    pub at: u64,
    /// Every rule.
    pub rules: Vec<Rule>,
    /// The alerts that are pending or firing, and the latest that are resolved.
    pub alerts: Vec<Alert>,
    /// Who hears of alerts.
    pub receivers: Vec<Receiver>,
}

/// A rule, and what it says.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Rule {
    /// Its name.
    pub rule: String,
    /// How bad it is if it fails.
    pub severity: Severity,
    /// What there is if it fails.
    pub about: String,
    /// What it says.
    pub state: State,
    /// Why that is not known.
    pub why: Option<String>,
    /// Seconds that it must fail before it is an alert.
    pub duration_seconds: u64,
    /// The number from which it fails, for a rule that has one.
    pub threshold: Option<u32>,
    /// How many things are wrong.
    pub failing: usize,
}

/// One thing that is wrong.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Alert {
    /// The rule that fails.
    pub rule: String,
    /// How bad it is.
    pub severity: Severity,
    /// The thing: a tunnel, an interface, a thread.
    pub subject: String,
    /// What is wrong with it.
    pub sentence: String,
    /// What to type.
    pub remedy: String,
    /// What it has become.
    pub state: AlertState,
    /// Seconds since 1970 since when the rule fails.
    pub since: u64,
    /// Seconds since 1970 since when it is firing.
    pub firing_since: Option<u64>,
    /// Seconds since 1970 of its end.
    pub resolved_at: Option<u64>,
}

/// Who hears of alerts, and what became of the messages.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Receiver {
    /// Its name.
    pub name: String,
    /// How it hears: `exec`, `webhook`, `mail` or `syslog`.
    pub way: String,
    /// Messages that arrived.
    pub delivered: u64,
    /// Messages that did not, after all tries.
    pub failed: u64,
    /// Messages that were given up because too many waited.
    pub dropped: u64,
    /// Why the last message did not arrive.
    pub problem: Option<String>,
}

words! {
    /// How bad it is.
    #[derive(Default, Hash, PartialOrd, Ord)]
    Severity {
        /// Traffic is slower than it could be, or soon in danger.
        #[default]
        Warning = "warning",
        /// Traffic is lost.
        Critical = "critical",
    }

    /// What a rule says.
    #[derive(Default, Hash)]
    State {
        /// Nothing is wrong.
        Ok = "ok",
        /// It fails, but not yet for its time.
        Pending = "pending",
        /// It fails.
        Firing = "firing",
        /// The fact cannot be read.
        #[default]
        Unknown = "unknown",
        /// The configuration has switched it off.
        Disabled = "disabled",
    }

    /// What an alert has become.
    #[derive(Default, Hash)]
    AlertState {
        /// The rule fails, but not yet for its time.
        #[default]
        Pending = "pending",
        /// It has failed for its time.
        Firing = "firing",
        /// It fails no more.
        Resolved = "resolved",
        /// It failed, but not for its time: it was never an alert.
        Cleared = "cleared",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::words::check;

    #[test]
    fn every_severity_and_state_has_its_json_word() {
        check(&[(Severity::Warning, "warning"), (Severity::Critical, "critical")]);
        check(&[(State::Ok, "ok"), (State::Pending, "pending"), (State::Firing, "firing")]);
        check(&[(State::Unknown, "unknown"), (State::Disabled, "disabled")]);
        use AlertState as A;
        check(&[(A::Pending, "pending"), (A::Firing, "firing")]);
        check(&[(A::Resolved, "resolved"), (A::Cleared, "cleared")]);
    }
}
