//! The file that the configuration is read from: whole, and checked before any of it is used.

mod whole;

use super::archive::revision::digest;
use crate::rights::Rights;
use config::{ConfigError, Settings, Tree};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tokio::sync::oneshot;

/// Beyond this many, errors are only counted: mending the first ones comes first.
const ERRORS_SHOWN: usize = 20;

/// Why a file cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read; with what to do about it.
    #[error("{}: {error}{fix}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
        /// What to do.
        fix: &'static str,
    },
    /// A program is writing it; with how to replace it in one step.
    #[error("{} keeps changing: a program is writing it\n  fix: {}", .0.display(), .1)]
    Changing(PathBuf, String),
    /// It is not text.
    #[error("{}: {}", .0.display(), .1)]
    NotText(PathBuf, std::str::Utf8Error),
    /// It ends in the middle of a line, which the one in force did not.
    #[error("{}: {}", .0.display(), whole::cut_off(.0))]
    CutOff(PathBuf),
    /// It configures nothing, and does not say that this is meant.
    #[error("{}", whole::empty(.0))]
    Empty(PathBuf),
    /// The grammar does not know it, or its parts do not fit each other: a line each.
    #[error("the configuration is wrong\n{0}")]
    Wrong(String),
    /// Some of it would be refused when it is served: a line each.
    #[error("{} cannot be served as it is\n{}", .0.display(), .1)]
    NotServed(PathBuf, String),
    /// No thread could be started to read it.
    #[error(transparent)]
    Thread(#[from] io::Error),
    /// The thread that read it panicked, which it has said.
    #[error("{} was not read", .0.display())]
    Lost(PathBuf),
}

impl FileError {
    pub(super) fn unreadable(path: &Path, error: io::Error) -> Self {
        let fix = if error.kind() == io::ErrorKind::NotFound {
            "\n  fix: write one (examples/ has some to start from), or name another: --config FILE"
        } else {
            ""
        };
        Self::Unreadable { path: path.to_owned(), error, fix }
    }
}

/// The file of a daemon.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    /// The group of the daemon's user, which may read the file.
    group: Option<u32>,
    /// Whether it ended with a newline when it was last read: then one that does not is truncated.
    must_end: bool,
}

/// A configuration as read from its file.
pub struct Read {
    /// Its words.
    pub tree: Tree,
    /// What they mean.
    pub settings: Settings,
    /// What a person should know about them.
    pub warnings: Vec<String>,
    /// SHA-256 of the file, in hexadecimal.
    pub hash: String,
    /// Whether the last line of the file ends with a newline.
    ends: bool,
}

