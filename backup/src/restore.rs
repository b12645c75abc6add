//! Writes the files of a backup: all beside their places first, then each into its place, the configuration last.
//!
//! A loss of power leaves each file the old or the new one. The old file stays beside it under another name. The same
//! command, given again, goes on where it ended.

use crate::Backup;
use crate::entry::{Entry, LARGEST, Place};
use crate::owner::Owners;
use disk::{Folder, Wanted};
use rustix::fs::{FlockOperation, flock};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// The permissions of folders that are made.
const FOLDER: u32 = 0o755;
/// In the state folder: the revisions, and the certificate of the HTTPS server.
const ARCHIVE: &str = "archive";
const HTTPS: &str = "https";

/// Where a backup is to go.
#[derive(Debug)]
pub struct Target {
    /// The configuration file.
    pub configuration: PathBuf,
    /// Folders in which other files may be written.
    pub folders: Vec<PathBuf>,
    /// The state folder for the revisions and the certificate of the HTTPS server; `None` if they are not wanted.
    pub state: Option<PathBuf>,
    /// The users of this machine.
    pub owners: Owners,
    /// Whether this process may give files to other users.
    pub is_root: bool,
    /// The time, for the names of the old files.
    pub stamp: String,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// It would write a file that is none of ours.
    #[error(
        "the backup has {path}, which is in none of the folders {folders}\n  fix: if it belongs there: --allow {folder}"
    )]
    Outside {
        /// The file.
        path: String,
        /// Its folder.
        folder: String,
        /// Those that are allowed.
        folders: String,
    },
    /// Something is in the way.
    #[error("{} is there, and is not a regular file\n  fix: move it away", .0.display())]
    InTheWay(PathBuf),
    /// The kernel refuses.
    #[error("{}: {error}; {}", path.display(), so_far(done))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        error: io::Error,
        /// The files that are restored already.
        done: Vec<PathBuf>,
    },
}

fn so_far(done: &[PathBuf]) -> String {
    if done.is_empty() {
        return "nothing was changed".to_owned();
    }
    let done: Vec<String> = done.iter().map(|path| path.display().to_string()).collect();
    format!(
        "restored before that: {}\n  fix: make it writable, then give the same command again",
        done.join(", ")
    )
}

/// What happens to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    New,
    /// It is the same.
    Same,
    /// Another is there, and gets this name.
    Replaced(PathBuf),
}

/// A file that is to be restored.
#[derive(Debug)]
pub struct Step<'a> {
    /// What it is to be.
    pub entry: &'a Entry,
    /// Where.
    pub path: PathBuf,
    /// Its permissions.
    pub mode: u32,
    /// User and group; `None` for those of this process.
    pub owner: (Option<u32>, Option<u32>),
    /// What happens.
    pub change: Change,
}

/// All that would be done.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The files, the configuration last.
    pub steps: Vec<Step<'a>>,
    /// The revisions, if they are restored.
    pub revisions: Vec<&'a Entry>,
    /// The certificate of the HTTPS server with its key, if it is restored.
    pub certificate: Vec<&'a Entry>,
    /// What is not restored, or not as it was, a sentence each.
    pub left: Vec<String>,
    state: Option<State>,
}

/// The state folder, locked against daemons. Folders in it are replaced as a whole.
#[derive(Debug)]
struct State {
    path: PathBuf,
    folder: Folder,
    /// The time, for the names of the folders that were there before.
    stamp: String,
    /// The owner of the folder.
    owner: (Option<u32>, Option<u32>),
    _lock: File,
}

/// Finds out what restoring would do. Nothing is changed, but that the state folder may be made.
pub fn plan<'a>(backup: &'a Backup, target: &Target) -> Result<Plan<'a>, RestoreError> {
    let mut plan = Plan {
        steps: Vec::new(),
        revisions: Vec::new(),
        certificate: Vec::new(),
        left: Vec::new(),
        state: None,
    };
    for entry in &backup.entries {
        match &entry.place {
            Place::Revision(_) => plan.revisions.push(entry),
            Place::Https(_) => plan.certificate.push(entry),
            Place::File(path) => {
                let is_configuration = *path == backup.configuration;
                let step = target.step(entry, path, is_configuration, &mut plan.left)?;
                plan.steps.push(step);
            }
        }
    }
    plan.steps.sort_by_key(|step| step.path == target.configuration);
    if !plan.revisions.is_empty() || !plan.certificate.is_empty() {
        plan.state = target.state(&mut plan.left);
        if plan.state.is_none() {
            plan.revisions.clear();
            plan.certificate.clear();
        }
    }
    Ok(plan)
}

