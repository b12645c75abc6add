//! Files below a root, read with bounds. What cannot be read is an error that says which file and why.
//!
//! A copy of a machine may be hostile: links cannot lead out of it (openat2(2), `RESOLVE_IN_ROOT`), and only regular files are read, so that
//! a FIFO cannot block the reader.

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Bytes of a file: the kernel's have a page or a few.
const LONGEST: u64 = 1 << 20;
/// Entries of a folder.
const MOST: usize = 4096;

/// A value, or why it is unknown.
pub type Known<T> = Result<T, String>;

/// The files below a root, by their paths from it.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// The root.
    pub root: &'a Path,
}

impl Files<'_> {
    fn open_as(&self, path: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC;
        if self.root == Path::new("/") {
            return Ok(File::from(rustix::fs::open(self.root.join(path), flags, Mode::empty())?));
        }
        let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, self.root, way, Mode::empty())?;
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(File::from(rustix::fs::openat2(root, path, flags, Mode::empty(), within)?))
    }

    /// Opens a file of any kind, without blocking on a FIFO or a device.
    pub fn open(&self, path: &str) -> io::Result<File> {
        self.open_as(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    /// The text of a file without white space at its ends.
    pub fn text(&self, path: &str) -> Known<String> {
        self.text_of(path, LONGEST)
    }

    /// The same, of at most `longest` bytes.
    pub fn text_of(&self, path: &str, longest: u64) -> Known<String> {
        let mut bytes = Vec::new();
        let read = self.open(path).and_then(|file| {
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("it is not a regular file"));
            }
            file.take(longest).read_to_end(&mut bytes)
        });
        read.map_err(|error| why(path, &error))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The number that a file holds.
    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Known<T> {
        let text = self.text(path)?;
        text.parse().map_err(|_| format!("/{path} is not a number"))
    }

    /// The names in a folder, sorted.
    pub fn names(&self, path: &str) -> Known<Vec<String>> {
        let folder = self.open_as(path, OFlags::RDONLY | OFlags::DIRECTORY);
        let entries = folder.and_then(|folder| Ok(Dir::new(folder)?)).map_err(|error| why(path, &error))?;
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name != "." && name != "..")
            .take(MOST)
            .collect();
        names.sort();
        Ok(names)
    }

    /// What a symbolic link contains; `None` if the path is not a link.
    pub fn link(&self, path: &str) -> Option<PathBuf> {
        let link = self.open_as(path, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        // An empty name stands for the link that was opened: readlinkat(2).
        let text = rustix::fs::readlinkat(&link, "", Vec::new()).ok()?;
        Some(PathBuf::from(OsString::from_vec(text.into_bytes())))
    }

    /// Whether the path exists.
    pub fn has(&self, path: &str) -> bool {
        self.open_as(path, OFlags::PATH).is_ok()
    }

    /// Whether the path is a folder.
    pub fn has_folder(&self, path: &str) -> bool {
        self.open_as(path, OFlags::PATH | OFlags::DIRECTORY).is_ok()
    }
}

/// The error of a file that could not be read.
pub fn why(path: &str, error: &io::Error) -> String {
    let said = match error.kind() {
        io::ErrorKind::NotFound => "is not there".to_owned(),
        io::ErrorKind::PermissionDenied => "can be read by root only".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    format!("/{path} {said}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_cannot_leave_a_copy_and_fifos_do_not_block() {
        let outside = tempfile::tempdir().expect("writable");
        std::fs::write(outside.path().join("secret"), "secret").expect("writable");
        let root = tempfile::tempdir().expect("writable");
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir(at("etc")).expect("writable");
        std::fs::write(at("etc/name"), " gw \n").expect("writable");
        symlink(outside.path().join("secret"), at("etc/stolen")).expect("writable");
        symlink(outside.path(), at("folder")).expect("writable");
        symlink("../../../../../../../../etc/name", at("etc/above")).expect("writable");
        symlink("/etc/name", at("absolute")).expect("writable");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(CWD, at("pipe"), kind, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        let files = Files { root: root.path() };
        for inside in ["etc/name", "etc/above", "absolute"] {
            assert_eq!(files.text(inside).as_deref(), Ok("gw"), "{inside}");
        }
        assert_eq!(files.text("etc/stolen"), Err("/etc/stolen is not there".to_owned()));
        assert!(!files.has("etc/stolen") && !files.has("folder/secret") && files.names("folder").is_err());
        for odd in ["pipe", "etc"] {
            assert!(files.text(odd).is_err_and(|why| why.contains("not a regular file")), "{odd}");
        }
        assert_eq!(files.names("etc").expect("a folder"), ["above", "name", "stolen"]);
        assert_eq!(files.link("absolute"), Some(PathBuf::from("/etc/name")));
        assert_eq!((files.link("etc/name"), files.link("nothing")), (None, None));
        assert!(files.has("etc") && files.has_folder("etc") && !files.has_folder("etc/name"));
    }
}
