//! A new file that no other process writes.

use crate::Folder;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, fchmod, fchown, flock, fstat, openat, statat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};

/// Attempts to make a file that others remove or make again meanwhile.
const ATTEMPTS: usize = 16;

/// The content and the metadata of a new file.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// Its content.
    pub bytes: &'a [u8],
    /// Its permissions; the umask does not change them.
    pub mode: u32,
    /// User and group; those of this process if there are no others.
    pub owner: (Option<u32>, Option<u32>),
}

impl<'a> Wanted<'a> {
    /// A file that this user alone can read.
    pub fn private(bytes: &'a [u8]) -> Self {
        Self { bytes, mode: 0o600, owner: (None, None) }
    }

    pub(crate) fn fill(&self, mut file: &File) -> io::Result<()> {
        file.write_all(self.bytes)?;
        let (user, group) = (self.owner.0.map(Uid::from_raw), self.owner.1.map(Gid::from_raw));
        if user.is_some() || group.is_some() {
            fchown(file, user, group)?;
        }
        fchmod(file, Mode::from_raw_mode(self.mode))?;
        file.sync_all()
    }
}

/// Whether an existing entry may be replaced by a file: a file or a link.
pub(crate) fn is_replaceable(there: &Stat) -> bool {
    matches!(FileType::from_raw_mode(there.st_mode), FileType::RegularFile | FileType::Symlink)
}

/// Makes a file and locks it. One that a process has left which was killed is replaced; one that a process writes now is an error.
pub(crate) fn fresh(folder: &Folder, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..ATTEMPTS {
        match openat(folder, name, flags, Mode::from_raw_mode(0o600)) {
            // Another process may have removed it before it was locked.
            Ok(file) => {
                let file = File::from(file);
                if lock(&file)? && is_named(folder, name, &file)? {
                    return Ok(file);
                }
            }
            Err(Errno::EXIST) => remove_left(folder, name)?,
            Err(error) => return Err(error.into()),
        }
    }
    Err(busy())
}

/// Removes a file that no process writes.
fn remove_left(folder: &Folder, name: &OsStr) -> io::Result<()> {
    match folder.file(name) {
        // Its writer, which has the lock until the rename, has ended.
        Ok(file) => match (lock(&file)?, is_named(folder, name, &file)?) {
            (true, true) => folder.remove(name),
            (true, false) => Ok(()),
            (false, _) => Err(busy()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // No file that is written here: a link, a pipe.
        Err(_) => folder.remove(name),
    }
}

/// Whether it is locked now; a file system without locks is taken as it is.
fn lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS | Errno::INVAL) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn is_named(folder: &Folder, name: &OsStr, file: &File) -> io::Result<bool> {
    let own = fstat(file)?;
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) => Ok((there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn busy() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "another process writes it now")
}
