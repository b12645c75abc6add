//! The configuration in force, its revisions, and changes of it.

use crate::api::words::words;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use zeroize::Zeroizing;

/// Text that may contain secrets: erased when it is dropped, and not printed by `Debug`.
#[derive(Clone, Default, PartialEq)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for SecretText {
    fn from(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl JsonSchema for SecretText {
    fn schema_name() -> Cow<'static, str> {
        "SecretText".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "password" })
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

words! {
    /// The cause of a revision.
    #[derive(Default, PartialOrd, Ord)]
    Via {
        /// The command line.
        #[default]
        Cli = "cli",
        /// A program that uses the API.
        Api = "api",
        /// The start of the daemon, with another file than before.
        Start = "start",
        /// A reload of the file.
        Reload = "reload",
        /// The end of the time in which a commit had to be confirmed.
        Confirm = "confirm",
        /// The start of the daemon, when the newest revision could not be read.
        Recovery = "recovery",
    }
}

/// `GET /v1/configuration`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct InForce {
    /// The revision in force; 0 if there is no archive.
    pub revision: u64,
    /// The file that is read at the start.
    pub file: String,
    /// Whether the file says the same.
    pub saved: bool,
    /// The commit that must still be confirmed, if there is one.
    pub confirm: Option<Unconfirmed>,
    /// Why nothing can be committed, if so, and what to do.
    pub read_only: Option<super::Problem>,
    /// Paths of parts that the machine has refused: they are not in force as the lines say.
    #[serde(default)]
    pub refused: Vec<String>,
    /// Lines of `set`, with secrets.
    pub text: SecretText,
}

/// A commit that is undone unless it is confirmed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Unconfirmed {
    /// Its revision.
    pub revision: u64,
    /// The time that is left; once undoing it has failed, the time until it is tried again.
    pub seconds_left: u64,
    /// The revision whose configuration comes back; 0 for the file.
    pub back_to: u64,
    /// Why it is not undone yet, although its time has passed.
    #[serde(default)]
    pub failed: Option<String>,
}

/// `GET /v1/configuration/revisions`: a list of these, the newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Revision {
    /// Its number.
    pub revision: u64,
    /// When it was made, in UTC (RFC 3339).
    pub time: String,
    /// The user who made it.
    pub user: String,
    /// The cause of it.
    pub via: Via,
    /// The comment of the commit.
    pub comment: Option<String>,
    /// The commit must be confirmed, and is not yet.
    pub confirm: Option<Unconfirmed>,
    /// The file that could not be read, and was set aside; nothing else is known then.
    pub corrupt: Option<String>,
}

/// `GET /v1/configuration/revisions/N`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct RevisionText {
    /// Its entry in the list of revisions.
    #[serde(flatten)]
    pub revision: Revision,
    /// Lines of `set`, with secrets.
    pub text: SecretText,
}

/// `POST /v1/configuration/commit`: changes that are to be in force.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Commit {
    /// The revision to which the edits belong.
    pub base: u64,
    /// Lines of `set` and `delete` with whole paths and words.
    pub edits: Vec<SecretText>,
    /// Its comment, for the list of revisions.
    #[serde(default)]
    pub comment: Option<String>,
    /// The user who commits.
    pub user: String,
    /// The kind of client that sends it.
    pub via: Via,
    /// Undo it after so many minutes unless it is confirmed.
    #[serde(default)]
    pub confirm_minutes: Option<u32>,
    /// Only validate it: nothing is changed.
    #[serde(default)]
    pub check_only: bool,
}

/// The answer to a commit that is in force.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Committed {
    /// The revision in force.
    pub revision: u64,
    /// The changes, a line each, without secrets.
    pub changes: Vec<String>,
    /// Warnings that did not hold before.
    pub warnings: Vec<String>,
    /// Until when it must be confirmed, if it must be.
    #[serde(default)]
    pub confirm: Option<Unconfirmed>,
}

/// The answer to a commit of which others have changed something meanwhile (409).
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Conflicts {
    /// Each place that both changed.
    pub conflicts: Vec<Conflict>,
}

/// A place that two sessions changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Conflict {
    /// The place.
    pub path: String,
    /// The values of this commit there, without secrets.
    pub ours: String,
    /// The values in force there, without secrets.
    pub theirs: String,
}

/// The answer to a commit that is wrong (422): nothing of it is in force.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct CommitErrors {
    /// All that is wrong.
    pub errors: Vec<CommitError>,
}

/// An error of a commit.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct CommitError {
    /// The path that it is about.
    pub path: String,
    /// The reason.
    pub why: String,
    /// The fix.
    pub fix: Option<String>,
}

/// `POST /v1/configuration/confirm`: a commit that is to stay in force.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Confirm {
    /// Its revision. Another one is not confirmed.
    pub revision: u64,
}

/// The answer to a commit that was confirmed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Confirmed {
    /// The revision that stays in force.
    pub revision: u64,
}

/// `POST /v1/configuration/saved`: the file was written.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Saved {
    /// SHA-256 of the file, in hexadecimal.
    pub hash: String,
    /// The revision that was written to it.
    pub revision: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_makes_a_revision_has_its_json_word() {
        crate::api::words::check(&[
            (Via::Cli, "cli"),
            (Via::Api, "api"),
            (Via::Start, "start"),
            (Via::Reload, "reload"),
            (Via::Confirm, "confirm"),
            (Via::Recovery, "recovery"),
        ]);
    }

    #[test]
    fn a_commit_is_read_with_what_may_be_left_out_and_its_secrets_are_not_printed() {
        let json = r#"{"base":7,"edits":["set a OpenSesame"],"user":"root","via":"cli"}"#;
        let commit: Commit = serde_json::from_str(json).expect("right");
        assert_eq!(
            (commit.base, commit.edits[0].as_str(), commit.check_only),
            (7, "set a OpenSesame", false)
        );
        assert!(!format!("{commit:?}").contains("Sesame"));
    }
}
