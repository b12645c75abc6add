//! What the daemon and its helper say to each other: one line of JSON each.

use super::model::{Finding, Setting};
use config::settings::Machine;
use config::settings::machine::Part;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Bytes of a request.
pub const LONGEST: usize = 1 << 20;

/// What is asked of the helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is to be done.
    pub verb: Verb,
    /// For which part.
    pub part: Part,
    /// What the part is to be.
    pub machine: Machine,
    /// The configuration file of the daemon that asks.
    pub owner: Owner,
}

/// The configuration file of a daemon, which the files of its helper name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner(String);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// Tell what would not work. Nothing is changed.
    Check,
    /// Make it so.
    Apply,
}

/// A request on its way.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wire {
    pub(super) verb: Verb,
    /// The words of the part.
    pub(super) part: String,
    /// Its lines in the configuration; none if it is not configured.
    pub(super) lines: String,
    pub(super) owner: String,
}

/// What the helper answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Why it was not done, and what to do; then all is as it was.
    pub refused: Option<String>,
    /// What does not work.
    pub findings: Vec<Finding>,
    /// The files that there are for the part.
    pub files: Vec<String>,
    /// The values of the kernel that were changed for it.
    pub settings: Vec<Setting>,
}

/// Why a request is not one.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No JSON, or not these fields.
    #[error("not a request: {0}")]
    Json(#[from] serde_json::Error),
    /// Not one of the parts.
    #[error("there is no part {0:?}")]
    Part(String),
    /// The configuration does not allow these lines.
    #[error("{0}")]
    Lines(String),
    /// No path of a file.
    #[error("{0:?} is no configuration file")]
    Owner(String),
    /// The daemon of another configuration.
    #[error(
        "settings of the machine are changed for the configuration {}, and not for {}\n  \
         fix: start the daemon as root, or name its configuration in postern-machine@.service: --owner FILE", own.0, asked.0
    )]
    OtherOwner {
        /// What the helper serves.
        own: Owner,
        /// What the daemon says that it serves.
        asked: Owner,
    },
}

impl Owner {
    /// The path as it stands in one line of a file.
    pub fn new(path: String) -> Result<Self, RequestError> {
        let is_path = path.starts_with('/') && path.len() < 4096 && !path.contains(char::is_control);
        if is_path { Ok(Self(path)) } else { Err(RequestError::Owner(path)) }
    }

    /// The configuration file of a process, which may have been named from its folder.
    pub fn of(file: &Path) -> Result<Self, RequestError> {
        Self::new(std::path::absolute(file).unwrap_or_else(|_| file.to_owned()).display().to_string())
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Request {
    /// Reads a request. What it holds is then what the configuration may say, and nothing else.
    pub fn parse(line: &[u8]) -> Result<Self, RequestError> {
        let Wire { verb, part, lines, owner } = serde_json::from_slice(line)?;
        let Some(part) = Part::ALL.into_iter().find(|known| known.to_string() == part) else {
            return Err(RequestError::Part(part));
        };
        let owner = Owner::new(owner)?;
        let machine = Machine::read(part, &lines).map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            RequestError::Lines(errors.join("\n"))
        })?;
        Ok(Self { verb, part, machine, owner })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(part: &str, lines: &str, owner: &str) -> Result<Request, RequestError> {
        let wire = Wire { verb: Verb::Apply, part: part.into(), lines: lines.into(), owner: owner.into() };
        Request::parse(&serde_json::to_vec(&wire).expect("it is JSON"))
    }

    const OWNER: &str = "/etc/postern/postern.conf";

    #[test]
    fn only_what_the_configuration_may_say_is_a_request() {
        let lines = "set system option performance latency";
        let request = parse("system option performance", lines, OWNER).expect("right");
        assert_eq!((request.verb, request.part), (Verb::Apply, Part::Performance));
        assert!(parse("system option performance", "", OWNER).is_ok(), "it goes");
        assert_eq!(request.owner.as_str(), OWNER);
        for (part, lines, owner) in [
            ("system option performance", "set system option performance fast", OWNER),
            ("system syslog", lines, OWNER),
            ("system login", "", OWNER),
            ("system option performance", lines, "postern.conf"),
            ("system option performance", lines, "/etc/a\n* * * * * root x"),
            ("service snmp", "set service snmp contact 'a\u{1}b'", OWNER),
            ("service snmp", "set service snmp community 'a b' authorization ro", OWNER),
            ("system task-scheduler", "set system task-scheduler task a/../b interval 1d", OWNER),
        ] {
            assert!(parse(part, lines, owner).is_err(), "{part}: {lines}: {owner}");
        }
        for line in [
            "",
            "{}",
            "[]",
            "null",
            r#"{"verb":"apply","part":"system syslog","lines":"","owner":"/a","command":"x"}"#,
        ] {
            assert!(matches!(Request::parse(line.as_bytes()), Err(RequestError::Json(_))), "{line}");
        }
    }
}
