//! A session in a file, between the commands of a script, each of which is a process.

use super::api::Router;
use super::session::{Session, read};
use crate::Failure;
use config::{Path as Place, Text, Tree, print};
use disk::Wanted;
use gateway::api::model::SecretText;
use serde::{Deserialize, Serialize};
use std::path::Path;
use zeroize::Zeroizing;

/// What a session is made from again.
#[derive(Serialize, Deserialize)]
struct Stored {
    revision: u64,
    level: Vec<String>,
    base: SecretText,
    candidate: SecretText,
    file: String,
    is_saved: bool,
    confirms: Option<u64>,
}

impl Session {
    /// Writes it to a file that only this user can read.
    pub(super) fn store(&self, file: &Path) -> Result<(), Failure> {
        let stored = Stored {
            revision: self.revision,
            level: self.level.words().into_iter().map(str::to_owned).collect(),
            base: secret(&self.base),
            candidate: secret(&self.candidate),
            file: self.file.clone(),
            is_saved: self.is_saved,
            confirms: self.confirms,
        };
        let text = Zeroizing::new(serde_json::to_vec(&stored)?);
        disk::write(file, &Wanted::private(&text))
            .map_err(|error| format!("{}: {error}", file.display()).into())
    }

    /// Continues the session in a file.
    pub(super) fn restore(router: Box<dyn Router>, user: String, file: &Path) -> Result<Self, Failure> {
        let in_file = |error: &dyn std::fmt::Display| {
            format!("{}: {error}\n  fix: begin a session: configure, of script-template", file.display())
        };
        let text = Text::read(file).map_err(|error| in_file(&error))?;
        let stored: Stored = serde_json::from_slice(text.bytes()).map_err(|error| in_file(&error))?;
        Ok(Self {
            router,
            user,
            revision: stored.revision,
            base: read(stored.base.as_str())?,
            candidate: read(stored.candidate.as_str())?,
            level: Place::new(stored.level.iter().map(String::as_str)),
            file: stored.file,
            is_saved: stored.is_saved,
            confirms: stored.confirms,
        })
    }
}

fn secret(tree: &Tree) -> SecretText {
    SecretText::from(print::text(tree).as_str().unwrap_or_default())
}
