//! Which programs alerts may run: those that root alone can change, in folders that root has named. A commit cannot run others.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a program is not run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is in no folder of programs.
    #[error(
        "alerts run programs in {folders} only, and {program} is not there\n  fix: write a script in {folders} that calls it"
    )]
    Outside {
        /// The program.
        program: String,
        /// The folders.
        folders: String,
    },
    /// Others than root can change it.
    #[error("others than root can change {0}\n  fix: chown root {0}; chmod go-w {0}")]
    Open(String),
    /// It is not there, or cannot be run.
    #[error("{program}: {why}\n  fix: {fix}")]
    Missing {
        /// The program.
        program: String,
        /// What is wrong.
        why: String,
        /// What to do.
        fix: String,
    },
}

impl ProgramError {
    /// Whether the problem can go away by itself: the program may be written later.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }
}

/// The program by its canonical path, if alerts may run it.
pub fn program(path: &str, folders: &[PathBuf]) -> Result<PathBuf, ProgramError> {
    let missing =
        |why: String, fix: &str| ProgramError::Missing { program: path.to_owned(), why, fix: fix.to_owned() };
    // Checked first: a name that leads out of the folder is wrong whether the file exists or not.
    let at = fs::canonicalize(path);
    let lies_inside = |at: &Path| {
        folders.iter().any(|folder| {
            at.starts_with(folder) || fs::canonicalize(folder).is_ok_and(|folder| at.starts_with(folder))
        })
    };
    let climbs = path.split('/').any(|part| part == "..");
    if climbs || !lies_inside(at.as_deref().unwrap_or(Path::new(path))) {
        let folders = folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>();
        let folders = if folders.is_empty() { "no folder".to_owned() } else { folders.join(" and ") };
        return Err(ProgramError::Outside { program: path.to_owned(), folders });
    }
    let at = at.map_err(|error| missing(error.to_string(), "write it, and make it readable for all"))?;
    let is_open = |path: &Path| {
        !fs::symlink_metadata(path).is_ok_and(|it| it.uid() == 0 && it.permissions().mode() & 0o022 == 0)
    };
    if let Some(open) = at.ancestors().find(|above| is_open(above)) {
        return Err(ProgramError::Open(open.display().to_string()));
    }
    let is_program = |it: Metadata| it.is_file() && it.permissions().mode() & 0o001 != 0;
    if !fs::metadata(&at).is_ok_and(is_program) {
        return Err(missing("it is no program that all may run".to_owned(), "chmod +rx it"));
    }
    Ok(at)
}
