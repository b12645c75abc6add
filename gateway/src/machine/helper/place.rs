//! Files and programs of the machine, below a root: what was written is whole or not there, and says who wrote it.

use crate::child::end_of;
use disk::{Folder, Wanted};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use zeroize::Zeroizing;

/// How long a program may take: a service that is restarted.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a program's output in an error.
const SHOWN: usize = 2000;
/// How the first line of our files begins.
const WRITTEN: &str = "# Written by Postern for ";
/// The file that is locked while something is changed.
const LOCK: &str = "/run/postern-machine/lock";

/// The machine: paths are below its root, which is another folder in tests.
#[derive(Clone, Debug)]
pub struct Place {
    root: PathBuf,
}

/// A file that is to be there. It may hold passwords, and is not printed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Content {
    /// Where, from the root.
    pub(super) path: String,
    /// Who may read it.
    pub(super) mode: u32,
    /// What it holds after the line that says who wrote it.
    pub(super) text: Zeroizing<String>,
}

/// What a file held, and its mode.
type Before = (Vec<u8>, u32);

/// What files were before they were changed; none for one that was not there.
#[derive(Default)]
pub(super) struct Change {
    before: Vec<(PathBuf, Option<Before>)>,
}

/// Why a file or a program could not be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{} is there, and Postern did not write it\n  fix: move it away", .0.display())]
    Foreign(PathBuf),
    #[error("{} belongs to the configuration {owner}\n  fix: delete that part there, or remove the file", path.display())]
    Owned { path: PathBuf, owner: String },
    #[error("{program}: {error}")]
    NotStarted { program: String, error: io::Error },
    #[error("{command}: {output}")]
    Failed { command: String, output: String },
}

impl Place {
    /// A machine whose files are below `root`.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The path below the root.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The path as the programs of the machine name it.
    pub(super) fn named(&self, path: &Path) -> String {
        let inside = path.strip_prefix(&self.root).unwrap_or(path);
        Path::new("/").join(inside).display().to_string()
    }

    /// Whether something is there.
    pub(super) fn has(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// Waits until no other helper changes the machine: systemd starts one for each connection. The others wait until the file
    /// is dropped; programs that are run meanwhile do not inherit it.
    pub(super) fn lock(&self) -> Result<File, PlaceError> {
        let path = self.at(LOCK);
        let folder = path.parent().unwrap_or(Path::new("/"));
        let opened = fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).and_then(|()| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            Ok(File::from(rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))?))
        });
        let file = opened.map_err(|error| PlaceError::Io { path: path.clone(), error })?;
        let locked = rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive));
        locked.map_err(|error| PlaceError::Io { path, error: error.into() })?;
        Ok(file)
    }

    /// Whether files may be written for this owner.
    pub(super) fn check_owners(&self, wanted: &[Content], owner: &str) -> Result<(), PlaceError> {
        wanted.iter().try_for_each(|content| self.check_owner(&content.path, owner))
    }

    /// Makes files what they are to be: of `known`, those that are not wanted go. Nothing is changed if one of them is not of
    /// this owner, or cannot be written or removed.
    pub(super) fn replace(
        &self,
        owner: &str,
        wanted: &[Content],
        known: &[String],
    ) -> Result<Change, PlaceError> {
        self.check_owners(wanted, owner)?;
        let mut change = Change::default();
        match self.make(owner, wanted, known, &mut change) {
            Ok(()) => Ok(change),
            Err(error) => {
                change.undo();
                Err(error)
            }
        }
    }

    fn make(
        &self,
        owner: &str,
        wanted: &[Content],
        known: &[String],
        change: &mut Change,
    ) -> Result<(), PlaceError> {
        for path in known.iter().filter(|path| wanted.iter().all(|content| content.path != **path)) {
            if self.is_owned(path, owner) {
                let at = self.at(path);
                change.note(&at)?;
                fs::remove_file(&at).map_err(|error| PlaceError::Io { path: at, error })?;
            }
        }
        for content in wanted {
            let text = Zeroizing::new(format!("{WRITTEN}{owner}: changes are lost.\n{}", *content.text));
            let at = self.at(&content.path);
            if is_there(&at, text.as_bytes(), content.mode) {
                continue;
            }
            change.note(&at)?;
            write(&at, text.as_bytes(), content.mode).map_err(|error| PlaceError::Io { path: at, error })?;
        }
        Ok(())
    }

    /// Whose file it is; none if there is none, or of someone whose configuration is gone.
    fn owner(&self, path: &str) -> Result<Option<String>, PlaceError> {
        let at = self.at(path);
        let text = match fs::read(&at) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(PlaceError::Io { path: at, error }),
        };
        let first = text.lines().next().unwrap_or_default();
        let owner = first.strip_prefix(WRITTEN).and_then(|rest| rest.strip_suffix(": changes are lost."));
        owner.map(|owner| Some(owner.to_owned())).ok_or(PlaceError::Foreign(at))
    }

    fn check_owner(&self, path: &str, owner: &str) -> Result<(), PlaceError> {
        match self.owner(path)? {
            // One whose configuration is gone has left it behind. Where that cannot be seen, as in a folder of users, it is there.
            Some(found) if found != owner && Path::new(&found).try_exists().unwrap_or(true) => {
                Err(PlaceError::Owned { path: self.at(path), owner: found })
            }
            _ => Ok(()),
        }
    }

    /// Whether a file is there, and of this owner.
    pub(super) fn is_owned(&self, path: &str, owner: &str) -> bool {
        matches!(self.owner(path), Ok(Some(found)) if found == owner)
    }

    /// The paths of this owner's files in a folder whose names begin so.
    pub(super) fn owned(&self, folder: &str, prefix: &str, owner: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(folder)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let paths = names.filter(|name| name.starts_with(prefix)).map(|name| format!("{folder}/{name}"));
        let mut owned: Vec<String> = paths.filter(|path| self.is_owned(path, owner)).collect();
        owned.sort();
        owned
    }

    /// Whether systemd runs the machine.
    pub(super) fn has_systemd(&self) -> bool {
        self.has("/run/systemd/system") && self.has("/usr/bin/systemctl")
    }

    /// Runs a program of the machine, without a shell, and waits for its end.
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Result<(), PlaceError> {
        let mut output = tempfile_of(program)?;
        let not_started = |error| PlaceError::NotStarted { program: program.to_owned(), error };
        let mut child = Command::new(self.at(program))
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(not_started)?)
            .stderr(output.try_clone().map_err(not_started)?)
            .spawn()
            .map_err(not_started)?;
        let status = end_of(&mut child, PATIENCE).map_err(not_started)?;
        if status.is_some_and(|status| status.success()) {
            return Ok(());
        }
        let said = said(&mut output).unwrap_or_default();
        let ended = status.map_or_else(
            || format!("it did not end within {} seconds", PATIENCE.as_secs()),
            |status| status.to_string(),
        );
        let command = std::iter::once(program).chain(arguments.iter().copied()).collect::<Vec<_>>().join(" ");
        Err(PlaceError::Failed { command, output: if said.is_empty() { ended } else { said } })
    }
}

