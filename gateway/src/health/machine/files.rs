//! Files below a root, read with bounds. What cannot be read is an error that says which file and why.
//!
//! A copy of a machine may be of anybody: its links lead nowhere outside of it (openat2(2), `RESOLVE_IN_ROOT`), and only regular files are
//! read, so that no pipe is waited for.

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes of a file: the kernel's have a page or a few.
const LONGEST: u64 = 1 << 20;
/// Entries of a folder.
const MOST: usize = 4096;

/// What is known, or why it is not.
pub type Known<T> = Result<T, String>;

/// The files below a root, by their paths from it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Files<'a> {
    pub(in super::super) root: &'a Path,
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

    /// Opens a file, of whatever kind. One that is a pipe, or a device without data, is not waited for.
    pub(super) fn open(&self, path: &str) -> io::Result<File> {
        self.open_as(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    /// The text of a file without white space at its ends.
    pub(super) fn text(&self, path: &str) -> Known<String> {
        self.text_of(path, LONGEST)
    }

    /// The same of a file that may have so many bytes.
    pub(in super::super) fn text_of(&self, path: &str, longest: u64) -> Known<String> {
        let mut bytes = Vec::new();
        let read = self.open(path).and_then(|file| {
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("it is no regular file"));
            }
            file.take(longest).read_to_end(&mut bytes)
        });
        read.map_err(|error| why(path, &error))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The number that a file holds.
    pub(super) fn number<T: std::str::FromStr>(&self, path: &str) -> Known<T> {
        let text = self.text(path)?;
        text.parse().map_err(|_| format!("/{path} holds no number that is understood"))
    }

    /// The names in a folder, in order.
    pub(super) fn names(&self, path: &str) -> Known<Vec<String>> {
        let folder = self.open_as(path, OFlags::RDONLY | OFlags::DIRECTORY);
        let entries = folder.and_then(|folder| Ok(Dir::new(folder)?)).map_err(|error| why(path, &error))?;
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name != "." && name != "..")
            .take(MOST)
            .collect();
        names.sort_by(|a, b| config::tree::natural_order(a, b));
        Ok(names)
    }

    /// Whether something is there.
    pub(in super::super) fn has(&self, path: &str) -> bool {
        self.open_as(path, OFlags::PATH).is_ok()
    }

    /// Whether a folder is there.
    pub(super) fn has_folder(&self, path: &str) -> bool {
        self.open_as(path, OFlags::PATH | OFlags::DIRECTORY).is_ok()
    }
}

/// Why a file is not known.
pub(super) fn why(path: &str, error: &io::Error) -> String {
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
    fn links_lead_nowhere_outside_of_a_copy_and_pipes_are_not_waited_for() {
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
            assert!(files.text(odd).is_err_and(|why| why.contains("no regular file")), "{odd}");
        }
        assert_eq!(files.names("etc").expect("a folder"), ["above", "name", "stolen"]);
        assert!(files.has("etc") && files.has_folder("etc") && !files.has_folder("etc/name"));
    }
}