impl ConfigFile {
    /// The file at `path`, which users of `group` may read too.
    pub fn new(path: PathBuf, group: Option<u32>) -> Self {
        Self { path, group, must_end: false }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads and checks it. May wait for a program that is writing it.
    pub fn read(&self) -> Result<Read, FileError> {
        let path = &self.path;
        let text = whole::read(path)?;
        let text = text.as_str().map_err(|error| FileError::NotText(path.clone(), error))?;
        let ends = whole::ends_its_last_line(text);
        if self.must_end && !ends {
            return Err(FileError::CutOff(path.clone()));
        }
        let checked =
            config::parse(text).and_then(|tree| Settings::new(&tree).map(|checked| (tree, checked)));
        let (tree, (settings, warnings)) = checked.map_err(|errors| wrong(path, text, &errors))?;
        if settings.is_empty() && !settings.allows_empty {
            return Err(FileError::Empty(path.clone()));
        }
        let cut_off = (!ends).then(|| whole::cut_off(path));
        let of_file = [self.exposed(&tree), cut_off].into_iter().flatten();
        let warnings: Vec<String> = warnings.into_iter().chain(super::warnings(&settings)).collect();
        for warning in of_file.chain(warnings.iter().cloned()) {
            tracing::warn!("{}: {warning}", path.display());
        }
        let hash = digest(text.as_bytes());
        Ok(Read { tree, settings, warnings, hash, ends })
    }

    /// The same in a thread of its own, which keeps the right to read what only root may read, if the process has it.
    pub async fn read_apart(&self) -> Result<Read, FileError> {
        let (give, take) = oneshot::channel();
        let file = self.clone();
        std::thread::Builder::new().name("configuration".to_owned()).spawn(move || {
            Rights::Files.keep();
            // The receiver is gone only when the daemon is about to end.
            let _ = give.send(file.read());
        })?;
        take.await.unwrap_or_else(|_| Err(FileError::Lost(self.path.clone())))
    }

    /// This is in force now: the next one must be as complete.
    pub fn accept(&mut self, read: &Read) {
        self.must_end = read.ends;
    }

    /// Warns of what is probably a mistake; fails if a part would be refused when it is served, as far as that is known before.
    pub fn check(&self, settings: &Settings) -> Result<(), FileError> {
        let (warnings, refused) = super::check(settings);
        for warning in warnings {
            tracing::warn!("{}: {warning}", self.path.display());
        }
        if refused.is_empty() {
            return Ok(());
        }
        let refused = refused.values().map(ToString::to_string).collect();
        Err(FileError::NotServed(self.path.clone(), listed(refused)))
    }

    /// The warning if a file with secrets can be read by users other than its owner and the daemon's group.
    fn exposed(&self, tree: &Tree) -> Option<String> {
        // What cannot be asked for has just been read, and is no file on a disk.
        let metadata = std::fs::metadata(&self.path).ok().filter(Metadata::is_file)?;
        let mode = metadata.permissions().mode() & 0o777;
        let others = if Some(metadata.gid()) == self.group { 0o037 } else { 0o077 };
        let is_open = mode & others != 0 && config::print::has_secrets(tree);
        is_open.then(|| {
            format!(
                "it has secrets, and others than its owner may use it (mode {mode:04o})\n  fix: chmod 600 {}",
                self.path.display()
            )
        })
    }
}

fn wrong(path: &Path, text: &str, errors: &[ConfigError]) -> FileError {
    let file = path.display().to_string();
    FileError::Wrong(listed(errors.iter().map(|error| error.in_text(&file, text).to_string()).collect()))
}

fn listed(mut errors: Vec<String>) -> String {
    let more = errors.len().saturating_sub(ERRORS_SHOWN);
    errors.truncate(ERRORS_SHOWN);
    errors.extend((more > 0).then(|| format!("and {more} more")));
    errors.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    #[test]
    fn secrets_that_others_may_read_are_warned_of() {
        let path = std::env::temp_dir().join(format!("postern-exposed-{}", std::process::id()));
        std::fs::write(&path, "").expect("a file");
        let secret = config::parse("set vpn ipsec authentication psk a secret 'a b'").expect("right");
        let none = config::parse("set interfaces wireguard wg0 mtu 1400").expect("right");
        let said_with = |group, mode, tree: &Tree| {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            ConfigFile::new(path.clone(), group).exposed(tree)
        };
        let said = |mode, tree: &Tree| said_with(None, mode, tree);
        let warning = said(0o644, &secret).unwrap_or_default();
        assert!(warning.contains("(mode 0644)") && warning.contains("\n  fix: chmod 600 "), "{warning}");
        assert_eq!((said(0o600, &secret), said(0o644, &none)), (None, None));
        let ours = Some(std::fs::metadata(&path).expect("it is there").gid());
        assert_eq!(said_with(ours, 0o640, &secret), None, "the daemon's own group");
        assert!(said_with(ours, 0o644, &secret).is_some() && said(0o640, &secret).is_some());
        std::fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn a_file_that_ended_its_last_line_must_do_so_again() {
        let path = std::env::temp_dir().join(format!("postern-ended-{}", std::process::id()));
        let mut file = ConfigFile::new(path.clone(), None);
        let read = |file: &ConfigFile, text: &str| {
            std::fs::write(&path, text).expect("a file");
            file.read()
        };
        let cut = read(&file, "set system allow-empty").expect("it may never have ended its last line");
        file.accept(&cut);
        let whole = read(&file, "set system allow-empty\n").expect("it is whole");
        file.accept(&whole);
        let refused = read(&file, "set system allow-empty").err();
        std::fs::remove_file(&path).expect("it is there");
        assert!(matches!(refused, Some(FileError::CutOff(_))), "{refused:?}");
    }
}
