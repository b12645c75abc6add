//! What became of the directives: refusals, warnings, and directives without an effect.

use super::directive::Position;
use crate::error::{ConfigError, Location};
use std::fmt;

/// A directive that is refused: where it stands, the reason, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Where it stands.
    pub position: Position,
    /// Its name; empty for a line that is no directive.
    pub directive: String,
    /// The reason.
    pub reason: String,
    /// What to do.
    pub fix: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.directive.is_empty() { "" } else { ": " };
        write!(f, "{}: {}{colon}{}\n  fix: {}", self.position, self.directive, self.reason, self.fix)
    }
}

impl std::error::Error for Refusal {}

/// A directive without an effect, or with another effect than in OpenVPN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Where it stands.
    pub position: Position,
    /// Its name.
    pub directive: String,
    /// Why it has no effect, or what its effect is.
    pub text: String,
    /// Whether it deserves a warning; a harmless directive does not.
    pub is_warning: bool,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.position, self.directive, self.text)
    }
}

/// A setting that cannot be: the reason and what to do.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) reason: String,
    pub(super) fix: String,
}

impl Wrong {
    pub(super) fn new(reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { reason: reason.into(), fix: fix.into() }
    }
}

/// Collects refusals and remarks.
#[derive(Default)]
pub(super) struct Verdict {
    pub(super) refusals: Vec<Refusal>,
    pub(super) remarks: Vec<Remark>,
}

/// The maximum number of refusals that are kept: more are not read.
const MOST: usize = 200;

impl Verdict {
    pub(super) fn refuse(&mut self, position: &Position, directive: &str, wrong: Wrong) {
        if self.refusals.len() < MOST {
            // Stars stand for what may be a key.
            let error = ConfigError::new(Location::default(), wrong.reason);
            let (reason, fix) = (error.reason, wrong.fix);
            let (position, directive) = (position.clone(), directive.to_owned());
            self.refusals.push(Refusal { position, directive, reason, fix });
        }
    }

    pub(super) fn remark(&mut self, position: &Position, directive: &str, text: &str, is_warning: bool) {
        let (position, directive, text) = (position.clone(), directive.to_owned(), text.to_owned());
        let remark = Remark { position, directive, text, is_warning };
        if !self.remarks.contains(&remark) && self.remarks.len() < MOST {
            self.remarks.push(remark);
        }
    }
}
