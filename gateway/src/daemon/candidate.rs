//! What a commit would put in force: its edits, merged with what others have changed, and checked as a whole.

use crate::api::model::{CommitError, CommitErrors, Conflict, Conflicts, SecretText};
use crate::service::Refused;
use config::error::MOST_ERRORS;
use config::merge::{self, Side};
use config::{ConfigError, Path, Settings, Text, Tree, edits, print};

/// A configuration that may be applied.
#[derive(Debug)]
pub struct Candidate {
    /// Its words.
    pub tree: Tree,
    /// The same as lines.
    pub text: Text,
    /// What they mean.
    pub settings: Settings,
    /// What a person should know about them.
    pub warnings: Vec<String>,
    /// The branches that were deleted by their names.
    pub deleted: Vec<Path>,
}

/// What others have made of the base.
#[derive(Clone, Copy, Debug)]
pub struct Others<'a> {
    /// What is in force.
    pub running: &'a Tree,
    /// The branches that they deleted by their names.
    pub deleted: &'a [Path],
}

/// Why a commit is not applied.
#[derive(Debug, PartialEq)]
pub enum Wrong {
    /// Others have changed the same.
    Conflicts(Conflicts),
    /// The lines, or the configuration as a whole.
    Errors(CommitErrors),
}

impl Candidate {
    /// Carries out edits of a base. `others` is what became of the base meanwhile, if anything.
    pub fn new(base: &Tree, lines: &[SecretText], others: Option<Others<'_>>) -> Result<Self, Wrong> {
        let mut tree = base.clone();
        let done = edits::carry_out(lines.iter().map(SecretText::as_str), &mut tree);
        let deleted = done.map_err(|errors| {
            let line = |error: &ConfigError| lines[error.location.line - 1].as_str();
            Wrong::Errors(listed(errors.iter().map(|error| wrong(error, line(error)))))
        })?;
        if let Some(Others { running, deleted: theirs }) = others {
            let ours = Side { tree: &tree, deleted: &deleted };
            let merged = merge::merge(base, ours, Side { tree: running, deleted: theirs });
            tree = merged.map_err(|conflicts| Wrong::Conflicts(conflicting(conflicts)))?;
        }
        let text = print::text(&tree);
        let Ok((settings, warnings)) = Settings::new(&tree) else {
            return Err(Wrong::Errors(placed_errors(&text)));
        };
        Ok(Self { tree, text, settings, warnings, deleted })
    }
}

/// All that is wrong with a configuration as a whole. Read from its lines, it knows where each word is.
fn placed_errors(text: &Text) -> CommitErrors {
    let text = text.as_str().unwrap_or_default();
    let errors = match config::parse(text) {
        Ok(tree) => Settings::new(&tree).err().unwrap_or_default(),
        Err(errors) => errors,
    };
    let lines: Vec<&str> = text.lines().collect();
    let line = |error: &ConfigError| {
        error.location.line.checked_sub(1).and_then(|index| lines.get(index)).copied().unwrap_or_default()
    };
    listed(errors.iter().map(|error| wrong(error, line(error))))
}

fn listed(errors: impl Iterator<Item = CommitError>) -> CommitErrors {
    CommitErrors { errors: errors.take(MOST_ERRORS).collect() }
}

fn wrong(error: &ConfigError, line: &str) -> CommitError {
    let path = edits::path_to(line, error.location).to_string();
    CommitError { path, why: error.reason.clone(), fix: error.fix.clone() }
}

fn conflicting(conflicts: Vec<merge::Conflict>) -> Conflicts {
    let shown = conflicts.into_iter().map(|merge::Conflict { path, ours, theirs }| Conflict {
        path: path.to_string(),
        ours,
        theirs,
    });
    Conflicts { conflicts: shown.collect() }
}

/// What the machine or the services refused.
pub fn refused(refused: &Refused) -> CommitErrors {
    listed(refused.iter().map(|(path, refusal)| {
        let (path, said) = (path.to_string(), refusal.to_string());
        let (why, fix) = split(&said);
        let why = why.strip_prefix(&format!("{path}: ")).unwrap_or(&why).to_owned();
        CommitError { path, why, fix }
    }))
}

