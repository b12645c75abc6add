//! A session of configuration: the candidate, what it is a change of, and the level in it.

use super::api::Router;
use crate::Failure;
use config::error::ConfigError;
use config::schema::Cursor;
use config::{Path, Tree};
use gateway::api::model::InForce;
use zeroize::Zeroizing;

/// A session. All of its changes are in the candidate, until they are committed.
pub(crate) struct Session {
    pub(super) router: Box<dyn Router>,
    pub(super) user: String,
    /// The revision to which the candidate is a change.
    pub(super) revision: u64,
    pub(super) base: Tree,
    pub(super) candidate: Tree,
    pub(super) level: Path,
    /// The file of the daemon.
    pub(super) file: String,
    pub(super) is_saved: bool,
    /// The commit that `confirm` is for: one of this session that must be confirmed, or another that it was shown.
    pub(super) confirms: Option<u64>,
}

/// A command, as it was typed.
pub(crate) struct Line<'a> {
    /// The words behind the command.
    pub(super) words: Vec<&'a str>,
    /// The same as text, with its quotes.
    pub(super) rest: &'a str,
    pub(super) form: Form,
}

/// The form of what is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    #[default]
    Braces,
    Commands,
    Json,
}

/// What a command says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) text: String,
    /// Whether the session is over.
    pub(crate) is_end: bool,
}

impl Reply {
    pub(super) fn says(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_end: false }
    }
}

impl Session {
    /// Begins a session with what is in force.
    pub(crate) fn begin(router: Box<dyn Router>, user: String) -> Result<Self, Failure> {
        let InForce { revision, file, saved, text, .. } = router.in_force()?;
        let base = read(text.as_str())?;
        Ok(Self {
            router,
            user,
            revision,
            candidate: base.clone(),
            base,
            level: Path::default(),
            file,
            is_saved: saved,
            confirms: None,
        })
    }

    /// The level, as the prompt shows it.
    pub(crate) fn level(&self) -> &Path {
        &self.level
    }

    /// Whether there is anything to commit.
    pub(crate) fn is_changed(&self) -> bool {
        !config::diff::diff(&self.base, &self.candidate).is_empty()
    }

    /// The whole path of words at the level, with abbreviations written out; an error if the grammar has no such place.
    pub(super) fn path_of(&self, words: &[&str]) -> Result<Path, Failure> {
        let mut cursor = Cursor::at(self.level.words()).unwrap_or(Cursor::root());
        let mut path: Vec<&str> = self.level.words();
        for (at, word) in words.iter().enumerate() {
            let Some(next) = cursor.expand(word) else {
                let path = Path::new(self.level.words().into_iter().chain(words[..=at].iter().copied()));
                return Err(invalid_path(&path, &cursor.abbreviated(word)));
            };
            path.push(if next.tag().is_some() { word } else { next.word() });
            cursor = next;
        }
        Ok(Path::new(path))
    }

    /// Takes what is in force as the base, and as the candidate.
    pub(super) fn refresh(&mut self) -> Result<(), Failure> {
        let InForce { revision, saved, text, .. } = self.router.in_force()?;
        self.base = read(text.as_str())?;
        self.candidate = self.base.clone();
        (self.revision, self.is_saved) = (revision, saved);
        Ok(())
    }
}

/// The error for a path that the grammar does not have, with the words that its last one may begin.
fn invalid_path(path: &Path, begun: &[&str]) -> Failure {
    let fix =
        if begun.is_empty() { String::new() } else { format!("\n  fix: write one of {}", begun.join(", ")) };
    format!("Configuration path: [{path}] is not valid{fix}").into()
}

/// Reads what the daemon says.
pub(crate) fn read(text: &str) -> Result<Tree, Failure> {
    config::parse(text).map_err(|errors| {
        let first = errors.first().map(|error| error.reason.clone()).unwrap_or_default();
        format!(
            "the configuration of the daemon cannot be read: {first}\n  fix: use the program of its version"
        )
        .into()
    })
}

/// All errors of a text, each with its line; secrets are hidden.
pub(super) fn listed(errors: &[ConfigError], file: &str, text: &str) -> String {
    errors.iter().map(|error| format!("{}\n", error.in_text(file, text))).collect()
}

/// A line of a command that is carried out by `config`: the verb in full, and what follows.
pub(super) fn full_line(verb: &str, rest: &str) -> Zeroizing<String> {
    let mut line = Zeroizing::new(String::with_capacity(verb.len() + rest.len() + 1));
    line.push_str(verb);
    line.push(' ');
    line.push_str(rest);
    line
}
