//! Follows a path from the root folder, one part at a time.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};

/// Links on the way to a file, as the kernel has it.
const MOST_LINKS: usize = 40;
/// The permissions with which other users than the owner can put a link into a folder.
const WRITABLE: u32 = 0o022;

/// The folder that a path leads to; or the folder that holds it and its name, if it is another file or not there.
pub(crate) fn walk(path: &Path) -> io::Result<(OwnedFd, Option<OsString>)> {
    let mut left = parts(&std::path::absolute(path)?);
    let mut at = root()?;
    let mut links = 0;
    while let Some(part) = left.pop() {
        let found = match statat(&at, &part, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) if left.is_empty() => return Ok((at, Some(part))),
            found => FileType::from_raw_mode(found?.st_mode),
        };
        match found {
            // A link that has taken its place meanwhile is refused.
            FileType::Directory => at = folder(&at, &part)?,
            FileType::Symlink => {
                links += 1;
                if links > MOST_LINKS || !is_ours(&fstat(&at)?) {
                    return Err(link(&part));
                }
                let target = OsString::from_vec(readlinkat(&at, &part, Vec::new())?.into_bytes());
                let target = Path::new(&target);
                if target.is_absolute() {
                    at = root()?;
                }
                left.extend(parts(target));
            }
            _ if left.is_empty() => return Ok((at, Some(part))),
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok((at, None))
}

/// Whether only root and this user can change the entries of a folder.
fn is_ours(folder: &Stat) -> bool {
    (folder.st_uid == 0 || folder.st_uid == geteuid().as_raw()) && folder.st_mode & WRITABLE == 0
}

fn root() -> io::Result<OwnedFd> {
    folder(CWD, OsStr::new("/"))
}

// O_PATH: a folder that may be passed through need not be readable.
fn folder(at: impl std::os::fd::AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, name, flags, Mode::empty())?)
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let named = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(named).collect()
}

fn link(name: &OsStr) -> io::Error {
    let why = format!("{:?} is a link in a folder that other users can change", name.to_string_lossy());
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}
