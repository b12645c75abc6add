//! The answers of the API about the machine.

use crate::api::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/machine`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Machine {
    /// Each part of the configuration.
    pub parts: Vec<Part>,
}

/// A part of the configuration that other programs carry out.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Part {
    /// Where it is configured.
    pub path: String,
    /// Whether it is in force.
    pub state: State,
    /// The lines of the configuration that are in force.
    pub lines: Vec<String>,
    /// The files that were written for it.
    pub files: Vec<String>,
    /// The values that were changed for it.
    pub settings: Vec<Setting>,
    /// What does not work.
    pub findings: Vec<Finding>,
}

/// Something that does not work, or not yet.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Finding {
    /// Where it is configured.
    pub path: String,
    /// What it is.
    pub why: String,
    /// What to do.
    pub fix: String,
    /// Whether it keeps the rest of the configuration from being in force: nothing that may pass by itself does.
    pub is_refused: bool,
}

/// A value of the kernel, or of the daemon itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Setting {
    /// What it is called.
    pub name: String,
    /// The file that holds it; none for a value of the daemon.
    pub file: Option<String>,
    /// What it was.
    pub before: Option<String>,
    /// What it is to be.
    pub wanted: String,
    /// What it is.
    pub now: Option<String>,
    /// Why it could not be set.
    pub problem: Option<String>,
}

words! {
    /// Whether a part of the configuration is in force.
    #[derive(Default)]
    State {
        /// Nothing is configured, and nothing was changed.
        #[default]
        Unset = "unset",
        /// It is.
        InForce = "in force",
        /// Something is missing on the machine; it is tried again.
        Waiting = "waiting",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::words::check;

    #[test]
    fn every_state_has_its_json_word() {
        check(&[(State::Unset, "unset"), (State::InForce, "in force"), (State::Waiting, "waiting")]);
    }
}
