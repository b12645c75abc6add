//! The answer of the API about translation of addresses.

use crate::api::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/nat`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Nat {
    /// The rules in force, in the order in which they are looked at.
    pub rules: Vec<Rule>,
}

/// A rule.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Rule {
    /// What it changes.
    pub list: List,
    /// Its number.
    pub number: u32,
    /// The interface that packets leave or arrive by.
    pub interface: String,
    /// Their protocols.
    pub protocol: String,
    /// Where they come from: addresses, and ports behind a colon.
    pub source: String,
    /// Where they are sent to.
    pub destination: String,
    /// What they get.
    pub translation: String,
    /// Connections that were translated since the rules were put in force.
    pub connections: u64,
}

words! {
    /// What a rule changes.
    #[derive(Default)]
    List {
        /// Where packets come from.
        #[default]
        Source = "source",
        /// Where packets are sent to.
        Destination = "destination",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::words::check;

    #[test]
    fn every_list_has_its_json_word() {
        check(&[(List::Source, "source"), (List::Destination, "destination")]);
    }
}
