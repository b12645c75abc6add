//! Writes the files of a backup: all beside their places first, then each into its place, the configuration last.
//!
//! A loss of power leaves each file the old or the new one. What a file was before stays beside it under another name. The same
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
/// In the state folder: the archive, and the new one until it is complete.
const ARCHIVE: &str = "archive";
const NEW: &str = "archive.postern-new";

/// Where a backup is to go.
#[derive(Debug)]
pub struct Target {
    /// The configuration file.
    pub configuration: PathBuf,
    /// Folders in which other files may be written.
    pub folders: Vec<PathBuf>,
    /// The state folder for the revisions; `None` if they are not wanted.
    pub state: Option<PathBuf>,
    /// The users of this machine.
    pub owners: Owners,
    /// Whether this process may give files to other users.
    pub is_root: bool,
    /// The time, for the names of what was there before.
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
    /// What is not restored, or not as it was, a sentence each.
    pub left: Vec<String>,
    archive: Option<Archive>,
}

/// The archive that is replaced, locked against daemons.
#[derive(Debug)]
struct Archive {
    /// The path of the state folder.
    path: PathBuf,
    state: Folder,
    /// The name of the archive that was there before.
    aside: OsString,
    /// The owner of the state folder.
    owner: (Option<u32>, Option<u32>),
    _lock: File,
}

/// Finds out what restoring would do. Nothing is changed, but that the state folder may be made.
pub fn plan<'a>(backup: &'a Backup, target: &Target) -> Result<Plan<'a>, RestoreError> {
    let mut plan = Plan { steps: Vec::new(), revisions: Vec::new(), left: Vec::new(), archive: None };
    for entry in &backup.entries {
        match &entry.place {
            Place::Revision(_) => plan.revisions.push(entry),
            Place::File(path) => {
                let is_configuration = *path == backup.configuration;
                let step = target.step(entry, path, is_configuration, &mut plan.left)?;
                plan.steps.push(step);
            }
        }
    }
    plan.steps.sort_by_key(|step| step.path == target.configuration);
    if !plan.revisions.is_empty() {
        plan.archive = target.archive(&mut plan.left);
        if plan.archive.is_none() {
            plan.revisions.clear();
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

    /// The archive, if no daemon uses it.
    fn archive(&self, left: &mut Vec<String>) -> Option<Archive> {
        let state = self.state.as_deref()?;
        match self.locked(state) {
            Ok(Some(archive)) => Some(archive),
            Ok(None) => {
                let state = state.display();
                left.push(format!(
                    "the revisions: a daemon uses {state}\n  fix: to restore them too: systemctl stop postern, restore, \
                     systemctl start postern"
                ));
                None
            }
            Err(error) => {
                left.push(format!("the revisions: {}: {error}", state.display()));
                None
            }
        }
    }

    /// The daemon's user owns the folder: no link in it is followed.
    fn locked(&self, path: &Path) -> io::Result<Option<Archive>> {
        let state = Folder::make(path, 0o700)?;
        let found = state.metadata()?;
        let owner = if self.is_root { (Some(found.uid()), Some(found.gid())) } else { (None, None) };
        let lock = state.lock_file(OsStr::new("lock"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            outcome => outcome?,
        }
        // The daemon must be able to open one that was made now; one with a second name may be another file.
        if lock.metadata()?.nlink() == 1 {
            fchown(&lock, owner.0, owner.1)?;
        }
        let aside = before(Path::new(ARCHIVE), &self.stamp).into_os_string();
        Ok(Some(Archive { path: path.to_owned(), state, aside, owner, _lock: lock }))
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
        self.archive.as_ref().is_some_and(Archive::is_there)
            || self.steps.iter().any(|step| matches!(step.change, Change::Replaced(_)))
    }

    /// The archive of revisions that was there before, by its new name.
    pub fn archive_before(&self) -> Option<PathBuf> {
        let archive = self.archive.as_ref().filter(|archive| archive.is_there())?;
        Some(archive.path.join(&archive.aside))
    }

    /// Writes everything. `point` is called after each step: tests end there.
    pub fn carry_out(&self, point: &mut dyn FnMut(&str)) -> Result<(), RestoreError> {
        if let Err((path, error)) = self.prepare() {
            self.remove_prepared();
            return Err(RestoreError::Io { path, error, done: Vec::new() });
        }
        point("prepared");
        let mut done = Vec::new();
        if let Some(archive) = &self.archive {
            if let Err(error) = archive.publish(point) {
                self.remove_prepared();
                return Err(RestoreError::Io { path: archive.path.join(ARCHIVE), error, done });
            }
            done.push(archive.path.join(ARCHIVE));
            point("revisions");
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
        let Some(archive) = &self.archive else { return Ok(()) };
        archive.prepare(&self.revisions).map_err(|error| (archive.path.join(NEW), error))
    }

    fn remove_prepared(&self) {
        for step in self.changing() {
            let _ = Folder::open(folder_of(&step.path)).and_then(|folder| folder.withdraw(step.name()));
        }
        if let Some(archive) = &self.archive {
            let _ = archive.state.remove_all(OsStr::new(NEW));
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

impl Archive {
    fn is_there(&self) -> bool {
        self.state.has(OsStr::new(ARCHIVE))
    }

    /// Writes all revisions into a new folder.
    fn prepare(&self, revisions: &[&Entry]) -> io::Result<()> {
        self.state.remove_all(OsStr::new(NEW))?;
        let new = self.state.make_folder(OsStr::new(NEW), 0o700)?;
        for entry in revisions {
            let wanted = Wanted { bytes: entry.content.bytes(), mode: 0o600, owner: self.owner };
            new.write(OsStr::new(entry.place.revision().unwrap_or_default()), &wanted)?;
        }
        fchown(&new, self.owner.0, self.owner.1)
    }

    /// Changes the two folders in one step, if there is an old one: the new one first gets the name that the old one is to have, so
    /// that no moment is left in which the next attempt would take the old one for its own unfinished one.
    fn publish(&self, point: &mut dyn FnMut(&str)) -> io::Result<()> {
        let [archive, new] = [ARCHIVE, NEW].map(OsStr::new);
        if !self.is_there() {
            return self.state.rename(new, archive);
        }
        self.state.rename(new, &self.aside)?;
        point("named");
        if self.state.exchange(&self.aside, archive).is_ok() {
            point("exchanged");
            return Ok(());
        }
        // This file system cannot do that. Without an archive, a daemon would begin a new one.
        self.state.rename(&self.aside, new)?;
        self.state.rename(archive, &self.aside)?;
        self.state.rename(new, archive)
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