/// A file without a name, which takes whatever a program prints: a pipe that a service keeps would never end.
fn tempfile_of(program: &str) -> Result<File, PlaceError> {
    let made = rustix::fs::memfd_create("output", rustix::fs::MemfdFlags::CLOEXEC);
    made.map(File::from)
        .map_err(|error| PlaceError::NotStarted { program: program.to_owned(), error: error.into() })
}

/// The end of what a program printed.
fn said(output: &mut File) -> io::Result<String> {
    use std::io::{Seek, SeekFrom};
    let length = output.seek(SeekFrom::End(0))?;
    output.seek(SeekFrom::Start(length.saturating_sub(SHOWN as u64)))?;
    let mut text = Vec::new();
    output.take(SHOWN as u64).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

fn is_there(at: &Path, text: &[u8], mode: u32) -> bool {
    let has_mode = || fs::metadata(at).is_ok_and(|it| it.permissions().mode() & 0o7777 == mode);
    fs::read(at).is_ok_and(|found| found == text) && has_mode()
}

/// Writes a file in one step: no program ever reads half of it, nor after a crash.
pub(super) fn write(at: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    Folder::make(at.parent().unwrap_or(Path::new("/")), 0o755)?;
    disk::write(at, &Wanted { mode, ..Wanted::private(text) })
}

impl Change {
    /// Whether nothing was changed.
    pub(super) fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    fn note(&mut self, at: &Path) -> Result<(), PlaceError> {
        let before = match fs::read(at) {
            Ok(text) => Some((text, fs::metadata(at).map_or(0o600, |it| it.permissions().mode() & 0o7777))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(PlaceError::Io { path: at.to_owned(), error }),
        };
        self.before.push((at.to_owned(), before));
        Ok(())
    }

    /// Puts everything back.
    pub(super) fn undo(self) {
        for (at, before) in self.before.into_iter().rev() {
            let undone = match before {
                Some((text, mode)) => write(&at, &text, mode),
                None => match fs::remove_file(&at) {
                    // It was not written yet.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    removed => removed,
                },
            };
            if let Err(error) = undone {
                tracing::error!("{}: {error}", at.display());
            }
        }
    }
}