/// An error and its fix.
pub fn split(said: &str) -> (String, Option<String>) {
    match said.split_once("\n  fix: ") {
        Some((why, fix)) => (why.to_owned(), Some(fix.to_owned())),
        None => (said.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Refusal;

    fn tree(text: &str) -> Tree {
        config::parse(text).expect("right")
    }

    fn edits(lines: &[&str]) -> Vec<SecretText> {
        lines.iter().map(|line| SecretText::from(*line)).collect()
    }

    fn paths(wrong: Wrong) -> Vec<String> {
        match wrong {
            Wrong::Errors(errors) => errors.errors.into_iter().map(|error| error.path).collect(),
            Wrong::Conflicts(conflicts) => panic!("{conflicts:?}"),
        }
    }

    const KEY: &str = "YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=";

    #[test]
    fn all_wrong_edits_are_told_at_once_with_their_paths() {
        let lines = ["set interfaces wireguard wg0 mtu 1", "set system allow-empty", "delete vpn ipsec"];
        let wrong = Candidate::new(&Tree::default(), &edits(&lines), None).expect_err("two are wrong");
        assert_eq!(paths(wrong), ["interfaces wireguard wg0 mtu", "vpn ipsec"]);
    }

    #[test]
    fn all_that_is_wrong_as_a_whole_is_told_at_once_with_paths() {
        let key = format!("set interfaces wireguard wg0 private-key {KEY}");
        let lines = [
            key.as_str(),
            "set interfaces wireguard wg0 peer a description 'no key'",
            "set interfaces wireguard wg1 mtu 1400",
            "set vpn ipsec site-to-site peer berlin ike-group NONE",
        ];
        let wrong = Candidate::new(&Tree::default(), &edits(&lines), None).expect_err("wrong");
        let paths = paths(wrong);
        for path in [
            "interfaces wireguard wg0 peer a",
            "interfaces wireguard wg1",
            "vpn ipsec site-to-site peer berlin",
        ] {
            assert!(paths.iter().any(|found| found.starts_with(path)), "{path}: {paths:?}");
        }
        assert!(paths.iter().all(|path| !path.contains(KEY)));
    }

    #[test]
    fn the_errors_of_a_commit_are_bounded() {
        let lines: Vec<String> =
            (0..=MOST_ERRORS).map(|number| format!("set interfaces wireguard wg{number} mtu 1400")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let wrong = Candidate::new(&Tree::default(), &edits(&lines), None).expect_err("they have no keys");
        assert_eq!(paths(wrong).len(), MOST_ERRORS);
    }

    #[test]
    fn what_others_changed_is_kept_and_conflicts_are_named() {
        let base = tree("set system allow-empty");
        let running = tree("set system allow-empty\nset system config-management commit-revisions 7");
        let others = Some(Others { running: &running, deleted: &[] });
        let candidate = Candidate::new(&base, &edits(&["set system open-at-exit"]), others).expect("right");
        assert_eq!(candidate.text.as_str().expect("text").lines().count(), 3);
        assert_eq!((candidate.settings.commit_revisions, candidate.settings.open_at_exit), (7, true));
        let lines = ["set system config-management commit-revisions 8"];
        let wrong = Candidate::new(&base, &edits(&lines), others).expect_err("a conflict");
        let path = "system config-management commit-revisions".to_owned();
        let conflict = Conflict { path, ours: "8".to_owned(), theirs: "7".to_owned() };
        assert_eq!(wrong, Wrong::Conflicts(Conflicts { conflicts: vec![conflict] }));
    }

    #[test]
    fn a_refusal_is_told_with_its_fix_and_its_path_once() {
        let path = Path::new(["interfaces", "wireguard", "wg0"]);
        let error = std::io::Error::other(format!("{path}: port in use\n  fix: stop it"));
        let said = refused(&Refused::from([(path, Refusal::new(error, false))]));
        let expected = CommitError {
            path: "interfaces wireguard wg0".to_owned(),
            why: "port in use".to_owned(),
            fix: Some("stop it".to_owned()),
        };
        assert_eq!(said.errors, [expected]);
    }
}
