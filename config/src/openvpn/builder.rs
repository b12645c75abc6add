//! Applies directives to a draft, as their rows say.

use super::directive::{Directive, Position};
use super::draft::{Draft, Link};
use super::given::Given;
use super::row::{Fate, Scope};
use super::table;
use super::verdict::{Verdict, Wrong};
use crate::import::Files;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Applies directives to a draft.
pub(super) struct Builder<'a> {
    files: &'a dyn Files,
    folder: PathBuf,
    root: Option<PathBuf>,
    pub(super) verdict: Verdict,
    pub(super) draft: Draft,
    /// The last place of each directive, by the name in its row.
    pub(super) seen: BTreeMap<&'static str, Position>,
    first: Option<Position>,
}

impl<'a> Builder<'a> {
    /// `root` is the directory of `chroot`, which may stand behind what it changes.
    pub(super) fn new(
        files: &'a dyn Files,
        folder: PathBuf,
        root: Option<PathBuf>,
        verdict: Verdict,
    ) -> Self {
        let draft = Draft::default();
        Self { files, folder, root, verdict, draft, seen: BTreeMap::new(), first: None }
    }

    /// The place of a directive, or of the first one.
    pub(super) fn position(&self, name: &str) -> Position {
        let found = self.seen.get(name).or(self.first.as_ref()).cloned();
        found.unwrap_or_else(|| Position { file: "command line".into(), line: 0 })
    }

    /// Refuses a directive that was applied.
    pub(super) fn refuse(&mut self, name: &str, reason: impl Into<String>, fix: impl Into<String>) {
        let (position, shown) = (self.position(name), if self.seen.contains_key(name) { name } else { "" });
        self.verdict.refuse(&position, shown, Wrong::new(reason, fix));
    }

    /// Warns of a directive that was applied.
    pub(super) fn warn(&mut self, name: &str, text: &str) {
        self.verdict.remark(&self.position(name), name, text, true);
    }

    /// Whether one of these was refused, so that what it sets is not missing.
    pub(super) fn was_refused(&self, names: &[&str]) -> bool {
        self.verdict.refusals.iter().any(|refusal| names.contains(&refusal.directive.as_str()))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.seen.contains_key(name)
    }

    /// Applies a directive of the file or of the command line.
    pub(super) fn apply(&mut self, directive: &Directive) {
        self.first.get_or_insert_with(|| directive.position.clone());
        if directive.name != "connection" {
            return self.one(directive, Scope::CONFIG);
        }
        let outer = self.draft.link.clone();
        let base = Link { remotes: Vec::new(), locals: Vec::new(), ..outer.clone() };
        self.draft.link = Link { auth: None, crypt: None, crypt_v2: None, direction: None, ..base };
        for inner in &directive.inner {
            self.one(inner, Scope::CONNECTION);
        }
        let link = std::mem::replace(&mut self.draft.link, outer);
        if link.remotes.is_empty() {
            let wrong = Wrong::new("the block has no remote", "write remote HOST [PORT] [PROTOCOL] in it");
            self.verdict.refuse(&directive.position, "connection", wrong);
        }
        self.draft.links.push(link);
    }

    fn one(&mut self, directive: &Directive, scope: Scope) {
        let Some(row) = table::find(&directive.name) else { return };
        let position = &directive.position;
        if let Err(wrong) = row.check(directive, scope) {
            return self.verdict.refuse(position, row.name, wrong);
        }
        match row.fate {
            Fate::Refused { why, fix } => self.verdict.refuse(position, row.name, Wrong::new(why, fix)),
            Fate::Harmless { why } => {
                self.seen.insert(row.name, position.clone());
                self.verdict.remark(position, row.name, why, false);
            }
            Fate::Served { .. } => {
                self.seen.insert(row.name, position.clone());
                let given = Given {
                    directive,
                    name: row.name,
                    usage: row.usage,
                    files: self.files,
                    folder: &self.folder,
                    root: self.root.as_deref(),
                };
                if let Some(Err(wrong)) = row.by.map(|by| by(&mut self.draft, &given)) {
                    self.verdict.refuse(position, row.name, wrong);
                }
                for text in self.draft.take_warnings() {
                    self.verdict.remark(position, row.name, &text, true);
                }
            }
        }
    }
}
