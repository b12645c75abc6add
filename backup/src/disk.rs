//! Files that are read whole, and written so that each is the old or the new one at any moment.

use crate::entry::LARGEST;
use rustix::fs::{Mode, OFlags, open};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The permissions of folders that are made.
const FOLDER: u32 = 0o755;

/// The bytes of a regular file, and what the disk says about it.
pub(crate) fn read(path: &Path) -> io::Result<(Zeroizing<Vec<u8>>, fs::Metadata)> {
    // A pipe or a terminal would keep this waiting.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    if metadata.len() > LARGEST {
        let error = format!("it is larger than {} MiB", LARGEST >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(metadata.len() as usize + 1));
    file.take(LARGEST).read_to_end(&mut bytes)?;
    Ok((bytes, metadata))
}

/// What a file is to be.
pub(crate) struct Wanted<'a> {
    pub(crate) path: &'a Path,
    pub(crate) bytes: &'a [u8],
    pub(crate) mode: u32,
    /// User and group; those of this process if there are no others.
    pub(crate) owner: (Option<u32>, Option<u32>),
}

/// The name beside a file under which it is written first.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.postern-new"))
}

/// Writes the new file beside the old one, durably. What an earlier attempt has left is replaced.
pub(crate) fn prepare(wanted: &Wanted<'_>) -> io::Result<()> {
    let folder = folder_of(wanted.path);
    DirBuilder::new().recursive(true).mode(FOLDER).create(folder)?;
    let new = beside(wanted.path);
    remove(&new)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(open(&new, flags, Mode::from_raw_mode(0o600))?);
    file.write_all(wanted.bytes)?;
    let (user, group) = wanted.owner;
    fchown(&file, user, group)?;
    file.set_permissions(Permissions::from_mode(wanted.mode))?;
    file.sync_all()
}

/// Puts the new file in the place of the old one, which keeps another name.
pub(crate) fn publish(path: &Path, aside: Option<&Path>) -> io::Result<()> {
    if let Some(aside) = aside {
        keep(path, aside)?;
    }
    fs::rename(beside(path), path)?;
    File::open(folder_of(path))?.sync_all()
}

/// Gives a file a second name, so that it is there under the first until the rename.
fn keep(path: &Path, aside: &Path) -> io::Result<()> {
    if fs::hard_link(path, aside).is_ok() {
        return Ok(());
    }
    // This file system has no hard links.
    let (bytes, metadata) = read(path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(open(aside, flags, Mode::from_raw_mode(0o600))?);
    file.write_all(&bytes)?;
    fchown(&file, Some(metadata.uid()), Some(metadata.gid()))?;
    file.set_permissions(Permissions::from_mode(metadata.mode() & 0o777))?;
    file.sync_all()
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