impl Target {
    fn step<'a>(
        &self,
        entry: &'a Entry,
        path: &str,
        is_configuration: bool,
        left: &mut Vec<String>,
    ) -> Result<Step<'a>, RestoreError> {
        let path = if is_configuration { self.configuration.clone() } else { PathBuf::from(path) };
        if !is_configuration {
            self.allow(&path)?;
        }
        // A user who may write a program of a task becomes root. Only the owner and the daemon's group may read a key.
        let mode = entry.mode & if is_configuration { 0o640 } else { 0o755 };
        let owner = self.owner(entry, &path, left);
        let change = match fs::symlink_metadata(&path) {
            Err(_) => Change::New,
            Ok(found) if !found.is_file() && !found.is_symlink() => return Err(RestoreError::InTheWay(path)),
            Ok(found) if is_same(&path, &found, entry, mode, owner) => Change::Same,
            Ok(_) => Change::Replaced(before(&path, &self.stamp)),
        };
        Ok(Step { entry, path, mode, owner, change })
    }

    fn allow(&self, path: &Path) -> Result<(), RestoreError> {
        let beside = folder_of(&self.configuration);
        let mut folders = self.folders.iter().map(PathBuf::as_path).chain([beside]);
        if folders.any(|folder| path.starts_with(folder) && path != folder) {
            return Ok(());
        }
        let folders: Vec<String> = self
            .folders
            .iter()
            .map(PathBuf::as_path)
            .chain([beside])
            .map(|it| it.display().to_string())
            .collect();
        Err(RestoreError::Outside {
            path: path.display().to_string(),
            folder: folder_of(path).display().to_string(),
            folders: folders.join(", "),
        })
    }

    /// The owner that it had, if there is such a user.
    fn owner(&self, entry: &Entry, path: &Path, left: &mut Vec<String>) -> (Option<u32>, Option<u32>) {
        if !self.is_root {
            return (None, None);
        }
        let (user, group) = (self.owners.user(&entry.user), self.owners.group(&entry.group));
        for (what, name, id) in [("user", &entry.user, user), ("group", &entry.group, group)] {
            if id.is_none() {
                left.push(format!("there is no {what} {name:?}, so {} belongs to root", path.display()));
            }
        }
        (Some(user.unwrap_or(0)), Some(group.unwrap_or(0)))
    }

    /// The state folder, if no daemon uses it.
    fn state(&self, left: &mut Vec<String>) -> Option<State> {
        let state = self.state.as_deref()?;
        match self.locked(state) {
            Ok(Some(state)) => Some(state),
            Ok(None) => {
                let state = state.display();
                left.push(format!(
                    "the revisions and the certificate of HTTPS: a daemon uses {state}\n  fix: to restore them too: systemctl stop postern, restore, \
                     systemctl start postern"
                ));
                None
            }
            Err(error) => {
                left.push(format!(
                    "the revisions and the certificate of HTTPS: {}: {error}",
                    state.display()
                ));
                None
            }
        }
    }

    /// The daemon's user owns the folder: no link in it is followed.
    fn locked(&self, path: &Path) -> io::Result<Option<State>> {
        let folder = Folder::make(path, 0o700)?;
        let found = folder.metadata()?;
        let owner = if self.is_root { (Some(found.uid()), Some(found.gid())) } else { (None, None) };
        let lock = folder.lock_file(OsStr::new("lock"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            outcome => outcome?,
        }
        // The daemon must be able to open one that was made now; one with a second name may be another file.
        if lock.metadata()?.nlink() == 1 {
            fchown(&lock, owner.0, owner.1)?;
        }
        Ok(Some(State { path: path.to_owned(), folder, stamp: self.stamp.clone(), owner, _lock: lock }))
    }
}

/// A name for the old file.
fn before(path: &Path, stamp: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}.before-{stamp}"))
}

fn is_same(
    path: &Path,
    found: &fs::Metadata,
    entry: &Entry,
    mode: u32,
    owner: (Option<u32>, Option<u32>),
) -> bool {
    let is_owned = owner.0.is_none_or(|id| id == found.uid()) && owner.1.is_none_or(|id| id == found.gid());
    let is_as_it_was = found.is_file() && found.mode() & 0o7777 == mode && is_owned;
    is_as_it_was && disk::read(path, LARGEST).is_ok_and(|(bytes, _)| bytes[..] == *entry.content.bytes())
}

