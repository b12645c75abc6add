//! Writes the files of a backup: all beside their places first, then each into its place, the configuration last.
//!
//! A loss of power leaves each file the old or the new one. What a file was before stays beside it under another name. The same
//! command, given again, goes on where it ended.

use crate::entry::{Entry, Place};
use crate::owner::Owners;
use crate::{Backup, disk};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};

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
    folder: PathBuf,
    new: PathBuf,
    aside: PathBuf,
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
        // Whoever may write a program of a task is root. Nobody but its owner and the daemon's group reads a key.
        let mode = entry.mode & if is_configuration { 0o640 } else { 0o755 };
        let owner = self.owner(entry, &path, left);
        let change = match fs::symlink_metadata(&path) {
            Err(_) => Change::New,
            Ok(found) if found.is_dir() => return Err(RestoreError::InTheWay(path)),
            Ok(found) if is_same(&path, &found, entry, mode, owner) => Change::Same,
            Ok(_) => Change::Replaced(before(&path, &self.stamp)),
        };
        Ok(Step { entry, path, mode, owner, change })
    }

    fn allow(&self, path: &Path) -> Result<(), RestoreError> {
        let beside = disk::folder_of(&self.configuration);
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
            folder: disk::folder_of(path).display().to_string(),
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

    fn locked(&self, state: &Path) -> io::Result<Option<Archive>> {
        DirBuilder::new().recursive(true).mode(0o700).create(state)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(state.join("lock"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            outcome => outcome?,
        }
        let found = fs::metadata(state)?;
        let owner = if self.is_root { (Some(found.uid()), Some(found.gid())) } else { (None, None) };
        let folder = state.join("archive");
        let (new, aside) = (state.join("archive.postern-new"), before(&folder, &self.stamp));
        Ok(Some(Archive { folder, new, aside, owner, _lock: lock }))
    }
}

/// The name of what was there before.
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
    is_as_it_was && disk::read(path).is_ok_and(|(bytes, _)| bytes[..] == *entry.content.bytes())
}

impl Plan<'_> {
    /// Whether something that is there would be replaced.
    pub fn replaces(&self) -> bool {
        self.archive.as_ref().is_some_and(|archive| archive.folder.exists())
            || self.steps.iter().any(|step| matches!(step.change, Change::Replaced(_)))
    }

    /// The archive of revisions that was there before, by its new name.
    pub fn archive_before(&self) -> Option<&Path> {
        self.archive.as_ref().filter(|archive| archive.folder.exists()).map(|archive| archive.aside.as_path())
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
            if let Err(error) = archive.publish() {
                self.remove_prepared();
                return Err(RestoreError::Io { path: archive.folder.clone(), error, done });
            }
            done.push(archive.folder.clone());
            point("revisions");
        }
        for step in self.changing() {
            let aside = match &step.change {
                Change::Replaced(aside) => Some(aside.as_path()),
                Change::New | Change::Same => None,
            };
            if let Err(error) = disk::publish(&step.path, aside) {
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
            let Step { entry, path, mode, owner, .. } = step;
            let wanted = disk::Wanted { path, bytes: entry.content.bytes(), mode: *mode, owner: *owner };
            disk::prepare(&wanted).map_err(|error| (path.clone(), error))?;
        }
        let Some(archive) = &self.archive else { return Ok(()) };
        archive.prepare(&self.revisions).map_err(|error| (archive.new.clone(), error))
    }

    fn remove_prepared(&self) {
        for step in self.changing() {
            let _ = disk::remove(&disk::beside(&step.path));
        }
        if let Some(archive) = &self.archive {
            let _ = fs::remove_dir_all(&archive.new);
        }
    }
}

impl Archive {
    /// Writes all revisions into a new folder.
    fn prepare(&self, revisions: &[&Entry]) -> io::Result<()> {
        if self.new.exists() {
            fs::remove_dir_all(&self.new)?;
        }
        DirBuilder::new().mode(0o700).create(&self.new)?;
        for entry in revisions {
            let path = self.new.join(entry.place.revision().unwrap_or_default());
            let wanted =
                disk::Wanted { path: &path, bytes: entry.content.bytes(), mode: 0o600, owner: self.owner };
            disk::prepare(&wanted)?;
            disk::publish(&path, None)?;
        }
        lchown(&self.new, self.owner.0, self.owner.1)
    }

    /// Changes the two folders in one step, if there is an old one.
    fn publish(&self) -> io::Result<()> {
        if !self.folder.exists() {
            fs::rename(&self.new, &self.folder)?;
        } else if renameat_with(CWD, &self.new, CWD, &self.folder, RenameFlags::EXCHANGE).is_ok() {
            fs::rename(&self.new, &self.aside)?;
        } else {
            // This file system cannot do that. Without an archive, a daemon would begin a new one.
            fs::rename(&self.folder, &self.aside)?;
            fs::rename(&self.new, &self.folder)?;
        }
        File::open(disk::folder_of(&self.folder))?.sync_all()
    }
}

#[cfg(test)]
mod tests;
