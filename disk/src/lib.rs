//! Files that are replaced in one step, in folders that are reached without the links of other users.
//!
//! ```text
//! path ── walk: a link counts only in a folder of root or of this user ──> Folder
//! Folder::write ── new file beside the old one, locked ── fsync ── rename ── fsync of the folder ──> the old or the new file
//! ```
//!
//! Processes of root write to folders that an unprivileged daemon owns. A link that the daemon puts there must not lead root elsewhere,
//! so every call below a `Folder` names one file of an open folder.
#![forbid(unsafe_code)]

mod file;
mod walk;

pub use file::Wanted;

use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, RenameFlags, fchmod, linkat, mkdirat, openat, renameat, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A folder that is open. Another that is put in its place does not change it.
#[derive(Debug)]
pub struct Folder(File);

/// A file of a folder, which may not be there.
#[derive(Debug)]
pub struct Located {
    /// The folder that holds it.
    pub folder: Folder,
    /// Its name there.
    pub name: OsString,
}

/// Finds a file. A link in its place counts only in a folder that root or this user alone can change.
pub fn locate(path: &Path) -> io::Result<Located> {
    match walk::walk(path)? {
        (at, Some(name)) => Ok(Located { folder: Folder::reopened(&at)?, name }),
        (_, None) => Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder")),
    }
}

/// Replaces a file in one step, durably: see [`Folder::write`]. The target of a link is replaced, and the link stays.
pub fn write(path: &Path, wanted: &Wanted<'_>) -> io::Result<()> {
    let Located { folder, name } = locate(path)?;
    folder.write(&name, wanted)
}

/// Reads a regular file of at most `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<(Zeroizing<Vec<u8>>, Metadata)> {
    let Located { folder, name } = locate(path)?;
    folder.read(&name, most)
}

/// Opens a regular file that is written in its place, for all that a process tells: see [`Folder::output`]. In `/dev`, which root alone
/// can change, it may be a device or a pipe too.
pub fn output(path: &Path, appends: bool) -> io::Result<File> {
    if is_device(path) {
        return OpenOptions::new().append(appends).write(true).open(path);
    }
    let Located { folder, name } = locate(path)?;
    folder.output(&name, appends)
}

/// The same for what no other user may read: see [`Folder::private_output`].
pub fn private_output(path: &Path) -> io::Result<File> {
    if is_device(path) {
        return OpenOptions::new().write(true).open(path);
    }
    let Located { folder, name } = locate(path)?;
    folder.private_output(&name)
}

fn is_device(path: &Path) -> bool {
    path.parent() == Some(Path::new("/dev"))
}

/// The name beside a file under which it is written first: one that neither cron nor rsyslog nor systemd reads.
fn beside(name: &OsStr) -> OsString {
    OsString::from(format!(".{}.postern-new", name.to_string_lossy()))
}

impl Folder {
    /// Opens a folder. A link on the way counts only in a folder that root or this user alone can change.
    pub fn open(path: &Path) -> io::Result<Self> {
        match walk::walk(path)? {
            (at, None) => Self::reopened(&at),
            (at, Some(name)) => match statat(&at, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a folder")),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Opens a folder, which is made if it is not there. Missing parents get mode 0755, as other programs have files there too. Modes do
    /// not depend on the umask.
    pub fn make(path: &Path, mode: u32) -> io::Result<Self> {
        match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Errno::NOENT.into());
        };
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        Self::make(above, 0o755)?.make_folder(name, mode)
    }

    /// Makes a folder in this one, if it is not there, and opens it. No link is followed.
    pub fn make_folder(&self, name: &OsStr, mode: u32) -> io::Result<Self> {
        match mkdirat(self, name, Mode::from_raw_mode(0o700)) {
            Err(Errno::EXIST) => return self.folder(name),
            made => made?,
        }
        let made = self.folder(name)?;
        fchmod(&made, Mode::from_raw_mode(mode))?;
        Ok(made)
    }

    /// Opens a folder in this one. No link is followed.
    pub fn folder(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(File::from(openat(self, name, flags, Mode::empty())?)))
    }

