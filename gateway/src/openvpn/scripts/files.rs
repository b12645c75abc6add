//! Temporary files of one run: made for the program alone, read when it has ended, removed in any case.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};

/// More of a file is not read.
const LONGEST: u64 = 65_536;

/// A file, which is removed when dropped.
pub(super) struct Made(PathBuf);

impl Made {
    /// Makes a file in a folder that other users may write to.
    pub(super) fn new(folder: &Path, content: &[u8], owner: Option<(u32, u32)>) -> io::Result<Self> {
        let mut random = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let path = folder.join(format!("postern-{}.tmp", base16ct::lower::encode_string(&random)));
        // O_EXCL follows no link.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?);
        let made = Self(path);
        if let Some((user, group)) = owner {
            fchown(&file, Some(user), Some(group))?;
        }
        file.write_all(content)?;
        Ok(made)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// What the program has written; nothing if it is no file any more. The program may have put a link or a pipe there.
    pub(super) fn read(&self) -> Vec<u8> {
        open(&self.0, OFlags::NOFOLLOW).unwrap_or_else(|error| {
            tracing::warn!("{}: {error}", self.0.display());
            Vec::new()
        })
    }
}

/// A file of the administrator's.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    open(path, OFlags::empty())
}

fn open(path: &Path, flags: OFlags) -> io::Result<Vec<u8>> {
    let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Drop for Made {
    fn drop(&mut self) {
        // The program may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_for_its_owner_alone_and_is_removed() {
        let made = Made::new(&std::env::temp_dir(), b"secret", None).expect("it may");
        let path = made.path().to_owned();
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(made.read(), b"secret");
        drop(made);
        assert!(!path.exists());
    }

    #[test]
    fn a_link_or_a_large_file_in_its_place_gives_nothing_or_little() {
        let made = Made::new(&std::env::temp_dir(), b"", None).expect("it may");
        std::fs::write(made.path(), vec![b'x'; 1 << 20]).expect("ours");
        assert_eq!(made.read().len() as u64, LONGEST);
        std::fs::remove_file(made.path()).expect("ours");
        std::os::unix::fs::symlink("/etc/passwd", made.path()).expect("ours");
        assert!(made.read().is_empty());
    }
}