impl Plan<'_> {
    /// Whether something that is there would be replaced.
    pub fn replaces(&self) -> bool {
        self.folders().any(|(name, _)| self.aside(name).is_some())
            || self.steps.iter().any(|step| matches!(step.change, Change::Replaced(_)))
    }

    /// The archive of revisions that was there before, by its new name.
    pub fn archive_before(&self) -> Option<PathBuf> {
        self.aside(ARCHIVE).filter(|_| !self.revisions.is_empty())
    }

    /// The certificate of the HTTPS server that was there before, by the new name of its folder.
    pub fn certificate_before(&self) -> Option<PathBuf> {
        self.aside(HTTPS).filter(|_| !self.certificate.is_empty())
    }

    fn aside(&self, name: &str) -> Option<PathBuf> {
        let state = self.state.as_ref().filter(|state| state.folder.has(OsStr::new(name)))?;
        Some(state.path.join(state.aside(name)))
    }

    /// The folders of the state folder that are replaced.
    fn folders(&self) -> impl Iterator<Item = (&'static str, &[&Entry])> {
        let all = [(ARCHIVE, &self.revisions[..]), (HTTPS, &self.certificate[..])];
        all.into_iter().filter(|(_, entries)| !entries.is_empty())
    }

    /// Writes everything. `point` is called after each step: tests end there.
    pub fn carry_out(&self, point: &mut dyn FnMut(&str)) -> Result<(), RestoreError> {
        if let Err((path, error)) = self.prepare() {
            self.remove_prepared();
            return Err(RestoreError::Io { path, error, done: Vec::new() });
        }
        point("prepared");
        let mut done = Vec::new();
        for (name, _) in self.folders() {
            let Some(state) = &self.state else { continue };
            if let Err(error) = state.publish(name, point) {
                self.remove_prepared();
                return Err(RestoreError::Io { path: state.path.join(name), error, done });
            }
            done.push(state.path.join(name));
            point("folder");
        }
        for step in self.changing() {
            if let Err(error) = step.publish() {
                return Err(RestoreError::Io { path: step.path.clone(), error, done });
            }
            done.push(step.path.clone());
            point("file");
        }
        Ok(())
    }

    fn changing(&self) -> impl Iterator<Item = &Step<'_>> {
        self.steps.iter().filter(|step| step.change != Change::Same)
    }

    fn prepare(&self) -> Result<(), (PathBuf, io::Error)> {
        for step in self.changing() {
            step.prepare().map_err(|error| (step.path.clone(), error))?;
        }
        let Some(state) = &self.state else { return Ok(()) };
        self.folders().try_for_each(|(name, entries)| {
            state.prepare(name, entries).map_err(|error| (state.path.join(new(name)), error))
        })
    }

    fn remove_prepared(&self) {
        for step in self.changing() {
            let _ = Folder::open(folder_of(&step.path)).and_then(|folder| folder.withdraw(step.name()));
        }
        for (name, _) in self.folders() {
            let _ = self.state.as_ref().map(|state| state.folder.remove_all(&new(name)));
        }
    }
}

impl Step<'_> {
    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Writes the new file beside the old one.
    fn prepare(&self) -> io::Result<()> {
        let wanted = Wanted { bytes: self.entry.content.bytes(), mode: self.mode, owner: self.owner };
        Folder::make(folder_of(&self.path), FOLDER)?.prepare(self.name(), &wanted)
    }

    /// Puts the new file in the place of the old one, which keeps another name.
    fn publish(&self) -> io::Result<()> {
        let folder = Folder::open(folder_of(&self.path))?;
        if let Change::Replaced(aside) = &self.change {
            folder.keep(self.name(), aside.file_name().unwrap_or_default())?;
        }
        folder.publish(self.name())
    }
}

/// The name of a folder until it is complete.
fn new(name: &str) -> OsString {
    OsString::from(format!("{name}.postern-new"))
}

impl State {
    /// The name of a folder that was there before.
    fn aside(&self, name: &str) -> OsString {
        before(Path::new(name), &self.stamp).into_os_string()
    }

    /// Writes all files of a folder into a new one.
    fn prepare(&self, name: &str, entries: &[&Entry]) -> io::Result<()> {
        self.folder.remove_all(&new(name))?;
        let folder = self.folder.make_folder(&new(name), 0o700)?;
        for entry in entries {
            let wanted = Wanted { bytes: entry.content.bytes(), mode: 0o600, owner: self.owner };
            folder.write(OsStr::new(entry.place.name()), &wanted)?;
        }
        fchown(&folder, self.owner.0, self.owner.1)
    }

    /// Changes the two folders in one step, if there is an old one: the new one first gets the name that the old one is to have, so
    /// that no moment is left in which the next attempt would take the old one for its own unfinished one.
    fn publish(&self, name: &str, point: &mut dyn FnMut(&str)) -> io::Result<()> {
        let (new, aside, name) = (new(name), self.aside(name), OsStr::new(name));
        if !self.folder.has(name) {
            return self.folder.rename(&new, name);
        }
        self.folder.rename(&new, &aside)?;
        point("named");
        if self.folder.exchange(&aside, name).is_ok() {
            point("exchanged");
            return Ok(());
        }
        // This file system cannot do that. Without an archive, a daemon would begin a new one.
        self.folder.rename(&aside, &new)?;
        self.folder.rename(name, &aside)?;
        self.folder.rename(&new, name)
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