    fn reopened(at: impl AsFd) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(File::from(openat(at, c".", flags, Mode::empty())?)))
    }

    /// The folder as the kernel describes it.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// The names of all entries.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(self)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Opens a regular file for reading. No link is followed, and neither a pipe nor a device is waited for.
    pub fn file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = openat(self, name, flags, Mode::empty());
        let file =
            File::from(opened.map_err(|error| if error == Errno::LOOP { link() } else { error.into() })?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(no_file("it is not a regular file")) }
    }

    /// Reads a regular file of at most `most` bytes. No link is followed.
    pub fn read(&self, name: &OsStr, most: u64) -> io::Result<(Zeroizing<Vec<u8>>, Metadata)> {
        let file = self.file(name)?;
        let metadata = file.metadata()?;
        let large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {most} bytes"));
        if metadata.len() > most {
            return Err(large());
        }
        // One buffer of the right size: one that grows would leave copies of keys behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(metadata.len() as usize + 1));
        file.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most { Err(large()) } else { Ok((bytes, metadata)) }
    }

    /// Writes the new file beside the old one, durably: [`Folder::publish`] puts it in its place. The file of an
    /// interrupted attempt is replaced.
    pub fn prepare(&self, name: &OsStr, wanted: &Wanted<'_>) -> io::Result<()> {
        let new = beside(name);
        let written = wanted.fill(&file::fresh(self, &new)?);
        if written.is_err() {
            let _ = self.remove(&new);
        }
        written
    }

    /// Puts a file that was prepared in the place of the old one.
    pub fn publish(&self, name: &OsStr) -> io::Result<()> {
        self.rename(&beside(name), name)
    }

    /// Removes a file that was prepared.
    pub fn withdraw(&self, name: &OsStr) -> io::Result<()> {
        self.remove(&beside(name))
    }

    /// Replaces a file in one step, durably: it is the old or the new one at any moment. A device, a pipe or a socket is not
    /// replaced. Fails if another process writes the same file.
    pub fn write(&self, name: &OsStr, wanted: &Wanted<'_>) -> io::Result<()> {
        if let Ok(there) = statat(self, name, AtFlags::SYMLINK_NOFOLLOW)
            && !file::is_replaceable(&there)
        {
            return Err(no_file("it is there, and is not a regular file"));
        }
        let new = beside(name);
        // Locked until it is in its place.
        let file = file::fresh(self, &new)?;
        let written = wanted.fill(&file).and_then(|()| self.rename(&new, name));
        if written.is_err() {
            let _ = self.remove(&new);
        }
        written
    }

    /// Gives a file of this folder another name here, durably. A file of that name is replaced.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        renameat(self, from, self, to)?;
        self.sync()
    }

    /// Gives a file a second name here, so that it is there under the first until that is replaced.
    pub fn keep(&self, name: &OsStr, aside: &OsStr) -> io::Result<()> {
        match linkat(self, name, self, aside, AtFlags::empty()) {
            // This file system has no hard links.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                let (bytes, like) = self.read(name, u64::MAX - 1)?;
                let owner = (Some(like.uid()), Some(like.gid()));
                self.write(aside, &Wanted { bytes: &bytes, mode: like.mode() & 0o777, owner })
            }
            kept => Ok(kept?),
        }
    }

    /// Exchanges two files or folders of this one in one step, durably. A file system may be unable to.
    pub fn exchange(&self, one: &OsStr, other: &OsStr) -> io::Result<()> {
        renameat_with(self, one, self, other, RenameFlags::EXCHANGE)?;
        self.sync()
    }

    /// Whether there is an entry of this name.
    pub fn has(&self, name: &OsStr) -> bool {
        statat(self, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Opens a file that processes lock, which is made for this user alone if it is not there. No link is followed.
    pub fn lock_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(File::from(openat(self, name, flags, Mode::from_raw_mode(0o600))?))
    }

    /// Opens a regular file for writing, at its end or from an empty one on. It is made for this user alone if it is not there. No link is
    /// followed.
    pub fn output(&self, name: &OsStr, appends: bool) -> io::Result<File> {
        let file = self.writable(name, if appends { OFlags::APPEND } else { OFlags::empty() })?;
        if !appends {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Opens a regular file for writing, from an empty one on, that this user alone can read. One of another user is refused, and so is one
    /// with further names.
    pub fn private_output(&self, name: &OsStr) -> io::Result<File> {
        let file = self.writable(name, OFlags::empty())?;
        let there = file.metadata()?;
        let refused = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        if there.uid() != geteuid().as_raw() {
            return refused("it is there, and belongs to another user");
        }
        // A hard link, which another user may have made.
        if there.nlink() > 1 {
            return refused("it is there, and has other names too");
        }
        fchmod(&file, Mode::from_raw_mode(0o600))?;
        file.set_len(0)?;
        Ok(file)
    }

    fn writable(&self, name: &OsStr, more: OFlags) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flags = flags | OFlags::NOCTTY | OFlags::CLOEXEC | more;
        let opened = openat(self, name, flags, Mode::from_raw_mode(0o600));
        let file =
            File::from(opened.map_err(|error| if error == Errno::LOOP { link() } else { error.into() })?);
        if !file.metadata()?.is_file() {
            return Err(no_file("it is not a regular file"));
        }
        Ok(file)
    }

    /// Removes a folder with all that is in it, or a file, if it is there. No link is followed.
    pub fn remove_all(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(self, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {
                let inner = self.folder(name)?;
                inner.names()?.iter().try_for_each(|name| inner.remove_all(name))?;
                Ok(unlinkat(self, name, AtFlags::REMOVEDIR)?)
            }
            Err(Errno::NOENT) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a file, if it is there.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(self, name, AtFlags::empty()) {
            Err(Errno::NOENT) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the disk has its names.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn no_file(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn link() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "it is a link, which another user may have made")
}

/// The path in its shortest form, with no `.`, `..` and double slash; links are not looked at.
pub fn normalized(path: &Path) -> io::Result<PathBuf> {
    let mut whole = PathBuf::new();
    for part in std::path::absolute(path)?.components() {
        if part == std::path::Component::ParentDir {
            whole.pop();
        } else {
            whole.push(part);
        }
    }
    Ok(whole)
}

#[cfg(test)]
mod tests;
